"""The plain codec: the bytes on the disk are the content.

A flipped bit on the disk is not detected here: that is what an account with `encrypt = false`
chooses, and what the sealed codec is for.
"""

import os
from pathlib import Path

from zonedrive.content.file import Buffer, ContentFile, open_descriptor, write_all


class PlainFile(ContentFile):
    """Content stored as it is."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over `descriptor`, opened for reading and writing."""
        super().__init__(path, descriptor)
        self._size = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, path: Path) -> "PlainFile":
        """Make an empty file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return cls(path, os.open(path, flags, 0o600))

    @classmethod
    def open(cls, path: Path) -> "PlainFile":
        """Open an existing file."""
        return cls(path, open_descriptor(path)[0])

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._size

    def pread(self, offset: int, length: int) -> bytes:
        """Read at most `length` bytes; fewer at the end, none past it."""
        with self._lock:
            return os.pread(self._open(), length, offset)

    def read_into(self, offset: int, into: memoryview) -> int:
        """Fill `into` with the bytes from `offset` on; return how many there are until the end."""
        with self._lock:
            descriptor, done = self._open(), 0
            while done < len(into):
                count = os.preadv(descriptor, [into[done:]], offset + done)
                if not count:
                    break
                done += count
            return done

    def pwrite(self, offset: int, data: Buffer) -> int:
        """Write all of `data` at `offset`."""
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
        """Cut or extend to `size` bytes."""
        with self._lock:
            os.ftruncate(self._open(), size)
            self._changes += 1
            self._size = size

    def punch(self, start: int, end: int) -> None:
        """Make [start, end) zeros."""
        with self._lock:
            self._changes += 1
            write_all(self._open(), bytes(max(0, min(end, self._size) - start)), start)

    def _flush(self) -> None:
        """Nothing is buffered."""

    def _same_kind(self, path: Path) -> ContentFile:
        return PlainFile.open(path)
