"""Store for the content of file versions, with one file per version in the data folder (--data).

This module does not depend on names, zones or users. Content is written to a file in `incoming/`,
which is then moved to `content/`. INVARIANT: a file in `content/` is complete and never changes.
The next start removes the files that a crash left behind: all files in `incoming/`, and content
files that no version refers to.
"""

import os
import secrets
from collections.abc import Set
from pathlib import Path


def new_id() -> str:
    """Return a new id for an entry or a version: 32 hexadecimal digits."""
    return secrets.token_hex(16)


class Blobs:
    """Store of content files, in the folders `content/` and `incoming/`."""

    def __init__(self, data: Path) -> None:
        self._content = data / "content"
        self._incoming = data / "incoming"
        for folder in (self._content, self._incoming):
            folder.mkdir(mode=0o700, exist_ok=True)
        for number in range(256):
            (self._content / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)

    def path(self, version_id: str) -> Path:
        """Return the path of a version's content file."""
        return self._content / version_id[:2] / version_id

    def incoming(self) -> Path:
        """Return an unused path below `incoming/`, to which content can be written."""
        return self._incoming / new_id()

    def publish(self, source: Path, version_id: str) -> None:
        """Move `source`, a complete and synced file, to the path of a version's content."""
        source.rename(self.path(version_id))

    def delete(self, version_id: str) -> None:
        """Delete a version's content; readers that have the file open can still read all of it."""
        self.path(version_id).unlink(missing_ok=True)

    def sweep(self, known: Set[str]) -> int:
        """Remove all files in `incoming/`, and the content files of unknown versions.

        A crash can leave such files behind. `known` contains the ids of all versions. Return the
        number of removed files.
        """
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
