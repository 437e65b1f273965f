"""Storage of pins, which mark entries that stay available offline.

This module does not handle the content of pinned entries; `fetch` fetches the content. Everything
below a pinned folder is pinned too, including entries that are created later, but only the pin of
the folder itself is stored.

INVARIANT: the content of a pinned entry is never evicted from the cache.
"""

import contextlib
from collections.abc import Container

import msgspec
import trio

from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.observers import Observers
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.pin_table import Pin, PinStore


class Pins:
    """Set of the pins of an account."""

    def __init__(self, state: LocalState) -> None:
        self._state = state
        self._store = PinStore(state.database)
        self._roots: set[int] = set()
        self._entries = self._store.entries()
        self._parents_of_files: set[int] = set()  # folders of pinned files
        self._missing: list[Pin] = []  # pins without an entry in the tree, at the last update
        self.added = trio.Event()
        """Event that is set, and replaced by a new one, after a pin was added."""
        self.changes: Observers[[]] = Observers()
        """Observers that are notified after a pin was added or removed."""
        self.content_changes: Observers[[int]] = Observers()
        """Observers that get the inode number of a pinned file if content is missing or arrives."""
        self.update_inodes()
        state.inodes.relocated.add(self._note_entry)
        state.inodes.replaced.add(self._note_successor)

    def __contains__(self, ino: object) -> bool:
        """Return True if the inode with this number, or a folder above it, is pinned.

        If that cannot be read because a row is damaged, also return True, so that the cache keeps
        the content.
        """
        any_pin = bool(self._roots or self._entries)
        try:
            return any_pin and isinstance(ino, int) and self.root_of(ino) is not None
        except (OSError, StoreError, msgspec.MsgspecError):
            return True

    def __bool__(self) -> bool:
        """Return True if there are pins."""
        return bool(self._store.all())

    def root_of(self, ino: int) -> Inode | None:
        """Return the nearest inode at or above `ino` that is pinned itself, or None.

        An inode with the remote id of a pinned entry also counts as pinned.
        """
        inodes = self._state.inodes
        inode = inodes.find(ino)
        while inode is not None and inode.parent != NOWHERE:
            if inode.ino in self._roots or (inode.zone, inode.remote_id) in self._entries:
                return inode
            if inode.ino == ROOT:
                return None
            inode = inodes.find(inode.parent)
        return None

    def concerns(self, ino: int) -> bool:
        """Return True if the folder `ino`, or a file directly in this folder, is pinned."""
        return ino in self or ino in self._parents_of_files

    def find_returned(self) -> bool:
        """If a missing pinned entry exists again, update the inodes of the pins.

        Return True if the pins then refer to an additional inode.
        """
        is_here = self._state.inodes.is_here
        found = map(self._inode_of, self._missing)
        if not any(is_here(inode) and inode.ino not in self._roots for inode in found):
            return False
        before = self._roots
        self.update_inodes()
        return not self._roots <= before

    def missing(self) -> list[Pin]:
        """Return the pins whose entries are not in the local tree.

        The entries may have been moved on the service. That includes a pin whose inode is kept at
        the former place for local changes, and has no entry. Pins whose entries were removed
        locally are left out.
        """
        self.update_inodes()
        known = self._state.inodes.by_remote
        return [
            pin for pin in self._missing if pin.remote_id and known(pin.zone, pin.remote_id) is None
        ]

    def folders_to_list(self) -> list[int]:
        """Return the sorted inode numbers of the folders that are polled for remote changes.

        These are the topmost pinned folders, and the unpinned folders that contain pinned files.
        """
        self.update_inodes()
        found = {ino for ino in self._parents_of_files if ino not in self}
        for inode in self._state.inodes.get_all(self._roots):
            if inode.is_folder and (inode.ino == ROOT or inode.parent not in self):
                found.add(inode.ino)
        return sorted(found)

    def roots(self) -> list[Inode]:
        """Return the inodes that are pinned themselves and exist now, sorted by path."""
        inodes = self._state.inodes
        self.update_inodes()
        return sorted(map(inodes.get, self._roots), key=lambda inode: inodes.path(inode.ino))

    def pinned_themselves_in(self, folders: Container[int]) -> list[Inode]:
        """Return the inodes that are pinned themselves and are directly in one of `folders`.

        `folders` contains inode numbers. Leave out inodes whose folder is also pinned.
        """
        found = self._state.inodes.get_all(self._roots)
        return [each for each in found if each.parent in folders and each.parent not in self]

    def add(self, *inodes: Inode) -> None:
        """Pin all the inodes, and notify the observers in `changes`.

        The caller fetches the content.
        """
        self._store.put(*(Pin(inode.ino, inode.zone, inode.remote_id) for inode in inodes))
        self.update_inodes()
        self.added.set()
        self.added = trio.Event()
        self.changes.notify()

    def remove(self, *inodes: Inode) -> None:
        """Remove the pins of all the inodes, and notify the observers in `changes`.

        Call `require` first to check that each of the inodes is pinned.
        """
        unpinned = {inode.ino for inode in inodes}
        pins = [(pin.ino, self._inode_of(pin)) for pin in self._store.all()]
        self._store.drop(ino for ino, meant in pins if meant is not None and meant.ino in unpinned)
        self.update_inodes()
        self.changes.notify()

    def require(self, inode: Inode) -> None:
        """Raise ZonedriveError unless the inode itself is pinned; a pinned parent is not enough.

        Call `update_inodes` first.
        """
        if inode.ino in self._roots:
            return
        above = self.root_of(inode.ino)
        if above is None:
            raise ZonedriveError("it is not pinned")
        raise ZonedriveError(
            f"it is kept with {self._state.inodes.path(above.ino) or 'the whole mount'}",
            remedy="unpin that",
        )

    def forget_former(self, pin: Pin) -> None:
        """Remove a former pin (see `Pin.is_former`) whose entry was deleted on the service.

        Such a pin would otherwise stay for ever, because no path shows it. Other missing pins are
        kept, see `update_inodes`.
        """
        if pin.is_former and pin in self._store.all():
            self._store.drop([pin.ino])
            self.update_inodes()

    def _inode_of(self, pin: Pin) -> Inode | None:
        """Return the current inode of a pin's entry, or None if the entry is missing.

        A pin without a remote id belongs to its inode. The entry of any other pin is looked up by
        remote id. If no inode has this remote id, return the inode that had the remote id before,
        or None if that inode now has the remote id of another pinned entry.
        """
        inodes = self._state.inodes
        if not pin.remote_id:
            return inodes.find(pin.ino)
        if (found := inodes.by_remote(pin.zone, pin.remote_id)) is not None:
            return found
        former = inodes.find(pin.ino)
        if former is not None and (former.zone, former.remote_id) in self._entries:
            return None
        return former

    def _note_entry(self, ino: int) -> None:
        """Store the first remote entry of a pinned file or folder, after the commit.

        The pin then stays with the entry if another inode takes the entry over. The method waits
        for the commit, because `relocated` also notifies its observers during a rollback, before
        the inode is restored.
        """
        if ino in self._roots:
            self._state.database.after_commit(lambda: self._note_committed(ino))

    def _note_successor(self, former: int, successor: int) -> None:
        """Pass the pin of a new file on to the file that replaces the new file.

        Called within the transaction of the replacement.
        """
        pin = self._store.get(former)
        if pin is None or self._inode_of(pin) is not self._state.inodes.get(former):
            return
        inode = self._state.inodes.get(successor)
        self._store.drop([former])
        self._store.put(Pin(inode.ino, inode.zone, inode.remote_id))
        self._state.database.after_commit(self.update_inodes)

    def _note_committed(self, ino: int) -> None:
        inode = self._state.inodes.find(ino)
        if inode is not None and inode.remote_id and self._store.get(ino) == Pin(ino, inode.zone):
            with contextlib.suppress(OSError):  # such as a full disk; `update_inodes` tries again
                self._store.put(Pin(ino, inode.zone, inode.remote_id))
            self._entries.add((inode.zone, inode.remote_id))

    def update_inodes(self) -> None:
        """Update the inode of each pin, because entries may have been replaced or removed.

        A pin whose entry is missing is kept, because the entry may be restored on the service. If
        a pinned folder was created again, the new entry is pinned too, and the former entry counts
        as missing, because it may have been moved on the service. A pin is removed if its entry
        never was on the service (the pin has no remote id) and its inode does not exist any more.
        """
        inodes, here, missing = self._state.inodes, dict[int, Pin](), dict[int, Pin]()
        unbound: list[Pin] = []  # pins of inodes that the service no longer has at their places
        for pin in self._store.all():
            inode = self._inode_of(pin)
            if inodes.is_here(inode):
                found = Pin(inode.ino, inode.zone, inode.remote_id or pin.remote_id)
                here[inode.ino] = found
                if found.remote_id and inode.remote_id is None:
                    unbound.append(found)
                elif inode.is_folder and pin.remote_id not in (None, inode.remote_id):
                    missing[pin.ino] = pin
            elif inode is not None or pin.remote_id is not None:
                missing[pin.ino] = pin
        for ino in here.keys() & missing.keys():
            free = min(0, *missing) - 1
            missing[free] = msgspec.structs.replace(missing.pop(ino), ino=free)
        with contextlib.suppress(OSError):  # such as a full disk; a later call tries again
            self._store.replace_all(here | missing)
        self._roots, self._missing = set(here), [*missing.values(), *unbound]
        self._entries = self._store.entries()
        self._parents_of_files = {
            inode.parent for inode in inodes.get_all(self._roots) if not inode.is_folder
        }
