"""Observers: functions that are called at each event of an object."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Observers(Generic[P]):
    """Functions to call at each event of one kind."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, None]] = []

    def add(self, function: Callable[P, None]) -> None:
        """Call `function` at each event from now on."""
        self._functions.append(function)

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all functions in the order in which they were added."""
        for function in self._functions:
            function(*args, **kwargs)
