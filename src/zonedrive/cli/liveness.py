"""Wait for a silent daemon as long as it is alive.

Knows nothing about the request or about accounts.

A second connection tests whether the daemon is alive, because answers on one connection come in
order. Time is counted in slices that were actually waited for, so that a suspended machine counts
one slice, not an hour.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from zonedrive.daemon import lock, protocol

SLICE_SECONDS = 0.5

QUIET_SECONDS = 3.0
"""Seconds of silence before each test whether the daemon is alive."""

SIGN_SECONDS = 2.0
"""Maximum duration of that test in seconds."""

WORKING_SECONDS = 30.0
"""Maximum duration of that test in seconds while the daemon computes or waits for its disk."""

CLOSING_SECONDS = 60.0
"""Longest silence in seconds of a daemon that has removed its socket and closes its stores."""


class Liveness:
    """Wait for the daemon at the other end of one connection."""

    def __init__(
        self,
        connection: socket.socket,
        again: Callable[[], socket.socket],
        pid: int | None,
    ) -> None:
        """Set `again`, which opens another connection or raises OSError, and the daemon's `pid`."""
        self._connection, self._again, self._pid = connection, again, pid
        self.is_slow = False

    def lines(self, longest: float | None) -> Iterator[bytes]:
        """Yield the received lines until the end.

        Raises TimeoutError if the daemon hangs. If it is alive but silent for `longest` seconds,
        raises TimeoutError and sets `is_slow`.
        """
        buffer = b""
        while True:
            self._wait(longest)
            chunk = self._connection.recv(65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from lines

    def _wait(self, longest: float | None) -> None:
        quiet, asked = 0.0, 0.0
        while not readable(self._connection, SLICE_SECONDS):
            quiet += SLICE_SECONDS
            if quiet >= asked + QUIET_SECONDS:
                asked = quiet
                self._require_life(quiet)
            if longest is not None and quiet >= longest:
                self.is_slow = True
                raise TimeoutError

    def _require_life(self, quiet: float) -> None:
        try:
            beside = self._again()
        except TimeoutError:
            raise
        except OSError:  # the socket is gone: the daemon is ending or has ended
            stopped = self._pid is not None and lock.is_stopped(self._pid)
            if stopped or quiet >= CLOSING_SECONDS:
                raise TimeoutError from None
            return
        with beside:
            with suppress(ConnectionError):  # it has just ended; the read below detects that
                beside.sendall(protocol.encode({"command": protocol.PULSE}))
            wait(lambda: readable(beside, SLICE_SECONDS), self._pid)


def connect(path: Path, pid: int | None) -> socket.socket:
    """Return a connection to the daemon at `path`; `pid` is its process.

    Raises OSError if no process listens there, TimeoutError if it does not accept, or
    protocol.ForeignSocketError.
    """
    made: list[socket.socket] = []

    def is_taken() -> bool:
        try:
            made.append(protocol.connect(path, SIGN_SECONDS))
        except BlockingIOError:  # the listen queue is full
            time.sleep(SLICE_SECONDS)
        return bool(made)

    wait(is_taken, pid)
    made[0].settimeout(WORKING_SECONDS)  # time limit for writing a long request
    return made[0]


def wait(look: Callable[[], bool], pid: int | None) -> None:
    """Return when `look`, which takes one slice per call, returns True; else raise TimeoutError."""
    left = SIGN_SECONDS
    while not look():
        working = pid is not None and lock.is_working(pid)
        left -= SLICE_SECONDS * (SIGN_SECONDS / WORKING_SECONDS if working else 1.0)
        if left <= 0:
            raise TimeoutError


def readable(connection: socket.socket, seconds: float) -> bool:
    """Return True if data or the end of input arrives within `seconds`."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
