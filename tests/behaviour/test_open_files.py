"""Open files that are saved meanwhile, locally or on the service."""

import contextlib
import errno
import mmap
import os
import stat
import subprocess
import threading
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix.calls import descriptor, refusal

QUICK = pytest.mark.mount("refresh=0.3")
BIG = world.SEED["big.bin"]
PAGE = 4096


def uncached(opened: int, size: int, offset: int) -> bytes:
    """Read without the page cache."""
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    return os.pread(opened, size, offset)


def mapped(path: Path) -> bytes:
    """Return the file's content through a shared mapping, as Python and many programs do."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        return view[:]


def test_a_reader_goes_on_over_an_edit_made_here(mounted: Mounted) -> None:
    """A reader sees an edit in place, before and after the upload.

    New opens can be mapped meanwhile.
    """
    path = mounted.root / "big.bin"
    with descriptor(path, os.O_RDONLY) as reader:
        assert os.pread(reader, PAGE, 0) == BIG[:PAGE]
        other = slice(40 * PAGE, 41 * PAGE)  # a page that the writer does not lock

        def edit() -> None:
            with descriptor(path, os.O_RDWR) as writer:
                os.pwrite(writer, b"edited", 100)

        expected = BIG[:100] + b"edited" + BIG[106:]
        with mounted.deployment.faulty(latency_ms=300):
            thread = threading.Thread(target=edit)  # which fetches what is missing first
            thread.start()
            while thread.is_alive():
                assert uncached(reader, PAGE, other.start) == BIG[other]
            thread.join()
        for _ in range(2):
            assert uncached(reader, PAGE, 0) == expected[:PAGE]
            assert uncached(reader, PAGE, 2_000_000) == BIG[2_000_000:2_004_096]
            assert mapped(path) == expected
            mounted.sync()
    assert mounted.zone.read("big.bin") == expected


@QUICK
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR], ids=["read", "read and write"])
def test_a_newer_version_is_cached_while_the_former_one_is_open(
    mounted: Mounted, flags: int
) -> None:
    """A coworker's version can be mapped and edited while a program has the former one open.

    The program continues to read the former version, and gets an error if it writes into it, also
    at the close.
    """
    path, new = mounted.root / "big.bin", bytes(byte ^ 0xFF for byte in BIG) + b"longer"
    stale = pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE)
    with (
        stale if flags == os.O_RDWR else contextlib.nullcontext(),
        descriptor(path, flags) as old,
        mmap.mmap(old, 0, prot=mmap.PROT_READ) as view,
    ):
        assert uncached(old, len(BIG), 0) == BIG
        mounted.zone.write("big.bin", new)
        eventually(lambda: path.stat().st_size == len(new), what="the new version shows")
        assert mapped(path) == new
        assert path.read_bytes() == new
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            shared[:6] = b"edited"
        assert mapped(path) == b"edited" + new[6:]
        mounted.sync()
        assert mapped(path) == b"edited" + new[6:]
        eventually(lambda: os.fstat(old).st_nlink == 0, what="the kernel asks for the link count")
        assert os.fstat(old).st_size == len(BIG)
        assert uncached(old, len(BIG), 0) == BIG
        assert view[:] == BIG
        if flags == os.O_RDWR:
            assert refusal(os.pwrite, old, b"x", 0) == "ESTALE"
            assert refusal(os.ftruncate, old, 7) == "ESTALE"
    assert mounted.zone.read("big.bin") == b"edited" + new[6:]
    assert path.read_bytes() == b"edited" + new[6:]
    assert [name for name in mounted.zone.listing() if "conflict" in name] == []


@QUICK
def test_many_versions_are_open_at_once(mounted: Mounted) -> None:
    """Each program reads the version that it opened; the name gives the newest version."""
    path = mounted.root / "notes.txt"
    with contextlib.ExitStack() as stack:
        held = []
        for number in range(4):
            content = bytes(f"version {number}".encode()) * 1000 * (1 + number % 2)
            mounted.zone.write("notes.txt", content)
            eventually(partial(reads, path, content), what="it shows")
            held.append((stack.enter_context(descriptor(path, os.O_RDONLY)), content))
            assert mapped(path) == content
            for opened, its in held:
                assert uncached(opened, 100_000, 0) == its
                assert os.fstat(opened).st_size == len(its)
        assert len({os.fstat(opened).st_ino for opened, _ in held}) == len(held)
    path.write_bytes(b"ours")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"ours"


def reads(path: Path, content: bytes) -> bool:
    """Return True if opening the file now gives these bytes, or if it changes at the moment."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


@QUICK
def test_an_append_follows_the_file_that_others_read(mounted: Mounted) -> None:
    """A line that a shell appends comes after what a coworker saved, and new readers see it.

    Another program has the file open to read.
    """
    path = mounted.root / "notes.txt"
    with (
        descriptor(path, os.O_RDONLY) as reader,
        descriptor(path, os.O_WRONLY | os.O_APPEND) as log,
    ):
        assert os.pread(reader, 100, 0) == world.SEED["notes.txt"]
        mounted.zone.write("notes.txt", b"by a coworker\n")
        eventually(partial(reads, path, b"by a coworker\n"), what="it shows")
        os.write(log, b"one line\n")
        os.write(log, b"another\n")
        expected = b"by a coworker\none line\nanother\n"
        eventually(lambda: mapped(path) == expected, what="the lines show")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == expected == path.read_bytes()


@QUICK
def test_a_writer_uses_the_file_that_others_have_saved(mounted: Mounted) -> None:
    """All calls through a write-only descriptor use the newer version, as its writes do.

    While another program reads the former version through the same kernel inode, stat(2) shows
    that version.
    """
    path = mounted.root / "notes.txt"
    stale = pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE)
    with descriptor(path, os.O_WRONLY) as log:
        with stale, descriptor(path, os.O_RDWR) as reader:  # the close after a failed truncation
            before = os.pread(reader, 100, 0)
            mounted.zone.write("notes.txt", b"by a coworker\n")
            eventually(partial(reads, path, b"by a coworker\n"), what="it shows")
            os.ftruncate(log, 5)
            eventually(lambda: mapped(path) == b"by a ", what="the size shows")
            assert refusal(os.ftruncate, reader, 2) == "ESTALE"
            eventually(lambda: os.fstat(log).st_nlink == 0, what="the kernel asks for the count")
            assert os.fstat(log).st_size == len(before)
            assert uncached(reader, 100, 0) == before
        os.fchmod(log, 0o640)
        os.utime(log, ns=(10**18, 10**18))
        found, named = os.fstat(log), path.stat()
        assert (found.st_size, found.st_nlink, found.st_mtime_ns) == (5, 1, 10**18)
        assert (named.st_size, named.st_mode, named.st_mtime_ns) == (5, found.st_mode, 10**18)
        assert stat.S_IMODE(named.st_mode) == 0o640
        assert os.lseek(log, 0, os.SEEK_END) == 5
        os.write(log, b"machine\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"by a machine\n"


@pytest.mark.parametrize("is_synced", [False, True], ids=["munmap", "msync"])
def test_a_write_into_a_mapping_that_cannot_be_kept(mounted: Mounted, is_synced: bool) -> None:
    """The former content cannot be fetched, so no program reads the bytes afterwards.

    The close reports the error, even if msync(2) has reported it before.
    """
    mounted.allow("offline|reach")
    path, size = mounted.root / "large.bin", 20 << 20  # more than is fetched ahead
    mounted.zone.write("large.bin", b"o" * size)
    file = os.open(path, os.O_RDWR)
    with descriptor(path, os.O_RDONLY) as reader, mmap.mmap(reader, PAGE, prot=mmap.PROT_READ) as v:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        with mmap.mmap(file, 0) as view:
            assert view[:5] == v[:5] == b"ooooo"
            with mounted.deployment.faulty(down=True):
                view[:5] = b"XXXXX"
                if is_synced:
                    assert refusal(view.flush) == "ENETUNREACH"
                view.close()
                assert refusal(os.close, file) == "ENETUNREACH"
        eventually(lambda: mounted.status()["state"] == "online", what="the service is back")
        with descriptor(path, os.O_RDONLY) as new:
            assert os.pread(new, 5, 0) == b"ooooo"
        eventually(lambda: v[:5] == os.pread(reader, 5, 0) == b"ooooo", what="the pages are gone")
    assert path.read_bytes() == b"o" * size
    mounted.sync()
    assert len(mounted.zone.versions("large.bin")) == 1


@QUICK
@pytest.mark.parametrize("is_synced", [False, True], ids=["munmap", "msync"])
def test_a_write_into_a_mapping_of_a_file_that_a_coworker_has_deleted(
    mounted: Mounted, is_synced: bool
) -> None:
    """The program gets the error from msync(2) and from the close; the file stays deleted."""
    path = mounted.root / "notes.txt"
    file = os.open(path, os.O_RDWR)
    with mmap.mmap(file, 0) as view:
        assert view[:] == world.SEED["notes.txt"]
        mounted.zone.delete("notes.txt")
        eventually(lambda: not path.exists(), what="it is gone here")
        view[:5] = b"ALICE"
        if is_synced:
            assert refusal(view.flush) == "ESTALE"
    assert refusal(os.close, file) == "ESTALE"
    mounted.sync()
    assert not path.exists()
    assert "notes.txt" not in mounted.zone.listing()


ROUNDS, SIZE = 5, 64 * PAGE


def test_readers_and_a_writer_in_place_over_several_uploads(mounted: Mounted) -> None:
    """Readers get the right bytes at any time while a program rewrites the file in place.

    Programs read and map the file all the time, and each round ends with an upload.
    """
    path, over, wrong = mounted.root / "shared.bin", threading.Event(), list[object]()
    possible = set(range(ROUNDS + 1))
    path.write_bytes(bytes(SIZE))
    mounted.sync()

    def read(*, anew: bool) -> None:
        try:
            while not over.is_set():
                with (
                    descriptor(path, os.O_RDONLY) as opened,
                    mmap.mmap(opened, SIZE, prot=mmap.PROT_READ) as view,
                ):
                    while not over.is_set():
                        for offset in range(SIZE - PAGE, 0, -PAGE):
                            wrong.extend(set(uncached(opened, PAGE, offset)) - possible)
                        wrong.extend(set(view[:]) - possible)
                        if anew:
                            break
        except (OSError, ValueError) as error:
            wrong.append(error)

    readers = [threading.Thread(target=read, kwargs={"anew": anew}) for anew in (True, False)]
    try:
        with (
            descriptor(path, os.O_RDONLY) as kept,
            mmap.mmap(kept, SIZE, prot=mmap.PROT_READ) as view,
        ):
            for reader in readers:
                reader.start()
            for number in range(1, ROUNDS + 1):
                with descriptor(path, os.O_RDWR) as writer, mmap.mmap(writer, SIZE) as shared:
                    os.pwrite(writer, bytes([number]) * (SIZE // 2), 0)
                    shared[SIZE // 2 :] = bytes([number]) * (SIZE // 2)
                mounted.sync()
                expected = bytes([number]) * SIZE
                assert uncached(kept, SIZE, 0) == view[:] == mapped(path) == expected
                assert mounted.zone.read("shared.bin") == expected
    finally:
        over.set()
        for reader in readers:
            reader.join(60)
    assert not wrong, wrong[:5]
    assert len(mounted.zone.versions("shared.bin")) == ROUNDS + 1


@QUICK
@pytest.mark.parametrize("how", [">>", ">"])
def test_no_appended_line_is_lost(mounted: Mounted, how: str) -> None:
    """Each line is in one file of the service in the end.

    A coworker deletes, moves or renames the file while a shell writes into it and another program
    reads it.
    """
    mounted.allow("deleted on the service while edited", "a conflict copy")
    path = mounted.root / "race.txt"
    shell = ["sh", "-c", f'echo "$2" {how} "$1"', "sh", str(path)]
    for to, seen in product(["", "docs/gone.txt", "gone.txt"], [False, True]):
        mounted.zone.write("race.txt", b"theirs\n")
        eventually(partial(reads, path, b"theirs\n"), what="it shows")
        line = f"{how} {to} {seen}"
        with descriptor(path, os.O_RDONLY) as reader:
            assert os.pread(reader, 10, 0) == b"theirs\n"
            if to:
                mounted.zone.move("race.txt", to)
            else:
                mounted.zone.delete("race.txt")
            if seen:
                eventually(lambda: not path.exists(), what="it is gone here")
            subprocess.run([*shell, line], check=True)
        mounted.sync()
        tree = mounted.zone.tree()
        found = [name for name, data in tree.items() if line.encode() in (data or b"")]
        assert len(found) == 1, (line, tree.keys())
        for name in [name for name in tree if "race" in name or "gone" in name]:
            mounted.zone.delete(name)
        eventually(lambda: not path.exists(), what="it is gone here")
