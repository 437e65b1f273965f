"""Commands `sync` and `send`: wait for uploads, with progress, and print the result.

INVARIANT: if the exit code is not 0, a line with the reason is printed.
"""

import time
from collections.abc import Callable
from pathlib import Path

import click

from zonedrive.cli import control_client
from zonedrive.cli.options import LocalPath, Seconds, some_account_option
from zonedrive.cli.text_output import Progress, complain, line
from zonedrive.daemon.protocol import Message
from zonedrive.errors import MountEnded, ZonedriveError
from zonedrive.formatting import count, saved, unsent
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths

FILE_BYTES = 64 << 10  # number of bytes that a progress bar adds for each file
LINES = 5  # maximum number of failures printed individually
PROGRAMS = 2  # maximum number of programs named for one open file
# Seconds after which an open file is reported, because its upload waits for the close.
HELD_SECONDS = 3.0
# Remedy for files in lost+found.
RESCUE = "copy the files that you need from there, then delete them"


_timeout_option = click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="How long to wait.  [default: until the service fails repeatedly]",
)


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@_timeout_option
def sync(path: tuple[str, ...], account: str | None, timeout: float | None) -> None:
    """Wait until everything under PATH is on the service; without PATH, the whole mount.

    Exits with 0 if everything is on the service, 1 if something failed or is left, 3 if the service
    requires a logon, 4 if the service could not be reached in time. While uploads are paused, the
    command does not wait, and exits with 1 if something is left.
    """
    paths, below = control_client.resolve(path, account)
    _wait(paths, {"command": "sync", "paths": below, "timeout": timeout})


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1, required=True)
@some_account_option
@_timeout_option
def send(path: tuple[str, ...], account: str | None, timeout: float | None) -> None:
    """Upload PATH now, before all other files, also while uploads are paused.

    If PATH is a folder, all files below it are uploaded. New folders that contain a file are made
    on the service first. Waits for the uploads, with the exit codes of 'zonedrive sync'.
    """
    paths, below = control_client.resolve(path, account)
    _wait(paths, {"command": "send", "paths": below, "timeout": timeout})


def _wait(paths: AccountPaths, request: Message) -> None:
    """Send `request`, show a progress bar until the result arrives, print the result, and exit."""
    held, last, largest = Held(), Message(), 0
    try:
        with Progress() as progress:
            for last in control_client.stream(paths, request):
                if last.get("done"):
                    continue
                for text in held.at(last):
                    progress.show("")
                    complain(text)
                left = last["left"]
                # Small files take time as well, and some changes have no bytes at all.
                size = left["bytes"] + left["files"] * FILE_BYTES
                largest = max(largest, size)
                state = last.get("state", "online")
                text = f"{'' if state == 'online' else f'{state}: '}{unsent(left)} left"
                progress.bar(1 - size / largest if largest else 0.0, text)
    except (control_client.NoDaemon, MountEnded) as ended:
        _report_unsent(paths, ended)
        return
    report(last)
    click.get_current_context().exit(last["exit"])


def _report_unsent(paths: AccountPaths, ended: ZonedriveError) -> None:
    """Raise ZonedriveError if an unmounted account has pending changes or files in lost+found.

    If there are no such changes or files, raise `ended`, or return if `ended` is a MountEnded. A
    MountEnded means that the mount ended during the command. If a policy forbids the mount, the
    error of the policy is raised instead.
    """
    from zonedrive.daemon.local_data import disk_problem, forbidden, only_here

    during = isinstance(ended, MountEnded)
    message = "the mount has ended" if during else ended.message
    here = only_here(paths)
    if (here.kept or not during) and (policy := forbidden(paths)):
        raise policy from ended
    if here.backlog.files:
        remedy = disk_problem(paths) or ended.remedy
        if during:
            remedy = "they are kept here, and uploads continue at the next mount"
        raise ZonedriveError(
            f"{message}: {here.backlog} not on the service yet", remedy=remedy
        ) from ended
    if here.lost:
        mount = "mount" if during else ended.remedy
        raise ZonedriveError(
            f"{message}: {saved(here.lost)}", remedy=f"{mount}, {RESCUE}"
        ) from ended
    if not during:
        raise ended


class Held:
    """Tracker of files whose upload or removal waits until a program closes them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def at(self, message: Message) -> list[str]:
        """Return the lines to print after `message`, a progress message of the daemon.

        Each file is named once, after it has been open for HELD_SECONDS, and at most LINES files
        are named per message.
        """
        now = self._clock()
        self._since = {path: self._since.get(path, now) for path in message.get("held", [])}
        long = {path for path, since in self._since.items() if now - since >= HELD_SECONDS}
        new = [path for path in self._since if path in long - self._told]
        self._told |= long
        lines = [_waits_for(path) for path in new[:LINES]]
        if len(new) > LINES:
            lines.append(f"and for {count(len(new) - LINES, 'more file')} to be closed")
        return lines


def _waits_for(path: str) -> str:
    programs = mountpoint.holders(Path(path))
    named = programs[:PROGRAMS] or ["a program"]
    if len(programs) > PROGRAMS:  # child processes have it open, too
        named.append(count(len(programs) - PROGRAMS, "more program"))
    return f"waiting for {' and '.join(named)} to close {path}"


def report(last: Message) -> None:
    """Print the result in `last`, the daemon's last message."""
    for copy in last["conflicts"]:
        line(f"saved next to another version: {copy}")
    for new in last.get("anew", []):
        line(f"was deleted on the service, and is uploaded as a new file: {new}")
    for new in last.get("replaced", []):
        line(f"replaced another version, which is in the history: {new}")
    print_failures(last["failed"], "failed; see 'zonedrive status'")
    report_rejected(last)
    print_failures(last.get("stays", []), "of the requested ones stay on this machine")
    if last.get("lost"):
        complain(f"{saved(last['lost'])}; {RESCUE}")
    if last["exit"] and last["left"]["files"] > (0 if last.get("paused") else len(last["failed"])):
        reason = f": {last['reason']}" if last["reason"] else ""
        remedy = f"; {last['remedy']}" if last.get("remedy") else ""
        complain(f"{unsent(last['left'])} not on the service yet{reason}{remedy}")


def report_rejected(last: Message) -> None:
    """Print the changes that the service rejected and the daemon rolled back.

    The daemon reports each of these changes only once.
    """
    print_failures(last.get("taken_back", []), "could not be removed or renamed")


def print_failures(failed: list[Message], more: str) -> None:
    """Print the first LINES failures, one per line, and a line with the number of further failures.

    The last line consists of words such as "3 more files" and of `more`.
    """
    for one in failed[:LINES]:
        complain(f"{one['path']}: {one['error']}")
    if len(failed) > LINES:
        complain(f"{count(len(failed) - LINES, 'more file')} {more}")
