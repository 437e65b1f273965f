"""Listings as the kernel wants them: attributes are encoded once, not at every reading.

Must not know why a folder changes: who is served hands out another list of names when it has.

INVARIANT: an encoded listing is given out only with the list of names that it was made from.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import pyfuse3
from cachetools import LRUCache
from pyfuse3 import EntryAttributes

from zonedrive.fuse.verbs import Attr, Verbs

ENTRIES = 20_000  # encoded at most, of all folders together: some 8 MB
LARGEST = 10_000  # entries of a folder that is kept
STEP = 256  # entries that are encoded together, about as many as one answer holds
DOTS = (b".", b"..")


class _Encoded:
    """One folder, as far as it has been read."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.entries: list[tuple[bytes, EntryAttributes, int]] = []  # as `Verbs.readdir` has them
        self.inos: list[int] = []
        self._seconds = -1.0

    def trust(self, seconds: float) -> None:
        """Let the kernel trust all of it for so long."""
        if seconds != self._seconds:
            self._seconds = seconds
            for _, attr, _ in self.entries:
                attr.entry_timeout = attr.attr_timeout = seconds

    def extend(
        self,
        more: Iterable[tuple[bytes, Attr, int]],
        encode: Callable[[Attr], EntryAttributes],
    ) -> None:
        """Take entries behind the last one."""
        for name, attr, following in more:
            self.entries.append((name, encode(attr), following))
            self.inos.append(attr.ino)


class Listings:
    """What folders hold, encoded."""

    def __init__(self, files: Verbs, encode: Callable[[Attr], EntryAttributes]) -> None:
        self._files = files
        self._encode = encode
        self._kept: LRUCache[int, _Encoded] = LRUCache(ENTRIES, lambda each: len(each.names) + 20)

    def reply(self, token: pyfuse3.ReaddirToken, handle: int, start: int) -> None:
        """Answer one readdir from the entry number `start` on, as far as there is room."""
        listed = self._files.listed(handle, start)
        if listed is None or len(listed.names) > LARGEST:
            self._stream(token, handle, start)
            return
        kept = self._kept.get(listed.ino)
        if kept is None or kept.names is not listed.names:
            kept = self._kept[listed.ino] = _Encoded(listed.names)
        # Rounded down, so that a folder that is listed again and again is touched once a second.
        kept.trust(float(int(listed.timeout)))
        given = self._give(token, handle, start, kept)
        self._files.remember(kept.inos[max(start, len(DOTS)) : given])

    def _give(self, token: pyfuse3.ReaddirToken, handle: int, start: int, kept: _Encoded) -> int:
        """Hand out entries from `start` on; up to which."""
        reply = pyfuse3.readdir_reply
        while True:
            if (known := len(kept.entries)) < min(start + STEP, len(kept.names)):
                more = self._files.readdir(handle, known)
                kept.extend(islice(more, start + STEP - known), self._encode)
            for name, attr, following in kept.entries[start : start + STEP]:
                if not reply(token, name, attr, following):
                    return start
                start = following
            if start >= len(kept.entries):
                return start

    def _stream(self, token: pyfuse3.ReaddirToken, handle: int, start: int) -> None:
        given = []
        for name, attr, following in self._files.readdir(handle, start):
            if not pyfuse3.readdir_reply(token, name, self._encode(attr), following):
                break
            if name not in DOTS:
                given.append(attr.ino)
        self._files.remember(given)
