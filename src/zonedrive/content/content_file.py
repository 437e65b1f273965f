"""Local content files in the plain (unencrypted) format, used if `encrypt = false` is set.

This module does not depend on inodes, the cache or the service. `encrypted_file` overrides the
methods that differ for an encrypted file. A flipped bit in a plain file is not detected.

Calls are synchronous and take tens of microseconds, so they may run on the event loop; a write over
synced bytes of an encrypted file waits for the disk. Call `sync`, and `copy_to` of a large file, in
a thread. All calls are thread-safe: one thread may write while others read.

INVARIANT: a path has at most one ContentFile at a time; further users of the file call `share`.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from zonedrive.errors import StoreError
from zonedrive.paths import sync_folder

Buffer = bytes | bytearray | memoryview
Check = Callable[[], None]
"""Function that long work calls often, and that raises an exception to end the work."""

BLOCK = 1 << 20
_STEP = 64 << 20

# Errors of a kernel or file system that does not support an operation for these two files.
_CANNOT = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}


class ContentFile:
    """Random access to the bytes of one file.

    Holes are read as zeros, except holes that count as missing bytes (see `disable_redo_log`).
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take ownership of `descriptor`, the open file at `path`."""
        self.path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._lock = threading.Lock()
        self._users = 1
        self.changes = 0  # number of changes, which shows a write during a copy or a sync

    @property
    def size(self) -> int:
        """Logical size in bytes, including buffered writes."""
        return self._size

    def pread(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`; fewer at the end of the file, none past the end.

        Raises Damaged if stored bytes of an encrypted file were damaged or lost. Damage in a plain
        file is not detected.
        """
        with self._lock:
            return os.pread(self._open(), length, offset)

    def read_into(self, offset: int, into: memoryview) -> int:
        """Fill `into` with the bytes from `offset` on; return the number of bytes read.

        The number is less than the size of `into` only at the end of the file. Raises the errors of
        `pread`; `into` may then be partly filled.
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
        """Write all of `data` at `offset`, and return its length; extend the file if needed.

        Raises OSError if the bytes cannot be stored. A prefix of `data` may then have been
        written; all other bytes are unchanged.
        """
        with self._lock:
            descriptor = self._open()
            self.changes += 1
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
            self.changes += 1
            self._size = size

    def punch(self, start: int, end: int) -> None:
        """Turn all chunks of an encrypted file that overlap [start, end) into holes.

        A plain file is not changed, because it has no record of holes.
        """

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges of bytes that may never have been written.

        The result is empty for a plain file, which has no record of such ranges.
        """
        return []

    def disable_redo_log(self, *, is_complete: bool = False) -> None:
        """Disable the redo log of an encrypted file, for content that can be fetched again.

        Writes are then faster, but a killed process may leave a partly written chunk. Callers must
        read only bytes that were written. Reading a partly written chunk or a hole raises Damaged.
        `is_complete` states that no bytes are missing. The current holes are then read as zeros.
        """

    def _flush(self) -> None:
        """Write buffered bytes to the kernel; the caller holds the lock."""

    def _begin_sync(self) -> None:
        """Prepare for writes during and after a sync; the caller holds the lock."""

    def manifest(self, *, size: int | None = None, final: bool = False) -> bytes:
        """Return the manifest of the flushed file, to pass to `open_file`; b"" for a plain file.

        The manifest is the record of an encrypted file's state; see the module `manifest`. A caller
        that stores the manifest safely can later detect a replacement of the current bytes by older
        bytes. The file may already be closed. If `size` is given, the manifest describes the file
        as if it were truncated to `size` bytes. `final` states that no writes follow, and that all
        bytes were read through this object.
        """
        return b""

    @property
    def closed(self) -> bool:
        """True if the last reference has been dropped."""
        return self._users == 0

    @property
    def allocated(self) -> int:
        """Disk usage of the file in bytes."""
        with self._lock:
            return os.fstat(self._open()).st_blocks * 512

    @property
    def linked(self) -> bool:
        """True if the file has a name; a file without a name is deleted after its last close."""
        with self._lock:
            return os.fstat(self._open()).st_nlink > 0

    @property
    def pending(self) -> int:
        """Upper bound on the disk space in bytes that the buffered writes still need."""
        return 0

    def flush(self) -> None:
        """Write buffered bytes to the kernel, so that they survive the process.

        Raises OSError if the bytes cannot be stored. The bytes then stay buffered for another
        flush.
        """
        with self._lock:
            self._open()
            self._flush()

    def sync(self) -> int:
        """Flush the file, and wait until its bytes and its name are safe from a power cut.

        Return the number of changes that are safe; `changes` is greater if the file was written to
        during the call. Raises the errors of `flush`.
        """
        with self._lock:
            descriptor = self._open()
            self._flush()
            self._begin_sync()
            safe = self.changes
        os.fsync(descriptor)
        sync_folder(self.path.parent)  # syncs the name of a new file
        return safe

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole content in blocks of BLOCK bytes; the last block may be shorter."""
        offset = 0
        while data := self.pread(offset, BLOCK):
            yield data
            offset += len(data)

    def verify(self, check: Check = lambda: None) -> None:
        """Raise Damaged if stored bytes were damaged or lost; call this in a thread.

        Reads the whole of an encrypted file. Does nothing for a plain file, whose damage cannot be
        detected. For `check`, see `Check`.
        """

    def copy_to(self, path: Path, check: Check = lambda: None) -> "ContentFile":
        """Create an independent copy at `path`, and return the open copy.

        `path` must not exist. The copy shares disk blocks if the file system supports that. Raises
        StoreError if the file is written to during the copy, and OSError if the copy fails. On
        failure, no file is left behind at `path`. For `check`, see `Check`.
        """
        self.flush()
        before = self.changes
        copy_file(self._open(), path, check)
        try:
            if self.changes != before:
                raise StoreError(f"{self.path.name} was written to while it was copied")
            return self._open_copy(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _open_copy(self, path: Path) -> "ContentFile":
        return ContentFile(path, open_descriptor(path)[0])

    def share(self) -> "ContentFile":
        """Add a reference and return this object; each holder of a reference calls `close` once."""
        with self._lock:
            self._open()
            self._users += 1
        return self

    def close(self) -> None:
        """Drop one reference; dropping the last one flushes and closes the file.

        Raises the errors of `flush`, after the file is closed.
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
        """Return the descriptor. Raises ValueError if the file is closed, as Python's files do."""
        if self._users == 0:
            raise ValueError(f"{self.path.name} is closed")
        return self._descriptor


def write_all(descriptor: int, data: Buffer, offset: int) -> None:
    """Write all of `data` at `offset`. Raises OSError; a prefix may then have been written."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def open_descriptor(path: Path) -> tuple[int, bool]:
    """Open a file for reading and writing, or only for reading if writing is not permitted.

    Returns the descriptor, and True if the file is open for writing. Raises OSError.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), True
    except OSError as refused:
        if refused.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False


def create_descriptor(path: Path) -> int:
    """Create a file with mode 0600, and return a descriptor for reading and writing.

    Raises OSError, including FileExistsError.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def copy_file(source: int, path: Path, check: Check = lambda: None) -> None:
    """Copy the file that is open as descriptor `source` to a new file at `path` with mode 0600.

    Raises OSError, including FileExistsError. On failure, no part of the copy is left behind. For
    `check`, see `Check`.
    """
    target = create_descriptor(path)
    try:
        for start, end in _data(source):
            _copy_range(source, target, start, end, check)
        os.ftruncate(target, os.fstat(source).st_size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(target)


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges (start, end) of the file that are not holes."""
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


def _copy_range(source: int, target: int, start: int, end: int, check: Check) -> None:
    """Copy the bytes [start, end) to the same offset of the target, in the kernel if possible.

    A copy in the kernel shares disk blocks if the file system supports that.
    """
    in_kernel = True
    while start < end:
        check()
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
            done = os.pwrite(target, os.pread(source, min(step, BLOCK), start), start)
        if done == 0:  # the source became shorter; the caller notices the change
            return
        start += done
