"""Transports whose other end is a function: requests in, answers out, no sockets."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import httpx

from zonedrive.remote.transport.exchange import TARGET
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import BODY, BlockingTransport, LoopTransport

Handler = Callable[[httpx.Request], httpx.Response]


class BlockingHandler(BlockingTransport):
    """Transport for threads that passes each request to a function."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(Trust(None))
        self._handler = httpx.MockTransport(handler)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the function's response."""
        response = self._handler.handle_request(addressed(request))
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.extensions[BODY] = PulledBody(response.stream)
        return response


class LoopHandler(LoopTransport):
    """Transport for the trio loop that passes each request to a function."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(Trust(None))
        self._handler = httpx.MockTransport(handler)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the function's response."""
        response = await self._handler.handle_async_request(addressed(request))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=LoopBody(response.stream),
            extensions=response.extensions,
        )


class LoopBody(httpx.AsyncByteStream):
    """Body of an answer on the loop; closing it ends the generator that makes it."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._parts = aiter(stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the iterator over the parts."""
        return self._parts

    async def aclose(self) -> None:
        """End the generator."""
        if isinstance(self._parts, AsyncGenerator):
            await self._parts.aclose()


class PulledBody:
    """Body of a download, read from a stream like that of libcurl."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._parts: Iterator[bytes] = iter(stream)
        self._rest = b""

    def read(self, most: int) -> bytes:
        """Return up to `most` bytes, b"" at the end."""
        while not self._rest:
            if (part := next(self._parts, None)) is None:
                return b""
            self._rest = part
        part, self._rest = self._rest[:most], self._rest[most:]
        return part

    def abort(self) -> None:
        """Do nothing: no read waits."""


def addressed(request: httpx.Request) -> httpx.Request:
    """Give a request the URL that libcurl would send."""
    request.url = request.url.copy_with(raw_path=request.extensions[TARGET])
    return request
