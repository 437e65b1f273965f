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

PAGE = 4096  # what the kernel writes at once from a mapping

Content: TypeAlias = Revision | int
"""Which bytes a file has: the service's version, or a generation of ours."""


def content_of(inode: Inode) -> Content:
    """The bytes that an inode has now, but for those being written."""
    return inode.generation or inode.revision


class Session:
    """Bytes that are being written: from the first write to the last close."""

    def __init__(
        self, generation: int, file: ContentFile, base: Revision | None, mtime_ns: int
    ) -> None:
        self.generation = generation
        self.file = file
        self.base = base  # the version the edit began from
        self.mtime_ns = self.ctime_ns = mtime_ns
        self.dirty = False  # written since the last commit
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
    """An inode that programs have open."""

    def __init__(self, ino: int) -> None:
        self.ino = ino
        self.handles = 0
        self.by_handle: list[Handle] = []
        self.writers = 0
        self.edits = 0  # how often somebody here began to write into it
        self.session: Session | None = None
        self.local: tuple[int, ContentFile] | None = None  # a closed generation, for reading
        self.reader: tuple[Revision, Reader] | None = None  # the service's bytes
        self.preparing = trio.Lock()

    def replaced(self, content: Content, by: Content) -> None:
        """The same bytes are known by another name now: who has them open goes on with them."""
        for handle in self.by_handle:
            if handle.seen is not None and handle.seen[0] == content:
                handle.seen = by, handle.seen[1]

    def begin_anew(self) -> bool:
        """Let go of a reader that can read nothing more; who has read by it goes on in vain.

        Whether there was such a one.
        """
        if self.reader is None or not self.reader[1].spoilt:
            return False
        for handle in self.by_handle:
            handle.over = handle.over or handle.read
        self.reader[1].close()
        self.reader = None
        return True

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
    readable: bool
    writable: bool
    append: bool
    pid: int = 0  # of the process, or thread, that opened it
    flags: int = 0  # with which it did
    guarded: bool | None = None  # whether that is a program of `guard`; None: not asked yet
    seen: tuple[Content, int] | None = None  # what it was opened on, and the edits till then
    read: bool = False  # whether we know that it has read of that; the kernel may have had pages
    over: bool = False  # whether it was told that its version cannot be had any more

    def outdated(self, content: Content) -> bool:
        """Whether it began with other bytes than these, and nobody here has edited them since.

        A program sees edits made beside it on this machine, as on any file system.
        """
        if self.seen is None or self.seen[1] != self.file.edits:
            return False
        return self.over or self.seen[0] != content

    def may_begin_anew(self, content: Content, offset: int) -> bool:
        """Whether it may read of a version other than the one that it was opened on.

        Never parts of two: only who has read nothing yet, as far as we know, and begins at the
        beginning; and only while nobody else, who shares the kernel's pages, is in the same case.
        """
        others = any(each is not self and each.outdated(content) for each in self.file.by_handle)
        return not (self.read or self.over or offset or others)

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
    direct_io: bool = False
    keep_cache: bool = False
