"""Spool: bytes that the service does not have yet, one file for each generation of an inode.

Knows nothing about inodes or about the use of the bytes.  The spool is in the state directory, and
only `delete` removes its files.

A file is named INODE-GENERATION.sealed or .plain.  The format is part of the name, so that a
changed `encrypt` setting never confuses the two.

INVARIANT: a file has one ContentFile object, shared by all its users.

INVARIANT: with a key, a file can only be opened in its recorded state.
"""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from zonedrive.content.content_file import ContentFile
from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.content.manifest_table import UNKNOWN, ManifestTable
from zonedrive.errors import Damaged, StoreError

log = logging.getLogger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)\.(sealed|plain)", re.ASCII)
SUFFIXES = (".sealed", ".plain")

# Bytes that content leaves free on the disk; on a small disk a part of it.  Database records need
# this space: without it, uploads and removals would fail.
RESERVE = 16 << 20
RESERVE_PART = 8


def is_any_sealed(directory: Path) -> bool:
    """Return True if a spool folder exists and has an encrypted file.  Raises OSError."""
    return directory.exists() and any(
        path.suffix == SUFFIXES[0] and _NAME.fullmatch(path.name) for path in directory.iterdir()
    )


def files(directory: Path) -> int:
    """Return the number of files in a spool folder, 0 if it does not exist.  Raises OSError."""
    found = directory.iterdir() if directory.exists() else ()
    return sum(_NAME.fullmatch(path.name) is not None for path in found)


def oldest(directory: Path, contents: Iterable[tuple[int, int]]) -> float | None:
    """Return the earliest last write of these contents in seconds since the epoch, or None."""
    times = []
    for ino, generation in contents:
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):  # sent meanwhile
                times.append((directory / f"{ino}-{generation}{suffix}").stat().st_mtime)
                break
    return min(times, default=None)


class Spool:
    """Outgoing bytes in one folder."""

    def __init__(
        self, directory: Path, key: bytes | None, manifests: ManifestTable | None = None
    ) -> None:
        """Store files in `directory`, encrypted under `key` if given.

        Without `manifests` no state is recorded, and every valid file is accepted.
        """
        self.directory = directory
        self._key = key
        self._manifests = None if key is None else manifests
        self._open: dict[str, ContentFile] = {}  # by name
        self._suffix, self._other = SUFFIXES if key is not None else SUFFIXES[::-1]

    def path(self, ino: int, generation: int) -> Path:
        """Return the path of a generation, or the path for creating it."""
        preferred = self._path(ino, generation)
        if preferred.exists() or not (other := preferred.with_suffix(self._other)).exists():
            return preferred
        return other

    def _path(self, ino: int, generation: int) -> Path:
        return self.directory / f"{ino}-{generation}{self._suffix}"

    def room(self) -> int:
        """Return how many bytes of content fit on the disk."""
        disk = os.statvfs(self.directory)
        reserve = min(RESERVE, disk.f_blocks * disk.f_frsize // RESERVE_PART)
        return max(0, disk.f_bavail * disk.f_frsize - reserve)

    def require_room(self, size: int) -> None:
        """Raise OSError (ENOSPC) if this many bytes do not fit above the reserve."""
        if self.room() < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, ino: int, generation: int) -> ContentFile:
        """Create an empty file.  Raises OSError, including FileExistsError."""
        return self._keep(create_file(self._path(ino, generation), self._key))

    def open(self, ino: int, generation: int) -> ContentFile:
        """Open a generation; each caller closes it once.

        Raises FileNotFoundError; Damaged if the head fails its check or the file is not the
        recorded one; StoreError if the file is encrypted and this account is not.
        """
        for suffix in SUFFIXES:
            there = self._open.get(f"{ino}-{generation}{suffix}")
            if there is not None and not there.closed:
                return there.share()
        path = self.path(ino, generation)
        try:
            manifest = self.manifest(ino, generation)
        except Damaged:
            if path.exists():
                raise
            manifest = UNKNOWN  # the missing file is reported below
        if path.suffix == ".plain":
            if manifest != UNKNOWN:
                raise Damaged(f"{path.name} is not the file that was recorded")
            return self._keep(open_file(path, None))
        if self._key is None and path.exists():
            raise StoreError(
                f"the outgoing file {path.name} is encrypted",
                remedy="set encrypt = true until everything is uploaded",
            )
        return self._keep(open_file(path, self._key, manifest))

    def manifest(self, ino: int, generation: int) -> bytes:
        """Return the recorded manifest of a generation, b"" if unknown.  Raises Damaged."""
        if self._manifests is None:
            return UNKNOWN
        manifest = self._manifests.get(ino, generation)
        if manifest is None:
            raise Damaged(f"nothing is recorded of the file {ino}-{generation}")
        return manifest

    def record(
        self, ino: int, generation: int, file: ContentFile, *, size: int | None = None
    ) -> None:
        """Record the flushed state of `file` as the current state of a generation.

        Call this in the transaction of the rows that name the file.  `size`: the file is about to
        be cut to this size.
        """
        if self._manifests is not None:
            self._manifests.put(ino, generation, file.manifest(size=size))

    def link(self, ino: int, generation: int, other: int) -> None:
        """Create a second name for a generation, under another inode, in a transaction.

        Raises OSError.
        """
        path = self.path(ino, generation)
        if self._manifests is not None:
            with contextlib.suppress(Damaged):  # the second name has no record either
                self._manifests.put(other, generation, self.manifest(ino, generation))
        os.link(path, path.with_name(f"{other}-{generation}{path.suffix}"))

    def accept_unrecorded(self) -> int:
        """Accept files whose records are lost; return their number.

        Call this in a transaction, and only after a damaged database was repaired.
        """
        if self._manifests is None:
            return 0
        lost = [each for each in self.stored() if self._manifests.get(*each) is None]
        for ino, generation in lost:
            self._manifests.put(ino, generation, UNKNOWN)
        return len(lost)

    def accept(self, ino: int, generation: int) -> None:
        """Accept a file whose record is lost, in a transaction, so that it can be shown."""
        if self._manifests is not None and self._manifests.get(ino, generation) is None:
            self._manifests.put(ino, generation, UNKNOWN)

    def drop_records(self) -> None:
        """Delete the records of missing files, in a transaction."""
        if self._manifests is not None:
            self._manifests.keep_only(set(self.stored()))

    def tidy(self) -> None:
        """Delete the manifest rows of deleted files; on a full disk this is done later."""
        if self._manifests is not None:
            with contextlib.suppress(OSError, StoreError):
                self._manifests.sweep()

    def delete(self, ino: int, generation: int) -> None:
        """Delete a generation, if it exists; open handles stay usable.

        If the disk refuses, the next start deletes it: nothing refers to the generation any more.
        """
        path = self.path(ino, generation)
        self._open.pop(path.name, None)
        try:
            path.unlink(missing_ok=True)
        except OSError as wrong:
            log.warning("the outgoing file %s stays until the next start: %s", path.name, wrong)
        if self._manifests is not None:
            with contextlib.suppress(OSError, StoreError):  # on a full disk: done at the next start
                self._manifests.delete(ino, generation)

    def stored(self) -> list[tuple[int, int]]:
        """Return all (inode, generation) pairs, sorted."""
        paths = self.directory.iterdir() if self.directory.exists() else ()
        found = (_NAME.fullmatch(path.name) for path in paths)
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def copy(self, source: ContentFile, ino: int, generation: int) -> ContentFile:
        """Create a generation as an independent copy of `source`, and open it.

        No thread may write to `source` meanwhile.  Blocks; raises OSError.
        """
        target = self.directory / f"{ino}-{generation}{source.path.suffix}"
        return self._keep(source.copy_to(target))

    def adopt(self, file: ContentFile) -> ContentFile:
        """Register an open file that the caller created at a path of the spool."""
        return self._keep(file)

    def _keep(self, file: ContentFile) -> ContentFile:
        self._open = {name: known for name, known in self._open.items() if not known.closed}
        self._open[file.path.name] = file
        return file
