"""Local content files in the plain format, of accounts with `encrypt = false`.

Knows nothing about inodes, caches or the service.  `encrypted_file` overrides what differs in an
encrypted file.  A flipped bit in a plain file is not detected.

Calls are synchronous and take some ten microseconds, so they may run on the event loop.  Call
`sync`, and `copy_to` of a large file, in a thread.  All calls are thread-safe: one thread may write
while others read.

INVARIANT: a path has at most one ContentFile at a time; further users call `share`.
"""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from zonedrive.errors import StoreError

Buffer = bytes | bytearray | memoryview

BLOCK = 1 << 20
_STEP = 64 << 20

# Errors of a kernel or file system that does not support an operation for these two files.
_CANNOT = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}


class ContentFile:
    """Random access to the bytes of one file; holes are read as zeros."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take ownership of `descriptor`, opened for reading and writing."""
        self.path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._lock = threading.Lock()
        self._users = 1
        self._changes = 0  # counts writes, so that a copy can tell whether it is of one moment

    @property
    def size(self) -> int:
        """Logical size in bytes, buffered writes included."""
        return self._size

    def pread(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; return fewer at the end of the file, none past it.

        Raises Damaged if stored bytes fail their check.
        """
        with self._lock:
            return os.pread(self._open(), length, offset)

    def read_into(self, offset: int, into: memoryview) -> int:
        """Fill `into` from `offset` on; return the number of bytes read before the end of the file.

        Raises the errors of `pread`; `into` may then be partly filled.
        """
        with self._lock:
            descriptor, done = self._open(), 0
            while done < len(into):
                count = os.preadv(descriptor, [into[done:]], offset + done)
                if not count:
                    break
                done += count
            return done

    def pwrite(self, offset: int, data: Buffer) -> int:
        """Write all of `data` at `offset`, extending the file if needed; return its length.

        Raises OSError if the bytes cannot be stored.  A prefix of `data` may then have been
        written; all else is unchanged.
        """
        with self._lock:
            descriptor = self._open()
            self._changes += 1
            try:
                write_all(descriptor, data, offset)
            except OSError:
                self._size = os.fstat(descriptor).st_size
                raise
            self._size = max(self._size, offset + len(data)) if len(data) else self._size
            return len(data)

    def truncate(self, size: int) -> None:
        """Truncate or extend the content to `size` bytes; new bytes are zeros."""
        with self._lock:
            os.ftruncate(self._open(), size)
            self._changes += 1
            self._size = size

    def punch(self, start: int, end: int) -> None:
        """Discard [start, end), extended to whole units of the format; the bytes become zeros."""
        with self._lock:
            self._changes += 1
            write_all(self._open(), bytes(max(0, min(end, self._size) - start)), start)

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges of bytes that may never have been written, according to the format."""
        return []

    def disable_redo_log(self) -> None:
        """Disable the redo log, for content that can be fetched again.

        Callers must read only bytes that were written to such a file.
        """

    def _flush(self) -> None:
        """Write buffered bytes to the kernel; called with the lock held."""

    def manifest(self, *, size: int | None = None, final: bool = False) -> bytes:
        """Return the state of the flushed file for `open_file`, or b"" for a plain file.

        A caller that stores it safely can detect old bytes in place of the current ones.  Works on
        a closed file, too.  `size`: return the state as if the file were truncated to
        this size.  `final`: no writes follow, and all bytes were read through this object.
        """
        return b""

    @property
    def closed(self) -> bool:
        """True if the last reference has been dropped."""
        return self._users == 0

    @property
    def allocated(self) -> int:
        """Bytes that the file takes on the disk."""
        with self._lock:
            return os.fstat(self._open()).st_blocks * 512

    @property
    def linked(self) -> bool:
        """True if the file has a name; without a name it is deleted after its last close."""
        with self._lock:
            return os.fstat(self._open()).st_nlink > 0

    @property
    def pending(self) -> int:
        """Upper limit of the additional bytes that buffered writes need on the disk."""
        return 0

    def flush(self) -> None:
        """Write buffered bytes to the kernel, so that they survive the process.

        Raises OSError if the bytes cannot be stored; they stay buffered, and another flush tries
        again.
        """
        with self._lock:
            self._open()
            self._flush()

    def sync(self) -> None:
        """Flush, and wait until all bytes are on the disk, so that they survive a power cut."""
        self.flush()
        os.fsync(self._open())
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the name of a new file as well
        finally:
            os.close(folder)

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole content in blocks of BLOCK bytes; the last one may be shorter."""
        offset = 0
        while data := self.pread(offset, BLOCK):
            yield data
            offset += len(data)

    def copy_to(self, path: Path) -> "ContentFile":
        """Create an independent copy at `path`, which must not exist, and open it.

        Shares disk blocks if the file system can.  Raises StoreError if the file is written to
        meanwhile, and OSError if the copy fails; then no file is left.
        """
        self.flush()
        before = self._changes
        copy_file(self._open(), path)
        if self._changes != before:
            path.unlink(missing_ok=True)
            raise StoreError(f"{self.path.name} was written to while it was copied")
        return self._open_copy(path)

    def _open_copy(self, path: Path) -> "ContentFile":
        return ContentFile(path, open_descriptor(path)[0])

    def share(self) -> "ContentFile":
        """Add a reference to this object; each holder calls `close` once."""
        with self._lock:
            self._open()
            self._users += 1
        return self

    def close(self) -> None:
        """Drop one reference; dropping the last one flushes and closes the file.

        Raises the errors of `flush`; the file is closed even then.
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
        """Return the descriptor.  Raises ValueError if the file is closed, as Python's files do."""
        if self._users == 0:
            raise ValueError(f"{self.path.name} is closed")
        return self._descriptor


def write_all(descriptor: int, data: Buffer, offset: int) -> None:
    """Write all of `data`; raise OSError if the disk fills up during the write."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def open_descriptor(path: Path) -> tuple[int, bool]:
    """Open for reading and writing, or only for reading if the file system allows no more.

    Returns the descriptor and True if it is writable.  Raises OSError.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), True
    except OSError as refused:
        if refused.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False


def create_descriptor(path: Path) -> int:
    """Create a file that does not exist, and open it for reading and writing.  Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def copy_file(source: int, path: Path) -> None:
    """Copy the file open as `source` to `path`, which must not exist; its mode is 0600.

    Raises OSError; then no part of the copy is left.
    """
    target = create_descriptor(path)
    try:
        for start, end in _data(source):
            _copy_range(source, target, start, end)
        os.ftruncate(target, os.fstat(source).st_size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(target)


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the file that are not holes."""
    size = os.fstat(descriptor).st_size
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as none:
            if none.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy a range, if possible in the kernel, which shares blocks if the file system can."""
    in_kernel = True
    while start < end:
        step = min(end - start, _STEP)
        if in_kernel:
            try:
                done = os.copy_file_range(source, target, step, start, start)
            except OSError as cannot:
                if cannot.errno not in _CANNOT:
                    raise
                in_kernel = False
                continue
        else:
            done = os.pwrite(target, os.pread(source, min(step, 1 << 20), start), start)
        if done == 0:  # the source shrank under us; the caller notices the change
            return
        start += done
