"""Files that a program has open while the daemon dies or the disk gets full.

The program never closed them, so that none of its bytes are promised; what was there before is.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_ways_to_save import system

FORMER = b"former content\n"
pytestmark = pytest.mark.mount("settle=0")


def redirected(path: Path) -> int:
    """Open a file as a shell does for `program > file`; return the program's descriptor."""
    calls = system(path)
    fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    standard_output: int = calls.dup(fd)
    calls.close(fd)
    return standard_output


def close(path: Path, fd: int) -> None:
    """Close a descriptor, whose daemon may have died."""
    with contextlib.suppress(OSError):
        system(path).close(fd)


def versions(desk: Mounted, name: str) -> int:
    """Send everything; return the number of versions."""
    desk.sync()
    return len(desk.zone.versions(name))


@pytest.mark.also_mounted
def test_a_killed_redirection_keeps_the_former_content(desk: Mounted) -> None:
    """`program > file` has written, and its file is open, when the daemon dies."""
    path = desk.root / "notes.txt"
    path.write_bytes(FORMER)
    before = versions(desk, "notes.txt")
    fd = redirected(path)
    system(path).write(fd, b"half of the new content")
    desk.kill()
    close(path, fd)
    desk.mount()
    assert (desk.root / "notes.txt").read_bytes() == FORMER
    assert versions(desk, "notes.txt") == before


@pytest.mark.also_mounted(written=b"")
@pytest.mark.parametrize("written", [b"", b"new content\n"])
def test_a_redirection_is_one_version(desk: Mounted, written: bytes) -> None:
    """Also if the program writes nothing."""
    path = desk.root / "notes.txt"
    before = versions(desk, "notes.txt")
    fd = redirected(path)
    if written:
        system(path).write(fd, written)
    system(path).close(fd)
    assert path.read_bytes() == written
    assert versions(desk, "notes.txt") == before + 1
    assert desk.zone.read("notes.txt") == written


def test_a_file_is_emptied_while_another_program_writes_to_it(desk: Mounted) -> None:
    """A close saves the truncation although the file stays open elsewhere."""
    path = desk.root / "notes.txt"
    other: Any = path.open("r+b", buffering=0)
    path.write_bytes(b"")
    desk.kill()
    with contextlib.suppress(OSError):
        other.close()
    desk.mount()
    desk.sync()
    assert (desk.root / "notes.txt").read_bytes() == desk.zone.read("notes.txt") == b""


def emptied(path: Path) -> int:
    """Open a file without O_TRUNC and truncate it to nothing, as vim; return the descriptor."""
    calls = system(path)
    fd: int = calls.open(path, os.O_WRONLY)
    calls.ftruncate(fd, 0)
    return fd


@pytest.mark.also_mounted(written=b"half", is_sent=True)
@pytest.mark.parametrize("written", [b"", b"half"])
@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "unsent"])
def test_a_killed_save_in_place_keeps_the_former_content(
    desk: Mounted, written: bytes, is_sent: bool
) -> None:
    """A program has truncated the file through its descriptor when the daemon dies."""
    path = desk.root / "notes.txt"
    before = versions(desk, "notes.txt")
    if not is_sent:
        desk.command("pause")
    path.write_bytes(FORMER)
    if is_sent:
        desk.sync()
    fd = emptied(path)
    if written:
        system(path).write(fd, written)
    desk.kill()
    close(path, fd)
    desk.mount()
    assert (desk.root / "notes.txt").read_bytes() == FORMER
    desk.command("resume")
    assert versions(desk, "notes.txt") == before + 1
    assert desk.zone.read("notes.txt") == FORMER


@pytest.mark.also_mounted(written=b"")
@pytest.mark.parametrize("written", [b"", b"new content\n"])
def test_a_save_in_place_is_one_version(desk: Mounted, written: bytes) -> None:
    """Also if another program opens and closes the file before the program writes."""
    path = desk.root / "notes.txt"
    before = versions(desk, "notes.txt")
    fd = emptied(path)
    with path.open("r+b"):
        pass
    if written:
        system(path).write(fd, written)
    system(path).close(fd)
    assert path.read_bytes() == written
    assert versions(desk, "notes.txt") == before + 1
    assert desk.zone.read("notes.txt") == written


@pytest.mark.parametrize("way", [redirected, emptied], ids=lambda way: way.__name__)
def test_a_close_by_another_program_does_not_save_the_empty_file(
    desk: Mounted, way: Callable[[Path], int]
) -> None:
    """Only the program that has truncated the file to nothing saves that."""
    path = desk.root / "notes.txt"
    path.write_bytes(FORMER)
    before = versions(desk, "notes.txt")
    fd = way(path)
    close(path, system(path).open(path, os.O_WRONLY))
    assert path.read_bytes() == b""
    desk.kill()
    close(path, fd)
    desk.mount()
    assert (desk.root / "notes.txt").read_bytes() == FORMER
    assert versions(desk, "notes.txt") == before


@pytest.mark.parametrize("saving", ["truncate", "fsync", "close", "close of a duplicate"])
@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "open elsewhere"])
def test_an_emptied_file_is_saved(desk: Mounted, saving: str, is_open: bool) -> None:
    """truncate(2) saves the empty file at once; a descriptor saves it at its close or fsync."""
    path, calls = desk.root / "notes.txt", desk.system
    before = path.read_bytes()
    other = calls.open(path, os.O_WRONLY) if is_open else -1
    if saving == "truncate":
        calls.truncate(path, 0)
    else:
        fd = emptied(path)
    if saving == "fsync":
        calls.fsync(fd)
    elif saving == "close":
        calls.close(fd)
    elif saving == "close of a duplicate":  # the program may write later
        calls.close(calls.dup(fd))
    desk.kill()
    close(path, other)
    desk.mount()
    wanted = before if saving == "close of a duplicate" else b""
    assert path.read_bytes() == wanted
    desk.sync()
    assert desk.zone.read("notes.txt") == wanted


@pytest.mark.also_mounted(target="on the service")
@pytest.mark.parametrize("target", ["on the service", "edited", "new", "removed"])
def test_a_file_that_is_renamed_before_its_close(desk: Mounted, target: str) -> None:
    """The name has what was written before the rename, as on a local disk, and it is sent."""
    path, draft = desk.root / "target.txt", desk.root / "draft.txt"
    if target != "new":
        path.write_bytes(b"on the service\n")
        desk.sync()
    desk.command("pause")
    if target in ("edited", "new"):
        path.write_bytes(FORMER)
    if target == "removed":
        path.unlink()
    fd = system(draft).open(draft, os.O_WRONLY | os.O_CREAT)
    system(draft).write(fd, b"new content\n")
    draft.rename(path)
    system(draft).write(fd, b"more\n")
    desk.kill()
    close(path, fd)
    desk.mount()
    desk.command("resume")
    desk.sync()
    content = (desk.root / "target.txt").read_bytes()
    assert content.startswith(b"new content\n")
    assert desk.zone.read("target.txt") == content
    assert not desk.zone.find("draft.txt")


@pytest.mark.mount("settle=600")
@pytest.mark.parametrize(
    ("name", "is_open"), [("new.txt", False), ("new.txt", True), ("notes.txt", False)]
)
def test_a_removal_frees_the_bytes_of_a_synced_save(
    desk: Mounted, name: str, is_open: bool
) -> None:
    """They need no room after the last close."""
    path = desk.root / name
    calls = system(path)
    fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    calls.write(fd, b"content")
    calls.fsync(fd)
    if not is_open:
        calls.close(fd)
    path.unlink()
    if is_open:
        calls.close(fd)
    eventually(lambda: not desk.outgoing(), what="no bytes are left")
