"""Read-only extended attributes with facts about an entry, as `getfattr -d` shows them."""

from collections.abc import Container

from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.status import state_of as state_of_upload

PREFIX = "user.zonedrive."


def own_state(state: LocalState, inode: Inode, copies: Container[int]) -> str | None:
    """Return the upload state of an entry: "pending", "uploading", "failed", "conflict" or None.

    The result is None for an entry that is synced or never uploaded. `copies` contains the inode
    numbers of all conflict copies. The state of a folder does not include the entries in it.
    """
    if inode.local:
        return None
    intent = state.intents.get(inode.ino)
    if intent is not None:
        return state_of_upload(intent, state.in_flight, copies)
    if inode.parent == NOWHERE:
        return None
    session = state.session(inode.ino)
    if session is not None and session.dirty:
        return "pending"
    return "conflict" if inode.ino in copies else None


def state_of(state: LocalState, inode: Inode) -> str:
    """Return the entry's state: "local", a result of `own_state`, "cached" or "remote"."""
    if inode.local:
        return "local"
    own = own_state(state, inode, state.intents.conflicts.copies())
    if own is not None:
        return own
    if state.is_kept(inode):
        return "local"
    if inode.kind is not Kind.FILE:
        return "cached" if inode.listed else "remote"
    complete = inode.size == 0 or state.cache.is_complete(inode.ino, inode.revision)
    return "cached" if complete else "remote"


def values(state: LocalState, inode: Inode, version: str) -> dict[str, str]:
    """Return all attributes of an inode by full name; a value is "" if the service gives none.

    `version` is the file's version number; if it is "", the result has no attribute `version`.
    """
    known = {
        "id": inode.remote_id or "",
        "zone": inode.zone,
        "state": state_of(state, inode),
        "modified_by": inode.modified_by,
        "type": inode.type,
        "sync": inode.sync,
        **({"version": version} if version else {}),
    }
    return {PREFIX + name: value for name, value in known.items()}
