"""The body of an answer in large pieces, most of it taken past the parser of HTTP.

Must not know what the bytes are.  httpx, httpcore and h11 look at every 16 KiB several times,
which costs more than TLS.  A body of known length needs none of that: the only state of a parser
within it is how many bytes are to come.

INVARIANT: the parser is told of every byte taken past it, so that it notices an early end, and
that the connection can be used again.
"""

from collections.abc import Iterator
from typing import Any

import httpcore
import httpx

from zonedrive.remote.transport import sockets

Buffer = bytes | memoryview


def pieces(
    client: httpx.Client,
    response: httpx.Response,
    limit: int,
    timeout: float | None,
    *,
    position: int = 0,
    spare: list[bytearray] | None = None,
) -> Iterator[Buffer]:
    """The undecoded body, in pieces of at most `limit` bytes; `timeout` for each.

    `position` is where in the content it begins: pieces end at multiples of `limit`, where the
    network is fast enough.  `spare`: memory of `limit` bytes each, to be used.  Raises what httpx
    raises.
    """
    if "Content-Length" not in response.headers:
        yield from response.iter_raw(limit)
        return
    spare = [] if spare is None else spare
    parsed = response.iter_raw()
    first = next(parsed, b"")  # empties the parser's buffer
    yield from _cut(first, limit)
    position += len(first)
    rest = _unread(client, response) if first else None
    while rest is not None and rest.left:
        size = min(limit - position % limit, rest.left)
        piece = memoryview(spare.pop() if spare else bytearray(limit))[:size]
        count = rest.take(piece, timeout)
        if not count:
            break  # the parser knows what to say of that
        position += count
        yield piece[:count]
    for chunk in parsed:
        yield from _cut(chunk, limit)


def _cut(chunk: bytes, limit: int) -> Iterator[bytes]:
    for start in range(0, len(chunk), limit):
        yield chunk[start : start + limit]


class _Unread:
    """What the parser has not seen yet of a body of known length."""

    def __init__(self, stream: sockets.Stream, reader: Any) -> None:
        self._stream = stream
        self._reader = reader

    @property
    def left(self) -> int:
        """Bytes to come."""
        count: int = self._reader._remaining
        return count

    def take(self, into: memoryview, timeout: float | None) -> int:
        """Some of them; 0 where the peer has closed.  Raises httpx.TransportError."""
        try:
            count = self._stream.fill(into, timeout)
        except httpcore.TimeoutException as slow:
            raise httpx.ReadTimeout(str(slow)) from slow
        except httpcore.NetworkError as wrong:
            raise httpx.ReadError(str(wrong)) from wrong
        self._reader._remaining -= count
        return count


def _unread(client: httpx.Client, response: httpx.Response) -> _Unread | None:
    """None where the insides are not what they are known to be: slower, but as right.

    Hence the private names; a test holds the pinned versions to them.
    """
    stream = response.extensions.get("network_stream")
    if isinstance(stream, sockets.Stream):
        reader = getattr(sockets.parser_of(client, stream), "_reader", None)
        if isinstance(getattr(reader, "_remaining", None), int):
            return _Unread(stream, reader)
    return None
