"""Download of a cache entry's missing bytes in a thread, controlled by the event loop.

`work` runs in a thread; all other public methods are called on the event loop.

INVARIANT: the thread checks `stopped` and `limit` between two chunks. The thread therefore reads
only the requested bytes, and ends soon when the bytes are no longer needed.
"""

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.source import Source, Stream
from zonedrive.errors import BadAnswer, Changed
from zonedrive.transfer_slots import TransferSlot

LINGER = 2.0  # seconds that a download waits for another request after it has reached `limit`
TELL_S = 0.25  # seconds after which the event loop is notified of bytes that no reader waits for
TELL = 4 << 20  # number of such bytes after which the event loop is notified


class Download:
    """Download of the bytes from `start` up to `limit`, which grows with the readers' requests."""

    def __init__(
        self,
        source: Source,
        entry: CacheEntry,
        start: int,
        limit: int,
        *,
        bounded: bool,
        opened: Callable[["Download", Stream], Awaitable[bool]],
        advanced: Callable[["Download"], object],
    ) -> None:
        """Create a download; if `bounded`, request only the bytes up to `limit` from the source.

        `opened` is called on the event loop when the stream is open; the download continues if the
        result is True. `advanced` is called on the event loop after progress.
        """
        self.source = source
        self.entry = entry
        self.start = start
        self.limit = limit
        self.end = limit if bounded else entry.size
        self.noted = start  # position known to the event loop
        self.position = start  # position of the thread
        self.first_new = start  # first byte that was missing when the stream was opened
        self.progressed = trio.current_time()
        self.scope = trio.CancelScope()
        self.queued = True  # waits for a thread
        self.paused = False
        self.stopped = False
        self.linger = 0.0 if bounded else LINGER  # seconds to wait at `limit` for another request
        self.awaited = entry.size  # end of the bytes for which a reader waits
        # Last position of which the event loop was notified, and the time of the notification.
        self._told = start
        self._told_s = 0.0
        self._opened = opened
        self._advanced = advanced
        self._left = False  # the thread is ending and accepts no higher limit
        self._moved = threading.Condition()
        self._stream: Stream | None = None
        self._token = trio.lowlevel.current_trio_token()

    # -- on the event loop

    def extend(self, limit: int) -> bool:
        """Raise the limit to at least `limit`; return False if the download is already ending."""
        if self.stopped:
            return False
        if limit <= self.limit and not self.paused:
            return True
        with self._moved:
            if self._left:
                return False
            self.limit = max(self.limit, limit)
            self._moved.notify()
            return True

    def stop(self) -> None:
        """Stop the download; its thread ends soon."""
        self.stopped = True
        with self._moved:
            self._moved.notify()
            if self._stream is not None:
                self._stream.abort()
        self.scope.cancel()

    def _begun(self) -> None:
        """Record that a thread has begun the download."""
        self.queued = False
        self.progressed = trio.current_time()

    # -- in the download's thread

    def work(self) -> None:
        """Copy bytes from the source to the entry until the download ends.

        Raises BadAnswer if the source sends too few bytes, and BadAnswer or Changed if the source
        sends too many. Raises Stopped if the entry is closed, and the errors of `opened` and of the
        source.
        """
        self._tell(self._begun)
        end = self.end if self.end < self.entry.size else None
        with self.source.open(self.start, end) as stream:
            self._set_stream(stream)
            turn = TransferSlot()
            try:
                if not self.stopped and trio.from_thread.run(self._opened, self, stream):
                    self._drain(stream, turn)
            finally:
                turn.end()
                self._set_stream(None)  # another stream may use its connection from here on

    def _drain(self, stream: Stream, turn: TransferSlot) -> None:
        self._told_s = time.monotonic()
        for data in stream:
            turn.advance(len(data))
            if self.stopped:
                return
            end = self.position + len(data)
            if end > self.entry.size and self.position == self.entry.size:
                raise Changed(f"the content has more than {self.entry.size} bytes now")
            if end > self.entry.size:
                raise BadAnswer(f"more than the {self.entry.size} bytes of the file came")
            self.entry.store(self.position, data, partial(self._came, end))
            if end in (self.end, self.entry.size):
                continue  # nothing should follow; reading to the end lets the connection be reused
            if end > self.end:
                self.end = self.entry.size  # the source ignores ranges
            if self.position >= self.limit:
                turn.end()
            if not self._wanted():
                return
        if self.position < self.end:
            raise BadAnswer(f"only {self.position} of {self.entry.size} bytes of the file came")

    def _came(self, end: int) -> None:
        """Record that bytes up to `end` can be read.

        Notify the event loop if a reader waits for the bytes, or if TELL bytes were received or
        TELL_S seconds have passed since the last notification.
        """
        self.position = end
        now = time.monotonic()
        late = now - self._told_s >= TELL_S
        if late or end >= self.awaited or end - self._told >= TELL:
            self._told, self._told_s = end, now
            self._tell(self._advanced, self)

    def _tell(self, receive: Callable[..., object], *values: object) -> None:
        """Call `receive` on the event loop, without waiting for it."""
        try:
            self._token.run_sync_soon(receive, *values, idempotent=True)
        except trio.RunFinishedError:
            self.stopped = True

    def _set_stream(self, stream: Stream | None) -> None:
        with self._moved:
            self._stream = stream

    def _wanted(self) -> bool:
        """Return True if a reader has requested more bytes.

        At the end of the requested bytes, wait up to `linger` seconds for another request.
        """
        with self._moved:
            until = time.monotonic() + self.linger
            while self.position >= self.limit and not self.stopped:
                self.paused = True
                left = until - time.monotonic()
                if left <= 0 or not self._moved.wait(left):
                    break
            self.paused = False
            self._left = self.stopped or self.position >= self.limit
            return not self._left
