"""Version histories of files, requested only when a user looks at them.

Knows nothing about how histories are shown.  A history is valid for `refresh` seconds, or until a
listing shows another version.  While the service is unreachable, the last history is used.
Histories are only in memory.

INVARIANT: at most one request per file is in progress; all callers share the answer.
"""

import math
import time
from collections.abc import Sequence

import trio
from cachetools import LRUCache

from zonedrive.errors import NotFound, NotLoggedOn, Unavailable, Unreachable, ZonedriveError
from zonedrive.model import Version
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache

PATIENCE_S = 3.0  # seconds that a caller with an older history waits for the answer
KEPT = 50_000  # versions of recently requested histories


class VersionList:
    """History of one file as reported by the service; immutable."""

    def __init__(self, versions: Sequence[Version], revision: str, asked_s: float) -> None:
        """Store the versions; `revision` is the file's revision at the request time `asked_s`."""
        self.versions = versions  # newest first
        self.revision = revision
        self._asked_s = asked_s
        self._took_s = _now_s() - asked_s

    def serves(self, revision: str, refresh_s: float) -> bool:
        """Return True if no request is needed; a slow history is valid longer, as with listings."""
        age_s = _now_s() - self._asked_s
        return revision == self.revision and age_s < max(refresh_s, 2 * self._took_s)


class _Request(Flight):
    """Request for a history under way."""

    result: VersionList | Exception | None = None  # None: cancelled


class VersionLists:
    """Cached histories of files."""

    def __init__(self, state: LocalState, service: Service, folders: DirectoryCache) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._kept: LRUCache[tuple[str, str], VersionList] = LRUCache(
            KEPT, lambda past: min(len(past.versions) + 1, KEPT)
        )
        self._requests: SingleFlight[tuple[str, str], _Request] = SingleFlight()

    def file(self, zone: str, file_id: str) -> Inode | None:
        """Return the file of a history, or None if it does not exist any more."""
        inode = self._state.inodes.by_remote(zone, file_id)
        return None if inode is None or inode.parent == NOWHERE else inode

    def known(self, zone: str, file_id: str) -> VersionList | None:
        """Return the cached history."""
        return self._kept.get((zone, file_id))

    def present(self, inode: Inode) -> str:
        """Return the version number of the file's current content, or "" if unknown."""
        past = self.known(inode.zone, inode.remote_id or "")
        if past is None or not past.versions or inode.generation:
            return ""
        newest = past.versions[0]
        return newest.version if newest.revision == inode.revision else ""

    async def past(self, file: Inode) -> VersionList:
        """Return the history of a file, at most `refresh` seconds old if the service answers."""
        zone, file_id = file.zone, file.remote_id or ""
        past = self.known(zone, file_id)
        if past is not None:
            if past.serves(file.revision, self._state.settings.refresh):
                return past
            if self._service.link.state != "online":
                return past
        result = await self._shared(file, past)
        if isinstance(result, VersionList):
            return result
        raise result

    async def _shared(self, file: Inode, past: VersionList | None) -> VersionList | Exception:
        """Return the answer to a request that is under way, or to a new one."""
        key = file.zone, file.remote_id or ""
        while (other := self._requests.get(key)) is not None:
            await other.wait()
            if other.result is not None:
                return other.result
        with self._requests.flying(key, _Request()) as request:
            request.result = await self._ask(file, past)
            return request.result

    async def asked(self, file: Inode) -> Sequence[Version]:
        """Return the current versions of a file from the service, newest first.

        Raises the service's errors and NotSupported.
        """
        asked_s, revision = _now_s(), file.revision
        versions = await self._service.versions(file.zone, file.remote_id or "")
        self._told(file, VersionList(versions, revision, asked_s))
        return versions

    async def _ask(self, file: Inode, past: VersionList | None) -> VersionList | Exception:
        zone, file_id, asked_s = file.zone, file.remote_id or "", _now_s()
        revision, versions = file.revision, None
        try:
            with trio.move_on_after(PATIENCE_S if past is not None else math.inf):
                versions = await self._service.versions(zone, file_id)
        except (Unreachable, Unavailable, NotLoggedOn) as wrong:
            return wrong if past is None else past
        except ZonedriveError as wrong:
            self._kept.pop((zone, file_id), None)
            if isinstance(wrong, NotFound):
                self._folders.forget(file.parent)
            return wrong
        if versions is None:
            return past or AssertionError("nobody is patient for ever")
        told = VersionList(versions, revision, asked_s)
        self._told(file, told)
        return told

    def _told(self, file: Inode, past: VersionList) -> None:
        if past.versions and past.versions[0].revision != past.revision:
            # The listing must show the same version as the history.
            self._folders.forget(file.parent)
        self._kept[file.zone, file.remote_id or ""] = past


def _now_s() -> float:
    """Return the seconds since boot, including the time during which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
