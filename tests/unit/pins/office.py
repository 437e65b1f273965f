"""Pins over a real tree, with a cache and a service that only record the requests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import trio

from tests.unit.state.disk import zone_of
from tests.unit.sync.way import Way
from zonedrive.model import Revision
from zonedrive.pins.fetch import PinFetcher
from zonedrive.pins.pins import Pins
from zonedrive.pins.poll import WIDTH, PinPoller
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache


class Shelf:
    """Cache that records the requests."""

    limit = 1 << 20
    epoch = 0

    def __init__(self) -> None:
        self.free = self.limit  # bytes for new content
        self.quota = self
        self.looks = 0  # number of look-ups of the free space
        self.looked = trio.Event()  # at which a look-up of the free space ends
        self.looked.set()
        self.bad: dict[int, Exception] = {}  # by ino, what always becomes of it
        self.asked: list[tuple[int, str]] = []
        self.errors: list[Exception] = []
        self.complete_now: set[tuple[int, str]] = set()

    def is_complete(self, ino: int, revision: str) -> bool:
        """Simulate `Cache.is_complete`."""
        return (ino, revision) in self.complete_now

    async def room(self) -> int:
        """Simulate `Quota.room`."""
        self.looks += 1
        await self.looked.wait()
        return self.free

    def drop(self, ino: int) -> None:
        """Simulate `Cache.drop`."""
        self.complete_now = {each for each in self.complete_now if each[0] != ino}

    async def complete(self, ino: int, revision: str, size: int, source: object) -> None:
        """Simulate `Cache.complete`."""
        self.asked.append((ino, revision))
        if self.errors:
            raise self.errors.pop(0)
        if ino in self.bad:
            raise self.bad[ino]
        self.complete_now.add((ino, revision))


class Office:
    """Pins over a real tree; listings and downloads are only recorded."""

    def __init__(self, state: LocalState) -> None:
        self.way = Way()
        service = cast(Any, SimpleNamespace(link=self.way))
        state.settings = msgspec.structs.replace(state.settings, refresh=0.0)
        state.cache = cast(Any, Shelf())
        self.state = state
        self.shelf = cast(Shelf, state.cache)
        self.listed: list[int] = []
        self.errors: list[Exception] = []
        self.bad: dict[int, Exception] = {}  # by ino, what always becomes of it
        self.most = self._now = 0  # concurrent listings
        self.zone = zone_of(state)
        self.pins = Pins(state)
        folders = cast(DirectoryCache, self)
        self.pin_fetcher = PinFetcher(state, service, folders, self.pins)
        self.rounds = PinPoller(state, service, folders, self.pins, trio.CapacityLimiter(WIDTH))

    async def refresh(self, folder: Inode, newer_than_ns: int) -> None:
        """Simulate `DirectoryCache.refresh`."""
        self._now += 1
        self.most = max(self.most, self._now)
        self.listed.append(folder.ino)
        await trio.sleep(0.01)
        self._now -= 1
        if self.errors:
            raise self.errors.pop(0)
        if folder.ino in self.bad:
            raise self.bad[folder.ino]
        with self.state.transaction():
            self.state.inodes.update(folder, listed=True)
        self.state.listing_merged.notify(folder.ino)

    async def refresh_path(self, folder: Inode, newer_than_ns: int) -> None:
        """Simulate `DirectoryCache.refresh_path`; the folders above are always listed."""
        await self.refresh(folder, newer_than_ns)

    def taken(self) -> list[int]:
        """Return the listings since the last call."""
        listed, self.listed = self.listed, []
        return listed

    def folders(self, count: int, parent: Inode) -> list[Inode]:
        """Create folders of the service."""
        return [self.folder(str(number), parent, listed=False) for number in range(count)]

    def folder(self, name: str, parent: Inode | None = None, *, listed: bool = True) -> Inode:
        """Create a folder of the service."""
        above = (parent or self.zone).ino
        with self.state.transaction():
            return self.state.inodes.add(
                above, name, Kind.FOLDER, zone="z", remote_id=f"{above}-{name}", listed=listed
            )

    def file(self, name: str, size: int = 5, parent: Inode | None = None) -> Inode:
        """Create a file of the service."""
        with self.state.transaction():
            return self.state.inodes.add(
                (parent or self.zone).ino, name, Kind.FILE,
                zone="z", remote_id=name, size=size, revision=Revision("1"),
            )  # fmt: skip


@asynccontextmanager
async def running(task: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run a background task until the end of the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task)
        yield
        nursery.cancel_scope.cancel()
