"""Binding of remote entries to inodes: transfer between inodes, and merge of duplicates.

A listing may arrive before the response to this client's request, or a coworker may create the same
folder that this client is about to create. The entry then has two inodes.

INVARIANT: local changes stay reachable, whichever of the two inodes is dropped.
"""

import logging
from functools import partial

from zonedrive.errors import Changed, StoreError
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry, Revision
from zonedrive.state.conflict_copies import record_conflict, remove_mark, rename_to_copy
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.intents import Intent, due_in
from zonedrive.state.invalidation import EntryGone, InodeChanged, name_left
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import fits, local_name

log = logging.getLogger(__name__)


def claim(state: LocalState, inode: Inode, remote_id: str) -> None:
    """Drop the inode, if any, that has the entry `remote_id`, because `inode` takes over the entry.

    If both inodes are folders, the content of the dropped folder is merged into `inode`. Raises
    StoreError if the other inode is in use, or if only one of the two inodes is a folder. Raises
    Changed if `inode` is below the other folder. A folder on the path between the two was then
    moved on the service, and the next listings show the new place of that folder. Call within a
    transaction.
    """
    other = state.inodes.by_remote(inode.zone, remote_id)
    if other is None or other is inode:
        return
    if state.in_use(other) or inode.is_folder != other.is_folder:
        raise StoreError(f"inode {other.ino} already has this entry of the service")
    if other.is_folder:
        if state.inodes.is_below(inode, other):
            raise Changed("a folder above was moved here on the service")
        _unite(state, inode, other)
    _drop(state, other)


def adopt_folder(state: LocalState, intent: Intent, inode: Inode, found: Entry) -> None:
    """Bind a new local folder to `found`, the folder with the same name on the service.

    Raises StoreError and Changed as `claim` does.
    """
    with state.transaction():
        claim(state, inode, found.id)
        state.inodes.update(
            inode,
            remote_id=found.id,
            remote_parent=state.inodes.get(inode.parent).remote_id,
            remote_name=found.name,
            revision=found.revision,
            modified_by=found.modified_by,
            listed=False,
        )
        state.inodes.recent_writes.add(inode.zone, found.id)
        state.intents.done(intent, place=True)


def unite(state: LocalState, folder: Inode, other: Inode) -> None:
    """Give the new folder `folder` the entry and the content of the folder `other`.

    Raises StoreError and Changed as `claim` does. Call within a transaction.
    """
    identity = other.identity
    claim(state, folder, other.entry_id)
    state.inodes.update(folder, **identity, listed=False)


def adopt_id(state: LocalState, inode: Inode, remote_id: str) -> None:
    """Replace a wrong id that the service had reported for the inode's entry.

    Raises StoreError as `claim` does.
    """
    with state.transaction():
        claim(state, inode, remote_id)
        state.inodes.update(inode, remote_id=remote_id)


def withdraw(state: LocalState, parked: Inode, base: Revision) -> None:
    """Turn a parked file into a local-only file, and schedule the deletion of its entry.

    A parked file has been renamed to a local-only name, while its entry stayed. The entry is not
    deleted if a coworker has saved a version that is newer than `base`.
    """
    with state.transaction():
        state.inodes.update(parked, revision=base)
        detach_and_delete_remote(state, parked, due_in(0))


def release(state: LocalState, parked: Inode) -> None:
    """Turn a parked file (see `withdraw`) into a local-only file, but keep its remote entry.

    The entry is kept because a coworker has moved it.
    """
    with state.transaction():
        state.unbind(parked)
        state.intents.drop(parked.ino)
    state.moved_entries.pop(parked.ino, None)


def unbind_folder(state: LocalState, folder: Inode) -> None:
    """Turn `folder`, whose entry was deleted on the service, into a new folder.

    Also end its pending move, and remove the hash suffix (see `names`) from its name. Call within a
    transaction.
    """
    release_parked_in(state, folder)
    state.former_ids[folder.ino] = folder.entry_id
    if (intent := state.intents.get(folder.ino)) is not None:
        state.intents.done(intent, place=True)
    remove_mark(state, folder)
    state.unbind(folder)
    state.inodes.update(folder, revision=Revision(""))


def release_parked_in(state: LocalState, folder: Inode) -> None:
    """Clear `remote_parent` of the parked files whose entries are in the remote `folder`.

    The folder has left the tree, so programs save no new files in it. If a coworker has moved the
    folder, a later listing gives the folder another inode, and contains the entries again. Call
    within a transaction.
    """
    place = folder.zone, folder.remote_id
    for intent in state.intents.parked():
        inode = state.inodes.find(intent.ino)
        if inode is not None and (inode.zone, inode.remote_parent) == place:
            state.inodes.update(inode, remote_parent=None)


def hand_over(
    state: LocalState, old: Inode, old_intent: Intent, new: Inode, base: Revision
) -> None:
    """Give a new file the remote entry of a file that was removed or renamed.

    `old_intent` is the intent of the old file, and `base` the version of the entry that the new
    content replaces.
    """
    stays, identity = not old_intent.gone, old.identity
    with state.transaction():
        # A renamed file that is a conflict copy has become one at its new place.
        state.intents.conflicts.pass_on(old.ino, new.ino, is_copy=old.local or not stays)
        if stays:
            state.unbind(old)
        else:
            state.inodes.unlink(old)
            state.intents.drop(old.ino)
        state.inodes.update(new, **identity)
        if (moved_to := state.moved_entries.pop(old.ino, None)) is not None:
            state.moved_entries[new.ino] = moved_to
        state.intents.conflicts.resume(new.ino, new.zone, new.entry_id)
        state.intents.set_base(new.ino, base)
        if state.is_elsewhere(new):  # the old file's rename to this place was never sent
            state.intents.place(new.ino, due_in(0), base)
        if (session := state.session(new.ino)) is not None:
            # The session began after the step was planned.
            state.database.assign(session, base=base)
        sending = state.intents.get(new.ino)
        if sending is not None and state.is_copy(new, base):  # the service has this content
            state.intents.done(sending, content=True)
            state.revert_to_remote(new)
        if stays:
            _make_new(state, old, old_intent)
        reached(Place.IDENTITY_INSIDE)
    reached(Place.IDENTITY_ADOPTED)
    state.invalidations.put(InodeChanged(new.ino, attr_only=True))  # perhaps read-only from now on
    state.release_if_unreferenced(old)


def _make_new(state: LocalState, inode: Inode, intent: Intent) -> None:
    """Schedule the upload of a renamed file that has lost its remote entry.

    The file is sent as a new file, unless it is local-only.
    """
    if inode.local:
        state.intents.drop(inode.ino)
    else:
        state.intents.done(intent, place=True)
        state.send_content_again(inode, None, due_ns=due_in(0))


def detach_and_delete_remote(state: LocalState, inode: Inode, due_ns: int) -> None:
    """Turn the inode into a new file, and schedule the deletion of its former entry.

    A new inode without a name takes over the entry and the pending request, if any. `due_ns` is the
    earliest time to send the deletion (wall clock). Call within a transaction.
    """
    identity = inode.identity
    state.unbind(inode)
    state.intents.drop(inode.ino)
    ghost = state.inodes.add(
        NOWHERE, inode.name, Kind.FILE, zone=inode.zone, size=inode.size, **identity
    )
    state.intents.conflicts.suspend(ghost.ino, ghost.zone, ghost.entry_id)  # as for a removed copy
    state.requests.pass_on(inode.ino, ghost.ino)
    state.intents.gone(ghost.ino, due_ns)


def orphan_pending_request(state: LocalState, inode: Inode) -> None:
    """Detach the inode from its pending request, and schedule the deletion of the request's result.

    A new unlinked inode takes over the request and gets the intent to delete. Without a pending
    request, do nothing. Call this function within a transaction.
    """
    if state.requests.get(inode.ino) is not None:
        ghost = state.inodes.add(NOWHERE, inode.name, inode.kind, zone=inode.zone)
        state.requests.pass_on(inode.ino, ghost.ino)
        state.intents.gone(ghost.ino, state.due())


def _unite(state: LocalState, folder: Inode, other: Inode) -> None:
    """Move the content of the folder `other` into `folder`; merge folders with the same name."""
    inodes = state.inodes
    for child in inodes.inodes_in(other.ino):
        twin = inodes.child(folder.ino, child.name)
        state.invalidations.put(name_left(other.ino, child))
        if twin is None:
            inodes.move(child, folder.ino, child.name)
        elif not state.holds_local_changes(child):
            _drop(state, child)  # the listing adds it again once the name is free
        elif twin.is_folder and child.is_folder and _can_merge(state, child):
            _unite(state, twin, child)
            state.intents.drop(child.ino)
            _drop(state, child)
        else:
            log.warning("inode %d: its name is taken in the united folder: renamed", child.ino)
            _move_beside(state, child, folder, twin)


def _can_merge(state: LocalState, folder: Inode) -> bool:
    """Return True if the folder has no local change except an unsent creation."""
    is_sent = folder.ino in state.in_flight or state.requests.get(folder.ino) is not None
    return not state.in_use(folder) or (folder.is_new and not is_sent)


def _move_beside(state: LocalState, child: Inode, folder: Inode, twin: Inode) -> None:
    """Move `child` into `folder` under another name, because `twin` has the same name there.

    If the name comes from the service, it gets a hash suffix (see `names`). A local-only name gets
    a number. Otherwise `child` becomes a conflict copy. The conflict is not recorded if `child` is
    never uploaded.
    """
    name = state.remote_name(child)
    if child.remote_id is not None and name == child.remote_name:
        taken = state.inodes.children(folder.ino)
        state.inodes.move(child, folder.ino, local_name(name, child.remote_id, taken))
    elif child.local and (free := _local_only_name(state, child, folder)):
        state.inodes.move(child, folder.ino, free)
    else:
        rename_to_copy(state, child, folder.ino)
        if child.local:
            return
        author = state.user if twin.is_new else twin.modified_by
        record_conflict(state, child.ino, twin.ino, author)


def _local_only_name(state: LocalState, child: Inode, folder: Inode) -> str | None:
    """Return a free local-only name in `folder`, or None if there is none.

    The name consists of the name of `child` and a number. The number is as close to the end of the
    name as possible, but the setting `local_only` must still match the name.
    """
    name, taken = child.name, state.inodes.children(folder.ino)
    numbered = (
        f"{name[:at]}-{number}{name[at:]}"
        for number in range(2, 100)
        for at in range(len(name), -1, -1)
    )
    return next(
        (
            each
            for each in numbered
            if each not in taken and fits(each) and state.stays_local(folder, each)
        ),
        None,
    )


def _drop(state: LocalState, inode: Inode) -> None:
    """Unlink an inode and all inodes below it, none of which has local changes."""
    below = state.inodes.innermost_first(inode) if inode.is_folder else ()
    for each in (*below, inode):
        state.invalidations.put(EntryGone(each.parent, each.name.encode(), each.ino))
        state.inodes.unlink(each)
        state.database.after_commit(partial(state.release_if_unreferenced, each))
