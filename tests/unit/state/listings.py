"""Listings whose entries are decoded already."""

from collections.abc import Iterable

import msgspec

from zonedrive.model import Entry


class Read:
    """Listing of these entries."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self.ids = [entry.id for entry in self._entries]
        self.complete = True
        self.strangers: list[Entry] = []

    def said(self, number: int) -> bytes:
        """Return the encoded entry."""
        return msgspec.msgpack.encode(self._entries[number])

    def entry(self, number: int) -> Entry | None:
        """Return the entry, or None if it is deleted."""
        return None if self._entries[number].deleted else self._entries[number]

    def unsure(self, number: int) -> bool:
        """Return False."""
        return False
