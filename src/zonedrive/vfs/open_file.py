"""Open files: what several handles of one inode share.

INVARIANT: the bytes of a generation that has been closed never change; whoever writes again
works on a copy of its own until the next close.
"""

import time
from typing import TypeAlias

import msgspec
import trio

from zonedrive.content.file import ContentFile
from zonedrive.content.reader import Reader
from zonedrive.model import Revision
from zonedrive.tree.inode import Inode
from zonedrive.vfs.attributes import Attr

PAGE = 4096  # what the kernel writes at once from a mapping

Content: TypeAlias = Revision | int
"""Which bytes a file has: the service's version, or a generation of ours."""


def content_of(inode: Inode) -> Content:
    """The bytes that an inode has now, but for those being written."""
    return inode.generation or inode.revision


class Session:
    """Bytes that are being written: from the first write to the last close."""

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
        self.former = former  # what the file has again if nothing of the session is kept
        self.base = base  # the version the edit began from
        self.mtime_ns = self.ctime_ns = mtime_ns
        self.dirty = False  # written since the last commit
        self.synced = False  # a program has called fsync, so a record of it may be durable
        self.frozen = False  # being sent: the next write needs a copy
        self.rewritten = False  # not only appended to
        self.written = False  # not only cut
        self.refused = 0  # the errno by which a program heard that its last write is not kept
        self._floor = file.size
        self._begun = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.file.size

    @property
    def age(self) -> float:
        """Seconds since the first write."""
        return time.monotonic() - self._begun

    def changed(self, offset: int) -> None:
        """Other bytes from `offset` on, now."""
        self.dirty = True
        self.rewritten = self.rewritten or offset < self._floor
        self.mtime_ns = self.ctime_ns = time.time_ns()


class OpenFile:
    """A file that programs have open: one kernel inode, whose handles all have the same bytes.

    INVARIANT: `content` changes only with an edit made on this machine, where the same bytes get
    another name, or before any handle can have read of it.
    """

    def __init__(self, ino: int, content: Content, told: Attr) -> None:
        self.ino = ino
        self.number = told.ino  # the kernel's, see `kernel_inodes`
        self.content = content  # of the session, where there is one
        self.handles = 0
        self.by_handle: list[Handle] = []
        self.writers = 0
        self.pages = False  # whether the kernel may have pages of `content`
        self.told = told  # attributes of `content`, as the kernel was last told
        self.superseded = False  # the file has newer bytes, under another number
        self.removed_here = False  # a program on this machine took the name away
        self.session: Session | None = None
        self.local: tuple[int, ContentFile] | None = None  # a closed generation, for reading
        self.reader: tuple[Revision, Reader] | None = None  # the service's bytes
        self.preparing = trio.Lock()

    @property
    def is_settled(self) -> bool:
        """Whether nobody writes, or is about to."""
        return self.session is None and not self.preparing.locked()

    @property
    def may_be_read(self) -> bool:
        """Whether a handle may have read of the content; the kernel does not tell us each time."""
        return self.pages and any(handle.readable for handle in self.by_handle)

    @property
    def is_spoilt(self) -> bool:
        """Whether nothing more can be read: the service had something else than this version."""
        return self.reader is not None and self.reader[1].spoilt

    def replaced(self, content: Content, by: Content) -> None:
        """The same bytes are known by another name now: who has them open goes on with them."""
        if self.content == content:
            self.content = by
        if self.session is not None and self.session.former == content:
            self.session.former = by

    def close(self) -> None:
        """Let go of what was open for reading."""
        self.close_local()
        if self.reader is not None:
            self.reader[1].close()
            self.reader = None

    def close_local(self) -> None:
        """Let go of the closed generation."""
        if self.local is not None:
            self.local[1].close()
            self.local = None


class Handle(msgspec.Struct, eq=False):
    """One open(2)."""

    file: OpenFile
    number: int  # of the kernel's inode that it was opened on
    readable: bool
    writable: bool
    append: bool
    pid: int = 0  # of the process, or thread, that opened it
    flags: int = 0  # with which it did
    guarded: bool | None = None  # whether that is a program of `guard`; None: not asked yet

    def move_to(self, file: OpenFile) -> None:
        """Go on with another open file."""
        for each, number in ((self.file, -1), (file, 1)):
            each.handles += number
            each.writers += number * self.writable
        self.file.by_handle.remove(self)
        file.by_handle.append(self)
        self.file = file

    def is_of_a_mapping(self, offset: int, length: int, size: int) -> bool:
        """Whether a write by an appending handle is of pages that were changed through mmap(2).

        The kernel does not let us see which it is.  It writes such pages whole, up to the end of
        the file, and only a handle that can read can be mapped.
        """
        end, whole = offset + length, not offset % PAGE
        return self.readable and whole and (end == size or (end < size and not end % PAGE))


class Opened(msgspec.Struct, frozen=True):
    """What the kernel is told of a new handle."""

    handle: int
    keep_cache: bool = False
