"""Folder `.versions` in each folder, in which programs can read former versions of files.

The folder exists if the service can list and download versions.

    FOLDER/.versions/               a folder for each file of FOLDER that the service has
    FOLDER/.versions/NAME/          the versions of NAME, including the newest version
    FOLDER/.versions/NAME/VERSION   the bytes of one version, named by `version_name`

The bytes are read through the cache, where each version has its own inode number. The newest
version is read from the cached content of the file NAME if that content is complete.

The folder NAME belongs to the entry on the service, so the folder stays the same when a program
saves by renaming a new file over the old one.

The history of a file is requested only when a program reads the history. A history is valid for
`refresh` seconds (a setting), or until a listing shows another version. While the service is
unreachable, the cached history is used. Histories are kept only in memory.

INVARIANT: every change is refused with EROFS. The files nevertheless have write permission in their
mode, because a program that copies a file also copies its mode.
INVARIANT: at most one request per file is in progress; all callers share its result.
"""

import errno
import hashlib
import logging
import math
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

import trio
from cachetools import LRUCache

from zonedrive.boot_clock import since_boot_ns
from zonedrive.content.reader import Reader
from zonedrive.errors import (
    Changed,
    NotFound,
    NotLoggedOn,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.model import Version
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.state import names
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.inode_table import batches
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.remote_source import VersionSource
from zonedrive.vfs import open_checks
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.views.virtual import Content, Node, SyncState, number, refuse_writing

log = logging.getLogger(__name__)

NAME = ".versions"
DIGITS = 5  # digits of the number in a name, so that names sort in version order
EXTENSION = 20  # bytes; a longer suffix is not an extension
PATIENCE_S = 3.0  # seconds of the first wait; doubled after each wait without a response
READ_ONLY_FOLDER = stat.S_IFDIR | 0o500
KEPT = 50_000  # versions of recently requested histories


def extension_of(name: str) -> str:
    """Return the extension of a file name with its dot, or "" if the name has no extension."""
    stem, dot, extension = name.rpartition(".")
    return dot + extension if stem and len(extension.encode()) <= EXTENSION else ""


def version_name(version: Version, extension: str) -> str:
    """Return the file name of a version: `NUMBER_TIME_AUTHOR.EXTENSION`.

    The number comes first and is padded with zeros, so that listings are in version order. Time (in
    UTC, the same for all users) and author describe the version. The extension tells programs the
    file type. The name has no spaces, so a shell needs no quotes. If a service has no version
    numbers, the time comes first, and a short hash of the version id makes names unique.
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
    """Return `name` with a short hash of the version's id added, which makes the name unique."""
    digest = hashlib.sha256(version.id.encode("utf-8", "surrogatepass")).hexdigest()
    return names.with_mark(name, f"~{digest[:8]}")


class VersionList:
    """History of one file as reported by the service."""

    def __init__(self, versions: Sequence[Version], revision: str, asked_ns: int) -> None:
        """Store the versions, newest first.

        `asked_ns` is the time of the request, in nanoseconds since boot, and `revision` is the
        file's revision at that time.
        """
        self.versions = versions
        self.revision = revision
        self.patience_s = PATIENCE_S  # seconds that a caller waits for a newer history
        self._asked_ns = asked_ns
        self._took_ns = since_boot_ns() - asked_ns
        self._extension = ""
        self._named: dict[str, Version] = {}

    def serves(self, revision: str, refresh_s: float) -> bool:
        """Return True if this history is still valid for a file with `revision`.

        The history must have been requested at the same revision. A history is valid for
        `refresh_s` seconds, or for twice the duration of its request, whichever is longer.
        """
        age_ns = since_boot_ns() - self._asked_ns
        return revision == self.revision and age_ns < max(refresh_s * 1e9, 2 * self._took_ns)

    def identifies(self, revision: str) -> bool:
        """Return True if exactly one version has `revision`.

        If the service's times are imprecise, several versions with the same size and author can
        have the same revision.
        """
        return sum(version.revision == revision for version in self.versions) == 1

    def named(self, extension: str) -> Mapping[str, Version]:
        """Return the versions by file name, oldest first; each name ends with `extension`."""
        if not self._named or extension != self._extension:
            self._extension, self._named = extension, {}
            for version in reversed(self.versions):
                name = version_name(version, extension)
                if name in self._named:  # some services use a number twice
                    name = with_mark(name, version)
                self._named[name] = version
        return self._named


class _Request(Flight):
    result: VersionList | Exception | None = None  # None: cancelled


@dataclass(eq=False)
class Versions:
    """Histories of files, and the virtual folder `.versions` in each folder of a zone."""

    state: LocalState
    service: Service
    folders: DirectoryCache
    callers: CallerPolicy
    name: ClassVar[str] = NAME

    def __post_init__(self) -> None:
        self._kept: LRUCache[tuple[str, str], VersionList] = LRUCache(
            KEPT, lambda past: min(len(past.versions) + 1, KEPT)
        )
        self._requests: SingleFlight[tuple[str, str], _Request] = SingleFlight()

    def open(self, folder: int) -> Node | None:
        service, inode = self.service, self.state.inodes.get(folder)
        if inode.kind is Kind.ROOT or inode.local:
            return None
        if not (service.can("versions") and service.can("version_content")):
            return None
        return _Files(self, folder)

    def number(self, *what: str) -> int:
        return number(self.state.database.identity, *what)

    def known(self, zone: str, file_id: str) -> VersionList | None:
        """Return the cached version list of a file, which may be outdated, or None."""
        return self._kept.get((zone, file_id))

    def present(self, inode: Inode) -> str:
        """Return the version number of the file's current content, or "" if unknown."""
        past = self.known(inode.zone, inode.remote_id or "")
        if past is None or not past.versions or inode.generation:
            return ""
        newest = past.versions[0]
        return newest.version if newest.revision == inode.revision else ""

    async def past(self, file: Inode) -> VersionList:
        """Return the history of a file, at most `refresh` seconds old if the service answers.

        While the service is unreachable, return the cached history. Also return the cached history
        if the response takes longer than the history's `patience_s`. The next call then waits twice
        as long, so that the history can be renewed even if the service is slow. Raises NotSupported
        if the service cannot list versions, and the service's errors.
        """
        past = self.known(file.zone, file.remote_id or "")
        if past is not None and (
            past.serves(file.revision, self.state.settings.refresh)
            or self.service.link.state != "online"
        ):
            return past
        result = await self._shared(file, past)
        if isinstance(result, VersionList):
            return result
        raise result

    async def _shared(self, file: Inode, past: VersionList | None) -> VersionList | Exception:
        """Return the result of the request in progress for the file, or of a new request.

        `past` is the version list that the last request returned, or None.
        """
        key = file.zone, file.remote_id or ""
        while (other := self._requests.get(key)) is not None:
            await other.wait()
            if other.result is not None:
                return other.result
        with self._requests.flying(key, _Request()) as request:
            request.result = await self._ask(file, past)
            return request.result

    async def _ask(self, file: Inode, past: VersionList | None) -> VersionList | Exception:
        entry = file.zone, file.remote_id or ""
        try:
            with trio.move_on_after(past.patience_s if past is not None else math.inf):
                return await self.requested(file)
        except (Unreachable, Unavailable, NotLoggedOn) as wrong:
            return wrong if past is None else past
        except ZonedriveError as wrong:
            self._kept.pop(entry, None)
            if isinstance(wrong, NotFound):
                self.folders.forget(file.parent)
            return wrong
        assert past is not None, "without an older history there is no timeout"
        past.patience_s *= 2
        return past

    async def requested(self, file: Inode) -> VersionList:
        """Request the current history from the service, keep it in memory, and return it.

        Raises the errors of the method `past`.
        """
        asked_ns, revision = since_boot_ns(), file.revision
        entry = file.zone, file.remote_id or ""  # the file may take over another entry meanwhile
        versions = await self.service.versions(*entry)
        past = VersionList(versions, revision, asked_ns)
        if versions and versions[0].revision != revision:
            # The listing must show the same version as the history.
            self.folders.forget(file.parent)
        self._kept[entry] = past
        return past


def _kind(file: Inode | None) -> dict[str, str]:
    """Return the extended attributes that all versions of a file have in common."""
    return {"type": file.type, "sync": file.sync} if file is not None else {"type": "", "sync": ""}


class _Files(Node):
    """Folder `.versions`, with a folder for each file that the service has."""

    mode = READ_ONLY_FOLDER

    def __init__(self, root: Versions, folder: int) -> None:
        super().__init__(root.number("versions", str(folder)))
        self._root = root
        self._inodes = root.state.inodes
        self._folder = folder

    @property
    def mtime_ns(self) -> int:  # type: ignore[override]
        folder = self._inodes.find(self._folder)
        return folder.mtime_ns if folder is not None else 0

    def xattrs(self) -> dict[str, str]:
        return {**super().xattrs(), "zone": self._inodes.get(self._folder).zone}

    def sync_state(self) -> SyncState:
        return SyncState("versions on the service")

    async def child(self, name: str) -> Node | None:
        folder = await self._listed()
        inode = self._inodes.child(folder.ino, name)
        return None if inode is None else self._history(inode)

    async def children(self) -> Mapping[str, Node]:
        folder = await self._listed()
        for _ in self._inodes.loading(folder.ino):
            await trio.lowlevel.checkpoint()
        found: dict[str, Node] = {}
        for batch in batches(list(self._inodes.children(folder.ino).values())):
            for inode in self._inodes.get_all(batch):
                history = self._history(inode)
                if history is not None and inode.parent == folder.ino:
                    found[inode.name] = history
            await trio.lowlevel.checkpoint()
        return found

    def _history(self, inode: Inode) -> "_History | None":
        if inode.is_folder or inode.remote_id is None:
            return None
        return _History(self._root, inode.zone, inode.remote_id)

    async def _listed(self) -> Inode:
        folder = self._inodes.find(self._folder)
        if folder is not None:
            await self._root.folders.ensure(folder)
        if folder is None or folder.parent == NOWHERE:
            raise FileNotFoundError(errno.ENOENT, "the folder has been removed")
        return folder


class _History(Node):
    """Folder of the versions of one file; the file is identified by its entry on the service."""

    mode = READ_ONLY_FOLDER

    def __init__(self, root: Versions, zone: str, file_id: str) -> None:
        super().__init__(root.number("history", zone, file_id))
        self.root = root
        self.zone = zone
        self.file_id = file_id

    @property
    def file(self) -> Inode | None:
        """Inode of the file, or None if the file does not exist any more."""
        inode = self.root.state.inodes.by_remote(self.zone, self.file_id)
        return None if inode is None or inode.parent == NOWHERE else inode

    @property
    def known(self) -> VersionList | None:
        return self.root.known(self.zone, self.file_id)

    @property
    def mtime_ns(self) -> int:  # type: ignore[override]
        return self.file.mtime_ns if self.file is not None else 0

    def xattrs(self) -> dict[str, str]:
        file = self.file
        return {
            "id": self.file_id,
            "zone": self.zone,
            "state": "remote" if self.known is None else "cached",
            "modified_by": file.modified_by if file is not None else "",
            **_kind(file),
        }

    def sync_state(self) -> SyncState:
        return SyncState("versions on the service", file=self.file.ino if self.file else 0)

    async def child(self, name: str) -> Node | None:
        file, known = self._present_file(), self.known
        version = None if known is None else known.named(extension_of(file.name)).get(name)
        if version is None:  # a version never changes, so known versions need no request
            version = (await self._named(file)).get(name)
        return None if version is None else _FormerVersion(self, version)

    async def children(self) -> Mapping[str, Node]:
        named = await self._named(self._present_file())
        return {name: _FormerVersion(self, version) for name, version in named.items()}

    async def _named(self, file: Inode) -> Mapping[str, Version]:
        return (await self.root.past(file)).named(extension_of(file.name))

    def _present_file(self) -> Inode:
        if (file := self.file) is None:
            raise FileNotFoundError(errno.ENOENT, "the file has been removed")
        return file


class _FormerVersion(Node):
    """File with the bytes of one version; the bytes never change."""

    def __init__(self, history: _History, version: Version) -> None:
        told = (version.version, version.id, str(version.size), str(version.modified_ns))
        super().__init__(history.root.number("version", history.zone, history.file_id, *told))
        self.size, self.mtime_ns = version.size, version.modified_ns
        self._state = history.root.state
        self.timeout = self._state.settings.refresh
        self._history = history
        self._version = version

    @property
    def mode(self) -> int:  # type: ignore[override]
        file = self._history.file
        protected = file is not None and file.attributes.read_protected
        return stat.S_IFREG | (0 if protected else 0o600)

    def xattrs(self) -> dict[str, str]:
        version, cache = self._version, self._state.cache
        here = not version.size or cache.is_complete(self.ino, version.id) or self._whole_file()
        return {
            "id": version.id,
            "zone": self._history.zone,
            "state": "cached" if here else "remote",
            "modified_by": version.modified_by,
            **_kind(self._history.file),
            "version": version.version,
        }

    def sync_state(self) -> SyncState:
        file = self._history.file
        return SyncState("a version on the service", file=file.ino if file else 0)

    async def open(self, flags: int, pid: int) -> Content:
        refuse_writing(flags)
        if not self.mode & stat.S_IRUSR:
            raise PermissionError(errno.EACCES, "read-protected on the service")
        self._require_size()
        reader = self._reader()
        if not reader.complete and self._history.root.callers.guarded(pid, flags):
            reader.close()
            open_checks.refuse_guarded()
        return _Reading(reader)

    def _reader(self) -> Reader:
        state, version, history = self._state, self._version, self._history
        file = self._whole_file()
        if file is not None:
            return state.cache.open(file.ino, file.revision, version.size, state.source(file))
        source = VersionSource(history.root.service, history.zone, history.file_id, version.version)
        return state.cache.open(self.ino, version.id, version.size, source)

    def _whole_file(self) -> Inode | None:
        """Return the file's inode if the cached content of the file is this version, else None.

        Also return None if the cached content is incomplete.
        """
        file, known = self._history.file, self._history.known
        if file is None or not file.revision or file.revision != self._version.revision:
            return None
        if known is None or not known.identifies(file.revision):
            return None
        return file if self._state.cache.is_complete(file.ino, file.revision) else None

    def _require_size(self) -> None:
        """Raise OSError (EIO) if the service reports no sizes of versions.

        Without their sizes, the versions would look empty.
        """
        file, known = self._history.file, self._history.known
        if self.size or file is None or known is None or file.generation or not file.size:
            return
        if not any(version.size for version in known.versions):
            log.warning("versions cannot be read, because the service does not report their sizes")
            raise OSError(errno.EIO, "the service does not report its size")


class _Reading(Content):
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at `offset`; fetch bytes that are not in the cache.

        Raises OSError (ESTALE) if the version has changed on the service.
        """
        data = self._reader.available(offset, size)
        if data is not None:
            return bytes(data)
        try:
            return bytes(await self._reader.read(offset, size))
        except Changed as wrong:
            raise OSError(errno.ESTALE, "changed on the service; open it again") from wrong

    def close(self) -> None:
        self._reader.close()
