"""TCP proxy that adds a round trip time: `python -m tests.benchmark.delay TARGET RTT_MS`.

Every byte leaves half a round trip after its arrival. A new connection costs a round trip, too:
the client's first bytes arrive one and a half round trips after it connected, the server's first
bytes two. The rate is not limited. Prints the port that it listens on.

Must not look at the content.
"""

import asyncio
import socket
import sys
from collections import deque
from contextlib import suppress

WINDOW = 64 << 20
"""Bytes in transit in one direction before the sender is slowed: more than any loopback fills."""

GRAIN_SECONDS = 0.0008
"""Data that are due within this time leave now, because epoll rounds up to whole milliseconds."""

OWN_SECONDS = 0.0003
"""Duration of the way through the proxy in one direction without any delay."""


class End(asyncio.Protocol):
    """End of a connection: received bytes are sent to `other` after the delay."""

    other: "End"
    transport: asyncio.Transport

    def __init__(self, half: float, opens: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._half = half
        self._opens = opens
        self._under_way: deque[tuple[float, bytes | None]] = deque()
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None
        self._full = False  # whether the other end takes no more for now
        self._waits = False  # whether this end is not read for now
        self._over = False  # whether this end sends no more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Initialize the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=4 << 20)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Note the time at which these bytes may leave."""
        self._put(data)
        if self._held > WINDOW and not self._waits:
            self._waits = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Delay the end of the bytes like the bytes; the other direction continues."""
        self._over = True
        self._put(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Delay the end of the connection, too."""
        self._put(None)

    def pause_writing(self) -> None:
        """Stop reading at the other end, because the receiver at this end is slow."""
        self.other._full = True

    def resume_writing(self) -> None:
        """Continue reading."""
        self.other._full = False
        self.other.send_due()

    def _put(self, data: bytes | None) -> None:
        now = self._loop.time()
        self._under_way.append((max(now + self._half, self._opens), data))
        self._held += len(data or b"")
        if self._timer is None and not self._full:
            self.send_due()

    def _finish(self) -> None:
        """Send the end of the bytes; close the connection if both directions have ended."""
        with suppress(OSError):  # reset by the other side
            self.transport.write_eof()
        if self._over:
            self.transport.close()

    def send_due(self) -> None:
        """Send everything that is due; wake up for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not hasattr(self, "other"):
            return  # still connecting
        due = self._loop.time() + GRAIN_SECONDS
        while self._under_way and not self._full and self._under_way[0][0] <= due:
            _, data = self._under_way.popleft()
            if data is None:
                self.other.transport.close()
            elif not self.other.transport.is_closing():
                self._held -= len(data)
                if data:
                    self.other.transport.write(data)
                else:
                    self.other._finish()
        if self._waits and self._held <= WINDOW // 2 and not self.transport.is_closing():
            self._waits = False
            self.transport.resume_reading()
        if self._under_way and not self._full:
            self._timer = self._loop.call_at(self._under_way[0][0] - GRAIN_SECONDS, self.send_due)


class Near(End):
    """Client's end, which connects to the target."""

    def __init__(self, half: float, target: int) -> None:
        self._opened = asyncio.get_running_loop().time()
        super().__init__(half, self._opened + 3 * half)
        self._target = target
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the target as well."""
        super().connection_made(transport)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        far = End(self._half, self._opened + 4 * self._half)
        try:
            await self._loop.create_connection(lambda: far, "127.0.0.1", self._target)
        except OSError:
            self.transport.abort()
            return
        far.other, self.other = self, far
        far.send_due()
        self.send_due()


async def serve(target: int, rtt_ms: float) -> None:
    """Serve until killed."""
    half = max(0.0, rtt_ms / 2000 - OWN_SECONDS)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Near(half, target), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
