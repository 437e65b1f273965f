"""Rule for stale data: take a snapshot, await, check that it is current, commit.

A value that was read before an await may have changed after the await.  Between the check and the
commit there is no further await.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Snapshot(Generic[T]):
    """Value that a decision is based on, and how to read it again."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], T]) -> None:
        """Read the value now."""
        self._read = read
        self.value = read()

    @classmethod
    def of(cls, value: T, read: Callable[[], T]) -> "Snapshot[T]":
        """Return the snapshot of a value that was read earlier."""
        snapshot = cls.__new__(cls)
        snapshot._read, snapshot.value = read, value
        return snapshot

    @property
    def is_current(self) -> bool:
        """True if reading again gives an equal value."""
        return self._read() == self.value
