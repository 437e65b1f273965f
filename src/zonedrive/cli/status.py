"""Commands `status` and `sync`: pending changes and their upload.

Knows nothing about how the daemon finds the data.
"""

import contextlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonedrive.cli import control_client, status_view, sync_view
from zonedrive.cli.live_view import View
from zonedrive.cli.options import LocalPath, Seconds, json_option, some_account_option
from zonedrive.cli.text_output import NARROW, Progress, complain, put, when, words
from zonedrive.daemon.protocol import Message
from zonedrive.errors import AlreadyRunning, MountEnded, ZonedriveError
from zonedrive.formatting import saved
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths, quoted, require_folders

if TYPE_CHECKING:
    from rich.console import RenderableType

WATCH_SECONDS = 1.0
ASK_SECONDS = 30.0

BETWEEN_SECONDS = 20.0
"""Maximum time in seconds between a daemon's start and first answer, or last answer and end."""

SHOWN = 10
"""Maximum number of uploads shown to users; JSON output has all of them."""

WATCHED = 100
"""Maximum number of uploads shown with --watch, if the terminal is high enough."""

MOUNTED = ("reason", "remedy", "failing", "died")
"""Keys that only apply while the mount exists."""

LINES_ABOVE = 14
"""Number of lines of a status view without its uploads."""


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@json_option
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
def status(path: tuple[str, ...], account: str | None, as_json: bool, watch: bool) -> None:
    """Show whether all is on the service, what waits to be uploaded, and the cache.

    With PATH, only the uploads there.  Exits with 0 also where something waits or failed; a
    script asks 'zonedrive sync --timeout 0', which exits with 0 only where nothing does.
    """
    paths, below = control_client.resolve(path, account)
    look = Look(paths, below, None if as_json else WATCHED if watch else SHOWN)
    if watch:
        _watch(look, as_json=as_json)
        return
    found = look.first()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for part in _picture(found, part=bool(below), rows=SHOWN):
        put(part)


def _watch(look: "Look", *, as_json: bool) -> None:
    """Show the status until Ctrl-C or a closed pipe; if the mount ends, wait for the next one."""
    found, drawn = look.first(), None
    with View().open() as view:
        while True:
            now = (found, view.size)
            if now != drawn and as_json:
                # One object per line, so that a program can separate them.
                click.echo(json.dumps(found))
            elif now != drawn:
                view.show(_picture(found, part=bool(look.below), rows=_room(view.size)))
            drawn = now
            if not view.pause(WATCH_SECONDS):
                return
            found = look.again(found)


def _picture(found: dict[str, Any], *, part: bool, rows: int) -> list["RenderableType"]:
    """Return the status view; if the status is unknown now, the last known one follows."""
    drawn = status_view.picture(found, part=part, rows=rows)
    if since := found.get("unknown_since"):
        head = f"since {when(since)} it is not known what is on the service: {found['unknown']}"
        return [words(head, "bold red"), words(""), words("before that:"), *drawn]
    return drawn


def _room(size: tuple[int, int] | None) -> int:
    """Return the number of uploads that fit into a view."""
    if size is None:
        return SHOWN
    columns, lines = size
    return max(2, (lines - LINES_ABOVE) // (2 if columns < NARROW else 1))


class Look:
    """Status query for one account, with or without a running daemon."""

    def __init__(self, paths: AccountPaths, below: list[str], most: int | None) -> None:
        self._paths, self.below = paths, below
        self._request: dict[str, Any] = {"command": "status", "paths": below}
        if most is not None:
            self._request["most"] = most
        self._known = ""  # time of the daemon's last status

    def first(self) -> dict[str, Any]:
        """Return the contract's object, from the daemon or else from its stored state."""
        end = time.monotonic() + BETWEEN_SECONDS
        while True:
            try:
                return self._asked()
            except (control_client.NotResponding, control_client.Unconnectable) as silent:
                raise _with_rest(self._paths, silent) from silent
            except (control_client.NoDaemon, MountEnded):
                pass
            from zonedrive.daemon import local_data

            require_folders(self._paths)
            try:
                return local_data.status(self._paths, self._request.get("most"))
            except AlreadyRunning:  # a daemon is just coming up, or going
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def again(self, former: dict[str, Any]) -> dict[str, Any]:
        """Return the status later.

        After the daemon's end no lock is taken, because a new daemon may start.
        """
        try:
            return self._asked()
        except (control_client.NoDaemon, control_client.Unconnectable, MountEnded):
            return self._left(former)
        except (control_client.NotResponding, control_client.DaemonTimeout) as silent:
            since = {"unknown_since": self._known, "unknown": silent.line(), "state": "offline"}
            return {**former, **since}

    def _asked(self) -> dict[str, Any]:
        found = control_client.ask(self._paths, self._request, timeout=ASK_SECONDS)
        del found["done"]
        self._known = datetime.now(UTC).isoformat(timespec="seconds")
        return found | _detached(found)

    def _left(self, former: dict[str, Any]) -> dict[str, Any]:
        """Return the last known state of an ended mount, with its pending changes."""
        from zonedrive.daemon import last_run
        from zonedrive.daemon.local_data import backlog

        gone = {"mountpoint": None, "pid": None, "state": "offline"}
        death = last_run.death(self._paths)
        died = {} if death is None else {"died": death.json()}
        known = {name: former[name] for name in former if name not in MOUNTED}
        outbox, uploads = dict(former["outbox"]), [_resting(one) for one in former["uploads"]]
        outbox["pending"], outbox["uploading"] = outbox["pending"] + outbox["uploading"], 0
        with contextlib.suppress(ZonedriveError, OSError):
            rest = backlog(self._paths)
            if not self.below:
                outbox["failed"] = min(outbox["failed"], rest.files)
                outbox |= {"bytes": rest.bytes, "pending": rest.files - outbox["failed"]}
                if "files" in outbox:
                    outbox["files"] = rest.files - rest.changes
                uploads = uploads[: rest.files]
        return {**known, **gone, "outbox": outbox, "uploads": uploads, **died}


def _detached(found: dict[str, Any]) -> dict[str, Any]:
    """Return changes to the status of a daemon whose mount is not visible here."""
    folder = found["mountpoint"]
    if folder is None or mountpoint.at(Path(folder)) is not None:
        return {}
    return {
        "mountpoint": None,
        "notice": f"nothing is mounted at {folder} any more, but what uses it (a program, or a"
        f" container) is still served; 'zonedrive unmount {quoted(Path(folder))}' ends that",
    }


def _with_rest(paths: AccountPaths, silent: ZonedriveError) -> ZonedriveError:
    """Return the error for a silent daemon, with the pending changes in its journal."""
    from zonedrive.daemon.local_data import backlog

    said = silent.message
    with contextlib.suppress(ZonedriveError, OSError):
        rest = backlog(paths)
        said += f": {rest} not on the service yet, and kept here" if rest.files else ""
    return ZonedriveError(said, remedy=silent.remedy)


def _resting(upload: dict[str, Any]) -> dict[str, Any]:
    state = "pending" if upload["state"] == "uploading" else upload["state"]
    return {**upload, "state": state, "sent": 0}


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="How long to wait.  [default: as long as the service answers]",
)
def sync(path: tuple[str, ...], account: str | None, timeout: float | None) -> None:
    """Wait until everything under PATH is on the service; without PATH, the whole mount.

    Exits with 0 when it is, 1 when something failed or is left, 3 when the service wants a logon,
    4 when it could not be reached in time.
    """
    paths, below = control_client.resolve(path, account)
    last: Message = {}
    try:
        with Progress() as progress:
            request = {"command": "sync", "paths": below, "timeout": timeout}
            way, held = sync_view.SyncProgress(), sync_view.Held()
            for last in control_client.stream(paths, request):
                if last.get("done"):
                    continue
                for text in held.at(last):
                    progress.show("")
                    complain(text)
                progress.bar(*way.at(last))
    except (control_client.NoDaemon, MountEnded) as ended:
        _say_unsent(paths, ended)
        return
    sync_view.tell(last)
    click.get_current_context().exit(last["exit"])


def _say_unsent(paths: AccountPaths, ended: ZonedriveError) -> None:
    """Report the pending changes or rescued files of an account without a mount.

    Raises ZonedriveError if there are any, or if there was no mount.
    """
    from zonedrive.daemon.local_data import disk_problem, only_here

    here = only_here(paths)
    rest, lost = here.backlog, here.lost
    waits = f"{rest} not on the service yet"
    if isinstance(ended, MountEnded):
        if rest.files:
            raise ZonedriveError(
                f"the mount has ended: {waits}; kept here, uploads go on at the next mount"
            ) from ended
        if lost:
            raise ZonedriveError(
                f"the mount has ended: {saved(lost)}", remedy=f"mount, {sync_view.SAVED}"
            ) from ended
        return
    if rest.files:
        remedy = disk_problem(paths) or ended.remedy
        raise ZonedriveError(f"{ended.message}: {waits}", remedy=remedy) from ended
    if lost:
        raise ZonedriveError(
            f"{ended.message}: {saved(lost)}", remedy=f"{ended.remedy}, {sync_view.SAVED}"
        ) from ended
    raise ended
