"""Checks of permissions, size and version before a file is opened, read, written or removed.

These functions change nothing.
"""

import errno
import os
from typing import NoReturn

from zonedrive.content.reader import Reader
from zonedrive.state.attributes import Rules
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import Handle, OpenFile
from zonedrive.vfs.caller_policy import CallerPolicy

LARGEST = 16 << 40  # maximum bytes of a file; as on ext4, and far more than a local disk has
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


def require_writable(*inodes: Inode) -> None:
    """Raise PermissionError (EACCES) if the service write-protects one of the entries.

    The kernel's own permission check does not stop root.
    """
    if any(inode.attributes.write_protected for inode in inodes):
        raise PermissionError(errno.EACCES, "write-protected on the service")


def require_unprotected(folder: Inode, inode: Inode) -> None:
    """Call `require_writable` for an entry that is to leave its folder.

    An entry that the service does not have can leave a write-protected folder.
    """
    if not inode.is_new:
        require_writable(folder, inode)


def require_changeable(rules: Rules, *inodes: Inode) -> None:
    """Raise PermissionError (EACCES) if the user's access level forbids changing an entry."""
    if any(rules.are_against(inode) for inode in inodes):
        raise PermissionError(errno.EACCES, "your level in the zone only lets you add")


def require_reachable(state: LocalState, inode: Inode) -> None:
    """Raise OSError (ESTALE) if the inode was removed or replaced before a program opened it.

    The kernel then looks the name up again and opens or creates the current file. A file that a
    local program removed while another program has it open can still be opened, through
    /proc/self/fd.
    """
    opened = state.opened.get(inode.ino)
    if inode.parent == NOWHERE and not (opened is not None and opened.removed_here):
        raise OSError(errno.ESTALE, "removed, or replaced by another one")


def require_current(opened: OpenFile) -> None:
    """Raise OSError (ESTALE) if a newer version has superseded the open version."""
    if opened.superseded:
        raise OSError(errno.ESTALE, "changed on the service, open it again")


def require_permitted(state: LocalState, inode: Inode, flags: int) -> None:
    """Raise PermissionError (EACCES) if the service forbids an open of the file with `flags`."""
    if flags & WRITE_FLAGS:
        require_changeable(state.rules, inode)
        require_writable(inode)
    if flags & os.O_ACCMODE != os.O_WRONLY and inode.attributes.read_protected:
        raise PermissionError(errno.EACCES, "read-protected on the service")


def require_fitting(size: int) -> None:
    """Raise OSError (EFBIG) if `size` exceeds the maximum file size."""
    if size > LARGEST:
        raise OSError(errno.EFBIG, "larger than a file can be")


def require_unguarded(callers: CallerPolicy, handle: Handle, reader: Reader) -> None:
    """Raise PermissionError (EACCES) if a program on the `guard` list would cause a download.

    A program on the list may read files that are completely local. This check is also made at
    open(2), because a program that maps the file into memory would crash if a later read failed.
    """
    if handle.guarded is False or reader.complete:
        return
    if handle.guarded is None:
        handle.guarded = callers.guarded(handle.pid, handle.flags)
    if handle.guarded:
        refuse_guarded()


def refuse_guarded() -> NoReturn:
    """Raise PermissionError (EACCES) for a program on the `guard` list."""
    raise PermissionError(errno.EACCES, "not here, and not fetched for this program")
