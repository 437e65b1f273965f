"""Former versions as files: `.versions` in each folder, if the profile supports versions.

    FOLDER/.versions/               a folder for each file of FOLDER that the service has
    FOLDER/.versions/NAME/          its versions, including the newest one
    FOLDER/.versions/NAME/VERSION   the bytes of one version, named by `version_name`

The bytes are read through the cache, where each version has its own inode number.  The newest
version is read from the cached file itself.

The folder of a file belongs to the remote entry: it stays the same when a program saves by renaming
a new file over the old one.

INVARIANT: everything is read-only: every change is refused with EROFS.
"""

import errno
import hashlib
import logging
import stat
from collections.abc import Mapping
from datetime import UTC, datetime

import trio
from cachetools import LRUCache

from zonedrive.content.reader import Reader
from zonedrive.content.source import Changed
from zonedrive.model import Version
from zonedrive.remote.service import Service
from zonedrive.state import names
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.remote_source import VersionSource
from zonedrive.vfs import open_checks
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.views.nodes import File, Folder, Node, ReadOnly, SyncState, number, refuse_writing
from zonedrive.views.version_list import VersionList, VersionLists

log = logging.getLogger(__name__)

NAME = ".versions"
DIGITS = 5  # digits of the number in a name, so that names sort in version order
NAMED = 16  # number of histories whose names are cached
EXTENSION = 20  # bytes; a longer suffix is not an extension


def extension_of(name: str) -> str:
    """Return the extension of a name with its dot, or ""."""
    stem, dot, extension = name.rpartition(".")
    return dot + extension if stem and len(extension.encode()) <= EXTENSION else ""


def version_name(version: Version, extension: str) -> str:
    """Return the file name of a version: `NUMBER_TIME_AUTHOR.EXTENSION`.

    The number comes first and is padded with zeros, so that listings are in version order.  Time
    (in UTC, so that it is the same for all users) and author describe the version.  The extension
    tells programs the file type.  The name has no spaces, so a shell needs no quotes.  If a service
    has no version numbers, the time comes first, and a mark of the version's id makes names unique.
    """
    numbered = version.version.isascii() and version.version.isdecimal()
    parts = [version.version.zfill(DIGITS)] if numbered else []
    if version.modified_ns:
        moment = datetime.fromtimestamp(version.modified_ns // 1_000_000_000, UTC)
        parts.append(f"{moment:%Y-%m-%dT%H-%M-%SZ}")
    if version.modified_by:
        parts.append(names.safe(version.modified_by))
        if not extension:
            # Otherwise the end of an address, such as `.com`, would look like an extension.
            parts.append("")
    name = ("_".join(parts) or "version") + extension
    return name if numbered and names.fits(name) else with_mark(name, version)


def with_mark(name: str, version: Version) -> str:
    """Return a name with a mark of the version's id, short enough for the kernel."""
    digest = hashlib.sha256(version.id.encode("utf-8", "surrogatepass")).hexdigest()
    return names.with_mark(name, f"~{digest[:8]}")


class Versions:
    """Virtual folder `.versions` in each folder of a zone."""

    name = NAME

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        histories: VersionLists,
        callers: CallerPolicy,
    ) -> None:
        self.state = state
        self.service = service
        self.callers = callers
        self.folders = folders
        self.histories = histories
        # By entry: the history, the extension, and the names derived from them.
        self._named: LRUCache[tuple[str, str], tuple[VersionList, str, dict[str, Version]]] = (
            LRUCache(NAMED)
        )

    def open(self, folder: int) -> Folder | None:
        """Return `.versions` of a folder of a zone, or None."""
        service, inode = self.service, self.state.inodes.get(folder)
        if inode.kind is Kind.ROOT or inode.local:
            return None
        if not (service.can("versions") and service.can("version_content")):
            return None
        return _Files(self, folder)

    def number(self, *what: str) -> int:
        """Return an inode number for a virtual entry."""
        return number(self.state.database.identity, *what)

    def named(self, file: Inode, past: VersionList) -> Mapping[str, Version]:
        """Return the versions of a file by name, the oldest first."""
        entry, extension = (file.zone, file.remote_id or ""), extension_of(file.name)
        before, made_for, named = self._named.get(entry, (None, "", {}))
        if before is not past or made_for != extension:
            named = {}
            for version in reversed(past.versions):
                name = version_name(version, extension)
                if name in named:  # some services use a number twice
                    name = with_mark(name, version)
                named[name] = version
            self._named[entry] = past, extension, named
        return named


class _Files(Folder):
    """Folder `.versions`: each file of the folder appears as a folder."""

    def __init__(self, door: Versions, folder: int) -> None:
        super().__init__(door.number("versions", str(folder)))
        self._door = door
        self._state = door.state
        self._folder = folder

    @property
    def mtime_ns(self) -> int:  # type: ignore[override]
        folder = self._state.inodes.find(self._folder)
        return folder.mtime_ns if folder is not None else 0

    def xattrs(self) -> dict[str, str]:
        return {"id": "", "zone": self._state.inodes.get(self._folder).zone, "state": "local"}

    def standing(self) -> SyncState:
        return SyncState("versions, which the service has")

    async def child(self, name: str) -> Node | None:
        folder = await self._listed()
        inode = self._state.inodes.child(folder.ino, name)
        return None if inode is None else self._history(inode)

    async def children(self) -> Mapping[str, Node]:
        folder = await self._listed()
        for _ in self._state.inodes.loading(folder.ino):
            await trio.lowlevel.checkpoint()
        inodes = self._state.inodes.get_all(self._state.inodes.children(folder.ino).values())
        found = ((inode.name, self._history(inode)) for inode in inodes)
        return {name: history for name, history in found if history is not None}

    def _history(self, inode: Inode) -> "_History | None":
        if inode.is_folder or inode.remote_id is None:
            return None
        return _History(self._door, inode.zone, inode.remote_id)

    async def _listed(self) -> Inode:
        folder = self._state.inodes.find(self._folder)
        if folder is not None:
            await self._door.folders.ensure(folder)
        if folder is None or folder.parent == NOWHERE:
            raise FileNotFoundError(errno.ENOENT, "the folder has been removed")
        return folder


class _History(Folder):
    """Folder of the versions of one file."""

    def __init__(self, door: Versions, zone: str, file_id: str) -> None:
        super().__init__(door.number("history", zone, file_id))
        self._door = door
        self._histories = door.histories
        self._zone = zone
        self._file_id = file_id

    @property
    def mtime_ns(self) -> int:  # type: ignore[override]
        file = self._histories.file(self._zone, self._file_id)
        return file.mtime_ns if file is not None else 0

    def xattrs(self) -> dict[str, str]:
        known = self._histories.known(self._zone, self._file_id)
        kept = "remote" if known is None else "cached"
        return {"id": self._file_id, "zone": self._zone, "state": kept}

    def standing(self) -> SyncState:
        file = self._histories.file(self._zone, self._file_id)
        return SyncState("versions, which the service has", file=file.ino if file else 0)

    async def child(self, name: str) -> Node | None:
        known = self._histories.known(self._zone, self._file_id)
        named: Mapping[str, Version]
        named = {} if known is None else self._door.named(self._file(), known)
        if name not in named:  # a version never changes, so known versions need no request
            named = await self._named()
        version = named.get(name)
        return None if version is None else self._version(version)

    async def children(self) -> Mapping[str, Node]:
        named = await self._named()
        return {name: self._version(version) for name, version in named.items()}

    async def _named(self) -> Mapping[str, Version]:
        file = self._file()
        return self._door.named(file, await self._histories.past(file))

    def _file(self) -> Inode:
        file = self._histories.file(self._zone, self._file_id)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "the file has been removed")
        return file

    def _version(self, version: Version) -> "_FormerVersion":
        return _FormerVersion(self._door, self._zone, self._file_id, version)


class _FormerVersion(File):
    """One version of a file, which never changes."""

    def __init__(self, door: Versions, zone: str, file_id: str, version: Version) -> None:
        told = (version.version, version.id, str(version.size), str(version.modified_ns))
        super().__init__(door.number("version", zone, file_id, *told))
        self.size, self.mtime_ns = version.size, version.modified_ns
        self.timeout = door.state.settings.refresh
        self._histories = door.histories
        self._state = door.state
        self._door = door
        self._zone = zone
        self._file_id = file_id
        self._version = version

    @property
    def mode(self) -> int:  # type: ignore[override]
        file = self._histories.file(self._zone, self._file_id)
        protected = file is not None and file.attributes.read_protected
        return stat.S_IFREG | (0 if protected else 0o444)

    def xattrs(self) -> dict[str, str]:
        version, cache = self._version, self._state.cache
        here = not version.size or cache.is_complete(self.ino, version.id) or self._whole_file()
        return {
            "id": version.id,
            "zone": self._zone,
            "state": "cached" if here else "remote",
            "modified_by": version.modified_by,
            "version": version.version,
        }

    def standing(self) -> SyncState:
        file = self._histories.file(self._zone, self._file_id)
        return SyncState("a version, which the service has", file=file.ino if file else 0)

    async def open(self, flags: int, pid: int) -> "_Reading":
        refuse_writing(flags)
        if not self.mode & 0o444:
            raise PermissionError(errno.EACCES, "read-protected on the service")
        self._require_size()
        reader = self._reader()
        if not reader.complete and self._door.callers.guarded(pid, flags):
            reader.close()
            open_checks.refuse_guarded()
        return _Reading(reader)

    def _reader(self) -> Reader:
        state, version = self._state, self._version
        file = self._whole_file()
        if file is not None:
            return state.cache.open(file.ino, file.revision, version.size, state.source(file))
        source = VersionSource(
            self._door.service.transfer, self._zone, self._file_id, version.version
        )
        return state.cache.open(self.ino, version.id, version.size, source)

    def _whole_file(self) -> Inode | None:
        """Return the file if this is its current version and is completely cached."""
        file = self._histories.file(self._zone, self._file_id)
        if file is None or not file.revision or file.revision != self._version.revision:
            return None
        return file if self._state.cache.is_complete(file.ino, file.revision) else None

    def _require_size(self) -> None:
        """Refuse to open versions of a service that reports no sizes, as they would look empty.

        Raises OSError (EIO).
        """
        file = self._histories.file(self._zone, self._file_id)
        past = self._histories.known(self._zone, self._file_id)
        if self.size or file is None or past is None or file.generation or not file.size:
            return
        if not any(version.size for version in past.versions):
            log.warning("the service does not say how large versions are: they cannot be read")
            raise OSError(errno.EIO, "the service does not say how large it is")


class _Reading(ReadOnly):
    """Open version of a file."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at `offset`, fetched if they are not local."""
        data = self._reader.available(offset, size)
        if data is not None:
            return bytes(data)
        try:
            return bytes(await self._reader.read(offset, size))
        except Changed as wrong:
            raise OSError(errno.ESTALE, "not what it was, open it again") from wrong

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
