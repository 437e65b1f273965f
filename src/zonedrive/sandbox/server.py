"""uvicorn server with its own listener and signal handling, which reports when it is ready.

This module does not depend on the application. SIGTERM and SIGINT end `serve` without an error.
Running requests then get STOP_SECONDS to finish.
"""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from zonedrive.sandbox.connection import Connection
from zonedrive.sandbox.listener import BACKLOG, Listener

KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 1.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Server(uvicorn.Server):
    """uvicorn server that serves an application on a `Listener` until a signal arrives."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        context: ssl.SSLContext,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._listener = listener
        self._context = context
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections, then call `on_ready`."""
        self.servers = []
        await self._listener.open(self._protocol, self._context)
        self.started = True
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections; let running requests finish, then abort all connections.

        Requests have at most STOP_SECONDS to finish. uvicorn's own shutdown would wait for the TLS
        close_notify of each idle client.
        """
        self._listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await self._tasks_end(STOP_SECONDS)
        for connection in list(state.connections):
            connection.transport.abort()
        await self._tasks_end(STOP_SECONDS)

    async def _tasks_end(self, seconds: float) -> None:
        """Wait up to `seconds` until no request is running."""
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=seconds)

    async def set_down(self, down: bool) -> None:
        """If `down` is true, refuse and reset connections; otherwise, accept connections again."""
        if not down:
            await self._listener.resume()
            return
        self._listener.refuse()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                await connection.reset(flush=False)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the server if SIGTERM or SIGINT arrives while the `with` block runs.

        Unlike uvicorn's own method, this method does not raise the signal again afterwards.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.should_exit = True

    def _protocol(self) -> asyncio.Protocol:
        return Connection(config=self.config, server_state=self.server_state, app_state={})
