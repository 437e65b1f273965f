"""Commands for pins: pin, unpin, and list pins.

Knows nothing about the effect of a pin; see `pins.fetch`.
"""

from collections.abc import Awaitable, Callable

import trio

from zonedrive.daemon.compose import Parts
from zonedrive.daemon.control_server import Handler, Say
from zonedrive.daemon.logon_monitor import logon_command
from zonedrive.daemon.protocol import Message
from zonedrive.errors import NotLoggedOn, ZonedriveError
from zonedrive.pins.fetch import PinProgress
from zonedrive.state.inode import Inode

SAY_SECONDS = 0.5
"""Interval in seconds between progress reports of a waiting command."""

FIND = Callable[[str], Awaitable[Inode]]


class PinHandlers:
    """Handlers of the pin commands."""

    def __init__(self, parts: Parts, find: FIND) -> None:
        """Set `find`, which returns the inode at a path of a request."""
        self._parts = parts
        self._find = find
        self.handlers: dict[str, Handler] = {
            "pin": self.pin,
            "unpin": self.unpin,
            "pins": self.pins,
        }

    async def pin(self, request: Message, say: Say) -> Message:
        """Pin all `paths`, then wait until their content is cached, or cannot be.

        Progress lines give the state of all of them. If the client disconnects, the pins stay, and
        the download continues in the background.
        """
        pins, keeping = self._parts.files.pins, self._parts.files.keeping
        paths = _paths(request)
        inodes = [await self._find(path) for path in paths]
        for inode in inodes:
            pins.add(inode)
        tallies = [PinProgress() for _ in inodes]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_say_progress, tallies, say)
            try:
                for inode, tally in zip(inodes, tallies, strict=True):
                    await keeping.bring(inode, tally)
            except BaseException:
                keeping.look()
                raise
            nursery.cancel_scope.cancel()
        away = next((tally.away for tally in tallies if tally.away), None)
        failed = [one for tally in tallies for one in tally.failed]
        code, remedy = 0, ""
        if away is not None:
            keeping.look()
            code = 3 if isinstance(away, NotLoggedOn) else 4
            remedy = f"run '{logon_command(self._parts)}'" if code == 3 else ""
        return {
            "exit": 1 if failed else code,
            "reason": str(away or ""),
            "remedy": remedy,
            "pinned": [
                {"path": path, **_object(tally)} for path, tally in zip(paths, tallies, strict=True)
            ],
            "failed": [{"path": one.path, "error": one.error} for one in failed],
        }

    async def unpin(self, request: Message, say: Say) -> Message:
        """Remove the pins of all `paths`; of none if one of them is not pinned."""
        inodes = {path: await self._find(path) for path in _paths(request)}
        pins = self._parts.files.pins
        for path, inode in inodes.items():
            try:
                pins.require(inode)
            except ZonedriveError as wrong:
                raise ZonedriveError(f"{path}: {wrong}", remedy=wrong.remedy) from wrong
        for inode in inodes.values():
            pins.remove(inode)
        return {}

    async def pins(self, request: Message, say: Say) -> Message:
        """Return the pins, and how much of each is cached."""
        keeping, tree = self._parts.files.keeping, self._parts.state.inodes
        found = []
        for inode in self._parts.files.pins.roots():
            path = tree.path(inode.ino)
            found.append({"path": path, **_object(await keeping.count(inode))})
        return {"pins": found}


def _object(tally: PinProgress) -> dict[str, int]:
    return {
        "files": tally.files,
        "bytes": tally.bytes,
        "here": tally.here,
        "here_bytes": tally.here_bytes,
    }


async def _say_progress(tallies: list[PinProgress], say: Say) -> None:
    while True:
        await trio.sleep(SAY_SECONDS)
        total = PinProgress()
        for tally in tallies:
            total.files += tally.files
            total.bytes += tally.bytes
            total.here += tally.here
            total.here_bytes += tally.here_bytes
        await say(_object(total))


def _paths(request: Message) -> list[str]:
    paths = request.get("paths")
    if not isinstance(paths, list) or not paths:
        raise ZonedriveError("the request names no paths")
    return [str(path) for path in paths]
