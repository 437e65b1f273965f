"""How long a daemon that says nothing is waited for: as long as it lives.

Must not know what it was asked, nor accounts.

Whether it lives is asked on a connection beside the silent one, since one answer comes after the
other.  Time is counted in slices that were waited for: a machine that stands still, or has just
slept, has waited for one of them, not for an hour.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from zonedrive.daemon import process, protocol

SLICE_SECONDS = 0.5

QUIET_SECONDS = 3.0
"""Of silence, until it is asked for a sign of life, and from one to the next."""

SIGN_SECONDS = 2.0
"""How long that may take …"""

WORKING_SECONDS = 30.0
"""… where it computes, or waits for its disk."""

CLOSING_SECONDS = 60.0
"""The longest silence of one that has taken its socket away: it closes its stores."""


class Patience:
    """With the daemon at the other end of one connection."""

    def __init__(
        self,
        connection: socket.socket,
        again: Callable[[], socket.socket],
        pid: int | None,
    ) -> None:
        """`again` makes another connection, or raises OSError; `pid` is the daemon's."""
        self._connection, self._again, self._pid = connection, again, pid
        self.is_slow = False

    def lines(self, longest: float | None) -> Iterator[bytes]:
        """What comes, line by line, to the end.

        Raises TimeoutError where it hangs, or, with `is_slow`, after `longest` seconds without a
        word though it lives.
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
        except OSError:  # no socket any more: it is ending, or has ended
            stopped = self._pid is not None and process.is_stopped(self._pid)
            if stopped or quiet >= CLOSING_SECONDS:
                raise TimeoutError from None
            return
        with beside:
            with suppress(ConnectionError):  # it has just ended: an end, too, can be read
                beside.sendall(protocol.encode({"command": protocol.PULSE}))
            wait(lambda: readable(beside, SLICE_SECONDS), self._pid)


def connect(path: Path, pid: int | None) -> socket.socket:
    """A connection to the daemon at `path`; `pid` is its process.

    Raises OSError where none listens, TimeoutError where it takes none, or protocol.Stranger.
    """
    made: list[socket.socket] = []

    def is_taken() -> bool:
        try:
            made.append(protocol.connect(path, SIGN_SECONDS))
        except BlockingIOError:  # too many wait to be taken already
            time.sleep(SLICE_SECONDS)
        return bool(made)

    wait(is_taken, pid)
    made[0].settimeout(WORKING_SECONDS)  # that a long request may take to be written
    return made[0]


def wait(look: Callable[[], bool], pid: int | None) -> None:
    """Return when `look`, which takes a slice each time, has seen it; else raise TimeoutError."""
    left = SIGN_SECONDS
    while not look():
        working = pid is not None and process.is_working(pid)
        left -= SLICE_SECONDS * (SIGN_SECONDS / WORKING_SECONDS if working else 1.0)
        if left <= 0:
            raise TimeoutError


def readable(connection: socket.socket, seconds: float) -> bool:
    """Whether there is something to read, or the end, before so much time is over."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
