"""Accounts with their status and mount point, prepared for display in the web interface."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonedrive import config
from zonedrive.cli import control_client, status, text_output
from zonedrive.daemon import last_run
from zonedrive.errors import NotLoggedOn, Unreachable, ZonedriveError
from zonedrive.formatting import plain
from zonedrive.fuse import mountpoint
from zonedrive.logon.account import Account
from zonedrive.paths import AccountPaths, config_file, home, nearest_existing
from zonedrive.remedies import in_window, message_in_window, remedy_in_window
from zonedrive.remote.profiles.load import load_profile
from zonedrive.translation import translated, translated_count, translated_line
from zonedrive.ui import problems
from zonedrive.ui.problems import NotMounted, Problem

ROWS = 8  # maximum number of uploads that are shown
MISSING = 20  # maximum number of missing files that are shown for a pin
LONGEST_NAME = 60  # maximum length of a mount point's name, in characters


@dataclass(frozen=True)
class AccountView:
    """Account and its status, prepared for display on a page."""

    name: str
    title: str  # name of the organization, else the host of the service
    base_url: str
    username: str
    profile: str
    status: dict[str, Any]  # of `zonedrive status --json`; {} if it is not known
    failure: Exception | None = None  # the reason why the status is not known
    account: Account | None = None  # None if its file cannot be read

    @property
    def mountpoint(self) -> str:
        """Mount point; "" if the account is not mounted or its status is not known."""
        return self.status.get("mountpoint") or ""

    def can(self, operation: str) -> bool:
        """Return True if the profile can be loaded and defines `operation`.

        `operation` is a key of `zonedrive.remote.profiles.operations.OPERATIONS`.
        """
        try:
            chosen = config.load(config_file(), self.name).profile
            return load_profile(chosen or self.profile).can(operation)
        except ZonedriveError:
            return False

    @property
    def state(self) -> str:
        """State in one word: online, offline, logon-required, unmounted or unknown."""
        if not self.status:
            return "unknown"
        if self.status["state"] == "logon-required" or self.status.get("pid"):
            return str(self.status["state"])
        return "unmounted"

    @property
    def verdict(self) -> str:
        """Line that says whether all changes have been uploaded; "" if the status is not known."""
        if not self.status:
            return ""
        outbox = self.status["outbox"]
        if waiting := self.waiting:
            text = translated_count(
                "{count} change is only on this computer ({size}).",
                "{count} changes are only on this computer ({size}).",
                waiting,
            )
            return text.format(
                count=waiting, size=translated_line(text_output.amount(outbox["bytes"]))
            )
        if self.status.get("lost"):
            return message_in_window(status.verdict(self.status, part=False))
        return translated("Everything is on the service.")

    @property
    def notices(self) -> list[Problem]:
        """Notices about the connection, the mount and an unexpected end of the daemon.

        A notice about an ended logon is left out.
        """
        reason = "" if self.state == "logon-required" else self.status.get("reason", "")
        advice = self.status.get("advice", "")
        found = (
            in_window(reason.removesuffix(f"; {advice}"), advice if reason else ""),
            remedy_in_window(self.status.get("notice", "")),
        )
        notices = [Problem(text, buttons=buttons) for text, buttons in found if text]
        if died := self.status.get("died"):
            said = translated("zonedrive ended unexpectedly after {time}: {why}.")
            if died["exact"]:
                said = translated("zonedrive ended unexpectedly at {time}: {why}.")
            why, time = translated_line(died["why"]), text_output.when(died["at"])
            notices.append(Problem(said.format(time=time, why=why.removesuffix("."))))
        return notices

    @property
    def problem(self) -> Problem | None:
        """Problem that prevents the normal use of the account, or None."""
        if self.failure is not None:
            return problems.of(self.failure)
        kinds = {
            "logon-required": NotLoggedOn(""),
            "offline": Unreachable(""),
            "unmounted": NotMounted(""),
        }
        return problems.of(kinds[self.state]) if self.state in kinds else None

    def require_answer(self) -> None:
        """Raise the error that prevented reading the status, if any."""
        if self.failure is not None:
            raise self.failure

    def require_mount(self) -> None:
        """Raise the error of `require_answer`, if any, or NotMounted for an unmounted account."""
        self.require_answer()
        if not self.mountpoint:
            raise NotMounted(f"account {self.name} is not mounted")

    @property
    def pause(self) -> str:
        """Text that says that uploads are paused, and until when, or "" if they are not paused."""
        if not self.status.get("paused"):
            return ""
        if end := self.status.get("paused_until"):
            return translated("Uploads are paused until {time}.").format(time=text_output.when(end))
        return translated("Uploads are paused.")

    @property
    def uploads(self) -> list[dict[str, Any]]:
        """Up to ROWS uploads, the most urgent first.

        The value for the key `problem` is the problem that prevents the upload, or None.
        """
        found = self.status.get("uploads", [])[:ROWS]
        return [one | {"problem": problems.of_upload(one)} for one in found]

    @property
    def more(self) -> int:
        """Number of waiting changes that are not in `uploads`."""
        return max(0, self.waiting - min(ROWS, len(self.status.get("uploads", []))))

    @property
    def waiting(self) -> int:
        """Number of changes that are not on the service."""
        outbox = self.status.get("outbox", {})
        return sum(int(outbox.get(state, 0)) for state in ("pending", "uploading", "failed"))


def names() -> list[str]:
    """Return the names of the accounts that are logged on."""
    return [paths.account for paths in control_client.accounts() if paths.is_logged_on]


def view(name: str) -> AccountView:
    """Return the account called `name`. Raises NotLoggedOn if the account is not logged on.

    If the status cannot be read, the error is in `failure` of the result.
    """
    paths = AccountPaths(name)
    if name not in names():
        raise NotLoggedOn(f"the account {name!r} is not logged on")
    try:
        account = Account.load(paths)
    except ZonedriveError as wrong:
        return AccountView(name, name, "", "", "", {}, wrong)
    found: dict[str, Any] = {}
    failure: Exception | None = None
    try:
        found = status.StatusQuery(paths, [], ROWS).first()
    except (ZonedriveError, OSError) as wrong:
        failure = wrong
    return AccountView(
        name,
        account.organization or account.base_url.partition("://")[2],
        account.base_url,
        account.username or account.user_id,
        account.profile,
        found,
        failure,
        account,
    )


def views() -> list[AccountView]:
    """Return all accounts that are logged on."""
    return [view(name) for name in names()]


def default_folder(name: str) -> Path:
    """Return the default mount point of an account, a folder in `~/Zones`.

    The folder is named after the organization, because file managers show the name. An existing
    folder with the account's name is used instead. If `~/Zones` itself is a mount point, the result
    is `~/Zones-ACCOUNT`.
    """
    folder = home() / "Zones"
    if mountpoint.at(folder) is not None:  # a mount cannot contain another mount point
        return home() / f"Zones-{name}"
    with contextlib.suppress(ZonedriveError, OSError):
        title = plain(Account.load(AccountPaths(name)).title).replace("/", "-")
        shown = title.strip(". ")[:LONGEST_NAME]
        if shown and not (folder.exists() and folder / name in folder.iterdir()):
            return folder / shown
    return folder / name


def mount_folder(name: str) -> Path:
    """Return the last mount point if the account's daemon died, else the default mount point."""
    died = last_run.death(AccountPaths(name))
    return died.mountpoint if died is not None else default_folder(name)


def mounted_on(name: str) -> Path | None:
    """Return the mount point of the account's daemon, or None if no daemon is running.

    A daemon that does not answer counts as running.
    """
    holder = control_client.daemon(AccountPaths(name))
    return holder.mountpoint if holder is not None else None


def member_link(account: AccountView, path: str) -> str:
    """Return a web link to the entry at `path` for members of its zone, or "" if there is none."""
    if not account.can("member_link"):
        return ""
    request = {"command": "link", "path": path}
    try:
        return str(control_client.ask(AccountPaths(account.name), request)["link"])
    except ZonedriveError:  # the entry is not on the service
        return ""


def pins(account: AccountView) -> list[dict[str, Any]]:
    """Return the pins of an account, each with up to MISSING files that are not downloaded."""
    request = {"command": "pins", "most": MISSING}
    return list(control_client.ask(AccountPaths(account.name), request)["pins"])


def pin(account: AccountView, path: str) -> None:
    """Pin an absolute path of the mount; the daemon downloads the content in the background."""
    request = {"command": "pin", "paths": [path]}
    with contextlib.closing(control_client.stream(AccountPaths(account.name), request)) as lines:
        next(lines)  # the pin is stored now


def room(account: AccountView) -> int:
    """Return the free space, in bytes, of the disk with the account's cache."""
    disk = os.statvfs(nearest_existing(AccountPaths(account.name).cache))
    return disk.f_bavail * disk.f_frsize


def inside(account: AccountView, path: str) -> Path:
    """Return the absolute path for `path`, which is absolute or relative to the mount point.

    Raises ZonedriveError for a path outside of the mount, and the errors of `require_mount`.
    """
    account.require_mount()
    root = Path(account.mountpoint)
    found = Path(os.path.normpath(root / path))
    if "\0" in path or (found != root and root not in found.parents):
        raise ZonedriveError(f"{path!r} is not in the mount")
    return found
