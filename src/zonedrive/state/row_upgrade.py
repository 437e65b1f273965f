"""Upgrade of rows that an earlier zonedrive wrote.

The upgrade runs before requests are served.
"""

import sqlite3

from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.inode_table import unreadable
from zonedrive.state.inodes import Inodes
from zonedrive.state.names import (
    BY_USER,
    fits,
    local_name,
    local_only_reason,
    may_be_renewed,
    renewed,
    with_mark,
)


def mark_names(connection: sqlite3.Connection) -> None:
    """Migrate to the sixth schema: have `names` check all names against the new display rules.

    NULL in the column `mark` of the root's row means that this check is still to be done.
    """
    connection.execute("UPDATE inodes SET mark = NULL WHERE ino = ?", (ROOT,))


def names(inodes: Inodes) -> None:
    """Rename entries according to the current rules of `state.names`, once after an upgrade.

    The function takes a few seconds for a million entries.
    """
    if inodes.rows.has_mark(ROOT):
        return
    last = NOWHERE
    while numbers := inodes.rows.numbers(last):
        last = numbers[-1]
        odd = [
            ino
            for ino, parent, name in inodes.rows.names(numbers)
            if parent == ROOT or may_be_renewed(name)
        ]
        for inode in inodes.get_all(odd):
            _show(inodes, inode)
    with inodes.transaction():
        inodes.rows.write(inodes.get(ROOT))


def _show(inodes: Inodes, inode: Inode) -> None:
    if inode.parent == NOWHERE or inode.ino == ROOT or unreadable(inode):
        return
    name = renewed(inode.name, inode.remote_name, zone=inode.kind is Kind.ZONE)
    if name == inode.name:
        return
    if not fits(name) or inodes.has_name(inode.parent, name):
        name = with_mark(name, f"~{inode.ino}")
        if inode.remote_id is not None and inode.remote_name is not None:
            name = local_name(inode.remote_name, inode.remote_id, inodes.children(inode.parent))
    if not inodes.has_name(inode.parent, name):
        with inodes.transaction():
            inodes.move(inode, inode.parent, name)


def local_files(inodes: Inodes) -> None:
    """Mark local-only temporary files as TEMPORARY instead of BY_USER, see `local_only_reason`.

    Earlier versions marked all local-only files as BY_USER, and a logoff refuses to delete BY_USER
    files.
    """
    with inodes.transaction():
        for inode in inodes.get_all(inodes.rows.local_by_user()):
            if local_only_reason(inode.name) != BY_USER:
                inodes.rows.write(inode)
