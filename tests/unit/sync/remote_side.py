"""Service in memory that raises a failed assertion if a real one would refuse.

Knows only ids, names and versions; content is a number.
"""

from dataclasses import dataclass, field

ROOT_ID = "root"


class TakenError(Exception):
    """Error for a name or folder in use: the caller tries again later."""


@dataclass
class Entry:
    """File or, without versions, a folder."""

    folder: str
    name: str
    versions: list[int] = field(default_factory=list)


class Service:
    """Entries by id."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._last = 0

    def put(self, folder: str, name: str, content: int) -> str:
        """Add a file or, for content 0, a folder."""
        self._require_free(folder, name)
        self._last += 1
        self.entries[f"e{self._last}"] = Entry(folder, name, [content] if content else [])
        return f"e{self._last}"

    def add_version(self, entry_id: str, known: int, content: int) -> None:
        """Add a version to a file, based on its newest version."""
        versions = self.entries[entry_id].versions
        assert len(versions) == known, f"a conflict with oneself: {versions} after {known}"
        versions.append(content)

    def move(self, entry_id: str, folder: str, name: str) -> None:
        """Change folder or name of an entry."""
        entry = self.entries[entry_id]
        if (entry.folder, entry.name) == (folder, name):
            return
        self._require_free(folder, name)
        above = folder
        while above != ROOT_ID:
            assert above != entry_id, "a folder was moved into itself"
            above = self.entries[above].folder
        entry.folder, entry.name = folder, name

    def delete(self, entry_id: str | None) -> None:
        """Delete an entry, which may be deleted already."""
        if any(each.folder == entry_id for each in self.entries.values()):
            raise TakenError("the folder is not empty")
        self.entries.pop(entry_id or "", None)

    def find(self, folder: str, name: str, entry_id: str | None, content: int) -> str | None:
        """Return the entry that a pending request has created, or given a version."""
        for found, entry in self.entries.items():
            there = entry_id == found if entry_id else (entry.folder, entry.name) == (folder, name)
            if there and entry.versions[-1:] == ([content] if content else []):
                return found
        return None

    def tree(self) -> dict[str, int]:
        """Return the content by path; 0 for folders."""
        return {self._path(entry_id): (entry.versions or [0])[-1]
                for entry_id, entry in self.entries.items()}  # fmt: skip

    def _path(self, entry_id: str) -> str:
        entry = self.entries[entry_id]
        above = "" if entry.folder == ROOT_ID else self._path(entry.folder) + "/"
        return above + entry.name

    def _require_free(self, folder: str, name: str) -> None:
        assert folder == ROOT_ID or folder in self.entries, f"no folder for {name}"
        if any((each.folder, each.name) == (folder, name) for each in self.entries.values()):
            raise TakenError(name)
