"""The spool: bytes that the service does not have yet, one file for each generation of an inode.

Must not know what an inode is, nor what becomes of the bytes.  It lies in the state directory:
nothing here is ever removed but by `delete`.

A file is named INODE-GENERATION.sealed or .plain: the way it is stored is part of the name, so
that a switched `encrypt` setting never takes the one for the other.
INVARIANT: one ContentFile object for one file, shared by all who have it open.
INVARIANT: with a key, a file is opened as the state that was recorded of it, or not at all.
"""

import contextlib
import errno
import os
import re
from pathlib import Path

from zonedrive.content.codec import create_file, open_file
from zonedrive.content.file import ContentFile
from zonedrive.content.manifest_table import UNKNOWN, ManifestTable
from zonedrive.errors import Damaged, StoreError

_NAME = re.compile(r"(\d+)-(\d+)\.(sealed|plain)", re.ASCII)
SUFFIXES = (".sealed", ".plain")

# Bytes of the disk that content leaves free, on a small disk a part of it: the records of what
# waits need room, too, or nothing could be sent or removed any more.
RESERVE = 16 << 20
RESERVE_PART = 8


def is_any_sealed(directory: Path) -> bool:
    """Whether a file in the folder of a spool, if there is one, is encrypted.  Raises OSError."""
    return directory.exists() and any(
        path.suffix == SUFFIXES[0] and _NAME.fullmatch(path.name) for path in directory.iterdir()
    )


def files(directory: Path) -> int:
    """How many files are in the folder of a spool, if there is one.  Raises OSError."""
    found = directory.iterdir() if directory.exists() else ()
    return sum(_NAME.fullmatch(path.name) is not None for path in found)


class Spool:
    """Outgoing bytes below one folder."""

    def __init__(
        self, directory: Path, key: bytes | None, manifests: ManifestTable | None = None
    ) -> None:
        """Keep files in `directory`, sealed under `key` where there is one.

        Without `manifests`, nothing is recorded of the files, and each stands for itself.
        """
        self.directory = directory
        self._key = key
        self._manifests = None if key is None else manifests
        self._open: dict[str, ContentFile] = {}  # by name
        self._suffix, self._other = SUFFIXES if key is not None else SUFFIXES[::-1]

    def path(self, ino: int, generation: int) -> Path:
        """Where this generation is, or would be made."""
        preferred = self._path(ino, generation)
        if preferred.exists() or not (other := preferred.with_suffix(self._other)).exists():
            return preferred
        return other

    def _path(self, ino: int, generation: int) -> Path:
        return self.directory / f"{ino}-{generation}{self._suffix}"

    def room(self) -> int:
        """Bytes of content that the disk still takes."""
        disk = os.statvfs(self.directory)
        reserve = min(RESERVE, disk.f_blocks * disk.f_frsize // RESERVE_PART)
        return max(0, disk.f_bavail * disk.f_frsize - reserve)

    def require_room(self, size: int) -> None:
        """Raises OSError (ENOSPC) where so many bytes would not leave the reserve alone."""
        if self.room() < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, ino: int, generation: int) -> ContentFile:
        """Make an empty file.  Raises OSError as it comes, FileExistsError among them."""
        return self._keep(create_file(self._path(ino, generation), self._key))

    def open(self, ino: int, generation: int) -> ContentFile:
        """Open a generation; everybody who does closes it once.

        Raises FileNotFoundError, Damaged where its head fails its check or it is not the file
        that was recorded, StoreError where it is encrypted and this account is not any more.
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
            manifest = UNKNOWN  # that it is gone is what counts
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
        """What is recorded of a generation, b"" where nothing is known.  Raises Damaged."""
        if self._manifests is None:
            return UNKNOWN
        manifest = self._manifests.get(ino, generation)
        if manifest is None:
            raise Damaged(f"nothing is recorded of the file {ino}-{generation}")
        return manifest

    def record(
        self, ino: int, generation: int, file: ContentFile, *, size: int | None = None
    ) -> None:
        """Record the state of a generation as the present one, as far as `file` was flushed.

        In the transaction of the rows that name it.  `size`: the file is about to be cut to that.
        """
        if self._manifests is not None:
            self._manifests.put(ino, generation, file.manifest(size=size))

    def link(self, ino: int, generation: int, other: int) -> None:
        """Give a generation a second name, of another inode.  In a transaction.  Raises OSError."""
        path = self.path(ino, generation)
        if self._manifests is not None:
            with contextlib.suppress(Damaged):  # what has no record has none by any name
                self._manifests.put(other, generation, self.manifest(ino, generation))
        os.link(path, path.with_name(f"{other}-{generation}{path.suffix}"))

    def accept_unrecorded(self) -> int:
        """Let files whose records are lost stand for themselves; how many there are.

        In a transaction, and only after a damaged database.
        """
        if self._manifests is None:
            return 0
        lost = [each for each in self.stored() if self._manifests.get(*each) is None]
        for ino, generation in lost:
            self._manifests.put(ino, generation, UNKNOWN)
        return len(lost)

    def accept(self, ino: int, generation: int) -> None:
        """Let a file whose record is lost stand for itself, to be shown.  In a transaction."""
        if self._manifests is not None and self._manifests.get(ino, generation) is None:
            self._manifests.put(ino, generation, UNKNOWN)

    def drop_records(self) -> None:
        """Forget what is recorded of files that are not there any more.  In a transaction."""
        if self._manifests is not None:
            self._manifests.keep_only(set(self.stored()))

    def tidy(self) -> None:
        """Forget what is still recorded of files that were deleted; on a full disk, later."""
        if self._manifests is not None:
            with contextlib.suppress(OSError, StoreError):
                self._manifests.sweep()

    def delete(self, ino: int, generation: int) -> None:
        """Remove a generation, if it is there; who has it open can go on."""
        path = self.path(ino, generation)
        self._open.pop(path.name, None)
        path.unlink(missing_ok=True)
        if self._manifests is not None:
            with contextlib.suppress(OSError, StoreError):  # a full disk: the next start does it
                self._manifests.delete(ino, generation)

    def stored(self) -> list[tuple[int, int]]:
        """Every (inode, generation) there is, in order."""
        paths = self.directory.iterdir() if self.directory.exists() else ()
        found = (_NAME.fullmatch(path.name) for path in paths)
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def copy(self, source: ContentFile, ino: int, generation: int) -> ContentFile:
        """Make a generation that is an independent copy of another one, and open it.

        Nobody may write to `source` meanwhile.  Blocks; raises OSError.
        """
        target = self.directory / f"{ino}-{generation}{source.path.suffix}"
        return self._keep(source.copy_to(target))

    def adopt(self, file: ContentFile) -> ContentFile:
        """Take note of an open file that somebody else made at one of our paths."""
        return self._keep(file)

    def _keep(self, file: ContentFile) -> ContentFile:
        self._open = {name: known for name, known in self._open.items() if not known.closed}
        self._open[file.path.name] = file
        return file
