"""`zonedrive versions`, `trash`, `restore` and `conflicts`: the history of files.

Must not know how the daemon finds it; where the profile has no endpoint, the daemon says so.
"""

import click

from zonedrive.cli import control, show
from zonedrive.cli.options import account_option, json_option, some_account_option
from zonedrive.paths import AccountPaths

ASK_SECONDS = 90.0


@click.command()
@click.argument("path")
@some_account_option
@json_option
def versions(path: str, account: str | None, as_json: bool) -> None:
    """List the versions of the file PATH, the newest first."""
    paths, below = control.resolve((path,), account)
    request = {"command": "versions", "path": below[0]}
    found = control.ask(paths, request, timeout=ASK_SECONDS)["versions"]
    if as_json:
        show.as_json(found)
        return
    show.table(
        ["version", "modified", "by", "size", "id"],
        [
            [
                one["version"],
                show.when(one["modified"]),
                one["modified_by"],
                show.amount(one["size"]),
                one["id"],
            ]
            for one in found
        ],
        right=["version", "size"],
    )


@click.command()
@account_option
@click.option("--zone", metavar="NAME", help="Only what was in this zone.")
@json_option
def trash(account: str, zone: str | None, as_json: bool) -> None:
    """List what was deleted and can be restored."""
    paths = AccountPaths(account)
    request = {"command": "trash", "zone": zone}
    found = control.ask(paths, request, timeout=ASK_SECONDS)["entries"]
    if as_json:
        show.as_json(found)
        return
    if not found:
        show.line("nothing is in the trash")
        return
    show.table(
        ["zone", "name", "modified", "by", "size", "id"],
        [
            [
                one["zone"],
                one["name"] + ("/" if one["folder"] else ""),
                show.when(one["modified"]),
                one["modified_by"],
                "" if one["folder"] else show.amount(one["size"]),
                one["id"],
            ]
            for one in found
        ],
        right=["size"],
    )


@click.command()
@click.argument("entries", metavar="NAME|ID...", nargs=-1, required=True)
@account_option
@click.option("--zone", metavar="NAME", help="Only look in this zone.")
def restore(entries: tuple[str, ...], account: str, zone: str | None) -> None:
    """Bring back deleted entries, by the name or id that 'zonedrive trash' shows.

    Where several have the same name, give the id.
    """
    paths = AccountPaths(account)
    request = {"command": "restore", "zone": zone, "entries": list(entries)}
    for name in control.ask(paths, request, timeout=ASK_SECONDS)["restored"]:
        show.line(f"restored {name}")


@click.command()
@account_option
@json_option
def conflicts(account: str, as_json: bool) -> None:
    """List what a conflict left: copies beside somebody else's version, files deleted there."""
    paths = AccountPaths(account)
    found = control.ask(paths, {"command": "conflicts"}, timeout=ASK_SECONDS)["conflicts"]
    if as_json:
        show.as_json(found)
        return
    if not found:
        show.line("there are no conflicts")
        return
    show.table(
        ["yours", "what happened", "at"],
        [[one["path"], _story(one), show.when(one["at"])] for one in found],
    )


def _story(conflict: dict[str, str]) -> str:
    """Why there is an entry of one's own."""
    if conflict["path"] == conflict["original"]:
        return "was deleted on the service while you edited it; sent as a new file"
    by = f" of {conflict['by']}" if conflict["by"] else ""
    return f"kept beside the version{by} in {conflict['original']}"
