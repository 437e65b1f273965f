"""One account between programs and a service in memory, without a dispatcher.

A test performs single operations of programs and single steps of the outbox.  `meanwhile` acts
between the service's work on a request and its answer.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from tests.harness.fake_service import Coworker, FakeService, World
from tests.harness.in_process import ALICE, CONTENT_KEY, NAMES_KEY, FolderPaths
from zonedrive import config
from zonedrive.cipher import Sealed
from zonedrive.daemon.compose import open_state
from zonedrive.model import Entry
from zonedrive.remote.retry import Backoff
from zonedrive.sandbox.zones import Level
from zonedrive.snapshot import Stale
from zonedrive.state import local_operations
from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.intents import Intent
from zonedrive.state.open_file import Session
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.reconcile import Reconciler
from zonedrive.sync.remote_namespace import RemoteNamespace
from zonedrive.sync.upload import Uploader

ResultT = TypeVar("ResultT")
BOB = ALICE.replace("alice", "bob")


def stale(expected: bool = True) -> AbstractContextManager[object]:
    """Expect that the block ends because what it is based on has changed, if `expected`."""
    return pytest.raises(Stale) if expected else nullcontext()


class Watched(FakeService):
    """Service that runs an action of the test once, after it has worked on a request.

    It repeats a failed request without a pause, because the clock is real.
    """

    def __init__(self, world: World, user: str, profile: str) -> None:
        super().__init__(world, user, profile)
        self._backoff = Backoff(first=0.0)
        self.actions: list[tuple[str, Callable[[], object]]] = []

    async def send(self, request: Any, work: Callable[[], ResultT]) -> ResultT:
        try:
            return await super().send(request, work)
        finally:
            said = f"{request.method} {request.path}"
            for each in self.actions:
                if re.match(each[0], said):
                    self.actions.remove(each)
                    each[1]()
                    break


class Account:
    """Alice's local state and the parts of sync, and the zone as Bob sees it."""

    def __init__(self, folder: Path, profile: str = "sandbox", **options: str) -> None:
        self.world = World()
        zone = self.world.add_zone("Zone", {ALICE: Level.MANAGE, BOB: Level.MODIFY})
        self.alice, self.bob = (Coworker(self.world, user, zone) for user in (ALICE, BOB))
        self.service = Watched(self.world, ALICE, profile)
        settings = config.load(folder / "no.toml", "default", {"settle": "0", **options})
        paths = FolderPaths("default", folder / "account")
        box = (Sealed(NAMES_KEY), CONTENT_KEY)
        self.state = open_state(paths, settings, self.service, box, ALICE)
        self.folders = DirectoryCache(self.state, self.service)
        self.reconciler = Reconciler(self.state, self.service, self.folders)
        self.uploads = Uploader(self.state, self.service, self.folders, self.reconciler)
        self.names = RemoteNamespace(self.state, self.service, self.folders, self.reconciler)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Account"]:
        """Run listings during the block, which begins with the listing of the zone."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.state.cache.run)
            await nursery.start(self.folders.run)
            try:
                await self.folders.ensure(self.state.inodes.get(ROOT))
                await self.folders.ensure(self.zone)
                yield self
            finally:
                nursery.cancel_scope.cancel()
        await self.state.cache.aclose()
        self.state.database.close()

    def meanwhile(self, request: str, action: Callable[[], object]) -> None:
        """Act once between the service's work on a request (a regular expression) and the
        answer."""
        self.service.actions.append((request, action))

    async def entry(self, inode: Inode) -> Entry:
        """Return the service's entry of an inode."""
        return await self.service.entry(inode.zone, inode.entry_id)

    # ---- programs ----

    @property
    def zone(self) -> Inode:
        """The zone."""
        return self.state.inodes.inodes_in(ROOT)[0]

    def at(self, path: str) -> Inode:
        """Return the inode at a path below the zone."""
        found: Inode | None = self.zone
        for name in path.split("/") if path else ():
            found = found and self.state.inodes.child(found.ino, name)
        assert found is not None, path
        return found

    def names_in(self, path: str = "") -> set[str]:
        """Return the names in a folder."""
        return set(self.state.inodes.children(self.at(path).ino))

    async def list(self, path: str = "") -> None:
        """List a folder again."""
        folder = self.at(path)
        self.folders.forget(folder.ino)
        await self.folders.ensure(folder)

    def save(self, path: str, content: bytes) -> Intent:
        """Save a file, which exists or is new, and close it."""
        state = self.state
        parent, _, name = path.rpartition("/")
        inode = state.inodes.child(self.at(parent).ino, name)
        if inode is None:
            inode = local_operations.create_file(state, self.at(parent), name, 0o600)
        generation = state.next_generation()
        file = state.spool.create(inode.ino, generation)
        file.pwrite(0, content)
        base = None if inode.is_new else inode.revision
        session = Session(generation, file, base, 0, inode.revision)
        file.flush()
        local_operations.commit_content(state, inode, session)
        file.close()
        state.intents.let_go(inode.ino, 0)
        return self.intent(inode)

    def rename(self, old: str, new: str) -> Intent | None:
        """Rename or move."""
        parent, _, name = new.rpartition("/")
        folder, inode = self.at(parent), self.at(old)
        target = self.state.inodes.child(folder.ino, name)
        local_operations.rename(self.state, inode, folder, name, target)
        return self.state.intents.get(inode.ino)

    def make(self, path: str) -> Intent:
        """Create a folder."""
        parent, _, name = path.rpartition("/")
        return self.intent(local_operations.make_folder(self.state, self.at(parent), name, 0o700))

    def remove(self, path: str) -> Intent:
        """Remove a file or folder that the service has or may have."""
        inode = self.at(path)
        local_operations.remove(self.state, inode)
        return self.intent(inode)

    def intent(self, inode: Inode) -> Intent:
        """Return the intent of an inode, which has one."""
        found = self.state.intents.get(inode.ino)
        assert found is not None
        return found

    def bytes_of(self, path: str) -> bytes | None:
        """Return the local bytes of a file, or None if it shows the service's version."""
        inode = self.at(path)
        if not inode.generation:
            return None
        file = self.state.spool.open(inode.ino, inode.generation)
        try:
            return file.pread(0, inode.size)
        finally:
            file.close()

    # ---- the outbox ----

    def ask(self, inode: Inode) -> PendingRequest:
        """Record the upload or the new folder of an inode as a request without an answer."""
        generation = self.intent(inode).generation
        folder = self.state.inodes.get(inode.parent)
        new = inode.remote_id is None
        request = PendingRequest(
            inode.ino, inode.ino, generation, self.intent(inode).size, inode.zone,
            folder.remote_id or "" if new else inode.remote_parent or "",
            inode.name if new else inode.remote_name or "", inode.remote_id,
        )  # fmt: skip
        self.state.record_request(request)
        return request

    def left(self) -> dict[str, str]:
        """Return the state of each change by path, with "-" for removals."""
        found = self.state.intents.all()
        return {"-" * one.gone + self.state.path(one.ino): one.state.name for one in found}
