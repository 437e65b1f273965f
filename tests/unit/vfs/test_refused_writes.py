"""Failed writes of a new file or an edit, also if no record can be written."""

import errno
import os

import pytest
import trio
import trio.testing

from tests.unit.state.disk import read, zone_of
from tests.unit.vfs.mount import cached_file, files_of
from zonedrive.content.content_file import ContentFile
from zonedrive.errors import StoreError
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import OpenFile
from zonedrive.vfs import open_checks
from zonedrive.vfs.files import Files
from zonedrive.vfs.write_sessions import WriteSessions


def new_file(state: LocalState) -> Inode:
    """Return a new file."""
    zone = zone_of(state)
    with state.transaction():
        return state.inodes.add(zone.ino, "a", Kind.FILE, zone="z")


def refusing(patch: pytest.MonkeyPatch) -> None:
    """Make every write of bytes fail."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(ContentFile, "pwrite", refuse)


async def save(files: Files, handle: int) -> int:
    """Write and close as a program does; return the errno of close(2)."""
    with pytest.raises(OSError, match=r"^\[Errno"):
        await files.write(handle, 0, b"bytes")
    try:
        await files.flush(handle)
    except OSError as wrong:
        assert wrong.errno is not None
        return wrong.errno
    finally:
        await files.release(handle)
    return 0


async def test_a_new_file_that_takes_no_byte_waits_empty(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name stays, empty and with an intent, and close gives the errno of the write."""
    inode, files = new_file(state), files_of(state)
    handle = files.create(inode, os.O_WRONLY).handle
    refusing(monkeypatch)
    assert await save(files, handle) == errno.ENOSPC
    intent = state.intents.get(inode.ino)
    assert intent is not None and not intent.held
    assert (intent.generation, intent.size, inode.size) == (inode.generation, 0, 0)
    assert state.spool.stored() == [(inode.ino, inode.generation)]


@pytest.mark.parametrize("is_emptied", [False, True], ids=["edited", "emptied first"])
async def test_an_edit_that_takes_no_byte_leaves_the_former_content(
    state: LocalState, monkeypatch: pytest.MonkeyPatch, is_emptied: bool
) -> None:
    """The edit is not sent, and no copy of it stays on the disk."""
    inode, files = cached_file(state, b"former"), files_of(state)
    handle = (await files.open(inode, os.O_WRONLY)).handle
    refusing(monkeypatch)
    former = inode.generation
    if is_emptied:
        await files.truncate(inode, 0, handle)
    assert await save(files, handle) == errno.ENOSPC
    assert state.intents.get(inode.ino) is None
    assert (inode.generation, inode.size) == (former, 6)
    assert state.spool.stored() == [(inode.ino, former)]


async def test_a_write_past_the_largest_size_leaves_nothing_behind(state: LocalState) -> None:
    """With EFBIG the file is unchanged, and no copy of it stays on the disk."""
    inode, files = cached_file(state, b"former"), files_of(state)
    handle = (await files.open(inode, os.O_WRONLY)).handle
    with pytest.raises(OSError, match="larger") as refused:
        await files.write(handle, open_checks.LARGEST, b"x")
    assert refused.value.errno == errno.EFBIG
    await files.flush(handle)
    await files.release(handle)
    assert state.intents.get(inode.ino) is None
    assert state.spool.stored() == [(inode.ino, inode.generation)]


async def test_where_nothing_can_be_noted_the_name_goes(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that would be gone after the next start must not look safe."""
    inode, files = new_file(state), files_of(state)
    parent = inode.parent
    handle = files.create(inode, os.O_WRONLY).handle
    refusing(monkeypatch)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(WriteSessions, "commit", refuse)
    assert await save(files, handle) == errno.ENOSPC
    assert state.inodes.child(parent, "a") is None
    assert state.spool.stored() == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), StoreError("damaged")])
async def test_refused_bytes_never_become_a_version(
    state: LocalState, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """After an error, a program does not expect its bytes on the service."""
    inode, files = cached_file(state, b"former"), files_of(state)
    former = inode.generation
    handle = (await files.open(inode, os.O_WRONLY)).handle
    await files.write(handle, 0, b"new")

    def refuse(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(WriteSessions, "commit", refuse)
        with pytest.raises(type(error)):
            await files.flush(handle)
    await files.release(handle)
    assert (inode.generation, state.intents.get(inode.ino)) == (former, None)


async def test_a_file_that_cannot_be_stored_at_the_unmount(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each other file that is still being written at an unmount is stored."""
    files, zone, commit = files_of(state), zone_of(state), WriteSessions.commit
    with state.transaction():
        inodes = [state.inodes.add(zone.ino, name, Kind.FILE, zone="z") for name in "abc"]
    for inode in inodes:
        await files.write(files.create(inode, os.O_WRONLY).handle, 0, b"bytes")

    def refuse(self: WriteSessions, opened: OpenFile) -> None:
        if opened.ino == inodes[0].ino:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(self, opened)

    monkeypatch.setattr(WriteSessions, "commit", refuse)
    files.close_all()
    kept = [intent.size if (intent := state.intents.get(each.ino)) else None for each in inodes]
    assert kept == [None, 5, 5]
    assert all(not intent.held for intent in state.intents.pending())


async def test_a_file_that_is_only_emptied_at_the_unmount_keeps_its_content(
    state: LocalState,
) -> None:
    """The program had no time to write and to close."""
    inode, files = cached_file(state, b"former"), files_of(state)
    former = inode.generation
    handle = (await files.open(inode, os.O_WRONLY)).handle
    await files.truncate(inode, 0, handle)
    files.close_all()
    assert state.intents.get(inode.ino) is None
    assert (inode.generation, inode.size) == (former, 6)
    assert state.spool.stored() == [(inode.ino, former)]


async def test_half_of_a_save_at_the_unmount_is_no_version(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program had no time to close after the error, so the former content stays."""
    inode, files = cached_file(state, b"former content"), files_of(state)
    former = inode.generation
    handle = (await files.open(inode, os.O_WRONLY | os.O_TRUNC)).handle
    await files.write(handle, 0, b"half")
    refusing(monkeypatch)
    with pytest.raises(OSError, match="No space"):
        await files.write(handle, 4, b"rest")
    files.close_all()
    assert (inode.generation, inode.size) == (former, 14)
    assert state.intents.get(inode.ino) is None
    assert state.spool.stored() == [(inode.ino, former)]


async def test_a_close_does_not_save_a_write_that_fails_during_its_sync(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two descriptors write to a file with synced bytes, and one of them is closed."""
    inode, files = new_file(state), files_of(state)
    one = files.create(inode, os.O_WRONLY).handle
    await files.write(one, 0, b"saved")
    await files.fsync(one)
    other = (await files.open(inode, os.O_WRONLY)).handle
    await files.write(one, 5, b"more")
    errors = dict[int, int | None]()

    async def close(handle: int) -> None:
        with pytest.raises(OSError, match="No space") as refused:
            await files.flush(handle)
        errors[handle] = refused.value.errno

    threads = trio.to_thread.current_default_thread_limiter()
    threads.total_tokens = 1
    async with trio.open_nursery() as nursery, threads:  # the sync waits for its thread
        nursery.start_soon(close, one)
        await trio.testing.wait_all_tasks_blocked()
        refusing(monkeypatch)
        with pytest.raises(OSError, match="No space"):
            await files.write(other, 9, b"refused")
    await close(other)
    assert errors == {one: errno.ENOSPC, other: errno.ENOSPC}
    for handle in (one, other):
        await files.release(handle)
    intent = state.intents.get(inode.ino)
    assert intent is not None
    assert (intent.size, inode.size) == (5, 5)
    assert read(state, inode.ino) == b"saved"


async def test_a_truncation_that_is_cancelled_ends_its_session(state: LocalState) -> None:
    """The daemon ends while the truncation of a synced file waits for a thread.

    The end of the session stores the truncation, and leaves nothing for the next start to delete.
    """
    inode, files = new_file(state), files_of(state)
    handle = files.create(inode, os.O_WRONLY).handle
    await files.write(handle, 0, b"saved")
    await files.fsync(handle)
    await files.release(handle)
    former, threads = inode.generation, trio.to_thread.current_default_thread_limiter()
    threads.total_tokens = 1
    async with threads, trio.open_nursery() as nursery:
        nursery.start_soon(files.truncate, inode, 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    intent = state.intents.get(inode.ino)
    assert intent is not None and not intent.held
    assert (intent.size, inode.size, state.opened) == (0, 0, {})
    assert state.spool.stored() == [(inode.ino, former), (inode.ino, inode.generation)]
