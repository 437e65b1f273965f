"""A file of content on this machine, as its users see it, whichever way its bytes are stored.

Knows nothing of inodes, caches or the service.  The two ways are `plain` (the bytes as they
are) and `sealed` (encrypted and authenticated); which one it is depends on the key alone.

Calls are synchronous and take some ten microseconds, so that they can stand on the event loop;
`sync`, and `copy_to` of anything big, belong in a thread.  All calls are thread-safe: one
thread may write while others read.

INVARIANT: one ContentFile for one path at a time; further users `share` it.
"""

import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from zonedrive.content.copying import copy_file
from zonedrive.errors import StoreError

Buffer = bytes | bytearray | memoryview

BLOCK = 1 << 20


class ContentFile(ABC):
    """Bytes of one content: read and written anywhere, holes are zeros."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over `descriptor`, opened for reading and writing."""
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._users = 1
        self._changes = 0  # counts writes, so that a copy can tell whether it is of one moment

    @property
    @abstractmethod
    def size(self) -> int:
        """The logical size in bytes, buffered writes included."""

    @abstractmethod
    def pread(self, offset: int, length: int) -> bytes:
        """Read at most `length` bytes; fewer at the end, none past it.

        Raises Damaged where stored bytes fail their check.
        """

    @abstractmethod
    def read_into(self, offset: int, into: memoryview) -> int:
        """Fill `into` with the bytes from `offset` on; return how many there are until the end.

        Raises what `pread` raises; `into` may be half filled then.
        """

    @abstractmethod
    def pwrite(self, offset: int, data: Buffer) -> int:
        """Write all of `data` at `offset`, growing the file where needed; give its length back.

        Raises OSError where the bytes cannot be kept: then a prefix of `data` may have been
        written, and everything else is as before.
        """

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut or extend the content to `size` bytes; what is new is zeros."""

    @abstractmethod
    def punch(self, start: int, end: int) -> None:
        """Forget [start, end), widened to what the format keeps as one piece: zeros from now."""

    def holes(self) -> list[tuple[int, int]]:
        """Ranges of bytes that may never have been written, as far as the format knows."""
        return []

    def without_journal(self) -> None:  # noqa: B027
        """For content that can be fetched again, of which only what was written is ever read."""

    @abstractmethod
    def _flush(self) -> None:
        """Hand what is buffered to the kernel; called with the lock held."""

    def manifest(self, *, size: int | None = None, final: bool = False) -> bytes:
        """The state of what was flushed, for `codec.open_file`; b"" where the format has none.

        Whoever keeps it where nobody can forge it notices former bytes in place of these.
        Works on a closed file, too.  `size`: as if the file had been cut to so many bytes.
        `final`: nobody writes any more, and all of it was read through this object.
        """
        return b""

    @property
    def closed(self) -> bool:
        """Whether the last user has closed it."""
        return self._users == 0

    @property
    def allocated(self) -> int:
        """Bytes the file takes on the disk."""
        with self._lock:
            return os.fstat(self._open()).st_blocks * 512

    @property
    def linked(self) -> bool:
        """Whether the file still has a name; without one it is gone after its last use."""
        with self._lock:
            return os.fstat(self._open()).st_nlink > 0

    @property
    def pending(self) -> int:
        """At most how many bytes more the buffered writes take on the disk."""
        return 0

    def flush(self) -> None:
        """Hand what is buffered to the kernel: from here on it survives the process.

        Raises OSError where the bytes cannot be kept; they stay buffered then, and another
        flush tries again.
        """
        with self._lock:
            self._open()
            self._flush()

    def sync(self) -> None:
        """Flush, and wait until the disk has everything: from here on it survives a power cut."""
        self.flush()
        os.fsync(self._open())
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the name of a new file as well
        finally:
            os.close(folder)

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """The whole content in pieces of `size` bytes, the last one shorter."""
        offset = 0
        while data := self.pread(offset, size):
            yield data
            offset += len(data)

    def copy_to(self, path: Path) -> "ContentFile":
        """Make an independent copy at `path`, which must not exist, and open it.

        Shares the disk blocks where the file system can.  Raises StoreError where somebody
        wrote meanwhile, OSError where the copy cannot be made; nothing is left then.
        """
        self.flush()
        before = self._changes
        copy_file(self._open(), path)
        if self._changes != before:
            path.unlink(missing_ok=True)
            raise StoreError(f"{self.path.name} was written to while it was copied")
        return self._same_kind(path)

    @abstractmethod
    def _same_kind(self, path: Path) -> "ContentFile":
        """Open a byte-for-byte copy of this file."""

    def share(self) -> "ContentFile":
        """Become one more user of this object; each user closes it once."""
        with self._lock:
            self._open()
            self._users += 1
        return self

    def close(self) -> None:
        """Give up one use; the last one flushes and closes.

        Raises what `flush` raises; the file is closed all the same.
        """
        with self._lock:
            if self._users > 1:
                self._users -= 1
                return
            if self._users == 0:
                return
            try:
                self._flush()
            finally:
                self._users = 0
                os.close(self._descriptor)
                self._descriptor = -1

    def _open(self) -> int:
        """The descriptor.  Raises ValueError once closed, as Python's files do."""
        if self._users == 0:
            raise ValueError(f"{self.path.name} is closed")
        return self._descriptor


def write_all(descriptor: int, data: Buffer, offset: int) -> None:
    """Write all of `data`; a disk that fills up in the middle raises its OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def open_descriptor(path: Path) -> tuple[int, bool]:
    """Open for reading and writing, or only for reading where the file system allows no more.

    Gives the descriptor, and whether it may be written to.  Raises OSError.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), True
    except OSError as refused:
        if refused.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False
