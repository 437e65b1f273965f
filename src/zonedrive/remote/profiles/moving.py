"""Renaming and moving with what a deployment has for it: one request for both, or one for each.

Must not know how a request is sent, nor paths or bodies.

INVARIANT: an entry that is not where it should be is an error, never a success.
"""

from collections.abc import Awaitable, Callable

from zonedrive.errors import AlreadyExists, BadAnswer
from zonedrive.model import Entry
from zonedrive.remote.profiles.operations import Profile

_STEPS = 3  # two are enough, unless somebody else moves it at the same time


class Mover:
    """Brings one entry to its place."""

    def __init__(
        self,
        profile: Profile,
        change: Callable[[str], Awaitable[Entry]],
        present: Callable[[], Awaitable[Entry]],
    ) -> None:
        """`change` does an operation and gives the entry after it, `present` asks for the entry."""
        self._profile = profile
        self._change = change
        self._present = present

    async def bring(self, parent_id: str, name: str, folder: bool | None) -> Entry:
        """To a name in a folder, wherever it is now.

        Raises NotSupported, and what the requests raise; after a first step of two the entry may
        be under its former name in the new folder, or the other way round.
        """
        move = self._profile.find("move", folder)
        if move is None and self._profile.find("rename", folder) is None:
            self._profile.operation("move", folder=folder)  # raises
        if move is not None and move.uses("name"):
            return await self._change("move")
        # What an earlier attempt, or somebody else, did in between decides which step is left.
        entry = await self._present()
        for _ in range(_STEPS):
            renamed, moved = entry.name != name, entry.parent_id not in ("", parent_id)
            if not (renamed or moved):
                return entry
            entry = await self._step(entry, renamed, moved)
        raise BadAnswer("renaming or moving: the service did it, but the entry is elsewhere")

    async def _step(self, entry: Entry, renamed: bool, moved: bool) -> Entry:
        if not (renamed and moved):
            return await self._change("rename" if renamed else "move")
        self._profile.operation("rename", folder=entry.folder)  # rather nothing than half
        self._profile.operation("move", folder=entry.folder)
        try:
            return await self._change("rename")
        except AlreadyExists:  # somebody has the new name in the former folder
            return await self._change("move")
