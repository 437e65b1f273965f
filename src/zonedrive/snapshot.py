"""Detection of data that became stale during an await.

A value that was read before an await may have changed after the await. Take a snapshot, await,
check that the snapshot is current, then commit. Do not await between the check and the commit.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Stale(Exception):
    """Error for a snapshot that is not current any more; the operation must be planned again."""


class Snapshot(Generic[T]):
    """Value that a decision is based on, together with the function that reads the value."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], T]) -> None:
        """Call `read`, and store the value that it returns."""
        self._read = read
        self.value = read()

    @classmethod
    def of(cls, value: T, read: Callable[[], T]) -> "Snapshot[T]":
        """Return a snapshot with a value that was read earlier."""
        snapshot = cls.__new__(cls)
        snapshot._read, snapshot.value = read, value
        return snapshot

    @property
    def is_current(self) -> bool:
        """True if another call to `read` returns an equal value."""
        return self._read() == self.value

    def require(self) -> None:
        """Raise Stale unless the snapshot is current."""
        if not self.is_current:
            raise Stale
