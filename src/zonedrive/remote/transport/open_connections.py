"""The connections that are open now, so that all of them can be ended.

Must not know what is sent on them.
"""

import threading
import weakref
from typing import Protocol


class Stream(Protocol):
    """One connection."""

    def hang_up(self) -> None:
        """End it, whoever waits for it."""


class Open:
    """The connections that are open now, so that all of them can be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._ended = False

    def add(self, stream: Stream) -> None:
        """A connection was made."""
        with self._lock:
            self._streams.add(stream)
            ended = self._ended
        if ended:
            stream.hang_up()

    def hang_up(self) -> None:
        """End all of them, and all that are made from now on, whoever waits for them."""
        with self._lock:
            self._ended = True
        self.cut()

    def cut(self) -> None:
        """End all of them, whoever waits for them."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.hang_up()
