"""Command `ui`: open the web interface ("the window" in messages) in the user's browser."""

import importlib
from pathlib import Path
from urllib.parse import quote, urlencode

import click

from zonedrive import process_setup
from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, some_account_option
from zonedrive.fuse import mountpoint
from zonedrive.paths import DEFAULT_ACCOUNT

OF_A_PATH = ("versions", "share", "files", "log", "conflicts")
OF_PATHS_ALONE = ("versions", "share")
OF_AN_ACCOUNT = (
    "files", "log", "conflicts", "trash", "offline", "zones", "settings", "help", "logoff",
)  # fmt: skip


@click.command()
@click.argument("path", type=LocalPath(), required=False)
@some_account_option
@click.option(
    "--page",
    type=click.Choice(["overview", "logon", *OF_PATHS_ALONE, *OF_AN_ACCOUNT]),
    default="overview",
    metavar="NAME",
    help="Page to open: overview, logon, files, versions, log, share, conflicts, trash, offline,"
    " zones, settings, help or logoff.  PATH can be given with files, versions, log, share and"
    " conflicts.  [default: overview]",
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
def ui(path: str | None, account: str | None, page: str, no_browser: bool) -> None:
    """Open the window, a page in your browser that can do most of what the commands do.

    This command serves the page on this machine, for you alone, until the page is closed. If the
    window is open already, the command opens another page of the same window.
    """
    if path is not None and page not in OF_A_PATH:
        raise click.UsageError("PATH goes with --page files, versions, log, share or conflicts.")
    if path is None and page in OF_PATHS_ALONE:
        raise click.UsageError(f"--page {page} needs a PATH.")
    if no_browser and 1 in process_setup.closed_streams:
        raise click.UsageError("Standard output is closed, so the address cannot be printed.")
    # Not a static import: the window is in a layer above the commands.
    serve = importlib.import_module("zonedrive.ui.serve")
    if said := serve.run(_address(page, path, account), browser=not no_browser):
        text_output.say(said)


def _address(page: str, path: str | None, account: str | None) -> str:
    """Return the URL of the page `page` of the web interface, without scheme and host.

    Raises ZonedriveError if the local path `path` is not in one of the user's zones.
    """
    if path is not None:
        paths, (whole,) = control_client.resolve((path,), account)
        mount = mountpoint.holding(Path(whole))
        inside = whole.removeprefix(str(mount.path) if mount else "").strip("/")
        return f"/a/{paths.account}/{page}?path={quote(inside)}"
    if page == "overview":
        return "/"
    if page == "logon":
        return "/logon?" + urlencode({"account": account}) if account else "/logon"
    return f"/a/{account or DEFAULT_ACCOUNT}/{page}"
