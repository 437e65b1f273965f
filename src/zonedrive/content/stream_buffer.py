"""Memory windows: the latest bytes of files that cannot be stored on the disk.

Knows nothing about downloads.  Thread-safe: threads write, the event loop reads.

INVARIANT: all windows together hold about `capacity` bytes at most.  Windows that were not used
recently are emptied first, then the largest one.
"""

import threading
from collections import OrderedDict, deque

from zonedrive.content.content_file import Buffer

CELL = 64 * 1024
CAPACITY = 32 << 20  # bytes for all contents
_MOST = 16 << 20  # for one content; more than all its read-ahead
_LEAST = 1 << 20  # minimum read-ahead of a window, however many windows exist


class StreamBuffers:
    """Memory budget shared by all windows."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Limit the combined size of all windows to `capacity` bytes."""
        self.lock = threading.Lock()
        self.held = 0
        self._capacity = capacity
        self._holders: set[StreamBuffer] = set()  # those that hold something

    @property
    def ahead(self) -> int:
        """Bytes of read-ahead that one window can hold until they are read."""
        return max(_LEAST, self._capacity // (3 * max(1, len(self._holders))))

    def new(self) -> "StreamBuffer":
        """Return a new window within the shared budget."""
        return StreamBuffer(self, min(_MOST, self._capacity))

    def rest(self) -> None:
        """Empty the windows that were not used since the last call."""
        with self.lock:
            for window in list(self._holders):
                if window.used:
                    window.used = False
                else:
                    window.empty()

    def changed(self, window: "StreamBuffer", by: int) -> None:
        """Add `by` bytes to the total; called with the lock held."""
        self.held += by
        if window.held:
            self._holders.add(window)
        else:
            self._holders.discard(window)

    def fit(self) -> None:
        """Drop cells until the total is within the budget; called with the lock held."""
        while self.held > self._capacity and self._holders:
            max(self._holders, key=lambda window: (not window.used, window.held)).shrink()


class StreamBuffer:
    """Bytes of one file by offset; the oldest cells are dropped to make room for new ones."""

    def __init__(self, windows: StreamBuffers, most: int) -> None:
        """Create a window of at most `most` bytes."""
        self.used = True
        self.held = 0
        self.dropped: deque[tuple[int, int]] = deque()
        """Queue of dropped ranges; the owner of the window removes and processes them."""
        self._cells: OrderedDict[int, dict[int, bytes]] = OrderedDict()
        self._windows = windows
        self._most = most

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Store `data`, dropping older cells of any window if necessary."""
        with self._windows.lock:
            self.used = True
            before, done = self.held, 0
            while done < len(data):
                cell, start = divmod(offset + done, CELL)
                piece = bytes(data[done : done + CELL - start])  # not the buffer it lies in
                fragments = self._cells.setdefault(cell, {})
                known = len(fragments.get(start, b""))
                if len(piece) > known:  # another stream may have been cut into longer pieces
                    self.held += len(piece) - known
                    fragments[start] = piece
                self._cells.move_to_end(cell)
                done += len(piece)
            self._windows.changed(self, self.held - before)
            while self.held > self._most and len(self._cells) > 1:
                self.shrink()
            self._windows.fit()

    def pread(self, offset: int, length: int) -> bytes | None:
        """Return exactly `length` bytes, or None if some are missing."""
        parts: list[bytes] = []
        end = offset + length
        with self._windows.lock:
            self.used = True
            while offset < end:
                cell, start = divmod(offset, CELL)
                fragments = self._cells.get(cell, {})
                for base, piece in fragments.items():
                    if base <= start < base + len(piece):
                        part = piece[start - base : start - base + end - offset]
                        break
                else:
                    return None
                parts.append(part)
                offset += len(part)
        return b"".join(parts)

    def holds(self, offset: int) -> bool:
        """Return True if the cell at `offset` has any bytes."""
        with self._windows.lock:
            return offset // CELL in self._cells

    def close(self) -> None:
        """Drop all bytes."""
        with self._windows.lock:
            self.empty()

    def empty(self) -> None:
        """Drop all bytes; called with the lock held."""
        while self._cells:
            self.shrink()

    def shrink(self) -> None:
        """Drop the oldest cell; called with the lock held."""
        cell, fragments = self._cells.popitem(last=False)
        gone = sum(map(len, fragments.values()))
        self.held -= gone
        self.dropped.append((cell * CELL, (cell + 1) * CELL))
        self._windows.changed(self, -gone)
