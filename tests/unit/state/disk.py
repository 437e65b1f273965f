"""Databases of an account without a daemon or a service."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from zonedrive.cipher import Clear
from zonedrive.config import Settings
from zonedrive.content.cache import Cache
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.paths import private_dir
from zonedrive.remote.service import Service
from zonedrive.state.attributes import Owner
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.state.recovery import recover
from zonedrive.state.schema import SCHEMAS
from zonedrive.sync.remote_source import CurrentSource

SILENT = cast(Service, SimpleNamespace(transfer=None, entry=None, can=lambda *_, **__: True))
"""Service that gets no requests."""


class Disk:
    """Databases of one account, opened as often as a daemon starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._databases: list[Database] = []
        self._caches: list[Cache] = []

    def start(self) -> LocalState:
        """Open the state as a daemon does, without a service, which recovery does not need."""
        for former in self._caches:
            former._index._unlock_folder()  # as the kernel does for a killed daemon
        database = Database.open(self.path / "tree.db", SCHEMAS)
        state = LocalState(
            database=database,
            inodes=Inodes.open(database, Clear()),
            intents=IntentTable(database),
            requests=PendingRequests(database, Clear()),
            spool=Spool(private_dir(self.path / "outgoing"), None),
            cache=Cache(self.path / "cache", None, 1 << 20).start(),
            source=partial(CurrentSource, SILENT),
            settings=Settings(),
            user="alice",
            owner=Owner(0, 0),
        )
        self._caches.append(state.cache)
        self._databases.append(database)
        return state

    def recovered(self) -> LocalState:
        """Open the state as a daemon does, and recover what the former daemon has left."""
        state = self.start()
        recover(state)
        return state

    def close(self) -> None:
        """Close all files that were opened."""
        for cache in self._caches:
            cache._index.close()
        for database in self._databases:
            database.close()


def zone_of(state: LocalState) -> Inode:
    """Return a new zone."""
    with state.transaction():
        return state.inodes.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")


def store(state: LocalState, ino: int, content: bytes) -> int:
    """Store bytes for an inode; return their generation."""
    generation = state.next_generation()
    file = state.spool.create(ino, generation)
    file.pwrite(0, content)
    file.close()
    return generation


def saved(
    state: LocalState,
    name: str,
    content: bytes,
    *,
    parent: int | None = None,
    held: bool = False,
    **fields: object,
) -> Inode:
    """Save a new file as after close(2), or (held) in the middle of being written.

    The file is in a new zone unless `parent` is given. With the field `local`, it has no intent.
    """
    parent = zone_of(state).ino if parent is None else parent
    with state.transaction():
        inode = state.inodes.add(parent, name, Kind.FILE, zone="z")
    generation, size = store(state, inode.ino, content), len(content)
    with state.transaction():
        state.inodes.update(inode, generation=generation, size=size, **fields)
        if not fields.get("local"):
            state.intents.content(inode.ino, generation, size, base=None, held=held, due_ns=1 << 62)
    return inode


def read(state: LocalState, ino: int) -> bytes:
    """Return the local bytes of a file."""
    inode = state.inodes.get(ino)
    file = state.spool.open(ino, inode.generation)
    try:
        return file.pread(0, inode.size)
    finally:
        file.close()
