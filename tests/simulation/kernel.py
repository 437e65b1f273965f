"""A kernel with the caches that Linux has for a FUSE mount, with libfuse's default options.

`Caches` stands between the system calls of `in_process.Kernel` and the client. It keeps names
(dentries), attributes and pages as fs/fuse of Linux does, for the times that the client gives with
its answers, and drops what the client's invalidations name. It never has a memory of the former
client: each one gets a new kernel.

`Caches.stale` compares what is cached with the state of the client: whatever changes must be
announced.
"""

import contextlib
import copy
import errno
import functools
import os
import random
import stat
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pyfuse3
import trio
from pyfuse3 import FUSEError

from tests.harness.in_process import EXCHANGE, ROOT, Kernel, _errno, _limited
from zonedrive.errors import ZonedriveError
from zonedrive.fuse.errno_table import errno_of
from zonedrive.fuse.readdir_cache import Listings
from zonedrive.state.attributes import Attr, Rules, attr_of
from zonedrive.state.inode import NOWHERE
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL, Opened, ino_of
from zonedrive.views.stack import FileSystem

ResultT = TypeVar("ResultT")
ArgumentsT = ParamSpec("ArgumentsT")
PAGE = 4096
LARGEST_READ = 128 * 1024  # bytes of one request
ENTRIES = 3  # of one answer to readdir, about a page
NEVER = float("-inf")
DOTS = (b".", b"..")
CHECKED = ("mode", "size", "mtime_ns", "ctime_ns")
CHECKED_PAGES = 3
SHRINKS = 1 / 50  # of the calls by path find that memory is short


@dataclass
class _Inode:
    """Inode of the kernel."""

    attr: Attr
    valid_until: float = NEVER
    is_size_valid: bool = True  # False: size and times are asked for before they are used
    is_ctime_valid: bool = True
    rules: Rules | None = None  # of the answer with the attributes
    version: int = 0  # of the last change: an answer to an earlier request is not used
    lookups: int = 0
    opens: int = 0
    resizing: int = 0  # writes and truncations in progress
    epoch: int = 0  # number of times that pages were dropped
    pages: dict[int, bytes] = field(default_factory=dict)
    names: set[tuple[int, bytes]] = field(default_factory=set)

    def drop_pages(self) -> None:
        """Drop all pages, also those that are being read."""
        self.pages.clear()
        self.epoch += 1


@dataclass
class _Entry:
    """Dentry."""

    ino: int  # 0: there is no such entry
    valid_until: float


class Caches:
    """Requests to the client, and what the kernel knows from the answers.

    It has the interface of `FileSystem` as far as `Kernel` uses it.
    """

    def __init__(self, files: FileSystem, findings: list[str]) -> None:
        """Send requests to `files`; add what no file system may do to `findings`."""
        self._files, self._findings = files, findings
        self._listings = Listings(files, cast(Any, copy.copy))
        self.inodes: dict[int, _Inode] = {}
        self.entries: dict[tuple[int, bytes], _Entry] = {}
        self._below: dict[int, set[bytes]] = {}  # names that are cached, by folder
        self._handles: dict[int, int] = {}  # inode of each handle
        self._folders: dict[int, int] = {}
        self._version = 0
        self._busy = 0  # calls in progress, which hold their inodes
        self._unused: set[int] = set()  # inodes that may be evicted then

    def __getattr__(self, name: str) -> Any:
        """Return a request that changes nothing in the kernel."""
        return getattr(self._files, name)

    # ---- names ----

    async def lookup(self, parent: int, name: bytes, *, is_forced: bool = False) -> Attr:
        """Return the attributes of an entry, without a request if the name is valid."""
        found = self.entries.get((parent, name))
        if found is not None:
            if not is_forced and trio.current_time() <= found.valid_until:
                if not found.ino:
                    raise FileNotFoundError(errno.ENOENT, "no such name")
                return self.inodes[found.ino].attr
            if found.ino and await self._revalidate(parent, name, found):
                return self.inodes[found.ino].attr
            self._drop(parent, name)
        began = self._version
        attr = await self._files.lookup(parent, name)
        if not attr.ino:
            self._set_entry(parent, name, 0, _until(attr.entry_timeout))
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return self._linked(parent, name, attr, began)

    async def _revalidate(self, parent: int, name: bytes, found: _Entry) -> bool:
        """Ask again for a name; return True if it is the same inode."""
        began = self._version
        try:
            attr = await self._files.lookup(parent, name)
        except (OSError, ZonedriveError):
            return False
        if attr.ino != found.ino or self.entries.get((parent, name)) is not found:
            if attr.ino:
                self._forget(attr.ino, 1)
            return False
        inode = self.inodes[attr.ino]
        inode.lookups += 1
        self._update(inode, attr, began)
        found.valid_until = _until(attr.entry_timeout)
        return True

    def _linked(self, parent: int, name: bytes, attr: Attr, began: int) -> Attr:
        """Note an entry of an answer, which counts as a lookup."""
        inode = self.inodes.get(attr.ino)
        if inode is not None and stat.S_IFMT(inode.attr.mode) != stat.S_IFMT(attr.mode):
            self._findings.append(f"inode {attr.ino} has become another kind of entry")
            inode = None
        if inode is None:
            inode = self.inodes[attr.ino] = _Inode(copy.copy(attr))
        inode.lookups += 1
        self._update(inode, attr, began)
        if stat.S_ISDIR(attr.mode):  # has one name, and takes what is known below it with it
            for place in inode.names - {(parent, name)}:
                self._unlink(*place)
        self._set_entry(parent, name, attr.ino, _until(attr.entry_timeout))
        return inode.attr

    def _set_entry(self, parent: int, name: bytes, ino: int, valid_until: float) -> None:
        former = self.entries.get((parent, name))
        if former is not None and former.ino != ino:
            self._drop(parent, name)
        self.entries[parent, name] = _Entry(ino, valid_until)
        self._below.setdefault(parent, set()).add(name)
        if ino:
            self.inodes[ino].names.add((parent, name))

    def _unlink(self, parent: int, name: bytes) -> int:
        """Remove a name; return its inode, or 0."""
        entry = self.entries.pop((parent, name), None)
        if entry is None:
            return 0
        self._below[parent].discard(name)
        if entry.ino:
            self.inodes[entry.ino].names.discard((parent, name))
        return entry.ino

    def _drop(self, parent: int, name: bytes) -> None:
        """Drop a name and all that are cached below it."""
        if ino := self._unlink(parent, name):
            for below in list(self._below.get(ino, ())):
                self._drop(ino, below)
            self._is_unused(ino)

    def expire(self, parent: int, name: bytes) -> None:
        """Let the next lookup ask again."""
        if (entry := self.entries.get((parent, name))) is not None:
            entry.valid_until = NEVER

    def shrink(self, numbers: random.Random) -> None:
        """Drop half of the names that nothing uses, as for want of memory."""
        for (parent, name), entry in list(self.entries.items()):
            is_used = entry.ino and (self.inodes[entry.ino].opens or self._below.get(entry.ino))
            if not is_used and numbers.random() < 0.5:
                self._drop(parent, name)

    # ---- the life of inodes ----

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Hold all inodes for a system call."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._evict()

    def _is_unused(self, ino: int) -> None:
        self._unused.add(ino)
        self._evict()

    def _evict(self) -> None:
        while self._unused and not self._busy:
            ino = self._unused.pop()
            inode = self.inodes.get(ino)
            if inode is not None and ino != ROOT and not inode.names and not inode.opens:
                for below in list(self._below.get(ino, ())):  # looked up after the name was gone
                    self._drop(ino, below)
                del self.inodes[ino]
                self._below.pop(ino, None)
                self._forget(ino, inode.lookups)

    def _forget(self, ino: int, count: int) -> None:
        try:
            self._files.forget(ino, count)
        except Exception as error:  # as in `Operations.forget`
            errno_of(error)

    # ---- attributes ----

    def _update(self, inode: _Inode, attr: Attr, began: int, *, is_final: bool = False) -> None:
        """Use the attributes of an answer to a request that began at a version."""
        if not is_final and (began < inode.version or inode.resizing):
            return
        before, inode.attr = inode.attr, copy.copy(attr)
        inode.version = self._next()
        inode.valid_until = _until(attr.attr_timeout)
        inode.is_size_valid = inode.is_ctime_valid = True
        inode.rules = self._files._state.rules
        is_other = before.size != attr.size or (not is_final and before.mtime_ns != attr.mtime_ns)
        if stat.S_ISREG(attr.mode) and is_other:
            inode.drop_pages()

    def _next(self) -> int:
        self._version += 1
        return self._version

    async def getattr(self, ino: int, *, needs_size: bool = True, needs_ctime: bool = True) -> Attr:
        """Return the attributes of an inode, without a request if they are valid."""
        inode = self.inodes.get(ino)
        if inode is not None and trio.current_time() <= inode.valid_until:
            is_size_known = inode.is_size_valid or not needs_size
            if is_size_known and (inode.is_ctime_valid or not needs_ctime):
                return inode.attr
        began = self._version
        attr = await self._files.getattr(ino)
        if inode is None:
            assert ino == ROOT
            inode = self.inodes.setdefault(ROOT, _Inode(copy.copy(attr)))
        if stat.S_IFMT(inode.attr.mode) != stat.S_IFMT(attr.mode):
            self._findings.append(f"inode {ino} has become another kind of entry")
        self._update(inode, attr, began)
        return attr

    async def check(self, ino: int) -> Attr:
        """Get the attributes that a check of permissions needs."""
        return await self.getattr(ino, needs_size=False, needs_ctime=False)

    async def setattr(self, ino: int, **changes: Any) -> Attr:
        """Change attributes; the answer has the new ones."""
        inode = self.inodes[ino]
        is_resizing = changes.get("size") is not None
        inode.resizing += is_resizing
        try:
            attr = await self._files.setattr(ino, **changes)
        finally:
            inode.resizing -= is_resizing
        self._update(inode, attr, self._version, is_final=True)
        return attr

    def _changed(self, folder: int) -> None:
        """Expire the attributes of a folder in which a name has changed."""
        if (inode := self.inodes.get(folder)) is not None:
            inode.valid_until = NEVER

    # ---- changes of names ----

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        """Create a folder."""
        began = self._version
        attr = await self._files.mkdir(parent, name, mode)
        self._changed(parent)
        return self._linked(parent, name, attr, began)

    async def unlink(self, parent: int, name: bytes) -> None:
        """Remove a file."""
        await self._remove(self._files.unlink, parent, name)

    async def rmdir(self, parent: int, name: bytes) -> None:
        """Remove a folder."""
        await self._remove(self._files.rmdir, parent, name)

    async def _remove(
        self, request: Callable[[int, bytes], Coroutine[Any, Any, None]], parent: int, name: bytes
    ) -> None:
        try:
            await request(parent, name)
        except FileNotFoundError:
            self._drop(parent, name)
            raise
        self._changed(parent)
        self._renamed(parent, name)
        self._drop(parent, name)

    def _renamed(self, parent: int, name: bytes) -> None:
        """Expire the change time of an entry."""
        entry = self.entries.get((parent, name))
        if entry is not None and entry.ino:
            self.inodes[entry.ino].is_ctime_valid = False

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """Rename; the dentries move with the time until which they are valid."""
        old, new = (old_parent, old_name), (new_parent, new_name)
        try:
            await self._files.rename(*old, *new, flags)
        except FileNotFoundError:
            self._drop(*old)
            self._drop(*new)
            raise
        self._changed(old_parent)
        self._changed(new_parent)
        self._renamed(*old)
        self._renamed(*new)
        moved, there = self.entries.get(old), self.entries.get(new)
        self._unlink(*old)
        if flags == EXCHANGE:
            self._unlink(*new)
        else:
            self._drop(*new)
        for entry, place in ((moved, new), (there if flags == EXCHANGE else None, old)):
            if entry is not None and entry.ino:
                self._set_entry(*place, entry.ino, entry.valid_until)

    # ---- folders ----

    async def opendir(self, ino: int) -> int:
        """Open a folder."""
        handle = await self._files.opendir(ino)
        self._folders[handle] = ino
        self.inodes[ino].opens += 1
        return handle

    async def releasedir(self, handle: int) -> None:
        """Close a folder."""
        await self._files.releasedir(handle)
        self._closed(self._folders.pop(handle))

    async def names(self, handle: int) -> list[bytes]:
        """Return the names in an open folder; each comes with its attributes (readdirplus)."""
        found: list[bytes] = []
        start, parent = 0, self._folders[handle]
        await self._files.load(handle)
        while True:
            began, answer = self._version, self._readdir_request(handle, start)
            if not answer:
                return found
            for name, attr, _ in answer:
                if name not in DOTS:
                    found.append(name)
                    self._linked(parent, name, attr, began)
            start = answer[-1][2]

    def _readdir_request(self, handle: int, start: int) -> list[tuple[bytes, Attr, int]]:
        """Return the entries of one answer, as `Listings` gives them to the kernel."""
        answer: list[tuple[bytes, Attr, int]] = []

        def reply(_token: object, name: bytes, attr: Attr, following: int) -> bool:
            if len(answer) == ENTRIES:
                return False
            answer.append((name, copy.copy(attr), following))
            return True

        module: Any = pyfuse3
        real, module.readdir_reply = module.readdir_reply, reply
        try:
            self._listings.reply(cast(Any, None), handle, start)
        finally:
            module.readdir_reply = real
        return answer

    # ---- files ----

    async def open(self, ino: int, flags: int, pid: int = 0) -> Opened:
        """Open a file."""
        await self.check(ino)
        opened = await self._files.open(ino, flags, pid)
        self._opened(ino, opened, flags)
        return opened

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        """Create and open a file."""
        began = self._version
        opened, attr = await self._files.create(parent, name, mode, flags)
        self._changed(parent)
        self._linked(parent, name, attr, began)
        self._opened(attr.ino, opened, flags & ~os.O_TRUNC)
        return opened, attr

    def _opened(self, ino: int, opened: Opened, flags: int) -> None:
        inode = self.inodes[ino]
        inode.opens += 1
        self._handles[opened.handle] = ino
        if flags & os.O_TRUNC:
            inode.version, inode.is_size_valid = self._next(), False
            inode.attr.size = 0
            inode.drop_pages()
        elif not opened.keep_cache:
            inode.drop_pages()
        elif opened.handle < VIRTUAL:
            self._check_pages(ino, inode, opened.handle)

    def _check_pages(self, ino: int, inode: _Inode, handle: int) -> None:
        """Compare the pages that are kept at an open with the content."""
        for number, page in sorted(inode.pages.items())[:CHECKED_PAGES]:
            with contextlib.suppress(OSError, ZonedriveError):
                data = bytes(self._files.available(handle, number * PAGE, PAGE) or b"")
                if page[: len(data)] != data:
                    what = f"{page[: len(data)][-60:]!r}, not {data[-60:]!r}"
                    self._findings.append(f"stale: page {number} of inode {ino} has {what}")

    async def release(self, handle: int) -> None:
        """Close a handle."""
        try:
            await self._files.release(handle)
        finally:
            self._closed(self._handles.pop(handle))

    def _closed(self, ino: int) -> None:
        self.inodes[ino].opens -= 1
        self._is_unused(ino)

    def size(self, handle: int) -> int:
        """Return the size that the kernel knows, without a request."""
        return self.inodes[self._handles[handle]].attr.size

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write to the client and into the pages that are cached."""
        inode = self.inodes[self._handles[handle]]
        inode.resizing += 1
        try:
            written = await self._files.write(handle, offset, data)
        except BaseException:
            for index in range(offset // PAGE, (offset + len(data)) // PAGE + 1):
                inode.pages.pop(index, None)
            raise
        finally:
            inode.resizing -= 1
            inode.version, inode.is_size_valid = self._next(), False
        end = offset + written
        for index in range(offset // PAGE, -(-end // PAGE)):
            begin = index * PAGE
            start, stop = max(offset, begin), min(end, begin + PAGE)
            part = bytes(data[start - offset : stop - offset])
            page = inode.pages.get(index)
            if len(part) == PAGE:
                inode.pages[index] = part
            elif page is not None:
                inode.pages[index] = page[: start - begin] + part + page[stop - begin :]
        inode.attr.size = max(inode.attr.size, end)
        return written

    async def read_pages(self, handle: int, offset: int, size: int) -> bytes:
        """Read up to the end of the file that the kernel knows, from pages or from the client."""
        ino = self._handles[handle]
        inode, found = self.inodes[ino], bytearray()
        await self.getattr(ino, needs_ctime=False)
        while len(found) < size and (at := offset + len(found)) < inode.attr.size:
            index = at // PAGE
            page = inode.pages.get(index)
            if page is None:
                page = await self._fill(inode, handle, index, min(offset + size, inode.attr.size))
            stop = min(offset + size, (index + 1) * PAGE, inode.attr.size)
            found += page[at - index * PAGE : stop - index * PAGE]
        return bytes(found)

    async def _fill(self, inode: _Inode, handle: int, first: int, end: int) -> bytes:
        """Read missing pages from the client; return the first one."""
        last = first + 1
        while last * PAGE < end and last not in inode.pages and last - first < LARGEST_READ // PAGE:
            last += 1
        want, began, epoch = (last - first) * PAGE, self._version, inode.epoch
        data = self._files.available(handle, first * PAGE, want)
        if data is None:
            data = await self._files.read(handle, first * PAGE, want)
        known = first * PAGE + len(data)
        is_newer = began >= inode.version and not inode.resizing
        if len(data) < want and known < inode.attr.size and is_newer:
            inode.version, inode.attr.size = self._next(), known
        data = bytes(data).ljust(want, b"\0")
        if epoch == inode.epoch:
            for number in range(first, last):
                begin = (number - first) * PAGE
                inode.pages.setdefault(number, data[begin : begin + PAGE])
        return data[:PAGE]

    # ---- invalidations ----

    def invalidate(self, change: Invalidation) -> None:
        """Drop what the client says has changed."""
        match change:
            case InodeChanged(ino, attr_only):
                if (inode := self.inodes.get(ino)) is not None:
                    inode.version, inode.valid_until = self._next(), NEVER
                    if not attr_only:
                        inode.drop_pages()
            case EntryChanged(parent, name) | EntryGone(parent, name, _):
                if (parent, name) in self.entries:
                    self._changed(parent)
                    self._drop(parent, name)

    def stale(self, state: LocalState) -> list[str]:
        """Return what is valid here, but not what the client has.

        Call this only after all invalidations have arrived, and while no call is in progress.
        """
        if self._busy:
            return []
        return [*self._stale_names(state), *self._stale_attributes(state), *self._lost(state)]

    def _stale_names(self, state: LocalState) -> Iterator[str]:
        for (parent, name), entry in self.entries.items():
            folder = state.inodes.find(ino_of(parent)) if parent < VIRTUAL else None
            is_valid = trio.current_time() <= entry.valid_until
            if not is_valid or folder is None or folder.parent == NOWHERE:
                continue
            child = state.inodes.child(folder.ino, os.fsdecode(name))
            there = state.kernel.number(child.ino) if child is not None else 0
            if entry.ino != there and entry.ino < VIRTUAL:
                yield f"stale: {os.fsdecode(name)} is inode {entry.ino}, not {there}"

    def _stale_attributes(self, state: LocalState) -> Iterator[str]:
        for ino, inode in self.inodes.items():
            is_valid = trio.current_time() <= inode.valid_until
            is_valid &= inode.is_size_valid and inode.is_ctime_valid
            there = state.inodes.find(ino_of(ino)) if ino < VIRTUAL and is_valid else None
            if there is None or there.parent == NOWHERE or there.ino == ROOT:
                continue
            if (former := state.kernel.former.get(ino)) is not None:
                attr = former.told
            elif state.kernel.number(there.ino) == ino:
                attr = attr_of(there, state.owner, state.rules, 0.0)
            else:
                continue
            if former is None and (session := state.session(there.ino)) is not None:
                attr.size = session.size
                attr.mtime_ns = session.mtime_ns
                attr.ctime_ns = max(attr.ctime_ns, session.ctime_ns)
            # New rights in a zone are not announced for each of its files.
            has_rules = inode.rules == state.rules
            for name in CHECKED if has_rules else CHECKED[1:]:
                one, other = getattr(inode.attr, name), getattr(attr, name)
                if one != other:
                    yield f"stale: inode {ino} ({there.name}) has the {name} {one}, not {other}"

    def _lost(self, state: LocalState) -> Iterator[str]:
        known = Counter[int]()
        for ino, inode in self.inodes.items():
            if ino < VIRTUAL:
                known[ino_of(ino)] += inode.lookups
        for ino, count in known.items():
            if (there := state.inodes._lookups.get(ino, 0)) != count and ino != ROOT:
                yield f"inode {ino} was looked up {count} times, the client counts {there}"


def _until(seconds: float) -> float:
    return trio.current_time() + seconds if seconds > 0 else NEVER


def _retried(
    method: Callable[Concatenate["CachingKernel", ArgumentsT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate["CachingKernel", ArgumentsT], Coroutine[Any, Any, ResultT]]:
    """Repeat a call by path once after ESTALE, with all of its names looked up again."""

    @functools.wraps(method)
    async def call(
        self: "CachingKernel", /, *args: ArgumentsT.args, **options: ArgumentsT.kwargs
    ) -> ResultT:
        if self._shrinks.random() < SHRINKS:
            self.caches.shrink(self._shrinks)
        with self.caches.call():
            try:
                return await method(self, *args, **options)
            except (FUSEError, OSError, ZonedriveError, trio.TooSlowError) as wrong:
                number = wrong.errno if isinstance(wrong, FUSEError) else _errno(wrong, "").errno
                if number != errno.ESTALE:
                    raise
            again = copy.copy(self)
            again.is_forced = True
            return await method(again, *args, **options)

    return _limited(call)  # type: ignore[arg-type]  # it is a Kernel


def _plain(method: Any) -> Any:
    """Return a method of `Kernel` without its limit of time."""
    return method.__wrapped__


class CachingKernel(Kernel):
    """System calls as a kernel with caches makes them."""

    def __init__(
        self,
        files: FileSystem,
        descriptors: Iterator[int],
        numbers: random.Random,
        findings: list[str],
    ) -> None:
        """Add what no file system may do to `findings`; `numbers` say when memory is short."""
        self.caches = Caches(files, findings)
        super().__init__(cast(FileSystem, self.caches), descriptors)
        self._shrinks = numbers
        self.is_forced = False  # all names are looked up again

    def invalidated(self, change: Invalidation) -> None:
        """Drop what the client says has changed."""
        self.caches.invalidate(change)

    # ---- names ----

    async def _walk(self, path: str) -> Attr:
        found = await self.caches.check(ROOT)
        for name in path.split("/") if path else ():
            if not stat.S_ISDIR(found.mode):
                raise NotADirectoryError(errno.ENOTDIR, "is a file")
            # Every folder on the way is checked for permission.
            await self.caches.check(found.ino)
            child = await self._child(found.ino, os.fsencode(name))
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such name")
            found = child
        return found

    async def _child(self, parent: int, name: bytes) -> Attr | None:
        try:
            return await self.caches.lookup(parent, name, is_forced=self.is_forced)
        except FileNotFoundError:
            return None

    def _forget(self, ino: int) -> None:
        """Do nothing: `Caches` counts lookups."""

    async def _look_up_again(self, path: str) -> None:
        """Let the last name of a path be looked up again."""
        self.caches.expire(*await self._parent(path))

    @_retried
    async def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            await self._look_up_again(path)
        return await self._open_once(path, flags, mode)

    @_retried
    async def mkdir(self, path: str, mode: int = 0o777) -> None:
        await self._look_up_again(path)
        await _plain(Kernel.mkdir)(self, path, mode)

    _remove = _retried(_plain(Kernel._remove))

    @_retried
    async def rename(self, old: str, new: str, flags: int = 0) -> None:
        if flags != EXCHANGE:
            await self._look_up_again(new)
        await _plain(Kernel.rename)(self, old, new, flags)

    # ---- attributes ----

    lstat = _retried(_plain(Kernel.lstat))
    chmod = _retried(_plain(Kernel.chmod))
    utime = _retried(_plain(Kernel.utime))
    getxattr = _retried(_plain(Kernel.getxattr))

    # ---- folders ----

    listdir = _retried(_plain(Kernel.listdir))

    async def tree(self, path: str) -> dict[str, bytes | None]:
        with self.caches.call():
            return await super().tree(path)

    _entry = _retried(_plain(Kernel._entry))

    async def _names_in(self, ino: int) -> list[str]:
        handle = await self.caches.opendir(ino)
        try:
            return [os.fsdecode(name) for name in await self.caches.names(handle)]
        finally:
            await self.caches.releasedir(handle)

    # ---- files ----

    @_limited
    async def pread(self: Kernel, fd: int, size: int, offset: int) -> bytes:
        """Read at an offset."""
        assert isinstance(self, CachingKernel)
        file = self._file(fd)
        if file.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        return await self.caches.read_pages(file.handle, offset, min(size, sys.maxsize - offset))

    async def write(self, fd: int, data: bytes) -> int:
        """Write at the descriptor's position, or at the end that the kernel knows."""
        file = self._file(fd)
        if file.flags & os.O_APPEND:
            file.position = self.caches.size(file.handle)
        written = await self.pwrite(fd, data, file.position)
        file.position += written
        return written
