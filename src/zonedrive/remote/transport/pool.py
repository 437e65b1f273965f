"""Open connections of one client, reused in last-in, first-out order.

Knows nothing about requests.

INVARIANT: a connection is lent to one request at a time, and returns to the pool only after its
response was read to the end; any other connection is closed.
INVARIANT: the pool does not limit the number of connections; it equals the caller's number of
concurrent requests.
"""

import threading
import time

import httpx

from zonedrive.remote.transport.connection import Connection
from zonedrive.remote.transport.tls import Trust

KEPT = 32  # maximum number of idle connections
KEEP_SECONDS = 300.0


class Pool:
    """Connections to one origin. Thread-safe."""

    def __init__(self, trust: Trust, keep_seconds: float = KEEP_SECONDS) -> None:
        """Create an empty pool that keeps idle connections for at most `keep_seconds`."""
        self._trust = trust
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._ended = False

    def __len__(self) -> int:
        """Return the number of connections, idle and lent."""
        return len(self._idle) + len(self._lent)

    def borrow(self, url: httpx.URL, *, new: bool) -> Connection:
        """Return a connection to the host of `url`; `new`: never an idle one."""
        found: Connection | None = None
        over = []
        with self._lock:
            if self._ended:
                raise httpx.ConnectError("all connections are closed")
            while self._idle and not new and found is None:
                found = self._idle.pop()
                if (
                    found.origin != (url.scheme, url.netloc)
                    or time.monotonic() - found.free_since > self._keep_seconds
                    or not found.is_quiet()
                ):
                    over.append(found)
                    found = None
            found = found or Connection(self._trust, url)
            self._lent.add(found)
        for each in over:
            each.close()
        return found

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool after its response was read to the end."""
        connection.release()
        with self._lock:
            self._lent.discard(connection)
            keep = not self._ended and len(self._idle) < KEPT
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def discard(self, connection: Connection) -> None:
        """Close a lent connection."""
        with self._lock:
            self._lent.discard(connection)
        connection.close()

    def has_idle(self) -> bool:
        """Return True if an idle connection is usable."""
        with self._lock:
            return any(each.is_quiet() for each in self._idle)

    def drop_idle(self) -> None:
        """Close the idle connections.

        After a suspend or a change of network all of them are dead, and each would delay a request
        until a timeout.
        """
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def cut(self) -> None:
        """Abort all lent connections; their requests may be retried."""
        with self._lock:
            for each in self._lent:
                each.abort()

    def hang_up(self) -> None:
        """Close all connections, abort the lent ones, and open no more."""
        with self._lock:
            self._ended = True
        self.cut()
        self.drop_idle()
