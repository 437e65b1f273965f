"""What `zonedrive sync` tells people: how far it is, and how it ended.

Must not know how it was asked for.

INVARIANT: an exit code other than 0 has a line that says why.
"""

import time
from collections.abc import Callable
from pathlib import Path

from zonedrive.amounts import saved, unsent
from zonedrive.cli.show import complain, count, line
from zonedrive.daemon.protocol import Message
from zonedrive.fuse import mountpoint

FILE_BYTES = 64 << 10
"""What a file counts beside its bytes in a bar."""

LINES = 5
"""So many failures are told one by one."""

PROGRAMS = 2
"""So many of those that have one file open are named."""

HELD_SECONDS = 3.0
"""A program that has a file open for longer is told: nothing ends by itself before it closes it."""


SAVED = "copy out of it what you need, then remove it there"
"""What to do about what is in lost+found."""


class Way:
    """How far a `sync` is: what it began with, and what was added meanwhile, is the whole."""

    def __init__(self) -> None:
        self._files = self._bytes = 0

    def at(self, message: Message) -> tuple[float, str]:
        """The part that is done, 0 to 1, and that in words."""
        left = message["left"]
        self._files, self._bytes = max(self._files, left["files"]), max(self._bytes, left["bytes"])
        # Small files take their time as well, and some changes have no bytes at all.
        whole = self._bytes + self._files * FILE_BYTES
        done = 1 - (left["bytes"] + left["files"] * FILE_BYTES) / whole if whole else 0.0
        text = f"{unsent(left)} left"
        state = message.get("state", "online")
        return done, text if state == "online" else f"{state}: {text}"


class Held:
    """Which files are waited for because a program has them open for writing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def at(self, message: Message) -> list[str]:
        """The lines to say now: each file once, when it has been open for a while."""
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
    if len(programs) > PROGRAMS:  # those that it has started have it, too
        named.append(count(len(programs) - PROGRAMS, "more program"))
    return f"waiting for {' and '.join(named)} to close {path}"


def tell(last: Message) -> None:
    """How it ended: `last` is the daemon's answer."""
    for copy in last["conflicts"]:
        line(f"kept beside somebody else's version: {copy}")
    for new in last.get("anew", []):
        line(f"was deleted on the service, sent as a new file: {new}")
    _each("failed; see 'zonedrive status'", last["failed"])
    tell_taken_back(last)
    _each("of those asked for stay on this machine", last.get("stays", []))
    if last.get("lost"):
        complain(f"{saved(last['lost'])}; {SAVED}")
    if last["exit"] and last["left"]["files"] > len(last["failed"]):
        reason = f": {last['reason']}" if last["reason"] else ""
        remedy = f"; {last['remedy']}" if last.get("remedy") else ""
        complain(f"{unsent(last['left'])} not on the service yet{reason}{remedy}")


def tell_taken_back(last: Message) -> None:
    """Changes that the service refused; nobody can ask for them any more."""
    _each("could not be removed or renamed", last.get("taken_back", []))


def _each(more: str, found: list[Message]) -> None:
    """A line for each, and one for how many more there are."""
    for one in found[:LINES]:
        complain(f"{one['path']}: {one['error']}")
    if len(found) > LINES:
        complain(f"{count(len(found) - LINES, 'more file')} {more}")
