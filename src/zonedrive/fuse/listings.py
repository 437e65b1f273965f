"""Listings as the kernel wants them: attributes are encoded once, not at every reading.

Must not know why a folder changes: who is served tells by a stamp whether it has.

INVARIANT: an encoded listing is given out only while its folder has the stamp it was made at.
"""

from collections.abc import Callable

import pyfuse3
from cachetools import LRUCache
from pyfuse3 import EntryAttributes

from zonedrive.fuse.verbs import Attr, Listed, Verbs

ENTRIES = 50_000  # encoded at most, of all folders together: some 20 MB
LARGEST = 10_000  # entries of a folder that is kept
MOST = 8_000  # entries in one answer, at the least some 160 bytes each of at most 1 MiB
DOTS = (b".", b"..")


class _Encoded:
    """One folder."""

    def __init__(self, stamp: object) -> None:
        self.stamp = stamp
        self.entries: list[tuple[bytes, EntryAttributes, int]] = []  # as `Verbs.readdir` has them
        self.inos: list[int] = []
        self._seconds = -1.0

    def trust(self, seconds: float) -> None:
        """Let the kernel trust all of it for so long."""
        if seconds != self._seconds:
            self._seconds = seconds
            for _, attr, _ in self.entries:
                attr.entry_timeout = attr.attr_timeout = seconds


class Listings:
    """What folders hold, encoded."""

    def __init__(self, files: Verbs, encode: Callable[[Attr], EntryAttributes]) -> None:
        self._files = files
        self._encode = encode
        self._kept: LRUCache[int, _Encoded] = LRUCache(ENTRIES, lambda each: len(each.entries) + 20)

    def reply(self, token: pyfuse3.ReaddirToken, handle: int, start: int) -> None:
        """Answer one readdir from the entry number `start` on, as far as there is room."""
        listed = self._files.listed(handle, start)
        if listed is None or listed.entries > LARGEST:
            self._stream(token, handle, start)
            return
        kept = self._kept.get(listed.ino)
        if kept is None or kept.stamp != listed.stamp:
            kept = self._encoded(handle, listed)
        # Rounded down, so that a folder that is listed again and again is touched once a second.
        kept.trust(float(int(listed.timeout)))
        given, reply = start, pyfuse3.readdir_reply
        for name, attr, following in kept.entries[start : start + MOST]:
            if not reply(token, name, attr, following):
                break
            given = following
        self._remember(kept.inos[start:given], start)

    def _encoded(self, handle: int, listed: Listed) -> _Encoded:
        kept = _Encoded(listed.stamp)
        for name, attr, following in self._files.readdir(handle, 0):
            kept.entries.append((name, self._encode(attr), following))
            kept.inos.append(attr.ino)
        self._kept[listed.ino] = kept
        return kept

    def _stream(self, token: pyfuse3.ReaddirToken, handle: int, start: int) -> None:
        given = []
        for name, attr, following in self._files.readdir(handle, start):
            if not pyfuse3.readdir_reply(token, name, self._encode(attr), following):
                break
            if name not in DOTS:
                given.append(attr.ino)
        self._files.remember(given)

    def _remember(self, inos: list[int], start: int) -> None:
        """The kernel counts what it was given, but for the dots."""
        self._files.remember(inos[max(0, len(DOTS) - start) :])
