"""Status 404 shows a deletion only if the service itself reports it, about a zone that exists."""

import time

import pytest

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
