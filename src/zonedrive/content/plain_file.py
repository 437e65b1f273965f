"""Plain content files: the bytes on the disk are the content.

A flipped bit on the disk is not detected.  Accounts with `encrypt = false` accept that; encrypted
files detect it.
"""

import os
from pathlib import Path

from zonedrive.content.content_file import Buffer, ContentFile, open_descriptor, write_all


class PlainFile(ContentFile):
    """Content file that is not encrypted."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take ownership of `descriptor`, opened for reading and writing."""
        super().__init__(path, descriptor)
        self._size = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, path: Path) -> "PlainFile":
        """Create an empty file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return cls(path, os.open(path, flags, 0o600))

    @classmethod
    def open(cls, path: Path) -> "PlainFile":
        """Open an existing file."""
        return cls(path, open_descriptor(path)[0])

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def pread(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; return fewer at the end of the file, none past it."""
        with self._lock:
            return os.pread(self._open(), length, offset)

    def read_into(self, offset: int, into: memoryview) -> int:
        """Fill `into` from `offset` on; return the number of bytes read.

        The number is smaller than the length of `into` only at the end of the file.
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
        """Overwrite [start, end) with zeros."""
        with self._lock:
            self._changes += 1
            write_all(self._open(), bytes(max(0, min(end, self._size) - start)), start)

    def _flush(self) -> None:
        """Do nothing, because no bytes are buffered."""

    def _same_kind(self, path: Path) -> ContentFile:
        return PlainFile.open(path)
