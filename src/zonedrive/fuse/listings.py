"""Listings as the kernel wants them: attributes are encoded once, not at every reading.

Must not know why a folder changes: who is served tells by a stamp whether it has.

INVARIANT: an encoded listing is given out only while its folder has the stamp it was made at.
"""

from collections.abc import Callable
from typing import NamedTuple

import pyfuse3
from cachetools import LRUCache
from pyfuse3 import EntryAttributes

from zonedrive.fuse.verbs import Attr, Listed, Verbs

ENTRIES = 50_000  # encoded at most, of all folders together: some 20 MB
LARGEST = 10_000  # entries of a folder that is kept
DOTS = (b".", b"..")


class _Encoded(NamedTuple):
    stamp: object
    entries: list[tuple[bytes, EntryAttributes, int]]  # as `Verbs.readdir` tells them
    inos: list[int]


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
        timeout, given = listed.timeout, start
        reply = pyfuse3.readdir_reply
        for name, attr, following in kept.entries[start:]:
            attr.entry_timeout = attr.attr_timeout = timeout
            if not reply(token, name, attr, following):
                break
            given = following
        self._remember(kept.inos[start:given], start)

    def _encoded(self, handle: int, listed: Listed) -> _Encoded:
        entries, inos = [], []
        for name, attr, following in self._files.readdir(handle, 0):
            entries.append((name, self._encode(attr), following))
            inos.append(attr.ino)
        kept = _Encoded(listed.stamp, entries, inos)
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
