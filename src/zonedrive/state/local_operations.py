"""Operations of programs on this machine: each is one transaction of inodes and intents.

A change takes effect locally at once, and its intent records the change for the service.
The caller has checked that the change is permitted, and that the state has not changed since the
check.

If a file with local bytes takes the name of another file, its content becomes the next version of
the other file's entry, because many programs save in this way. A rename over an existing file
transfers the entry at once. If the other file was removed or renamed before, the upload transfers
the entry (`sync.planner`).

A temporary file may already have been uploaded before its program renames it. The temporary file
then becomes a new file again: its own entry is deleted, and its bytes become the next version of
the other file's entry. The entry is transferred only if the other file was removed, replaced, or
renamed to a local-only name such as that of a backup. If the other file got an ordinary name, both
files keep their entries.
"""

import errno
import time
from collections.abc import Iterable

from zonedrive.content.content_file import ContentFile
from zonedrive.failpoint import Place, reached
from zonedrive.model import Revision
from zonedrive.state.attributes import MODE_BITS
from zonedrive.state.conflict_copies import record_conflict, remove_mark
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.intents import LocalPlace, provisional_id
from zonedrive.state.invalidation import EntryChanged, InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import TEMPORARY, local_name, local_only_reason
from zonedrive.state.open_file import OpenFile, Session, content_of
from zonedrive.state.remote_binding import detach_and_delete_remote, orphan_pending_request

# ---- creation ----


def create_file(state: LocalState, folder: Inode, name: str, mode: int) -> Inode:
    """Create and return an empty file.

    The file is lost if the daemon ends before the file's first close or fsync.
    """
    with state.transaction():
        inode = state.inodes.draft(
            folder.ino,
            name,
            zone=folder.zone,
            mode=mode & MODE_BITS,
            local=becomes_local(state, None, folder, name),
        )
        now = time.time_ns()
        state.inodes.note_times(folder, mtime_ns=now, ctime_ns=now)
    reached(Place.FILE_NAMED)
    return inode


def make_folder(state: LocalState, folder: Inode, name: str, mode: int) -> Inode:
    """Create and return a folder; schedule its creation on the service unless it is local-only."""
    local = state.stays_local(folder, name)
    with state.transaction():
        inode = state.inodes.add(
            folder.ino,
            name,
            Kind.FOLDER,
            zone=folder.zone,
            mode=mode & MODE_BITS,
            local=local,
            listed=True,
        )
        _touch(state, folder)
        if not local:
            state.intents.place(inode.ino, state.due())
    reached(Place.FOLDER_NAMED)
    return inode


def recreate_empty(state: LocalState, opened: OpenFile, folder: Inode, name: str) -> None:
    """Turn an open file that was just deleted on the service into a new, empty file.

    The new file gets the name `name` in `folder`, without a hash suffix (see `names`). Also record
    a conflict.
    """
    inode = state.inodes.get(opened.ino)
    with state.transaction():
        state.inodes.move(inode, folder.ino, name)
        remove_mark(state, inode)
        state.inodes.update(
            inode, size=0, revision=Revision(""), remote_parent=None, remote_name=None
        )
        record_conflict(state, inode.ino, inode.ino, "")
    opened.close()
    opened.content = content_of(inode)
    state.invalidations.put(InodeChanged(inode.ino, attr_only=False))


# ---- content and attributes ----


def commit_content(state: LocalState, inode: Inode, session: Session) -> None:
    """Record the bytes of a write session as the file's content.

    The bytes are already complete in the spool. The upload waits until no program has the file
    open.
    """
    former = inode.generation
    with state.transaction():
        state.inodes.update(
            inode,
            generation=session.generation,
            size=session.size,
            mtime_ns=session.mtime_ns,
            ctime_ns=max(inode.ctime_ns, session.ctime_ns),
        )
        state.spool.record(inode.ino, session.generation, session.file)
        if not inode.local and inode.parent != NOWHERE:
            state.send_content(inode, session.base, held=True)
        reached(Place.RECORD_INSIDE)
    reached(Place.RECORDED)
    session.dirty, session.refused = False, 0
    if former and former != session.generation:
        state.supersede_bytes(inode.ino, former)
        reached(Place.FORMER_DELETED)


def shrink_content(state: LocalState, inode: Inode, session: Session, size: int) -> None:
    """Reduce the recorded size of a write session's content, before its spool file is truncated.

    The recorded size therefore never exceeds the size of the file.
    """
    if inode.generation == session.generation and inode.size > size:
        _record_size(state, inode, session, size)


def restore_size(state: LocalState, inode: Inode, session: Session, size: int) -> None:
    """Record the former size `size` again if the truncation after `shrink_content` has failed.

    Do nothing if the spool file is already shorter.
    """
    if inode.generation == session.generation and inode.size < size <= session.file.size:
        _record_size(state, inode, session, size)


def _record_size(state: LocalState, inode: Inode, session: Session, size: int) -> None:
    with state.transaction():
        state.inodes.update(inode, size=size)
        intent = state.intents.get(inode.ino)
        if intent is not None and intent.generation == session.generation:
            state.send_content(inode, session.base, held=True)
        state.spool.record(inode.ino, session.generation, session.file, size=size)


def adopt_copy(state: LocalState, inode: Inode, generation: int, file: ContentFile) -> None:
    """Use a copy of the service's current version as the local bytes of the file."""
    state.copies[inode.ino, generation] = (inode.remote_id, inode.revision)
    if inode.remote_id is not None:
        state.unsynced_copies.setdefault(inode.remote_id, []).append((inode.ino, generation))
    with state.transaction():
        state.same_bytes(inode, generation)
        state.spool.record(inode.ino, generation, file)
        state.inodes.update(inode, generation=generation)


def acknowledge_conflicts(state: LocalState, copies: Iterable[int]) -> None:
    """Record that the user has been told about the given conflict copies (inode numbers)."""
    with state.transaction():
        state.intents.conflicts.tell(copies)


def set_attributes(state: LocalState, inode: Inode, **changes: int) -> None:
    """Set permission bits and times of an inode; `changes` maps field names to values."""
    with state.transaction():
        state.inodes.update(inode, **changes)


# ---- removal ----


def remove(state: LocalState, inode: Inode, *, final: bool = False) -> None:
    """Remove a file or an empty folder, and schedule the deletion of its entry on the service.

    If another file with local bytes was moved locally to the place of the entry, that file takes
    over the entry, unless `final` is set. Raises OSError (ENOTEMPTY) if the folder is not empty.
    """
    with state.transaction():
        folder = state.inodes.get(inode.parent)
        has_successor = not (final or inode.is_new or inode.is_folder or _is_moving(state, inode))
        _remove(state, inode, final=final)
        if has_successor:
            moved = successor(state, inode)
            if moved is not None:
                _restart_history(state, moved)
        _touch(state, folder)
    reached(Place.NAME_REMOVED)
    state.release_if_unreferenced(inode)


def remove_whole(state: LocalState, folder: Inode) -> None:
    """Remove a folder with everything in it, permanently (see `Intent.final`)."""
    with state.transaction():
        parent = state.inodes.get(folder.parent)
        state.inodes.unlink(folder, tombstone=True)
        state.intents.gone(folder.ino, time.time_ns(), final=True)
        _touch(state, parent)
    reached(Place.TRASHED)


def put_back(state: LocalState, folder: Inode, above: Inode) -> None:
    """Undo `remove_whole`: show the folder with everything in it again, in the folder `above`."""
    name = local_name(
        folder.remote_name or folder.name, folder.entry_id, state.inodes.children(above.ino)
    )
    with state.transaction():
        state.inodes.move(folder, above.ino, name)
        state.intents.drop(folder.ino)
        _touch(state, above)
    state.invalidations.put(EntryChanged(above.ino, name.encode()))
    state.invalidations.put(InodeChanged(above.ino, attr_only=True))


def forget(state: LocalState, inode: Inode) -> None:
    """Remove an inode and its local bytes, without a request to the service.

    Inodes below a removed folder are removed, too, because no other code would find them. The bytes
    of an open file are removed after its last close.
    """
    intent = state.intents.get(inode.ino)
    below = list(state.inodes.innermost_first(inode)) if inode.is_folder else []
    with state.transaction():
        for each in below:
            state.inodes.unlink(each)
            state.intents.drop(each.ino)
        state.inodes.unlink(inode)
        state.intents.drop(inode.ino)
    reached(Place.DELETE_NOTED)
    if inode.ino not in state.opened:
        state.discard_bytes(inode, intent)
    for each in (*below, inode):
        state.release_if_unreferenced(each)


def _remove(state: LocalState, inode: Inode, *, final: bool = False) -> None:
    if inode.is_folder and state.inodes.children(inode.ino):
        raise OSError(errno.ENOTEMPTY, "the folder is not empty")
    intent, opened = state.intents.get(inode.ino), state.opened.get(inode.ino)
    _suspend_conflict(state, inode)
    left = _last_place(state, inode)
    if opened is not None:
        state.database.assign(opened, removed_here=True)
    if inode.is_new:
        _give_up_parked(state, inode)
    if inode.is_new and state.requests.get(inode.ino) is None:
        state.inodes.unlink(inode)
        state.intents.drop(inode.ino)
    else:
        due = state.due() if inode.is_new else state.due_for_names()
        state.inodes.unlink(inode, tombstone=True)
        state.intents.gone(inode.ino, due, final=final)
        if opened is not None:
            state.intents.hold(inode.ino)
        state.intents.set_left(inode.ino, left)
        if intent is not None and not (intent.keeps_base or inode.is_new):
            state.intents.set_base(inode.ino, inode.revision)  # which programs may have read
    if intent is not None and intent.generation and opened is None:
        state.discard_bytes(inode, intent)
        state.inodes.update(inode, generation=0)


def _suspend_conflict(state: LocalState, inode: Inode) -> None:
    """Stop listing a conflict copy, because the user removes or renames it.

    The conflict ends when the change is sent. If the change is undone, the copy is listed again.
    """
    if inode.remote_id is None:
        if state.requests.get(inode.ino) is None:
            state.intents.conflicts.drop(inode.ino)
        else:
            state.intents.conflicts.suspend(inode.ino, inode.zone, provisional_id(inode.ino))
    else:
        state.intents.conflicts.suspend(inode.ino, inode.zone, inode.remote_id)


# ---- renaming ----


def rename(state: LocalState, inode: Inode, folder: Inode, name: str, target: Inode | None) -> None:
    """Move an inode to the name `name` in `folder`; replace `target`, the inode with that name.

    `target` is None if the name is free.
    """
    former = target or removed_at(state, folder, name)
    old_folder = state.inodes.get(inode.parent)
    left = _last_place(state, inode)
    local = becomes_local(state, inode, folder, name, target)
    is_leaving = target is not None and _is_leaving(state, target)
    with state.transaction():
        if not local:
            _suspend_conflict(state, inode)
            if inode.is_new:
                _give_up_parked(state, inode)
        is_successor = target is not None and _replace(state, inode, target, local=local)
        if not (target or local or inode.is_folder) and former not in (None, inode):
            _restart_history(state, inode)
        _place(state, inode, folder, name, local=local, is_successor=is_successor)
        if not is_successor:
            state.intents.set_left(inode.ino, left)
        elif is_leaving:
            state.intents.place(inode.ino, state.due_for_names())
        for each in {old_folder, folder}:
            _touch(state, each)
        reached(Place.RENAME_INSIDE)
    reached(Place.RENAMED)
    if target is not None:
        state.release_if_unreferenced(target)


def _is_leaving(state: LocalState, inode: Inode) -> bool:
    """Return True if a local-only file is about to lose its entry (WITHDRAW in `sync.planner`)."""
    intent = state.intents.get(inode.ino)
    return inode.local and intent is not None and intent.place and not intent.parked


def exchange(state: LocalState, inode: Inode, target: Inode) -> None:
    """Exchange the places (folder and name) of two inodes."""
    old_folder, new_folder = state.inodes.get(inode.parent), state.inodes.get(target.parent)
    here, there = (old_folder, inode.name), (new_folder, target.name)
    left = {each.ino: _last_place(state, each) for each in (inode, target)}
    is_local = {
        inode.ino: becomes_local(state, inode, *there, target),
        target.ino: becomes_local(state, target, *here, inode),
    }
    with state.transaction():
        for each in (inode, target):
            if not is_local[each.ino]:
                _suspend_conflict(state, each)
        state.inodes.move(inode, inode.parent, f"/{inode.ino}")  # a name that no entry can have
        _place(state, target, *here, local=is_local[target.ino])
        _place(state, inode, *there, local=is_local[inode.ino])
        for ino, place in left.items():
            state.intents.set_left(ino, place)
        for folder in {old_folder, new_folder}:
            _touch(state, folder)
    reached(Place.EXCHANGED)


def leave_request(state: LocalState, inode: Inode) -> None:
    """Call `orphan_pending_request` for the inode, in a transaction of its own."""
    with state.transaction():
        orphan_pending_request(state, inode)


def becomes_local(
    state: LocalState, inode: Inode | None, folder: Inode, name: str, target: Inode | None = None
) -> bool:
    """Return True if an inode becomes local-only when it gets the name `name` in `folder`.

    `inode` is None for a new file. `target` is the inode that already has the name, or None. Even
    if the name matches the setting `local_only`, a file does not become local-only if the service
    has a file with this name. The content of the local file then becomes the next version of the
    service's file. The service's file may have been removed, renamed or parked (see
    `IntentTable.park`) locally. If a policy forbids uploads under `name`, a file that is already on
    the service becomes local-only (it is parked), unless `name` is its name on the service.
    """
    if not state.stays_local(folder, name):
        return False
    if target is not None:
        return target.local
    leaving = state.leaving.at(folder, name)
    if inode in leaving:
        return False
    if inode is not None and inode.is_folder:
        return True
    if inode is not None and not inode.is_new and state.is_never_uploaded(name):
        return True
    return not any(_can_continue(state, each) for each in leaving)


def _can_continue(state: LocalState, inode: Inode) -> bool:
    """Return True if a new file at the place of the inode's entry can take over the entry."""
    running, intent = state.in_flight.get(inode.ino), state.intents.get(inode.ino)
    if inode.is_folder or intent is None or intent.final or _is_moving(state, inode):
        return False
    return running is None or not (running.gone or (running.place and not running.parked))


def _last_place(state: LocalState, inode: Inode) -> LocalPlace | None:
    """Return the new `Intent.left` of an inode that is about to leave its local place.

    The old value is kept if the file has a local-only name, or if a new file is at the place in the
    old value. Otherwise, the new value is the local place if the rename to this place is not sent
    yet, or if the name has a hash suffix that the service's name does not have (see `names`), else
    None.
    """
    if inode.is_folder or inode.is_new:
        return None
    intent = state.intents.get(inode.ino)
    if intent is not None and intent.place:
        if intent.left is not None:
            there = state.inodes.child(*intent.left)
            if inode.local or (there is not None and there.is_new and not there.is_folder):
                return intent.left
        if inode.local:
            return None
        if not _had(inode, state.inodes.get(inode.parent), state.remote_name(inode)):
            return inode.parent, inode.name
    remote_name = state.remote_name(inode)
    usual = local_name(remote_name, inode.entry_id, ())
    return None if inode.name in (remote_name, usual) else (inode.parent, inode.name)


def removed_at(state: LocalState, folder: Inode, name: str) -> Inode | None:
    """Return the removed or parked file whose entry was shown as `name` in `folder`, or None.

    For parked files, see `sync.planner`. These files do not count: a file whose deletion is final
    (`Intent.final`) or under way, and a file that a pending request moves.
    """
    for inode in state.leaving.at(folder, name):
        running, intent = state.in_flight.get(inode.ino), state.intents.get(inode.ino)
        if intent is None or (running is not None and running.gone):
            continue
        if inode.is_folder or intent.final or not (intent.gone or inode.local):
            continue
        if not _is_moving(state, inode):
            return inode
    return None


def _had(inode: Inode, folder: Inode, name: str) -> bool:
    """Return True if the inode's last known place on the service is `name` in `folder`."""
    place = inode.zone, inode.remote_parent, inode.remote_name
    return inode.remote_parent is not None and place == (folder.zone, folder.remote_id, name)


def _give_up_parked(state: LocalState, successor: Inode) -> None:
    """Schedule the deletion of the entries whose place on the service `successor` has taken.

    These entries belong to parked files, which keep their content and their local-only names.
    Called when the successor is removed or renamed.
    """
    folder = state.inodes.get(successor.parent)
    for inode in state.leaving.at(folder, successor.name):
        intent = state.intents.get(inode.ino)
        if intent is not None and intent.parked:
            state.intents.place(inode.ino, state.due_for_names())


def _is_moving(state: LocalState, inode: Inode) -> bool:
    """Return True if a pending request moves the inode's entry.

    The entry's former place on the service is then not free yet.
    """
    request = state.requests.get(inode.ino)
    return request is not None and request.is_move


def successor(state: LocalState, inode: Inode) -> Inode | None:
    """Return the file that was moved locally to the place of `inode`'s remote entry, or None."""
    folder = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
    name = state.leaving.display_name(inode.ino) or inode.remote_name or ""
    moved = state.inodes.child(folder.ino, name) if folder else None
    if moved is None or moved is inode or moved.is_folder or moved.is_new:
        return None
    intent = state.intents.get(moved.ino)
    return moved if intent is not None and intent.place and not moved.local else None


def _restart_history(state: LocalState, moved: Inode) -> None:
    """Turn a file with local bytes into a new file, so that it can take over another entry."""
    if moved.is_new:
        orphan_pending_request(state, moved)
    elif moved.generation:
        detach_and_delete_remote(state, moved, state.due_for_names())
        state.send_content_again(moved, None)


def _replace(state: LocalState, inode: Inode, target: Inode, *, local: bool) -> bool:
    """Remove the name of `target`; return True if `inode` has taken over the entry of `target`.

    If so, the content of `inode` becomes the next version of the entry. `local` tells whether the
    name is local-only. A file that is renamed to a local-only name keeps its own entry, if any.
    """
    files = not inode.is_folder and not target.is_folder
    if files and target.is_new:
        if inode.is_new:  # a save: the new file is the conflict copy from now on
            state.intents.conflicts.pass_on(target.ino, inode.ino)
        state.inodes.replaced.notify(target.ino, inode.ino)
    elif inode.generation and not (local or inode.is_new):
        detach_and_delete_remote(state, inode, state.due_for_names())
    if not files or target.is_new or not inode.is_new:
        _remove(state, target)
        return False
    intent, identity, base = state.intents.get(target.ino), target.identity, target.revision
    if intent is not None and intent.keeps_base:
        base = intent.base or base  # after a mere rename, programs may have read a newer version
    orphan_pending_request(state, inode)
    state.requests.pass_on(target.ino, inode.ino)
    state.intents.conflicts.pass_on(target.ino, inode.ino)
    if intent is not None:
        state.intents.drop(target.ino)
        if target.ino not in state.opened:
            state.discard_bytes(target, intent)
            state.inodes.update(target, generation=0)
    if (opened := state.opened.get(target.ino)) is not None:
        state.database.assign(opened, removed_here=True)
    state.inodes.unlink(target)
    if target.attributes != inode.attributes:  # the permissions change, too
        state.invalidations.put(InodeChanged(inode.ino, attr_only=True))
    state.inodes.update(inode, **identity)
    if (session := state.session(inode.ino)) is not None:
        state.database.assign(session, base=base)
    if inode.generation:
        state.send_content_again(inode, base)
    if intent is not None and intent.place:
        state.intents.place(inode.ino, state.due_for_names())
        state.intents.set_left(inode.ino, intent.left)
    return True


def _park(state: LocalState, inode: Inode) -> None:
    """Park a file that got a local-only name: send no change of its entry to the service."""
    state.intents.park(inode.ino, inode.revision)
    state.moved_entries.pop(inode.ino, None)


def _place(
    state: LocalState,
    inode: Inode,
    folder: Inode,
    name: str,
    *,
    local: bool,
    is_successor: bool = False,
) -> None:
    """Move the inode to the name `name` in `folder`, and record the change for the outbox.

    `local` is the result of `becomes_local`. `is_successor` is True if the inode has taken over the
    entry of the file that it replaces. If the service has no entry for `folder`, no move of that
    entry is then recorded: a coworker may have moved the entry together with its folder, and the
    upload finds the entry at its new place.
    """
    was_local, was_kept, former = inode.local, state.is_kept(inode), state.inodes.get(inode.parent)
    was_at_remote_place = _had(inode, former, state.remote_name(inode))
    intent = state.intents.get(inode.ino)
    state.former_ids.pop(folder.ino, None)  # a new file in it may now come from elsewhere
    state.inodes.move(inode, folder.ino, name, local=local, ctime_ns=time.time_ns())
    if not inode.is_new and not local:
        if was_local:
            _unpark(state, inode)
        if not (is_successor and folder.is_new):
            _note_place(state, inode, folder)
    elif not inode.is_new:
        if is_successor or not was_local:
            _park(state, inode)
        if not (is_successor or was_local):
            if intent is not None and intent.place and not was_at_remote_place:
                # Do not keep the entry under an outdated name.
                state.intents.place(inode.ino, state.due_for_names())
            elif former.remote_id != inode.remote_parent:
                # A coworker has deleted or moved the folder, see `Merge._forget_parked_in`.
                state.inodes.update(inode, remote_parent=None)
    elif local and not was_local:
        _withdraw(state, inode)
    elif was_local and not local:
        _publish(state, inode)
    elif inode.is_folder:
        if not (local or was_kept):  # a kept folder is created when a change in it is sent
            _note_place(state, inode, folder)
    elif inode.generation and state.intents.get(inode.ino) is not None:
        # A step that was planned for the former name must not run for the new one.
        state.send_content_again(inode, None)
        request = state.requests.get(inode.ino)
        if request is not None and (request.folder, request.name) == (folder.remote_id, name):
            # A conflict copy that was renamed during its upload has its name again.
            state.intents.conflicts.resume(inode.ino, inode.zone, provisional_id(inode.ino))


def _withdraw(state: LocalState, inode: Inode) -> None:
    """Make an inode and everything below it local-only, and cancel the pending uploads."""
    for child in state.inodes.below(inode.ino):
        if child.local and child is not inode:
            continue
        state.inodes.update(child, local=True)
        if child.is_new:
            orphan_pending_request(state, child)
            state.intents.drop(child.ino)
        else:
            _park(state, child)


def withdraw_local_only(state: LocalState) -> int:
    """Make new entries local-only if the setting `local_only` now matches their names.

    The setting may have changed since the last mount. Return the number of files and folders that
    were made local-only. The function does not change entries that the service may have, conflict
    copies, temporary files of programs (a logoff would delete them), and folders that contain one
    of these. Entries whose names a policy forbids are not changed either, so their uploads fail
    until the policy is corrected.
    """
    copies = state.intents.conflicts.copies()

    def may_stay(inode: Inode) -> bool:
        is_sent = not inode.is_new or state.requests.get(inode.ino) is not None
        return not (is_sent or inode.ino in copies or local_only_reason(inode.name) == TEMPORARY)

    before = len(state.intents)
    for intent in state.intents.pending():
        inode = state.inodes.find(intent.ino)
        if inode is None or inode.parent == NOWHERE or inode.local or not may_stay(inode):
            continue
        folder, name = state.inodes.get(inode.parent), inode.name
        if state.is_never_uploaded(name) or not becomes_local(state, inode, folder, name):
            continue
        if all(may_stay(child) for child in state.inodes.below(inode.ino)):
            with state.transaction():
                _withdraw(state, inode)
    return before - len(state.intents)


def _unpark(state: LocalState, inode: Inode) -> None:
    """Resume sending the changes of a parked file, whose name is no longer local-only."""
    intent = state.intents.get(inode.ino)
    if intent is None or intent.generation:
        return  # never parked: the file has just taken over another file's entry
    state.intents.place(inode.ino, state.due_for_names())
    if inode.generation:
        state.send_content_again(inode, intent.base)


def _note_place(state: LocalState, inode: Inode, folder: Inode) -> None:
    """Schedule the move of the inode's entry to `folder`.

    If the service already has the entry at that place, and no unfinished request may have moved it
    away, cancel a scheduled move instead.
    """
    intent = state.intents.get(inode.ino)
    back = _had(inode, folder, state.remote_name(inode))
    asked = inode.ino in state.in_flight or _is_moving(state, inode)
    if not back or asked:  # an earlier move may have succeeded
        if inode.is_new:
            state.intents.place(inode.ino, state.due())
        else:
            state.intents.place(inode.ino, state.due_for_names(), inode.revision)
        return
    if intent is not None and intent.place:
        state.intents.done(intent, place=True)
    state.intents.conflicts.resume(inode.ino, inode.zone, inode.remote_id or "")


def _publish(state: LocalState, inode: Inode) -> None:
    """Make an inode and the inodes below it no longer local-only, and schedule their uploads.

    An inode below the given one stays local-only if its name or its folder is still local-only.
    """
    for child in state.inodes.below(inode.ino):
        if child is not inode and state.stays_local(state.inodes.get(child.parent), child.name):
            continue
        state.inodes.update(child, local=False)
        if not child.is_new:
            _unpark(state, child)
        elif child.is_folder:
            state.intents.place(child.ino, state.due())
        elif child.generation:
            state.send_content_again(child, None)


def _touch(state: LocalState, folder: Inode) -> None:
    """Set the times of a folder to the current time, because its entries have changed."""
    now = time.time_ns()
    state.inodes.update(folder, mtime_ns=now, ctime_ns=now)
