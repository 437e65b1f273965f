"""Listening socket that can refuse connections, and reuses its port after a restart if possible.

This module does not depend on HTTP. INVARIANT: while connections are refused, this process keeps
the port bound, so that only a process that binds this port with SO_REUSEADDR can get it.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from zonedrive.sandbox.errors import SandboxError

BACKLOG = 1024


class Listener:
    """Listening socket that can refuse connections and accept them again later."""

    def __init__(self, host: str, port: int, memory: Path) -> None:
        """Bind the socket, and record its port in the file `memory`.

        Port 0 means the recorded port if `memory` exists and the port is free, otherwise any free
        port. Raises SandboxError if the socket cannot be bound.
        """
        self._socket = _bind(host, port, memory)
        self.port: int = self._socket.getsockname()[1]
        memory.write_text(f"{self.port}\n")
        bound = ipaddress.ip_address(self._socket.getsockname()[0].partition("%")[0])
        self.is_loopback = bound.is_loopback
        self._server: asyncio.Server | None = None
        self._make_protocol: Callable[[], asyncio.Protocol] | None = None
        self._context: ssl.SSLContext | None = None

    async def open(
        self, make_protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> None:
        """Start to accept connections."""
        self._make_protocol, self._context = make_protocol, context
        await self.resume()

    async def resume(self) -> None:
        """Accept connections again after `refuse`."""
        if self._server is not None or self._make_protocol is None:
            return
        # The server closes the descriptor that it was given; our own keeps the port bound.
        self._server = await asyncio.get_running_loop().create_server(
            self._make_protocol, sock=self._socket.dup(), ssl=self._context, backlog=BACKLOG
        )

    def refuse(self) -> None:
        """Refuse new connections; open connections stay open."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        # Stops listening, so that the kernel answers with a reset; the port stays bound.
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the port."""
        self.refuse()
        self._socket.close()


def _bind(host: str, port: int, memory: Path) -> socket.socket:
    try:
        family, *_rest, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as wrong:
        raise SandboxError(f"the host {host!r} has no address here: {wrong}") from wrong
    where = str(address[0])
    try:
        if port:
            return _bound(family, where, port)
        if memory.exists() and (last := _number(memory)):
            try:
                return _bound(family, where, last)
            except OSError:
                pass  # another process uses the port now; use any free port
        first = _bound(family, where, 0)
        # Bind again with an explicit port, because only such a binding survives `shutdown`.
        with first:
            return _bound(family, where, first.getsockname()[1])
    except OSError as wrong:
        raise SandboxError(f"cannot listen on {host} port {port}: {wrong.strerror}") from wrong


def _bound(family: socket.AddressFamily, where: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((where, port))
        if port:
            # Once this socket listens, SO_REUSEADDR does not let another process bind the port.
            sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _number(memory: Path) -> int:
    text = memory.read_text(errors="replace").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
