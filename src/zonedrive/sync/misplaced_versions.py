"""Versions that are not the newest of their own file: below another version, or in another file.

A coworker may save a version on top before the answer to the upload is known.  A version is also
sent by name: a coworker may rename the file between the check and the request, and perhaps give its
name to another file.  Then the service creates the version in that other file, or a new file.

INVARIANT: a version that is on the service is not sent again, and the user is told where it is.
"""

import logging
import time

from zonedrive.errors import NotFound
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.state.conflict_log import Conflict
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.compare import ContentComparison
from zonedrive.sync.directory_cache import DirectoryCache

log = logging.getLogger(__name__)

LOOK_BACK = 6  # maximum number of versions on top of one with a lost answer


class MisplacedVersions:
    """Search for misplaced versions; versions in another file are recorded as conflict copies."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        comparison: ContentComparison,
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._comparison = comparison

    async def find(self, doubt: PendingRequest) -> Entry | None:
        """Return the file of the same name, but another id, that got the version of the request.

        None if no such file exists.
        """
        state = self._state
        try:
            entries = await self._service.listing(doubt.zone, doubt.folder)
        except NotFound:
            return None
        for entry in entries:
            named = entry.name == doubt.name and entry.id != doubt.remote_id
            ours = entry.modified_by == state.user and entry.size == doubt.size
            if not named or not ours or entry.folder or entry.unsure:
                continue
            if await self._comparison.is_what_was_sent(doubt, entry.id):
                return entry
        return None

    async def present(self, doubt: PendingRequest) -> Entry | None:
        """Return the current state of the entry that the version was sent for, or None."""
        try:
            found = await self._service.entry(doubt.zone, doubt.remote_id or "")
        except NotFound:
            return None
        return None if found.deleted else found

    async def note(self, inode: Inode, doubt: PendingRequest, entry: Entry, present: Entry) -> None:
        """Record that the version is in another entry; the file shows the service's version."""
        state = self._state
        log.warning("inode %d: a coworker renamed the file while it was sent: the version is in"
                    " another file of that name", inode.ino)  # fmt: skip
        opened, intent = state.opened.get(inode.ino), state.intents.get(inode.ino)
        with state.transaction():
            state.requests.drop(inode.ino)
            if intent is not None and intent.generation == doubt.generation and not intent.gone:
                state.intents.done(intent, content=True)
            left = state.intents.get(inode.ino)
            edited = (left is not None and left.generation) or (opened and opened.session)
            if not edited and inode.generation == doubt.generation:
                state.follow(inode, present)
        state.content_changed(inode)
        state.resolved(doubt)
        self._folders.forget_all()
        await self._tell(inode, doubt, entry, present.modified_by)

    async def _tell(self, inode: Inode, doubt: PendingRequest, entry: Entry, by: str) -> None:
        state = self._state
        folder = state.inodes.by_remote(doubt.zone, doubt.folder)
        if folder is not None:
            await self._folders.refresh(folder, time.monotonic_ns())
        copy = state.inodes.by_remote(doubt.zone, entry.id)
        if copy is not None and copy is not inode:
            with state.transaction():
                state.intents.conflicts.add(Conflict(copy.ino, inode.ino, by, time.time_ns()))

    async def is_below_another(self, inode: Inode, doubt: PendingRequest) -> bool:
        """Return True if the sent version is in the history below a coworker's version.

        Then nothing is left to be sent.
        """
        state = self._state
        knows = self._service.can("versions") and self._service.can("version_content")
        intent = state.intents.get(inode.ino)
        if doubt.remote_id is None or not knows or intent is None:
            return False
        if intent.generation != doubt.generation or doubt.bytes_ino != inode.ino:
            return False  # edited since: the edit is not based on the newest version
        try:
            found = await self._service.entry(doubt.zone, doubt.remote_id)
            versions = await self._service.versions(doubt.zone, doubt.remote_id)
        except NotFound:
            return False
        if found.deleted or found.revision == intent.base:
            return False
        for version in versions[1:LOOK_BACK]:
            ours = version.modified_by == state.user and version.size == doubt.size
            if ours and await self._comparison.is_what_was_sent(doubt, found.id, version.version):
                self._give_way_to(inode, doubt, found)
                return True
        return False

    def _give_way_to(self, inode: Inode, doubt: PendingRequest, found: Entry) -> None:
        state = self._state
        intent = state.intents.get(inode.ino)
        if intent is None or state.requests.get(inode.ino) != doubt or intent.held:
            return
        with state.transaction():
            state.requests.drop(inode.ino)
            state.intents.done(intent, content=True)
            state.follow(inode, found)
        state.content_changed(inode)
        state.resolved(doubt)
