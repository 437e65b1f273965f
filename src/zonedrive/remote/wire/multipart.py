"""Body of an upload: streamed multipart/form-data with a length known beforehand.

This module sends nothing itself. The part `fileName` comes first, so that a service that reads the
body in order has the name before the content arrives.

INVARIANT: the body yields exactly `len()` bytes, or raises an exception.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator

import httpx

from zonedrive.errors import Rejected, StoreError, ZonedriveError


class Cancelled(ZonedriveError):
    """Error for an upload that its caller cancelled."""


class MultipartBody(httpx.SyncByteStream):
    """Body of one upload: an iterable of byte strings, repeatable if the content is repeatable."""

    def __init__(
        self,
        name: str,
        body: Iterable[bytes],
        size: int,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        passing: Callable[[int], None] = lambda amount: None,
        piece: int = 1 << 20,
    ) -> None:
        """Prepare the upload of a file `name` whose content is `body`.

        `body` must yield `size` bytes, which are sent in chunks of at most `piece` bytes. Before
        each chunk, `passing` is called with the chunk's size, and may block. Then `cancelled` is
        called. After the last chunk, `cancelled` is called once more. Raises Rejected for a name
        that cannot be encoded as UTF-8.
        """
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            # The encoder's message is left out because it contains the name.
            raise Rejected("a name that is not Unicode cannot be uploaded") from None
        mark = secrets.token_hex(24)
        dashed = f"--{mark}\r\n".encode()
        # Like a browser, escape only these three characters in the name of a file.
        quoted = raw.replace(b'"', b"%22").replace(b"\r", b"%0D").replace(b"\n", b"%0A")
        disposition = b"Content-Disposition: form-data; name="
        self._head = (
            dashed + disposition + b'"fileName"\r\n\r\n' + raw + b"\r\n"
            + dashed + disposition + b'"file"; filename="' + quoted + b'"\r\n'
            b"Content-Type: application/octet-stream\r\n\r\n"
        )  # fmt: skip
        self._tail = f"\r\n--{mark}--\r\n".encode()
        self._body, self._size = body, size
        self._cancelled, self._passing, self._piece = cancelled, passing, piece
        self.content_type = f"multipart/form-data; boundary={mark}"
        self._length = len(self._head) + size + len(self._tail)
        self.complete = False  # the last piece was handed over, or may have been

    def __len__(self) -> int:
        return self._length

    @property
    def replayable(self) -> bool:
        """True if the body can be sent a second time."""
        return iter(self._body) is not self._body

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks of the request body.

        Raises Cancelled after `cancelled()` returned True, and StoreError if the content does not
        have the announced size.
        """
        self.complete = False
        yield self._head
        sent = 0
        for piece in self._pieces():
            sent += len(piece)
            if sent > self._size:
                raise StoreError(f"a file grew beyond {self._size} bytes during its upload")
            self._passing(len(piece))
            if self._cancelled():
                raise Cancelled("the upload was cancelled")
            yield piece
        if sent < self._size:
            raise StoreError(f"the upload ended after {sent} of {self._size} bytes of a file")
        if self._cancelled():
            raise Cancelled("the upload was cancelled")
        # Set before the yield: if unsure, the body must count as sent.
        self.complete = True
        yield self._tail

    def _pieces(self) -> Iterator[bytes]:
        for chunk in self._body:
            if len(chunk) <= self._piece:
                yield chunk
                continue
            view = memoryview(chunk)
            for start in range(0, len(chunk), self._piece):
                yield bytes(view[start : start + self._piece])
