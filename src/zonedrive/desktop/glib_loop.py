"""Event loop of GLib, which file managers run."""

from collections.abc import Callable
from typing import Any

from gi.repository import GLib


class GLibLoop:
    """Loop of the main thread."""

    def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` while `fd` is readable, or has urgent news; return a function to stop."""
        news = GLib.IOCondition.PRI | GLib.IOCondition.ERR
        data = GLib.IOCondition.IN | GLib.IOCondition.HUP | GLib.IOCondition.ERR

        def call(*_: Any) -> bool:
            callback()
            return True

        number = GLib.unix_fd_add_full(
            GLib.PRIORITY_DEFAULT, fd, news if urgent else data, call, None
        )
        return lambda: _remove(number)

    def later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after a time; return a function that cancels the call."""
        pending: list[int] = []

        def call(*_: Any) -> bool:
            pending.clear()
            callback()
            return False

        pending.append(GLib.timeout_add(int(1000 * seconds), call))
        return lambda: _remove(pending.pop()) if pending else None


def _remove(number: int) -> None:
    GLib.source_remove(number)
