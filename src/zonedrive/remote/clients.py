"""HTTP clients for the trio loop and for worker threads, with limits on the size of responses.

This module contains no endpoints. httpx's own clients are not used, because their additional
features (cookies, redirects, decoding) are unwanted and took a fifth of the time of a small
request.

INVARIANT: every request goes to the client's deployment. No redirect is followed, and no cookie is
stored.
INVARIANT: the memory for a response body is limited to `most` bytes (see `read_body`) if the
response is successful, and to REFUSAL bytes if it is an error response. An encoded body of an error
response is not read. The transport limits the size of the headers, and rejects a successful
response with an encoded body.
"""

import io
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from zonedrive import __version__
from zonedrive.errors import Rejected
from zonedrive.remote.transport.exchange import TARGET, is_encoded
from zonedrive.remote.transport.transports import BlockingTransport, LoopTransport
from zonedrive.remote.urls import Request
from zonedrive.remote.wire.multipart import MultipartBody

USER_AGENT: Final = f"zonedrive/{__version__}"
MIB: Final = 1 << 20
SMALL: Final = 4 * MIB  # one response, for example with one entry
CHANGED: Final = 32 * MIB  # the response to a change: a group may have many members
LISTING: Final = 192 * MIB  # all pages of one listing together
REFUSAL: Final = 64 * 1024  # bytes of an error response that are read

TransportT = TypeVar("TransportT", bound=LoopTransport | BlockingTransport)


class _Client(Generic[TransportT]):
    """Base class of the HTTP clients; builds requests to one deployment."""

    def __init__(self, base_url: str, transport: TransportT, auth: httpx.Auth) -> None:
        """Prepare a client for the deployment at `base_url`.

        `base_url` must have been normalized by `service_address.base_url`.
        """
        self.base_url = base_url
        self.transport = transport
        self.auth = auth
        self._origin = httpx.URL(base_url)
        self.host = self._origin.netloc.decode()
        """Host of the deployment, with the port unless it is 443."""
        self._headers = httpx.Headers(
            {
                "Host": self.host,
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            }
        )

    def request(
        self,
        request: Request,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | MultipartBody = b"",
        timeout: httpx.Timeout,
        extensions: Mapping[str, Any] | None = None,
    ) -> httpx.Request:
        """Return `request` as an httpx request to the deployment, with the body `content`.

        Raises Rejected if the query is not valid Unicode.
        """
        try:
            query = urlencode(request.query, quote_via=quote)
        except UnicodeEncodeError:
            raise Rejected(
                "a text that is not valid Unicode cannot be part of an address",
                remedy="check the names and ids",
            ) from None
        target = f"{request.path}?{query}" if query else request.path
        found = httpx.Request(
            request.method,
            self._origin,
            headers=self._headers,
            stream=httpx.ByteStream(content) if isinstance(content, bytes) else content,
            extensions={
                "timeout": timeout.as_dict(),
                TARGET: target.encode(),
                "of_profile": request.origin == "profile",
                **(extensions or {}),
            },
        )
        for name, value in (headers or {}).items():
            found.headers[name] = value
        if content:
            found.headers["Content-Length"] = str(len(content))
        return found


class LoopClient(_Client[LoopTransport]):
    """Client for small requests on the trio loop; uses HTTP/2 if the service supports it."""

    async def send(self, request: httpx.Request, *, bare: bool = False) -> httpx.Response:
        """Send a request and return the response once its headers have arrived.

        The body is not read yet. If `bare`, the request has no bearer token. Raises httpx's
        errors, and NotLoggedOn if there is no bearer token to send.
        """
        if bare:
            return await self.transport.handle_async_request(request)
        flow = self.auth.async_auth_flow(request)
        try:
            request = await anext(flow)
            while True:
                response = await self.transport.handle_async_request(request)
                try:
                    request = await flow.asend(response)
                except StopAsyncIteration:
                    return response
                except BaseException:
                    await response.aclose()
                    raise
                await response.aclose()
        finally:
            await flow.aclose()


class BlockingClient(_Client[BlockingTransport]):
    """Client for worker threads; uses HTTP/1.1 with keep-alive."""

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response once its headers have arrived.

        The body is not read yet. Raises httpx's errors, and NotLoggedOn if there is no bearer token
        to send.
        """
        flow = self.auth.sync_auth_flow(request)
        try:
            request = next(flow)
            while True:
                response = self.transport.handle_request(request)
                try:
                    request = flow.send(response)
                except StopIteration:
                    return response
                except BaseException:
                    response.close()
                    raise
                response.close()
        finally:
            flow.close()


class TooLong(httpx.DecodingError):
    """Error for a response that is longer than allowed."""


async def read_body(response: httpx.Response, most: int) -> bytes:
    """Read and return the body of a response on the trio loop.

    The result is the whole body of a successful response, or the first REFUSAL bytes of an error
    response. If the body is encoded (e.g. compressed), the result is b"". Raises TooLong if the
    body of a successful response has more than `most` bytes, and httpx's errors.
    """
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = _Body(response, most)
    if not body.is_over:
        async for part in response.stream:
            if body.add(part):
                break
    return body.received.getvalue()


def read_body_blocking(response: httpx.Response) -> bytes:
    """Read and return the body of a response in a worker thread.

    The result and the errors are those of `read_body` with the limit SMALL.
    """
    assert isinstance(response.stream, httpx.SyncByteStream)
    body = _Body(response, SMALL)
    if not body.is_over:
        for part in response.stream:
            if body.add(part):
                break
    return body.received.getvalue()


class _Body:
    def __init__(self, response: httpx.Response, most: int) -> None:
        self.received = io.BytesIO()
        self.is_over = is_encoded(response.headers)
        self._is_refusal = response.status_code >= 300
        self._most = REFUSAL if self._is_refusal else most
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and not self._is_refusal:
            self._require(int(length[:20]))

    def add(self, part: bytes) -> bool:
        """Store a chunk of the body; return True if no further chunk is needed.

        Only the first REFUSAL bytes of an error response are stored. Raises TooLong if a successful
        response has more bytes than the `most` given to the constructor.
        """
        size = self.received.tell()
        if not self._is_refusal:
            self._require(size + len(part))
        self.received.write(part[: self._most - size])
        return self._is_refusal and self.received.tell() == self._most

    def _require(self, size: int) -> None:
        if size > self._most:
            raise TooLong(f"it has more than {self._most} bytes")
