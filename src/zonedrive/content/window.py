"""A memory window: the latest bytes of a content that cannot be kept on the disk.

Knows nothing of downloads.  Thread-safe: threads write, the loop reads.
"""

import threading
from collections import OrderedDict, deque

from zonedrive.content.file import Buffer

CELL = 64 * 1024
CAPACITY = 24 << 20  # bytes for one content; more than all read-ahead together


class Window:
    """Bytes by offset; the cells written longest ago make room for new ones."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Hold at most `capacity` bytes, a cell more or less."""
        self._cells: OrderedDict[int, dict[int, bytes]] = OrderedDict()
        self._held = 0
        self._capacity = capacity
        self._lock = threading.Lock()
        self.dropped: deque[tuple[int, int]] = deque()
        """Ranges that are gone; whoever keeps track of what is there takes them out of here."""

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Put `data` in, dropping the oldest cells where needed."""
        with self._lock:
            done = 0
            while done < len(data):
                cell, start = divmod(offset + done, CELL)
                piece = bytes(data[done : done + CELL - start])  # not the buffer it lies in
                fragments = self._cells.setdefault(cell, {})
                known = len(fragments.get(start, b""))
                if len(piece) > known:  # another stream may have been cut into longer pieces
                    self._held += len(piece) - known
                    fragments[start] = piece
                self._cells.move_to_end(cell)
                done += len(piece)
            while self._held > self._capacity and len(self._cells) > 1:
                cell, fragments = self._cells.popitem(last=False)
                self._held -= sum(map(len, fragments.values()))
                self.dropped.append((cell * CELL, (cell + 1) * CELL))

    def pread(self, offset: int, length: int) -> bytes | None:
        """Exactly `length` bytes, or None where some are not there."""
        parts: list[bytes] = []
        end = offset + length
        with self._lock:
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
