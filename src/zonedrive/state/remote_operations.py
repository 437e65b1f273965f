"""Operations that record the service's responses, each in one transaction.

A transaction changes inodes, intents and pending requests. This module sends no requests. The
caller has sent the request, and has checked that the local state has not changed since.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry, Revision, differ_in_precision
from zonedrive.state import local_operations, remote_binding
from zonedrive.state.conflict_copies import (
    UNKNOWN,
    end_conflict_if_renamed,
    move,
    record_conflict,
    record_conflict_of_folder,
)
from zonedrive.state.inode import NOWHERE, Inode, Local
from zonedrive.state.intents import Intent, due_in, provisional_id
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merge, Merged, RawListing, fields_of
from zonedrive.state.names import is_aside, local_name, shows
from zonedrive.state.pending_requests import PendingRequest

log = logging.getLogger(__name__)


# ---- content ----


def record_arrival(state: LocalState, inode: Inode, request: PendingRequest, entry: Entry) -> bool:
    """Record that the service has stored the content, or created the folder, of `request`.

    Return True if the sent bytes are the file's current content. The inode then refers to the
    service's version, and the caller moves or deletes the spool file of the sent bytes.
    """
    with state.transaction():
        state.requests.drop(request.ino)
        intent = state.intents.get(inode.ino)
        _end_sent(state, inode, request, entry, intent)
        left = state.intents.get(inode.ino)
        bytes_go = (
            request.bytes_ino == inode.ino
            and request.generation != 0
            and inode.generation == request.generation
            and not (left and left.generation)
            and not inode.local
        )
        if bytes_go:
            state.same_bytes(inode, entry.revision)
        _identify(state, inode, request, entry, **({"generation": 0} if bytes_go else {}))
        if request.remote_id is None:
            _take_name(state, inode, request)
        if intent is not None and not intent.gone:
            record_place(state, inode, created=request if request.remote_id is None else None)
        elif intent is None and inode.parent == NOWHERE:
            state.intents.gone(inode.ino, due_in(0))
        left = state.intents.get(inode.ino)
        if left is None or not left.concerns_name:
            state.intents.conflicts.end(inode.zone, entry.id)
        reached(Place.ARRIVAL_INSIDE)
    reached(Place.ARRIVED)
    if (session := state.session(inode.ino)) is not None:
        session.base = entry.revision
    if (opened := state.opened.get(inode.ino)) is not None and request.bytes_ino == inode.ino:
        opened.sent = request.generation
    if request.remote_id is None and state.rules.are_against(inode):
        state.invalidations.put(InodeChanged(inode.ino, attr_only=True))  # read-only from now on
    return bytes_go


def _end_sent(
    state: LocalState, inode: Inode, request: PendingRequest, entry: Entry, intent: Intent | None
) -> None:
    """Clear the sent part of the intent, and base the remaining change on the new version.

    If the remaining change is a removal, another file may take over the entry. The content of that
    file is then based on the new version, too.
    """
    if intent is None:
        return
    if not intent.gone:
        if request.bytes_ino == inode.ino and intent.generation == request.generation:
            state.intents.done(intent, content=True)
        if inode.is_folder:
            state.intents.done(intent, place=True)
    left = state.intents.get(inode.ino)
    if left is not None and not (intent.generation and not left.generation):
        state.intents.set_base(inode.ino, entry.revision)


def _identify(
    state: LocalState, inode: Inode, request: PendingRequest, entry: Entry, **changes: object
) -> None:
    """Bind the inode to the service's entry: store the fields of `entry`, and `changes`.

    Raises StoreError if another inode has the entry and is in use.
    """
    other = state.inodes.by_remote(inode.zone, entry.id)
    if other is not None and other is not inode and entry_has_other_name(state, request, entry):
        state.intents.conflicts.pass_on(other.ino, inode.ino)
        record_replaced(state, inode, other, request, entry)
    if request.remote_id is None:
        state.uploaded_names[entry.id] = request.name
        # The user has removed or renamed the conflict copy during its upload.
        state.intents.conflicts.identify(inode.zone, provisional_id(inode.ino), entry.id)
    remote_binding.claim(state, inode, entry.id)
    if request.remote_id is None:
        changes |= {
            "remote_id": entry.id,
            "remote_parent": entry.parent_id or request.folder,
            "remote_name": entry.name or request.name,
        }
    elif (request.folder, request.name) != (inode.remote_parent, inode.remote_name):
        # A coworker renamed or moved the entry: the next listing shows the new place.
        state.listing_outdated.notify(None)
    if entry.attributes != inode.attributes:  # the permissions change, too
        state.invalidations.put(InodeChanged(inode.ino, attr_only=True))
    state.inodes.update(
        inode,
        revision=entry.revision,
        modified_by=entry.modified_by,
        type=entry.type,
        sync=entry.sync,
        attributes=entry.attributes,
        **changes,
    )
    state.inodes.recent_writes.add(inode.zone, entry.id)


def entry_has_other_name(state: LocalState, request: PendingRequest, entry: Entry) -> bool:
    """Return True if the new file or folder of `request` may have become an entry of another name.

    The service may treat names as equal, for example names that differ only in case. The other name
    is the name in the response `entry`, or the name in an earlier upload to this entry.
    """
    if request.remote_id is not None:
        return False
    names = (entry.name or request.name, state.uploaded_names.get(entry.id, request.name))
    return names != (request.name, request.name)


def record_replaced(
    state: LocalState, inode: Inode, other: Inode, request: PendingRequest, entry: Entry
) -> None:
    """Record a conflict if a new local file has become a version of another file.

    `other` is the former inode of the other file, and `inode` is the new one. `entry` is the new
    version, as in the response to `request`. Does nothing for folders. Also does nothing if the
    previous version was this user's, and the user has removed the file here or uploaded it under
    the same name. For example, a program that always saves to the path `X.TXT` creates a new file
    each time, because the service's name is `x.txt`.
    """
    former = state.uploaded_names.get(entry.id)
    state.uploaded_names[entry.id] = request.name
    is_same = entry.revision == other.revision
    if other.is_folder or is_same or differ_in_precision(entry.revision, other.revision):
        return
    is_known = former not in (None, request.name)
    if state.is_own(other.modified_by) and (other.parent == NOWHERE or not is_known):
        return
    log.warning("inode %d: has replaced the version of another file", inode.ino)
    record_conflict(state, inode.ino, inode.ino, other.modified_by or UNKNOWN)


def _take_name(state: LocalState, inode: Inode, request: PendingRequest) -> None:
    """Rename the inode locally if the service has given its entry a name other than requested.

    An inode that was renamed or moved since the request keeps its name. Call within a transaction.
    """
    parent, name = inode.parent, inode.remote_name
    if name in (None, request.name) or not is_at_place(state, inode, request):
        return
    assert name is not None
    others = {each for each, ino in state.inodes.children(parent).items() if ino != inode.ino}
    move(state, inode, parent, local_name(name, inode.entry_id, others))
    log.info("inode %d: the service has given it another name: renamed locally", inode.ino)


def is_at_place(state: LocalState, inode: Inode, request: PendingRequest) -> bool:
    """Return True if the inode has the folder and the name that the request contains."""
    if inode.parent == NOWHERE or state.inodes.get(inode.parent).remote_id != request.folder:
        return False
    return shows(inode.name, request.name, inode.remote_id)


def discard_sent(
    state: LocalState,
    inode: Inode,
    request: PendingRequest,
    current: Entry,
    *,
    sent_to: Entry | None = None,
) -> None:
    """Record that the sent version is not the current version of the inode's entry.

    Either a newer version exists, or the upload went to another entry, `sent_to`. `sent_to` is then
    recorded as a conflict copy, whose local name may have a hash suffix until the next listing. The
    file now shows `current`, the service's version, unless newer content was saved since the
    request. While a program has the file open for writing, the file shows the content of the write
    session.
    """
    intent = state.intents.get(inode.ino)
    with state.transaction():
        state.requests.drop(inode.ino)
        if intent is not None and intent.generation == request.generation and not intent.gone:
            state.intents.done(intent, content=True)
        left = state.intents.get(inode.ino)
        is_edited = left is not None and left.generation
        if not is_edited and inode.generation == request.generation:
            state.follow(inode, current)
        if sent_to is not None:
            _record_sent_to(state, inode, request, current, sent_to)
    state.content_changed(inode)
    state.resolved(request)


def send_again(state: LocalState, request: PendingRequest, stray: Entry) -> bool:
    """End `request`, schedule its upload again, and schedule the deletion of the file `stray`.

    The upload has created `stray` instead of a version. Return False, and do nothing, if an inode
    represents `stray`, because the file then existed before the upload.
    """
    folder = state.inodes.by_remote(request.zone, request.folder)
    if folder is None or folder.parent == NOWHERE:
        return False
    if state.inodes.by_remote(request.zone, stray.id) is not None:
        return False
    with state.transaction():
        state.resolved(request)
        name = local_name(stray.name, stray.id, state.inodes.children(folder.ino))
        inode = state.inodes.add(folder.ino, name, **fields_of(stray, folder))
        state.inodes.recent_writes.add(request.zone, stray.id)
        local_operations.remove(state, inode, final=True)
    return True


def _record_sent_to(
    state: LocalState, inode: Inode, request: PendingRequest, current: Entry, entry: Entry
) -> None:
    copy = state.inodes.by_remote(request.zone, entry.id)
    if copy is not None and copy.is_folder:
        return  # a wrong answer; a move of this folder could form a cycle
    folder = state.inodes.by_remote(request.zone, request.folder)
    if folder is not None and folder.parent != NOWHERE:
        if copy is None:
            name = local_name(entry.name, entry.id, state.inodes.children(folder.ino))
            copy = state.inodes.add(folder.ino, name, **fields_of(entry, folder))
            state.inodes.recent_writes.add(request.zone, entry.id)
        elif (copy.remote_parent, copy.remote_name) != (request.folder, entry.name) and not (
            state.local(copy.ino) & (Local.PLACE | Local.GONE)
        ):
            # Otherwise the next listing would end the conflict, as if the copy had been renamed.
            follow_move(state, copy, folder, request.folder, entry)
    if copy is not None:
        record_conflict(state, copy.ino, inode.ino, current.modified_by)


def accept_version(state: LocalState, inode: Inode, entry: Entry) -> None:
    """Show `entry`, the service's current version of a file without local bytes."""
    with state.transaction():
        state.follow(inode, entry)
    state.content_changed(inode)


# ---- names ----


def record_place(state: LocalState, inode: Inode, *, created: PendingRequest | None = None) -> None:
    """Schedule a move if the inode's local place now differs from its place on the service.

    Called after a request during which the inode may have been renamed. `created` is this request
    if it has created the inode's entry, else None. Call within a transaction.
    """
    intent = state.intents.get(inode.ino)
    if inode.parent == NOWHERE or (intent is not None and intent.parked):
        return
    folder = state.inodes.get(inode.parent)
    # A new entry may have been renamed. Or it may have been moved, from a folder that is still
    # known, into a folder that was deleted or moved on the service.
    is_moved = created is not None and (
        not shows(inode.name, created.name, inode.remote_id)
        or (
            state.former_ids.get(folder.ino) != created.folder
            and state.inodes.by_remote(created.zone, created.folder) is not None
        )
    )
    if not is_moved and folder.is_new and state.intents.get(folder.ino) is None:
        # The folder was deleted or moved on the service: a listing shows the file's place.
        if created is not None:
            state.listing_outdated.notify(None)
        return
    if state.is_elsewhere(inode):
        state.intents.place(inode.ino, due_in(0))


def record_location(
    state: LocalState, request: PendingRequest, entry: Entry | None, before: Revision | None = None
) -> None:
    """Record the place of an entry on the service after a move whose response was lost.

    If `entry` is None, the service does not have the entry, and only the request is deleted.
    `before` is the entry's revision before the move if the entry still has the same bytes, else
    None.
    """
    inode = state.inodes.find(request.ino)
    with state.transaction():
        state.requests.drop(request.ino)
        if inode is None or entry is None or inode.remote_id != request.remote_id:
            return
        above = request.folder if entry.name == request.name else inode.remote_parent
        state.inodes.update(inode, remote_parent=entry.parent_id or above, remote_name=entry.name)
        state.inodes.recent_writes.add(inode.zone, entry.id)
        _follow_revision(state, inode, before, entry.revision)
        intent = state.intents.get(inode.ino)
        if intent is None or not (intent.place or intent.gone):
            record_place(state, inode)
        elif not (intent.gone or intent.parked or state.is_elsewhere(inode)):
            state.intents.done(intent, place=True)
            state.intents.conflicts.end(inode.zone, entry.id)


def record_move(
    state: LocalState,
    inode: Inode,
    above: str,
    entry: Entry,
    *,
    before: Revision | None = None,
    request: PendingRequest | None = None,
    done: Intent | None = None,
) -> None:
    """Record that a move succeeded: `entry` is in the folder with the remote id `above`.

    `before` is the entry's revision before the move if the entry still has the same bytes, else
    None. A revision of `entry` that differs from `before` only in the precision of the time counts
    as unchanged. `request` is the pending request of the move, and `done` the intent that the move
    completes.
    """
    revision = entry.revision
    if before is not None and differ_in_precision(before, revision):
        revision = before
    with state.transaction():
        if request is not None and (present := state.requests.present(request)) is not None:
            state.requests.drop(present.ino)
            inode = state.inodes.find(present.ino) or inode
        state.inodes.recent_writes.add(inode.zone, entry.id)
        state.inodes.update(inode, remote_parent=above, remote_name=entry.name)
        state.uploaded_names.pop(entry.id, None)
        _follow_revision(state, inode, before, revision)
        if done is not None:
            state.intents.done(done, place=True)
            state.intents.conflicts.end(inode.zone, entry.id)
            if request is not None:
                _take_name(state, inode, request)


def _follow_revision(
    state: LocalState, inode: Inode, before: Revision | None, revision: Revision
) -> None:
    """Record the revision of an entry after a move, because a move may count as a modification.

    `before` is the entry's revision before the move if the entry still has the same bytes, else
    None. Call within a transaction.
    """
    intent = state.intents.get(inode.ino)
    if intent is not None and intent.generation:
        if before is not None and before == intent.base:
            state.intents.set_base(inode.ino, revision)
            state.inodes.update(inode, revision=revision)
    elif before == inode.revision != revision:
        if not inode.generation:
            state.same_bytes(inode, revision)
        state.inodes.update(inode, revision=revision)
        same = (inode.ino, before, revision, inode.size, state.source(inode))
        state.database.after_commit(lambda: state.cache.relabel(*same))


def record_revision(state: LocalState, inode: Inode, intent: Intent, revision: Revision) -> None:
    """Set an edit's base to `revision`, the same version with another precision of the time."""
    with state.transaction():
        if inode.revision == intent.base:
            state.inodes.update(inode, revision=revision)
        state.intents.set_base(inode.ino, revision)


def record_blocking_place(state: LocalState, inode: Inode, above: str, name: str) -> None:
    """Record the place on the service of an entry whose name another entry needs.

    `inode` is the inode of the occupying entry, and has local changes. `above` is the remote id of
    the folder that contains this entry on the service, and `name` is the entry's name there.
    """
    with state.transaction():
        state.inodes.update(inode, remote_parent=above, remote_name=name)


def end_move(state: LocalState, intent: Intent, inode: Inode) -> None:
    """End the move in an intent, because the service already has the entry at its new place."""
    with state.transaction():
        state.intents.done(intent, place=True)
        state.intents.conflicts.end(inode.zone, inode.entry_id)


def end_removal(state: LocalState, inode: Inode) -> None:
    """Remove the inode of an entry after the service has deleted the entry."""
    with state.transaction():
        state.intents.conflicts.end(inode.zone, inode.remote_id or "")
        local_operations.forget(state, inode)


def move_back(state: LocalState, ways: Mapping[int, tuple[Inode, Inode, str]]) -> None:
    """Undo moves that the service has rejected.

    `ways` maps each inode number to the inode, its former folder and its former name.
    """
    former = [(inode.parent, inode.name) for inode, _, _ in ways.values()]
    with state.transaction():
        for inode, _, _ in ways.values():
            state.inodes.move(inode, inode.parent, f"/{inode.ino}")  # a name that no entry can have
        for inode, folder, name in ways.values():
            state.inodes.move(inode, folder.ino, name)
            state.intents.conflicts.resume(inode.ino, inode.zone, inode.entry_id)
            intent = state.intents.get(inode.ino)
            if is_aside(inode.remote_name):
                state.intents.place(inode.ino, due_in(0))
            elif intent is not None:
                state.intents.done(intent, place=True)
    now = [(folder.ino, name) for _, folder, name in ways.values()]
    for parent, name in (*former, *now):
        state.invalidations.put(EntryChanged(parent, name.encode()))


def follow_move(state: LocalState, inode: Inode, folder: Inode, above: str, found: Entry) -> None:
    """Move an inode to the place that the service reports, because a coworker moved its entry.

    The inode was not renamed locally. `folder` is the new folder, with the remote id `above`. A
    folder that was moved is not reported to the kernel as removed, see `queue_invalidations`.
    """
    old, former, now = inode.parent, inode.name, time.time_ns()
    others = {name for name, ino in state.inodes.children(folder.ino).items() if ino != inode.ino}
    name = local_name(found.name, found.id, others)
    with state.transaction():
        end_conflict_if_renamed(state, inode, found.name)
        state.inodes.move(inode, folder.ino, name)
        state.inodes.update(inode, remote_parent=above, remote_name=found.name)
        state.moved_entries.pop(inode.ino, None)
        state.inodes.recent_writes.add(inode.zone, found.id)  # older listings lack the entry
        for each in state.inodes.get_all({old, folder.ino}):
            state.inodes.update(each, mtime_ns=now, ctime_ns=now)
            state.invalidations.put(InodeChanged(each.ino, attr_only=True))
    if inode.is_folder:
        state.invalidations.put(EntryChanged(old, former.encode()))
    else:
        state.invalidations.put(EntryGone(old, former.encode(), inode.ino))
    state.invalidations.put(EntryChanged(folder.ino, name.encode()))
    for ino in (old, folder.ino):  # the merges of their next listings find no change
        state.retry_failed_in(ino)
    state.intents.changes.notify()
    log.info("inode %d: moved by a coworker: moved locally as well", inode.ino)


def add_folders(state: LocalState, top: Inode, entries: Sequence[Entry]) -> Inode:
    """Add a chain of nested remote folders to the tree; return the innermost one.

    The first of `entries` is in `top`, and each other entry is in the entry before it. If an inode
    in the chain was removed locally, or is a file, return that inode instead.
    """
    folder = top
    with state.transaction():
        for entry in entries:
            if folder.parent == NOWHERE or not folder.is_folder:
                break
            present = state.inodes.by_remote(top.zone, entry.id)
            if present is None:
                name = local_name(entry.name, entry.id, state.inodes.children(folder.ino))
                present = state.inodes.add(folder.ino, name, **fields_of(entry, folder))
            folder = present
    return folder


def create_lost_folder(state: LocalState, folder: Inode) -> None:
    """Schedule the creation of a folder deleted on the service, and of deleted folders above it.

    The folder is needed again, because a change in it is to be sent. Does nothing if the creation
    is scheduled already.
    """
    with state.transaction():
        for each in state.inodes.and_above(folder):
            if not each.is_new or each.local or state.intents.get(each.ino) is not None:
                break
            log.warning("inode %d: deleted on the service while edited, created again", each.ino)
            record_conflict_of_folder(state, each)
            state.intents.place(each.ino, state.due())


def forget_below(state: LocalState, inodes: Sequence[Inode]) -> None:
    """Remove the given descendants of a folder that was deleted on the service.

    Their intents, pending requests and local bytes are deleted, too. The bytes of an open file are
    deleted after its last close.
    """
    with state.transaction():
        for inode in inodes:
            state.intents.drop(inode.ino)
            state.requests.drop(inode.ino)
            state.inodes.unlink(inode)
    reached(Place.FOLDER_EMPTIED)
    for inode in inodes:
        state.release_if_unreferenced(inode)


def merge_listings(state: LocalState, merges: Sequence[tuple[Merge, RawListing]]) -> None:
    """Merge small listings, each with its own `Merge`, in one transaction."""
    with state.transaction():
        for merge, answer in merges:
            for _ in merge.entries(answer):
                pass


def queue_invalidations(state: LocalState, merged: Merged) -> None:
    """Queue invalidations for a listing's changes; delete local copies of replaced versions.

    New names are not reported, because the kernel does not cache missing names. A renamed
    folder is not reported as removed, because programs that work in it would then get errors.
    """
    if (merged.gone or merged.moved or merged.appeared) and state.intents.conflicts.exist():
        state.intents.changes.notify()  # perhaps a conflict copy was added, removed or renamed
    for parent, name, ino in merged.gone:
        state.invalidations.put(EntryGone(parent, name.encode(), ino))
    for parent, name in merged.moved:
        state.invalidations.put(EntryChanged(parent, name.encode()))
    for ino in merged.content:
        if (inode := state.inodes.find(ino)) is not None:
            state.content_changed(inode)
    for ino, generation in merged.copies:
        inode = state.inodes.find(ino)
        # After a rollback of the merge, the inode refers to the copy again. The copy of an open
        # file that is gone is deleted after its last close.
        is_gone = (
            inode is None
            or inode.generation != generation
            or (inode.parent == NOWHERE and ino not in state.opened)
        )
        if is_gone:
            state.drop_bytes(ino, generation)
    for ino in merged.attributes:
        state.invalidations.put(InodeChanged(ino, attr_only=True))
