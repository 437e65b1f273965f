"""What `zonedrive sync` tells people: how far it is, and how it ended.

Must not know how it was asked for.

INVARIANT: an exit code other than 0 has a line that says why.
"""

from zonedrive.amounts import unsent
from zonedrive.cli.show import complain, count, line
from zonedrive.daemon.protocol import Message

FILE_BYTES = 64 << 10
"""What a file counts beside its bytes in a bar."""

LINES = 5
"""So many failures are told one by one."""


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


def tell(last: Message) -> None:
    """How it ended: `last` is the daemon's answer."""
    for copy in last["conflicts"]:
        line(f"kept beside somebody else's version: {copy}")
    for new in last.get("anew", []):
        line(f"was deleted on the service, sent as a new file: {new}")
    _each("failed; see 'zonedrive status'", last["failed"])
    _each("of those asked for stay on this machine", last.get("stays", []))
    if last["exit"] and last["left"]["files"] > len(last["failed"]):
        reason = f": {last['reason']}" if last["reason"] else ""
        remedy = f"; {last['remedy']}" if last.get("remedy") else ""
        complain(f"{unsent(last['left'])} not on the service yet{reason}{remedy}")


def _each(more: str, found: list[Message]) -> None:
    """A line for each, and one for how many more there are."""
    for one in found[:LINES]:
        complain(f"{one['path']}: {one['error']}")
    if len(found) > LINES:
        complain(f"{count(len(found) - LINES, 'more file')} {more}")
