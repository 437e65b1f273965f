"""Source of content that follows a script of right and wrong answers, without a service."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from zonedrive.content.cache import Cache
from zonedrive.content.quota import remove

KIB = 1024
MIB = 1 << 20


def content(size: int, seed: int = 0) -> bytes:
    """Return bytes that differ for each seed; a cipher makes them faster than `random`."""
    stream = Cipher(AES(seed.to_bytes(16, "big")), CTR(bytes(16))).encryptor()
    return stream.update(bytes(size))


def limit(cache: Cache, size: int) -> None:
    """Set the limit of a cache, and evict what is above it, as its start does."""
    cache.quota.limit = size
    remove(cache.quota.claim_at_once(0)[1])


async def until(condition: Callable[[], object]) -> None:
    """Wait for the result of a thread or a background task."""
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.001)


class Played:
    """One stream of the script."""

    def __init__(self, script: "Script", offset: int, end: int) -> None:
        self.offset = offset
        stated = len(script.data) if script.total is None else script.total
        self.total = stated if script.is_size_stated else None
        self.validator: str | None = script.validator
        self._script = script
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        position = self.offset
        while position < self._end:
            self._script.pace(position)
            piece = self._script.data[position : min(position + self._script.piece, self._end)]
            size = len(piece)
            self._script.sent += size  # several threads count: no call in between
            yield piece
            position += len(piece)
        self._script.finished += 1

    def abort(self) -> None:
        """End the stream; called from the loop."""
        self._script.aborted += 1
        self._script.go.set()


class Script:
    """Source over `data`, adapted by each test.

    `ranges`: an offset is honoured. `cut`: number of bytes after which a stream ends, with `error`
    or silently. `pace`: called in the thread before each piece, with its offset.
    """

    def __init__(self, data: bytes, *, piece: int = 64 * KIB) -> None:
        self.data = data
        self.piece = piece
        self.ranges = True
        self.total: int | None = None
        self.is_size_stated = True
        self.validator: str | None = "v1"
        self.error: Exception | None = None
        self.cut: int | None = None
        self.opened: list[int] = []
        self.ends: list[int] = []
        self.open_now = 0
        self.sent = 0
        self.aborted = 0
        self.finished = 0  # streams read to their end, whose connections can be used again
        self.go = threading.Event()
        self.pace: Callable[[int], object] = lambda _offset: None

    def held(self) -> None:
        """Stop all streams until `go` is set."""
        self.pace = lambda _offset: self.go.wait(60)

    @contextmanager
    def open(self, offset: int, end: int | None = None) -> Iterator[Played]:
        size = len(self.data)
        if end is not None:
            self.ends.append(end)
        with self._stream(offset, min(end or size, size) if self.ranges else size) as stream:
            yield stream

    async def confirm(self) -> None:
        """Report that the version has not changed."""

    @contextmanager
    def _stream(self, offset: int, end: int) -> Iterator[Played]:
        self.opened.append(offset)
        if self.error is not None and self.cut is None:
            raise self.error
        if not self.ranges:
            offset = 0
        if self.cut is not None:
            end = min(end, offset + self.cut)
        stream = Played(self, offset, end)
        if self.cut is not None and self.error is not None:
            error = self.error
            plain = iter(stream)

            def broken(_self: Played) -> Iterator[bytes]:
                yield from plain
                raise error

            stream = type("Broken", (Played,), {"__iter__": broken})(self, offset, end)
        self.open_now += 1
        try:
            yield stream
        finally:
            self.open_now -= 1
