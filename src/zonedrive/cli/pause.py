"""Commands `pause` and `resume`: stop the uploads of an account for a while.

The commands work with and without a mount, because the pause is stored on the disk.
"""

import time
from typing import Any

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import Duration, account_option
from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.formatting import count, local_time, unsent, verb
from zonedrive.paths import AccountPaths


@click.command()
@account_option
@click.option(
    "--for",
    "seconds",
    type=Duration(),
    metavar="TIME",
    help="Length of the pause, such as 90s, 30m, 2h or 1d.  [default: until 'zonedrive resume']",
)
def pause(account: str, seconds: float | None) -> None:
    """Stop sending changes to the service, until 'zonedrive resume' or for some time.

    Files can be read and saved as before; changes wait on this machine, also after a restart. A
    small upload in progress is completed, a large one is stopped and starts again later.
    'zonedrive send PATH' uploads a file during the pause. This command also works without a mount.
    """
    paths = AccountPaths(account)
    answer = _told(paths, {"command": "pause", "seconds": seconds})
    end = "" if seconds is None else f" until {local_time(time.time() + seconds)}"
    if left := answer["left"]:
        waits = "waits" if left["files"] == 1 else "wait"
        waiting = f"{unsent(left)} {waits}" if left["files"] else "nothing is waiting"
        text_output.say(f"uploads are paused{end}; {waiting}")
    else:
        text_output.say(f"uploads are paused{end}")
    if number := answer["uploading"]:
        text_output.complain(f"{count(number, 'upload')} {verb(number)} still ending")


@click.command()
@account_option
def resume(account: str) -> None:
    """Send changes to the service again, after 'zonedrive pause'.

    This command also works without a mount.
    """
    paths = AccountPaths(account)
    answer = _told(paths, {"command": "resume"})
    left = answer["left"]
    if not answer["was_paused"]:
        text_output.say("uploads were not paused")
    elif not answer.get("mounted", True):
        text_output.say("uploads continue at the next mount")
    else:
        text_output.say(f"uploads continue{f'; {unsent(left)} to send' if left['files'] else ''}")


def _told(paths: AccountPaths, request: dict[str, Any]) -> dict[str, Any]:
    """Send the request to the daemon and return the response.

    If no daemon is running, change the stored pause, and return a response of the same form.
    """
    return control_client.asked_or_stored(
        paths, lambda: control_client.ask(paths, request), lambda: _stored(paths, request)
    )


def _stored(paths: AccountPaths, request: dict[str, Any]) -> dict[str, Any]:
    """Begin or end the pause of an unmounted account; return a response in the daemon's format.

    The response's `left` is None if the waiting changes cannot be counted. Raises ZonedriveError if
    the pause cannot be stored.
    """
    from zonedrive.daemon import local_data

    answer: dict[str, Any] = {"uploading": 0, "mounted": False}
    try:
        with local_data.pause_switch(paths) as switch:
            if request["command"] == "pause":
                switch.begin(request["seconds"])
            else:
                answer["was_paused"] = switch.end()
    except OSError as wrong:
        raise ZonedriveError(
            f"{paths.pause} cannot be changed: {wrong.strerror}",
            remedy=local_data.disk_problem(paths) or "make its folder writable for you",
        ) from wrong
    left = None
    try:
        found = local_data.backlog(paths)
        left = {"files": found.files, "changes": found.changes, "bytes": found.bytes}
    except StoreError as wrong:  # the pause is in effect anyway
        text_output.complain(f"the waiting changes cannot be counted: {wrong.message}")
    return {**answer, "left": left}
