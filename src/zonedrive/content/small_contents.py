"""Cache of small files, whose bytes are stored in the cache index.

This module does not depend on readers, downloads or the service.

The content of a file can be read as soon as it is added. The content is written a moment later, in
one transaction with the content of other files. If the process is killed in between, the content is
lost and must be fetched again.

Encryption, if the account has a key: AES-256-GCM under a key derived from the account's key. The
row of a file holds the nonce and is authenticated itself (see `cache_index`), so a replacement of
the current bytes by older bytes is detected.

INVARIANT: this cache has content of at most one revision of an inode, and none while the inode has
a content file.

INVARIANT: content is written only after space was claimed for it.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from zonedrive.cipher import KEY_BYTES, NONCE_BYTES, Box, Clear, Sealed
from zonedrive.content.cache_index import CacheIndex, Row, name_in_index
from zonedrive.content.quota import Quota, remove
from zonedrive.errors import Damaged

log = logging.getLogger(__name__)

LARGEST = 32 * 1024  # maximum bytes of content that takes less space in the index than as a file
WAITING = 2 << 20  # bytes in memory at which the content must be written immediately
LOG = 4 << 20  # bytes written since the last checkpoint of the index at which the next one is due
TOUCH_NS = 60 * 10**9  # uses within this time count as one


def cost(length: int) -> int:
    """Return the approximate disk usage in bytes of `length` bytes of encrypted content."""
    return length + length // 128 + 768


class _Waiting(msgspec.Struct, eq=False):
    """Content that is not in the database yet."""

    stamp: str
    data: bytes


class SmallContents:
    """Content of small files, by inode and stamp (the hash of a revision; see `Cache.stamp`)."""

    def __init__(self, index: CacheIndex, quota: Quota, key: bytes | None) -> None:
        self._index = index
        self._quota = quota
        self._box: Box = Clear()
        if key is not None:
            derived = hashlib.blake2b(b"zonedrive contents", key=key, digest_size=KEY_BYTES)
            self._box = Sealed(derived.digest())
        self._nonce_bytes = 0 if key is None else NONCE_BYTES
        self._waiting: dict[int, _Waiting] = {}
        self._bytes = 0  # total size of the waiting content
        self._logged = 0  # bytes written since the last checkpoint

    @property
    def is_urgent(self) -> bool:
        """True if so much content is waiting in memory that it must be written immediately."""
        return self._bytes >= WAITING

    @property
    def need(self) -> int:
        """Approximate disk usage in bytes of the content that is waiting to be written."""
        return sum(cost(len(each.data)) for each in self._waiting.values())

    @property
    def needs_checkpoint(self) -> bool:
        """True if `checkpoint` should be called in a thread."""
        return self._logged >= LOG

    def put(self, ino: int, stamp: str, data: bytes) -> None:
        """Add the content of an inode; the index must not have content of the inode."""
        self.drop(ino)
        self._waiting[ino] = _Waiting(stamp, data)
        self._bytes += len(data)

    def has(self, ino: int, stamp: str) -> bool:
        """Return True if the inode has content with this stamp that is waiting to be written."""
        waiting = self._waiting.get(ino)
        return waiting is not None and waiting.stamp == stamp

    def get(self, ino: int, stamp: str, size: int) -> bytes | None:
        """Return the content of a file, whether written or waiting to be written.

        Returns None if the content is missing, damaged or not of `size` bytes.
        """
        waiting = self._waiting.get(ino)
        if waiting is not None and waiting.stamp == stamp:
            return waiting.data if len(waiting.data) == size else None
        row = self._index.row(ino, stamp)
        if row is None or not row.in_index or row.size != size:
            return None
        epoch = self._index.epoch
        data = self._opened(row)
        if data is None:
            log.warning("cached content is missing or damaged and is fetched again (inode %d)", ino)
            if self._index.epoch == epoch:
                self._quota.idle -= row.taken  # first: a restart of the index sets it to 0
                self._index.delete([row.name])
            return None
        now = time.time_ns()
        if now - row.used_ns > TOUCH_NS:
            self._index.set_last_use(row.name, now)
        return data

    def inos(self) -> list[int]:
        """Return the numbers of the inodes with content that is waiting to be written."""
        return list(self._waiting)

    def drop(self, ino: int) -> None:
        """Drop the inode's content if it is waiting to be written."""
        if (waiting := self._waiting.pop(ino, None)) is not None:
            self._bytes -= len(waiting.data)

    def write(self, in_use: Callable[[int], bool]) -> None:
        """Write the waiting content of all files in one transaction, as far as there is space.

        Content for which there is no space is dropped. Content of inodes for which `in_use` returns
        True is also dropped, because these inodes have content files.
        """
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        now, batch = time.time_ns(), list[tuple[Row, bytes]]()
        for ino, each in waiting.items():
            if not in_use(ino):
                batch.append(self._sealed(ino, each, now))
        victims = list[Path]()
        if not self._claim(need := sum(row.taken for row, _ in batch), victims):
            # Claim space one by one until the cache is full.
            batch = [each for each in batch if self._claim(each[0].taken, victims)]
            need = sum(row.taken for row, _ in batch)
        try:
            remove(victims)
            kept = bool(batch) and self._index.put_contents(batch)
        finally:
            self._quota.leaving -= need
        if kept:
            self._quota.idle += need
            self._logged += need

    def checkpoint(self) -> None:
        """Checkpoint the index database. Call this method in a thread, because it is slow."""
        self._logged = 0
        self._index.checkpoint()

    def _claim(self, need: int, victims: list[Path]) -> bool:
        """Claim `need` bytes of disk space; return True if they are granted.

        The space counts as used from now on. Evicted files, which the caller must remove before
        writing, are appended to `victims`.
        """
        granted, more = self._quota.claim_at_once(need) if need else (0, [])
        victims += more
        self._quota.leaving += granted  # until the rows of the content count
        return granted >= need

    def _sealed(self, ino: int, each: _Waiting, now: int) -> tuple[Row, bytes]:
        size = len(each.data)
        content = self._box.seal(each.data, _context(ino, each.stamp, size))
        return Row(
            ino, each.stamp, name_in_index(ino), size, cost(len(content)), True, b"", "", now,
            content[: self._nonce_bytes],
        ), content  # fmt: skip

    def _opened(self, row: Row) -> bytes | None:
        """Return the decrypted content of a row, or None if the content is missing or damaged."""
        content = self._index.content(row.ino)
        if content is None or content[: self._nonce_bytes] != row.manifest:
            return None
        try:
            data = self._box.open(content, _context(row.ino, row.stamp, row.size))
        except Damaged:
            return None
        return data if len(data) == row.size else None


def _context(ino: int, stamp: str, size: int) -> bytes:
    return b"content %d %b %d" % (ino, stamp.encode(), size)
