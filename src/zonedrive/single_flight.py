"""Single-flight execution, in which all callers with the same key share one running operation.

A flight is a running operation. The first caller must call `begin` before its first await; later
callers wait for the same flight. Use this only in the thread of the event loop.

INVARIANT: all callers that wait for a flight are woken when the flight ends, even after a failure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import trio


class Flight:
    """Operation in progress that several callers can wait for; subclasses add a result."""

    def __init__(self) -> None:
        self._landed = trio.Event()

    async def wait(self) -> None:
        """Wait until the operation has ended, successfully or not."""
        await self._landed.wait()

    def land(self) -> None:
        """Mark the operation as ended, and wake the waiting callers."""
        self._landed.set()


K = TypeVar("K")
F = TypeVar("F", bound=Flight)


class SingleFlight(Generic[K, F]):
    """Operations in progress, by key."""

    def __init__(self) -> None:
        self._flights: dict[K, F] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys of the flights that are in progress now."""
        return iter(list(self._flights))

    def get(self, key: K) -> F | None:
        """Return the flight in progress for a key, or None."""
        return self._flights.get(key)

    async def wait(self, key: K) -> bool:
        """Wait for the flight of `key` and return True; return False at once if there is none."""
        flight = self._flights.get(key)
        if flight is None:
            return False
        await flight.wait()
        return True

    def begin(self, key: K, flight: F) -> F:
        """Register and return a flight; the caller must call `end` afterwards."""
        assert key not in self._flights, f"two flights of {key}"
        self._flights[key] = flight
        return flight

    def end(self, key: K) -> None:
        """Remove the flight of a key, and wake the callers that wait for the flight."""
        self._flights.pop(key).land()

    @contextmanager
    def flying(self, key: K, flight: F) -> Iterator[F]:
        """Register a flight for the duration of the `with` block, and yield the flight."""
        self.begin(key, flight)
        try:
            yield flight
        finally:
            self.end(key)
