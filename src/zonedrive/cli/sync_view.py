"""Output of `zonedrive sync`: progress and result.

Knows nothing about how the daemon is asked to sync.

INVARIANT: an exit code other than 0 has a line with the reason.
"""

import time
from collections.abc import Callable
from pathlib import Path

from zonedrive.cli.text_output import complain, count, line
from zonedrive.daemon.protocol import Message
from zonedrive.formatting import saved, unsent
from zonedrive.fuse import mountpoint

FILE_BYTES = 64 << 10
"""Number of bytes that a progress bar adds for each file."""

LINES = 5
"""Maximum number of failures printed individually."""

PROGRAMS = 2
"""Maximum number of programs named for one open file."""

HELD_SECONDS = 3.0
"""Seconds after which an open file is reported, because its upload waits for the close."""


SAVED = "copy out of it what you need, then remove it there"
"""Remedy for files in lost+found."""


class SyncProgress:
    """Progress of a `sync`, relative to the largest amount of pending data seen."""

    def __init__(self) -> None:
        self._files = self._bytes = 0

    def at(self, message: Message) -> tuple[float, str]:
        """Return the finished fraction (0 to 1) and a text for a progress message of the daemon."""
        left = message["left"]
        self._files, self._bytes = max(self._files, left["files"]), max(self._bytes, left["bytes"])
        # Small files take time as well, and some changes have no bytes at all.
        whole = self._bytes + self._files * FILE_BYTES
        done = 1 - (left["bytes"] + left["files"] * FILE_BYTES) / whole if whole else 0.0
        text = f"{unsent(left)} left"
        state = message.get("state", "online")
        return done, text if state == "online" else f"{state}: {text}"


class Held:
    """Files whose upload waits until a program closes them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def at(self, message: Message) -> list[str]:
        """Return the lines to print now: each file once, after it has been open for a while."""
        now = self._clock()
        self._since = {path: self._since.get(path, now) for path in message.get("held", [])}
        new = [
            path
            for path, since in self._since.items()
            if path not in self._told and now - since >= HELD_SECONDS
        ]
        self._told.update(new)
        lines = [_waits_for(path) for path in new[:LINES]]
        if len(new) > LINES:
            lines.append(f"and for {count(len(new) - LINES, 'more file')} to be closed")
        return lines


def _waits_for(path: str) -> str:
    programs = mountpoint.writers(Path(path))
    named = programs[:PROGRAMS] or ["a program"]
    if len(programs) > PROGRAMS:  # child processes have it open, too
        named.append(count(len(programs) - PROGRAMS, "more program"))
    return f"waiting for {' and '.join(named)} to close {path}"


def tell(last: Message) -> None:
    """Print the result in `last`, the daemon's answer."""
    for copy in last["conflicts"]:
        line(f"kept beside somebody else's version: {copy}")
    for new in last.get("anew", []):
        line(f"was deleted on the service, sent as a new file: {new}")
    _each("failed; see 'zonedrive status'", last["failed"])
    take_rejected(last)
    _each("of those asked for stay on this machine", last.get("stays", []))
    if last.get("lost"):
        complain(f"{saved(last['lost'])}; {SAVED}")
    if last["exit"] and last["left"]["files"] > len(last["failed"]):
        reason = f": {last['reason']}" if last["reason"] else ""
        remedy = f"; {last['remedy']}" if last.get("remedy") else ""
        complain(f"{unsent(last['left'])} not on the service yet{reason}{remedy}")


def take_rejected(last: Message) -> None:
    """Print rejected changes that were reverted; the daemon reports them only once."""
    _each("could not be removed or renamed", last.get("taken_back", []))


def _each(more: str, found: list[Message]) -> None:
    """Print a line for each of the first LINES items, and the number of the others."""
    for one in found[:LINES]:
        complain(f"{one['path']}: {one['error']}")
    if len(found) > LINES:
        complain(f"{count(len(found) - LINES, 'more file')} {more}")
