"""Downloads of missing bytes: each byte once, only as far as requested, from one version only."""

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.unit.content.scripted import KIB, MIB, Script, content, until
from zonedrive import memory
from zonedrive.content.cache import Cache
from zonedrive.content.content_file import Buffer
from zonedrive.content.download_worker import Download
from zonedrive.content.encrypted_file import EncryptedFile
from zonedrive.content.fetcher import LEAST, Engine, Fetcher, Pace, WaitingReader
from zonedrive.content.reader import EAGER, Reader
from zonedrive.content.slots import slot_offset
from zonedrive.errors import BadAnswer, Changed, Interrupted, TimedOut, Unreachable
from zonedrive.supervisor import Supervisor
from zonedrive.transfer_slots import TURNS


async def read_all(reader: Reader, piece: int = 128 * KIB) -> bytes:
    """Read the whole file as the kernel does."""
    parts = []
    for offset in range(0, reader.size, piece):
        ready = reader.available(offset, piece)
        parts.append(bytes(await reader.read(offset, piece) if ready is None else ready))
    return b"".join(parts)


@pytest.mark.parametrize("piece", [10_000, 64 * KIB, 300_001, MIB])
@pytest.mark.parametrize("size", [0, 1, 64 * KIB, 5 * MIB + 17])
async def test_a_file_is_read_over_one_connection(cache: Cache, size: int, piece: int) -> None:
    """A cold file is read completely over one connection, whatever pieces the service sends."""
    source = Script(content(size), piece=piece)
    reader = cache.open(7, "r", size, source)
    assert await read_all(reader) == source.data
    assert await reader.read(size, 10) == b""
    assert source.opened == ([0] if size else [])
    assert reader.complete
    await until(lambda: source.open_now == 0)
    assert source.finished == len(source.opened)
    reader.close()
    assert cache.is_complete(7, "r") == (size > 0)


async def test_a_read_returns_before_the_download_ends(cache: Cache) -> None:
    """The first read of a big file returns with the first chunk."""
    source = Script(content(8 * MIB))
    source.pace = lambda offset: offset == 0 or source.go.wait(60)
    reader = cache.open(7, "r", len(source.data), source)
    with trio.fail_after(60):
        assert await reader.read(0, 4096) == source.data[:4096]
    assert reader.available(0, 100) == source.data[:100]
    assert reader.available(4 * MIB, 100) is None
    source.go.set()
    reader.close()


@pytest.mark.parametrize(("size", "times"), [(MIB, 0), (9 * MIB, 1)])
async def test_the_memory_of_a_large_download_goes_back_to_the_system(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, size: int, times: int
) -> None:
    """Memory is returned to the system once after a large download, not after a small one."""
    returned: list[int] = []
    monkeypatch.setattr(memory, "give_back", lambda: returned.append(threading.get_ident()))
    source = Script(content(size))
    reader = cache.open(7, "r", size, source)
    assert await read_all(reader) == source.data
    reader.close()
    await until(lambda: source.open_now == 0)
    await until(lambda: len(returned) == times)
    await trio.testing.wait_all_tasks_blocked()
    assert len(returned) == times
    assert threading.get_ident() not in returned


async def test_many_readers_cause_one_download(cache: Cache) -> None:
    """Ten programs that open the same file cause one download."""
    source = Script(content(3 * MIB))
    results: list[bytes] = []

    async def one() -> None:
        reader = cache.open(7, "r", len(source.data), source)
        results.append(await read_all(reader))
        reader.close()

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert results == [source.data] * 10
    assert source.opened == [0]
    assert source.sent == len(source.data)


async def test_a_head_does_not_fetch_the_whole_file(cache: Cache) -> None:
    """Reading the first bytes of a huge file fetches a little more."""
    source = Script(content(32 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    assert await reader.read(0, 4096) == source.data[:4096]
    await until(lambda: source.sent >= MIB)
    reader.close()
    await until(lambda: source.open_now == 0)
    assert source.sent <= 2 * MIB


async def test_a_paused_download_continues_with_its_reader(cache: Cache) -> None:
    """A program that reads slowly is served over the same connection."""
    source = Script(content(8 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    await reader.read(0, 64 * KIB)
    await until(lambda: source.sent >= MIB)
    assert await read_all(reader) == source.data
    assert source.opened == [0]
    reader.close()


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_random_reads_fetch_only_parts(cache: Cache) -> None:
    """Reads at random places of a big file request parts, and no others."""
    source = Script(content(64 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    for offset in (40 * MIB + 5, 20 * MIB, 63 * MIB, 3 * MIB + 4000):
        assert await reader.read(offset, 4096) == source.data[offset : offset + 4096]
    assert source.sent <= 4 * 128 * KIB
    assert len(source.ends) == 4
    await until(lambda: source.open_now == 0)
    assert source.finished == 4
    reader.close()


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_random_reads_close_to_each_other_fetch_little_more(cache: Cache) -> None:
    """Two adjacent reads among many random ones do not start a long download."""
    source = Script(content(64 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    for offset in (40 * MIB, 40 * MIB + 300 * KIB, 20 * MIB, 20 * MIB - 600 * KIB, 5 * MIB):
        assert await reader.read(offset, 4096) == source.data[offset : offset + 4096]
    await until(lambda: source.open_now == 0)
    assert source.sent <= 5 * 128 * KIB
    reader.close()


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_sequential_reads_after_a_jump_become_one_download(cache: Cache) -> None:
    """A program that reads on after a jump soon causes one long download, not many short ones."""
    source = Script(content(64 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    for offset in range(8 * MIB, 48 * MIB, 128 * KIB):
        found = reader.available(offset, 128 * KIB)
        found = await reader.read(offset, 128 * KIB) if found is None else found
        assert found == source.data[offset : offset + 128 * KIB]
    assert len(source.opened) < 12
    assert source.sent < 57 * MIB
    reader.close()


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_the_head_of_a_big_file_fetches_a_part_of_it(cache: Cache) -> None:
    """`file` on a folder of films fetches only a part of each film."""
    source = Script(content(64 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    assert await reader.read(0, 4096) == source.data[:4096]
    await until(lambda: source.open_now == 0)
    assert source.ends
    assert max(source.ends) < 2 * MIB
    assert source.finished == 1
    reader.close()


async def test_a_far_seek_does_not_wait_for_the_bytes_between(cache: Cache) -> None:
    """A jump to the end of a film does not download the film first."""
    source = Script(content(64 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    await reader.read(0, 4096)
    assert await reader.read(60 * MIB, 4096) == source.data[60 * MIB :][:4096]
    assert source.opened == [0, 60 * MIB]
    assert source.sent < 10 * MIB
    reader.close()


async def test_cached_parts_are_not_fetched_again(cache: Cache) -> None:
    """A sequential read skips the parts that a random read has fetched."""
    source = Script(content(16 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    for offset in range(8 * MIB, 12 * MIB, 128 * KIB):
        await reader.read(offset, 128 * KIB)
    reader.close()
    before = source.sent
    reader = cache.open(7, "r", len(source.data), source)
    assert await read_all(reader) == source.data
    assert source.sent - before < 13 * MIB
    reader.close()


async def test_completing_a_file_does_not_pause_at_cached_parts(cache: Cache) -> None:
    """Completing a partly cached file takes only the time to download the other parts."""
    source = Script(content(16 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    for offset in range(4 * MIB, 6 * MIB, 128 * KIB):
        await reader.read(offset, 128 * KIB)
    with trio.fail_after(60):
        await cache.complete(7, "r", len(source.data), source)
    reader.close()


@pytest.mark.parametrize("eager", [0, EAGER], indirect=True)
async def test_a_source_without_ranges_serves_every_read(cache: Cache) -> None:
    """If the service ignores ranges, one download from the beginning serves all readers."""
    source = Script(content(6 * MIB))
    source.ranges = False
    reader = cache.open(7, "r", len(source.data), source)
    assert await reader.read(5 * MIB, 4096) == source.data[5 * MIB :][:4096]
    assert await reader.read(2 * MIB, 4096) == source.data[2 * MIB :][:4096]
    assert await read_all(reader) == source.data
    assert source.sent == len(source.data)
    reader.close()


async def test_reads_at_the_end_of_a_download_without_ranges(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that begin while the download from the beginning ends get the right bytes."""
    monkeypatch.setattr(Download, "extend", lambda _self, _limit: False)  # each is just ending
    source = Script(content(6 * MIB))
    source.ranges = False
    reader = cache.open(7, "r", len(source.data), source)
    assert await reader.read(0, 4096) == source.data[:4096]
    assert await reader.read(5 * MIB, 4096) == source.data[5 * MIB :][:4096]
    assert len(source.opened) == 2
    reader.close()


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_a_source_without_ranges_gets_no_more_of_them(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that refuses ranges is not asked for one again while the file is open."""
    monkeypatch.setattr(Download, "extend", lambda _self, _limit: False)  # each is just ending
    source = Script(content(12 * MIB))
    source.ranges = False
    reader = cache.open(7, "r", len(source.data), source)
    for offset in (0, 5 * MIB, 11 * MIB):
        assert await reader.read(offset, 4096) == source.data[offset:][:4096]
    assert [bool(offset) for offset in source.opened] == [False, True, False]
    assert len(source.ends) == 2
    reader.close()


@pytest.mark.parametrize("room", [1 << 30, 0], ids=["on the disk", "in memory"])
@pytest.mark.parametrize(("size", "cut"), [(MIB + 17, 20 * KIB), (70 * KIB, 1000)])
async def test_a_file_is_read_over_many_short_connections(
    tmp_path: Path, nursery: trio.Nursery, key: bytes | None, size: int, cut: int, room: int
) -> None:
    """All bytes received before an interruption are used, and none is received twice."""
    cache = Cache(tmp_path / "cache", key, room, stall=60.0).start()
    await nursery.start(cache.run)
    source = Script(content(size))
    source.cut, source.error = cut, Interrupted("the connection broke")
    reader = cache.open(7, "r", size, source)
    with trio.fail_after(120):
        assert await read_all(reader) == source.data
    assert source.sent == size
    reader.close()
    assert cache.is_complete(7, "r") == bool(room)
    opened = len(source.opened)
    again = cache.open(7, "r", size, source)
    assert await read_all(again) == source.data
    assert not room or len(source.opened) == opened
    again.close()
    middle, at = cache.open(8, "r", size, source), size // 2 + 60 * KIB // 7
    assert await middle.read(at, 30_000) == source.data[at:][:30_000]
    middle.close()
    await cache.aclose()


async def test_a_change_between_two_connections_is_noticed(cache: Cache) -> None:
    """Bytes of an interrupted download are not continued with bytes of another version."""
    source = Script(content(MIB))
    source.cut, source.error = 20 * KIB, Interrupted("the connection broke")

    def change(offset: int) -> None:
        if offset >= 200 * KIB:
            source.pace = lambda _offset: None
            source.data, source.validator = content(MIB, seed=2), "v2"

    source.pace = change
    reader = cache.open(7, "r", MIB, source)
    with pytest.raises(Changed):
        await reader.read(0, MIB)
    reader.close()
    fresh = cache.open(7, "r2", MIB, source)
    assert await read_all(fresh) == source.data
    fresh.close()


async def test_connections_without_a_byte_are_retried_for_a_while(
    cache: Cache, mock_clock: MockClock
) -> None:
    """A read fails with the connection's error after `stall` seconds, and the next one sooner."""
    cache._engine.stall = 10.0
    source = Script(content(MIB))
    source.cut, source.error = 0, Interrupted("the connection broke")
    reader = cache.open(7, "r", MIB, source)
    ((_, fetcher),) = cache._active.values()
    ended: list[tuple[int, Exception | None]] = []
    cache.fetched.add(lambda ino, error: ended.append((ino, error)))

    async def attempt() -> float:
        """Return how long a read takes that fails; only the pauses between connections pass."""
        began, over = trio.current_time(), trio.Event()

        async def read() -> None:
            with pytest.raises(Interrupted):
                await reader.read(0, 100)
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while not over.is_set():
                mock_clock.jump(max(0.0, fetcher._resume_at - trio.current_time()))
                await trio.lowlevel.checkpoint()
        return trio.current_time() - began

    assert 8 < await attempt() <= 11
    assert 10 < len(source.opened) < 20
    assert await attempt() <= 2
    assert ended == [(7, source.error)] * 2
    mock_clock.jump(60)
    assert 8 < await attempt() <= 11  # that was long ago
    source.cut = 1
    mock_clock.rate = 1
    assert await reader.read(0, 100) == source.data[:100]
    assert ended[2:] == [(7, source.error), (7, None)]
    reader.close()


async def test_a_connection_is_not_credited_with_bytes_of_another_one(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks without a byte is retried after a pause, whatever others receive."""
    monkeypatch.setattr("zonedrive.content.download_worker.TELL_S", 1000.0)
    source = Script(content(16 * MIB))
    far, brought = 8 * MIB, threading.Event()

    def pace(offset: int) -> None:
        if offset == far and source.opened.count(far) == 1:
            brought.wait(60)
            raise Interrupted("the connection broke")
        if offset:
            brought.set()  # the bytes before are stored, and the event loop was not told
            source.go.wait(60)

    source.pace = pace
    reader = cache.open(7, "r", len(source.data), source)
    ((_, fetcher),) = cache._active.values()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, far, 100)
        await until(lambda: far in source.opened)
        nursery.start_soon(reader.read, 0, 128 * KIB)
        await until(lambda: source.opened.count(far) == 2)
        assert fetcher._broken == 1
        source.go.set()
    reader.close()


@pytest.mark.parametrize("size", [-1, 1])
async def test_a_body_of_a_wrong_length_is_an_error(cache: Cache, size: int) -> None:
    """A body that is too short or too long is an error."""
    source = Script(content(300 * KIB))
    source.total = len(source.data)
    if size < 0:
        source.cut = 0
    else:
        source.data += b"more"
    reader = cache.open(7, "r", source.total, source)
    with pytest.raises(BadAnswer):
        await reader.read(200 * KIB, 100 * KIB)
    reader.close()


async def test_offline_fails_all_waiting_reads_at_once(cache: Cache) -> None:
    """Without a network all waiting reads fail at once; later reads try again."""
    source = Script(content(MIB))
    source.error = Unreachable("no route")
    reader = cache.open(7, "r", len(source.data), source)
    failed = 0

    async def one(offset: int) -> None:
        nonlocal failed
        with pytest.raises(Unreachable):
            await reader.read(offset, 100)
        failed += 1

    async with trio.open_nursery() as nursery:
        for offset in range(0, 500, 100):
            nursery.start_soon(one, offset)
    assert failed == 5
    source.error = None
    assert await reader.read(0, 100) == source.data[:100]
    reader.close()


async def test_a_stalled_download_ends_the_wait(cache: Cache) -> None:
    """If the service stops sending, a read fails after the deadline."""
    source = Script(content(MIB))
    source.pace = lambda offset: offset < 256 * KIB or source.go.wait(60)
    reader = cache.open(7, "r", len(source.data), source)
    await reader.read(0, 4096)
    cache._engine.stall = 0.5
    with trio.fail_after(60), pytest.raises(TimedOut):
        await reader.read(512 * KIB, 4096)
    assert source.aborted == 1
    cache._engine.stall = 60.0
    source.pace = lambda _offset: None
    assert await reader.read(512 * KIB, 4096) == source.data[512 * KIB :][:4096]
    reader.close()


async def test_another_size_is_another_version(cache: Cache) -> None:
    """A file whose size has changed on the service is not read as the old version."""
    source = Confirmed(content(MIB))
    source.wrong = Changed("another one")
    reader = cache.open(7, "r", 2 * MIB, source)
    with pytest.raises(Changed):
        await reader.read(0, 100)
    reader.close()


async def test_another_size_of_the_same_version(cache: Cache) -> None:
    """If the service still has the version, content of another size is a wrong answer."""
    source = Confirmed(content(2 * MIB))
    source.total = MIB
    reader = cache.open(7, "r", 2 * MIB, source)
    with pytest.raises(BadAnswer, match="1048576 bytes are announced for the 2097152 bytes"):
        await reader.read(0, 100)
    source.total = None
    assert await read_all(reader) == source.data
    reader.close()


@pytest.mark.parametrize("is_size_stated", [True, False])
@pytest.mark.parametrize("size", [5 * KIB, 3 * MIB])
async def test_a_page_instead_of_the_content(cache: Cache, size: int, is_size_stated: bool) -> None:
    """A page with which a network's gateway answers all requests is neither cached nor a change."""
    source, data = Confirmed(content(size, seed=2)), content(2 * MIB)
    source.validator, source.ranges, source.is_size_stated = None, False, is_size_stated
    source.wrong = BadAnswer("the answer is not JSON")
    reader = cache.open(7, "r", len(data), source)
    for _ in range(2):
        with pytest.raises(BadAnswer, match="not JSON"):
            await reader.read(0, 100)
        assert reader.available(0, 100) is None
    source.data, source.ranges, source.wrong = data, True, None
    assert await read_all(reader) == data
    reader.close()


@pytest.mark.parametrize("is_begun", [False, True])
async def test_the_content_after_a_page(cache: Cache, is_begun: bool) -> None:
    """A page with a validator of its own does not make the content look like another version."""
    data = content(16 * MIB)
    source = Confirmed(data)
    reader = cache.open(7, "r", len(data), source)
    if is_begun:
        await reader.read(0, 100)
    source.data, source.ranges, source.is_size_stated = b"<html>", False, False
    source.validator, source.wrong = "page", BadAnswer("the answer is not JSON")
    with pytest.raises(BadAnswer, match="not JSON"):
        await reader.read(15 * MIB, 100)
    source.data, source.ranges, source.is_size_stated = data, True, True
    source.validator, source.wrong = "v1", None
    assert await reader.read(15 * MIB, 100) == data[15 * MIB :][:100]
    assert source.opened[-1] == 15 * MIB, "the source has ranges"
    reader.close()


async def test_content_of_an_unknown_size_is_confirmed_once(cache: Cache) -> None:
    """Later streams of the file are recognized by their validator, without a request."""
    source = Confirmed(content(32 * MIB))
    source.is_size_stated = False
    reader = cache.open(7, "r", len(source.data), source)
    for offset in (0, 8 * MIB, 24 * MIB):
        assert await reader.read(offset, 4096) == source.data[offset:][:4096]
    assert len(source.opened) == 3
    assert source.asked == 1
    reader.close()


async def test_two_versions_are_never_mixed(cache: Cache) -> None:
    """If a file changes during a read, the read fails; the bytes read so far stay readable."""
    source = Script(content(8 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    old = source.data
    assert await reader.read(0, 4096) == old[:4096]
    source.data, source.validator = content(8 * MIB, seed=2), "v2"
    with pytest.raises(Changed):
        await reader.read(7 * MIB, 4096)
    assert await reader.read(0, 4096) == old[:4096]
    fresh = cache.open(7, "r", len(source.data), source)
    assert await read_all(fresh) == source.data
    assert reader.available(0, 4096) == old[:4096]
    fresh.close()
    reader.close()


class Confirmed(Script):
    """Source that sends no validator, and can confirm the version."""

    asked = 0
    wrong: Exception | None = None

    async def confirm(self) -> None:
        """Confirm the version as the service's own source does."""
        self.asked += 1
        if self.wrong is not None:
            raise self.wrong


async def test_without_a_validator_the_version_is_looked_up(cache: Cache) -> None:
    """Without a validator, the version is confirmed before a second stream is used."""
    source = Confirmed(content(32 * MIB))
    source.validator = None
    reader = cache.open(7, "r", len(source.data), source)
    old = source.data
    assert await reader.read(0, 4096) == old[:4096]
    assert source.asked == 0
    assert await reader.read(15 * MIB, 4096) == old[15 * MIB :][:4096]
    assert source.asked == 1
    source.data, source.wrong = content(32 * MIB, seed=2), Changed("another one")
    with pytest.raises(Changed):
        await reader.read(30 * MIB, 4096)
    assert await reader.read(0, 4096) == old[:4096]
    reader.close()


@pytest.mark.parametrize("before", [None, "v1"])
async def test_a_validator_that_appears_or_disappears(cache: Cache, before: str | None) -> None:
    """The version is confirmed before bytes with and without a validator are combined."""
    source = Confirmed(content(8 * MIB))
    source.validator = before
    reader = cache.open(7, "r", len(source.data), source)
    await reader.read(0, 4096)
    reader.close()
    source.validator = "v1" if before is None else None
    source.wrong = Changed("another one")
    reader = cache.open(7, "r", len(source.data), source)
    with pytest.raises(Changed):
        await reader.read(7 * MIB, 4096)
    reader.close()


async def test_a_change_is_noticed_after_a_restart(cache: Cache) -> None:
    """Cached bytes of one version are not completed with bytes of another one after a restart."""
    source = Script(content(8 * MIB))
    reader = cache.open(7, "r", len(source.data), source)
    await reader.read(0, 4096)
    reader.close()
    source.validator = "v2"
    reader = cache.open(7, "r", len(source.data), source)
    with pytest.raises(Changed):
        await reader.read(7 * MIB, 4096)
    reader.close()


async def test_a_cancelled_reader_leaves_no_trace(cache: Cache) -> None:
    """A program that is killed during its wait disturbs no other program, and its threads end."""
    source = Script(content(MIB))
    source.held()
    reader = cache.open(7, "r", len(source.data), source)
    other = cache.open(7, "r", len(source.data), source)
    results: list[bytes] = []

    async def wait() -> None:
        results.append(bytes(await other.read(0, 10)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        with trio.move_on_after(0.05):
            await reader.read(0, 10)
        reader.close()
        source.go.set()
    assert results == [source.data[:10]]
    other.close()
    await until(lambda: source.open_now == 0)


async def test_the_last_close_ends_the_download(cache: Cache) -> None:
    """Closing the last reader ends a download that hangs in the network."""
    source = Script(content(MIB))
    source.held()
    reader = cache.open(7, "r", len(source.data), source)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, 0, 10)
        await until(lambda: source.open_now == 1)
        nursery.cancel_scope.cancel()
    reader.close()
    await until(lambda: source.open_now == 0)


async def test_the_end_of_the_cache_ends_the_waiting(cache: Cache) -> None:
    """An unmount during a read that waits for the network does not wait for the deadline."""
    source = Script(content(MIB))
    source.held()
    reader = cache.open(7, "r", len(source.data), source)
    errors: list[Exception] = []

    async def wait() -> None:
        try:
            await reader.read(0, 10)
        except Exception as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await until(lambda: source.open_now == 1)
        await cache.aclose()
    assert len(errors) == 1
    await until(lambda: source.open_now == 0)


async def test_slow_downloads_do_not_block_other_files(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read although slow downloads of other files use all threads."""
    monkeypatch.setattr("zonedrive.content.fetcher.TURN", 0.5)
    over = threading.Event()
    drips = [Script(content(MIB, ino), piece=10) for ino in range(12)]
    for drip in drips:
        drip.pace = lambda offset: offset and over.wait(0.2)

    async def attempt(reader: Reader) -> None:
        with contextlib.suppress(TimedOut):
            await reader.read(0, MIB)

    async with trio.open_nursery() as nursery:
        for ino, drip in enumerate(drips):
            nursery.start_soon(attempt, cache.open(ino, "r", MIB, drip))
        await until(lambda: sum(drip.open_now for drip in drips) == 8)
        source = Script(content(MIB, 99))
        with trio.fail_after(60):
            reader = cache.open(99, "r", MIB, source)
            assert await reader.read(0, MIB) == source.data
        over.set()
        nursery.cancel_scope.cancel()


async def test_a_very_slow_download_fails_a_read(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read fails if only single bytes arrive now and then."""
    source, over = Script(content(MIB), piece=1), threading.Event()
    source.pace = lambda _offset: over.wait(0.05)
    reader = cache.open(7, "r", MIB, source)
    with monkeypatch.context() as patch:
        patch.setattr("zonedrive.content.fetcher.SLOW", 0.02)  # long before no byte at all came
        with trio.fail_after(60), pytest.raises(TimedOut, match="fewer than 4096 bytes"):
            await reader.read(0, 10_000)
    over.set()
    source.piece = 64 * KIB
    assert await reader.read(0, 10_000) == source.data[:10_000]
    reader.close()


async def test_a_wait_for_a_thread_is_not_a_stall(autojump_clock: MockClock) -> None:
    """A read that waits for a free thread does not time out while bytes of its file arrive."""
    fetcher = Fetcher(
        cast(Any, None), cast(Any, None), Engine(1, 10.0, Supervisor()), str,
        moved=lambda: None, over=lambda: None,
    )  # fmt: skip
    pace = Pace(25.0, 0)
    await trio.sleep(24)
    fetcher._came, waiter = LEAST, WaitingReader(0, 1, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher._until, waiter, pace)
        await trio.sleep(5)
        waiter.event.set()
    with pytest.raises(TimedOut, match="no byte arrived for 10 seconds"):
        await fetcher._until(WaitingReader(0, 1, None), pace)


class Stepped(Script):
    """Source that sends one piece for each call of `step`, and all that are left after `run`."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(content(size, seed))
        self.allowed = threading.Semaphore(0)
        self.pace = self._next

    def _next(self, _offset: int) -> None:
        aborted = self.aborted
        while not self.allowed.acquire(timeout=0.01) and self.aborted == aborted:
            pass

    def run(self) -> None:
        """Send all pieces without a further call."""
        self.pace = lambda _offset: None
        self.allowed.release(len(self.data) // self.piece + 1)

    async def step(self, cache: Cache, ino: int) -> None:
        """Send one piece, and wait until the event loop has noted its bytes."""
        fetcher = next(fetcher for entry, fetcher in cache._active.values() if entry.ino == ino)
        came = fetcher._came

        def noted() -> bool:
            fetcher._catch_up()
            return fetcher._came == came + self.piece

        self.allowed.release()
        await promptly(noted)


async def promptly(condition: Callable[[], object]) -> None:
    """Wait for the result of a thread, while the clock of the loop stands still."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        await trio.lowlevel.checkpoint()


async def pass_by(clock: MockClock, seconds: float) -> None:
    """Let time pass for the loop in small steps."""
    for _ in range(round(seconds / 0.05)):
        clock.jump(0.05)
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("others", [1, 3])
async def test_long_downloads_do_not_block_other_files(
    cache: Cache, mock_clock: MockClock, others: int
) -> None:
    """Files are read although long downloads use all threads; these continue where they were."""
    cache._engine.stall = 600.0  # seconds, which pass for real at the end
    long = [Stepped(MIB, ino) for ino in range(8)]
    readers = [cache.open(ino, "r", MIB, source) for ino, source in enumerate(long)]
    results: list[bytes] = []

    async def read(ino: int) -> None:
        source = Script(content(4 * KIB, ino))
        reader = cache.open(ino, "r", 4 * KIB, source)
        assert await reader.read(0, 4 * KIB) == source.data
        results.append(source.data)
        reader.close()

    async with trio.open_nursery() as nursery:
        for reader in readers:
            nursery.start_soon(reader.fill)
        try:
            await promptly(lambda: all(source.opened for source in long))
            for ino, source in enumerate(long):
                await source.step(cache, ino)
            await long[5].step(cache, 5)
            for ino in range(90, 90 + others):
                nursery.start_soon(read, ino)
            await trio.testing.wait_all_tasks_blocked()
            assert cache._engine.limiter.statistics().tasks_waiting == others
            for ino, source in enumerate(long):
                await source.step(cache, ino)
            await pass_by(mock_clock, 2.5)
            await promptly(lambda: len(results) == others)
        finally:
            mock_clock.rate = 1
            for source in long:
                source.run()
    piece = long[0].piece
    assert long[5].opened == [0, 3 * piece]
    assert all(source.opened in ([0], [0, 2 * piece]) for source in long if source is not long[5])
    assert sum(len(source.opened) for source in long) == 8 + others
    for reader in readers:
        assert reader.kept
        reader.close()


async def test_a_download_that_cannot_be_resumed_keeps_its_thread(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    """A download without ranges is not stopped for others.

    A read that waits for its thread fails after 10 seconds if no download brings bytes, else after
    25 seconds.
    """
    cache = Cache(tmp_path / "cache", bytes(32), 1 << 30, connections=1, stall=10.0).start()
    await nursery.start(cache.run)
    source = Stepped(4 * MIB, 1)
    source.ranges = False
    reader = cache.open(1, "r", 4 * MIB, source)
    waited: dict[int, float] = {}

    def interrupt(_offset: int) -> None:
        source.pace = source._next
        raise Interrupted("the connection broke")

    async def other(ino: int) -> None:
        began = trio.current_time()
        with contextlib.suppress(TimedOut):
            await cache.open(ino, "r", 100, Script(content(100))).read(0, 100)
        waited[ino] = trio.current_time() - began

    async def go_on(ino: int, seconds: int) -> None:
        """Let time pass while the download brings bytes for some seconds, then none."""
        nursery.start_soon(other, ino)
        for _ in range(seconds):
            await trio.testing.wait_all_tasks_blocked()
            await source.step(cache, 1)
            await pass_by(mock_clock, 1)
        await pass_by(mock_clock, 12)

    async with trio.open_nursery() as inner:
        source.pace = interrupt
        inner.start_soon(reader.read, 2 * MIB, 100)
        await promptly(lambda: cache._active[1, cache.stamp("r")][1]._broken)
        await pass_by(mock_clock, 0.1)
        await promptly(lambda: source.opened == [2 * MIB, 0])
        inner.cancel_scope.cancel()
    await source.step(cache, 1)
    await go_on(2, 2)
    await go_on(3, 30)
    mock_clock.rate = 1
    source.run()
    await cache.aclose()
    assert 10.9 < waited[2] < 11.2
    assert 24.9 < waited[3] < 25.2
    assert len(source.opened) == 2


async def test_few_connections_serve_many_files(cache: Cache) -> None:
    """With more open files than connections, paused downloads give way to others."""
    sources = [Script(content(4 * MIB, seed)) for seed in range(20)]
    readers = [cache.open(n, "r", 4 * MIB, source) for n, source in enumerate(sources)]
    with trio.fail_after(60):
        for reader, source in zip(readers, sources, strict=True):
            assert await reader.read(0, 4096) == source.data[:4096]
    for reader in readers:
        reader.close()


async def test_reads_in_any_order_get_their_own_bytes(cache: Cache) -> None:
    """Parallel reads of the kernel each get the requested bytes."""
    source = Script(content(6 * MIB), piece=100_000)
    reader = cache.open(7, "r", len(source.data), source)
    wrong: list[int] = []

    async def one(offset: int) -> None:
        data = await reader.read(offset, 128 * KIB)
        if data != source.data[offset : offset + 128 * KIB]:
            wrong.append(offset)

    async with trio.open_nursery() as nursery:
        for offset in range(0, 6 * MIB, 128 * KIB):
            nursery.start_soon(one, offset)
    assert not wrong
    reader.close()


class SlowDisk:
    """Content files whose writes wait until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.reached = threading.Event()
        write = EncryptedFile.pwrite

        def slow(file: EncryptedFile, offset: int, data: Buffer) -> int:
            self.reached.set()
            assert self.go.wait(90)
            return write(file, offset, data)

        monkeypatch.setattr(EncryptedFile, "pwrite", slow)


async def test_a_reader_does_not_wait_for_the_disk(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Received bytes can be read before they are stored, and are not fetched again."""
    disk, source = SlowDisk(monkeypatch), Script(content(MIB), piece=256 * KIB)
    reader = cache.open(7, "r", MIB, source)
    with trio.fail_after(60):
        assert await reader.read(0, 4096) == source.data[:4096]
    assert not disk.go.is_set()
    assert reader.available(100 * KIB, 4096) == source.data[100 * KIB :][:4096]
    assert not reader.kept
    disk.go.set()
    assert await read_all(reader) == source.data
    await reader.fill()
    assert reader.kept
    assert source.opened == [0]
    reader.close()


async def test_complete_waits_for_the_disk(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """`complete` returns after the last byte was stored, not when it was received."""
    disk, source = SlowDisk(monkeypatch), Script(content(100 * KIB))
    ended = trio.Event()

    async def complete() -> None:
        await cache.complete(7, "r", 100 * KIB, source)
        ended.set()

    nursery.start_soon(complete)
    with trio.fail_after(60):
        await until(disk.reached.is_set)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not ended.is_set()
        disk.go.set()
        await ended.wait()
    assert cache.is_complete(7, "r")


@pytest.mark.parametrize("eager", [EAGER], indirect=True)
async def test_complete_waits_for_the_last_chunk_before_cached_bytes(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """A download that ends at cached bytes is complete only when its last bytes are stored."""
    source = Script(content(6 * MIB), piece=512 * KIB)
    reader = cache.open(7, "r", 6 * MIB, source)
    for start in range(3 * MIB, 6 * MIB, MIB):
        await reader.read(start, MIB)
    reader.close()
    disk, ended = SlowDisk(monkeypatch), trio.Event()

    async def complete() -> None:
        await cache.complete(7, "r", 6 * MIB, source)
        ended.set()

    nursery.start_soon(complete)
    with trio.fail_after(60):
        await until(disk.reached.is_set)
        disk.go.set()
        await ended.wait()
    assert cache.is_complete(7, "r")


async def test_a_chunk_refused_by_a_full_disk_is_read_from_memory(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that the disk refused can be read again from memory."""
    source = Script(content(512 * KIB))

    def refuse(_file: EncryptedFile, _offset: int, _data: Buffer) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(EncryptedFile, "pwrite", refuse)
    reader = cache.open(7, "r", len(source.data), source)
    assert await read_all(reader) == source.data
    assert await read_all(reader) == source.data
    assert source.opened == [0]
    assert not reader.kept
    reader.close()
    assert not cache.is_complete(7, "r")


async def test_damage_in_a_read_ahead_chunk(cache: Cache) -> None:
    """Damage in chunks that were read ahead from the disk is detected when a program reads them."""
    source = Script(content(2 * MIB), piece=256 * KIB)
    await cache.complete(7, "r", 2 * MIB, source)
    reader = cache.open(7, "r", 2 * MIB, source)
    file = reader.file()
    assert file is not None
    with file.path.open("r+b") as raw:
        raw.seek(slot_offset(5) + 100)
        raw.write(b"damaged")
    file.close()
    for at in range(0, 256 * KIB, 64 * KIB):
        assert reader.available(at, 64 * KIB) == source.data[at : at + 64 * KIB]
    assert reader.available(320 * KIB, 64 * KIB) is None
    assert reader.available(384 * KIB, 64 * KIB) == source.data[384 * KIB : 448 * KIB]
    assert await reader.read(320 * KIB, 64 * KIB) == source.data[320 * KIB : 384 * KIB]
    assert len(source.opened) == 2
    reader.close()


async def test_a_paused_download_uses_no_slot(cache: Cache) -> None:
    """A download that waits for its reader does not use a transfer slot."""
    source = Script(content(64 * MIB), piece=256 * KIB)
    reader = cache.open(7, "r", len(source.data), source)
    for offset in range(0, 8 * MIB, 128 * KIB):
        await reader.read(offset, 128 * KIB)
    await until(lambda: any(each.paused for each in cache._engine.running))
    assert source.sent > 4 * MIB
    await until(lambda: not TURNS.is_taken)  # that of an earlier test may just be ending
    reader.close()
