"""Commands `versions`, `trash`, `restore` and `conflicts`: the history of files.

Knows nothing about how the daemon finds the data; if the profile has no endpoint, the daemon
reports it.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, account_option, json_option, some_account_option
from zonedrive.errors import NotFound, ZonedriveError
from zonedrive.formatting import verb
from zonedrive.paths import AccountPaths

ASK_SECONDS = 90.0


@click.command()
@click.argument("path", type=LocalPath())
@some_account_option
@json_option
@click.option("--get", "wanted", metavar="VERSION", help="Write the content of this version.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=LocalPath(),
    help="File that --get writes.  [default: standard output]",
)
def versions(
    path: str, account: str | None, as_json: bool, wanted: str | None, output: str | None
) -> None:
    """List the versions of the file PATH, newest first.

    To restore an earlier version as the newest one: versions PATH --get VERSION -o PATH
    """
    if output is not None and wanted is None:
        raise click.UsageError("-o needs --get VERSION")
    paths, below = control_client.resolve((path,), account)
    request = {"command": "versions", "path": below[0]}
    answer = control_client.ask(paths, request, timeout=ASK_SECONDS)
    found = answer["versions"]
    unknown = f"{answer.get('path')} has no versions on the service: {answer.get('unknown')}"
    if wanted is not None:
        if answer.get("unknown"):
            raise NotFound(unknown)
        chosen = _version(found, wanted)
        from zonedrive.daemon import service_commands

        with _output(output) as file:
            service_commands.version(paths, answer["zone"], answer["file"], chosen, file.write)
        return
    if as_json:
        text_output.as_json(found)
        return
    if answer.get("unknown"):
        text_output.line(unknown)
        return
    if answer.get("aside"):
        text_output.remark(f"{answer['path']}: {answer['aside']}")
    text_output.table(
        ["version", "modified", "by", "size", "id"],
        [
            [
                one["version"],
                text_output.when(one["modified"]),
                one["modified_by"],
                text_output.amount(one["size"]),
                one["id"],
            ]
            for one in found
        ],
        right=["version", "size"],
    )


def _version(found: list[dict[str, str]], wanted: str) -> str:
    """Return the version with that number or id."""
    for one in found:
        if wanted in (one["version"], one["id"]):
            return one["version"]
    there = ", ".join(one["version"] for one in found) or "none"
    raise NotFound(f"the file has no version {wanted!r}", remedy=f"there is: {there}")


@contextmanager
def _output(name: str | None) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that is replaced atomically at the end."""
    if name in (None, "-"):
        yield sys.stdout.buffer
        return
    target = Path(str(name)).resolve()
    try:
        if target.exists() and not target.is_file():  # a device or pipe; a folder is an error
            with target.open("wb") as file:
                yield file
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        with tempfile.NamedTemporaryFile(
            prefix=".zonedrive-", dir=target.parent, delete=False
        ) as file:
            try:
                os.fchmod(file.fileno(), mode)
                yield cast(BinaryIO, file)
                file.flush()
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as wrong:
        if wrong.errno == errno.EISDIR:
            raise ZonedriveError(
                f"{name} is a folder", remedy="give a file in it: -o FILE"
            ) from wrong
        raise ZonedriveError(
            f"{name} cannot be written: {wrong.strerror}",
            remedy="give a file in an existing folder that you may write in, on a disk with room",
        ) from wrong


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@click.command()
@account_option
@click.option("--zone", metavar="NAME", help="Only entries of this zone.")
@click.option(
    "--purge",
    "doomed",
    multiple=True,
    metavar="NAME|ID",
    help="Remove this entry permanently; repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask before --purge.")
@json_option
def trash(
    account: str, zone: str | None, doomed: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """List deleted files and folders that can be restored, or remove them permanently.

    Works without a mount.
    """
    if doomed:
        _purge(account, zone, doomed, yes)
        return
    answer = _asked(account, {"command": "trash", "zone": zone})
    found, unseen = answer["entries"], answer.get("unseen", [])
    for name in unseen:
        text_output.complain(f"you cannot see the trash of zone {name}; ask one of its managers")
    if as_json:
        text_output.as_json(found)
        return
    if not found:
        text_output.line("the other trash is empty" if unseen else "the trash is empty")
        return
    told = any(one.get("deleted") for one in found)
    columns = ["deleted", "last changed by"] if told else ["modified", "by"]
    text_output.table(
        ["zone", "was in", "name", *columns, "size", "id"],
        [
            [
                one["zone"],
                _folder(one.get("parent")),
                one["name"] + ("/" if one["folder"] else ""),
                _when(one["deleted"] if told else one["modified"]),
                one["modified_by"],
                "" if one["folder"] else text_output.amount(one["size"]),
                one["id"],
            ]
            for one in found
        ],
        right=["size"],
    )


def _when(text: str | None) -> str:
    return text_output.when(text) if text else ""


def _folder(parent: str | None) -> str:
    """Return the original folder of a deleted entry; the root of the zone is a slash."""
    return "?" if parent is None else parent or "/"


def _purge(account: str, zone: str | None, doomed: tuple[str, ...], yes: bool) -> None:
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("There is no terminal for questions: use --yes.")
        what = text_output.count(len(doomed), "entry", "entries")
        with text_output.asking():
            sure = click.confirm(f"Permanently remove {what} with all versions?", err=True)
        if not sure:
            text_output.complain("nothing was removed")
            click.get_current_context().exit(1)
    request = {"command": "purge", "zone": zone, "entries": list(doomed)}
    for name in _asked(account, request)["purged"]:
        text_output.line(f"removed {name}")


@click.command()
@click.argument("entries", metavar="NAME|ID...", nargs=-1, required=True)
@account_option
@click.option("--zone", metavar="NAME", help="Only entries of this zone.")
def restore(entries: tuple[str, ...], account: str, zone: str | None) -> None:
    """Restore deleted entries, by the name, path or id that 'zonedrive trash' shows.

    If several have the same name, give the path or the id.  Works without a mount.
    """
    request = {"command": "restore", "zone": zone, "entries": list(entries)}
    for one in _asked(account, request)["restored"]:
        if isinstance(one, str):  # of a daemon that an upgrade left running
            text_output.line(f"restored {one}")
            continue
        text_output.line(f"restored {one['path']}")
        if left := one["left"]:
            what = f"{text_output.count(left, 'thing')} of it {verb(left)} still in the trash"
            text_output.remark(f"{one['path']}: {what}, deleted separately; see 'zonedrive trash'")


def _asked(account: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the daemon, or of the service if no daemon is running."""
    paths = AccountPaths(account)
    try:
        return control_client.ask(paths, request, timeout=ASK_SECONDS)
    except control_client.NoDaemon:
        from zonedrive.daemon import service_commands

        return service_commands.trash(
            paths, request["command"], request["zone"], request.get("entries", [])
        )


@click.command()
@account_option
@json_option
def conflicts(account: str, as_json: bool) -> None:
    """List conflict copies: files that a coworker changed or deleted while you edited them."""
    paths = AccountPaths(account)
    found = control_client.ask(paths, {"command": "conflicts"}, timeout=ASK_SECONDS)["conflicts"]
    if as_json:
        text_output.as_json(found)
        return
    if not found:
        text_output.line("there are no conflicts")
        return
    text_output.table(
        ["yours", "what happened", "at"],
        [[one["path"], _story(one), text_output.when(one["at"])] for one in found],
    )


def _story(conflict: dict[str, str]) -> str:
    """Return why the conflict copy exists."""
    if conflict["path"] == conflict["original"]:
        return "was deleted on the service while you edited it; uploaded as a new file"
    by = f" of {conflict['by']}" if conflict["by"] else ""
    return f"saved next to the version{by} in {conflict['original']}"
