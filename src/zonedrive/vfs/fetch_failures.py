"""Files whose content could not be fetched recently, with the reasons, for the log and the status.

The list is kept only in memory. A program gets only an errno from a failed read, not the reason.

INVARIANT: the log gets at most one line per file in QUIET_S seconds.
"""

import logging
from collections.abc import Callable

import trio
from cachetools import TTLCache

from zonedrive.content.cache import Cache
from zonedrive.errors import BadAnswer, NotLoggedOn, RemoteError, Unavailable, Unreachable
from zonedrive.formatting import count
from zonedrive.remote.connectivity import Connectivity
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.inodes import Inodes
from zonedrive.translation import marked

log = logging.getLogger(__name__)

QUIET_S = 60.0
REMEMBERED_S = 600.0
MOST = 100  # number of newest failures to keep
LOGGED = 10_000  # number of files for which QUIET_S is observed


class FetchFailures:
    """Files whose last fetch failed within REMEMBERED_S seconds."""

    def __init__(
        self,
        inodes: Inodes,
        cache: Cache,
        link: Connectivity,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._inodes, self._cache, self._link = inodes, cache, link
        # Reasons by inode, the newest last; "" for an error that the errno explains well enough.
        self._reasons: TTLCache[int, str] = TTLCache(MOST, REMEMBERED_S, clock)
        self._logged: TTLCache[int, None] = TTLCache(LOGGED, QUIET_S, clock)
        cache.fetched.add(self.note)

    def note(self, ino: int, error: RemoteError | None) -> None:
        """Record and log a failed fetch of an inode's content; clear the record if `error` is None.

        Failures while the service is unreachable or requires a logon are ignored, because the
        connection state already explains them.
        """
        if isinstance(error, Unreachable | NotLoggedOn) and self._link.state != "online":
            return
        self._reasons.pop(ino, None)
        if error is None:
            return
        if ino not in self._logged:
            log.info("inode %d: its content could not be fetched: %s", ino, error)
            self._logged[ino] = None
        is_told = isinstance(error, Unreachable | Unavailable | BadAnswer)
        self._reasons[ino] = error.line() if is_told else ""

    def recent(self) -> list[tuple[Inode, str]]:
        """Return the incomplete files whose last fetch failed, each with the reason of the failure.

        Failures that the errno explains well enough are left out. The file that failed last is at
        the end.
        """
        found = []
        for ino, reason in list(self._reasons.items()):
            inode = self._inodes.find(ino) if reason else None
            if inode is None or inode.parent == NOWHERE or inode.generation:
                continue
            if not self._cache.is_complete(ino, inode.revision):
                found.append((inode, reason))
        return found

    def notice(self) -> str:
        """Return one line about recent failures for the status, or "" if there are none."""
        if not (recent := self.recent()):
            return ""
        inode, said = recent[-1]
        more = f" (and {count(len(recent) - 1, 'more file')} as well)" if len(recent) > 1 else ""
        path = self._inodes.path(inode.ino)
        return marked(f"{path} could not be fetched recently{more}: {said}")
