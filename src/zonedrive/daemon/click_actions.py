"""Actions of notification buttons: open a page of `zonedrive ui`, or show files in a file manager.

A program that an action starts keeps running when the daemon exits, for example after an unmount.

INVARIANT: starting a program never blocks the daemon, and a failed start is only logged.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import trio

from zonedrive import process_setup
from zonedrive.daemon.notification_client import Click, Desktop
from zonedrive.logon.session_bus import own_environment

log = logging.getLogger(__name__)

SECONDS = 30.0  # timeout for starting a program
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
# Variables that a started program needs to find the user's accounts and the desktop.
PASSED = (
    *DISPLAYS, "XAUTHORITY", "XDG_ACTIVATION_TOKEN", "XDG_CURRENT_DESKTOP", "BROWSER", "PATH",
    "DBUS_SESSION_BUS_ADDRESS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "LANGUAGE", "LANG", "LC_ALL", "LC_MESSAGES",
)  # fmt: skip


class ClickActions:
    """Factory of button actions for the notifications of one mount."""

    def __init__(self, desktop: Desktop, account: str, folder: Callable[[], Path]) -> None:
        """Create the factory; `folder` returns the current path of the mount point."""
        self._desktop, self._account, self._folder = desktop, account, folder

    def open_window(self, page: str) -> Click:
        """Return an action that opens the page `page` of `zonedrive ui` in the browser."""
        words = ["ui", "--page", page, "--account", self._account]
        return partial(self._start, [sys.executable, "-P", "-m", "zonedrive", *words])

    def show_files(self, *paths: str) -> Click:
        """Return an action that selects the entries at `paths` in the file manager.

        The paths are relative to the mount point. If no file manager can select entries, the action
        opens the folder of the first path.
        """
        return partial(self._show_files, paths)

    async def _show_files(self, paths: Sequence[str], token: str) -> None:
        whole = [self._folder() / path for path in paths]
        uris = [path.as_uri() for path in dict.fromkeys(whole)]
        if not await self._desktop.select_files(uris, token):
            await self._start(["xdg-open", os.fspath(whole[0].parent)], token)

    async def _start(self, words: Sequence[str], token: str) -> None:
        environment = own_environment()
        if token:
            environment["XDG_ACTIVATION_TOKEN"] = token
        session = await self._desktop.session_environment()
        for command in starters(words, environment, session):
            with trio.move_on_after(SECONDS):
                try:
                    ended = await trio.run_process(
                        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                        env=_completed(environment, session), check=False, cwd="/",
                    )  # fmt: skip
                except OSError as wrong:
                    log.info("%s cannot be started: %s", command[0], wrong)
                    continue
                if ended.returncode == 0:
                    return
        log.warning("a click on a notification could not start %s", words[0])


def starters(
    words: Sequence[str], environment: Mapping[str, str], session: Mapping[str, str]
) -> list[list[str]]:
    """Return commands that start a program and exit at once, in the order to try them.

    `words` are the program and its arguments, and `session` is the environment of the user's
    service manager, or {}. If the daemon runs in a systemd unit, the first command starts the
    program in a separate unit, because systemd kills all processes of a unit that stops.
    """
    found = [process_setup.with_former_limit(["setsid", "--fork", *words])]
    if session and "INVOCATION_ID" in environment:
        present = _completed(environment, session)
        variables = [f"--setenv={name}" for name in PASSED if name in present]
        manager = ["systemd-run", "--user", "--quiet", "--collect", *variables, "--"]
        found.insert(0, [*manager, *words])
    return found


def _completed(environment: Mapping[str, str], session: Mapping[str, str]) -> dict[str, str]:
    """Return `environment`, with the display variables of `session` if no display is set.

    The display is missing if the desktop session started after the daemon.
    """
    if any(environment.get(name) for name in DISPLAYS):
        return dict(environment)
    display = {name: session[name] for name in (*DISPLAYS, "XAUTHORITY") if name in session}
    return {**environment, **display}
