"""Names and records of conflict copies."""

import socket
import time

from zonedrive.formatting import plain
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import Conflict
from zonedrive.state.invalidation import EntryChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import (
    CONFLICT_MARK,
    MAX_BYTES,
    cut,
    fits,
    is_aside,
    name_of_original,
    safe,
    with_mark,
)

UNKNOWN = "?"  # author of a replaced version that the service does not name
LONGEST_USER = 100  # bytes of the user id in a name, so that the rest has room


def record_conflict(state: LocalState, copy: int, original: int, by: str) -> None:
    """Record that the inode `copy` is a conflict copy of the inode `original`.

    `by` is the user id of the other version's author, or "" if there is no other version. If both
    inodes are the same and `by` is not "", the file has replaced the other version.
    """
    with state.transaction():
        state.intents.conflicts.add(Conflict(copy, original, by, time.time_ns()))


def record_conflict_of_folder(state: LocalState, folder: Inode) -> None:
    """Record a conflict if `folder`, whose name is about to be sent, has a conflict-copy name.

    A folder that is kept for local changes gets such a name if a coworker's entry needs its name.
    That is no conflict as long as the service does not get the folder.
    """
    original = name_of_original(folder.name)
    if original in (None, folder.name) or folder.ino in state.intents.conflicts.copies():
        return
    other = state.inodes.child(folder.parent, original or "")
    if other is None:
        record_conflict(state, folder.ino, folder.ino, "")
    else:
        record_conflict(state, folder.ino, other.ino, other.modified_by)


def end_conflict_if_renamed(state: LocalState, inode: Inode, name: str) -> None:
    """End the conflict of the copy `inode` if a coworker has renamed the copy's entry to `name`.

    A temporary name, or another name of a conflict copy, does not end the conflict. Call within a
    transaction.
    """
    is_copy = CONFLICT_MARK.search(name[:MAX_BYTES])  # a long name would take minutes
    if name == inode.remote_name or is_aside(name) or is_copy:
        return
    if state.intents.conflicts.drop(inode.ino):
        state.intents.changes.notify()


def copy_name(state: LocalState, inode: Inode, parent: int | None = None) -> str:
    """Return a free conflict-copy name for an inode, with the user, the host and the time.

    The name is free in the folder `parent`, by default the folder of the inode.
    """
    when = time.strftime("%Y-%m-%d %H-%M-%S", time.localtime(time.time()))
    user, host = cut(state.user, LONGEST_USER), plain(socket.gethostname())
    mark = f" (conflict, {user} on {host}, {when})".replace("/", "_")
    original = safe(state.remote_name(inode))  # the local name may have a hash suffix
    taken = state.inodes.children(inode.parent if parent is None else parent)
    name, number = with_mark(original, mark), 1
    while name in taken:
        number += 1
        name = with_mark(original, f"{mark} {number}")
    return name


def is_copy_name(name: str, original: str) -> bool:
    """Return True if `name` is the conflict-copy name of a file with the name `original`."""
    return fits(name) and any(
        with_mark(original, mark[0]) == name for mark in CONFLICT_MARK.finditer(name)
    )


def rename_to_copy(state: LocalState, inode: Inode, parent: int) -> None:
    """Move the inode to a conflict-copy name in the folder `parent`. Call within a transaction.

    The inode's pending changes become due at once.
    """
    move(state, inode, parent, copy_name(state, inode, parent))
    intent, now = state.intents.get(inode.ino), time.time_ns()
    if intent is None or inode.local:
        return
    if inode.is_new and not inode.is_folder:
        state.send_content(inode, None, held=intent.held, due_ns=now)
    else:
        state.intents.place(inode.ino, now)


def remove_mark(state: LocalState, inode: Inode) -> None:
    """Remove the hash suffix (see `names`) from the local name of an inode, if it has one.

    The inode is about to lose its remote entry, so the local name becomes the name of a new entry.
    If the name without the suffix is taken, the inode gets a conflict-copy name instead. Call
    within a transaction.
    """
    name = safe(state.remote_name(inode))
    if inode.name == name or not fits(name) or inode.parent == NOWHERE:
        return
    if state.inodes.has_name(inode.parent, name):
        name = copy_name(state, inode)
    move(state, inode, inode.parent, name)


def move(state: LocalState, inode: Inode, parent: int, name: str) -> None:
    """Move the inode, and invalidate the former and the new name in the kernel's cache."""
    state.invalidations.put(EntryChanged(inode.parent, inode.name.encode()))
    state.inodes.move(inode, parent, name)
    state.invalidations.put(EntryChanged(parent, name.encode()))
