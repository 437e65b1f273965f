"""Resolution of conflicts between two versions of a file, or two entries with one name.

Both versions, or both entries, are kept.

Each function makes its changes in one transaction. This module sends no requests. The caller has
queried the service before.
"""

import logging
import time

from zonedrive.errors import Changed
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.conflict_copies import (
    copy_name,
    is_copy_name,
    move,
    record_conflict,
    remove_mark,
    rename_to_copy,
)
from zonedrive.state.inode import NOWHERE, Inode, Kind, Local
from zonedrive.state.intents import Intent
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, name_left
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merge, fields_of
from zonedrive.state.names import local_name, safe
from zonedrive.state.pending_requests import PendingRequest

log = logging.getLogger(__name__)


def recreate(state: LocalState, inode: Inode, request: PendingRequest | None = None) -> None:
    """Turn a locally edited file into a new file, because its entry was deleted remotely.

    Also record a conflict. `request` is the upload that has already created the new file on the
    service, or None.
    """
    with state.transaction():
        if request is not None:
            state.requests.note(request)
        remove_mark(state, inode)
        state.unbind(inode)
        state.intents.set_base(inode.ino, None)
        record_conflict(state, inode.ino, inode.ino, "")
    reached(Place.RECREATED)


def accept_deletion(state: LocalState, intent: Intent, inode: Inode) -> None:
    """Apply the service's deletion of the inode's entry to the local state.

    A locally edited file becomes a new file. Any other file is removed. A folder stays until the
    next listing, which removes the folder or keeps the local changes in it. A folder that was
    moved into a new folder, of which there is no listing, is removed or kept at once. Raises
    Changed if a program is writing to the file, because the edit is not complete.
    """
    writing = state.local(inode.ino) & (Local.CONTENT | Local.OPENING)
    if writing and not intent.generation and inode.parent != NOWHERE:
        raise Changed("deleted on the service while a program writes to the file")
    state.listing_outdated.notify(inode.parent)
    if intent.generation:
        log.warning("inode %d: deleted on the service while edited: uploaded as new", inode.ino)
        with state.transaction():
            state.intents.done(intent, place=True)  # a new file has no former place
            recreate(state, inode)
        return
    log.info("inode %d: deleted on the service while renamed locally", inode.ino)
    if inode.is_folder:
        parent = state.inodes.get(inode.parent)
        merge = Merge(state, parent, time.monotonic_ns(), lambda: True)
        with state.transaction():
            state.intents.done(intent, place=True)
            if parent.is_new:
                merge.accept_deletion(inode)
            else:
                # Record the place that a listing would show: the next listing then removes the
                # folder, or keeps the local changes in it.
                name = state.remote_name(inode)
                state.inodes.update(inode, remote_parent=parent.remote_id, remote_name=name)
        remote_operations.queue_invalidations(state, merge.result)
        return
    if inode.parent != NOWHERE:
        state.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
    local_operations.forget(state, inode)


def keep_both_versions(state: LocalState, inode: Inode, found: Entry) -> None:
    """Turn an edited file into a new file with a conflict-copy name; show `found` instead.

    `found` is a newer version of the file's entry. A new inode takes over the former name, the
    entry, and a rename that waits to be sent. A program that has the file open continues with the
    conflict copy.
    """
    log.warning("inode %d: a coworker saved a version: ours becomes a conflict copy", inode.ino)
    former, identity, intent = inode.name, inode.identity, state.intents.get(inode.ino)
    with state.transaction():
        name = copy_name(state, inode)
        state.unbind(inode)
        move(state, inode, inode.parent, name)
        entry = state.inodes.add(
            inode.parent, former, Kind.FILE, zone=inode.zone, mode=inode.mode, **identity
        )
        state.follow(entry, found)
        state.intents.conflicts.pass_on(inode.ino, entry.ino)
        if intent is not None and intent.place:
            state.intents.done(intent, place=True)
            state.intents.place(entry.ino, intent.due_ns)
            state.intents.set_left(entry.ino, intent.left)
            state.intents.conflicts.suspend(entry.ino, entry.zone, entry.entry_id)
        state.send_content_again(inode, None, due_ns=time.time_ns())
        record_conflict(state, inode.ino, entry.ino, found.modified_by)
    reached(Place.COPY_RECORDED)


def rename_local_aside(state: LocalState, inode: Inode, found: Entry) -> None:
    """Give `inode` a conflict-copy name, because the coworker's entry `found` has the same name.

    The two names may also differ, if the service treats them as equal.
    """
    log.warning("inode %d: a coworker uses the name: ours becomes a conflict copy", inode.ino)
    parent = inode.parent
    with state.transaction():
        rename_to_copy(state, inode, parent)
        other = parent if found.unsure else _show(state, found, parent).ino
        record_conflict(state, inode.ino, other, found.modified_by)
    reached(Place.WAY_GIVEN)
    state.listing_outdated.notify(parent)


def show_kept(state: LocalState, inode: Inode, folder: Inode | None, found: Entry | None) -> None:
    """Undo the removal of `inode`, whose entry `found` the service keeps in `folder`.

    Show the entry under its name. If that is a conflict-copy name, record a conflict between the
    entry and the inode that now has the former name in `folder`, or the entry itself if there is no
    such inode. The next listing decides what to show if another inode has the entry's name, if the
    folder is not here, or if the entry's description is missing or incomplete.
    """
    if folder is None or found is None or found.unsure or not state.inodes.is_here(folder):
        local_operations.forget(state, inode)
        return
    original, is_copy = inode.name, is_copy_name(found.name, inode.name)
    with state.transaction():
        local_operations.forget(state, inode)
        if is_copy or state.inodes.child(folder.ino, safe(found.name)) is None:
            shown = _show(state, found, folder.ino)
            state.invalidations.put(EntryChanged(folder.ino, shown.name.encode()))
            state.invalidations.put(InodeChanged(folder.ino, attr_only=True))
        if is_copy:
            other = state.inodes.child(folder.ino, original) or shown
            record_conflict(state, shown.ino, other.ino, found.modified_by)
    state.listing_outdated.notify(folder.ino)


def _show(state: LocalState, found: Entry, parent: int) -> Inode:
    """Show the entry `found` under its name in the folder `parent`; return the entry's inode.

    If another folder already shows the entry, the inode stays there. Call within a transaction.
    """
    folder = state.inodes.get(parent)
    theirs = state.inodes.by_remote(folder.zone, found.id)
    others = {
        each
        for each, ino in state.inodes.children(parent).items()
        if theirs is None or ino != theirs.ino
    }
    name = local_name(found.name, found.id, others)
    if theirs is None:
        return state.inodes.add(parent, name, **fields_of(found, folder))
    if theirs.parent == parent:
        if theirs.name != name:  # with a hash suffix, or the name that it had before
            state.invalidations.put(name_left(parent, theirs))
            state.inodes.move(theirs, parent, name)
        state.inodes.update(theirs, remote_parent=folder.remote_id, remote_name=found.name)
    return theirs
