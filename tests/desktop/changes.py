"""File manager that shows one file, saves it and waits for its emblem: changes.py SOURCES FILE.

Prints each state as JSON, with the seconds since the file was closed.  Runs in the system's Python.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from desktop.file_manager import States  # type: ignore[import-not-found]
from gi.repository import GLib


def main() -> None:
    path, seen = sys.argv[2], ["nothing"]
    Path(path).stat()

    def changed(_path: str) -> None:
        entry = states.client.entry(path)
        if entry is not None and entry.state != seen[-1]:
            seen.append(entry.state)
            print(json.dumps({"state": entry.state, "seconds": time.monotonic() - closed}))

    closed = float("inf")
    states = States(lambda path: None if closed == float("inf") else changed(path))
    context, end = GLib.MainContext.default(), time.monotonic() + 60
    while states.client.entry(path) is None and time.monotonic() < end:
        context.iteration(True)
    seen.append("synced")
    Path(path).write_bytes(b"saved\n")
    closed = time.monotonic()
    while (len(seen) < 3 or seen[-1] != "synced") and time.monotonic() < end:
        context.iteration(True)


main()
