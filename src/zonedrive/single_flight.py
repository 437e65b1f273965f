"""Single flight: at most one operation per key is in progress, and all callers share it.

The first caller begins the flight before its first await; later callers wait for the same one.
Runs on the event loop.

INVARIANT: all callers that wait for a flight are woken when it ends, also if it failed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import trio


class Flight:
    """Work under way; subclasses add its result."""

    def __init__(self) -> None:
        self._landed = trio.Event()

    async def wait(self) -> None:
        """Wait until the work has ended, successfully or not."""
        await self._landed.wait()

    def land(self) -> None:
        """Wake the waiting callers."""
        self._landed.set()


K = TypeVar("K")
F = TypeVar("F", bound=Flight)


class SingleFlight(Generic[K, F]):
    """Flights under way, by key."""

    def __init__(self) -> None:
        self._flights: dict[K, F] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    def get(self, key: K) -> F | None:
        """Return the flight of a key, or None."""
        return self._flights.get(key)

    async def wait(self, key: K) -> bool:
        """Wait for the flight of a key; return False at once if there is none."""
        flight = self._flights.get(key)
        if flight is None:
            return False
        await flight.wait()
        return True

    def begin(self, key: K, flight: F) -> F:
        """Register a flight; `end` must follow."""
        assert key not in self._flights, f"two flights of {key}"
        self._flights[key] = flight
        return flight

    def end(self, key: K) -> None:
        """Remove the flight and wake the callers that wait for it."""
        self._flights.pop(key).land()

    @contextmanager
    def flying(self, key: K, flight: F) -> Iterator[F]:
        """Register a flight for the duration of a block."""
        self.begin(key, flight)
        try:
            yield flight
        finally:
            self.end(key)
