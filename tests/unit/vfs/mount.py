"""Files and names of a mount, without a kernel and, unless a test gives one, without a service."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.unit.state.disk import SILENT, zone_of
from zonedrive.remote.service import Service
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.vfs.files import Files
from zonedrive.vfs.namespace import Namespace

AWAKE = cast(Dispatcher, SimpleNamespace(wake=lambda: None))
"""Dispatcher that sends nothing."""


def files_of(
    state: LocalState, service: Service = SILENT, folders: DirectoryCache | None = None
) -> Files:
    """Return the open files of a mount."""
    folders = folders or DirectoryCache(state, service)
    return Files(state, service, folders, AWAKE, CallerPolicy(()))


def names_of(
    state: LocalState, service: Service = SILENT, folders: DirectoryCache | None = None
) -> Namespace:
    """Return the names of a mount."""
    folders = folders or DirectoryCache(state, service)
    return Namespace(state, service, folders, files_of(state, service, folders), AWAKE)


def cached_file(state: LocalState, content: bytes) -> Inode:
    """Return a file of the service whose bytes are cached."""
    zone, generation = zone_of(state), state.next_generation()
    with state.transaction():
        inode = state.inodes.add(
            zone.ino, "a", Kind.FILE, zone="z", remote_id="1", size=len(content)
        )
        file = state.spool.create(inode.ino, generation)
        file.pwrite(0, content)
        file.close()
        state.inodes.update(inode, generation=generation)
    return inode


def open_spool_files(state: LocalState) -> list[str]:
    """Return the sorted names of the outgoing files that this process has open."""
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sorted(link.name for link in links if link.parent == state.spool.directory)
