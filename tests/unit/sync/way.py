"""The way to a service, of which a test says whether it is open."""

import trio


class Way:
    """As `remote.link.Connectivity`."""

    def __init__(self) -> None:
        self.state = "online"
        self.last_error = None
        self.waits = 0  # how often somebody began to wait for another state
        self._changed = trio.Event()

    def become(self, state: str) -> None:
        """Another state from now on."""
        self.state = state
        self._changed.set()
        self._changed = trio.Event()

    async def wait_change(self) -> str:
        """Wait for the next one."""
        self.waits += 1
        await self._changed.wait()
        return self.state

    async def wait_other(self, state: str) -> str:
        """Wait for another one than that."""
        self.waits += 1
        while self.state == state:
            await self._changed.wait()
        return self.state
