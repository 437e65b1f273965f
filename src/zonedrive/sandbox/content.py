"""Response that streams a range of a file without loading the whole range into memory.

This module does not depend on the file's name or entry.
"""

import asyncio
import os
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# Large enough that Python's overhead per byte is small, small enough for thousands of readers.
CHUNK_BYTES = 512 * 1024


class FileContent(Response):
    """Response with `length` bytes of the open file `fd`, starting at the offset `first`."""

    media_type = "application/octet-stream"

    def __init__(
        self, fd: int, first: int, length: int, status: int, headers: dict[str, Any]
    ) -> None:
        headers["Content-Length"] = str(length)
        self._fd, self._first, self._length = fd, first, length
        super().__init__(None, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close the file; stop early if the client disconnects.

        Raises OSError if the file ends before the end of the range.
        """
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            position, end = self._first, self._first + self._length
            while position < end and not gone.done():
                chunk = await _read(self._fd, min(CHUNK_BYTES, end - position), position)
                if not chunk:
                    raise OSError(f"content ends at {position} instead of {end}")
                position += len(chunk)
                more = position < end
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
            if self._length == 0:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            os.close(self._fd)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read(fd: int, length: int, position: int) -> bytes | bytearray:
    """Return up to `length` bytes of a file from the offset `position`.

    Bytes in the page cache are read directly, other bytes are read in a thread.
    """
    buffer = bytearray(length)
    try:
        got = os.preadv(fd, [buffer], position, os.RWF_NOWAIT)
    except OSError:  # not in the page cache, or RWF_NOWAIT is not supported
        got = 0
    if got == 0:
        return await asyncio.to_thread(os.pread, fd, length, position)
    if got < length:
        del buffer[got:]
    return buffer
