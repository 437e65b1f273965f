"""Commands for zones, file versions, the trash, conflicts and pinned files.

A command fails with NotSupported if the account's deployment profile does not define an operation
that the command needs.
"""

import os
from typing import Any

import click

from zonedrive import process_setup
from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, account_option, json_option, some_account_option
from zonedrive.cli.sync import print_failures
from zonedrive.daemon.protocol import Message
from zonedrive.errors import MountEnded, NotFound, ZonedriveError
from zonedrive.formatting import count, verb
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths

WIDE = 110  # minimum terminal width, in columns, at which the table includes the zones' ids


@click.command()
@account_option
@json_option
def zones(account: str, as_json: bool) -> None:
    """List all zones, including zones that cannot be mounted.

    This command also works without a mount.

    \b
    --json: an array of {"id", "name", "path", "accessible", "size", "users"}
      path         name of the folder in the mount, or null
      accessible   whether the zone can be used through the API
      size, users  bytes and number of users, null if unknown
    """
    found = zones_of(AccountPaths(account))
    is_wide = text_output.width() >= WIDE
    rows = (
        {
            "name": zone["name"],
            "folder": zone["path"] if zone["accessible"] else "web application only",
            "size": text_output.amount(zone["size"]),
            "users": "" if zone["users"] is None else str(zone["users"]),
        }
        | ({"id": zone["id"]} if is_wide else {})
        for zone in found
    )
    text_output.show(
        found, rows, in_json=as_json, empty="there are no zones", right=["size", "users"]
    )


def zones_of(paths: AccountPaths) -> list[dict[str, Any]]:
    """Return the account's zones as JSON objects with the members that `zones --json` documents.

    The zones come from the daemon, or from the service if no daemon is running.
    """
    try:
        return list(control_client.ask(paths, {"command": "zones"})["zones"])
    except (control_client.NoDaemon, MountEnded):
        from zonedrive.daemon import service_commands

        return service_commands.zones(paths)


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

    To restore an earlier version as the newest one, write it to PATH: --get VERSION -o PATH. A file
    with changes that are not uploaded yet is not overwritten. This command requires a logon with a
    profile that defines the operation.
    """
    if output is not None and wanted is None:
        raise click.UsageError("-o needs --get VERSION")
    file_name = None if output == "-" else output
    if wanted is not None and file_name is None and 1 in process_setup.closed_streams:
        raise click.UsageError("Standard output is closed, so the version cannot be written.")
    paths, below = control_client.resolve((path,), account)
    answer = control_client.ask(paths, {"command": "versions", "path": below[0]})
    found = answer["versions"]
    reason = f": {answer['unknown']}" if answer.get("unknown") else ""
    unknown = f"{answer.get('path')} has no versions on the service{reason}"
    if wanted is not None:
        if reason:
            raise NotFound(unknown)
        chosen = _version(found, wanted)
        from zonedrive.daemon import service_commands

        source = (paths, answer["zone"], answer["file"], chosen["version"], chosen["size"])
        if file_name is None:
            service_commands.version(*source, _write)
        else:
            require_replaceable(file_name)
            with text_output.replaced(file_name) as file:
                service_commands.version(*source, file.write)
                require_replaceable(file_name)  # the download may have taken long
        return
    if answer.get("aside") and not as_json:
        text_output.complain(f"{answer['path']}: {answer['aside']}")
    rows = (
        {
            "version": one["version"],
            "modified": text_output.when(one["modified"]),
            "by": one["modified_by"],
            "size": text_output.amount(one["size"]),
            "id": one["id"],
        }
        for one in found
    )
    text_output.show(found, rows, in_json=as_json, empty=unknown, right=["version", "size"])


def _write(piece: bytes | bytearray | memoryview) -> None:
    """Write a part of a file version to standard output.

    If the write fails, raise click's Exit, which ends the command. `cli.main` reports the failure.
    """
    try:
        click.echo(bytes(piece), nl=False)
    except OSError as wrong:
        process_setup.failures.append(wrong)
        raise click.exceptions.Exit(0) from wrong


def require_replaceable(path: str, *, is_copied: bool = False) -> None:
    """Raise ZonedriveError if replacing the file at `path` would lose content.

    The function rejects a file in a mount if a program has the file open for writing. Unless
    `is_copied` is true, the function also rejects a file in `lost+found`, and a file whose content
    has not been uploaded yet. `is_copied` means that the caller has copied the content, or may
    discard the content. Any other path is accepted.
    """
    target = mountpoint.absolute(path)
    _, paths, there = control_client.located(target)
    if paths is None or not target.is_file():
        return
    try:
        place = control_client.ask(paths, {"command": "place", "path": os.fspath(there)})
    except control_client.EarlierDaemon:
        return
    # A daemon of an earlier version does not send `only_here` and `written`.
    if place.get("only_here") and not is_copied:
        raise ZonedriveError(
            f"{path} has content that is only on this computer and would be lost",
            remedy="see 'zonedrive status', or write to another file",
        )
    if place.get("written"):
        raise ZonedriveError(
            f"{path} is open for writing in a program", remedy="close it there, and try again"
        )


def _version(found: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """Return the version with the number `wanted`, or else with this id. Raises NotFound.

    The id of one version may be the number of another one.
    """
    for name in ("version", "id"):
        for one in found:
            if one[name] == wanted:
                return one
    there = ", ".join(one["version"] for one in found) or "none"
    raise NotFound(f"the file has no version {wanted!r}; there is: {there}")


@click.command()
@account_option
@click.option("--zone", metavar="NAME", help="Only entries of this zone.  [default: all zones]")
@click.option(
    "--purge",
    "to_purge",
    multiple=True,
    metavar="NAME|ID",
    help="Remove this entry permanently; repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation before --purge.")
@json_option
def trash(
    account: str, zone: str | None, to_purge: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """List deleted files and folders that can be restored, or remove them permanently.

    This command requires a logon with a profile that defines the operations. It also works without
    a mount.
    """
    if to_purge:
        _purge(account, zone, to_purge, yes)
        return
    answer = _asked(account, {"command": "trash", "zone": zone})
    found, unseen = answer["entries"], answer.get("unseen", [])
    for name in unseen:
        text_output.complain(f"you cannot see the trash of zone {name}; ask one of its managers")
    told = any(one.get("deleted") for one in found)
    time = "deleted" if told else "modified"
    rows = (
        {
            "zone": one["zone"],
            # the root of a zone is shown as a slash
            "was in": "?" if one.get("parent") is None else one["parent"] or "/",
            "name": one["name"] + ("/" if one["folder"] else ""),
            time: text_output.when(one[time]),
            "last changed by" if told else "by": one["modified_by"],
            "size": "" if one["folder"] else text_output.amount(one["size"]),
            "id": one["id"],
        }
        for one in found
    )
    empty = "the trash of the other zones is empty" if unseen else "the trash is empty"
    text_output.show(found, rows, in_json=as_json, empty=empty, right=["size"])


def _purge(account: str, zone: str | None, to_purge: tuple[str, ...], yes: bool) -> None:
    request = {"command": "purge", "zone": zone, "entries": list(to_purge)}
    if not yes:
        text_output.require_terminal("--yes")
        what = count(len(to_purge), "entry", "entries")
        # A daemon of an earlier version does not send `inside`.
        if inside := _asked(account, {**request, "command": "trash"}).get("inside"):
            others = count(inside, "other deleted entry", "other deleted entries")
            what += f", and up to {others} inside,"
        if not text_output.is_confirmed(f"Permanently remove {what} with all versions?"):
            text_output.complain("nothing was removed")
            click.get_current_context().exit(1)
    answer = _asked(account, request)
    for name in answer["purged"]:
        text_output.line(f"removed {name}")
    if inside := answer.get("inside"):
        what = count(inside, "other deleted entry", "other deleted entries")
        text_output.line(f"removed {what} inside")


@click.command()
@click.argument("entries", metavar="NAME|ID...", nargs=-1, required=True)
@account_option
@click.option("--zone", metavar="NAME", help="Only entries of this zone.  [default: all zones]")
def restore(entries: tuple[str, ...], account: str, zone: str | None) -> None:
    """Restore deleted entries, by the name, path or id that 'zonedrive trash' shows.

    If several deleted entries have the same name, give the path or the id. This command requires a
    logon with a profile that defines the operation. It also works without a mount.
    """
    request = {"command": "restore", "zone": zone, "entries": list(entries)}
    for one in _asked(account, request)["restored"]:
        # A daemon of an earlier version, still running after an upgrade, sends only paths.
        path, left = (one, 0) if isinstance(one, str) else (one["path"], one["left"])
        text_output.line(f"restored {path}")
        if left:
            what = count(left, "deleted entry", "deleted entries")
            there = f"in it {verb(left)} still in the trash"
            see = f"see 'zonedrive trash{AccountPaths(account).option}'"
            text_output.complain(f"{path}: {what} {there}; {see}")


def _asked(account: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a trash request to the daemon, show the progress, and return the response.

    If no daemon is running, the request goes to the service directly. Raises MountEnded if the
    mount ends during a request that changes the trash, because the request may have had an effect.
    """
    paths, command = AccountPaths(account), request["command"]
    longest, last = control_client.ASK_SECONDS, dict[str, Any]()
    try:
        with text_output.Progress() as progress:
            for last in control_client.stream(paths, request, timeout=longest):
                if total := last.get("total"):
                    progress.show(f"{last['finished']} of {count(total, 'entry', 'entries')}")
        return last
    except (control_client.NoDaemon, MountEnded) as ended:
        if isinstance(ended, MountEnded) and command != "trash":
            raise
        from zonedrive.daemon import service_commands
        from zonedrive.daemon.trash import Trash

        zone, entries = request["zone"], request.get("entries", [])
        return service_commands.ask(
            paths, lambda service: Trash(service, paths.option, zone).do(command, entries)
        )


@click.command()
@account_option
@json_option
def conflicts(account: str, as_json: bool) -> None:
    """List conflict copies: files that a coworker changed or deleted while you edited them.

    This command also works without a mount.
    """
    paths = AccountPaths(account)
    found = control_client.asked_or_stored(
        paths,
        lambda: control_client.ask(paths, {"command": "conflicts"}),
        lambda: _stored_conflicts(paths),
    )["conflicts"]
    rows = (
        {"yours": one["path"], "what happened": _story(one), "at": text_output.when(one["at"])}
        for one in found
    )
    text_output.show(found, rows, in_json=as_json, empty="there are no conflicts")


def _stored_conflicts(paths: AccountPaths) -> Message:
    from zonedrive.daemon import local_data

    return {"conflicts": local_data.conflicts(paths)}


def _story(conflict: dict[str, str]) -> str:
    by = f" of {conflict['by']}" if conflict["by"] else ""
    if conflict["path"] == conflict["original"]:
        if by:
            return f"replaced the version{by}, because the service took both names for one"
        return "was deleted on the service while you edited it; uploaded as a new file"
    if not conflict["original"]:
        return f"saved next to a version{by}, which was removed later"
    return f"saved next to the version{by} in {conflict['original']}"


# ---- files kept offline ----


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@json_option
def pin(path: tuple[str, ...], account: str | None, as_json: bool) -> None:
    """Keep files and folders available offline; without PATH, list the pinned ones.

    New files in a pinned folder, and new versions, are downloaded automatically. Waits until
    everything is downloaded; after Ctrl-C, the download continues. Exits with 1 if something could
    not be downloaded or does not fit, 3 if the service requires a logon, 4 if it cannot be reached;
    the files stay pinned.

    \b
    --json, without PATH: an array of {"path", "files", "here", "bytes", "here_bytes", "unlisted"}
      unlisted   number of folders whose files are not known, because they were never listed
    """
    if path and as_json:
        raise click.UsageError("--json is for the list, without PATH.")
    paths, below = control_client.resolve(path, account)
    if not below:
        _list(control_client.ask(paths, {"command": "pins"})["pins"], as_json)
        return
    wanted, last = dict(zip(below, path, strict=True)), dict[str, Any]()
    with text_output.Progress() as progress:
        for last in control_client.stream(paths, {"command": "pin", "paths": list(wanted)}):
            if not last.get("done"):
                progress.show(f"fetching: {_here(last)}")
    for given, one in zip(wanted.values(), last["pinned"], strict=True):
        text_output.line(f"{given}: {_here(one)}")
    print_failures(last["failed"], "could not be fetched")
    if last["reason"]:
        then = last.get("remedy") or "the rest is fetched when the service is back"
        text_output.complain(f"{last['reason']}; {then}")
    click.get_current_context().exit(last["exit"])


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1, required=True)
@some_account_option
def unpin(path: tuple[str, ...], account: str | None) -> None:
    """Stop keeping files and folders offline; they stay in the cache while there is room."""
    paths, below = control_client.resolve(path, account)
    control_client.ask(paths, {"command": "unpin", "paths": below})


def _here(one: Message) -> str:
    """Return a string such as `3 of 12 files available offline (1.2 MiB of 3.4 MiB)`.

    If all files are available, the string contains only the totals.
    """
    files, amount = count(one["files"], "file"), text_output.amount(one["bytes"])
    if one["here"] == one["files"]:
        return f"{files} available offline ({amount})"
    part = text_output.amount(one["here_bytes"])
    return f"{one['here']} of {files} available offline ({part} of {amount})"


def _list(pins: list[Message], as_json: bool) -> None:
    rows = (
        {
            "pinned": one["path"] or ".",
            "files": str(one["files"]),
            "here": str(one["here"]),
            "size": text_output.amount(one["bytes"]),
        }
        for one in pins
    )
    right = ["files", "here", "size"]
    text_output.show(pins, rows, in_json=as_json, empty="nothing is pinned", right=right)
    for one in pins if not as_json else ():
        if unlisted := one.get("unlisted"):
            folders = count(unlisted, "folder")
            missing = f"the files of {folders} are not known and not here; see 'zonedrive status'"
            text_output.complain(f"{one['path'] or '.'}: {missing}")
