"""Local moves of folders and edited files that a coworker has moved on the service.

If a listing no longer contains an entry, the entry was moved or deleted, but the listing does not
show the new place. An edited file must not be removed, because the edit would be lost. The file
should not stay either, because another entry on the service may already have its name. A folder
keeps its inode, because the folder may be the current directory of programs, or contain files that
programs have open.

INVARIANT: this module changes only names that the service has reported, and restores no folder that
was removed or moved locally.
"""

import logging
from collections.abc import Sequence
from itertools import islice

from zonedrive.errors import Changed, NotFound, ZonedriveError
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import remote_operations
from zonedrive.state.inode import NOWHERE, Inode, Local
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import is_aside

log = logging.getLogger(__name__)

DEEPEST = 64  # maximum number of nested folders to look up
FOLDERS = 8  # maximum number of missing folders to look up; more were probably deleted, not moved


class MovedEntries:
    """Local moves of folders and edited files that coworkers have moved on the service."""

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service

    async def all_missing(self, folder: Inode, listed: Sequence[str], asked_ns: int) -> None:
        """Look up the entries that the listing of `folder` lacks, and move them locally.

        Only folders, edited files, and files that a program has open for writing are looked up. If
        more than FOLDERS folders are missing, no folder is looked up. `listed` are the ids in the
        listing, and `asked_ns` is the time of the request (monotonic clock). If the service does
        not answer, no further entry is looked up. The merge of the listing then keeps the edited
        files, and removes unchanged folders.
        """
        for inode in self._missing(folder, listed, asked_ns):
            place = self.place(inode)
            try:
                found = await self._service.entry(inode.zone, inode.entry_id)
                await self.follow(inode, found, place)
            except (NotFound, Changed):
                continue  # deleted, or another inode has the entry now: the upload decides
            except ZonedriveError as wrong:
                log.info("inode %d: its place on the service is unknown: %s", inode.ino, wrong)
                return

    def _missing(self, folder: Inode, listed: Sequence[str], asked_ns: int) -> list[Inode]:
        state = self._state
        edited = state.intents.edited()
        opened = state.opened.items()
        edited |= {ino for ino, file in opened if file.session is not None or file.writers}
        here = state.inodes.rows.among(folder.ino, edited) if edited else []
        folders = state.inodes.rows.folders_in(folder.ino)
        named = set(listed) if here or folders else set[str]()
        gone = state.inodes.get_all(ino for ino, known in here if known not in named)
        left = state.inodes.get_all(ino for ino, known in folders.items() if known not in named)
        files = [each for each in gone if self._was_in(folder, each, asked_ns)]
        moved = (each for each in left if self._was_in(folder, each, asked_ns))
        some = list(islice(moved, FOLDERS + 1))
        return files + some if len(some) <= FOLDERS else files  # files first: errors end the search

    def _was_in(self, folder: Inode, inode: Inode, asked_ns: int) -> bool:
        """Return True if the entry was in the folder at `asked_ns`, and may be moved locally."""
        zone, remote_id = inode.zone, inode.remote_id
        return (
            remote_id is not None
            and inode.remote_parent == folder.remote_id
            and not self._state.inodes.recent_writes.since(zone, remote_id, asked_ns)
            and self._may_follow(inode)
        )

    def _may_follow(self, inode: Inode) -> bool:
        """Return True unless the entry is local-only, or was renamed or removed locally."""
        local = self._state.local(inode.ino)
        return not (inode.local or local & (Local.PLACE | Local.GONE))

    def _is_below(self, folder: Inode, inode: Inode) -> bool:
        """Return True if `folder` is `inode`, or is below `inode` locally or on the service.

        For the service, the last known places are used.
        """
        inodes = self._state.inodes
        is_below = folder is inode or any(each is inode for each in inodes.above_on_service(folder))
        return is_below or inodes.is_below(folder, inode)

    def place(self, inode: Inode) -> Snapshot[object]:
        """Return a snapshot of an inode's place; a move or a local change makes the snapshot stale.

        Take the snapshot before a request for the entry. `follow` then ignores the response if this
        client has moved the entry meanwhile.
        """

        def read() -> object:
            intent = self._state.intents.get(inode.ino)
            there = inode.remote_id, inode.remote_parent, inode.remote_name
            return inode.parent, inode.name, there, intent and intent.seq

        return Snapshot(read)

    async def follow(self, inode: Inode, found: Entry, place: Snapshot[object]) -> None:
        """Move the entry locally to the folder and name that the service reports in `found`.

        `place` is a snapshot of the entry's place from before the request. Do nothing if the entry
        was renamed or removed locally. Also do nothing if its name is temporary (a later response
        has the final name), or if the entry would be below itself (the known places of other
        folders are then outdated). Raises the service's error.
        """
        if is_aside(found.name) or found.folder != inode.is_folder:
            return
        above = found.parent_id or inode.remote_parent or ""
        if found.deleted or (above, found.name) == (inode.remote_parent, inode.remote_name):
            return
        folder = await self.folder(inode.zone, above) if place.is_current else None
        gone = inode.parent == NOWHERE or not place.is_current
        if folder is None or gone or not self._may_follow(inode):
            return
        if not (inode.is_folder and self._is_below(folder, inode)):
            remote_operations.follow_move(self._state, inode, folder, above, found)

    async def folder(self, zone: str, remote_id: str) -> Inode | None:
        """Return the local folder with a remote id; add missing folders to the tree.

        Return None if `remote_id` is not a folder, or if more than DEEPEST folders would have to be
        added. Also return None if the folder, or a folder above it, was deleted on the service or
        removed locally.
        """
        state, above = self._state, remote_id
        unknown: list[Entry] = []
        while (known := state.inodes.by_remote(zone, above)) is None:
            if len(unknown) == DEEPEST:
                return None
            found = await self._service.entry(zone, above)
            if found.deleted or found.unsure or not (found.folder and found.parent_id):
                return None
            unknown.append(found)
            above = found.parent_id
        if not state.inodes.is_here(known):
            return None  # entries moved there would be deleted with the folder
        known = remote_operations.add_folders(state, known, unknown[::-1])
        return known if known.is_folder and known.parent != NOWHERE else None
