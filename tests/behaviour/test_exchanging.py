"""Two files that change places, as some programs save: none loses anything, come what may."""

import os

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix import calls

pytestmark = pytest.mark.mount("settle=0")


def _exchange(mounted: Mounted, one: str, other: str) -> None:
    calls.renameat2(mounted.root / one, mounted.root / other, calls.EXCHANGE)


def _has(mounted: Mounted, name: str, identity: str) -> bool:
    """Whether what has the name here is that entry of the service by now."""
    try:
        return os.getxattr(mounted.root / name, "user.zonedrive.id").decode() == identity
    except OSError:
        return False


def _downloads(mounted: Mounted) -> int:
    requests = mounted.deployment.stats()["requests"]
    return int(sum(count for route, count in requests.items() if route.endswith("/content")))


def test_an_edit_while_its_former_bytes_are_fetched_is_kept(mounted: Mounted) -> None:
    """They are needed for the other file's history; what was saved meanwhile is what counts."""
    before = _downloads(mounted)
    mounted.deployment.fault(latency_ms=1500, method="GET", path="/content$")
    (mounted.root / "new.txt").write_bytes(b"new\n")
    _exchange(mounted, "new.txt", "notes.txt")
    eventually(lambda: _downloads(mounted) > before, what="the former bytes are asked for")
    (mounted.root / "new.txt").write_bytes(b"edited after the exchange\n")
    mounted.deployment.heal()
    mounted.sync()
    for name, content in (("new.txt", b"edited after the exchange\n"), ("notes.txt", b"new\n")):
        assert (mounted.root / name).read_bytes() == content
        assert mounted.zone.read(name) == content
    mounted.unmount()
    mounted.mount()
    assert (mounted.root / "new.txt").read_bytes() == b"edited after the exchange\n"


def test_what_goes_back_to_where_it_came_from_is_not_sent(mounted: Mounted) -> None:
    """Exchanged twice: the service's file is what it was, without a second version of it."""
    mounted.allow("answer", "refused", "offline", "reach")
    identity = mounted.zone.entry_id("notes.txt")
    content = (mounted.root / "notes.txt").read_bytes()
    mounted.deployment.fault(status=503, error="NOT_AVAILABLE", method="POST", path="^/api/zones/")
    (mounted.root / "new.txt").write_bytes(b"new\n")
    for _ in range(2):
        _exchange(mounted, "new.txt", "notes.txt")
        eventually(lambda: _has(mounted, "notes.txt", identity), what="the other has its place")
    mounted.deployment.heal()
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == identity
    assert mounted.zone.read("notes.txt") == content
    assert len(mounted.zone.versions("notes.txt")) == 1
    assert mounted.zone.read("new.txt") == b"new\n"
