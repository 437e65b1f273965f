"""Cache of directory listings in the kernel's format, so that readdir need not encode them again.

After a change of a folder, `FileSystem.listed` returns a new list of names, and the folder is
encoded again.

INVARIANT: an encoded listing is used only with the list of names that it was made from.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import pyfuse3
from cachetools import LRUCache
from pyfuse3 import EntryAttributes

from zonedrive.state.attributes import Attr
from zonedrive.views.stack import FileSystem

ENTRIES = 20_000  # maximum number of encoded entries of all folders, about 8 MB
LARGEST = 10_000  # maximum number of entries of a cached folder
STEP = 256  # entries encoded together, about as many as one answer holds
DOTS = (b".", b"..")


class _Encoded:
    """Names in one folder, and the readdir entries encoded so far, in the order of the names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.entries: list[tuple[bytes, EntryAttributes, int]] = []
        self.inos: list[int] = []
        self._seconds = -1.0

    def set_timeout(self, seconds: float) -> None:
        """Set the number of seconds for which the kernel may cache each entry."""
        if seconds != self._seconds:
            self._seconds = seconds
            for _, attr, _ in self.entries:
                attr.entry_timeout = attr.attr_timeout = seconds


class Listings:
    """Cache of encoded directory listings."""

    def __init__(self, files: FileSystem, encode: Callable[[Attr], EntryAttributes]) -> None:
        self._files = files
        self._encode = encode
        self._kept: LRUCache[int, _Encoded] = LRUCache(ENTRIES, lambda each: len(each.names) + 20)

    def reply(self, token: pyfuse3.ReaddirToken, handle: int, start: int) -> None:
        """Answer one readdir request for a directory handle, from entry number `start` on."""
        listed = self._files.listed(handle, start)
        if listed is None or len(listed.names) > LARGEST:
            self._stream(token, handle, start)
            return
        kept = self._kept.get(listed.ino)
        if kept is None or kept.names is not listed.names:
            kept = self._kept[listed.ino] = _Encoded(listed.names)
        # Rounded down, so that the entries of a folder in use change at most once a second.
        kept.set_timeout(float(int(listed.timeout)))
        given = self._give(token, handle, start, kept)
        self._files.remember(kept.inos[max(start, len(DOTS)) : given])

    def _give(self, token: pyfuse3.ReaddirToken, handle: int, start: int, kept: _Encoded) -> int:
        """Add entries from `start` on until the reply is full; return the next entry's number."""
        reply = pyfuse3.readdir_reply
        while True:
            if (known := len(kept.entries)) < min(start + STEP, len(kept.names)):
                more = self._files.readdir(handle, known)
                for name, attr, following in islice(more, start + STEP - known):
                    kept.entries.append((name, self._encode(attr), following))
                    kept.inos.append(attr.ino)
            for name, entry, following in kept.entries[start : start + STEP]:
                if not reply(token, name, entry, following):
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
