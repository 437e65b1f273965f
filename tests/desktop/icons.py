"""File manager that shows 1,000 entries and measures the extension.

    python3 icons.py SOURCES FOLDER SECONDS

Waits up to SECONDS for the emblems.  Prints them with the milliseconds of the processor that all
calls and callbacks took in the main thread, and how often one of them waited: gave up the processor
by itself, but not to read a page of a program from the disk.  Both are independent of other
programs.  Runs in the system's Python.
"""

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
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
    files = {str(path): File(path) for path in (folder / f"{n}.txt" for n in range(1000))}
    emblems: dict[str, str] = {}
    states = States(lambda path: show(path) if path in files else None)

    def show(path: str) -> None:
        found = path_of(files[path])
        entry = states.client.entry(found) if found is not None else None
        emblems.pop(path, None)
        if entry is not None:
            emblems[path] = emblem(entry)

    def show_all() -> None:
        for path in files:
            show(path)

    def measured(call: Callable[[], object]) -> None:
        cpu, before = time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD)
        call()
        after = resource.getrusage(resource.RUSAGE_THREAD)
        waited = after.ru_nvcsw - before.ru_nvcsw - (after.ru_majflt - before.ru_majflt)
        spent.append((1000 * (time.thread_time() - cpu), max(0, waited)))

    spent: list[tuple[float, int]] = []  # milliseconds of the processor, and waits
    measured(show_all)
    context, end = GLib.MainContext.default(), time.monotonic() + float(sys.argv[3])
    while len(emblems) < len(files) and time.monotonic() < end:
        if context.pending():
            measured(lambda: context.iteration(False))
        else:
            time.sleep(0.001)
    milliseconds, waits = (sum(each) for each in zip(*spent, strict=True))
    counts = Counter(emblems.values())
    print(json.dumps({"emblems": counts, "milliseconds": milliseconds, "waits": waits}))


main()
