"""Status 404 shows a deletion only if the service itself reports it, about a zone that exists."""

import time

import pytest

from tests.harness.fake_service import FakeZone
from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.mark.parametrize("answer", ["page", "zone"])
def test_the_changes_stay_pending(desk: Mounted, answer: str) -> None:
    """For some seconds, a gateway has no route to the service, or the service loses the zone."""
    desk.zone.write("docs/k", b"k")
    desk.names(desk.root)
    time.sleep(2)
    before = set(desk.names(desk.root / "docs")) - {"k"}
    world = virtual(desk).deployment.world
    desk.command("pause")
    (desk.root / "docs/report.md").rename(desk.root / "docs/renamed.md")
    (desk.root / "docs/k").unlink()
    (desk.root / "notes.txt").write_bytes(b"edited")
    if answer == "page":
        world.is_unrouted = True
    else:
        world.fault(status=404, error="UNKNOWN_ZONE", path=f"/{desk.zone.id}/")
    desk.command("resume")
    time.sleep(5)
    assert len(desk.status()["uploads"]) == 3
    desk.deployment.heal()
    desk.sync()
    assert set(desk.zone.listing("docs")) == before - {"report.md"} | {"renamed.md"}
    assert [each["name"] for each in desk.zone.trash()] == ["k"]
    assert desk.zone.read("notes.txt") == b"edited"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.names(desk.root / "docs")) == set(desk.zone.listing("docs"))
    assert not desk.conflicts()


def without_zone(desk: Mounted) -> FakeZone:
    """Make changes during a pause, and remove their zone from the service; return the zone.

    The changes are an edit, a new file, a rename with an edit, a rename and a removal.
    """
    desk.zone.write("a", b"old")
    desk.zone.write("docs/k", b"k")
    desk.names(desk.root)
    time.sleep(2)
    desk.names(desk.root / "docs")
    desk.command("pause")
    (desk.root / "notes.txt").write_bytes(b"edited")
    (desk.root / "new").write_bytes(b"new")
    (desk.root / "a").rename(desk.root / "docs/a")
    (desk.root / "docs/a").write_bytes(b"edited a")
    (desk.root / "docs/report.md").rename(desk.root / "docs/renamed.md")
    (desk.root / "docs/k").unlink()
    zone = virtual(desk).deployment.world.zones.pop(desk.zone.id)
    desk.allow("refused")
    desk.command("resume")
    return zone


def test_a_zone_that_is_gone_for_a_while(desk: Mounted) -> None:
    """The service neither knows nor lists the zone; then the zone is back.

    As without access to the zone, edits wait, and renames and removals are undone and reported.
    """
    zone = without_zone(desk)
    assert desk.try_sync() == 1
    uploads = desk.status()["uploads"]
    assert [each["path"].rpartition("/")[2] for each in uploads] == ["notes.txt", "new", "a"]
    assert {each["state"] for each in uploads} == {"failed"}
    for each in uploads:
        assert "the service does not have this zone (any more)" in each["error"]
        assert each["error"].endswith("whether it was deleted or your membership has ended")
    assert not desk.conflicts()
    virtual(desk).deployment.world.zones[zone.id] = zone
    desk.sync()
    names = {"notes.txt": 2, "new": 1, "a": 2, "docs/report.md": 1, "docs/k": 1}
    assert {name: len(desk.zone.versions(name)) for name in names} == names
    assert desk.zone.read("notes.txt") == b"edited"
    assert desk.zone.read("a") == b"edited a"
    assert not desk.conflicts()
    desk.names(desk.root)
    time.sleep(2)
    for folder in ("", "docs"):
        assert set(desk.names(desk.root / folder)) == set(desk.zone.listing(folder))


def test_changes_in_a_zone_that_is_gone_are_given_up(desk: Mounted) -> None:
    """Removing the files gives up the changes, and the zone is no longer shown."""
    without_zone(desk)
    assert desk.try_sync() == 1
    for name in ("notes.txt", "new", "a"):
        (desk.root / name).unlink()
    desk.try_sync()
    assert not desk.status()["uploads"]
    assert desk.try_sync() == 0
    desk.names(desk.path)
    time.sleep(2)
    assert desk.root.name not in desk.names(desk.path)
