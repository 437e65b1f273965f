"""Connectivity to a service, as a test defines it, and the listings that need it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from zonedrive.sync.directory_cache import DirectoryCache


class Way:
    """Stand-in for `remote.connectivity.Connectivity`."""

    def __init__(self) -> None:
        self.state = "online"
        self.last_error = None
        self.waits = 0  # how often somebody began to wait for another state
        self._changed = trio.Event()

    def become(self, state: str) -> None:
        """Change the state."""
        self.state = state
        self._changed.set()
        self._changed = trio.Event()

    async def wait_change(self) -> str:
        """Wait for the next change."""
        self.waits += 1
        await self._changed.wait()
        return self.state

    async def wait_other(self, state: str) -> str:
        """Wait until the state differs from the given one."""
        self.waits += 1
        while self.state == state:
            await self._changed.wait()
        return self.state


@asynccontextmanager
async def running(folders: DirectoryCache) -> AsyncIterator[trio.Nursery]:
    """Run listings during the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(folders.run)
        yield nursery
        nursery.cancel_scope.cancel()
