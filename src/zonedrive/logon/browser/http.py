"""One HTTP/1.1 request of a local browser, and its response; then the connection closes.

Knows nothing about the request's purpose.
"""

from collections.abc import Sequence
from typing import Final

import h11
import trio

PIECE: Final = 16 * 1024


class Exchange:
    """A connection with one request; `method` is "" until the request is complete."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self.method = ""
        self.target = ""  # path and query
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.too_large = False

    async def receive(self, most: int) -> None:
        """Receive the request; at most `most` + 1 bytes of its body are kept."""
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(PIECE)))
            elif isinstance(event, h11.Request):
                request = event
                self.headers = dict(event.headers)
                self.target = event.target.decode("latin-1")
            elif isinstance(event, h11.Data):
                body += event.data[: most + 1 - len(body)]
                self.too_large = len(body) > most
            if request and isinstance(event, h11.EndOfMessage):
                self.method, self.body = request.method.decode("latin-1"), bytes(body)
                return
            if isinstance(event, h11.ConnectionClosed):
                return

    async def answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send the response and close the sending side."""
        sized = [] if status == 204 else [("Content-Length", str(len(body)))]
        every = [*headers, *sized, ("Connection", "close")]
        parts = [
            self._http.send(h11.Response(status_code=status, headers=every)),
            self._http.send(h11.Data(data=b"" if self.method == "HEAD" else body)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self._stream.send_all(b"".join(part for part in parts if part))
        await self._stream.send_eof()
