"""Changes of a file that fail before a byte is stored: what close(2) reports, and what is shown."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import System
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from tests.in_process.test_refused_names import told_once
from zonedrive.content.encrypted_file import EncryptedFile
from zonedrive.content.header import Head
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.vfs import open_checks

BIG = world.SEED["big.bin"]
Change = Callable[[System, int], object]
CHANGES = {
    "write": (os.O_RDWR, lambda system, file: system.pwrite(file, b"new", 0)),
    "append": (os.O_WRONLY | os.O_APPEND, lambda system, file: system.write(file, b"new")),
    "truncate": (os.O_RDWR, lambda system, file: system.ftruncate(file, 7)),
}
ALL = pytest.mark.parametrize(("flags", "change"), CHANGES.values(), ids=CHANGES)


def error_of(call: Callable[..., object], *args: object) -> int:
    """Return the errno of a call that must fail."""
    with pytest.raises(OSError) as failed:
        call(*args)
    return failed.value.errno or 0


def refuse(*_: object) -> None:
    """Fail as on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def system(desk: Mounted) -> Iterator[System]:
    """Yield the system calls of a desk where nothing is cached."""
    desk.allow("offline", "reach")
    assert "big.bin" in desk.names(desk.root)
    yield virtual(desk).system


def back(desk: Mounted) -> None:
    """Wait until the service is known to be reachable again."""
    eventually(lambda: desk.status()["state"] == "online", what="the service is back")


@contextmanager
def full_disk() -> Iterator[None]:
    """Leave no space for files that are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spool, "require_room", refuse)
        yield


@ALL
@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.ENOSPC])
def test_close_reports_a_change_that_failed(
    desk: Mounted, system: System, flags: int, change: Change, number: int
) -> None:
    """Each close of a descriptor fails, as does fsync, also if there is room or a service again.

    The file has its former content, and programs that open it later get no error.
    """
    path: Any = desk.root / "big.bin"
    file = system.open(path, flags)
    trouble = full_disk() if number == errno.ENOSPC else desk.deployment.faulty(down=True)
    with trouble:
        assert error_of(change, system, file) == number
        assert error_of(system.fsync, file) == number
    assert error_of(system.fsync, file) == number
    later = system.open(path, os.O_RDWR)
    system.fsync(later)
    system.close(later)
    assert error_of(system.close, system.dup(file)) == number
    assert error_of(system.close, file) == number
    back(desk)
    assert path.read_bytes() == BIG
    desk.sync()
    assert desk.zone.read("big.bin") == BIG
    assert len(desk.zone.versions("big.bin")) == 1


@ALL
def test_a_later_change_that_succeeds_ends_the_error(
    desk: Mounted, system: System, flags: int, change: Change
) -> None:
    """A program repeats a change that failed, and its close succeeds."""
    path: Any = desk.root / "big.bin"
    file = system.open(path, flags)
    with desk.deployment.faulty(down=True):
        assert error_of(change, system, file) == errno.ENETUNREACH
    back(desk)
    change(system, file)
    system.fsync(file)
    system.close(file)
    expected = {"write": b"new" + BIG[3:], "append": BIG + b"new", "truncate": BIG[:7]}
    (name,) = [name for name, each in CHANGES.items() if each[1] is change]
    desk.sync()
    assert path.read_bytes() == desk.zone.read("big.bin") == expected[name]


def test_a_truncation_by_name_is_reported_once(desk: Mounted, system: System) -> None:
    """truncate(2) reports its error itself, so another program's close is not concerned."""
    path: Any = desk.root / "big.bin"
    file = system.open(path, os.O_RDWR)
    with desk.deployment.faulty(down=True):
        assert error_of(system.truncate, path, 7) == errno.ENETUNREACH
    system.fsync(file)
    system.close(file)


def test_several_programs_write_the_file(desk: Mounted, system: System) -> None:
    """The change of one of them failed, and a later change of another one is saved."""
    path: Any = desk.root / "big.bin"
    flags = (os.O_RDWR, os.O_RDWR, os.O_WRONLY, os.O_RDONLY)
    one, mapping, other, reader = (system.open(path, each) for each in flags)
    with desk.deployment.faulty(down=True):
        assert error_of(system.pwrite, one, b"one", 0) == errno.ENETUNREACH
    # The pages of a mapping are written through any descriptor that was mapped.
    assert error_of(system.fsync, mapping) == errno.ENETUNREACH
    for file in (other, reader):
        system.fsync(file)
        system.close(system.dup(file))
    back(desk)
    assert system.pread(reader, 9, 0) == BIG[:9]
    later = system.open(path, os.O_RDWR)
    for file in (other, later):
        system.pwrite(file, b"other", 0)
        system.close(file)
    for file in (one, mapping):
        assert error_of(system.close, system.dup(file)) == errno.ENETUNREACH
    system.pwrite(mapping, b"mapped", 0)
    for file in (one, mapping, reader):
        assert system.pread(reader, 9, 0) == b"mapped" + BIG[6:9]
        system.close(file)
    desk.sync()
    assert desk.zone.read("big.bin") == b"mapped" + BIG[6:]


@pytest.mark.parametrize("change", ["write", "truncate"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_change_of_another_program_does_not_end_the_error(
    desk: Mounted, system: System, change: str, is_begun: bool
) -> None:
    """A program that cannot be reading the file gets its own errors only, and no other one does."""
    path: Any = desk.root / "big.bin"
    one, other, reader = (system.open(path, flags) for flags in (os.O_WRONLY, os.O_RDWR, 0))
    if is_begun:
        system.pwrite(other, b"begun", 0)
    with full_disk(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncryptedFile, "truncate", Spool.require_room)
        assert error_of(CHANGES[change][1], system, one) == errno.ENOSPC
    system.pwrite(other, b"other", 0)
    for file in (other, reader):
        system.fsync(file)
        system.close(file)
    assert error_of(system.close, one) == errno.ENOSPC
    assert path.read_bytes() == b"other" + BIG[5:]


def test_a_truncation_to_the_same_size_ends_the_error(desk: Mounted, system: System) -> None:
    """Success of such a truncation counts, as of any other."""
    file = system.open(desk.root / "big.bin", os.O_RDWR)
    with full_disk():
        assert error_of(system.pwrite, file, b"new", 0) == errno.ENOSPC
    system.ftruncate(file, len(BIG))
    system.close(file)


@pytest.mark.mount("close=wait")
def test_a_change_that_fails_after_an_upload(desk: Mounted, system: System) -> None:
    """A close has sent the first save, and no copy can be made of its bytes for the next one."""
    path: Any = desk.root / "notes.txt"
    file = system.open(path, os.O_RDWR)
    system.pwrite(file, b"FIRST", 0)
    system.close(system.dup(file))
    saved = b"FIRST" + world.SEED["notes.txt"][5:]
    assert desk.zone.read("notes.txt") == saved
    with full_disk():
        assert error_of(system.pwrite, file, b"SECOND", 0) == errno.ENOSPC
    assert error_of(system.close, file) == errno.ENOSPC
    desk.sync()
    assert path.read_bytes() == desk.zone.read("notes.txt") == saved
    assert len(desk.zone.versions("notes.txt")) == 2


@pytest.mark.mount("refresh=1")
def test_a_writer_that_follows_a_newer_version_keeps_its_error(
    desk: Mounted, system: System
) -> None:
    """Its close reports the failed write, also while another program reads the former version."""
    path: Any = desk.root / "notes.txt"
    reader = system.open(path, os.O_RDONLY)
    assert system.pread(reader, 5, 0) == b"first"
    log = system.open(path, os.O_WRONLY | os.O_APPEND)
    with full_disk():
        assert error_of(system.write, log, b"line\n") == errno.ENOSPC
    desk.zone.write("notes.txt", b"by a coworker\n")
    time.sleep(2)
    assert path.read_bytes() == b"by a coworker\n"
    assert system.pread(reader, 5, 0) == b"first"
    assert error_of(system.close, log) == errno.ENOSPC
    system.close(reader)


@pytest.mark.mount("settle=0", "refresh=1000")
def test_a_truncation_does_not_cut_a_version_that_the_program_has_not_seen(
    desk: Mounted, system: System
) -> None:
    """A coworker has saved the file since the program read it, and no listing has shown that.

    The truncation finds the new version when it fetches the former content.
    """
    path: Any = desk.root / "big.bin"
    file = system.open(path, os.O_RDWR)
    assert system.pread(file, 5, 0) == BIG[:5]
    desk.zone.write("big.bin", b"by a coworker\n")
    assert error_of(system.ftruncate, file, 7) == errno.ESTALE
    assert error_of(system.close, file) == errno.ESTALE
    desk.sync()
    assert path.read_bytes() == desk.zone.read("big.bin") == b"by a coworker\n"
    assert len(desk.zone.versions("big.bin")) == 2


@pytest.mark.mount("settle=0", "refresh=1")
def test_a_truncation_of_a_superseded_version(desk: Mounted, system: System) -> None:
    """The close reports the error, as after a write."""
    path: Any = desk.root / "big.bin"
    file = system.open(path, os.O_RDWR)
    assert system.pread(file, 5, 0) == BIG[:5]
    desk.zone.write("big.bin", b"by a coworker\n")
    time.sleep(2)
    assert path.read_bytes() == b"by a coworker\n"
    assert error_of(system.ftruncate, file, 7) == errno.ESTALE
    assert error_of(system.close, file) == errno.ESTALE


@pytest.mark.parametrize("how", ["open", "ftruncate", "truncate"])
def test_a_truncation_that_fails_keeps_what_was_synced(
    desk: Mounted, system: System, how: str
) -> None:
    """The disk refuses the truncation of a file that is open after an fsync."""
    desk.allow("undone")
    path: Any = desk.root / "new.bin"
    file = system.open(path, os.O_RDWR | os.O_CREAT)
    system.pwrite(file, BIG, 0)
    system.fsync(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Head, "save", refuse)
        if how == "open":
            assert error_of(system.open, path, os.O_WRONLY | os.O_TRUNC) == errno.ENOSPC
        else:
            target = file if how == "ftruncate" else path
            assert error_of(getattr(system, how), target, 7) == errno.ENOSPC
    assert error_of(system.close, file) == errno.ENOSPC
    assert path.read_bytes() == BIG
    desk.sync()
    assert desk.zone.read("new.bin") == BIG


def test_a_file_whose_truncation_fails_after_the_close_is_reported(
    desk: Mounted, system: System
) -> None:
    """A shell empties a file on a full disk, and close(2) succeeds before the change is stored.

    `status` and `sync` name the file, which has its former content.
    """
    desk.allow("could not be stored")
    path: Any = desk.root / "notes.txt"
    file = system.open(path, os.O_WRONLY | os.O_TRUNC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_begin_writing", refuse)
        assert error_of(system.close, file) == errno.ENOSPC
    assert path.read_bytes() == world.SEED["notes.txt"]
    told_once(desk, "notes.txt")


def test_a_file_that_a_full_disk_kept_is_saved_as_it_looks(desk: Mounted, system: System) -> None:
    """Neither its bytes nor its removal could be stored; then it is renamed over another file."""
    desk.allow("could not be undone|closed after a failed write")
    before = len(desk.zone.versions("notes.txt"))
    path: Any = desk.root / "new.txt"
    file = system.open(path, os.O_WRONLY | os.O_CREAT)
    with full_disk(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_begin_writing", refuse)
        assert error_of(system.write, file, b"new") == errno.ENOSPC
        assert error_of(system.close, file) == errno.ENOSPC
    assert path.read_bytes() == b""
    path.rename(desk.root / "notes.txt")
    desk.sync()
    assert (desk.root / "notes.txt").read_bytes() == desk.zone.read("notes.txt") == b""
    assert len(desk.zone.versions("notes.txt")) == before + 1


def test_a_write_past_the_largest_size_does_not_cut_off_readers(
    desk: Mounted, system: System
) -> None:
    """A program that cannot be reading the file gets EFBIG, and other programs read on."""
    path: Any = desk.root / "notes.txt"
    reader = system.open(path, os.O_RDONLY)
    assert system.pread(reader, 5, 0) == b"first"
    writer = system.open(path, os.O_WRONLY)
    assert error_of(system.pwrite, writer, b"x", open_checks.LARGEST) == errno.EFBIG
    system.close(writer)
    assert system.fstat(reader).st_ino == path.stat().st_ino
    assert system.pread(reader, 5, 0) == b"first"
