"""What a merge is given, and what it gives: a listing as it came, what is only here, what changed.

Must not know how a listing is fetched, nor how it is merged.
"""

from collections.abc import Container, Iterable, Sequence
from enum import Flag, auto
from typing import Protocol

import msgspec

from zonedrive.model import Entry


class Local(Flag):
    """What of an inode the service does not know yet."""

    NOTHING = 0
    CONTENT = auto()
    PLACE = auto()
    GONE = auto()


class Answer(Protocol):
    """A listing as it came; each entry has a number."""

    @property
    def ids(self) -> Sequence[str]:
        """By number, each once."""

    def said(self, number: int) -> bytes:
        """Everything the service says of it."""

    def entry(self, number: int) -> Entry | None:
        """The same, read; None where it is not there after all."""

    def unsure(self, number: int) -> bool:
        """Whether it does not really say what it is: then what is known of it stays."""

    @property
    def complete(self) -> bool:
        """Whether it names all there is: else what it does not name stays."""

    @property
    def strangers(self) -> Sequence[Entry]:
        """What has no id: only that its name is taken is known."""


class Read:
    """A listing whose entries have been read already."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self.ids = [entry.id for entry in self._entries]
        self.complete = True
        self.strangers: list[Entry] = []

    def said(self, number: int) -> bytes:
        """The entry, encoded."""
        return msgspec.msgpack.encode(self._entries[number])

    def entry(self, number: int) -> Entry | None:
        """The entry, unless it is deleted."""
        return None if self._entries[number].deleted else self._entries[number]

    def unsure(self, number: int) -> bool:
        """Never."""
        return False


class Merged(msgspec.Struct, eq=False):
    """What a listing changed, for those who cache."""

    gone: list[tuple[int, str, int]] = []  # parent, name, ino
    moved: list[tuple[int, str]] = []  # parent and name that a folder, still there, had before
    appeared: int = 0  # so many names
    content: list[int] = []  # other bytes
    copies: list[tuple[int, int]] = []  # inode and generation: copies of former bytes
    attributes: list[int] = []  # the same bytes, other attributes
    unsure: int = 0  # so many entries that do not really say what they are
    unshown: int = 0  # so many of them that were never seen, and so are not shown at all
    hidden: dict[str, Entry] = {}  # by name: not shown, be it for what it is or for a file of ours

    @property
    def changed(self) -> bool:
        """Whether anything is not as it was, but for the content of files."""
        return bool(self.gone or self.moved or self.appeared or self.attributes)


class Ours(Protocol):
    """What of the inodes the service does not know yet."""

    def local(self, ino: int) -> Local:
        """Of one."""

    def laden(self) -> Iterable[int]:
        """Of which `local` may tell anything."""

    def in_doubt(self, remote_id: str) -> Container[str]:
        """Names in a folder under which something of ours may have arrived."""

    def orphaned(self, ino: int) -> None:
        """A folder is no longer on the service, and kept for what is in it.  In a transaction."""
