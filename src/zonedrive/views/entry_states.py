"""States of entries for file managers, with batch queries and change notifications.

This module does not depend on the control socket. No function sends a request to the service or
reads through the mount, so that queries are just as fast while the service is unreachable.

The state of a folder is the most urgent state of everything below the folder.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

import msgspec
import trio

from zonedrive.pins.pins import Pins
from zonedrive.state.attributes import permissions
from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import typed
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.vfs.xattrs import own_state

URGENCY = ("failed", "conflict", "uploading", "pending")
"""States of entries that are not synced, the most urgent first."""

MOST = 1000  # maximum number of entries whose changes are reported one by one
STEP = 200  # entries that are examined without letting other tasks run
WRITABLE = 0o222


class EntryState(msgspec.Struct, frozen=True):
    """State of one entry, as file managers show it."""

    state: str  # one of URGENCY, "synced", or "local" for an entry that is not uploaded
    folder: bool
    kept: bool  # pinned, or below a pinned folder
    read_only: bool
    missing: bool  # True for a kept file whose content is not on this machine yet


class Unsynced(msgspec.Struct, frozen=True):
    """States of all entries that are not synced, and of the folders above them."""

    states: dict[int, str] = {}  # by inode
    counts: dict[str, int] = {}  # number of entries by state, without the folders above them

    def changed_since(self, before: "Unsynced") -> list[int]:
        """Return the inodes whose states differ from those in `before`."""
        if self.states is before.states:  # only pinned content has changed
            return []
        return [ino for ino, _ in set(self.states.items()) ^ set(before.states.items())]


class EntryStates:
    """States of the entries of a mount."""

    def __init__(self, state: LocalState, dispatcher: Dispatcher, pins: Pins) -> None:
        self._state = state
        self._pins = pins
        self._unsynced: Unsynced | None = None  # None after a change
        self._version = 0  # number of changes so far
        self.changed = trio.Event()
        """Event that is set on the next change of a state, and then replaced.

        Get the event before you read the states; otherwise you can miss a change.
        """
        self.pin_changes = 0
        """Number of added and removed pins so far."""
        self._watchers: list[set[int]] = []
        dispatcher.changes.add(self._note_change)
        pins.changes.add(self._note_pin)
        pins.content_changes.add(self._note_content)

    @contextmanager
    def watched(self) -> Iterator[set[int]]:
        """Yield a set that collects the inode numbers of pinned files during the `with` block.

        A file is added when its content was fetched or was found missing. No file is added once the
        set has MOST numbers.
        """
        found: set[int] = set()
        self._watchers.append(found)
        try:
            yield found
        finally:
            self._watchers = [each for each in self._watchers if each is not found]

    def _note_content(self, ino: int) -> None:
        for each in self._watchers:
            if len(each) < MOST:
                each.add(ino)
        self._wake()

    def _note_change(self) -> None:
        self._unsynced = None
        self._version += 1
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def _note_pin(self) -> None:
        self.pin_changes += 1
        self._note_change()

    async def unsynced(self) -> Unsynced:
        """Return the states of all entries that are not synced.

        The result is cached until the next change. Other tasks run during the computation.
        """
        if self._unsynced is not None:
            return self._unsynced
        version = self._version
        own: dict[str, list[Inode]] = {state: [] for state in URGENCY}
        copies, tree = self._state.intents.conflicts.copies(), self._state.inodes
        conflicts = {each.ino for each in tree.get_all(copies) if tree.is_here(each)}
        for number, inode in enumerate(self._candidates(conflicts)):
            if number % STEP == STEP - 1:
                await trio.lowlevel.checkpoint()
            if (state := own_state(self._state, inode, conflicts)) is not None:
                own[state].append(inode)
        states: dict[int, str] = {}
        for state, inodes in own.items():
            for number, inode in enumerate(inodes):
                if not number % STEP:
                    await trio.lowlevel.checkpoint()
                for each in self._state.inodes.and_above(inode):
                    if each.ino in states:
                        break  # the folders above are at least as urgent
                    states[each.ino] = state
        found = Unsynced(states, {state: len(inodes) for state, inodes in own.items()})
        if self._version == version:
            self._unsynced = found
        return found

    def _candidates(self, conflicts: set[int]) -> Iterator[Inode]:
        """Yield every inode that may be in one of the states listed in URGENCY."""
        state = self._state
        changed = {intent.ino for intent in state.intents.pending()}
        written = {ino for ino, opened in state.opened.items() if opened.session is not None}
        return state.inodes.get_all(changed | written | conflicts)

    async def look_up(self, paths: list[str]) -> list[EntryState | None]:
        """Return the state of the entry at each path; paths are relative to the mount point.

        The state is None for a virtual entry, and if the local database has no entry at the path.
        """
        states, folders, found = (await self.unsynced()).states, dict[str, int | None](), []
        for number, path in enumerate(paths):
            if number % STEP == STEP - 1:
                await trio.lowlevel.checkpoint()
            inode = self._inode(path, folders)
            found.append(self._described(inode, states) if inode is not None else None)
        return found

    def _inode(self, path: str, folders: dict[str, int | None]) -> Inode | None:
        """Return the inode at a path, or None; `folders` caches the folders of earlier calls."""
        inodes, pure = self._state.inodes, PurePosixPath(path)
        if not pure.parts:
            return inodes.get(ROOT)
        above = str(pure.parent)
        if above not in folders:
            folder: Inode | None = inodes.get(ROOT)
            for name in pure.parent.parts:
                folder = None if folder is None else inodes.child(folder.ino, typed(name))
                folder = folder if folder is not None and folder.is_folder else None
            folders[above] = None if folder is None else folder.ino
        parent = folders[above]
        return None if parent is None else inodes.child(parent, typed(pure.name))

    def _described(self, inode: Inode, states: dict[int, str]) -> EntryState:
        default = "local" if self._state.is_kept(inode) else "synced"
        kept = inode.ino in self._pins
        return EntryState(
            "local" if inode.local else states.get(inode.ino, default),
            inode.is_folder,
            kept,
            inode.ino != ROOT and not permissions(inode, self._state.rules) & WRITABLE,
            kept and not (inode.is_folder or self._state.is_readable_offline(inode)),
        )

    def named(self, unsynced: Unsynced, inos: Iterable[int]) -> dict[str, EntryState]:
        """Return the states of the inodes `inos` by path, except for removed entries."""
        inodes = self._state.inodes
        found = (each for each in inodes.get_all(inos) if inodes.is_here(each))
        return {inodes.path(each.ino): self._described(each, unsynced.states) for each in found}
