"""Actions of the menus, each in a process of its own; a failure is shown as a notification."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from .client import blocking, serving
from .menu import _

SILENCE_SECONDS = 60.0  # longest time without a sign of the daemon
SEND_SECONDS = 60.0  # for an upload, before its end is left to the notifications of the daemon
AUTHORS = 5  # versions whose authors are shown
CALL_MILLISECONDS = 5000
USAGE = 2  # exit code of a command without the window
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
    """Upload now what is waiting or failed, also while uploads are paused."""
    _report(_each({"command": "send", "timeout": SEND_SECONDS}, paths))


def show(page: str, otherwise: Callable[[str], None] | None = None) -> Callable[[list[str]], None]:
    """Return the action that opens a page of the window, or else does something similar."""

    def start(paths: list[str]) -> None:
        command = [COMMAND, "ui", "--page", page, paths[0]]
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own command
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as wrong:
            raise Failed(_("The command zonedrive is not installed.")) from wrong
        if ended.returncode == USAGE and otherwise is not None:
            otherwise(paths[0])
        elif ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()
            raise Failed(said.removeprefix("zonedrive: ") or _("The window did not open."))

    return start


def open_versions(path: str) -> None:
    """Open the folder with the versions of a file."""
    whole = Path(path)
    folder = whole.parent / ".versions" / whole.name
    try:
        subprocess.run(["xdg-open", folder], check=True)  # noqa: S603, S607
    except (OSError, subprocess.CalledProcessError) as wrong:
        text = _("The folder did not open: {path}").format(path=folder)
        raise Failed(text) from wrong


def tell_authors(path: str) -> None:
    """Show who saved the newest versions of a file."""
    (answer,) = _each({"command": "versions", "path": path}, [path])
    _report([answer])
    newest = answer["versions"][:AUTHORS]
    lines = [f"{_local(each['modified'])}  {each['modified_by']}" for each in newest]
    lines = lines or [answer.get("unknown") or _("The service has no version of it yet.")]
    notify(_("Who changed {name}").format(name=Path(path).name), "\n".join(lines), "system-users")


def show_conflict(path: str) -> None:
    """Show both versions of a conflict in the file manager."""
    (answer,) = _each({"command": "conflicts"}, [path])
    _report([answer])
    found = next((each for each in answer["conflicts"] if path.endswith(f"/{each['path']}")), None)
    if found is None:
        raise Failed(_("The conflict is already decided."))
    mount = path.removesuffix(found["path"])
    _show_items([path, mount + found["original"]])
    text = _("Your version is {copy}. Keep what you need, and delete the other file.")
    title = _("{name} was also changed by {user}")
    notify(
        title.format(name=Path(found["original"]).name, user=found["by"] or _("another user")),
        text.format(copy=Path(path).name),
        "dialog-question",
    )


def _show_items(paths: list[str]) -> None:
    """Select files in the file manager, if there is one."""
    uris = [Path(path).as_uri() for path in paths]
    with contextlib.suppress(Exception):  # no gi, no bus or no such file manager
        _call("org.freedesktop.FileManager1", "ShowItems", "(ass)", (uris, ""))


def _local(time: str) -> str:
    """Return an ISO time of the service in the user's time zone, to the minute."""
    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M}"


ACTIONS: dict[str, Callable[[list[str]], None]] = {
    "keep": keep,
    "stop-keeping": stop_keeping,
    "send": send,
    "versions": show("versions", open_versions),
    "log": show("log", tell_authors),
    "conflict": show("conflicts", show_conflict),
    "share": show("share"),
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


def notify(title: str, text: str, icon: str = "dialog-warning") -> None:
    """Show a notification, or print the text where there is no desktop."""
    try:
        from gi.repository import GLib

        markup = GLib.markup_escape_text(text)
        words: tuple[object, ...] = ("zonedrive", 0, icon, title, markup, [], {}, -1)
        _call("org.freedesktop.Notifications", "Notify", "(susssasa{sv}i)", words)
    except Exception:  # no gi, no bus, or nobody who shows notifications
        with contextlib.suppress(OSError):
            command = ["notify-send", f"--icon={icon}", "--", title, text]
            subprocess.run(command, check=False)  # noqa: S603
        print(f"{title}: {text}", file=sys.stderr)


def _call(name: str, method: str, signature: str, words: tuple[object, ...]) -> None:
    """Call a method of a service on the session bus, which has its name's path and interface."""
    from gi.repository import Gio, GLib

    Gio.bus_get_sync(Gio.BusType.SESSION, None).call_sync(
        name, f"/{name.replace('.', '/')}", name, method, GLib.Variant(signature, words),
        None, Gio.DBusCallFlags.NONE, CALL_MILLISECONDS, None,
    )  # fmt: skip


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
