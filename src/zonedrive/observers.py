"""Lists of observers, which are functions that an object calls on each of its events."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Observers(Generic[P]):
    """List of functions to call on each event of one kind."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, None]] = []

    def add(self, function: Callable[P, None]) -> None:
        """Register `function` to be called on every later event."""
        self._functions.append(function)

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the registered functions with these arguments, in the order of registration."""
        for function in self._functions:
            function(*args, **kwargs)
