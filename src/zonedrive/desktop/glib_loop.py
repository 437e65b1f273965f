"""Adapter of the GLib event loop, which file managers run, and start of separate processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gi.repository import GLib

PYTHON = "/usr/bin/python3"
ACTION = Path(__file__).with_name("__main__.py")


def start(action: str, paths: list[str]) -> None:
    """Start an action in a separate process."""
    GLib.spawn_async([PYTHON, os.fspath(ACTION), action, *paths], flags=GLib.SpawnFlags.DEFAULT)


class GLibLoop:
    """Event loop of the main thread, with the interface `client.Loop`."""

    def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` while `fd` is readable or has urgent data; return a function to stop."""
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
