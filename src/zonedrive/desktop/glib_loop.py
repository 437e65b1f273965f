"""Adapter for the GLib event loop of file managers, and start of actions in separate processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gi.repository import GLib

PYTHON = "/usr/bin/python3"
ACTION = Path(__file__).with_name("__main__.py")
# Maximum size of the paths in one command, in bytes. The kernel accepts 2 MiB with the environment.
MOST_BYTES = 512 * 1024
POINTER = 9  # bytes that an argument takes beside its text


def start(action: str, paths: list[str]) -> None:
    """Start an action for these paths in a separate process, or in several for very many paths."""
    batch, size = list[str](), 0
    for path in paths:
        size += len(os.fsencode(path)) + POINTER
        if size > MOST_BYTES and batch:
            _spawn([action, *batch])
            batch, size = [], len(os.fsencode(path)) + POINTER
        batch.append(path)
    _spawn([action, *batch])


def _spawn(words: list[str]) -> None:
    GLib.spawn_async([PYTHON, os.fspath(ACTION), *words], flags=GLib.SpawnFlags.DEFAULT)


class GLibLoop:
    """Default event loop of GLib; implements `client.Loop`."""

    def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
        news = GLib.IOCondition.PRI | GLib.IOCondition.ERR
        data = GLib.IOCondition.IN | GLib.IOCondition.HUP | GLib.IOCondition.ERR

        def call(*_: Any) -> bool:
            callback()
            return True

        number = GLib.unix_fd_add_full(
            GLib.PRIORITY_DEFAULT, fd, news if urgent else data, call, None
        )
        return lambda: GLib.source_remove(number)

    def later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        pending: list[int] = []

        def call(*_: Any) -> bool:
            pending.clear()
            callback()
            return False

        pending.append(GLib.timeout_add(int(1000 * seconds), call))
        return lambda: GLib.source_remove(pending.pop()) if pending else None
