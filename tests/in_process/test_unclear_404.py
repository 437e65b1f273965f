"""Status 404 shows a deletion only if the service itself reports it, about a zone that exists."""

import errno
import time

import pytest

from tests.harness.fake_service import FakeZone
from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual
from tests.in_process.test_lost_replies import unanswered

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


def without_zone(desk: Mounted, code: str = "UNKNOWN_ZONE") -> FakeZone:
    """Make changes during a pause, and remove their zone from the service; return the zone.

    The changes are an edit, a new file, a rename with an edit, a rename and a removal. Requests in
    the zone get this error code.
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
    return gone(desk, code)


def gone(desk: Mounted, code: str = "UNKNOWN_ZONE", *, is_paused: bool = False) -> FakeZone:
    """Remove the zone from the service, and resume unless `is_paused`."""
    world = virtual(desk).deployment.world
    zone = world.zones.pop(desk.zone.id)
    world.fault(status=404, error=code, path=f"/{zone.id}/")
    desk.allow("refused")
    if not is_paused:
        desk.command("resume")
    return zone


@pytest.mark.parametrize("code", ["UNKNOWN_ZONE", "NOT_FOUND", "UNKNOWN_FILE"])
def test_a_zone_that_is_gone_for_a_while(desk: Mounted, code: str) -> None:
    """The service neither knows nor lists the zone; then the zone is back.

    As without access to the zone, edits wait, and renames and removals are undone and reported.
    """
    zone = without_zone(desk, code)
    assert desk.try_sync() == 1
    uploads = desk.status()["uploads"]
    assert [each["path"].rpartition("/")[2] for each in uploads] == ["notes.txt", "new", "a"]
    assert {each["state"] for each in uploads} == {"failed"}
    for each in uploads:
        assert code in each["error"]
        assert each["error"].endswith("whether it was deleted or your membership has ended")
    assert not desk.conflicts()
    virtual(desk).deployment.world.zones[zone.id] = zone
    desk.deployment.heal()
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


@pytest.mark.parametrize("listed", [{"ssiAccessible": False}, {"id": None}])
def test_an_edit_in_a_zone_that_is_listed_but_not_usable(
    desk: Mounted, listed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list shows the zone as inaccessible or without an id, and requests in it get 404.

    The file does not count as deleted: the edit becomes its next version, without a conflict.
    """
    desk.allow("refused", "zones")
    world = virtual(desk).deployment.world
    zone, wire = world.zones[desk.zone.id], world.zones[desk.zone.id].wire
    desk.names(desk.root)
    desk.command("pause")
    (desk.root / "notes.txt").write_bytes(b"edited")
    monkeypatch.setattr(zone, "wire", lambda: wire() | listed)
    world.fault(status=404, error="NOT_FOUND", path=f"/{zone.id}/")
    desk.command("resume")
    assert desk.try_sync() != 0
    assert [each["path"] for each in desk.status()["uploads"]] == [f"{desk.root.name}/notes.txt"]
    monkeypatch.undo()
    desk.deployment.heal()
    desk.sync()
    assert desk.zone.read("notes.txt") == b"edited"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert not desk.conflicts()


def test_a_removal_that_waits_in_a_zone_that_is_gone_has_its_path(desk: Mounted) -> None:
    """The status and the report of the refusal name the zone and the folder of the file."""
    path = f"{desk.root.name}/docs/report.md"
    desk.names(desk.root / "docs")
    desk.command("pause")
    (desk.root / "docs/report.md").unlink()
    gone(desk, is_paused=True)
    for _ in range(2):
        time.sleep(2)
        desk.names(desk.path)
    assert [each["path"] for each in desk.status()["uploads"]] == [path]
    desk.command("resume")
    assert [each["path"] for each in desk.command("sync")["taken_back"]] == [path]
    time.sleep(2)
    assert desk.names(desk.path) == []


@pytest.mark.parametrize("code", ["UNKNOWN_ZONE", "NOT_FOUND"])
def test_a_zone_that_is_gone_is_noticed_in_its_folders(desk: Mounted, code: str) -> None:
    """The folder is the current folder of a shell, and no program looks at the folders above."""
    mount, current = virtual(desk), (desk.root / "docs").stat().st_ino
    desk.names(desk.root / "docs")
    gone(desk, code)
    time.sleep(60)
    with pytest.raises(FileNotFoundError):
        mount.call(mount.client.files.getattr, current)  # opendir(3) calls fstat(2)
        mount.system._names(current)


def test_a_read_in_a_zone_that_is_gone_is_refused(desk: Mounted) -> None:
    """The file may be back with the zone, so the program is not told that it was deleted."""
    content = b"1" * (12 << 20)
    desk.zone.write("large.bin", content)
    with (desk.root / "large.bin").open("rb", buffering=0) as file:
        assert file.read(4) == content[:4]
        gone(desk)
        file.seek(len(content) - 4)
        with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.EACCES):
            file.read(4)


@pytest.mark.parametrize("what", ["edit", "new", "rename"])
def test_a_change_without_an_answer_in_a_zone_that_is_gone_is_given_up(
    desk: Mounted, what: str
) -> None:
    """The reply was lost, so nobody knows whether the change had an effect."""
    desk.names(desk.root)
    method, path = ("PUT", "/entries/") if what == "rename" else ("POST", "^/api/zones/")
    name = {"edit": "notes.txt", "new": "new", "rename": "renamed"}[what]
    with unanswered(desk, lambda: desk.zone.find(name), method=method, path=path):
        if what == "rename":
            (desk.root / "notes.txt").rename(desk.root / name)
        else:
            (desk.root / name).write_bytes(b"saved")
    desk.deployment.heal()
    gone(desk)
    assert desk.try_sync() == 1
    if what != "rename":  # which is undone
        (desk.root / name).unlink()
    desk.try_sync()
    assert not desk.status()["uploads"]
    assert desk.try_sync() == 0


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "hidden"])
def test_a_new_file_without_an_answer_that_is_removed_in_a_zone_that_is_gone_is_reported(
    desk: Mounted, is_shown: bool
) -> None:
    """The service may have the file, which then shows again when the zone is back."""
    desk.names(desk.root)
    with unanswered(desk, lambda: desk.zone.find("new"), method="POST", path="^/api/zones/"):
        (desk.root / "new").write_bytes(b"saved")
    desk.deployment.heal()
    desk.command("pause")
    (desk.root / "new").unlink()
    zone = gone(desk, is_paused=True)
    if not is_shown:
        for _ in range(2):
            time.sleep(2)
            desk.names(desk.path)
    desk.command("resume")
    taken_back = desk.command("sync")["taken_back"]
    assert [each["path"] for each in taken_back] == [f"{desk.root.name}/new"]
    virtual(desk).deployment.world.zones[zone.id] = zone
    desk.deployment.heal()
    assert desk.try_sync() == 0
    time.sleep(2)
    desk.names(desk.path)
    time.sleep(2)
    assert "new" in desk.names(desk.root)


def test_a_temporary_name_in_a_zone_that_is_gone_is_given_up(desk: Mounted) -> None:
    """Two names are being exchanged. When the zone is back, no entry keeps a temporary name."""
    desk.zone.write("other.txt", b"other")
    desk.names(desk.root)
    time.sleep(2)
    desk.names(desk.root)
    with unanswered(
        desk,
        lambda: any(name.startswith(".zonedrive-") for name in desk.zone.listing("")),
        method="PUT",
        path="/entries/",
    ):
        desk.exchange(desk.root / "notes.txt", desk.root / "other.txt")
    desk.deployment.heal()
    zone = gone(desk)
    assert desk.try_sync() == 1
    for name in ("notes.txt", "other.txt"):
        (desk.root / name).unlink()
    desk.try_sync()
    assert not desk.status()["uploads"]
    assert desk.try_sync() == 0
    virtual(desk).deployment.world.zones[zone.id] = zone
    desk.deployment.heal()
    for _ in range(2):
        time.sleep(2)
        desk.names(desk.path)
    desk.names(desk.root)
    desk.sync()
    assert {"notes.txt", "other.txt"} <= set(desk.zone.listing("")) & set(desk.names(desk.root))
    assert not any(name.startswith(".zonedrive-") for name in desk.zone.listing(""))
