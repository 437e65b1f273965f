"""Open files: the state that all handles of an inode share, and kernel inode numbers.

A generation is one saved state of a file's local bytes. INVARIANT: the bytes of a closed generation
never change; a new writer works on a private copy until the file is closed.
"""

import copy
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import trio

from zonedrive.content.content_file import ContentFile
from zonedrive.content.reader import Reader
from zonedrive.errors import StoreError
from zonedrive.model import Revision
from zonedrive.state.attributes import Attr
from zonedrive.state.inode import Inode
from zonedrive.state.inodes import Inodes

STEP = 1 << 40  # greater than any inode number of a tree
VIRTUAL = 1 << 62
"""First inode number and handle of the virtual entries of `views`.

Inode numbers must be less than 1 << 63, because the cache stores them in SQLite.
"""
PAGE = 4096  # unit in which the kernel writes pages of a mapping

Content: TypeAlias = Revision | int
"""Identity of a file's bytes: a revision of the service or a local generation."""


def content_of(inode: Inode) -> Content:
    """Return the identity of an inode's stored bytes, excluding bytes that are being written."""
    return inode.generation or inode.revision


class Session:
    """Write session: the new bytes of an open file, from the first write to the last close."""

    def __init__(
        self,
        generation: int,
        file: ContentFile,
        base: Revision | None,
        mtime_ns: int,
        former: Content,
    ) -> None:
        self.generation = generation
        self.file = file
        self.former = former  # content to restore if nothing of the session is stored
        self.base = base  # revision that the edit is based on
        self.mtime_ns = self.ctime_ns = mtime_ns
        self.dirty = False  # written since the last commit
        self.synced = False  # a program has called fsync, so the record may be durable
        self.frozen = False  # the bytes are being sent: the next write needs a copy
        self.rewritten = False  # bytes before the former end were changed
        self.written = False  # a program has written, not only truncated
        self.refused = 0  # errno of a change that could not be stored, else 0
        self._floor = file.size
        self._begun = time.monotonic()

    @property
    def size(self) -> int:
        """Size of the new content in bytes."""
        return self.file.size

    @property
    def is_only_emptied(self) -> bool:
        """True if the session has truncated the file to size 0 and has written nothing."""
        return self.rewritten and not self.written and self.size == 0

    @property
    def has_only_grown(self) -> bool:
        """True if bytes were appended since the last commit, and nothing else has happened."""
        return self.dirty and not (self.rewritten or self.frozen or self.refused)

    @property
    def age(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._begun

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Record and re-raise an OSError or StoreError of the `with` block, which writes a change.

        `require_complete` then raises OSError, so that the incomplete content is not saved.
        """
        try:
            yield
        except (OSError, StoreError) as wrong:
            self.refused = getattr(wrong, "errno", 0) or errno.EIO
            raise

    def require_complete(self) -> None:
        """Raise OSError if a change since the last commit could not be stored."""
        if self.dirty and self.refused:
            raise OSError(self.refused, os.strerror(self.refused))

    def changed(self, offset: int) -> None:
        """Record that a program changes bytes from `offset` on, before the change is stored."""
        self.dirty = True
        self.rewritten = self.rewritten or offset < self._floor

    def stored(self) -> None:
        """Record that the change of a program was stored, and update the times."""
        self.refused = 0
        self.mtime_ns = self.ctime_ns = time.time_ns()


class OpenFile:
    """Open file: one kernel inode whose handles all see the same bytes.

    INVARIANT: `content` changes only on a local edit, when the same bytes get another identity, or
    before any handle can have read the former bytes.
    """

    def __init__(self, ino: int, content: Content, told: Attr) -> None:
        self.ino = ino
        self.number = told.ino  # inode number in the kernel, see `KernelInodes`
        self.content = content  # content of the session, if one exists
        self.handles: list[Handle] = []
        self.writers = 0
        self.pages = False  # True if the kernel may have pages of `content`
        self.told = told  # attributes of `content`: as last sent to the kernel, size as it is now
        self.known_size = told.size  # size that the kernel has for `number`
        self.superseded = False  # the file has newer bytes, under another inode number
        self.sent = 0  # the last generation that the service has stored
        self.removed_here = False  # a local program has removed the name
        self.session: Session | None = None
        self.local: tuple[int, ContentFile] | None = None  # a closed generation, open for reading
        self.reader: tuple[Revision, Reader] | None = None  # a reader of the service's bytes
        self.preparing = trio.Lock()

    @property
    def is_settled(self) -> bool:
        """True if no program is writing or is about to write."""
        return self.session is None and not self.preparing.locked()

    @property
    def may_be_read(self) -> bool:
        """True if a handle may have read the content.

        The kernel does not report each read, because it caches pages.
        """
        return self.pages and any(handle.readable for handle in self.handles)

    @property
    def is_version_gone(self) -> bool:
        """True if reads fail because the service no longer has this version."""
        return self.reader is not None and self.reader[1].version_gone

    def close(self) -> None:
        """Close the local generation and the reader of the service's bytes, if they are open.

        Raises the error of `close_local`, after both are closed.
        """
        try:
            self.close_local()
        finally:
            if self.reader is not None:
                self.reader[1].close()
                self.reader = None

    def close_local(self) -> None:
        """Close the local generation, if it is open for reading.

        Raises OSError or StoreError, after the file is closed, if buffered bytes cannot be stored.
        Such bytes exist if a write session shares the file.
        """
        if self.local is not None:
            (_, file), self.local = self.local, None
            file.close()


class Handle(msgspec.Struct, eq=False):
    """File handle, created by one open(2) of a file."""

    file: OpenFile
    number: int  # number of the kernel inode that was opened
    readable: bool
    writable: bool
    append: bool  # opened with O_APPEND; pyfuse3 does not pass on the current flags of a write
    pid: int = 0  # process or thread that opened the file
    flags: int = 0  # flags of open(2)
    emptied: bool = False  # True if the program has truncated the file to size 0 through the handle
    guarded: bool | None = None  # True if the setting `guard` names the program; None: not checked
    failure: Exception | None = None  # error of the last change, see `reporting`

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Re-raise an error of the `with` block, and store it for later close(2) and fsync(2).

        The `with` block writes a change. A cancellation is stored as a timeout (ETIMEDOUT).

        The kernel writes back the dirty pages of a shared mapping through any handle that is open
        for reading and writing. If this handle is such a handle, all other such handles of the file
        therefore also get the error.
        """
        try:
            yield
        except BaseException as wrong:
            late = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            # A copy has no traceback, which would refer to the bytes of the write.
            failure = copy.copy(wrong) if isinstance(wrong, Exception) else late
            self.failure = failure
            for handle in self.file.handles:
                if self.readable and handle.readable and handle.writable:
                    handle.failure = failure
            raise

    def succeeded(self) -> None:
        """Clear the handle's stored error after a change, also on handles that share the error."""
        failure, self.failure = self.failure, None
        for handle in self.file.handles:
            if handle.failure is failure:
                handle.failure = None

    def require_succeeded(self) -> None:
        """Raise the error of the last change through the handle, if the change has failed."""
        if self.failure is not None:
            raise copy.copy(self.failure)

    def move_to(self, file: OpenFile) -> None:
        """Move the handle to another `OpenFile` of the same inode."""
        self.file.handles.remove(self)
        self.file.writers -= self.writable
        file.handles.append(self)
        file.writers += self.writable
        self.file = file

    def stop_writing(self) -> None:
        """Remove the handle from the writers of its file; a later `move_to` does not add it."""
        self.file.writers -= self.writable
        self.writable = False

    def is_of_a_mapping(self, offset: int, length: int, size: int) -> bool:
        """Return True if a write through an appending handle comes from a memory mapping (mmap(2)).

        Such writes are recognised by their range: the kernel writes whole pages, and the last page
        only up to the end of the file (the current end, or the end that the kernel knows). They
        begin before the end that the kernel knows, while appended data begins at this end. Only a
        readable handle can be mapped. `size` is the size of the file in bytes.
        """
        end, whole, known = offset + length, not offset % PAGE, self.file.known_size
        is_page = whole and (end in (size, known) or (end < size and not end % PAGE))
        return self.readable and is_page and offset < known


class Opened(msgspec.Struct, frozen=True):
    """Response to an open request of the kernel."""

    handle: int
    keep_cache: bool = False


def ino_of(number: int) -> int:
    """Return the inode number in the tree for a kernel inode number."""
    return number % STEP


class KernelInodes:
    """Inode numbers that the kernel uses for files.

    The kernel caches pages per inode, and all programs that have the file open share these pages.
    If a program has read a file and a newer version arrives, the newer version gets another kernel
    inode, as if a new file had been renamed over the old one. The pages of the two versions then
    never mix. Handles on the former version keep the former number.

    `ino_of` gives the inode number in the tree for a kernel inode number. After the next mount,
    both numbers are equal again.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by ino, if different from the ino
        self.former: dict[int, OpenFile] = {}  # open former versions, by number
        self.renewals = 0  # numbers given out so far

    def number(self, ino: int) -> int:
        """Return the kernel inode number of an inode's current content."""
        return self._numbers.get(ino, ino)

    def inode(self, inodes: Inodes, number: int) -> Inode:
        """Return the inode whose current content has the kernel inode number `number`.

        Raises OSError (ESTALE) if there is none; the kernel then looks the name up again.
        """
        inode = inodes.find(ino_of(number))
        if inode is None or self.number(inode.ino) != number:
            raise OSError(errno.ESTALE, "removed, or another version by now")
        return inode

    def renew(self, opened: OpenFile) -> None:
        """Give a file's current content a new kernel inode number.

        `opened`, the open file with the former content, keeps the former number.
        """
        self.former[opened.number] = opened
        number = self.number(opened.ino) + STEP
        self._numbers[opened.ino] = number if number < VIRTUAL else opened.ino
        self.renewals += 1

    def release(self, ino: int) -> None:
        """Forget the number of an inode that neither the kernel nor the tree refers to any more."""
        self._numbers.pop(ino, None)
