"""Input and output of a merge: a raw listing, the local state, and the resulting changes.

Knows nothing about how a listing is fetched or merged.
"""

from collections.abc import Container, Iterable, Sequence
from enum import Flag, auto
from typing import Protocol

import msgspec

from zonedrive.model import Entry


class Local(Flag):
    """Local changes of an inode that the service does not have yet."""

    NOTHING = 0
    CONTENT = auto()
    PLACE = auto()
    GONE = auto()


class RawListing(Protocol):
    """Raw listing of a folder; its entries are numbered."""

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the entries, in the order of their numbers; each id occurs once."""

    def said(self, number: int) -> bytes:
        """Return the raw bytes of an entry."""

    def entry(self, number: int) -> Entry | None:
        """Return the decoded entry, or None if it is deleted."""

    def unsure(self, number: int) -> bool:
        """Return True if the reply does not identify the entry; the known state is then kept."""

    @property
    def complete(self) -> bool:
        """True if the listing names all entries; otherwise unnamed entries are kept."""

    @property
    def strangers(self) -> Sequence[Entry]:
        """Entries that have no id; the only known fact is that their names are taken."""


class Read:
    """Listing whose entries are already decoded."""

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


class Merged(msgspec.Struct, eq=False):
    """Changes that the merge of a listing made, for the owners of caches."""

    gone: list[tuple[int, str, int]] = []  # parent, name, ino
    moved: list[tuple[int, str]] = []  # parent and name that a folder, still there, had before
    appeared: int = 0  # number of new names
    content: list[int] = []  # other bytes
    copies: list[tuple[int, int]] = []  # inode and generation: copies of former bytes
    attributes: list[int] = []  # the same bytes, other attributes
    unsure: int = 0  # number of entries that the reply does not identify
    unshown: int = 0  # number of such entries without an inode, which are not shown
    hidden: dict[str, Entry] = {}  # by name: not shown, because unidentified or a local file's name

    @property
    def changed(self) -> bool:
        """Return True if any names or attributes changed; file content does not count."""
        return bool(self.gone or self.moved or self.appeared or self.attributes)


class LocalView(Protocol):
    """Interface to the local changes that the service does not have yet."""

    def local(self, ino: int) -> Local:
        """Return the local changes of an inode."""

    def with_local_changes(self) -> Iterable[int]:
        """Return the inodes for which `local` may return a change."""

    def in_doubt(self, remote_id: str) -> Container[str]:
        """Return names in a folder under which a pending request may have created an entry."""

    def orphaned(self, ino: int) -> None:
        """Record, in a transaction, that a folder is kept although the service no longer has it."""
