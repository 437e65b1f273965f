"""Sandboxed program with one document of the document portal: portal.py FILE.

Saves it in place, then through a new file, with a lock beside it.  Prints the folder of the
program, and waits for a line between the saves.  Runs in the system's Python.
"""

import os
import sys
from pathlib import Path
from typing import Any

from gi.repository import Gio, GLib

NAME = "org.freedesktop.portal.Documents"
REUSE, AS_NEEDED = 1, 4
APPLICATION = "org.example.Editor"


def main() -> None:
    """Request the document from the portal, and save it."""
    path = Path(sys.argv[1])
    bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)

    def call(method: str, words: GLib.Variant | None, fds: Gio.UnixFDList | None) -> Any:
        answer, _ = bus.call_with_unix_fd_list_sync(
            NAME, "/org/freedesktop/portal/documents", NAME, method, words, None,
            Gio.DBusCallFlags.NONE, 30000, fds, None,
        )  # fmt: skip
        return answer.unpack()

    fds = Gio.UnixFDList.new()
    handle = fds.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
    (mount,) = call("GetMountPoint", None, None)
    given = ([handle], REUSE | AS_NEEDED, APPLICATION, ["read", "write"])
    (document,), _ = call("AddFull", GLib.Variant("(ahusas)", given), fds)
    folder = Path(os.fsdecode(bytes(mount).rstrip(b"\0")), "by-app", APPLICATION, document)
    shown = folder / path.name
    assert shown.read_bytes() == path.read_bytes()
    lock = folder / f".~lock.{path.name}#"
    lock.write_bytes(b"locked")
    print("open", flush=True)
    sys.stdin.readline()
    shown.write_bytes(b"saved in place\n")
    print("saved", flush=True)
    sys.stdin.readline()
    new = folder / ".goutputstream-OCY5Y3"
    new.write_bytes(b"saved by a rename\n")
    new.replace(shown)
    print("saved", flush=True)
    sys.stdin.readline()
    lock.unlink()


main()
