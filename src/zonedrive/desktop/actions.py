"""Menu actions. Each action runs in a separate process and reports a failure as a notification."""

import contextlib
import html
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .client import Mount, blocking, serving
from .menu import _
from .mounts import MOUNTINFO, mount_points

SILENCE_SECONDS = 60.0  # longest time between two lines of a daemon's answer
SEND_SECONDS = 60.0  # longest wait for an upload; then the daemon's notifications report its end
CALL_MILLISECONDS = 5000
ERROR_IS_SHOWN = "ZONEDRIVE_ERROR_IS_SHOWN"  # tells `zonedrive ui` to show no notification
COMMAND = os.environ.get("ZONEDRIVE_COMMAND", "zonedrive")


class Failed(Exception):
    """Error for an action that failed; the text is for the user."""


def ask(command: str, **values: object) -> Callable[[list[str]], None]:
    """Return an action that sends `command` with `values` to the daemons of the action's paths."""
    return lambda paths: _report(_each({"command": command, **values}, paths))


def copy_link(paths: list[str]) -> None:
    """Copy the web link of the first path to KDE's clipboard, or show it in a notification.

    The link is for members of the zone. The action does not use other clipboards, because a program
    without a window cannot use them.
    """
    (answer,) = _each({"command": "link", "path": paths[0]}, paths[:1])
    _report([answer])
    link = str(answer["link"])
    try:
        _call("org.kde.klipper", "setClipboardContents", "(s)", (link,), "/klipper", ".klipper")
    except Exception:  # no gi, no bus, or another desktop
        notify(_("Link for members"), link, "edit-copy")


def show(page: str) -> Callable[[list[str]], None]:
    """Return the action that opens the page `page` of the web interface (`zonedrive ui`)."""

    def start(paths: list[str]) -> None:
        words = [] if page == "overview" else ["--page", page, paths[0]]
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own command
                [COMMAND, "ui", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                env={**os.environ, ERROR_IS_SHOWN: "1"},
            )  # fmt: skip
        except OSError as wrong:
            raise Failed(_("The command zonedrive is not installed.")) from wrong
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()
            raise Failed(said.removeprefix("zonedrive: ") or _("The window did not open."))

    return start


ACTIONS: dict[str, Callable[[list[str]], None]] = {
    "keep": ask("pin"),
    "stop-keeping": ask("unpin"),
    "send": ask("send", timeout=SEND_SECONDS),
    "versions": show("versions"),
    "log": show("log"),
    "conflict": show("conflicts"),
    "link": copy_link,
    "share": show("share"),
    "pause": ask("pause"),
    "resume": ask("resume"),
    "overview": show("overview"),
}


def _each(request: dict[str, object], paths: list[str]) -> list[dict[str, Any]]:
    """Send a request to each daemon whose mount contains any of `paths`; return the responses.

    Raises Failed if a path is in no mount, or a daemon does not answer.
    """
    mounts: dict[Mount, list[str]] = {}
    for path in paths:
        mount = next((one for one in mounts if one.has(path)), None) or serving(path)
        if mount is None:
            points = mount_points(MOUNTINFO.read_bytes())
            if not any(f"{path}/".startswith(f"{point}/") for point in points):
                raise Failed(_("This is not in one of your zones."))  # Dolphin shows the menu there
            raise Failed(_("zonedrive does not answer. See: zonedrive doctor"))
        mounts.setdefault(mount, []).append(path)
    try:
        return [
            blocking(mount.socket, {**request, "paths": below, "translated": True}, SILENCE_SECONDS)
            for mount, below in mounts.items()
        ]
    except (OSError, ValueError) as wrong:
        raise Failed(_("zonedrive does not answer. See: zonedrive doctor")) from wrong


def _report(answers: list[dict[str, Any]]) -> None:
    """Raise Failed if an answer is an error, or contains failed or unfinished changes."""
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


def notify(title: str, text: str, icon: str = "dialog-warning") -> None:
    """Show a notification; if there is no notification service, use notify-send and stderr."""
    markup = html.escape(text, quote=False)
    try:
        words: tuple[object, ...] = ("zonedrive", 0, icon, title, markup, [], {}, -1)
        _call("org.freedesktop.Notifications", "Notify", "(susssasa{sv}i)", words)
    except Exception:  # no gi, no bus, or no notification service
        with contextlib.suppress(OSError):
            command = ["notify-send", f"--icon={icon}", "--", title, markup]
            subprocess.run(command, check=False)  # noqa: S603
        print(f"{title}: {text}", file=sys.stderr)


def _call(
    name: str,
    method: str,
    signature: str,
    words: tuple[object, ...],
    path: str = "",
    interface: str = "",
) -> None:
    """Call a method of the service `name` on the session bus with the arguments `words`.

    `signature` is the D-Bus type of the arguments. The interface name is `name` followed by
    `interface`. If `path` is "", the object path is derived from `name`.
    """
    from gi.repository import Gio, GLib

    path = path or f"/{name.replace('.', '/')}"
    Gio.bus_get_sync(Gio.BusType.SESSION, None).call_sync(
        name, path, name + interface, method, GLib.Variant(signature, words),
        None, Gio.DBusCallFlags.NONE, CALL_MILLISECONDS, None,
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the action of the command line ACTION PATH..., and return the exit status."""
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
