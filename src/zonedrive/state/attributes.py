"""Attributes that stat(2) reports for an inode, computed from the tree."""

import stat

import msgspec

from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.names import is_respelled

FOLDER_SIZE = 4096  # bytes; as on ext4, so that mounting does not change the mount point's size
MODE_BITS = 0o7777  # the bits that chmod(2) sets


class Attr(msgspec.Struct, eq=False, gc=False):
    """Fields of stat(2), and timeouts of the kernel's cache.

    Times are in nanoseconds, timeouts in seconds, `size` in bytes.
    """

    ino: int
    mode: int  # type and permission bits
    nlink: int
    size: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    uid: int
    gid: int
    entry_timeout: float = 0.0
    attr_timeout: float = 0.0


class Owner(msgspec.Struct, frozen=True):
    """Owner of all files: the user who runs the daemon."""

    uid: int
    gid: int


class Rules(msgspec.Struct, frozen=True):
    """Account-wide rules for permission bits; the attributes of each inode apply as well."""

    keep_executable: bool = False  # the service's attribute makes files runnable
    add_only: frozenset[str] = frozenset()  # ids of the zones where the user may only add

    def are_against(self, inode: Inode) -> bool:
        """Return True if the rules forbid changing or removing the inode's entry on the service."""
        entry = inode.kind in (Kind.FILE, Kind.FOLDER) and not inode.is_new and not inode.local
        return entry and inode.zone in self.add_only


def permissions(inode: Inode, rules: Rules) -> int:
    """Return the permission bits of an inode.

    The bits are those that chmod has set, or defaults that give access only to the owner. Bits that
    `allowed` does not return are then cleared. The root has the fixed bits 0o555.
    """
    if inode.kind is Kind.ROOT:
        return 0o555  # without `allow_other`, the kernel refuses other users anyway
    bits = inode.mode
    if bits is None:
        runnable = inode.attributes.executable and rules.keep_executable
        bits = 0o700 if inode.is_folder or runnable else 0o600
    return bits & allowed(inode, rules)


def allowed(inode: Inode, rules: Rules) -> int:
    """Return the permission bits that the service's attributes and the user's rights allow.

    In zones where the user may only add entries, folders stay writable.
    """
    bits = MODE_BITS
    if inode.attributes.write_protected or (not inode.is_folder and rules.are_against(inode)):
        bits &= ~0o222
    if inode.attributes.read_protected:
        bits &= ~0o444
    return bits


def attr_of(inode: Inode, owner: Owner, rules: Rules, timeout: float) -> Attr:
    """Return the stat fields of an inode.

    The kernel may cache these fields and the inode's name for `timeout` seconds. A name with a
    second spelling (see `names`) is not cached, because a change through the other spelling would
    not update the cache.
    """
    folder = inode.is_folder
    return Attr(
        ino=inode.ino,
        mode=(stat.S_IFDIR if folder else stat.S_IFREG) | permissions(inode, rules),
        # A folder's link count of 1 tells find(1) and others not to rely on the count.
        nlink=0 if inode.parent == NOWHERE else 1,
        size=FOLDER_SIZE if folder else inode.size,
        mtime_ns=inode.mtime_ns,
        ctime_ns=inode.ctime_ns,
        atime_ns=inode.mtime_ns,
        uid=owner.uid,
        gid=owner.gid,
        entry_timeout=0.0 if is_respelled(inode.name) else timeout,
        attr_timeout=timeout,
    )
