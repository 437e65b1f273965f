"""HTTP connections that can be reset, and that respond to invalid HTTP input with a JSON error.

This module does not depend on fault injection.
"""

import asyncio
import fcntl
import os
import socket
import struct
import termios

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zonedrive.sandbox.errors import error_body

FLUSH_SECONDS = 20.0
LARGEST_HEAD = 64 * 1024


class Connection(HttpToolsProtocol):
    """HTTP connection that adds itself to the ASGI extensions of each of its requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Initialize the connection after its TLS handshake."""
        super().connection_made(transport)
        self._lost = asyncio.Event()
        self._unread = 0
        self._in_head = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the client or the server closed the connection."""
        super().connection_lost(exc)
        self._lost.set()

    def on_message_begin(self) -> None:
        """Start a request; add this connection to the extensions of its ASGI scope."""
        super().on_message_begin()
        self._in_head = True
        self.scope["extensions"] = {"zonedrive.connection": {"itself": self}}

    def on_headers_complete(self) -> None:
        """Record that all headers of the request have been received."""
        self._unread = 0
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the request body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the whole request has been received."""
        self._unread = 0
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; respond 400 if headers or trailers exceed LARGEST_HEAD bytes.

        The limit is needed because the parser keeps incomplete request headers, and the trailers of
        a chunked body, in memory.
        """
        self._unread += len(data)
        super().data_received(data)
        if self._unread > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head is larger than {LARGEST_HEAD} bytes")

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP input with status 400 and the message `msg`, then disconnect.

        If the response to the current request has already started, only disconnect.
        """
        if not self._in_head and self.cycle is not None and self.cycle.response_started:
            self.transport.close()  # the response to this request has started
            return
        body = error_body("ILLEGAL_ARGUMENT", msg)
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    async def sleep(self, seconds: float, released: asyncio.Event) -> None:
        """Wait for `seconds`, or until the client disconnects or `released` is set."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._lost, released)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def reset(self, *, flush: bool) -> None:
        """Reset the TCP connection; if `flush` is true, first deliver the bytes already written."""
        if self.transport.is_closing():
            return
        handle = self.transport.get_extra_info("socket")
        # A duplicate, because uvloop's own object does not accept socket options.
        with socket.socket(fileno=os.dup(handle.fileno())) as raw:
            if flush:
                await _drained(self.transport, raw)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            await self._lost.wait()
        # Closing the last descriptor of the socket sent the reset.


async def _drained(transport: asyncio.Transport, raw: socket.socket) -> None:
    """Wait up to FLUSH_SECONDS until the peer's kernel has acknowledged the written bytes."""
    deadline = asyncio.get_running_loop().time() + FLUSH_SECONDS
    while asyncio.get_running_loop().time() < deadline and not transport.is_closing():
        (queued,) = struct.unpack("i", fcntl.ioctl(raw, termios.TIOCOUTQ, b"\0" * 4))
        if queued == 0 and transport.get_write_buffer_size() == 0:
            return
        await asyncio.sleep(0.001)
