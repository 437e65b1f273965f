"""Who may open and read a file, and how large it may get: what is refused before anything is done.

Must not change anything.
"""

import errno
import os
from typing import NoReturn

from zonedrive.content.reader import Reader
from zonedrive.tree.inode import NOWHERE, Inode
from zonedrive.vfs.callers import Callers
from zonedrive.vfs.core import Core
from zonedrive.vfs.open_file import Handle, OpenFile

LARGEST = 16 << 40  # bytes in a file; as on ext4, and far more than any disk here can hold
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


def require_reachable(core: Core, inode: Inode) -> None:
    """Raises OSError (ESTALE) for what was removed or replaced before it could be opened.

    The kernel then looks its name up once more, and opens what is there now, or makes it.  A file
    that a program here has removed while another one has it open can be opened by /proc/self/fd.
    """
    opened = core.opened.get(inode.ino)
    if inode.parent == NOWHERE and not (opened is not None and opened.removed_here):
        raise OSError(errno.ESTALE, "removed, or replaced by another one")


def require_current(opened: OpenFile) -> None:
    """Raises OSError (ESTALE) for a version that a newer one has superseded."""
    if opened.superseded:
        raise OSError(errno.ESTALE, "changed on the service, open it again")


def require_permitted(core: Core, inode: Inode, flags: int) -> None:
    """Raises PermissionError (EACCES) for what the service protects; the kernel lets root pass."""
    if flags & WRITE_FLAGS and core.rules.are_against(inode):
        raise PermissionError(errno.EACCES, "your level in the zone only lets you add")
    if flags & WRITE_FLAGS and inode.attributes.write_protected:
        raise PermissionError(errno.EACCES, "write-protected on the service")
    if flags & os.O_ACCMODE != os.O_WRONLY and inode.attributes.read_protected:
        raise PermissionError(errno.EACCES, "read-protected on the service")


def require_fitting(size: int) -> None:
    """Raises OSError (EFBIG) past the largest size."""
    if size > LARGEST:
        raise OSError(errno.EFBIG, "larger than a file can be")


def require_unguarded(callers: Callers, handle: Handle, reader: Reader) -> None:
    """A program of `guard` gets what is here as a whole, and causes no download.

    Raises PermissionError (EACCES).  Refused is the open rather than a read: a program that
    maps the file into its memory would die of a read that fails.
    """
    if handle.guarded is False or reader.complete:
        return
    if handle.guarded is None:
        handle.guarded = callers.guarded(handle.pid, handle.flags)
    if handle.guarded:
        refuse_guarded()


def refuse_guarded() -> NoReturn:
    """Raises PermissionError (EACCES)."""
    raise PermissionError(errno.EACCES, "not here, and not fetched for this program")
