"""Rename and move with the operations of a profile: one request for both, or one for each.

Knows nothing about sending requests, paths or bodies.

INVARIANT: an entry that is not at its target afterwards is an error, never a success.
"""

from collections.abc import Awaitable, Callable

from zonedrive.errors import AlreadyExists, BadAnswer
from zonedrive.model import Entry
from zonedrive.remote.profiles.operations import Profile

_STEPS = 3  # two are enough unless another user moves the entry at the same time


class Mover:
    """Renames or moves one entry."""

    def __init__(
        self,
        profile: Profile,
        change: Callable[[str], Awaitable[Entry]],
        present: Callable[[], Awaitable[Entry]],
    ) -> None:
        """Set the callbacks: `change` runs an operation, `present` requests the current entry.

        Both return the entry.
        """
        self._profile = profile
        self._change = change
        self._present = present

    async def bring(self, parent_id: str, name: str, folder: bool | None) -> Entry:
        """Give the entry the name `name` in the folder `parent_id`, wherever it is now.

        Raises NotSupported, and the errors of the requests. After the first of two steps, the entry
        may have its old name in the new folder, or its new name in the old folder.
        """
        move = self._profile.find("move", folder)
        if move is None and self._profile.find("rename", folder) is None:
            self._profile.operation("move", folder=folder)  # raises
        if move is not None and move.uses("name"):
            return await self._change("move")
        # An earlier attempt or another user may have done one of the steps already.
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
        self._profile.operation("rename", folder=entry.folder)  # raise before the first step
        self._profile.operation("move", folder=entry.folder)
        try:
            return await self._change("rename")
        except AlreadyExists:  # the new name is taken in the old folder
            return await self._change("move")
