"""File manager that shows a folder and measures the extension: icons.py SOURCES FOLDER.

Prints the emblems and the milliseconds of the main thread that all calls and callbacks took.  Runs
in the system's Python.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import gi

gi.require_version("Gio", "2.0")
from desktop.file_manager import States, path_of  # type: ignore[import-not-found] # noqa: E402
from desktop.menu import emblem  # type: ignore[import-not-found] # noqa: E402
from gi.repository import Gio, GLib  # noqa: E402


class File:
    """Entry with the interface of a file manager's objects."""

    def __init__(self, path: Path) -> None:
        self._location = Gio.File.new_for_path(str(path))

    def get_uri_scheme(self) -> str:
        return "file"

    def get_location(self) -> Gio.File:
        return self._location


def main() -> None:
    folder = Path(sys.argv[2])
    files = {
        str(folder / f"{number}.txt"): File(folder / f"{number}.txt") for number in range(1000)
    }
    emblems: dict[str, str] = {}
    states = States(lambda path: show(files[path]) if path in files else None)

    def show(file: File) -> None:
        path = path_of(file)
        entry = states.client.entry(path) if path is not None else None
        if entry is not None:
            emblems[path] = emblem(entry)

    begun = time.thread_time()
    for file in files.values():
        show(file)
    context, end = GLib.MainContext.default(), time.monotonic() + 60
    while len(emblems) < len(files) and time.monotonic() < end:
        context.iteration(True)
    spent = time.thread_time() - begun
    print(json.dumps({"emblems": Counter(emblems.values()), "milliseconds": 1000 * spent}))


main()
