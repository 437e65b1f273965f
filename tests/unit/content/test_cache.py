"""Cached files and their index: restarts, damage, full disks and deleted folders."""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from tests.unit.content.mounts import read_only, small_disk
from tests.unit.content.scripted import KIB, MIB, Script, content, limit, until
from zonedrive.content.cache import Cache
from zonedrive.content.cache_entry import Stopped
from zonedrive.content.cache_index import CacheIndex
from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.content.reader import Reader
from zonedrive.content.slots import SLOT, slot_offset
from zonedrive.content.spool import Spool
from zonedrive.errors import Unreachable

KEY = bytes(range(32))


@asynccontextmanager
async def running(
    folder: Path, key: bytes | None = KEY, limit: int = 1 << 30, identity: str = ""
) -> AsyncIterator[Cache]:
    """Yield a running cache."""
    cache = Cache(folder, key, limit, identity=identity, stall=60.0).start()
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        yield cache
        await cache.aclose()


async def read_all(reader: Reader, piece: int = 128 * KIB) -> bytes:
    """Return the whole content."""
    return b"".join([bytes(await reader.read(at, piece)) for at in range(0, reader.size, piece)])


async def fetched(cache: Cache, ino: int, source: Script, revision: str = "r") -> bytes:
    """Open a file, read it completely, and close it."""
    reader = cache.open(ino, revision, len(source.data), source)
    try:
        return await read_all(reader)
    finally:
        reader.close()


LATER = 64 * 1024  # bytes that a file system may add to the files of a folder


def taken(folder: Path) -> int:
    """Return the bytes that the content files take on the disk."""
    blocks = 0
    for path in folder.iterdir():
        if not path.name.startswith("index.db"):
            with contextlib.suppress(FileNotFoundError):  # it was just evicted
                blocks += path.stat().st_blocks
    return blocks * 512


async def counted(cache: Cache, folder: Path) -> None:
    """Wait until the cache has counted the bytes on the disk, which threads change.

    A file system may give a file more blocks when it writes the file later.
    """
    await until(lambda: abs(cache.quota.usage() - taken(folder)) <= LATER)


def fill(disk: Path) -> None:
    """Write the file `others`, which takes the whole rest of the disk."""
    space = os.statvfs(disk)
    (disk / "others").write_bytes(bytes(space.f_bavail * space.f_frsize))


class Offline(Script):
    """Source that cannot be reached."""

    def __init__(self, size: int) -> None:
        super().__init__(b"\0" * size)
        self.error = Unreachable("offline")


async def test_read_files_stay_readable_offline(tmp_path: Path, key: bytes | None) -> None:
    """After a restart without a network, every file that was read before is readable."""
    whole, part = Script(content(3 * MIB)), Script(content(8 * MIB, 1))
    async with running(tmp_path, key) as cache:
        await fetched(cache, 1, whole)
        reader = cache.open(2, "r", len(part.data), part)
        await reader.read(0, 100_000)
        reader.close()
    async with running(tmp_path, key) as cache:
        assert cache.is_complete(1, "r")
        assert await fetched(cache, 1, Script(whole.data)) == whole.data
        reader = cache.open(1, "r", len(whole.data), Offline(0))
        assert reader.available(0, 4 * MIB) == whole.data
        reader.close()
        reader = cache.open(2, "r", len(part.data), Offline(0))
        assert reader.available(0, 100_000) == part.data[:100_000]
        with pytest.raises(Unreachable):
            await reader.read(7 * MIB, 10)
        reader.close()


async def test_complete_files_survive_a_killed_daemon(tmp_path: Path, key: bytes | None) -> None:
    """Complete files of a killed daemon are cached and counted at the next start."""
    whole, part = Script(content(3 * MIB)), Script(content(8 * MIB, 1))
    async with running(tmp_path / "a", key) as cache:
        reader = cache.open(1, "r", len(whole.data), whole)
        await reader.fill()  # what is read may still be on its way to the disk
        other = cache.open(2, "r", len(part.data), part)
        await other.read(0, 100_000)
        shutil.copytree(tmp_path / "a", tmp_path / "b")  # as if killed now
        reader.close()
        other.close()
    async with running(tmp_path / "b", key) as cache:
        assert cache.is_complete(1, "r")
        await counted(cache, tmp_path / "b")
        assert taken(tmp_path / "b") >= 3 * MIB
        reader = cache.open(1, "r", len(whole.data), Offline(0))
        assert reader.available(0, 4 * MIB) == whole.data
        reader.close()
        assert await fetched(cache, 2, Script(part.data)) == part.data


async def test_a_file_of_a_killed_daemon_is_completed(tmp_path: Path, key: bytes | None) -> None:
    """A partly cached file, which a killed daemon was completing, is completed later."""
    source, size = Script(content(2 * MIB), piece=KIB), 2 * MIB  # writes parts of encrypted chunks

    async def read_until(end: int, cache: Cache) -> Reader:
        source.pace = lambda offset: offset != end or source.go.wait(60)
        reader = cache.open(1, "r", size, source)
        await reader.read(0, end)
        (entry,) = cache.quota.entries
        await trio.to_thread.run_sync(entry.wait_for_store)
        return reader

    async with running(tmp_path / "a", key) as cache:
        (await read_until(100 * KIB, cache)).close()
        source.go.clear()
        reader = await read_until(MIB, cache)
        shutil.copytree(tmp_path / "a", tmp_path / "b")  # as if killed now
        reader.close()
    source.pace = lambda _offset: None
    async with running(tmp_path / "b", key) as cache:
        await cache.complete(1, "r", size, source)
        assert await fetched(cache, 1, Offline(size)) == source.data


async def test_a_new_revision_replaces_the_old_one(tmp_path: Path) -> None:
    """Programs that have the old version open read it to its end; others get the new one."""
    old, new = Script(content(2 * MIB)), Script(content(2 * MIB, 1))
    async with running(tmp_path) as cache:
        await fetched(cache, 1, old, "old")
        reader = cache.open(1, "old", 2 * MIB, old)
        assert await fetched(cache, 1, new, "new") == new.data
        assert not cache.is_complete(1, "old")
        assert await read_all(reader) == old.data
        assert old.opened == [0]
        reader.close()
        await counted(cache, tmp_path)
        assert taken(tmp_path) < 3 * MIB


async def test_a_file_deleted_during_a_read_is_read_to_its_end(tmp_path: Path) -> None:
    """A file that is deleted while a program reads it stays readable, as on any file system."""
    source = Script(content(2 * MIB))
    async with running(tmp_path) as cache:
        reader = cache.open(1, "r", 2 * MIB, source)
        await reader.read(0, 100)
        cache.drop(1)
        assert await read_all(reader) == source.data
        reader.close()
        await counted(cache, tmp_path)
        assert taken(tmp_path) == 0
        assert not cache.is_complete(1, "r")


async def test_the_limit_is_never_exceeded(tmp_path: Path, key: bytes | None) -> None:
    """The files never take more than `cache_size`; those unused for longest are evicted first."""
    limit = 5 * MIB
    async with running(tmp_path, key, limit) as cache:
        for ino in range(12):
            source = Script(content(MIB - 5000, ino))
            most = 0

            def measure(_offset: int) -> None:
                nonlocal most
                most = max(most, taken(tmp_path))

            source.pace = measure
            assert await fetched(cache, ino, source) == source.data
            assert max(most, taken(tmp_path), cache.quota.usage()) <= limit
            assert cache.is_complete(0, "r")
            cache.open(0, "r", MIB - 5000, source).close()  # used all the time, so it stays
        assert cache.is_complete(11, "r")
        assert not cache.is_complete(2, "r")
        await counted(cache, tmp_path)


async def test_a_file_in_use_or_pinned_is_not_evicted(tmp_path: Path) -> None:
    """Open files and pinned files are not evicted, however much else is read."""
    async with running(tmp_path, limit=4 * MIB) as cache:
        first, second = Script(content(MIB)), Script(content(MIB, 1))
        await fetched(cache, 1, first)
        reader = cache.open(1, "r", MIB, Offline(0))
        await fetched(cache, 2, second)
        cache.quota.pinned = {2}
        for ino in range(3, 12):
            await fetched(cache, ino, Script(content(MIB, ino)))
        assert cache.is_complete(2, "r")
        assert reader.available(0, MIB) == first.data
        reader.close()


async def test_a_file_bigger_than_the_cache_can_be_read(tmp_path: Path) -> None:
    """A large file is read in order while the cache stays within its limit."""
    source = Script(content(40 * MIB))
    async with running(tmp_path, limit=3 * MIB) as cache:
        reader = cache.open(1, "r", len(source.data), source)
        for at in range(0, reader.size, 128 * KIB):
            assert await reader.read(at, 128 * KIB) == source.data[at : at + 128 * KIB]
            assert at % (4 * MIB) or taken(tmp_path) <= 3 * MIB
        assert source.opened == [0]
        reader.close()
        with pytest.raises(OSError, match="space"):
            await cache.complete(1, "r", len(source.data), source)
        file = await cache.export(1, "r", len(source.data), source, tmp_path.parent / "whole")
        assert b"".join(file.blocks()) == source.data
        file.close()


async def test_a_cache_of_size_zero(tmp_path: Path) -> None:
    """With `cache_size = 0`, files are readable and nothing is stored on the disk."""
    source = Script(content(3 * MIB))
    async with running(tmp_path, limit=0) as cache:
        assert await fetched(cache, 1, source) == source.data
        await counted(cache, tmp_path)
        assert taken(tmp_path) == 0


async def test_many_open_files_that_cannot_be_cached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory does not grow with their number, all are read correctly, and the log says so once."""
    sources = [Script(content(12 * MIB, ino), piece=MIB) for ino in range(8)]
    async with running(tmp_path, limit=MIB) as cache:
        budget = cache._budget
        readers = [cache.open(ino, "r", 12 * MIB, source) for ino, source in enumerate(sources)]
        for reader, source in zip(readers, sources, strict=True):
            assert await read_all(reader, MIB) == source.data
            assert await fetched(cache, 100, Script(content(5000))) == content(5000)
        most = 0
        for at in range(0, 12 * MIB, MIB):
            for reader, source in zip(readers, sources, strict=True):
                assert await reader.read(at, MIB) == source.data[at : at + MIB]
                most = max(most, budget.held)
        assert most <= 33 * MIB
        for reader in readers:
            reader.close()
        assert budget.held == 0
    said = [record.getMessage() for record in caplog.records if "no room" in record.getMessage()]
    assert len(said) == 1


async def test_a_lowered_limit_holds_at_once(tmp_path: Path) -> None:
    """A smaller `cache_size` at the next start frees the difference."""
    async with running(tmp_path) as cache:
        for ino in range(8):
            await fetched(cache, ino, Script(content(MIB, ino)))
    async with running(tmp_path, limit=3 * MIB) as cache:
        assert taken(tmp_path) <= 3 * MIB
        assert cache.is_complete(7, "r")


async def test_reads_continue_on_a_full_disk(
    tmp_path: Path, key: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """On a disk that others have filled, reads continue uncached, and the log reports it once."""
    source = Script(content(12 * MIB))
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        async with running(disk / "cache", key) as cache:
            small = Script(content(MIB, 1))
            await fetched(cache, 2, small)
            (disk / "filler").write_bytes(bytes(4 * MIB))
            caplog.set_level(logging.WARNING)
            for _ in range(3):
                assert await fetched(cache, 1, source) == source.data
            for ino in range(3, 9):
                other = Script(content(MIB, ino))
                assert await fetched(cache, ino, other) == other.data
            assert cache.quota.usage() <= 4 * MIB
        assert 0 < len(caplog.records) <= 3


async def test_a_file_that_cannot_be_stored(tmp_path: Path) -> None:
    """The error tells a lack of room from an error of the disk."""
    source = Script(content(MIB))
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        read_only(disk)
        for folder, most, expected in (
            (tmp_path / "cache", MIB // 2, errno.ENOSPC),
            (disk / "a/b", 4 * MIB, errno.EROFS),
        ):
            async with running(folder, limit=most) as cache:
                with pytest.raises(OSError, match=os.strerror(expected)) as refused:
                    await cache.complete(1, "r", MIB, source)
                assert refused.value.errno == expected


@pytest.mark.parametrize("obstacle", ["room", "error"])
async def test_an_open_file_is_stored_when_the_disk_has_room_again(
    tmp_path: Path, key: bytes | None, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was open while its bytes could not be stored can be pinned before its close."""
    source = Script(content(4 * MIB))
    async with running(tmp_path / "cache", key) as cache:
        reader = cache.open(1, "r", len(source.data), source)
        with monkeypatch.context() as patch:
            if obstacle == "room":
                limit(cache, 0)
            else:
                patch.setattr("zonedrive.content.cache_entry.create_file", no_room)
            await reader.read(0, MIB)
            with pytest.raises(OSError, match="space"):
                await cache.complete(1, "r", len(source.data), source)
        limit(cache, 1 << 30)
        await cache.complete(1, "r", len(source.data), source)
        assert cache.is_complete(1, "r")
        assert await read_all(reader) == source.data
        reader.close()
        assert await fetched(cache, 1, Offline(4 * MIB)) == source.data


async def test_a_cut_file_that_the_index_lists_as_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not written before its row: after a kill, a part of it would be read as zeros."""
    source = Script(content(2 * MIB))
    async with running(tmp_path, None) as cache:
        await fetched(cache, 1, source)
        reader = cache.open(1, "r", len(source.data), source)
        (path,) = tmp_path.glob("1-*")
        os.truncate(path, 100_000)
        with monkeypatch.context() as patch:
            patch.setattr(CacheIndex, "put", lambda *_: False)  # as on a full disk
            await reader.read(MIB, 100)
            with pytest.raises(OSError, match="space"):
                await cache.complete(1, "r", len(source.data), source)
            assert path.stat().st_size == 100_000
        await cache.complete(1, "r", len(source.data), source)
        assert await read_all(reader) == source.data
        reader.close()
        assert await fetched(cache, 1, Offline(2 * MIB)) == source.data


def no_room(*_: object) -> None:
    """Fail as the creation of a file on a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_the_limit_holds_after_evictions_on_a_full_disk(
    tmp_path: Path, key: bytes | None
) -> None:
    """An evicted file is counted once, although the index cannot delete its row at first."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        folder = disk / "cache"
        async with running(folder, key) as cache:
            for ino in range(6):
                await fetched(cache, ino, Script(content(MIB, ino)))
            fill(disk)
            for most in (4 * MIB, 3 * MIB):
                limit(cache, most)
                assert 0 < cache.quota.usage() <= most
                await counted(cache, folder)
            assert not cache.is_complete(0, "r")
            assert cache.is_complete(5, "r")
            (disk / "others").unlink()
            for ino in range(6, 12):
                await fetched(cache, ino, Script(content(MIB, ino)))
                await counted(cache, folder)
                assert taken(folder) <= 3 * MIB
                assert cache.is_complete(ino, "r")
        async with running(folder, key) as cache:
            await counted(cache, folder)


async def test_cached_files_stay_on_a_full_disk(tmp_path: Path, key: bytes | None) -> None:
    """Reading a cached file offline does not remove the file, also if its last use is not noted."""
    whole, part = Script(content(MIB)), Script(content(4 * MIB, 1))
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache", key) as cache:
            await fetched(cache, 1, whole)
            reader = cache.open(2, "r", len(part.data), part)
            await reader.read(0, 100_000)
            reader.close()
            fetching = cache.open(3, "r", MIB, whole)  # closed when the disk is full
            await fetching.fill()
            fill(disk)
            for _ in range(100):  # the log of the index may have room for some writes
                assert await fetched(cache, 1, Offline(MIB)) == whole.data
                reader = cache.open(2, "r", len(part.data), Offline(0))
                assert reader.available(0, 100_000) == part.data[:100_000]
                reader.close()
            fetching.close()
            await counted(cache, disk / "cache")
            (disk / "others").unlink()
            for ino in (1, 3):
                assert await fetched(cache, ino, Offline(MIB)) == whole.data
            await counted(cache, disk / "cache")


async def test_cached_files_make_room_for_bytes_to_upload(
    tmp_path: Path, key: bytes | None
) -> None:
    """Others have filled the disk; what can be fetched again gives way to an edit."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache", key) as cache:
            (disk / "outgoing").mkdir()
            spool = Spool(disk / "outgoing", key, make_room=cache.make_room)
            for ino in range(8):
                await fetched(cache, ino, Script(content(MIB, ino)))
            (disk / "filler").write_bytes(bytes(spool.room()))
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                Spool(disk / "outgoing", key).require_room(2 * MIB)
            spool.require_room(2 * MIB)
            assert spool.room() >= 2 * MIB
            assert cache.is_complete(7, "r")
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                spool.require_room(16 * MIB)


async def test_the_cache_gives_way_to_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache leaves free space on the disk, also if nobody reads or saves."""
    monkeypatch.setattr("zonedrive.content.cache.SHRINK_S", 0.01)
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache") as cache:
            for ino in range(8):
                await fetched(cache, ino, Script(content(MIB, ino)))
            free = shutil.disk_usage(disk).free
            (disk / "filler").write_bytes(bytes(free - LATER))
            await until(lambda: shutil.disk_usage(disk).free >= 16 * MIB // 20)


@pytest.mark.parametrize("eager", [1 << 40], indirect=True)
async def test_files_of_which_little_is_read_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: int
) -> None:
    """The space that a download was promised is given back at its end."""
    monkeypatch.setattr("zonedrive.content.download_worker.LINGER", 0.0)
    async with running(tmp_path, limit=40 * MIB) as cache:
        for ino in range(8):
            await fetched(cache, ino, Script(content(MIB, ino)))
        source = Script(content(64 * MIB, 9))
        with ExitStack() as readers:
            for ino in range(10, 14):
                reader = cache.open(ino, "r", len(source.data), source)
                readers.enter_context(closing(reader))
                await reader.read(0, 128 * KIB)
                await until(lambda: cache.quota.usage() - taken(tmp_path) <= LATER)
        assert all(cache.is_complete(ino, "r") for ino in range(8))


async def test_a_damaged_row_on_a_full_disk(tmp_path: Path) -> None:
    """A row that the index can neither trust nor delete counts as missing."""
    source = Script(content(MIB))
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        async with running(disk / "cache") as cache:
            await fetched(cache, 1, source)
            with contextlib.closing(sqlite3.connect(disk / "cache/index.db")) as index, index:
                index.execute("UPDATE entries SET size = 5")
            fill(disk)
            assert not cache.is_complete(1, "r")
            assert await fetched(cache, 1, source) == source.data
            (disk / "others").unlink()
            assert await fetched(cache, 1, source) == source.data
            assert cache.is_complete(1, "r")
            await counted(cache, disk / "cache")


async def test_a_part_of_the_disk_is_left_free(tmp_path: Path) -> None:
    """The cache leaves 5 % of the disk free."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache") as cache:
            for ino in range(20):
                source = Script(content(MIB, ino))
                source.pace = lambda _offset: os.statvfs(disk).f_bavail * 4096 > 0.05 * 16 * MIB
                await fetched(cache, ino, source)
                space = os.statvfs(disk)
                # What SQLite writes beside it is not counted beforehand.
                assert space.f_bavail >= space.f_blocks * 0.05 - 64


async def test_the_limit_depends_on_the_free_space(tmp_path: Path) -> None:
    """The limit includes the stored bytes; it is never negative, and never above `cache_size`."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache") as cache:
            await fetched(cache, 3, Script(content(MIB, 3)))
            before = cache.quota.ceiling
            assert 0.9 * 16 * MIB < before <= 0.95 * 16 * MIB
            (disk / "somebody").write_bytes(bytes(4 * MIB))
            assert abs(before - cache.quota.ceiling - 4 * MIB) <= MIB / 8
            limit(cache, 3 * MIB)
            assert cache.quota.ceiling == 3 * MIB
            fill(disk)
            limit(cache, MIB // 2)
            assert cache.quota.ceiling <= MIB // 2
            assert cache.quota.ceiling >= 0


async def test_enospc_in_the_middle_of_a_file(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads succeed on a disk that reports free space and then fails, such as under a quota."""
    real = os.pwritev if key else os.pwrite
    source = Script(content(4 * MIB))
    left = 20

    def full(*arguments: object) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(122, "Disk quota exceeded")
        return real(*arguments)  # type: ignore[arg-type]

    async with running(tmp_path, key) as cache:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev" if key else "pwrite", full)
            assert await fetched(cache, 1, source) == source.data
        assert await fetched(cache, 1, source) == source.data


async def test_a_file_that_is_deleted_alone_is_fetched_again(
    tmp_path: Path, key: bytes | None
) -> None:
    """A program that deletes old files may delete some of the cache's files."""
    source = Script(content(MIB))
    async with running(tmp_path, key) as cache:
        await cache.complete(7, "r", MIB, source)
        assert cache.is_complete(7, "r")
        for path in tmp_path.glob("7-*"):
            path.unlink()
        assert not cache.is_complete(7, "r")
        await cache.complete(7, "r", MIB, source)
        assert cache.is_complete(7, "r")


async def test_a_file_on_a_failing_disk_is_not_complete(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that ask for the state of a file get no disk error of the cache."""

    def fail(*_: object, **_fields: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    async with running(tmp_path, key) as cache:
        await cache.complete(7, "r", MIB, Script(content(MIB)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", fail)
            assert not cache.is_complete(7, "r")
        assert cache.is_complete(7, "r")


async def test_a_file_that_cannot_be_opened_once_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partly cached file that is fetched whole into another file takes no space any more."""

    def exhausted(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    source = Script(content(3 * MIB))
    async with running(tmp_path) as cache:
        source.pace = lambda offset: offset < MIB or source.go.wait(60)
        reader = cache.open(1, "r", 3 * MIB, source)
        await reader.read(0, MIB)
        reader.close()
        source.pace = lambda _offset: None
        with monkeypatch.context() as patch:
            patch.setattr("zonedrive.content.cache.open_file", exhausted)
            reader = cache.open(1, "r", 3 * MIB, source)
            await reader.fill()
        await cache.complete(1, "r", 3 * MIB, source)
        reader.close()
        assert len(list(tmp_path.glob("1-*"))) == 1
        await counted(cache, tmp_path)
        assert await fetched(cache, 1, Offline(3 * MIB)) == source.data


async def test_a_new_file_that_cannot_be_extended_is_closed_and_removed(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file above the size limit of the file system is read, and leaves no file open."""

    def too_large(*_: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr("zonedrive.content.content_file.ContentFile.truncate", too_large)
    monkeypatch.setattr("zonedrive.content.encrypted_file.EncryptedFile.truncate", too_large)
    source = Script(content(MIB))
    async with running(tmp_path, key) as cache:
        reader = cache.open(1, "r", MIB, source)
        assert await read_all(reader) == source.data
        links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        assert not [link for link in links if link.is_relative_to(tmp_path) and "1-" in link.name]
        assert not list(tmp_path.glob("1-*"))
        reader.close()


async def test_the_folder_is_locked_while_the_cache_is_open(tmp_path: Path) -> None:
    """Of a folder that is locked, systemd-tmpfiles deletes no old files."""
    folder = tmp_path / "cache"
    async with running(folder) as cache:
        shutil.rmtree(folder)
        await fetched(cache, 7, Script(content(MIB)))
        descriptor = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("is_read", [False, True])
async def test_content_that_the_index_cannot_record_is_not_complete(
    tmp_path: Path, key: bytes | None, is_read: bool
) -> None:
    """The bytes would be deleted when nobody uses them; a pin must not count as available.

    Nothing is fetched for it.
    """
    folder, source = tmp_path / "cache", Script(content(2 * MIB))
    (folder / "index.db").mkdir(parents=True)  # in the place of the file
    async with running(folder, key) as cache:
        reader = cache.open(1, "r", 2 * MIB, source) if is_read else None
        with pytest.raises(OSError, match="Errno"):
            await cache.complete(1, "r", 2 * MIB, source)
        if reader is not None:
            assert await read_all(reader) == source.data
            reader.close()
        assert (source.sent > 0) is is_read
        assert not cache.is_complete(1, "r")
        await cache.complete(2, "r", 0, Script(b""))


async def test_two_daemons_do_not_delete_the_content_of_each_other(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts of the same name in two state folders share a cache folder; one works without it."""
    monkeypatch.setattr("zonedrive.content.cache_index.AGAIN_S", 0.0)
    folder, source = tmp_path / "cache", Script(content(2 * MIB))
    async with running(folder, key, identity="one") as first:
        await fetched(first, 1, source)
        first.put(2, "r", b"small")
        async with running(folder, KEY, identity="two") as second:
            for ino in (1, 3):
                assert await fetched(second, ino, source) == source.data
            second.put(2, "r", b"other")
            assert first.is_complete(1, "r") and first.is_complete(2, "r")
            assert not second.is_complete(1, "r")
            shutil.rmtree(folder)
            await fetched(first, 1, source)
            await fetched(second, 1, source)
            assert first.is_complete(1, "r")
    async with running(folder, KEY, identity="two") as second:
        await fetched(second, 1, source)
        assert second.is_complete(1, "r")


async def test_a_folder_that_is_deleted_while_in_use(tmp_path: Path, key: bytes | None) -> None:
    """If the cache folder is deleted while the daemon runs, reads continue and are cached again."""
    folder = tmp_path / "cache"
    source, other = Script(content(2 * MIB)), Script(content(2 * MIB, 1))
    async with running(folder, key) as cache:
        await fetched(cache, 1, source)
        reader = cache.open(2, "r", 2 * MIB, other)
        await reader.read(0, 100)
        shutil.rmtree(folder)
        assert await read_all(reader) == other.data
        reader.close()
        assert await fetched(cache, 1, source) == source.data
        assert await fetched(cache, 3, other) == other.data
        assert cache.is_complete(3, "r")
        await counted(cache, folder)
    async with running(folder, key) as cache:
        assert cache.is_complete(3, "r")


async def test_bytes_cached_after_the_folder_was_deleted_are_kept(
    tmp_path: Path, key: bytes | None
) -> None:
    """The index notices the deletion when the file is closed; bytes in the new folder are kept."""
    folder, source = tmp_path / "cache", Script(content(2 * MIB))
    is_stored = threading.Event()

    def pace(offset: int) -> None:
        if offset >= MIB:
            is_stored.set()
            source.go.wait(60)

    source.pace = pace
    async with running(folder, key) as cache:
        reader = cache.open(1, "r", 2 * MIB, source)
        shutil.rmtree(folder)
        await reader.read(0, 100)
        await until(is_stored.is_set)
        reader.close()
        assert taken(folder) >= MIB // 2
        assert cache.quota.usage() == taken(folder)
        source.error = Unreachable("offline")
        reader = cache.open(1, "r", 2 * MIB, source)
        assert await reader.read(0, 100) == source.data[:100]
        reader.close()


async def test_a_new_revision_with_the_same_bytes_after_the_folder_was_deleted(
    tmp_path: Path, key: bytes | None
) -> None:
    """The file that was deleted with the folder is not counted, and takes no space of others."""
    folder, source = tmp_path / "cache", Script(content(3 * MIB))
    async with running(folder, key) as cache:
        await cache.complete(1, "r", 3 * MIB, source)
        shutil.rmtree(folder)
        cache.relabel(1, "r", "s", 3 * MIB, source)
        assert not cache.is_complete(1, "s")
        cache.drop(1)
        assert cache.quota.usage() == taken(folder) == 0


async def test_a_file_that_is_added_after_the_folder_was_deleted_is_kept(
    tmp_path: Path, key: bytes | None
) -> None:
    """A saved file is read from this machine, although the cache folder was deleted."""
    folder = tmp_path / "cache"
    path = tmp_path / ("7-1.plain" if key is None else "7-1.sealed")
    async with running(folder, key) as cache:
        file = create_file(path, key)
        file.pwrite(0, b"saved" * 50_000)
        file.close()
        shutil.rmtree(folder)
        await cache.add_file(path, 7, "new", 250_000, file.manifest())
        assert cache.quota.usage() == taken(folder) > 0
        assert await fetched(cache, 7, Offline(250_000), "new") == b"saved" * 50_000


async def test_a_folder_that_becomes_read_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a disk error makes the folder read-only, cached files and other files stay readable."""
    kept, other = Script(content(MIB)), Script(content(2 * MIB, 1))
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache") as cache:
            await fetched(cache, 1, kept)
        read_only(disk)
        caplog.set_level(logging.WARNING)
        async with running(disk / "cache") as cache:
            for _ in range(5):
                assert await fetched(cache, 2, other) == other.data
        assert 0 < len(caplog.records) <= 4


async def test_a_damaged_block_is_fetched_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the damaged block is fetched from the service again."""
    source = Script(content(2 * MIB))
    async with running(tmp_path) as cache:
        await fetched(cache, 1, source)
        (path,) = (path for path in tmp_path.iterdir() if path.name.startswith("1-"))
        with path.open("r+b") as raw:
            raw.seek(MIB)
            byte = raw.read(1)
            raw.seek(MIB)
            raw.write(bytes([byte[0] ^ 4]))
        before = source.sent
        assert await fetched(cache, 1, source) == source.data
        assert source.sent - before <= 4 * MIB
        assert "damaged" in caplog.text
        assert await fetched(cache, 1, Offline(2 * MIB)) == source.data
        assert cache.is_complete(1, "r")


async def test_a_damaged_block_is_never_zeros_after_a_crash(tmp_path: Path) -> None:
    """A daemon killed between the detection of damage and the repair still knows of the damage."""
    source = Script(content(2 * MIB))
    async with running(tmp_path / "a") as cache:
        await fetched(cache, 1, source)
        (path,) = (path for path in (tmp_path / "a").iterdir() if path.name.startswith("1-"))
        with path.open("r+b") as raw:
            raw.seek(MIB)
            raw.write(b"damage")
        reader = cache.open(1, "r", 2 * MIB, Offline(2 * MIB))
        with pytest.raises(Unreachable):
            await read_all(reader)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        reader.close()
    async with running(tmp_path / "b") as cache:
        assert not cache.is_complete(1, "r")
        assert await fetched(cache, 1, source) == source.data


async def test_a_cached_file_that_is_cut_while_in_use(tmp_path: Path, key: bytes | None) -> None:
    """Another program cuts a cached file that is open here; all missing bytes are fetched again."""
    source = Script(content(3 * MIB))
    async with running(tmp_path, key) as cache:
        await fetched(cache, 1, source)
        reader = cache.open(1, "r", 3 * MIB, source)
        (path,) = tmp_path.glob("1-*")
        os.truncate(path, 100_000)
        assert await reader.read(2 * MIB, 100) == source.data[2 * MIB :][:100]
        assert await reader.read(MIB, 100) == source.data[MIB:][:100]
        assert await read_all(reader) == source.data
        reader.close()
        assert await fetched(cache, 1, source) == source.data


@pytest.mark.parametrize("damage", ["index", "schema", "files", "strangers", "truncated"])
async def test_a_damaged_folder_is_used_anyway(
    tmp_path: Path, key: bytes | None, damage: str
) -> None:
    """Reads return the service's bytes, whatever is in the cache folder at the start."""
    source = Script(content(2 * MIB))
    async with running(tmp_path, key) as cache:
        await fetched(cache, 1, source)
        await fetched(cache, 2, source)
    for path in list(tmp_path.iterdir()):
        if damage == "index" and path.name.startswith("index"):
            path.write_bytes(b"this is no database" * 1000)
        elif damage == "schema" and path.name == "index.db":
            path.write_bytes(path.read_bytes().replace(b"taken     INT", b"takem     INT"))
        elif damage == "files" and path.name.startswith("1-"):
            path.unlink()
        elif damage == "strangers":
            (tmp_path / f"{path.name}.bak").write_bytes(b"x")
            (tmp_path / "folder").mkdir(exist_ok=True)
        elif damage == "truncated" and path.name.startswith("1-"):
            os.truncate(path, 100_000)
    async with running(tmp_path, key) as cache:
        for ino in (1, 2):
            assert await fetched(cache, ino, source) == source.data
            assert await fetched(cache, ino, Offline(2 * MIB)) == source.data


async def test_an_index_that_is_damaged_while_in_use(tmp_path: Path) -> None:
    """A damaged index is created again while programs open, read and close files."""
    source = Script(content(2 * MIB))
    async with running(tmp_path, None) as cache:
        await fetched(cache, 1, source)
        for path in tmp_path.glob("index*"):
            path.write_bytes(b"this is no database" * 1000)
        assert await fetched(cache, 1, source) == source.data
        assert await fetched(cache, 2, source) == source.data
    async with running(tmp_path, None) as cache:  # SQLite may have read all pages before
        assert await fetched(cache, 2, source) == source.data
    async with running(tmp_path, None) as cache:
        assert await fetched(cache, 2, Offline(2 * MIB)) == source.data


@pytest.mark.parametrize(
    "damage",
    [
        "complete = 0, ranges = x'010203'",
        "complete = 0, ranges = x'000000000000000000000100000000000000'",
        "taken = 'abc'",
        "taken = 9000000000000000000",
        "taken = -1",
        "size = size + 1",
        "used_ns = x'ff'",
        "name = x'ff'",
        "name = cast(x'ff' as text)",
        "validator = 'x'",
        "hash = x'00'",
        "manifest = x'00'",
    ],
)
async def test_a_damaged_row_of_the_index(
    tmp_path: Path, key: bytes | None, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file is fetched again, at run time and at the start; other files stay cached."""
    source = Script(content(2 * MIB))

    def harm(ino: int) -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "index.db")) as index:
            index.execute(f"UPDATE entries SET {damage} WHERE ino = ?", (ino,))
            index.commit()

    async with running(tmp_path, key) as cache:
        for ino in (1, 2, 3):
            await fetched(cache, ino, source)
        harm(1)
        for ino in (1, 2, 3):
            assert await fetched(cache, ino, source) == source.data
        await counted(cache, tmp_path)
        assert await fetched(cache, 1, Offline(2 * MIB)) == source.data
    harm(2)
    async with running(tmp_path, key) as cache:
        await counted(cache, tmp_path)
        for ino in (1, 2, 3):
            assert await fetched(cache, ino, source) == source.data
        if "cast" not in damage:  # which counts as damage of the whole file
            assert len(source.opened) == 5
        await counted(cache, tmp_path)
    assert "index" in caplog.text


@pytest.mark.parametrize("damage", ["1.5", "'x'", "-1", "x'ff'"])
async def test_a_damaged_inode_number_in_the_index(tmp_path: Path, damage: str) -> None:
    """The file of such a row is removed at the start; other files stay cached."""
    source = Script(content(2 * MIB))
    async with running(tmp_path, None) as cache:
        for ino in (1, 2):
            await fetched(cache, ino, source)
    with contextlib.closing(sqlite3.connect(tmp_path / "index.db")) as index:
        index.execute(f"UPDATE entries SET ino = {damage} WHERE ino = 1")
        index.commit()
    async with running(tmp_path, None) as cache:
        assert cache.inos() == [2]
        await counted(cache, tmp_path)
        assert await fetched(cache, 2, Offline(2 * MIB)) == source.data


async def test_forged_rows_are_rejected(tmp_path: Path) -> None:
    """A row that was made without the account's key is rejected, and its file is not read."""
    source = Script(content(2 * MIB))
    async with running(tmp_path, KEY) as cache:
        await fetched(cache, 1, source)
    index = CacheIndex(tmp_path / "index.db", KEY)
    index.open()
    (row,) = index.all_rows()
    index.close()
    for forger in (None, bytes(32)):
        index = CacheIndex(tmp_path / "index.db", forger)
        index.open()
        assert index.put(row)
        index.close()
        async with running(tmp_path, KEY) as cache:
            assert not cache.is_complete(1, "r")
            await fetched(cache, 1, source)


async def test_cached_files_that_were_exchanged(tmp_path: Path) -> None:
    """After a repair of the disk exchanges the names of two files, both are rejected."""
    sources = {ino: Script(content(2 * MIB, ino)) for ino in (1, 2)}
    async with running(tmp_path) as cache:
        for ino, source in sources.items():
            await fetched(cache, ino, source)
        spare = tmp_path.parent / "spare"
        spare.mkdir()
        file = create_file(spare / "a", KEY)
        file.pwrite(0, content(2 * MIB, 3))
        file.close()
        await cache.add_file(spare / "a", 3, "r", 2 * MIB, file.manifest())
    one, two, three = (next(tmp_path.glob(f"{ino}-*")) for ino in (1, 2, 3))
    one.rename(tmp_path / "aside")
    two.rename(one)
    three.rename(two)
    (tmp_path / "aside").rename(three)
    sources[3] = Script(content(2 * MIB, 3))
    async with running(tmp_path) as cache:
        for _ in range(2):
            for ino, source in sources.items():
                assert await fetched(cache, ino, source) == source.data
        assert [len(source.opened) for source in sources.values()] == [2, 2, 1]


async def test_caching_resumes_after_an_obstacle_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caching stops while a file is in the place of the cache folder, and resumes afterwards."""
    folder, source = tmp_path / "cache", Script(content(2 * MIB))
    async with running(folder) as cache:
        await fetched(cache, 1, source)
        shutil.rmtree(folder)
        folder.write_bytes(b"in the way")
        assert await fetched(cache, 2, source) == source.data
        assert not cache.is_complete(2, "r")
        folder.unlink()
        monkeypatch.setattr("zonedrive.content.cache_index.AGAIN_S", 0.0)
        with trio.fail_after(60):
            while not await can_be_read_offline(cache, 2, source.data):
                assert await fetched(cache, 2, source) == source.data
        await counted(cache, folder)


async def test_an_index_that_cannot_be_opened_at_first(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start on a full disk keeps the cached files, which are used when the disk has room."""
    monkeypatch.setattr("zonedrive.content.cache_index.AGAIN_S", 0.0)
    sources = {ino: Script(content(MIB, ino)) for ino in (0, 1, 2, 3)}
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        folder = disk / "cache"
        async with running(folder, key) as cache:
            for ino, source in sources.items():
                await fetched(cache, ino, source)
            cache.put(4, "r", b"former")
        fill(disk)
        async with running(folder, key) as cache:
            assert not cache.inos()
            before = cache.epoch
            assert await fetched(cache, 1, sources[1]) == sources[1].data
            cache.drop_between(3, 1000)  # the database has lost these numbers, and gives them again
            (disk / "others").unlink()
            assert cache.epoch != before, "content that was fetched meanwhile was not kept"
            reader = cache.open(2, "new", MIB, Script(content(MIB, 5)))
            await reader.read(0, MIB)
            sources[3] = Script(content(MIB, 6))
            assert await fetched(cache, 3, sources[3]) == sources[3].data
            assert not cache.is_complete(2, "r")
            assert not cache.is_complete(4, "r")
            for ino in (0, 1, 3):
                assert await fetched(cache, ino, Offline(MIB)) == sources[ino].data
            reader.close()
            await counted(cache, folder)
        async with running(folder, key) as cache:
            assert set(cache.inos()) == {0, 1, 2, 3}
            await counted(cache, folder)


async def can_be_read_offline(cache: Cache, ino: int, data: bytes) -> bool:
    """Return True if a content is completely cached; its bytes must be the right ones."""
    try:
        found = await fetched(cache, ino, Offline(len(data)))
    except Unreachable:
        return False
    assert found == data
    return True


async def test_another_database_or_key_gets_no_old_content(tmp_path: Path) -> None:
    """The inode numbers of another database, or another key, never give old content."""
    source = Script(content(MIB))
    for key, identity in ((KEY, "one"), (KEY, "two"), (None, "two"), (bytes(32), "two")):
        async with running(tmp_path, key, identity=identity) as cache:
            assert not cache.is_complete(1, "r")
            await counted(cache, tmp_path)
            assert taken(tmp_path) == 0
            await fetched(cache, 1, source)


async def test_an_uploaded_file_is_kept(tmp_path: Path, key: bytes | None) -> None:
    """A file that was just uploaded is read from this machine, not from the service."""
    name = "7-1.plain" if key is None else "7-1.sealed"
    async with running(tmp_path / "cache", key) as cache:
        await fetched(cache, 7, Script(content(MIB)), "old")
        file = create_file(tmp_path / name, key)
        file.pwrite(0, b"saved" * 50_000)
        file.close()
        reading = open_file(tmp_path / name, key)
        await cache.add_file(tmp_path / name, 7, "new", 250_000, file.manifest())
        assert not (tmp_path / name).exists()
        assert cache.is_complete(7, "new")
        assert not cache.is_complete(7, "old")
        reader = cache.open(7, "new", 250_000, Offline(0))
        assert reader.available(0, 250_000) == b"saved" * 50_000
        assert reading.pread(0, 5) == b"saved"
        reader.close()
        reading.close()
        await counted(cache, tmp_path / "cache")


async def test_an_uploaded_file_is_copied_from_another_disk(tmp_path: Path) -> None:
    """The bytes are copied if state and cache are on different file systems."""
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        async with running(tmp_path / "cache") as cache:
            file = create_file(disk / "7-1.sealed", KEY)
            file.pwrite(0, b"saved" * 50_000)
            file.close()
            await cache.add_file(disk / "7-1.sealed", 7, "new", 250_000, file.manifest())
            assert not (disk / "7-1.sealed").exists()
            reader = cache.open(7, "new", 250_000, Offline(0))
            assert reader.available(0, 250_000) == b"saved" * 50_000
            reader.close()


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("start", [b"", b"begin"], ids=["empty", "begun"])
async def test_the_holes_of_an_uploaded_file_are_zeros(
    tmp_path: Path, key: bytes | None, is_known: bool, start: bytes
) -> None:
    """An uploaded file with holes is read from this machine, and takes no space for its holes."""
    folder, source = tmp_path / "cache", Offline(8 * MIB)
    path = tmp_path / ("7-1.plain" if key is None else "7-1.sealed")
    expected = start.ljust(8 * MIB, b"\0")
    async with running(folder, key) as cache:
        file = create_file(path, key)
        file.pwrite(0, start)
        file.truncate(8 * MIB)
        file.flush()
        known = file.allocated if is_known else None
        file.close()
        await cache.add_file(path, 7, "r", 8 * MIB, file.manifest(), known)
        assert not path.exists()
        assert await fetched(cache, 7, source) == expected
        await counted(cache, folder)
    async with running(folder, key) as cache:
        assert cache.is_complete(7, "r")
        assert await fetched(cache, 7, source) == expected
        copy = await cache.export(7, "r", 8 * MIB, source, tmp_path / "copy")
        copy.pwrite(3 * MIB, b"new")
        assert copy.pread(3 * MIB, 5) == b"new\0\0"
        copy.close()
        await counted(cache, folder)
    assert taken(folder) < MIB
    assert (tmp_path / "copy").stat().st_blocks * 512 < MIB


async def test_a_damaged_file_with_holes_is_fetched_again(tmp_path: Path) -> None:
    """Missing bytes are never read as zeros, also after a restart."""
    data = bytearray(MIB)
    data[:KIB] = data[-KIB:] = b"x" * KIB
    source = Script(bytes(data))
    async with running(tmp_path / "cache") as cache:
        file = create_file(tmp_path / "7-1.sealed", KEY)
        file.pwrite(0, b"x" * KIB)
        file.pwrite(MIB - KIB, b"x" * KIB)
        file.close()
        await cache.add_file(tmp_path / "7-1.sealed", 7, "r", MIB, file.manifest())
        (path,) = (tmp_path / "cache").glob("7-*")
        with path.open("r+b") as raw:
            raw.seek(slot_offset(0))
            raw.write(bytes(SLOT))
        reader = cache.open(7, "r", MIB, Offline(MIB))
        assert reader.available(0, KIB) is None
        assert reader.available(MIB - KIB, KIB) == b"x" * KIB
        reader.close()
    async with running(tmp_path / "cache") as cache:
        assert not cache.is_complete(7, "r")
        reader = cache.open(7, "r", MIB, Offline(MIB))
        assert reader.available(0, KIB) is None
        assert reader.available(MIB - KIB, KIB) == b"x" * KIB
        reader.close()
        for _ in range(2):
            assert await fetched(cache, 7, source) == source.data
        assert cache.is_complete(7, "r")
        assert await fetched(cache, 7, Offline(MIB)) == source.data
        await counted(cache, tmp_path / "cache")


@pytest.mark.parametrize("wrong", ["size", "kind", "missing", "room", "manifest", "encoding"])
async def test_an_uploaded_file_that_does_not_fit_is_removed(tmp_path: Path, wrong: str) -> None:
    """An uploaded file that does not fit into the cache is removed here; the service has it."""
    async with running(tmp_path / "cache", limit=MIB) as cache:
        path = tmp_path / ("7-1.plain" if wrong == "kind" else "7-1.sealed")
        size = 2 * MIB if wrong == "room" else 1000
        manifest = b""
        if wrong != "missing":
            file = create_file(path, None if wrong == "kind" else KEY)
            file.pwrite(0, bytes(size))
            file.close()
            unusable = {"manifest": b"", "encoding": b"?"}
            manifest = unusable.get(wrong, file.manifest())
        await cache.add_file(path, 7, "r", size + (wrong == "size"), manifest)
        assert not path.exists()
        assert not cache.is_complete(7, "r")
        await counted(cache, tmp_path / "cache")


async def test_a_copy_for_writing(tmp_path: Path, key: bytes | None) -> None:
    """The first write to a file of the service works on a copy; the cached version is unchanged."""
    source = Script(content(3 * MIB))
    async with running(tmp_path / "cache", key) as cache:
        file = await cache.export(1, "r", len(source.data), source, tmp_path / "copy")
        file.pwrite(0, b"changed")
        assert file.size == len(source.data)
        file.close()
        assert await fetched(cache, 1, Offline(3 * MIB)) == source.data
        with pytest.raises(Unreachable):
            await cache.export(2, "r", 100, Offline(100), tmp_path / "none")
        assert not (tmp_path / "none").exists()
        empty = await cache.export(3, "r", 0, Offline(0), tmp_path / "empty")
        assert empty.size == 0
        empty.close()


async def test_a_copy_for_writing_has_no_damage(tmp_path: Path, key: bytes | None) -> None:
    """Bytes that are damaged or missing in the cache are fetched again for a copy."""
    source = Script(content(2 * MIB))
    async with running(tmp_path / "cache", key) as cache:
        await fetched(cache, 1, source)
        reader = cache.open(1, "r", 2 * MIB, source)
        (path,) = (tmp_path / "cache").glob("1-*")
        os.truncate(path, 200_000)
        file = await cache.export(1, "r", 2 * MIB, source, tmp_path / "copy")
        assert file.pread(0, 3 * MIB) == source.data
        file.close()
        reader.close()


async def test_other_operations_run_during_a_copy_for_writing(tmp_path: Path) -> None:
    """While cached parts of a file larger than the cache are copied, other tasks run."""
    source, path, sizes = Script(content(16 * MIB)), tmp_path / "copy", set[int]()

    async def watch() -> None:
        while True:
            if path.exists():
                sizes.add(path.stat().st_size)
            await trio.lowlevel.checkpoint()

    async with running(tmp_path / "cache", limit=9 * MIB) as cache:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            file = await cache.export(1, "r", len(source.data), source, path)
            nursery.cancel_scope.cancel()
        assert file.pread(0, len(source.data)) == source.data
        file.close()
    assert len([size for size in sizes if MIB <= size <= 8 * MIB]) >= 3


async def test_a_thread_that_ends_after_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download's thread that outlives the cache leaves the other cached files alone."""
    monkeypatch.setattr("zonedrive.content.cache_index.AGAIN_S", 0.0)
    source, other = Script(content(MIB)), Script(content(MIB, 1))
    async with running(tmp_path) as cache:
        await fetched(cache, 1, source)
        reader = cache.open(2, "r", MIB, other)
        await reader.read(0, 10)
        (entry,) = cache.quota.entries
    with pytest.raises(Stopped):
        await trio.to_thread.run_sync(entry.store, 0, bytes(MIB), lambda: None)
    async with running(tmp_path) as cache:
        assert cache.is_complete(1, "r")
        assert await fetched(cache, 1, Offline(MIB)) == source.data


@pytest.mark.parametrize("fails", [False, True])
async def test_plain_files_are_trusted_after_a_power_cut_only_if_they_were_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Files of an orderly stop, which have no check, may not be on the disk yet."""
    flushed: list[Path] = []

    def flush(folder: Path) -> None:
        flushed.append(folder)
        if fails:
            raise OSError(errno.EIO, "the disk failed")

    monkeypatch.setattr("zonedrive.content.cache.sync_file_system", flush)
    source = Script(content(MIB))
    async with running(tmp_path / "cache", None) as cache:
        await fetched(cache, 1, source)
        assert not flushed
    assert flushed == [tmp_path / "cache"]
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr("zonedrive.content.cache._BOOT", tmp_path / "boot")
    async with running(tmp_path / "cache", None) as cache:
        assert cache.is_complete(1, "r") == (not fails)


async def test_cached_files_are_private(tmp_path: Path) -> None:
    """Cached files are accessible to their owner only, and the index contains no names."""
    source = Script(content(MIB))
    source.validator = "etag-of-a-secret"
    async with running(tmp_path / "cache") as cache:
        await fetched(cache, 1, source, "1|2|someone@example.org")
    for path in (tmp_path / "cache").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        raw = path.read_bytes()
        assert b"someone@example.org" not in raw
        assert b"etag-of-a-secret" not in raw
        assert source.data[5000:5100] not in raw
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
