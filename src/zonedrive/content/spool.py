"""Spool of content that the service does not have yet: one file for each local version.

A generation is the number of a local version of an inode's content. The spool is in the state
directory, and only `Spool.delete` removes files of the spool.

A file is named INODE-GENERATION.sealed if it is encrypted, else INODE-GENERATION.plain. The format
is part of the name, so that each file is read in its own format after a change of the setting
`encrypt`.

The manifests of encrypted files (see `manifest`) are in the database that names the files, so that
a file and its manifest are recorded in one transaction. A row with an empty manifest belongs to a
file whose state is unknown, because an earlier version wrote the file, or because the original row
was lost with a damaged database. All valid chunks of such a file are accepted.

INVARIANT: a file has one ContentFile object, shared by all its users.

INVARIANT: if the account has a key, a file can only be opened in its recorded state.
"""

import contextlib
import errno
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from zonedrive.cipher import Box
from zonedrive.content.content_file import Check, ContentFile, copy_file
from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.db import Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.paths import sync_folder

log = logging.getLogger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)\.(sealed|plain)", re.ASCII)
SUFFIXES = (".sealed", ".plain")
UNKNOWN = b""
# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
MANY = 500  # number of removed files at which their rows are deleted immediately

# Bytes that content leaves free on the disk for database records, without which uploads and
# removals would fail; at most the size of the disk divided by RESERVE_PART.
RESERVE = 16 << 20
RESERVE_PART = 8


def is_any_sealed(directory: Path) -> bool:
    """Return True if a spool folder exists and contains an encrypted file. Raises OSError."""
    return directory.exists() and any(
        path.suffix == SUFFIXES[0] and _NAME.fullmatch(path.name) for path in directory.iterdir()
    )


def oldest(directory: Path, contents: Iterable[tuple[int, int]]) -> float | None:
    """Return the earliest modification time of the spool files that exist, None if none exists.

    `contents` are the (inode, generation) pairs of the files. The time is in seconds since the
    epoch.
    """
    times = []
    for ino, generation in contents:
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):  # uploaded and deleted meanwhile
                times.append((directory / f"{ino}-{generation}{suffix}").stat().st_mtime)
                break
    return min(times, default=None)


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table `manifests`, which version 8 of the database schema added.

    Files from before version 8 get an empty manifest.
    """
    connection.execute(
        """
        CREATE TABLE manifests (
            ino INTEGER NOT NULL,         -- with `generation`: a file in the spool
            generation INTEGER NOT NULL,
            manifest BLOB NOT NULL,       -- encrypted; x'': unknown
            UNIQUE (ino, generation)
        )
        """
    )
    connection.execute(
        "INSERT OR IGNORE INTO manifests"
        " SELECT ino, generation, x'' FROM inodes WHERE generation > 0"
        " UNION SELECT ino, generation, x'' FROM intents WHERE generation > 0"
        " UNION SELECT bytes_ino, generation, x'' FROM doubts WHERE generation > 0"
    )


def check_row(row: Mapping[str, object], box: Box) -> None:
    """Check that the manifest in a row (values by column name) can be decrypted.

    Raises Damaged or ValueError if the manifest cannot be decrypted.
    """
    ino, generation, sealed = int(str(row["ino"])), int(str(row["generation"])), row["manifest"]
    if not isinstance(sealed, bytes):
        raise Damaged("a manifest is not a blob")
    _opened(box, ino, generation, sealed)


class Spool:
    """Folder of content files whose bytes the service does not have yet.

    Each file holds one local version of an inode's content, whose number is the generation.
    """

    def __init__(
        self,
        directory: Path,
        key: bytes | None,
        database: Database | None = None,
        box: Box | None = None,
        *,
        make_room: Callable[[int, Path], None] = lambda _size, _folder: None,
    ) -> None:
        """Store files in `directory`, encrypted under `key` if given.

        Manifests are stored in `database`, encrypted with `box`. If `database` or `box` is None,
        every valid file is accepted. `make_room` tries to free disk space for a number of bytes in
        a folder.
        """
        self._make_room = make_room
        self.directory = directory
        self._key = key
        self._table = None if key is None or database is None or box is None else (database, box)
        self._gone: dict[tuple[int, int], None] = {}  # removed files whose rows are still there
        self._open: dict[str, ContentFile] = {}  # open files, by name
        self._suffix, self._other = SUFFIXES if key is not None else SUFFIXES[::-1]

    def path(self, ino: int, generation: int) -> Path:
        """Return the path of a local version's file, or the path at which it can be created."""
        preferred = self._path(ino, generation)
        if preferred.exists() or not (other := preferred.with_suffix(self._other)).exists():
            return preferred
        return other

    def _path(self, ino: int, generation: int) -> Path:
        return self.directory / f"{ino}-{generation}{self._suffix}"

    @contextlib.contextmanager
    def _in_folder(self) -> Iterator[None]:
        """Raise OSError (EIO) instead of FileNotFoundError if the spool folder itself is missing.

        Otherwise, a program would see a missing file in the mount, and the upload queue would
        consider the file in the spool lost.
        """
        try:
            yield
        except FileNotFoundError as wrong:
            if self.directory.is_dir():
                raise
            raise OSError(errno.EIO, "the folder is missing", str(self.directory)) from wrong

    def room(self) -> int:
        """Return how many bytes can be stored without using reserved disk space. Raises OSError."""
        free, reserve = self._free()
        return max(0, free - reserve)

    def _free(self) -> tuple[int, int]:
        """Return the free and the reserved space of the disk in bytes. Raises OSError."""
        with self._in_folder():
            disk = os.statvfs(self.directory)
        size = disk.f_blocks * disk.f_frsize
        return disk.f_bavail * disk.f_frsize, min(RESERVE, size // RESERVE_PART)

    def require_room(self, size: int) -> None:
        """Raise OSError (ENOSPC) if storing `size` bytes would use reserved disk space.

        Before that, make room, if possible.
        """
        free, reserve = self._free()
        if free < size + reserve:
            self._make_room(size + reserve, self.directory)
            free, _ = self._free()
        if free < size + reserve:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, ino: int, generation: int) -> ContentFile:
        """Create and open an empty file for a local version.

        Raises OSError, including FileExistsError.
        """
        with self._in_folder():
            return self.adopt(create_file(self._path(ino, generation), self._key))

    def open(self, ino: int, generation: int) -> ContentFile:
        """Open a local version's file; each caller closes the result once.

        Raises OSError, such as FileNotFoundError. Raises Damaged if the file's header is
        damaged, or if its manifest is missing or belongs to another file. Raises StoreError if the
        file is encrypted and this account has no key.
        """
        for suffix in SUFFIXES:
            there = self._open.get(f"{ino}-{generation}{suffix}")
            if there is not None and not there.closed:
                return there.share()
        with self._in_folder():
            return self._open_file(ino, generation)

    def _open_file(self, ino: int, generation: int) -> ContentFile:
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
            return self.adopt(open_file(path, None))
        if self._key is None and path.exists():
            raise StoreError(
                f"the outgoing file {path.name} is encrypted",
                remedy="set encrypt = true until everything is uploaded",
            )
        return self.adopt(open_file(path, self._key, manifest))

    def manifest(self, ino: int, generation: int) -> bytes:
        """Return the recorded manifest of a local version's file, b"" if it is unknown.

        Raises Damaged if the file has no record or the record cannot be decrypted.
        """
        manifest = self._recorded(ino, generation)
        if manifest is None:
            raise Damaged(f"nothing is recorded of the file {ino}-{generation}")
        return manifest

    def _recorded(self, ino: int, generation: int) -> bytes | None:
        if self._table is None:
            return UNKNOWN
        if (ino, generation) in self._gone:
            return None
        database, box = self._table
        row = database.execute(
            "SELECT manifest FROM manifests WHERE ino = ? AND generation = ?", (ino, generation)
        ).fetchone()
        return None if row is None else _opened(box, ino, generation, row[0])

    def record(
        self, ino: int, generation: int, file: ContentFile, *, size: int | None = None
    ) -> None:
        """Record the flushed state of `file` as the manifest of a local version.

        Call this in the transaction that writes the rows naming the file. If `size` is given,
        record the state that the file will have after the caller truncates it to `size` bytes.
        """
        self._record(ino, generation, file.manifest(size=size))

    def _record(self, ino: int, generation: int, manifest: bytes) -> None:
        if self._table is None:
            return
        self._delete_rows()
        database, box = self._table
        sealed = box.seal(manifest, _context(ino, generation)) if manifest else UNKNOWN
        database.execute(
            "INSERT INTO manifests VALUES (?, ?, ?)"
            " ON CONFLICT (ino, generation) DO UPDATE SET manifest = excluded.manifest",
            (ino, generation, sealed),
        )

    def _delete_rows(self) -> None:
        """Delete the manifest rows of removed files."""
        if self._table is None or not self._gone:
            return
        database, _ = self._table
        with database.transaction():
            gone, self._gone = self._gone, {}
            database.on_rollback(lambda: self._gone.update(gone))
            database.execute_many(
                "DELETE FROM manifests WHERE ino = ? AND generation = ?", list(gone)
            )

    def link(self, ino: int, generation: int, other: int) -> None:
        """Create a hard link to a local version's file for the new inode `other`.

        The manifest is copied. If the file system has no hard links, create a copy of the file
        instead. A link or copy that already exists is kept. One exists if a process was killed
        before the commit, because the next new inode then gets the same number. Call this in a
        transaction. Raises OSError.
        """
        path = self.path(ino, generation)
        with contextlib.suppress(Damaged):  # the second name then has no record either
            self._record(other, generation, self.manifest(ino, generation))
        target = path.with_name(f"{other}-{generation}{path.suffix}")
        try:
            os.link(path, target)
        except FileExistsError:
            pass
        except OSError as wrong:
            if wrong.errno not in _NO_LINKS:
                raise
            part = target.with_name(f"{target.name}.part")  # ignored if the process is killed
            part.unlink(missing_ok=True)
            with path.open("rb") as file:
                copy_file(file.fileno(), part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.rename(target)
            sync_folder(target.parent)

    def trim(self, ino: int, generation: int, size: int) -> None:
        """Remove all bytes after the first `size` bytes from an unencrypted file.

        An encrypted file needs no such change, because its manifest contains the size. Call this
        while the file is not open. Raises OSError.
        """
        path = self.path(ino, generation)
        if path.suffix == ".plain" and path.stat().st_size > size:
            os.truncate(path, size)

    def accept(self, ino: int, generation: int) -> bool:
        """Store an empty manifest if a file's record is lost, so that the file can be opened.

        Returns True if the record was lost. Call this in a transaction.
        """
        is_lost = self._recorded(ino, generation) is None
        if is_lost:
            self._record(ino, generation, UNKNOWN)
        return is_lost

    def drop_records(self) -> None:
        """Delete the manifest records of missing files. Call this in a transaction."""
        if self._table is not None:
            rows = self._table[0].execute("SELECT ino, generation FROM manifests").fetchall()
            self._gone.update(dict.fromkeys(set(rows) - set(self.stored())))
            self._delete_rows()

    def tidy(self) -> None:
        """Delete the manifest rows of deleted files; if this fails, the next start tries again."""
        with contextlib.suppress(OSError, StoreError):
            self._delete_rows()

    def delete(self, ino: int, generation: int) -> None:
        """Delete a local version's file, if it exists; open content files stay usable.

        If the deletion fails, the next start deletes the file, because nothing refers to the local
        version any more.
        """
        path = self.path(ino, generation)
        self._open.pop(path.name, None)
        try:
            path.unlink(missing_ok=True)
        except OSError as wrong:
            log.warning("the outgoing file %s stays until the next start: %s", path.name, wrong)
        if self._table is not None:
            self._gone[ino, generation] = None
            if len(self._gone) >= MANY:
                self.tidy()

    def stored(self) -> list[tuple[int, int]]:
        """Return the sorted (inode, generation) pairs of all files, [] if there is no folder."""
        paths = self.directory.iterdir() if self.directory.exists() else ()
        found = (_NAME.fullmatch(path.name) for path in paths)
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def copy(
        self, source: ContentFile, ino: int, generation: int, check: Check = lambda: None
    ) -> ContentFile:
        """Create a local version's file as an independent copy of `source`, and open the copy.

        Call this in a thread, because the copy blocks. Then pass the result to `adopt` on the event
        loop. No thread may write to `source` during the copy. For `check`, see `Check`. Raises
        OSError, and StoreError if `source` was written to.
        """
        target = self.directory / f"{ino}-{generation}{source.path.suffix}"
        with self._in_folder():
            return source.copy_to(target, check)

    def adopt(self, file: ContentFile) -> ContentFile:
        """Register and return an open file that the caller created at a path of the spool."""
        self._open = {name: known for name, known in self._open.items() if not known.closed}
        self._open[file.path.name] = file
        return file


def _opened(box: Box, ino: int, generation: int, sealed: bytes) -> bytes:
    return box.open(sealed, _context(ino, generation)) if sealed else UNKNOWN


def _context(ino: int, generation: int) -> bytes:
    return b"manifest %d-%d" % (ino, generation)
