"""Exchanges of two files, as some programs save: no data are lost in any case."""

import os

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

pytestmark = pytest.mark.mount("settle=0")


def _exchange(desk: Mounted, one: str, other: str) -> None:
    desk.exchange(desk.root / one, desk.root / other)


def _has(desk: Mounted, name: str, identity: str) -> bool:
    """Return True if the name belongs to that entry of the service by now."""
    try:
        return desk.xattr(desk.root / name, "user.zonedrive.id") == identity
    except OSError:
        return False


def test_an_edit_while_its_former_bytes_are_fetched_is_kept(desk: Mounted) -> None:
    """The former bytes are needed for the other file's history; the new save counts."""
    before = desk.deployment.downloads()
    desk.deployment.fault(latency_ms=1500, method="GET", path="/content$")
    (desk.root / "new.txt").write_bytes(b"new\n")
    _exchange(desk, "new.txt", "notes.txt")
    eventually(lambda: desk.deployment.downloads() > before, what="the former bytes are asked for")
    (desk.root / "new.txt").write_bytes(b"edited after the exchange\n")
    desk.deployment.heal()
    desk.sync()
    for name, content in (("new.txt", b"edited after the exchange\n"), ("notes.txt", b"new\n")):
        assert (desk.root / name).read_bytes() == content
        assert desk.zone.read(name) == content
    desk.unmount()
    desk.mount()
    assert (desk.root / "new.txt").read_bytes() == b"edited after the exchange\n"


def test_two_exchanges_cancel_each_other(desk: Mounted) -> None:
    """After two exchanges the service's file is unchanged, without a second version."""
    desk.allow("answer", "refused", "offline", "reach")
    identity = desk.zone.entry_id("notes.txt")
    content = (desk.root / "notes.txt").read_bytes()
    desk.deployment.fault(status=503, error="NOT_AVAILABLE", method="POST", path="^/api/zones/")
    (desk.root / "new.txt").write_bytes(b"new\n")
    for _ in range(2):
        _exchange(desk, "new.txt", "notes.txt")
        eventually(lambda: _has(desk, "notes.txt", identity), what="the other has its place")
    desk.deployment.heal()
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == identity
    assert desk.zone.read("notes.txt") == content
    assert len(desk.zone.versions("notes.txt")) == 1
    assert desk.zone.read("new.txt") == b"new\n"


@pytest.mark.parametrize("new_first", [True, False])
def test_a_new_file_that_is_still_open_is_saved_by_the_exchange(
    desk: Mounted, new_first: bool
) -> None:
    """If the daemon is killed afterwards, both files are under their new names."""
    before = (desk.root / "notes.txt").read_bytes()
    file = desk.system.open(desk.root / "new.txt", os.O_CREAT | os.O_WRONLY)
    desk.system.write(file, b"new\n")
    _exchange(desk, *(("new.txt", "notes.txt") if new_first else ("notes.txt", "new.txt")))
    desk.kill()
    desk.mount()
    desk.sync()
    for name, content in (("new.txt", before), ("notes.txt", b"new\n")):
        assert (desk.root / name).read_bytes() == content
        assert desk.zone.read(name) == content


@pytest.mark.mount("settle=0", "refresh=600", profile="published")
@pytest.mark.parametrize("is_busy", [False, True])
def test_published_an_exchange_of_new_files_during_their_uploads(
    desk: Mounted, is_busy: bool
) -> None:
    """The exchange is refused if the service has got the files, and is otherwise done."""
    files = {"a.txt": b"one\n", "b.txt": b"two\n"}
    desk.deployment.fault(latency_ms=3000, method="POST", path="^/api/zones/")
    if is_busy:
        desk.allow("answer", "busy")
        desk.deployment.fault(status=503, error="NOT_AVAILABLE", method="POST", path="^/api/zones/")
    for name, content in files.items():
        (desk.root / name).write_bytes(content)
    eventually(lambda: desk.status()["outbox"]["uploading"] == 2, what="both are on their way")
    if is_busy:
        _exchange(desk, "a.txt", "b.txt")
        files = {"a.txt": b"two\n", "b.txt": b"one\n"}
    else:
        with pytest.raises(PermissionError):
            _exchange(desk, "a.txt", "b.txt")
    desk.deployment.heal()
    desk.sync()
    for name, content in files.items():
        assert (desk.root / name).read_bytes() == content
        assert desk.zone.read(name) == content
        assert len(desk.zone.versions(name)) == 1


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("order", [("notes.txt", "notes.txt~"), ("notes.txt~", "notes.txt")])
def test_an_exchange_with_a_backup(desk: Mounted, order: tuple[str, str], is_paused: bool) -> None:
    """The file keeps its history, and the backup has the former bytes, also under another name."""
    identity, former = desk.zone.entry_id("notes.txt"), (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.txt~").write_bytes(b"new\n")
    if is_paused:
        desk.command("pause")
    _exchange(desk, *order)
    if is_paused:
        desk.command("resume")
    desk.sync()
    assert (desk.root / "notes.txt").read_bytes() == desk.zone.read("notes.txt") == b"new\n"
    assert desk.zone.entry_id("notes.txt") == identity
    assert (desk.root / "notes.txt~").read_bytes() == former
    (desk.root / "notes.txt~").rename(desk.root / "other.txt")
    desk.sync()
    assert desk.zone.read("other.txt") == former
    assert desk.zone.read("notes.txt") == b"new\n"
    assert not desk.conflicts()
