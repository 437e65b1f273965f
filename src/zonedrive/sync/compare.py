"""Comparison of local bytes with versions on the service, and checks for deleted entries.

Revisions and sizes do not show whether two versions have the same bytes. Listings, the answer for
one entry and the answer to an upload may give the time with different precision. Some services
count a move as a change, and two versions by one user may have the same size.
"""

from contextlib import closing

import trio

from zonedrive.causes import Cause, cause_of
from zonedrive.content.content_file import ContentFile
from zonedrive.errors import (
    UNKNOWN_ZONE,
    Changed,
    Forbidden,
    NotFound,
    Rejected,
    RemoteError,
    StoreError,
    Unavailable,
)
from zonedrive.model import Entry, Revision, are_of_equal_size, differ_in_precision
from zonedrive.remote.service import Service
from zonedrive.remote.wire.error_mapping import REMEDIES
from zonedrive.state.inode import Inode
from zonedrive.state.intents import Failure, Intent
from zonedrive.state.local_state import LocalState

# Bytes. A version that is not cached is downloaded for a comparison up to this size: that takes
# hardly longer than a request.
COMPARED = 1 << 20
COMPARISONS = 3  # failed comparisons before a version counts as unreadable


async def current_entry(service: Service, zone: str, remote_id: str) -> Entry | None:
    """Return the service's current state of an entry, or None if it was deleted."""
    try:
        entry = await service.entry(zone, remote_id)
    except NotFound as missing:
        await require_deletion(service, zone, missing)
        return None
    return None if entry.deleted else entry


async def require_deletion(service: Service, zone: str, missing: NotFound) -> None:
    """Raise an error unless `missing` shows that an entry of the zone was deleted.

    Raises Forbidden if the list of zones is complete, and lacks the zone or marks the zone as not
    accessible. Such a zone may be back later, with its entries. A change in the zone is therefore
    refused as if the user were no longer a member. Raises Unavailable if the list is refused, if an
    incomplete list does not show the zone as accessible, or if the list contains the zone although
    `missing` says that the zone is unknown.
    """
    try:
        listed = await service.listed_zones()
    except (Forbidden, NotFound, Rejected) as wrong:
        raise Unavailable(wrong.message, status=wrong.status, code=wrong.code) from wrong
    open_zones = (each.id for each in listed.zones if each.accessible)
    is_listed = zone in {*listed.unsure, *open_zones}
    if not is_listed and listed.complete:
        raise Forbidden(
            missing.message,
            remedy=REMEDIES[UNKNOWN_ZONE],
            status=missing.status,
            code=missing.code,
            logged=missing.logged,
        ) from missing
    if not is_listed or missing.code == UNKNOWN_ZONE:
        raise Unavailable(
            missing.message, status=missing.status, code=missing.code, logged=missing.logged
        ) from missing


class Comparer:
    """Comparer of local bytes and known revisions with versions on the service.

    Except for `same_bytes`, the methods treat a version that cannot be read as a version with other
    bytes. They raise Changed, and temporary errors of the service (see `require_unreadable`).
    """

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service
        # Separate threads, so that other work does not wait for the service.
        self._threads = trio.CapacityLimiter(state.settings.transfers)

    async def same_bytes(
        self, file: ContentFile, size: int, zone: str, file_id: str, version: str | None = None
    ) -> bool:
        """Return True if a version on the service has the same bytes as the beginning of `file`.

        `size` is the size of the version in bytes. The caller has checked that the content to
        upload has the same size. Bytes of `file` beyond `size` are ignored, because a power cut can
        leave the file longer than recorded. `version` is the id of the version, by default of the
        current one. Raises Damaged if `file` is damaged, and the errors of the download. Raises
        Changed if the file was deleted, or if content of a different size arrives (a newer version,
        or the error page of a proxy).
        """

        def compare() -> bool:
            offset, is_same = 0, file.size >= size
            with self._service.transfer.download(zone, file_id, version=version) as download:
                is_whole = download.total == size
                for piece in download:
                    is_same = is_same and file.pread(offset, len(piece)) == piece
                    if is_whole and not is_same:
                        return False
                    offset += len(piece)
            if offset != size:
                raise Changed(f"comparing contents: {offset} instead of {size} bytes arrived")
            return is_same

        try:
            return await trio.to_thread.run_sync(compare, limiter=self._threads)
        except NotFound as missing:
            if version is None and await current_entry(self._service, zone, file_id) is None:
                raise Changed("the file was deleted on the service") from missing
            raise

    async def is_same(self, intent: Intent, file: ContentFile, found: Entry) -> bool:
        """Return True if `found` has the bytes of `file`; raises Damaged if `file` is damaged."""
        try:
            return await self.same_bytes(file, found.size, found.zone_id, found.id)
        except RemoteError as wrong:
            await self.require_unreadable(intent, found, wrong)
            return False

    async def is_unchanged(
        self, intent: Intent, inode: Inode, file: ContentFile, found: Entry
    ) -> bool:
        """Return True if the save of `file` has changed no byte and needs no new version.

        `found` is the service's current version, on which the save is based. Return False if the
        setting `unchanged` is "version", or if the current version is neither cached nor small.
        Raises Changed if the entry changes on the service during the comparison.
        """
        state, size = self._state, found.size
        if state.settings.unchanged == "version" or found.unsure or file.size != size:
            return False
        revision, source = found.revision, state.source(inode)
        try:
            if not size or state.cache.is_complete(inode.ino, revision):
                return await state.cache.is_same(inode.ino, revision, size, source, file)
            if size > COMPARED:
                return False
            same = await self.same_bytes(file, size, inode.zone, found.id)
        except (Changed, RemoteError, StoreError) as wrong:
            await self.require_unreadable(intent, found, wrong)
            same = False  # the upload shows whether the bytes are damaged
        now = await current_entry(self._service, inode.zone, inode.entry_id)
        if now is None or _place_and_version(now) != _place_and_version(found):
            raise Changed("the file has changed on the service meanwhile")
        return same

    async def is_known(
        self, intent: Intent, inode: Inode, known: Revision | None, found: Entry
    ) -> bool:
        """Return True if `found` is the revision `known`, with a time of different precision.

        `found` is the inode's entry. The bytes are compared if possible, because another machine of
        this user may have saved a version of the same size in the same second. If no comparison is
        possible (see `_has_bytes_of`), return True, because such a version is improbable. Even
        then, the service keeps that version.
        """
        if known is None or found.folder or not differ_in_precision(known, found.revision):
            return False
        return await self._has_bytes_of(intent, inode, known, found) is not False

    async def unchanged_by_move(
        self, intent: Intent, inode: Inode, before: Revision, moved: Entry
    ) -> Revision | None:
        """Return `before` if `moved`, the answer to a move, has the bytes of `before`, else None.

        `before` is the revision from a query before the move. A different revision has one of two
        causes: the service counts a move as a change, or another version was saved between the
        query and the move. A version by another user or of another size counts as another version.
        Otherwise the bytes are compared; if no comparison is possible, return `before`.
        """
        if moved.folder or before == moved.revision or differ_in_precision(before, moved.revision):
            return before
        is_own = self._state.is_own(moved.modified_by)
        if not (is_own and are_of_equal_size(before, moved.revision)):
            return None
        is_same = await self._has_bytes_of(intent, inode, before, moved)
        return None if is_same is False else before

    async def revision_before_move(
        self, inode: Inode | None, found: Entry | None
    ) -> Revision | None:
        """Return a file's last known revision if `found` has the same bytes, but another revision.

        `found` is the inode's current entry, after a possible move. Return None in all other cases,
        also if the bytes cannot be compared, because another version may have been saved since.
        """
        intent = None if inode is None else self._state.intents.get(inode.ino)
        if inode is None or intent is None or found is None or found.folder:
            return None
        known = intent.base if intent.generation else inode.revision
        if known is None or known == found.revision or not are_of_equal_size(known, found.revision):
            return None  # a reader of another size would drop the cached bytes
        return known if await self._has_bytes_of(intent, inode, known, found) else None

    async def _has_bytes_of(
        self, intent: Intent, inode: Inode, known: Revision, found: Entry
    ) -> bool | None:
        """Return True if `found`, the inode's entry, has the cached content of revision `known`.

        Return None, without a comparison, if `found` is empty or larger than COMPARED, or if the
        content of `known` is not completely cached. Also return False if the cached content is
        damaged, or if the content of `found` cannot be read (see `require_unreadable`).
        """
        state, size = self._state, found.size
        if not (0 < size <= COMPARED and state.cache.is_complete(inode.ino, known)):
            return None
        with closing(state.cache.open(inode.ino, known, size, state.source(inode))) as reader:
            if not reader.complete:
                return False  # the cached bytes are missing or damaged
            try:
                cached = bytes(await reader.read(0, size))
                return cached == await self._service.content(inode.zone, found.id, size)
            except (RemoteError, StoreError) as wrong:
                await self.require_unreadable(intent, found, wrong)
                return False

    async def require_unreadable(self, intent: Intent, found: Entry, wrong: Exception) -> None:
        """Return if `found` counts as unreadable; raise an error if a retry may succeed.

        `wrong` is the error of a comparison with `found`. After a temporary error of the service
        (`Cause.SERVICE`), the entry is queried. If the query fails, its error is raised. If the
        query succeeds, the service works, and the comparison is counted as failed. The first
        COMPARISONS of these errors are raised again; after that, this version is unreadable. After
        any other error, the version counts as unreadable at once.
        """
        if cause_of(wrong) is Cause.SERVICE:
            await current_entry(self._service, found.zone_id, found.id)
            if self._state.intents.count_failure(intent, Failure.COMPARISON) <= COMPARISONS:
                raise wrong


def _place_and_version(entry: Entry) -> tuple[str, str, Revision]:
    return entry.parent_id, entry.name, entry.revision
