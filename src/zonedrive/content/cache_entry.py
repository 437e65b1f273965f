"""Cached file that is in use: its bytes on the disk and in memory.

This module does not depend on the downloads, which call `CacheEntry.store`. The methods `store` and
`wait_for_store` are called in threads, all other methods on the event loop.

INVARIANT: `present` lists only bytes that can be read now. `on_disk` lists the bytes of `present`
that are in the file. Only the event loop changes `present` and `on_disk`; threads append to
`_arrived`.

INVARIANT: received bytes can be read before they are on the disk. The entry is not closed while
bytes are being stored.

INVARIANT: bytes are written to the disk only within the space that was granted before.
"""

import contextlib
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from zonedrive.content.content_file import Buffer, ContentFile
from zonedrive.content.encrypted_file import create_file
from zonedrive.content.ranges import Ranges
from zonedrive.content.read_buffers import (
    AHEAD,
    SCRATCH,
    MemoryBudget,
    ReadAhead,
    RecentChunks,
)
from zonedrive.content.slots import CHUNK
from zonedrive.errors import Damaged
from zonedrive.paths import private_dir

log = logging.getLogger(__name__)

ALLOW = 16 << 20  # bytes granted at once, so that requests for space are rare


def cost(length: int) -> int:
    """Return the maximum number of bytes that a write of `length` bytes takes on the disk."""
    return length + length // 1024 + 3 * 4096


class Stopped(Exception):
    """Exception that ends a download that is no longer needed; caught inside this package."""


class Store(Protocol):
    """Interface through which entries request disk space and report errors."""

    def allow(self, entry: "CacheEntry", need: int, want: int) -> bool:
        """Grant the entry between `need` and `want` bytes; return False if there is no space."""

    def failed(self, error: OSError) -> None:
        """Report a disk error."""

    def damaged(self, entry: "CacheEntry") -> bool:
        """Report damaged bytes of the entry; return True if the entry may still use its file."""


class CacheEntry:
    """Cached bytes of one revision of one inode."""

    def __init__(
        self,
        ino: int,
        stamp: str,
        size: int,
        path: Path,
        key: bytes | None,
        budget: MemoryBudget,
        store: Store,
    ) -> None:
        """Create an empty entry; the file at `path` is created when the first bytes are stored.

        `stamp` is the hash of the revision; see `Cache.stamp`.
        """
        self.ino = ino
        self.stamp = stamp
        self.size = size
        self.path = path
        self.validator = ""
        self.present = Ranges()
        self.on_disk = Ranges()
        self.users = 0
        self.unlinked = False  # removed from the cache, but still open
        self.held = 0  # bytes that count towards the limit
        self.indexed = False  # the index lists the entry as complete
        self.streaming = False  # some bytes were only in memory, because they could not be stored
        self._store = store
        self._key = key
        self._file: ContentFile | None = None
        self.budget = budget
        self._allowance = 0  # granted bytes of which no write has begun
        self._writing = 0  # granted bytes that are being written
        self._count = threading.Lock()  # guards `_allowance` and `_writing`
        self._disk = True  # false after a failed write
        self.failure = errno.ENOSPC  # reason why bytes are not on the disk, after a failed write
        self._damage_logged = False
        self._closed = False
        self._lock = threading.Lock()  # held while storing and closing, not while reading
        # Start offset, bytes, and None before they are stored, then True if they are on the disk.
        self._arrived: deque[tuple[int, bytes, bool | None]] = deque()
        self.recent = RecentChunks(self._forget_in_memory, budget)
        self._ahead = ReadAhead()

    # -- on the event loop

    def adopt(self, file: ContentFile, present: Ranges) -> None:
        """Use `file` as the file of this entry; `present` lists the ranges that the file contains.

        If `present` covers the whole revision, the holes of the file are read as zeros.
        """
        file.disable_redo_log(is_complete=present.covers(0, self.size))
        self._file = file
        self.on_disk = present
        self.present = Ranges(present)

    @property
    def complete(self) -> bool:
        """True if the whole content is on the disk."""
        return self.on_disk.covers(0, self.size)

    @property
    def is_kept(self) -> bool:
        """True if the whole content is on the disk or is being written to it."""
        self.process_arrivals()
        return not self.streaming and self.present.covers(0, self.size)

    @property
    def unused(self) -> int:
        """Number of granted bytes that are not written yet."""
        with self._count:
            return self._allowance + self._writing

    def grant(self, granted: int, need: int) -> None:
        """Replace the unused grant by `granted` bytes, `need` of which are about to be written."""
        self.recount(granted)
        with self._count:
            self._allowance = granted - need if granted else 0
            self._writing += need if granted else 0

    def recount(self, more: int = 0) -> None:
        """Update `held`, the number of bytes that count towards the limit.

        `held` becomes the file's disk usage, plus the granted bytes that are being written, plus
        `more`. Granted space of which no write has begun is given back.
        """
        file = self._file
        with self._count:
            self._allowance = 0
            self.held = more + self._writing
        if file is not None and not file.closed:
            self.held += file.allocated + file.pending

    def try_disk_again(self) -> None:
        """Resume storing bytes on the disk after an error or a lack of space.

        Drops the bytes in memory that could not be stored. They must be fetched again.
        """
        self.process_arrivals()
        while self.recent.kept_bytes:
            self.recent.drop_oldest()
        # As in `_discard`, the index comes first: it may still list damaged bytes.
        self._disk, self.streaming = self._store.damaged(self), False

    def without_disk(self, error: OSError) -> None:
        """Report a disk error, and stop storing bytes on the disk."""
        self._store.failed(error)
        self._disk, self.failure = False, error.errno or self.failure

    def process_arrivals(self) -> None:
        """Add the ranges that threads have received to `present`.

        The ranges that are already stored on the disk are also added to `on_disk`.
        """
        while self._arrived:
            start, data, on_disk = self._arrived.popleft()
            end = start + len(data)
            self.present.add(start, end)  # the range may have been dropped since it was received
            if on_disk is None:
                self.recent.put(start, data)
            elif on_disk:
                self.on_disk.add(start, end)
                self.recent.stored(start)
            else:
                self.streaming = True
                self.recent.keep(start)

    def _forget_in_memory(self, start: int, end: int) -> None:
        """Remove [start, end) from `present`, except bytes on the disk or still in memory."""
        self.present.remove(start, end)
        for first, last in (*self.on_disk.within(start, end), *self.recent.unstored):
            if first < end and start < last:
                self.present.add(max(first, start), min(last, end))

    def has(self, start: int, end: int) -> bool:
        """Return True if the bytes [start, end) can be read now."""
        if self._arrived:
            self.process_arrivals()
        return self.present.covers(start, end)

    def read(self, offset: int, length: int) -> Buffer | None:
        """Return exactly `length` bytes at `offset`, or None if some bytes are not available.

        The result is valid until the next read or the caller's next checkpoint.
        """
        if self._arrived:
            self.process_arrivals()
        end = offset + length
        found = self.recent.get(offset, length) or self._ahead.get(offset, end)
        if found is not None:
            if end == self.size and self._ahead.end:
                self._ahead = ReadAhead()  # a sequential reader has finished
            return found
        if self.on_disk.reach(offset) >= end:
            return self._from_disk(offset, end)
        return self._pieced(offset, end) if self.present.covers(offset, end) else None

    def _pieced(self, offset: int, end: int) -> bytes | None:
        """Join the bytes [offset, end) from disk and memory; return None if some are missing."""
        parts: list[bytes] = []
        while offset < end:
            reach = min(self.on_disk.reach(offset), end)
            part: Buffer | None
            if reach > offset:
                part = self._from_disk(offset, reach)
            else:
                reach = min(self.on_disk.following(offset) or end, end)
                part = self.recent.get(offset, reach - offset)
            if part is None:
                return None
            parts.append(bytes(part))
            offset = reach
        return b"".join(parts)

    def _from_disk(self, start: int, end: int) -> Buffer | None:
        file, ahead = self._file, self._ahead
        if file is None or file.closed:
            return None
        wanted = end
        if start == ahead.end and start and end - start < AHEAD:  # in sequence
            wanted = max(end, min(start + AHEAD, self.on_disk.reach(start)))
        into = ahead.memory() if wanted > end else SCRATCH.lend(end - start)
        ahead.start = ahead.end = 0
        try:
            count = file.read_into(start, into[: wanted - start])
        except Damaged as wrong:
            if wanted > end:  # the damage may be in bytes that were not requested
                return self._from_disk(start, end)
            level = logging.DEBUG if self._damage_logged else logging.WARNING
            self._damage_logged = True
            log.log(level, "cached bytes are damaged and are fetched again (%s)", wrong)
        except OSError as wrong:
            self._store.failed(wrong)
        else:
            if count == wanted - start:
                ahead.start, ahead.end = (start, wanted) if wanted > end else (end, end)
                return into[: end - start]
            log.warning("cached bytes of %s are missing and are fetched again", self.path.name)
            start, end = 0, self.size  # another program has cut the file
        self._discard(file, start // CHUNK * CHUNK, min(-(-end // CHUNK) * CHUNK, self.size))
        return None

    def _discard(self, file: ContentFile, start: int, end: int) -> None:
        """Discard the damaged bytes [start, end) in memory, in the index and in the file."""
        # Locked, because a thread may be storing good bytes in this range. Those bytes are
        # discarded, too, or are stored afterwards.
        with self._lock:
            self.process_arrivals()
            self._ahead = ReadAhead()
            self.present.remove(start, end)
            self.on_disk.remove(start, end)
            try:
                # The index comes first, because it must not list a file with a hole as complete.
                self._disk = self._store.damaged(self) and self._disk
                if self._disk:
                    file.punch(start, end)
            except OSError as wrong:
                self.without_disk(wrong)

    def flush(self) -> bool:
        """Flush the file to the kernel; return False on a disk error."""
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as wrong:
            self._store.failed(wrong)
            return False
        return True

    @property
    def linked(self) -> bool:
        """True if the file still has a name, so that it can be opened again."""
        return self._file is not None and not self._file.closed and self._file.linked

    @property
    def manifest(self) -> bytes:
        """Manifest of the content file, b"" if there is no file; see `ContentFile.manifest`."""
        return self._file.manifest() if self._file is not None else b""

    def copy_source(self) -> ContentFile | None:
        """Return a reference to the content file, or None if there is no file.

        The caller closes the reference.
        """
        return self._file.share() if self._file is not None else None

    def close(self) -> bool:
        """Close the entry; return True if its file has a name and contains all ranges in `on_disk`.

        Return False also after a disk error.
        """
        with self._lock:
            self._closed = True
        self.process_arrivals()
        self.recent.clear()
        self._ahead = ReadAhead()
        kept = self.flush() and self.linked
        self.recount()
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                kept = False
        return kept

    # -- in a download's thread

    def store(self, offset: int, data: bytes, came: Callable[[], object]) -> None:
        """Store `data` on the disk, or only in memory if there is no space or after a disk error.

        `came` is called as soon as the bytes can be read, which is before they are stored. Raises
        Stopped if the entry is closed.
        """
        need = cost(len(data))
        allowed = self._disk and self._may_write(need)
        on_disk = False
        try:
            with self._lock:
                if self._closed:
                    raise Stopped
                self._arrived.append((offset, data, None))
                try:
                    came()
                    on_disk = allowed and self._to_disk(offset, data)
                finally:
                    self._arrived.append((offset, data, on_disk))
        finally:
            if allowed:
                with self._count:
                    self._writing -= need

    def wait_for_store(self) -> None:
        """Block while another thread is storing a chunk; call this in a thread."""
        with self._lock:
            pass

    def _may_write(self, need: int) -> bool:
        with self._count:
            if self._allowance >= need:
                self._allowance -= need
                self._writing += need
                return True
        return self._store.allow(self, need, max(need, min(ALLOW, cost(self.size))))

    def _to_disk(self, offset: int, data: bytes) -> bool:
        try:
            if self._file is None:
                self._file = self._create()
            self._file.pwrite(offset, data)
        except OSError as wrong:
            self.without_disk(wrong)
            return False
        except Damaged:
            self._disk = False
            return False
        return True

    def _create(self) -> ContentFile:
        try:
            file = create_file(self.path, self._key)
        except FileNotFoundError:  # the folder was removed
            private_dir(self.path.parent)
            file = create_file(self.path, self._key)
        try:
            file.disable_redo_log()
            file.truncate(self.size)
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            self.path.unlink(missing_ok=True)
            raise
        return file
