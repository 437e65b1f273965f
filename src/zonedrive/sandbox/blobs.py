"""Content files below --data: written beside, then published by one rename.

Must not know names, zones or users.  INVARIANT: a file in `content/` is whole and never changes.
What a crash leaves behind (files in `incoming/`, content that no version names) is swept at start.
"""

import os
import secrets
from collections.abc import Set
from pathlib import Path


def new_id() -> str:
    """An identifier for an entry or a version: 32 hexadecimal digits."""
    return secrets.token_hex(16)


class Blobs:
    """The folders `content/` and `incoming/`."""

    def __init__(self, data: Path) -> None:
        self._content = data / "content"
        self._incoming = data / "incoming"
        for folder in (self._content, self._incoming):
            folder.mkdir(mode=0o700, exist_ok=True)
        for number in range(256):
            (self._content / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)

    def path(self, version_id: str) -> Path:
        """Where the content of a version lies."""
        return self._content / version_id[:2] / version_id

    def incoming(self) -> Path:
        """A new place to write content to, not yet visible as content."""
        return self._incoming / new_id()

    def publish(self, source: Path, version_id: str) -> None:
        """Make a whole, synced file the content of a version."""
        source.rename(self.path(version_id))

    def delete(self, version_id: str) -> None:
        """Remove content; whoever reads it just now reads on."""
        self.path(version_id).unlink(missing_ok=True)

    def sweep(self, known: Set[str]) -> int:
        """Remove what no version in `known` names; returns the number of files removed."""
        removed = 0
        for leftover in self._incoming.iterdir():
            leftover.unlink()
            removed += 1
        for folder in self._content.iterdir():
            for file in os.scandir(folder):
                if file.name not in known:
                    Path(file.path).unlink()
                    removed += 1
        return removed
