"""Files that are written for a long time without a close."""

import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from tests.unit.state.disk import SILENT
from tests.unit.vfs.mount import cached_file, files_of, open_spool_files
from zonedrive.content.content_file import ContentFile
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import OpenFile
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.vfs.write_sessions import SYNCS, WriteSessions


@pytest.mark.parametrize(
    ("offset", "kept"), [(3, b"oldnew"), (0, b"old")], ids=["appended", "overwritten"]
)
async def test_an_open_log_is_recorded_at_intervals(
    state: LocalState, autojump_clock: trio.abc.Clock, offset: int, kept: bytes
) -> None:
    """An open log is made safe at intervals; an incomplete rewrite never is."""
    inode = cached_file(state, b"old")
    sessions = WriteSessions(state, SILENT, DirectoryCache(state, SILENT), cast(Dispatcher, None))
    opened = state.new_open_file(inode)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.keep)
        await sessions.begin(opened, truncate=False)
        assert opened.session is not None
        opened.session.changed(offset)
        opened.session.file.pwrite(offset, b"new")
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    found = state.spool.open(inode.ino, state.inodes.get(inode.ino).generation)
    assert found.pread(0, 100) == kept
    found.close()
    intent = state.intents.get(inode.ino)
    assert (intent is not None and intent.held) == (kept == b"oldnew")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), StoreError("damaged")])
async def test_a_failed_record_is_tried_again(
    state: LocalState, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:  # fmt: skip
    """After one failure of the disk, later records still make the file safe."""
    inode = cached_file(state, b"old")
    sessions = WriteSessions(state, SILENT, DirectoryCache(state, SILENT), cast(Dispatcher, None))
    opened = state.new_open_file(inode)
    errors, commit = [error], WriteSessions.commit

    def failing(self: WriteSessions, opened: OpenFile) -> None:
        if errors:
            raise errors.pop()
        commit(self, opened)

    monkeypatch.setattr(WriteSessions, "commit", failing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.keep)
        await sessions.begin(opened, truncate=False)
        assert opened.session is not None
        opened.session.changed(3)
        opened.session.file.pwrite(3, b"new")
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert (inode.generation, inode.size) == (opened.session.generation, 6)


async def test_a_record_is_never_more_durable_than_its_bytes(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a program has called fsync, later bytes are on the disk before their record.

    Otherwise a power cut could leave a record of missing bytes, as if an attacker had restored
    former ones.  A program that never calls fsync does not wait for the disk.
    """
    inode = cached_file(state, b"old")
    files = files_of(state)
    steps: list[str] = []
    sync, record = ContentFile.sync, Spool.record

    meanwhile: list[bytes] = []

    def noted_sync(self: ContentFile) -> int:
        steps.append("sync")
        safe = sync(self)
        if meanwhile:
            trio.from_thread.run(files.write, handle, 0, meanwhile.pop())
        return safe

    def noted_record(self: Spool, ino: int, generation: int, file: ContentFile) -> None:
        steps.append("record")
        record(self, ino, generation, file)

    monkeypatch.setattr(ContentFile, "sync", noted_sync)
    monkeypatch.setattr(Spool, "record", noted_record)
    handle = (await files.open(inode, os.O_RDWR)).handle
    for data in (b"1", b"2"):
        await files.write(handle, 0, data)
        await files.flush(handle)
    assert steps == ["record", "record"]
    await files.write(handle, 0, b"3")
    await files.fsync(handle)
    await files.write(handle, 0, b"4")
    await files.flush(handle)
    assert steps[2:] == ["sync", "record"] * 2
    await files.flush(handle)
    assert len(steps) == 6
    meanwhile.append(b"5")  # another program writes while the disk is busy
    await files.fsync(handle)
    assert steps[6:] == ["sync", "sync", "record"]
    meanwhile.extend([b"6"] * SYNCS)  # and again and again
    await files.fsync(handle)
    assert steps[9:] == [*["sync"] * (SYNCS + 1), "record"]
    del steps[:]
    await files.write(handle, 0, b"7")  # the pages of a mapping, after the close
    await files.release(handle)
    assert steps == ["sync", "sync", "record"]
    handle = (await files.open(inode, os.O_RDWR)).handle
    await files.write(handle, 0, b"8")  # such pages alone, which replace synced bytes
    await files.release(handle)
    del steps[:]
    handle = (await files.open(inode, os.O_RDWR)).handle
    await files.write(handle, 0, b"9")
    await files.flush(handle)
    assert steps == ["sync", "record"]


async def test_a_rewrite_that_begins_during_the_sync_of_an_open_log(
    state: LocalState, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its former content until the close, like that of any rewrite."""
    inode, files, sync = cached_file(state, b"old"), files_of(state), ContentFile.sync
    handle = (await files.open(inode, os.O_RDWR)).handle
    await files.fsync(handle)

    def sync_slowly(self: ContentFile) -> int:
        trio.from_thread.run(files.write, handle, 0, b"half")
        return sync(self)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.sessions.keep)
        await files.write(handle, 3, b"more")
        monkeypatch.setattr(ContentFile, "sync", sync_slowly)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert state.intents.get(inode.ino) is None


async def test_an_edit_after_a_sync_during_which_the_writer_has_closed(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later edit does not take away the bytes that a reader has synced, as sync(1) does."""
    inode, flush = cached_file(state, b"old"), Database.flush
    files = files_of(state)
    reader, writer = [(await files.open(inode, flags)).handle for flags in (0, os.O_WRONLY)]
    await files.write(writer, 0, b"new")
    await files.flush(writer)
    synced = inode.generation

    def flush_slowly(self: Database) -> None:
        trio.from_thread.run(files.release, writer)
        flush(self)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "flush", flush_slowly)
        await files.fsync(reader)
    writer = (await files.open(inode, os.O_WRONLY)).handle
    await files.write(writer, 0, b"more")
    await files.flush(writer)
    assert inode.generation != synced
    assert (inode.ino, synced) in state.spool.stored()  # until the new record is durable


async def test_a_sync_of_an_open_log_that_ends_during_the_upload(
    state: LocalState, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync does not keep back the upload that an fsync or close waits for."""
    inode, held, sync = cached_file(state, b"old"), list[bool](), ContentFile.sync
    waiting, threads = trio.Event(), trio.to_thread.current_default_thread_limiter()

    async def wait_until(over: object) -> None:
        waiting.set()
        while threads.borrowed_tokens:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        intent = state.intents.get(inode.ino)
        held.append(intent is not None and intent.held)
        nursery.cancel_scope.cancel()
        await trio.sleep_forever()

    dispatcher = SimpleNamespace(
        failure=lambda ino: None,
        failed_prerequisites=lambda ino: [],
        expedite=lambda inos: None,
        waited_for=nullcontext,
        wait_until=wait_until,
    )
    folders = DirectoryCache(state, SILENT)
    sessions = WriteSessions(state, SILENT, folders, cast(Dispatcher, dispatcher))
    opened = state.new_open_file(inode)

    async def send() -> None:
        sessions.commit(opened)
        nursery.start_soon(sessions.delivered, opened)
        await waiting.wait()

    def slow_sync(self: ContentFile) -> int:
        trio.from_thread.run(send)
        return sync(self)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.keep)
        await sessions.begin(opened, truncate=False)
        assert opened.session is not None
        opened.session.synced = True
        opened.session.changed(3)
        opened.session.file.pwrite(3, b"new")
        monkeypatch.setattr(ContentFile, "sync", slow_sync)
    assert held == [False]


@pytest.mark.parametrize("call", ["read", "write", "truncate", "save"])
async def test_a_file_that_a_power_cut_has_shortened(state: LocalState, call: str) -> None:
    """Programs must not take the rest for the whole file: only a save without the rest works."""
    inode, files = cached_file(state, b"the old content"), files_of(state)
    with closing(state.spool.open(inode.ino, inode.generation)) as file:
        file.truncate(3)
    flags = os.O_RDWR | (os.O_TRUNC if call == "save" else 0)
    calls: dict[str, Callable[[int], Awaitable[object]]] = {
        "read": lambda handle: files.read(handle, 0, 100),
        "write": lambda handle: files.write(handle, 0, b"n"),
        "truncate": lambda handle: files.truncate(inode, 20, handle),
        "save": lambda handle: files.write(handle, 0, b"new"),
    }
    with nullcontext() if call == "save" else pytest.raises(Damaged, match="are missing"):
        handle = (await files.open(inode, flags)).handle
        await calls[call](handle)
        assert await files.read(handle, 0, 100) == b"new"


@pytest.mark.parametrize("call", ["write", "truncate"])
async def test_a_rejected_change_of_a_file_leaves_its_times(
    state: LocalState, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The kernel gets an error, and keeps the times that it has."""
    inode, files = cached_file(state, b"old"), files_of(state)
    handle = (await files.open(inode, os.O_WRONLY)).handle
    await files.write(handle, 0, b"new")
    session = state.session(inode.ino)
    assert session is not None
    before = session.mtime_ns, session.ctime_ns

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(ContentFile, "pwrite" if call == "write" else "truncate", full)
    with pytest.raises(OSError, match="full"):
        await (files.write(handle, 0, b"w") if call == "write" else files.truncate(inode, 1))
    assert (session.mtime_ns, session.ctime_ns) == before


async def test_the_change_time_does_not_go_back_after_a_truncation_to_the_same_size(
    state: LocalState,
) -> None:
    """A second program may truncate a file after its save."""
    inode, files = cached_file(state, b"old"), files_of(state)
    handle = (await files.open(inode, os.O_WRONLY)).handle
    await files.write(handle, 0, b"new")
    await files.flush(handle)
    await files.truncate(inode, 3, handle)
    session = state.session(inode.ino)
    assert session is not None
    assert session.ctime_ns <= inode.ctime_ns


async def test_a_file_that_was_written_is_closed_after_its_last_writer(state: LocalState) -> None:
    """Otherwise each save would take one more descriptor of the daemon."""
    inode, files = cached_file(state, b"old"), files_of(state)
    writers = [(await files.open(inode, os.O_WRONLY)).handle for _ in range(2)]
    await files.write(writers[0], 0, b"new")
    for handle, opened in zip(writers, (1, 0), strict=True):
        await files.flush(handle)
        await files.release(handle)
        assert len(open_spool_files(state)) == opened
