"""Actions of the menus, each in a process of its own; a failure is shown as a notification."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .client import blocking, serving
from .menu import _

SILENCE_SECONDS = 60.0  # longest time without a sign of the daemon
SEND_SECONDS = 60.0  # for an upload, before its end is left to the notifications of the daemon
PAGES = {"versions": "versions", "log": "log", "share": "share", "conflict": "conflicts"}
COMMAND = os.environ.get("ZONEDRIVE_COMMAND", "zonedrive")


class Failed(Exception):
    """An action failed; the text is for the user."""


def keep(paths: list[str]) -> None:
    """Keep files and folders on this machine, and fetch them."""
    _report(_each({"command": "pin"}, paths))


def stop_keeping(paths: list[str]) -> None:
    """Allow the content to be removed from this machine."""
    _report(_each({"command": "unpin"}, paths))


def send(paths: list[str]) -> None:
    """Upload now what is waiting or failed."""
    _report(_each({"command": "sync", "timeout": SEND_SECONDS}, paths))


def show(page: str) -> Callable[[list[str]], None]:
    """Return the action that opens a page of the window."""

    def start(paths: list[str]) -> None:
        command = [COMMAND, "ui", "--page", PAGES[page], *paths]
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own command
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as wrong:
            raise Failed(_("The command zonedrive is not installed.")) from wrong
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()
            raise Failed(said.removeprefix("zonedrive: ") or _("The window did not open."))

    return start


ACTIONS: dict[str, Callable[[list[str]], None]] = {
    "keep": keep,
    "stop-keeping": stop_keeping,
    "send": send,
    **{page: show(page) for page in PAGES},
}


def _each(request: dict[str, object], paths: list[str]) -> list[dict[str, Any]]:
    """Send a request to the daemons of these paths, and return their answers."""
    daemons: dict[Path, list[str]] = {}
    for path in paths:
        daemon = next((one for one, below in daemons.items() if _is_near(path, below)), None)
        daemon = daemon or serving(path)
        if daemon is None:
            raise Failed(_("zonedrive does not answer. See: zonedrive doctor"))
        daemons.setdefault(daemon, []).append(path)
    try:
        return [
            blocking(daemon, {**request, "paths": below}, SILENCE_SECONDS)
            for daemon, below in daemons.items()
        ]
    except OSError as wrong:
        raise Failed(_("zonedrive does not answer. See: zonedrive doctor")) from wrong


def _is_near(path: str, paths: list[str]) -> bool:
    """Return True if the path is in the same folder as one of the others: in one mount."""
    return any(Path(path).parent == Path(each).parent for each in paths)


def _report(answers: list[dict[str, Any]]) -> None:
    """Raise Failed if one of the answers is an error, or names failures."""
    for answer in answers:
        if "error" in answer:
            raise Failed("; ".join(filter(None, (answer["error"], answer.get("remedy")))))
        if failed := answer.get("failed"):
            first, more = failed[0], len(failed) - 1
            said = f"{first['path']}: {first['error']}"
            raise Failed(said + (_(" (and {count} more)").format(count=more) if more else ""))
        if answer.get("exit"):
            said = answer.get("reason") or _("Some changes are still waiting.")
            raise Failed("; ".join(filter(None, (said, answer.get("remedy")))))


def notify(title: str, text: str) -> None:
    """Show a notification, or print the text where there is no desktop."""
    try:
        from gi.repository import Gio, GLib

        words: tuple[object, ...] = (
            "zonedrive",
            0,
            "dialog-warning",
            title,
            GLib.markup_escape_text(text),
            [],
            {},
            -1,
        )
        Gio.bus_get_sync(Gio.BusType.SESSION, None).call_sync(
            "org.freedesktop.Notifications",
            "/org/freedesktop/Notifications",
            "org.freedesktop.Notifications",
            "Notify",
            GLib.Variant("(susssasa{sv}i)", words),
            None,
            Gio.DBusCallFlags.NONE,
            5000,
            None,
        )
    except Exception:  # no gi, no bus, or nobody who shows notifications
        with contextlib.suppress(OSError):
            subprocess.run(  # noqa: S603
                ["notify-send", "--icon=dialog-warning", "--", title, text],  # noqa: S607
                check=False,
            )
        print(f"{title}: {text}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run ACTION PATH..., and return the exit code."""
    action = ACTIONS.get(arguments[0]) if arguments else None
    paths = [str(Path(path).absolute()) for path in arguments[1:]]
    if action is None or not paths:
        print(f"usage: {{{'|'.join(ACTIONS)}}} PATH...", file=sys.stderr)
        return 2
    try:
        action(paths)
    except Failed as wrong:
        title = _("That did not work: {name}").format(name=Path(paths[0]).name)
        notify(title, str(wrong))
        return 1
    return 0
