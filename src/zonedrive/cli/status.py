"""Command `status`, which shows pending changes, uploads and the cache, once or until Ctrl-C.

INVARIANT: the first line says whether all written data is on the service. Only lines about a daemon
that does not respond, and lines that say how to log on again, come before this line.
INVARIANT: however the live view ends (Ctrl-C, a signal, an error, a closed terminal), the terminal
is restored: the cursor is visible, and the previous lines are shown again. Without a terminal, or
on a terminal without cursor control, nothing is overwritten.
"""

import contextlib
import json
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonedrive import causes, process_setup
from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, json_option, some_account_option
from zonedrive.cli.text_output import amount, grid, put, words
from zonedrive.daemon import last_run, lock
from zonedrive.errors import AlreadyRunning, MountEnded, ZonedriveError
from zonedrive.formatting import count, saved, unsent, verb
from zonedrive.paths import AccountPaths, quoted
from zonedrive.translation import marked

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Status = dict[str, Any]
"""Status object of the JSON output, with additional members for the text output."""

WATCH_SECONDS = 1.0
ASK_SECONDS = 30.0
SHOWN = 10  # maximum number of uploads shown to users; JSON output has all of them
WATCHED = 100  # maximum number of uploads shown with --watch, if the terminal is high enough
LINES_ABOVE = 14  # number of lines of a status view without its uploads
LINES_OF_BLOCK = 5  # maximum number of lines of an upload in a narrow terminal
# Members of the status of a mount that has ended.
ENDED = {"mountpoint": None, "pid": None, "state": "offline"}
NOT_SENDING = {
    "offline": "the service cannot be reached: cached files can be read, and changes wait and are"
    " sent when it is back",
    "logon-required": "",  # the first line explains this state
}
"""Explanations for the states in which no changes are sent, by state."""

# Display names of the pending changes that have no content, by type of change.
CHANGES = {"folder": "new folder", "moved": "renamed", "removed": "removed"}


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@json_option
@click.option("--watch", is_flag=True, help="Update the output at every change, until Ctrl-C.")
@click.option(
    "--metrics",
    is_flag=True,
    help="Print metrics for Prometheus, of all accounts unless --account is given.",
)
@click.option(
    "--output",
    type=LocalPath(),
    metavar="FILE",
    help="With --metrics: replace FILE, for node_exporter's textfile collector.",
)
def status(
    path: tuple[str, ...],
    account: str | None,
    as_json: bool,
    watch: bool,
    metrics: bool,
    output: str | None,
) -> None:
    """Show whether all changes are on the service, the pending uploads, and the cache.

    With PATH, show only the uploads below it. Exits with 0 even if changes are pending or failed;
    for scripts, 'zonedrive sync --timeout 0' exits with 0 only if everything is on the service.
    """
    if metrics:
        if path or as_json or watch:
            raise click.UsageError("--metrics excludes PATH, --json and --watch.")
        _metrics(account, output)
        return
    if output is not None:
        raise click.UsageError("--output needs --metrics.")
    paths, below = control_client.resolve(path, account)
    query = StatusQuery(paths, below, None if as_json else WATCHED if watch else SHOWN)
    if watch:
        _watch(query, as_json=as_json)
        return
    found = query.first()
    if as_json:
        text_output.as_json(found)
        return
    put(*rendered(found, part=bool(below), rows=SHOWN))


def _metrics(account: str | None, output: str | None) -> None:
    from zonedrive.cli import metrics

    text = metrics.of_accounts(account)
    if output is None:
        click.echo(text, nl=False)
    else:
        # node_exporter, which reads the file, runs as another user
        with text_output.replaced(output, 0o644) as file:
            file.write(text.encode())


class StatusQuery:
    """Status query for one account, with or without a running daemon."""

    def __init__(self, paths: AccountPaths, below: list[str], most: int | None) -> None:
        self._paths, self.below = paths, below
        self._request: dict[str, Any] = {"command": "status", "paths": below}
        if most is not None:
            self._request["most"] = most
        self._answered = ""  # time of the daemon's last answer
        self._stored: Status | None = None  # status after the daemon's end

    def first(self) -> Status:
        """Return the status from the daemon, or from the stored state if no daemon is running."""
        try:
            return control_client.asked_or_stored(self._paths, self._asked, self._offline)
        except (control_client.NotResponding, control_client.Unconnectable) as silent:
            _add_backlog(self._paths, silent)
            raise

    def again(self, former: Status) -> Status:
        """Return the current status; `former` is the previous status.

        If the daemon does not respond, returns `former` with the members "unknown_since" and
        "unknown". After the daemon has ended, returns the status from the stored state.
        """
        try:
            found = self._asked()
        except (control_client.NoDaemon, control_client.Unconnectable, MountEnded):
            if self._stored is None:
                with contextlib.suppress(AlreadyRunning):  # the daemon is still ending
                    self._stored = self._offline()
            return self._stored or former | ENDED
        except (control_client.NotResponding, control_client.DaemonTimeout) as silent:
            since = {"unknown_since": self._answered, "unknown": silent.line(), "state": "offline"}
            return {**former, **since}
        self._stored = None
        return found

    def _asked(self) -> Status:
        found = control_client.ask(self._paths, self._request, timeout=ASK_SECONDS)
        del found["done"]
        self._answered = datetime.now(UTC).isoformat(timespec="seconds")
        folder, who = found["mountpoint"], lock.holder(self._paths.lock)
        if folder is not None and (who is None or not who.is_mounted):
            found["mountpoint"] = None
            found["notice"] = marked(
                f"nothing is mounted at {folder} any more, but a program or container still uses"
                f" it; run 'zonedrive unmount {quoted(Path(folder))}' to end that"
            )
        return found

    def _offline(self) -> Status:
        from zonedrive.daemon import local_data

        return local_data.status(self._paths, self._request.get("most"))


def _add_backlog(paths: AccountPaths, silent: ZonedriveError) -> None:
    """Add the number of pending changes, if known, to the message of the error `silent`."""
    from zonedrive.daemon.local_data import backlog

    with contextlib.suppress(ZonedriveError, OSError):
        rest = backlog(paths)
        silent.message += f": {rest} not on the service yet, and kept here" if rest.files else ""


# ---- watching ----


def _watch(query: StatusQuery, *, as_json: bool) -> None:
    """Show the status until Ctrl-C, or until the reader of the output closes the pipe.

    The view continues if the mount ends, and shows the next mount.

    On a terminal, each view replaces the previous one. Without a terminal, each changed status is
    printed below the previous one. With `as_json`, each changed status is printed as a JSON object
    in one line.
    """
    from rich.console import Group

    found, drawn = query.first(), None
    with _screen() if not as_json else contextlib.nullcontext() as live:
        while True:
            size = shutil.get_terminal_size((80, 24)) if live else None
            if (found, size) != drawn and as_json:
                click.echo(json.dumps(found))
            elif (found, size) != drawn:
                rows = _room(size.lines) if size else SHOWN
                parts = rendered(found, part=bool(query.below), rows=rows)
                if live is None:
                    put(*parts, "")
                else:
                    live.update(Group(*parts), refresh=True)
            drawn = (found, size)
            if not text_output.has_reader(WATCH_SECONDS):
                return
            found = query.again(found)


def _room(lines: int) -> int:
    is_narrow = text_output.width() < text_output.NARROW
    return max(2, (lines - LINES_ABOVE) // (LINES_OF_BLOCK if is_narrow else 1))


@contextlib.contextmanager
def _screen() -> Iterator["Live | None"]:
    """Yield a live view on the alternate screen, or None if standard output cannot be redrawn.

    The terminal is restored at the end of the `with` block.
    """
    if not text_output.can_redraw(sys.stdout):
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    live = Live(
        console=Console(highlight=False, markup=False, emoji=False),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    former = {
        one: signal.signal(one, process_setup.leave) for one in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        with live:
            yield live
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


# ---- the text ----


def rendered(found: Status, *, part: bool, rows: int) -> list["RenderableType"]:
    """Return the lines and tables of the text output.

    `part` means that only some paths were requested; `rows` is the maximum number of uploads shown.
    """
    shown = [words(text, style) for text, style in _lines(found, part=part)]
    return shown + _uploads(found, rows)


def _lines(found: Status, *, part: bool) -> Iterator[tuple[str, str]]:
    outbox, cache = found["outbox"], found["cache"]
    if since := found.get("unknown_since"):
        text = f"since {text_output.when(since)} it is not known what is on the service"
        yield f"{text}: {found['unknown']}", "bold red"
        yield "", ""
        yield "before that:", ""
    place = f"mounted at {found['mountpoint']}" if found["mountpoint"] else "not mounted"
    if found["pid"] and found["state"] == "logon-required":
        yield "you are logged off: cached files can be read, and changes wait", "bold yellow"
        if found.get("remedy"):
            yield f"run: {found['remedy']}", "bold yellow"
    yield verdict(found, part=part), "bold"
    if found["pid"]:
        yield f"{found['account']}: {place}, {found['state']}", ""
    else:
        mount = "" if found.get("died") else f"; run: {_command('mount DIR', found)}"
        yield f"{found['account']}: not mounted{mount}", ""
    yield from _notes(found)
    yield f"service    {found['base_url']}", ""
    names = ("pending", "uploading", "failed")
    parts = ", ".join(f"{outbox[name]} {name}" for name in names if outbox[name])
    yield f"outbox     {parts} ({amount(outbox['bytes'])})" if parts else "outbox     empty", ""
    if outbox["conflicts"]:
        number = outbox["conflicts"]
        yield f"conflicts  {number}; run: {_command('conflicts', found)}", ""
    if (local := found.get("local")) and local["files"]:
        files = count(local["files"], "file stays", "files stay")
        some = "" if local["files"] == 1 else "among them "
        yield f"local      {files} on this machine (local_only), {some}{local['path']}", ""
    yield f"cache      {amount(cache['bytes'])} of {amount(cache['limit'])}", ""
    if found.get("notice"):
        yield found["notice"], "yellow"


def _notes(found: Status) -> Iterator[tuple[str, str]]:
    """Yield lines (text, style) about problems, their remedies, and the requested paths."""
    if died := found.get("died"):
        mount = _command(f"mount {shlex.quote(died['mountpoint'])}", found)
        yield last_run.line_of(died), "bold red"
        yield f"run: {mount}", "bold red"
    for each in found.get("failing", []):
        times = "" if each["times"] == 1 else f" {each['times']} times"
        text = f"failing, and retried automatically: {each['task']}{times} ({each['error']})"
        yield text, "bold red"
    if not found["pid"] and _waiting(found) and not died:
        yield "nothing is sent while it is not mounted", "yellow"
    if found.get("paused"):
        yield f"{_pause(found)}; run: {_command('resume', found)}", "yellow"
    if found["pid"] and found["state"] in NOT_SENDING:
        if said := NOT_SENDING[found["state"]]:
            yield said, "yellow"
        if found.get("reason"):
            yield f"why: {found['reason']}", "yellow"
    staying = _staying(found)
    is_in_verdict = not _waiting(found) and len(staying) == 1
    for one in found.get("named", []):
        if not (is_in_verdict and one["stays"]):
            yield f"{one['path']}: {one['what']}", "yellow"


def verdict(found: Status, *, part: bool) -> str:
    """Return the line that says whether all data, or the requested part, is on the service."""
    outbox, waiting = found["outbox"], _waiting(found)
    if not waiting:
        if staying := _staying(found):
            if len(staying) == 1:
                return f"{staying[0]['path']} {staying[0]['what']}"
            return f"{len(staying)} of these stay on this machine"
        if lost := found.get("lost", 0):
            return saved(lost)
        return f"everything{' there' if part else ''} is on the service"
    # If no daemon is running, `files` may be missing; a daemon's last status may count too many.
    files = min(waiting, outbox.get("files", waiting))
    left = {"files": waiting, "changes": waiting - files, "bytes": outbox["bytes"]}
    said = f"{unsent(left)} {verb(waiting)} only on this machine"
    why = outbox.get("causes", {})
    for cause, phrase in causes.PHRASES.items():
        if why.get(causes.label(cause)) == waiting:
            return f"{said}, {phrase}"
    if outbox["failed"]:
        return f"{said}, {causes.summary(why, outbox['failed'], 'of them ')}"
    return f"{said}, uploads are paused" if found.get("paused") else said


def _pause(found: Status) -> str:
    times = [
        f" {word} {text_output.when(found[name])}"
        for word, name in (("since", "paused_since"), ("until", "paused_until"))
        if found.get(name)
    ]
    return f"uploads are paused{''.join(times)}"


def _staying(found: Status) -> list[dict[str, Any]]:
    return [one for one in found.get("named", []) if one["stays"]]


def _waiting(found: Status) -> int:
    outbox = found["outbox"]
    return int(outbox["pending"] + outbox["uploading"] + outbox["failed"])


def _command(command: str, found: Status) -> str:
    return f"zonedrive {command}{AccountPaths(found['account']).option}"


def _uploads(found: Status, rows: int) -> list["RenderableType"]:
    """Return lines and tables for up to `rows` uploads, failed uploads first.

    If uploads are omitted, the result begins with a line that says so.
    """
    waiting = _waiting(found)
    every = found["uploads"][:rows]
    failed = [one for one in every if one["state"] == "failed"]
    others = [one for one in every if one["state"] != "failed"]
    shown: list[RenderableType] = []
    if len(every) < waiting:  # first, because the terminal cuts off the end of a live view
        all_of_them = _command("status --json", found)
        shown += [words(""), words(f"{len(every)} of {waiting} are shown; all: {all_of_them}")]
    if failed:
        shown += [words(""), words("failed, and retried automatically:", "bold")]
        shown += [words(f"  {one['path']}: {one['error']}", "red") for one in failed]
    if others:
        reasons = {one["error"] for one in others if one["error"]}
        # The lines above have the reason why nothing is sent.
        has_errors = reasons and found["state"] not in NOT_SENDING
        table = [_row(one) | ({"why": one["error"] or ""} if has_errors else {}) for one in others]
        shown += [words(""), grid(table, right=["size", "sent"])]
    return shown


def _row(one: dict[str, Any]) -> dict[str, str]:
    change = CHANGES.get(one.get("change", ""))
    sent = f"{amount(one['sent'])} ({100 * one['sent'] // one['size']} %)" if one["sent"] else ""
    return {
        "path": one["path"],
        "state": f"{one['state']}, {change}" if change else one["state"],
        "size": "" if change else amount(one["size"]),
        "sent": sent,
    }
