"""Several handles on one file with changing versions: the bytes that each handle gets."""

import contextlib
import errno
import gc
import os
import threading
import weakref
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest
import trio

from tests.unit.state.disk import SILENT, zone_of
from tests.unit.vfs.mount import AWAKE, files_of, open_spool_files
from zonedrive.content.content_file import ContentFile
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.errors import Changed, ZonedriveError
from zonedrive.model import Entry, Revision
from zonedrive.state import remote_operations
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.invalidation import EntryChanged, InodeChanged, Invalidation
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import OpenFile, ino_of
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.vfs.namespace import Namespace
from zonedrive.vfs.write_sessions import WriteSessions

NOBODY = 999  # no inode has that number


class Office:
    """Folder with one file, whose versions are all in the cache."""

    def __init__(self, state: LocalState) -> None:
        self.state = state
        self.folders = DirectoryCache(state, SILENT)
        self.files = files_of(state, folders=self.folders)
        self.folder = zone_of(state)
        with state.transaction():
            self.inode = state.inodes.add(
                self.folder.ino, "a", Kind.FILE, zone="z", remote_id="1", remote_name="a"
            )

    async def save(self, content: bytes) -> None:
        """Save as a coworker, and list the folder."""
        state, inode = self.state, self.inode
        revision = Revision(f"r{state.next_generation()}")
        await self._fetch(revision, content)
        with state.transaction():
            state.inodes.update(inode, revision=revision, size=len(content), generation=0)
        state.content_changed(inode)

    async def upload(self) -> None:
        """Complete the upload of the local bytes."""
        state, inode = self.state, self.inode
        assert inode.generation
        file = state.spool.open(inode.ino, inode.generation)
        content = file.pread(0, inode.size)
        file.close()
        revision = Revision(f"r{state.next_generation()}")
        with state.transaction():
            state.same_bytes(inode, revision)
            state.inodes.update(inode, revision=revision, generation=0)
            state.intents.drop(inode.ino)
        await self._fetch(revision, content)

    async def _fetch(self, revision: Revision, content: bytes) -> None:
        spool, generation = self.state.spool, self.state.next_generation()
        file = spool.create(NOBODY, generation)
        file.pwrite(0, content)
        file.close()
        path = spool.path(NOBODY, generation)
        await self.state.cache.add_file(
            path, self.inode.ino, revision, len(content), file.manifest()
        )

    async def open(self, flags: int = os.O_RDONLY) -> int:
        """Return a handle for the number that the kernel has now."""
        return (await self.files.open(self.inode, flags)).handle

    def told(self) -> list[Invalidation]:
        """Return the kernel notifications since the last call."""
        told = []
        while True:
            try:
                told.append(self.state.invalidations.receive.receive_nowait())
            except trio.WouldBlock:
                return told


@pytest.fixture
async def office(state: LocalState) -> AsyncIterator[Office]:
    """Yield a mount without a service."""
    async with trio.open_nursery() as nursery:
        await nursery.start(state.cache.run)
        yield Office(state)
        nursery.cancel_scope.cancel()


async def test_a_read_while_an_edit_is_prepared(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program reads between the first write of another one and its session.

    It continues to read after the upload, also past the page cache, and the kernel inode stays.
    """
    files, number = office.files, office.inode.ino
    asked, go_on, copy = trio.Event(), trio.Event(), WriteSessions._copy_of_version

    async def slowly(self: WriteSessions, inode: Inode, generation: int) -> ContentFile:
        asked.set()
        await go_on.wait()
        return await copy(self, inode, generation)

    monkeypatch.setattr(WriteSessions, "_copy_of_version", slowly)
    await office.save(b"old bytes")
    reader, writer = await office.open(), await office.open(os.O_RDWR)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.write, writer, 0, b"new")
        await asked.wait()
        assert await files.read(reader, 0, 100) == b"old bytes"
        assert await files.read(await office.open(), 0, 100) == b"old bytes"
        go_on.set()
    await files.flush(writer)
    await files.release(writer)
    assert await files.read(reader, 0, 100) == b"new bytes"
    await office.upload()
    assert await files.read(reader, 0, 100) == b"new bytes"
    assert await files.read(await office.open(), 0, 100) == b"new bytes"
    assert office.state.kernel.number(number) == number


async def test_an_edit_that_was_begun_is_not_superseded(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coworker's version that arrives while an edit is prepared does not change its base.

    The edit becomes a conflict copy, and no reader gets parts of both versions.
    """
    files = office.files
    asked, go_on, copy = trio.Event(), trio.Event(), WriteSessions._copy_of_version

    async def slowly(self: WriteSessions, inode: Inode, generation: int) -> ContentFile:
        made = await copy(self, inode, generation)
        asked.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(WriteSessions, "_copy_of_version", slowly)
    await office.save(b"old bytes")
    base = office.inode.revision
    reader, writer = await office.open(), await office.open(os.O_WRONLY)
    assert await files.read(reader, 0, 3) == b"old"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.write, writer, 0, b"our")
        await asked.wait()
        await office.save(b"their text")
        assert await files.read(reader, 0, 100) == b"old bytes"
        go_on.set()
    await files.flush(writer)
    assert await files.read(reader, 0, 100) == b"our bytes"
    intent = office.state.intents.get(office.inode.ino)
    assert intent is not None
    assert intent.base == base


async def test_a_newer_version_gets_a_kernel_inode_of_its_own(office: Office) -> None:
    """A program that may have read the former version keeps it with its attributes.

    The name gives the newer version, under another kernel inode number.
    """
    files, state, ino = office.files, office.state, office.inode.ino
    await office.save(b"first version")
    old = await office.open(os.O_RDWR)
    assert await files.read(old, 0, 5) == b"first"
    office.told()
    await office.save(b"second")
    assert office.told() == [EntryChanged(office.folder.ino, b"a")]
    new = await office.open()
    assert await files.read(new, 0, 100) == b"second"
    assert await files.read(old, 0, 100) == b"first version"
    number = state.attr(office.inode, 1.0).ino
    assert number != ino
    assert ino_of(number) == ino
    told = state.kernel.former[ino].told
    assert (told.size, told.nlink) == (13, 0)
    with pytest.raises(OSError, match="open it again") as refused:
        await files.write(old, 0, b"x")
    assert refused.value.errno == errno.ESTALE
    assert office.told() == [InodeChanged(ino, attr_only=False)]
    with pytest.raises(OSError, match="open it again"):
        await files.flush(old)
    await files.release(old)
    with pytest.raises(OSError, match="another version"):
        state.kernel.inode(state.inodes, ino)
    assert await files.read(new, 0, 100) == b"second"
    await files.release(new)
    assert not state.opened
    await office.save(b"third")
    assert office.told() == [InodeChanged(number, attr_only=False)]
    assert state.attr(office.inode, 1.0).ino == number


async def test_a_handle_that_was_not_read_gets_the_newer_version(office: Office) -> None:
    """If no byte was returned yet, versions cannot be mixed, so a handle gets the newer one."""
    await office.save(b"first")
    reader, writer = await office.open(), await office.open(os.O_RDWR)
    await office.save(b"second")
    assert await office.files.read(reader, 0, 100) == b"second"
    await office.files.write(writer, 0, b"S")
    assert await office.files.read(reader, 0, 100) == b"Second"
    assert office.state.kernel.number(office.inode.ino) == office.inode.ino


async def test_an_uploaded_file_is_read_on_after_the_service_has_removed_it(
    office: Office,
) -> None:
    """The open file has no entry any more, but it is not an empty new file."""
    files, state = office.files, office.state
    await office.save(b"old")
    writer = await office.open(os.O_WRONLY | os.O_TRUNC)
    await files.write(writer, 0, b"whole")
    await files.flush(writer)
    reader = await office.open()
    assert await files.read(reader, 0, 2) == b"wh"
    await files.release(writer)
    await office.upload()
    with state.transaction():
        state.inodes.unlink(office.inode)
    assert office.inode.is_new
    assert await files.read(reader, 2, 100) == b"ole"
    assert await files.read(reader, 5, 100) == b""


async def test_a_handle_that_has_moved_to_the_newer_version_has_its_attributes(
    office: Office,
) -> None:
    """fstat(2) and ftruncate(2) of a write-only handle concern the version that it writes to.

    The kernel still uses the number of the version that another program has read.
    """
    files, state, number = office.files, office.state, office.inode.ino
    await office.save(b"first version")
    reader, writer = await office.open(), await office.open(os.O_WRONLY)
    assert await files.read(reader, 0, 100) == b"first version"
    await office.save(b"second")
    current = state.attr(office.inode, 1.0)
    assert current.ino != number
    await files.release(reader)
    assert state.inode_for(number) is office.inode
    told = state.attr_for(number, current)
    assert (told.ino, told.size, told.attr_timeout) == (number, len(b"second"), 0.0)
    await files.release(writer)
    with pytest.raises(OSError, match="another version"):
        state.inode_for(number)


@pytest.mark.parametrize("is_begun", [False, True])
async def test_pages_of_a_write_that_fails_are_not_used(
    office: Office, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    """The kernel has the pages that a program wrote into a mapping, and must drop them at once.

    The write fails before or after its session has begun.
    """
    files, ino = office.files, office.inode.ino
    await office.save(b"former")
    mapping, other = await office.open(os.O_RDWR), await office.open(os.O_WRONLY)
    assert await files.read(mapping, 0, 6) == b"former"
    assert (await files.open(office.inode, os.O_RDONLY)).keep_cache
    if is_begun:
        await files.write(other, 5, b"R")
    office.told()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "require_room", refuse)
        with pytest.raises(OSError, match="No space"):
            await files.write(other, 0, b"no")  # write(2): the kernel drops the pages itself
        assert office.told() == []
        assert (await files.open(office.inode, os.O_RDONLY)).keep_cache
        with pytest.raises(OSError, match="No space"):
            await files.write(mapping, 0, b"FORMER")
        assert office.told() == [InodeChanged(ino, attr_only=False)]
        assert not (await files.open(office.inode, os.O_RDONLY)).keep_cache


async def test_pages_of_a_write_that_takes_too_long_are_not_used(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation is cancelled while the former content is fetched."""
    await office.save(b"former")
    mapping = await office.open(os.O_RDWR)
    assert await office.files.read(mapping, 0, 6) == b"former"
    office.told()

    async def wait(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(WriteSessions, "_copy_of_version", wait)
    with trio.CancelScope() as scope:
        scope.cancel()
        await office.files.write(mapping, 0, b"FORMER")
    assert office.told() == [InodeChanged(office.inode.ino, attr_only=False)]
    with pytest.raises(TimeoutError) as late:
        await office.files.flush(mapping)
    assert late.value.errno == errno.ETIMEDOUT


class Data(bytearray):
    """Bytes to which weak references are possible."""


async def test_an_error_for_the_close_does_not_keep_the_bytes(office: Office) -> None:
    """The bytes are freed when the failed write returns, and not at the close."""
    await office.save(b"former")
    handle = await office.open(os.O_RDWR)
    data = Data(b"FORMER")
    freed = weakref.ref(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteSessions, "begin", _refuse)
        with contextlib.suppress(OSError):
            await office.files.write(handle, 0, cast(bytes, data))
    del data
    gc.collect()
    assert freed() is None
    with pytest.raises(OSError, match="No space"):
        await office.files.flush(handle)


async def test_the_log_names_a_failed_change_at_the_close(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A truncation is made through a temporary handle, whose close is not logged."""
    caplog.set_level("INFO")
    await office.save(b"former")
    handle = await office.open(os.O_RDWR)
    monkeypatch.setattr(WriteSessions, "begin", _refuse)
    with pytest.raises(OSError, match="No space"):
        await office.files.truncate(office.inode, 3, handle)
    assert "closed after a failed write" not in caplog.text
    await office.files.release(handle)
    assert caplog.text.count("closed after a failed write") == 1


async def _refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_write_only_handle_follows_the_file(office: Office) -> None:
    """A shell's append goes after the newer version, and its kernel inode is notified."""
    files = office.files
    await office.save(b"first ")
    reader = await office.open()
    log = await office.open(os.O_WRONLY | os.O_APPEND)
    assert await files.read(reader, 0, 100) == b"first "
    await office.save(b"second ")
    office.told()
    await files.write(log, 6, b"line")
    # The kernel has put the line into the pages of the former version, which `reader` uses.
    numbers = office.inode.ino, office.state.kernel.number(office.inode.ino)
    assert office.told() == [InodeChanged(each, attr_only=False) for each in numbers]
    assert await files.read(reader, 0, 100) == b"first "
    assert await files.read(await office.open(), 0, 100) == b"second line"
    await files.release(log)
    assert office.inode.generation
    assert office.inode.size == len(b"second line")


@pytest.mark.parametrize(("before", "theirs", "line"), [(0, 24, 24), (4096, 16384, 4096)])
async def test_an_append_goes_after_a_newer_version(
    office: Office, before: int, theirs: int, line: int
) -> None:
    """A program may also read the file; the kernel appends at the former end, which it knows.

    A mapping of the file writes before this end, as the kernel knows it since the append.
    """
    files = office.files
    await office.save(b"o" * before)
    log = await office.open(os.O_RDWR | os.O_APPEND)
    await office.save(b"C" * theirs)
    await files.write(log, before, b"A" * line)
    assert await files.read(log, 0, 2 * theirs) == b"C" * theirs + b"A" * line
    await files.write(log, before + line, b"B")
    assert await files.read(log, theirs + line, 10) == b"B"
    whole = b"M" * 4096 if before else b"M" * (theirs + line + 1)
    size = len(await files.read(log, 0, 10 * theirs))
    await files.write(log, 0, whole)
    found = await files.read(log, 0, 10 * theirs)
    assert (len(found), bytes(found).startswith(whole)) == (size, True)


async def test_an_append_goes_after_a_version_that_the_kernel_was_about_to_learn(
    office: Office,
) -> None:
    """A listing has prepared the new size, but the kernel took only its first entries."""
    files = office.files
    await office.save(b"")
    log = await office.open(os.O_RDWR | os.O_APPEND)
    await office.save(b"C" * 100_000)
    office.state.attr(office.inode, 1.0)
    await files.write(log, 0, b"A" * 8192)
    assert await files.read(log, 0, 200_000) == b"C" * 100_000 + b"A" * 8192


@pytest.mark.parametrize("theirs", [5, 5000])
async def test_readers_keep_the_size_of_their_version_while_an_edit_is_prepared(
    office: Office, theirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coworker saves meanwhile. The new size would cut what the readers get of the former one."""
    files, state, inode = office.files, office.state, office.inode
    asked, go_on = trio.Event(), trio.Event()

    async def slowly(self: WriteSessions, inode: Inode, generation: int) -> ContentFile:
        asked.set()
        await go_on.wait()
        raise Changed("a newer version")

    monkeypatch.setattr(WriteSessions, "_copy_of_version", slowly)
    await office.save(b"o" * 1000)
    reader, writer = await office.open(), await office.open(os.O_WRONLY)
    former = state.attr(inode, 1.0)
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            with pytest.raises(ZonedriveError):  # the folder cannot be listed here
                await files.write(writer, 0, b"new")

        nursery.start_soon(write)
        await asked.wait()
        await office.save(b"C" * theirs)
        for _ in range(2):
            attr = state.attr(inode, 1.0)
            assert (attr.size, attr.mtime_ns) == (1000, former.mtime_ns)
        assert await files.read(reader, 0, 10_000) == b"o" * 1000
        go_on.set()
    assert state.attr(inode, 1.0).size == theirs


async def test_an_append_at_a_former_end_is_read_where_it_went(office: Office) -> None:
    """The kernel puts the appended bytes into its pages at the end that it knows.

    Programs would read them there, instead of a coworker's bytes.
    """
    files = office.files
    await office.save(b"o" * 4096)
    log = await office.open(os.O_WRONLY | os.O_APPEND)
    await office.save(b"C" * 8192)
    office.told()
    await files.write(log, 4096, b"A" * 4096)
    assert office.told() == [InodeChanged(office.inode.ino, attr_only=False)]
    reader = await office.open()
    assert await files.read(reader, 4096, 8192) == b"C" * 4096 + b"A" * 4096
    await files.write(log, 12288, b"B")
    assert office.told() == []


@pytest.mark.parametrize("change", ["append", "write", "ftruncate", "fstat"])
async def test_an_append_goes_after_a_change_through_the_former_inode(
    office: Office, change: str
) -> None:
    """The kernel does not know the new end of the newer version, and appends at the old one.

    The append would overwrite what another program has appended.
    """
    files, state, inode = office.files, office.state, office.inode
    await office.save(b"o" * 4096)
    reader = await office.open()
    other = await office.open(os.O_WRONLY | (os.O_APPEND if change == "append" else 0))
    assert await files.read(reader, 0, 4096) == b"o" * 4096
    await office.save(b"C" * 4096)
    both = await office.open(os.O_RDWR | os.O_APPEND)
    assert state.attr(inode, 1.0).size == 4096
    if change == "ftruncate":
        await files.truncate(inode, 8192, other)
    else:
        await files.write(other, 4096, bytes(4096))
    if change == "fstat":
        assert state.attr(inode, 1.0, inode.ino).size == 8192
    await files.write(both, 4096, b"A" * 4096)
    expected = b"C" * 4096 + bytes(4096) + b"A" * 4096
    assert await files.read(both, 0, 20000) == expected


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDONLY])
async def test_an_append_goes_after_a_truncation_and_an_append_of_others(
    office: Office, access: int
) -> None:
    """The kernel appends at the start of a file that was truncated at an open.

    The append would overwrite what a program with the former inode has appended.
    """
    files = office.files
    await office.save(b"o" * 4096)
    reader, log = await office.open(), await office.open(os.O_WRONLY | os.O_APPEND)
    assert await files.read(reader, 0, 4096) == b"o" * 4096
    await office.save(b"C" * 8192)
    both = await office.open(os.O_RDWR | os.O_APPEND)
    await office.open(access | os.O_TRUNC)
    await files.write(log, 4096, b"L" * 4096)
    await files.write(both, 0, b"A" * 4096)
    assert await files.read(both, 0, 20000) == b"L" * 4096 + b"A" * 4096


@pytest.mark.parametrize("change", ["append", "ftruncate"])
async def test_a_version_that_was_changed_through_the_former_inode_stays_readable(
    office: Office, change: str
) -> None:
    """A program that has read from the version gets its bytes also after a coworker's next save."""
    files, state, inode = office.files, office.state, office.inode
    await office.save(b"o" * 4096)
    reader, other = await office.open(), await office.open(os.O_WRONLY | os.O_APPEND)
    assert await files.read(reader, 0, 4096) == b"o" * 4096
    await office.save(b"C" * 8192)
    current = await office.open()
    assert await files.read(current, 0, 8192) == b"C" * 8192
    if change == "append":
        await files.write(other, 4096, b"A" * 4096)
    else:
        await files.truncate(inode, 100, other)
    await files.release(other)
    await office.upload()
    with state.transaction():
        state.inodes.update(inode, revision=Revision("next"), size=4)
    state.content_changed(inode)
    expected = b"C" * 8192 + b"A" * 4096 if change == "append" else b"C" * 100
    assert await files.read(current, 0, 20000) == expected


async def test_a_mapping_writes_in_its_place_after_an_append(office: Office) -> None:
    """The kernel does not know the new end, and writes the last page up to the old one.

    The page would be appended to the file.
    """
    files = office.files
    await office.save(b"o" * 5000)
    reader, log = await office.open(), await office.open(os.O_WRONLY | os.O_APPEND)
    assert await files.read(reader, 0, 5000) == b"o" * 5000
    await office.save(b"C" * 5000)
    mapped = await office.open(os.O_RDWR | os.O_APPEND)
    assert office.state.attr(office.inode, 1.0).size == 5000
    await files.write(log, 5000, b"A" * 100)
    await files.write(mapped, 4096, b"M" * 904)
    assert await files.read(mapped, 0, 20000) == b"C" * 4096 + b"M" * 904 + b"A" * 100


async def test_a_reader_keeps_locally_written_bytes(office: Office) -> None:
    """A reader of locally written bytes keeps them when a newer version replaces them."""
    files = office.files
    await office.save(b"first")
    writer, reader = await office.open(os.O_RDWR), await office.open()
    await files.write(writer, 0, b"FIRST")
    await files.flush(writer)
    await files.release(writer)
    assert await files.read(reader, 0, 100) == b"FIRST"
    generation = office.inode.generation
    with office.state.transaction():
        office.state.intents.drop(office.inode.ino)
    await office.save(b"second")
    office.state.spool.delete(office.inode.ino, generation)
    assert await files.read(reader, 0, 100) == b"FIRST"
    assert await files.read(await office.open(), 0, 100) == b"second"


async def test_a_file_that_others_deleted_cannot_be_opened(office: Office) -> None:
    """A name that others deleted cannot be opened or written, although a program has the file open.

    An appended line would be lost.  A file that a local program removed stays usable.
    """
    files, state = office.files, office.state
    await office.save(b"first")
    reader, log = await office.open(), await office.open(os.O_WRONLY | os.O_APPEND)
    assert await files.read(reader, 0, 100) == b"first"
    with state.transaction():
        state.inodes.unlink(office.inode)
    with pytest.raises(OSError, match="removed") as refused:
        await office.open(os.O_WRONLY | os.O_APPEND)
    assert refused.value.errno == errno.ESTALE
    with pytest.raises(OSError, match="removed") as refused:
        await files.write(log, 5, b"line")
    assert refused.value.errno == errno.ESTALE
    assert await files.read(reader, 0, 100) == b"first"
    state.opened[office.inode.ino].removed_here = True
    await files.write(await office.open(os.O_WRONLY), 0, b"F")
    assert await files.read(reader, 0, 100) == b"First"


async def test_a_file_that_appeared_since_the_kernel_looked_is_opened(office: Office) -> None:
    """open(2) with O_CREAT creates a file or opens an existing one; with O_EXCL it only creates."""
    state, files = office.state, office.files
    names = Namespace(state, SILENT, office.folders, files, AWAKE)
    with state.transaction():
        state.inodes.update(office.folder, remote_id=None)  # whose listing nobody has to ask for
    await office.save(b"theirs\n")
    flags = os.O_WRONLY | os.O_CREAT
    opened, attr = await names.create(office.folder.ino, b"a", 0o600, flags | os.O_APPEND)
    assert (attr.ino, attr.size) == (office.inode.ino, 7)
    await files.write(opened.handle, 0, b"ours\n")
    await files.release(opened.handle)
    assert await files.read(await office.open(), 0, 100) == b"theirs\nours\n"
    opened, attr = await names.create(office.folder.ino, b"a", 0o600, flags | os.O_TRUNC)
    assert (attr.ino, attr.size) == (office.inode.ino, 0)
    await files.release(opened.handle)
    with pytest.raises(FileExistsError):
        await names.create(office.folder.ino, b"a", 0o600, flags | os.O_EXCL)


async def test_a_refused_open_leaves_no_handle(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the cached content cannot be opened, the program gets the error, and nothing is open."""
    await office.save(b"old bytes")

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(office.state.cache, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        await office.open()
    assert not office.state.opened


async def test_a_release_that_waits_for_the_disk_counts_its_writer_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version that arrives meanwhile takes over the handle, but not as a writer.

    Otherwise the last writer of the newer version would not be noticed, and its bytes be lost.
    """
    files, state, go_on = office.files, office.state, threading.Event()
    await office.save(b"first version")
    reader = await office.open()
    slow, last = [await office.open(os.O_WRONLY | os.O_TRUNC) for _ in range(2)]
    await files.fsync(slow)
    assert await files.read(reader, 0, 100) == b""
    session = state.session(office.inode.ino)
    assert session is not None
    session.changed(0)
    waiting, syncing = [go_on], trio.Event()

    def sync(file: ContentFile) -> int:
        while waiting:  # only the first call
            first = waiting.pop()
            trio.from_thread.run_sync(syncing.set)
            first.wait(60)
        return file.changes

    monkeypatch.setattr(type(session.file), "sync", sync)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.release, slow)
        await syncing.wait()
        await files.release(last)
        await office.upload()
        await office.save(b"second version")
        writer = await office.open(os.O_WRONLY)
        go_on.set()
    await files.write(writer, 0, b"Second")
    await files.release(writer)
    assert await files.read(await office.open(), 0, 100) == b"Second version"


async def test_a_sync_does_not_wait_for_the_upload_of_a_newer_version(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coworker saves after the writer has closed the file, while a reader syncs late pages.

    The wait would let the upload begin while another program writes to the newer version.
    """
    files, state, sync, flush = office.files, office.state, ContentFile.sync, Database.flush
    state.settings = msgspec.structs.replace(state.settings, fsync="service")
    delivered = list[bool]()

    async def deliver(self: WriteSessions, opened: OpenFile) -> None:
        delivered.append(opened.superseded)

    async def replace() -> None:
        await files.release(writer)
        await office.upload()
        await office.save(b"newer bytes")

    def sync_slowly(self: ContentFile) -> int:
        patch.setattr(ContentFile, "sync", sync)
        trio.from_thread.run(replace)
        return sync(self)

    def flush_slowly(self: Database) -> None:
        trio.from_thread.run(files.write, writer, 0, b"new")
        patch.setattr(ContentFile, "sync", sync_slowly)
        flush(self)

    monkeypatch.setattr(WriteSessions, "delivered", deliver)
    await office.save(b"old bytes")
    reader, writer = await office.open(), await office.open(os.O_RDWR)
    await files.read(reader, 0, 9)
    await files.write(writer, 0, b"new")
    with monkeypatch.context() as patch:
        patch.setattr(Database, "flush", flush_slowly)
        await files.fsync(reader)
    assert delivered == []
    assert state.opened.get(office.inode.ino) is None


@pytest.mark.parametrize("has_reader", [True, False])
async def test_a_version_that_went_elsewhere_is_shown_until_the_close(
    office: Office, has_reader: bool
) -> None:
    """After the close of the writer, other programs see the service's version at once.

    A program that has read the sent version can continue to read it.
    """
    files, state, inode = office.files, office.state, office.inode
    await office.save(b"former")
    entry = Entry("1", "z", "r", "b", folder=False, size=6, revision=inode.revision)
    writer = await office.open(os.O_RDWR)
    assert await files.read(writer, 0, 6) == b"former"
    await files.write(writer, 0, b"SENT")
    await files.flush(writer)
    state.intents.let_go(inode.ino, 0)
    request = PendingRequest(inode.ino, inode.ino, inode.generation, 6, "z", "r", "a", "1")
    state.record_request(request)
    remote_operations.discard_sent(state, inode, request, entry)
    reader = await office.open() if has_reader else writer
    assert await files.read(reader, 0, 6) == b"SENTer"
    await files.release(writer)
    opened = await files.open(inode, os.O_RDONLY)
    assert not opened.keep_cache
    assert await files.read(opened.handle, 0, 6) == b"former"
    if has_reader:
        assert await files.read(reader, 0, 6) == b"SENTer"
    assert state.spool.stored() == []


async def test_the_unmount_closes_the_versions_of_all_readers(office: Office) -> None:
    """One program reads local bytes, another one the local bytes of a former version."""
    files, state = office.files, office.state
    for content in (b"former", b"newer"):
        await office.save(b"of a coworker")
        writer = await office.open(os.O_WRONLY | os.O_TRUNC)
        await files.write(writer, 0, content)
        await files.flush(writer)
        await files.release(writer)
        assert await files.read(await office.open(), 0, 9) == content
    assert len(open_spool_files(state)) == 2
    files.close_all()
    assert open_spool_files(state) == []
