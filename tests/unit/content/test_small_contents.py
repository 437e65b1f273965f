"""Small contents, many in one file: as private and as well protected as single files."""

import contextlib
import itertools
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.unit.content.mounts import small_disk
from tests.unit.content.scripted import KIB, MIB, Script, content, limit, until
from tests.unit.content.test_cache import Offline, fetched, fill, running
from zonedrive.content.cache import Cache
from zonedrive.content.cache_index import CacheIndex, Row, cache_usage
from zonedrive.content.quota import AT_ONCE, EXAMINE_S
from zonedrive.content.small_contents import LARGEST, cost
from zonedrive.supervisor import Task

KEY = bytes(range(32))


def small(number: int, size: int = 4 * KIB) -> bytes:
    """Return bytes."""
    return content(size, number)


@contextlib.contextmanager
def rows(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the index as a user who can write to the disk."""
    with contextlib.closing(sqlite3.connect(folder / "index.db")) as index:
        yield index
        index.commit()


async def test_small_contents_are_readable_at_once_and_after_a_restart(
    tmp_path: Path, key: bytes | None
) -> None:
    """A small file is read without a cache file and without the source."""
    async with running(tmp_path, key) as cache:
        for ino in range(1, 101):
            assert cache.put(ino, "r", small(ino, ino * 100))
        assert cache.is_complete(7, "r")
        assert not cache.is_complete(7, "other")
        assert await fetched(cache, 7, Offline(700)) == small(7, 700)
        assert 7 in cache.inos()
    assert not list(tmp_path.glob("*-????????????"))
    async with running(tmp_path, key) as cache:
        assert set(cache.inos()) == set(range(1, 101))
        for ino in range(1, 101):
            assert cache.is_complete(ino, "r")
            assert await fetched(cache, ino, Offline(ino * 100)) == small(ino, ino * 100)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET taken = 9223372036854775807",
        "UPDATE entries SET taken = 9e999",
        "DROP TABLE entries",
    ],
)
async def test_the_usage_of_a_damaged_index(tmp_path: Path, change: str) -> None:
    """Without a daemon, a command reports some usage, and does not fail."""
    async with running(tmp_path) as cache:
        for ino in range(1, 11):
            assert cache.put(ino, "r", small(ino))
    assert 40 * KIB < cache_usage(tmp_path) < 80 * KIB
    with rows(tmp_path) as index:
        index.execute(change)
    assert cache_usage(tmp_path) >= 0


async def test_small_contents_are_written_in_batches(tmp_path: Path) -> None:
    """A background task writes small contents soon, not only when the cache is closed."""
    async with running(tmp_path / "cache") as cache:
        for ino in range(1, 11):
            assert cache.put(ino, "r", small(ino))
        assert cache.quota.usage() == 0
        await until(lambda: cache.quota.usage())
        assert cache.quota.usage() == 10 * cost(4 * KIB + 28)
        shutil.copytree(tmp_path / "cache", tmp_path / "killed")
        assert cache.put(11, "r", small(11))  # the task starts again
        await until(lambda: cache.quota.usage() > 10 * cost(4 * KIB + 28))
    async with running(tmp_path / "killed") as cache:
        assert await fetched(cache, 10, Offline(4 * KIB)) == small(10)


async def test_a_failed_write_loses_only_the_cached_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Later contents are written although one write failed."""
    async with running(tmp_path) as cache:
        written = cache._index.put_contents
        monkeypatch.setattr(cache._index, "put_contents", lambda batch: 1 / 0)
        assert cache.put(1, "r", small(1))
        failing = cache._engine.supervisor.failing
        await until(lambda: [each.task for each in failing()] == [Task.SMALL_CONTENTS])
        monkeypatch.setattr(cache._index, "put_contents", written)
        assert cache.put(2, "r", small(2))
        await until(lambda: not failing())
        assert cache.quota.usage() == cost(4 * KIB + 28)
        assert await fetched(cache, 1, Script(small(1))) == small(1)
    caplog.clear()


def test_nothing_is_readable_on_the_disk(tmp_path: Path) -> None:
    """Small contents are encrypted if the account has a key."""
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    assert cache.put(1, "r", b"a secret that nobody may read" * 20)
    for path in tmp_path.iterdir():
        assert b"a secret that nobody may read" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("what", ["flipped", "exchanged", "former", "other revision", "gone"])
async def test_forged_contents_are_rejected(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged, exchanged and old contents are rejected."""
    async with running(tmp_path) as cache:
        assert cache.put(1, "old", small(3))
    with rows(tmp_path) as index:
        (former,) = index.execute("SELECT content FROM contents WHERE ino = 1").fetchone()
        row = index.execute("SELECT * FROM entries").fetchone()
    async with running(tmp_path) as cache:
        # Whatever makes a service give the same revision twice:
        assert cache.put(1, "old" if what == "former" else "r", small(1))
        assert cache.put(2, "r", small(2))
    revision = "old" if what == "former" else "r"
    with rows(tmp_path) as index:
        stored = dict(index.execute("SELECT ino, content FROM contents").fetchall())
        if what == "flipped":
            stored[1] = stored[1][:-1] + bytes([stored[1][-1] ^ 1])
        elif what == "exchanged":
            stored[1] = stored[2]
        elif what == "former":
            stored[1] = former
        elif what == "other revision":
            stamp = index.execute("SELECT stamp FROM entries WHERE ino = 1").fetchone()
            index.execute("DELETE FROM entries WHERE ino = 1")
            index.execute(
                f"INSERT INTO entries VALUES ({', '.join('?' * len(row))})",
                [stamp[0] if each == row[1] else each for each in row],
            )
            stored[1] = former
        else:
            del stored[1]
        index.execute("DELETE FROM contents")
        index.executemany("INSERT INTO contents VALUES (?, ?)", stored.items())
    async with running(tmp_path) as cache:
        source = Script(small(1))
        assert await fetched(cache, 1, source, revision) == small(1)
        assert source.opened
        assert await fetched(cache, 2, Offline(4 * KIB)) == small(2)
    caplog.clear()


async def test_the_usage_after_a_read_finds_a_damaged_index(tmp_path: Path) -> None:
    """The cache would otherwise count too little until the next start, and exceed its limit."""
    async with running(tmp_path) as cache:
        assert cache.put(1, "r", small(1, 20 * KIB))
    with rows(tmp_path) as index:
        (stored,) = index.execute("SELECT content FROM contents").fetchone()
        (page,) = index.execute("PRAGMA page_size").fetchone()
    database = tmp_path / "index.db"
    data = bytearray(database.read_bytes())
    start = data.index(stored[2 * page : 2 * page + 64]) // page * page
    data[start : start + 4] = b"\xff" * 4  # number of the page that has the next bytes
    database.write_bytes(data)
    async with running(tmp_path) as cache:
        assert await fetched(cache, 1, Script(small(1, 20 * KIB))) == small(1, 20 * KIB)
        assert cache.quota.usage() == sum(row.taken for row in cache._index.all_rows())


async def test_a_new_revision_replaces_the_old_one(tmp_path: Path) -> None:
    """Content is replaced if it waits in memory, is in the index, or has a file."""
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    large = Script(content(MIB))
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        await fetched(cache, 1, large, "file")
        assert cache.put(1, "a", small(1))
        assert not cache.is_complete(1, "file")
        assert not list(tmp_path.glob("1-*"))
        assert cache.put(1, "b", small(2))
        assert not cache.is_complete(1, "a")
        assert await fetched(cache, 1, Offline(4 * KIB), "b") == small(2)
        assert await fetched(cache, 1, large, "file") == large.data
        assert not cache.is_complete(1, "b")
        assert cache.put(2, "a", small(3))
        cache.drop(2)
        assert not cache.is_complete(2, "a")
        await cache.aclose()
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    assert cache.inos() == [1]
    assert cache.put(1, "c", small(4))
    assert cache.put(1, "d", small(5))
    assert not cache.is_complete(1, "c")
    assert cache.quota.usage() == cost(4 * KIB + 28)
    cache.drop(1)
    assert cache.quota.usage() == 0
    with rows(tmp_path) as index:
        assert not index.execute("SELECT * FROM contents").fetchall()


async def test_a_file_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    """An open file is not replaced by small contents; large and empty contents are rejected."""
    source = Script(small(1))
    async with running(tmp_path) as cache:
        reader = cache.open(1, "r", 4 * KIB, source)
        assert not cache.put(1, "r", small(1))
        assert await reader.read(0, 4 * KIB) == small(1)
        reader.close()
        assert not cache.put(2, "r", b"")
        assert not cache.put(2, "r", bytes(LARGEST + 1))
        assert cache.put(3, "r", small(3))
        reader = cache.open(3, "other", 4 * KIB, Script(small(4)))
        assert await reader.read(0, 4 * KIB) == small(4)
        reader.close()
        assert not cache.is_complete(3, "r")
        assert await fetched(cache, 3, Offline(4 * KIB), "other") == small(4)


async def test_unused_contents_are_evicted_first(tmp_path: Path) -> None:
    """The limit holds, and pinned small contents are never evicted."""
    each = cost(4 * KIB + 28)
    cache = Cache(tmp_path, KEY, 100 * each).start()
    cache.quota.pinned = {1}
    for ino in range(1, 301):
        assert cache.put(ino, "r", small(ino))
        assert cache.quota.usage() <= cache.quota.limit
    assert len(cache.inos()) == 100
    assert cache.is_complete(1, "r")
    assert cache.is_complete(300, "r")
    assert not cache.is_complete(2, "r")
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        large = Script(content(300 * KIB))
        await fetched(cache, 1000, large)
        assert cache.quota.usage() <= cache.quota.limit
        assert cache.is_complete(1000, "r")
        assert cache.is_complete(1, "r")
        assert len(cache.inos()) < 40
        limit(cache, 0)
        assert cache.inos() == [1]
        await cache.aclose()


def test_only_contents_that_fit_are_kept(tmp_path: Path) -> None:
    """Only the contents that fit are written from one batch."""
    each = cost(4 * KIB + 28)
    cache = Cache(tmp_path, KEY, 3 * each).start()
    small_contents = cache._small
    for ino in range(1, 6):
        small_contents.put(ino, cache.stamp("r"), small(ino))
    cache.quota.pinned = range(1, 4)
    small_contents.write(lambda _ino: False)
    assert cache.quota.usage() == 3 * each
    assert cache.inos() == [1, 2, 3]


async def test_dropped_contents_free_disk_space(tmp_path: Path) -> None:
    """The index file becomes smaller after contents were evicted."""
    async with running(tmp_path) as cache:
        for ino in range(1, 401):
            assert cache.put(ino, "r", small(ino))
    full = (tmp_path / "index.db").stat().st_size
    assert 400 * 4 * KIB < full < 450 * cost(4 * KIB + 28)
    async with running(tmp_path) as cache:
        for ino in range(1, 400):
            cache.drop(ino)
    assert (tmp_path / "index.db").stat().st_size < full / 4
    async with running(tmp_path) as cache:
        assert await fetched(cache, 400, Offline(4 * KIB)) == small(400)


async def test_the_log_of_the_index_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread checkpoints the index after many writes."""
    monkeypatch.setattr("zonedrive.content.small_contents.LOG", 50_000)
    async with running(tmp_path) as cache:
        for ino in range(1, 21):
            assert cache.put(ino, "r", small(ino))
        await until(lambda: (tmp_path / "index.db").stat().st_size >= 80_000)
        assert not cache._small.needs_checkpoint


async def test_reads_continue_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Content that could not be written is fetched again."""
    with small_disk(tmp_path / "disk", 2 * MIB) as disk:
        cache = Cache(disk / "cache", KEY, 1 << 30).start()
        for ino in range(1, 1001):
            cache.put(ino, "r", small(ino))
        kept = cache.inos()
        assert 0 < len(kept) < 500
        assert not cache.is_complete(1000, "r") or not cache.is_complete(1, "r")
        async with trio.open_nursery() as nursery:
            await nursery.start(cache.run)
            for ino in (1, 500, 1000):
                assert await fetched(cache, ino, Script(small(ino))) == small(ino)
            await cache.aclose()
    caplog.clear()


async def test_another_database_gets_no_old_content_on_a_full_disk(tmp_path: Path) -> None:
    """The index is emptied although the disk has no room for a log of the removal."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        async with running(disk / "cache", identity="one") as cache:
            for ino in range(1, 201):
                assert cache.put(ino, "r", small(ino, LARGEST))
        space = os.statvfs(disk)
        free = space.f_bavail * space.f_frsize
        (disk / "others").write_bytes(bytes(free - 200 * KIB))
        async with running(disk / "cache", identity="two") as cache:
            assert not cache.inos()


async def test_contents_that_a_full_disk_keeps_are_counted(tmp_path: Path) -> None:
    """Contents that cannot be deleted count until they are; at most one of them is lost."""
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        async with running(disk / "cache") as cache:
            for ino in range(1, 101):
                assert cache.put(ino, "r", small(ino))
            await until(lambda: cache.quota.usage())
            before = cache.quota.usage()
            with contextlib.closing(sqlite3.connect(disk / "cache" / "index.db")) as index:
                index.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a deletion needs space in it
            fill(disk)
            for _ in range(2):
                limit(cache, before // 2)
                assert cache.quota.usage() == before
                assert sum(cache.is_complete(ino, "r") for ino in range(1, 101)) == 99
            (disk / "others").unlink()
            limit(cache, before // 2)
            assert cache.quota.usage() == before // 2
            assert sum(cache.is_complete(ino, "r") for ino in range(1, 101)) == 50


async def test_a_copy_for_writing(tmp_path: Path, key: bytes | None) -> None:
    """An editor starts with the cached content."""
    async with running(tmp_path / "cache", key) as cache:
        assert cache.put(1, "r", small(1))
        copy = await cache.export(1, "r", 4 * KIB, Offline(4 * KIB), tmp_path / "copy")
        assert copy.pread(0, 8 * KIB) == small(1)
        copy.close()


def test_plain_contents_are_not_trusted_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without encryption there is no check that detects lost bytes."""
    cache = Cache(tmp_path / "cache", None, 1 << 30).start()
    assert cache.put(1, "r", small(1))
    shutil.copytree(tmp_path / "cache", tmp_path / "killed")
    shutil.copytree(tmp_path / "cache", tmp_path / "cut")
    assert Cache(tmp_path / "killed", None, 1 << 30).start().inos() == [1]
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr("zonedrive.content.cache._BOOT", tmp_path / "boot")
    assert Cache(tmp_path / "cut", None, 1 << 30).start().inos() == []


def test_many_contents_are_evicted_in_few_transactions(tmp_path: Path) -> None:
    """The eviction of many contents takes one transaction for each batch."""
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    for ino in range(1, 401):
        assert cache.put(ino, "r", small(ino))
    statements: list[str] = []
    assert cache._index._db is not None
    cache._index._db._connection.set_trace_callback(statements.append)
    limit(cache, cache.quota.usage() // 2)
    assert len(cache.inos()) == 200
    assert statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") == 4


@pytest.mark.parametrize("by", ["start", "download"])
async def test_other_tasks_run_between_two_batches(tmp_path: Path, by: str) -> None:
    """Many contents are evicted at the next start, or after other programs have filled the disk."""
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    for ino in range(1, 801):
        assert cache.put(ino, "r", small(ino))
    each, known, most = cost(4 * KIB + 28), len(cache.inos()), 0
    async with trio.open_nursery() as nursery:
        if by == "download":
            await nursery.start(cache.run)
        cache.quota.limit = 40 * each
        async with trio.open_nursery() as download:
            if by == "start":
                nursery.start_soon(cache.run)
            else:
                download.start_soon(fetched, cache, 1000, Script(content(64 * KIB)))
            while (left := len(cache.inos())) > 40:
                most, known = max(most, known - left), left
                await trio.lowlevel.checkpoint()
        await cache.aclose()
    # The number of contents that were evicted between two turns of this task.
    assert max(most, known - left) <= 2 * 64


async def test_few_contents_are_evicted_for_a_large_file(tmp_path: Path) -> None:
    """Space that a download may need later is not made by the eviction of many contents."""
    cache = Cache(tmp_path, KEY, 1 << 30).start()
    for ino in range(1, 401):
        assert cache.put(ino, "r", small(ino))
    cache.quota.limit = cache.quota.usage()
    each = cost(4 * KIB + 28)
    assert await cache.quota.claim(each, 50 * each) == 50 * each
    assert len(cache.inos()) == 350
    granted = await cache.quota.claim(51 * each, 400 * each)
    assert 51 * each <= granted < 150 * each
    assert len(cache.inos()) == 400 - granted // each


async def test_contents_are_evicted_on_a_nearly_full_disk(tmp_path: Path) -> None:
    """Contents are evicted, and at most one is lost, if the disk has space for a few deletions."""
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        async with running(disk / "cache") as cache:
            for ino in range(1, 101):
                assert cache.put(ino, "r", small(ino, 16 * KIB))
        fill(disk)
        os.truncate(disk / "others", (disk / "others").stat().st_size - 200 * KIB)
        cache = Cache(disk / "cache", KEY, 1 << 30).start()
        each = cache.quota.usage() // 100
        limit(cache, 50 * each)
        left = sum(cache.is_complete(ino, "r") for ino in range(1, 101))
        assert 50 < left < 99
        assert left <= cache.quota.usage() // each <= left + 1


def full_of_pins(folder: Path, count: int) -> Cache:
    """Return a cache that has only pinned contents, 1 to `count`, and no room for another one."""
    cache = Cache(folder, KEY, count * cost(4 * KIB + 28)).start()
    cache.quota.pinned = range(1, count + 1)
    for ino in range(1, count + 1):
        assert cache.put(ino, "r", small(ino))
    assert len(cache.inos()) == count
    return cache


def searches(cache: Cache) -> list[str]:
    """Return a list of all later queries for contents that could be evicted."""
    found: list[str] = []
    assert cache._index._db is not None
    cache._index._db._connection.set_trace_callback(
        lambda sql: found.append(sql) if "ORDER BY used_ns" in sql else None
    )
    return found


def test_pinned_contents_are_examined_once(tmp_path: Path) -> None:
    """A cache full of pinned contents does not examine all of them for each new content."""
    cache = full_of_pins(tmp_path, 400)
    queries = searches(cache)
    for ino in range(1001, 1031):
        cache.put(ino, "r", small(ino))
    assert len(cache.inos()) == 400
    # Each content claims space twice: in its batch, and alone.
    assert len(queries) <= 400 // 64 + 1 + 2 * 30


async def test_other_tasks_run_while_pinned_contents_are_examined(tmp_path: Path) -> None:
    """Nothing waits until all contents of a full cache are examined."""
    cache = full_of_pins(tmp_path, 800)
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        queries, most = searches(cache), 0
        assert cache.put(1001, "r", small(1001))
        while 1001 in cache.inos():
            known = len(queries)
            await trio.lowlevel.checkpoint()
            most = max(most, len(queries) - known)
        await cache.aclose()
    assert len(queries) >= 800 // 64
    assert most <= 4


@pytest.mark.parametrize(
    ("how", "count"), [("unpinned", 3), ("moved", 3), ("added", 2), ("clock", 2)]
)
def test_contents_that_can_be_evicted_now_are_found(
    tmp_path: Path, how: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make room for others although nothing could be evicted before."""
    cache, each, pinned = full_of_pins(tmp_path, 10), cost(4 * KIB + 28), set(range(1, 11))
    cache.quota.pinned = pinned
    cache.quota.limit += 2 * each
    assert cache.quota.claim_at_once(3 * each) == (0, [])
    if how == "unpinned":
        cache.quota.pinned = pinned - {5}
        cache.quota.examine_again()
    elif how == "moved":  # out of a pinned folder
        pinned.remove(5)
        assert cache.quota.claim_at_once(3 * each) == (0, [])
        cache.quota._examined_s -= EXAMINE_S
    else:
        if how == "clock":  # is set back
            monkeypatch.setattr("time.time_ns", lambda: 1)
        assert cache.put(11, "r", small(11))
    assert cache.quota.claim_at_once(count * each) == (count * each, [])
    assert len(cache.inos()) == (10 if count == 2 else 9)


def test_few_rows_are_in_memory_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache may have a million small files; their usage is counted nevertheless."""
    cache, sizes, read = full_of_pins(tmp_path, 25), list[int](), CacheIndex._rows
    cache._index.close()

    def rows_read(index: CacheIndex, *query: Any) -> list[Row]:
        sizes.append(len(found := read(index, *query)))
        return found

    monkeypatch.setattr(CacheIndex, "_rows", rows_read)
    monkeypatch.setattr("zonedrive.content.cache_index.PAGE", 10, raising=False)
    again = Cache(tmp_path, KEY, 1 << 30).start()
    assert max(sizes) == 10
    assert again.quota.usage() == cache.quota.usage()
    assert again.inos() == list(range(1, 26))


def test_contents_from_a_time_with_a_wrong_clock_are_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not stay for years at the expense of what is used after the clock was corrected."""
    cache = Cache(tmp_path, KEY, 10 * cost(4 * KIB + 28)).start()
    with monkeypatch.context() as wrong:
        ahead = itertools.count(time.time_ns() + 365 * 86_400 * 10**9)
        wrong.setattr("time.time_ns", lambda: next(ahead))
        for ino in range(1, 11):
            assert cache.put(ino, "r", small(ino))
    cache.quota._examined_s -= EXAMINE_S
    for ino in range(11, 15):
        assert cache.put(ino, "r", small(ino))
    assert sorted(cache.inos()) == list(range(5, 15))


def test_contents_from_years_with_a_wrong_clock_are_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of them does not get a time before all times."""
    cache = Cache(tmp_path, KEY, 10 * cost(4 * KIB + 28)).start()
    with monkeypatch.context() as wrong:
        ahead = itertools.count(time.time_ns() + 86_400 * 10**9, 10 * 365 * 86_400 * 10**9)
        wrong.setattr("time.time_ns", lambda: next(ahead))
        for ino in range(1, 11):
            assert cache.put(ino, "r", small(ino))
    cache.quota._examined_s -= EXAMINE_S
    for ino in range(11, 21):
        assert cache.put(ino, "r", small(ino))
    assert sorted(cache.inos()) == list(range(11, 21))


def test_contents_behind_damaged_rows_are_evicted(tmp_path: Path) -> None:
    """The least recently used rows are all damaged, more than one query returns."""
    cache, each = Cache(tmp_path, KEY, 1 << 30).start(), cost(4 * KIB + 28)
    for ino in range(1, 101):
        assert cache.put(ino, "r", small(ino))
    with contextlib.closing(sqlite3.connect(tmp_path / "index.db")) as index:
        index.execute("UPDATE entries SET hash = x'00' WHERE ino <= 70")
        index.commit()
    limit(cache, 101 * each)
    granted, _ = cache.quota.claim_at_once(100 * each)
    assert granted == 100 * each


async def test_the_room_that_is_told_is_granted(tmp_path: Path) -> None:
    """Content moved out of a pinned folder counts at once, also if nothing was found before."""
    cache, each, pinned = full_of_pins(tmp_path, 10), cost(4 * KIB + 28), set(range(1, 11))
    cache.quota.pinned = pinned
    assert await cache.quota.claim(each, each) == 0
    pinned.remove(5)
    assert await cache.quota.room() == each
    assert await cache.quota.claim(each, each) == each


def test_a_claim_at_once_examines_some_rows(tmp_path: Path) -> None:
    """Claims in a row together find content behind many pinned ones."""
    count = 2 * AT_ONCE * 64
    cache, each = full_of_pins(tmp_path, count), cost(4 * KIB + 28)
    cache.quota.pinned = range(1, count)
    granted = [cache.quota.claim_at_once(each)[0] for _ in range(3)]
    assert granted == [0, 0, each] or granted == [0, each, each]
    assert count not in cache.inos()


async def test_a_file_that_was_closed_makes_room(tmp_path: Path) -> None:
    """Nothing could be evicted while it was open."""
    each = 64 * KIB
    async with running(tmp_path, limit=4 * each) as cache:
        reader = cache.open(1, "r", each, Script(content(each)))
        await reader.fill()
        assert await cache.quota.claim(3 * each, 3 * each) == 0
        reader.close()
        assert await cache.quota.claim(3 * each, 3 * each) == 3 * each
        assert cache.inos() == []
