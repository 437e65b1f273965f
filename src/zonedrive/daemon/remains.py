"""What an account that is not mounted holds, where its disk takes no writing: full, or read-only.

Must not write anything, not even a lock: what is looked at is a copy in memory.
"""

import os
from pathlib import Path
from typing import Any

from zonedrive import causes
from zonedrive import paths as places
from zonedrive.cipher import Box, Clear
from zonedrive.config import Settings
from zonedrive.content import room
from zonedrive.daemon.backlog import needs_key
from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import SecretStore, open_store
from zonedrive.outbox.journal import Intent, Journal
from zonedrive.paths import AccountPaths
from zonedrive.tree.inode import NOWHERE, ROOT
from zonedrive.tree.tree import Tree
from zonedrive.vfs.schema import SCHEMAS

READ_ONLY = (
    "its disk is read-only: one that became so by itself has an error, so look at 'dmesg', have it"
    " checked, and make it writable again; what waits is kept"
)
FULL = "its disk is full: make room there; what waits is kept"


def hindrance(paths: AccountPaths) -> str:
    """What keeps everything from going on here, with what to do; "" where nothing does."""
    if said := read_only(paths.state):
        return said
    if not paths.state.exists():
        return ""
    try:
        places.require_room(paths.state)
    except OSError as wrong:
        return f"{paths.state}: {FULL}" if wrong.errno in places.NO_ROOM else ""
    return ""


def read_only(folder: Path) -> str:
    """That the folder is on a disk which takes no writing, with what to do; "" where it does."""
    if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"{folder}: {READ_ONLY}"
    return ""


def status(paths: AccountPaths, settings: Settings, *, people: bool = False) -> dict[str, Any]:
    """Outbox, uploads, cache and tree of the contract's object.  Raises StoreError.

    For `people` also what else `vfs.report` tells them: which of it are files.
    """
    box = _box(open_store(paths), paths, settings)
    database = Database(paths.database, SCHEMAS, copied=True)
    try:
        tree, journal = Tree(database, box), Journal(database, box)
        intents = journal.pending()
        copies = {conflict.ino for conflict in journal.conflicts.all()}
        entries, folders = tree.counts()
        uploads = [
            _upload(tree, one, one.ino in copies) | (_said(tree, one) if people else {})
            for one in intents
        ]
    finally:
        database.close()
    failed = sum(intent.failed for intent in intents)
    return {
        "outbox": {
            "pending": len(intents) - failed,
            "uploading": 0,
            "failed": failed,
            "conflicts": len(copies),
            "bytes": sum(intent.size for intent in intents),
            **(_for_people(intents) if people else {}),
        },
        "uploads": uploads,
        "cache": _cache(paths, settings),
        "tree": {"entries": entries, "folders": folders},
        **({"notice": said} if (said := hindrance(paths)) else {}),
    }


def tree(paths: AccountPaths, settings: Settings, secrets: SecretStore) -> Tree:
    """The names here, to be looked at; none where they cannot be read."""
    try:
        box = _box(secrets, paths, settings)
        return Tree(Database(paths.database, SCHEMAS, copied=True), box)
    except StoreError:
        nothing = paths.database.with_name("none")
        return Tree(Database(nothing, SCHEMAS, copied=True), Clear())


def _box(secrets: SecretStore, paths: AccountPaths, settings: Settings) -> Box:
    if not needs_key(paths):
        return Clear()
    return data_box(secrets, settings.encrypt, make=False)[0]


def _for_people(intents: list[Intent]) -> dict[str, Any]:
    return {
        "files": sum(bool(one.generation) for one in intents),
        "causes": causes.count(one.cause for one in intents),
    }


def _said(tree: Tree, intent: Intent) -> dict[str, Any]:
    change = intent.change(is_new=_is_new(tree, intent))
    return {"change": change, "cause": causes.label(intent.cause)}


def _is_new(tree: Tree, intent: Intent) -> bool:
    inode = tree.find(intent.ino)
    return inode is not None and inode.is_new


def _upload(tree: Tree, intent: Intent, copy: bool) -> dict[str, Any]:
    return {
        "path": _path(tree, intent.ino),
        "state": "failed" if intent.failed else "conflict" if copy else "pending",
        "size": intent.size,
        "sent": 0,
        "error": intent.error or None,
    }


def _path(tree: Tree, ino: int) -> str:
    """Where it is, or, removed here, where the service still has it."""
    parts = []
    inode = tree.find(ino)
    while inode is not None and inode.ino != ROOT:
        gone = inode.parent == NOWHERE
        parts.append((inode.remote_name if gone else "") or inode.name)
        above = inode.remote_parent or ""
        inode = tree.by_remote(inode.zone, above) if gone else tree.find(inode.parent)
    return "/".join(reversed(parts))


def _cache(paths: AccountPaths, settings: Settings) -> dict[str, int]:
    files = paths.content.rglob("*") if paths.content.exists() else ()
    used = sum(file.stat().st_blocks * 512 for file in files if file.is_file())
    return {"bytes": used, "limit": max(0, room.most(paths.cache, settings.cache_size, used))}
