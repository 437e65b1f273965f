"""Several processes, descriptors and mappings on one file; files that are removed while open."""

import fcntl
import mmap
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix.calls import descriptor, elsewhere, refusal

F_OFD_SETLK = 37
BIG = world.SEED["big.bin"]  # never read before: nothing of it is here

APPENDER = """
import os, sys
name, path, count = sys.argv[1:]
descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(int(count)):
    os.write(descriptor, f"{name} {number:05} {name * 40}\\n".encode())
os.close(descriptor)
"""


def test_two_processes_append_to_one_file(mounted: Mounted) -> None:
    """No record overwrites another one, and each writer's records are in order."""
    path, count = mounted.root / "log.txt", 500
    path.write_bytes(b"")
    writers = [
        subprocess.Popen([sys.executable, "-c", APPENDER, name, str(path), str(count)])
        for name in "ab"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = path.read_text().splitlines()
    for name in "ab":
        mine = [line for line in lines if line.startswith(name)]
        assert mine == [f"{name} {number:05} {name * 40}" for number in range(count)]
    assert len(lines) == 2 * count
    mounted.sync()
    assert mounted.zone.read("log.txt") == path.read_bytes()


def test_one_process_opens_a_file_twice(mounted: Mounted) -> None:
    """Two descriptors of one process with the same flags are independent.

    Each can be read and closed, whichever is closed first.
    """
    path = mounted.root / "big.bin"
    one, two = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    os.close(two)
    assert os.pread(one, 1000, 1_000_000) == BIG[1_000_000:1_001_000]
    os.close(one)
    eventually(lambda: path.read_bytes() == BIG, what="both were let go of")


def test_an_append_goes_to_the_end_that_others_have_moved(mounted: Mounted) -> None:
    """An append after a coworker's save continues the coworker's longer version."""
    mounted.restart("refresh=0.1")
    path = mounted.root / "notes.txt"
    assert path.stat().st_size == 23
    mounted.zone.write("notes.txt", b"a longer text than before\n")
    eventually(lambda: path.stat().st_size == 26, what="the longer one shows")
    with path.open("ab", buffering=0) as file:
        file.write(b"ours\n")
        file.write(b"more\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"a longer text than before\nours\nmore\n"


@pytest.mark.mount("refresh=0.1")
def test_a_reader_of_a_former_version_sees_nothing_of_the_newer_one(mounted: Mounted) -> None:
    """A program that only writes continues with the newer version, under the former inode.

    The kernel puts its bytes into the pages of the former version, also into mapped ones.
    """
    path = mounted.root / "mapped.bin"
    path.write_bytes(b"o" * 12288)
    mounted.sync()
    with (
        descriptor(path, os.O_RDONLY) as reader,
        descriptor(path, os.O_WRONLY) as writer,
        mmap.mmap(reader, 12288, prot=mmap.PROT_READ) as view,
    ):
        assert view[:] == b"o" * 12288
        mounted.zone.write("mapped.bin", b"C" * 12288)
        eventually(lambda: path.read_bytes() == b"C" * 12288, what="the coworker's version shows")
        os.pwrite(writer, b"ours", 0)
        os.pwrite(writer, b"O" * 4096, 4096)
        eventually(lambda: os.pread(reader, 12288, 0) == b"o" * 12288, what="the reader's version")
        assert view[:] == b"o" * 12288
    assert path.read_bytes() == b"ours" + b"C" * 4092 + b"O" * 4096 + b"C" * 4096


LOCKER = """
import fcntl, os, struct, sys
path, kind = sys.argv[1:]
descriptor = os.open(path, os.O_RDWR)
try:
    if kind == "flock":
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif kind == "posix":
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
    else:
        fcntl.fcntl(descriptor, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 5, 10, 0))
    print("got")
except OSError as refused:
    print(refused.errno in (11, 13))
"""


def test_locks_hold_between_processes(mounted: Mounted) -> None:
    """Locks of all three kinds exclude other processes, until they are released."""
    path = mounted.root / "notes.txt"
    with descriptor(path, os.O_RDWR) as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        assert elsewhere(LOCKER, path, "flock") == "True"
        fcntl.flock(mine, fcntl.LOCK_UN)
        assert elsewhere(LOCKER, path, "flock") == "got"
        fcntl.lockf(mine, fcntl.LOCK_EX, 10, 0)
        assert elsewhere(LOCKER, path, "posix") == "True"
        assert elsewhere(LOCKER, path, "ofd") == "True"
        fcntl.lockf(mine, fcntl.LOCK_UN, 10, 0)
        assert elsewhere(LOCKER, path, "posix") == "got"
        fcntl.fcntl(mine, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 10, 0))
        assert elsewhere(LOCKER, path, "ofd") == "True"
    assert elsewhere(LOCKER, path, "ofd") == "got"  # closing gives it back


def test_shared_and_private_mappings(mounted: Mounted) -> None:
    """MAP_SHARED is visible to read(2) and to other processes, MAP_PRIVATE is not.

    All shared writes are uploaded, even those after the descriptor was closed.
    """
    path = mounted.root / "mapped.bin"
    path.write_bytes(bytes(10_000))
    both = os.open(path, os.O_RDWR)
    shared = mmap.mmap(both, 10_000)
    private = mmap.mmap(both, 10_000, flags=mmap.MAP_PRIVATE)
    other = os.open(path, os.O_RDONLY)
    shared[5000:5005] = b"hello"
    private[0:5] = b"mine!"
    assert os.pread(other, 5, 5000) == b"hello"
    os.pwrite(both, b"by write", 9000)
    assert shared[9000:9008] == b"by write"
    os.close(both)
    shared[9992:10_000] = b"the end."
    shared.flush()
    reader = "import sys; print(open(sys.argv[1], 'rb').read()[-8:])"
    assert elsewhere(reader, path) == "b'the end.'"
    shared[0:6] = b"begin "
    private.close()
    shared.close()
    os.close(other)
    expected = bytearray(10_000)
    expected[0:6], expected[5000:5005] = b"begin ", b"hello"
    expected[9000:9008], expected[9992:] = b"by write", b"the end."
    assert path.read_bytes() == bytes(expected)
    mounted.sync()
    assert mounted.zone.read("mapped.bin") == bytes(expected)
    with descriptor(path, os.O_RDONLY) as only:
        assert refusal(mmap.mmap, only, 10_000) == "EACCES"


def test_a_removed_file_can_be_used_until_it_is_closed(mounted: Mounted) -> None:
    """An open file keeps its bytes after unlink, during an upload and with an empty cache."""
    path = mounted.root / "big.bin"
    with descriptor(path, os.O_RDWR) as both:
        path.unlink()
        assert not path.exists()
        assert os.pread(both, 1000, 2_500_000) == BIG[2_500_000:2_501_000]
        os.pwrite(both, b"changed", 1_000_000)
        around = BIG[999_999:1_000_000] + b"changed" + BIG[1_000_007:1_000_008]
        assert os.pread(both, 9, 999_999) == around
        os.ftruncate(both, 1_000_003)
        assert (os.fstat(both).st_size, os.fstat(both).st_nlink) == (1_000_003, 0)
        path.write_bytes(b"another one")
        assert os.pread(both, 10, 1_000_000) == b"cha"
    mounted.sync()
    assert mounted.zone.read("big.bin") == b"another one"
    uploading = mounted.root / "uploading.bin"
    with mounted.deployment.faulty(stall=300, method="POST", path="^/api/zones/"):
        uploading.write_bytes(BIG)
        with descriptor(uploading, os.O_RDWR) as both:
            eventually(lambda: mounted.status()["uploads"], what="it is waiting or under way")
            uploading.unlink()
            os.pwrite(both, b"!", 0)
            assert os.pread(both, 3, 0) == b"!" + BIG[1:3]
    mounted.sync()
    assert "uploading.bin" not in mounted.zone.listing()


def test_a_replaced_file_that_was_never_read_stays_readable(either: Mounted) -> None:
    """A program that has the replaced file open can still read it.

    The file was not cached, and the service has the new version already.
    """
    either.restart("settle=600")  # however long it takes, the new one is not sent before
    path, new = either.root / "big.bin", either.root / "big.bin.new"
    with descriptor(path, os.O_RDONLY) as old:
        new.write_bytes(b"the new one")
        new.rename(path)
        either.sync()
        assert either.zone.read("big.bin") == b"the new one"
        assert os.pread(old, 1000, 2_000_000) == BIG[2_000_000:2_001_000]
        assert os.pread(old, 1000, 0) == BIG[:1000]
        assert os.fstat(old).st_size == len(BIG)
    assert path.read_bytes() == b"the new one"


def test_a_rename_that_takes_longer_than_settle_is_one_version(either: Mounted) -> None:
    """The new file is not sent under its temporary name while the former content is downloaded."""
    either.restart("settle=2")
    path, new = either.root / "big.bin", either.root / "big.bin.new"
    former = either.zone.entry_id("big.bin")
    with descriptor(path, os.O_RDONLY) as old:
        with either.deployment.faulty(latency_ms=3000, method="GET", path="/content$"):
            new.write_bytes(b"the new one")
            new.rename(path)
        either.sync()
        assert os.pread(old, 1000, 2_000_000) == BIG[2_000_000:2_001_000]
    assert either.zone.entry_id("big.bin") == former
    assert "big.bin.new" not in either.zone.listing()
    assert either.zone.read("big.bin") == b"the new one"


def test_truncation_is_visible_in_open_files(mounted: Mounted) -> None:
    """Truncation by name or by O_TRUNC is visible at once through every other descriptor."""
    path = mounted.root / "big.bin"
    with descriptor(path, os.O_RDWR) as one, descriptor(path, os.O_RDONLY) as two:
        os.truncate(path, 100)
        assert (os.fstat(one).st_size, len(os.pread(two, 200, 0))) == (100, 100)
        os.pwrite(one, b"x", 199)
        assert os.pread(two, 300, 100) == bytes(99) + b"x"
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
        assert (os.fstat(one).st_size, os.pread(two, 300, 0)) == (0, b"")
        os.pwrite(one, b"y", 10)
    mounted.sync()
    assert mounted.zone.read("big.bin") == bytes(10) + b"y"


WATCHER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.inotify_init1(0)
libc.inotify_add_watch(watch, os.fsencode(sys.argv[1]), 0x100 | 0x200 | 0x40 | 0x80 | 0x8 | 0x2)
print("ready", flush=True)
seen = []
while not seen or seen[-1] != "end":
    data, at = os.read(watch, 65536), 0
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        seen.append(data[at + 16 : at + 16 + length].rstrip(b"\\0").decode())
        print(f"{mask:x}:{seen[-1]}", flush=True)
        at += 16 + length
"""


def test_inotify_reports_local_changes(mounted: Mounted) -> None:
    """inotify reports the operations of local programs in a folder as on a local disk."""
    with subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(mounted.root)], stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        try:
            assert watcher.stdout.readline() == "ready\n"
            (mounted.root / "a").write_bytes(b"x")
            (mounted.root / "a").rename(mounted.root / "b")
            (mounted.root / "b").unlink()
            (mounted.root / "end").touch()
            ready, _, _ = select.select([watcher.stdout], [], [], 60)
            assert ready
            told = watcher.stdout.read().split()
        finally:
            watcher.kill()
    left = iter(told)  # where others changed something, more may be told
    assert all(each in left for each in ("100:a", "2:a", "8:a", "40:a", "80:b", "200:b")), told


@pytest.mark.mount("close=wait")
def test_a_temporary_file_removed_before_it_is_closed_is_nobodys(mounted: Mounted) -> None:
    """A file of tmpfile(3) never reaches the service, even if close waits for the upload."""
    path: Path = mounted.root / "tmpfile"
    with descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as both:
        path.unlink()
        os.write(both, b"x" * 100_000)
        assert os.lseek(both, 0, os.SEEK_END) == 100_000
    mounted.sync()
    assert "tmpfile" not in mounted.zone.listing()
