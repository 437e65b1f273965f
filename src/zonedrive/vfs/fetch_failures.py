"""Files whose content could not be fetched recently, with the reasons, for the log and the status.

The list is only in memory.  A failed read returns only an errno to its program, without the reason.

INVARIANT: the log gets at most one line per file and kind of failure in QUIET_S.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from zonedrive.content.cache import Cache
from zonedrive.errors import BadAnswer, NotLoggedOn, RemoteError, Unavailable, Unreachable
from zonedrive.formatting import count
from zonedrive.remote.connectivity import Connectivity
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.inodes import Inodes

log = logging.getLogger(__name__)

QUIET_S = 60.0
REMEMBERED_S = 600.0
MOST = 100  # number of newest failures to keep


class _Failure(msgspec.Struct, frozen=True):
    """Last failure of one file."""

    kind: type[Exception]
    said: str
    at: float
    logged_at: float
    is_told: bool  # to people; a refusal speaks for itself


class FetchFailures:
    """Failed downloads of the last REMEMBERED_S seconds, by file."""

    def __init__(
        self,
        tree: Inodes,
        cache: Cache,
        link: Connectivity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree, self._cache, self._link, self._clock = tree, cache, link, clock
        self._failures: dict[int, _Failure] = {}  # by inode, the oldest first
        cache.fetch_failed.add(self.add)

    def add(self, ino: int, error: RemoteError) -> None:
        """Record and log that content of the inode could not be fetched.

        Failures while the service is unreachable or needs a logon are left out, because the
        service's state already tells the reason for all files.
        """
        is_away = isinstance(error, Unreachable | NotLoggedOn) and self._link.state != "online"
        if is_away:
            return
        now, kind, before = self._clock(), type(error), self._failures.pop(ino, None)
        logged_at = now
        if before is not None and before.kind is kind and now - before.logged_at < QUIET_S:
            logged_at = before.logged_at
        else:
            log.info("inode %d: its content could not be fetched: %s", ino, error)
        is_told = isinstance(error, Unreachable | Unavailable | BadAnswer)
        self._failures[ino] = _Failure(kind, error.line(), now, logged_at, is_told)
        if len(self._failures) > MOST:
            del self._failures[next(iter(self._failures))]

    def recent(self) -> list[tuple[Inode, str]]:
        """Return the files that are still incomplete with their reasons, newest last."""
        since, found = self._clock() - REMEMBERED_S, []
        for ino, failure in self._failures.items():
            inode = self._tree.find(ino) if failure.is_told and failure.at > since else None
            if inode is None or inode.parent == NOWHERE:
                continue
            if not self._cache.is_complete(ino, inode.revision):
                found.append((inode, failure.said))
        return found

    def notice(self) -> str:
        """Return one line about recent failures, or ""."""
        if not (recent := self.recent()):
            return ""
        inode, said = recent[-1]
        more = f" (and {count(len(recent) - 1, 'more file')} as well)" if len(recent) > 1 else ""
        return f"{self._tree.path(inode.ino)} could not be fetched lately{more}: {said}"
