"""Buttons of notifications on a real screen."""

import os
import signal
from pathlib import Path

from tests.desktop.extensions import screenshot
from tests.desktop.session import Session
from tests.desktop.test_file_manager import SERVICES
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

PICTURES = os.environ.get("ZONEDRIVE_PICTURES")
"""Folder for pictures of the screen; None: no pictures."""
BROWSER = """#!/bin/sh
printf '%s\\n' "$PPID" >{opened}.new
mv {opened}.new {opened}
"""


def test_a_conflict_is_shown_with_buttons(mounted: Mounted, session: Session) -> None:
    """A click on "Show both versions" starts the window."""
    opened, browser = mounted.machine.folder / "opened", mounted.machine.folder / "browser"
    browser.write_text(BROWSER.format(opened=opened))
    browser.chmod(0o700)
    for name in ("DISPLAY", "DBUS_SESSION_BUS_ADDRESS"):
        mounted.machine.environment[name] = session.environment[name]
    mounted.machine.environment["BROWSER"] = str(browser)
    mounted.allow("a conflict copy")
    mounted.restart()
    session.run(next(each for each in SERVICES if each.exists()))
    assert (mounted.root / "notes.txt").read_bytes()
    with (mounted.root / "notes.txt").open("ab", buffering=0) as file:
        file.write(b"mine\n")
        mounted.zone.write("notes.txt", b"by bob\n")
    mounted.sync()

    button = session.screen.find("push button", "Show both versions")
    if PICTURES:
        screenshot(session, Path(PICTURES, "notification.png"))
    session.click(button)
    eventually(opened.exists, what="the browser opens")
    os.kill(int(opened.read_text()), signal.SIGTERM)
