"""Commands `mount` and `unmount`, and the mount helper that mount(8) calls."""

import contextlib
import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import click

from zonedrive import config
from zonedrive.cli import control_client, error_messages, sync
from zonedrive.cli.options import LocalPath, account_option_or, timeout_option
from zonedrive.cli.text_output import Progress, complain, say
from zonedrive.daemon import daemonize, last_run, lock, logs
from zonedrive.daemon.protocol import Message
from zonedrive.errors import (
    BadOption,
    ConfigError,
    MountEnded,
    MountError,
    StoreError,
    ZonedriveError,
)
from zonedrive.formatting import local_time, unsent
from zonedrive.fuse import mountpoint, options
from zonedrive.fuse.mountpoint import Mount
from zonedrive.paths import (
    DEFAULT_ACCOUNT,
    AccountPaths,
    config_file,
    require_folders,
    require_moved,
)
from zonedrive.translation import marked

UNMOUNT_SECONDS = 60.0

NOW_SECONDS = 25.0  # longest silence in seconds of a daemon told to end at once; closing takes less
# Longest silence in seconds of a daemon that waits for uploads; it is silent only while it closes.
SILENT_SECONDS = 45.0
# Time in seconds for a hung daemon to end normally; saved data is already on the disk.
HUNG_SECONDS = 5.0
CLOSING_SECONDS = 30.0  # time in seconds for a daemon with an unreachable socket to end normally


@click.command()
@click.argument("folder", metavar="DIR", type=LocalPath("dir"))
@account_option_or("the account of -o account=NAME")
@click.option("-f", "--foreground", is_flag=True, help="Do not detach; log to the terminal.")
@click.option(
    "-o",
    "texts",
    multiple=True,
    metavar="OPT[,OPT...]",
    help="Settings, as in config.toml, and FUSE options (ro, allow_other, …).",
)
def mount(folder: str, account: str | None, foreground: bool, texts: tuple[str, ...]) -> None:
    """Mount your zones on the empty folder DIR.

    Returns when the mount is ready; a daemon serves it in the background. While the service
    cannot be reached, cached files can be read, and changes are uploaded later.
    'man zonedrive.toml' describes the settings.

    \b
    Examples:
      zonedrive mount ~/Zones
      zonedrive mount ~/Zones -o settle=5
    """
    _mount(lambda: _chosen(account, options.parse(texts)), folder, texts, foreground)


@click.command()
@click.argument("url")
@click.argument("folder", metavar="DIR")
@click.option("-f", "--foreground", is_flag=True)
@click.option("-o", "texts", multiple=True, metavar="OPT[,OPT...]")
def mount_helper(url: str, folder: str, foreground: bool, texts: tuple[str, ...]) -> None:
    """Mount the account that is logged on at URL on DIR; mount(8) runs this command.

    Example of a line in /etc/fstab: 'https://service.example  /home/me/Zones  fuse.zonedrive
    noauto,user,account=work  0  0'.
    """
    _mount(lambda: _account_of(url, options.parse(texts).account), folder, texts, foreground)


def _mount(
    find: Callable[[], AccountPaths], folder: str, texts: tuple[str, ...], foreground: bool
) -> None:
    """Mount the account that `find` returns; the other parameters are those of `mount`."""
    from zonedrive.logon.account import Account
    from zonedrive.logon.account_profile import account_profile

    if not foreground:
        require_folders(paths := find())
        account = Account.load(paths)  # first: create no folders for an unknown account
        found = options.parse(texts)
        # Report a wrong setting before a process starts.
        settings = config.load(config_file(), paths.account, found.settings, tell=complain)
        _require_profile(settings, found)
        if wrong := account_profile(account, settings).wrong:
            complain(wrong.line())
        if given := found.settings.get("profile"):  # the daemon has another working directory
            texts = (*texts, f"profile={options.escaped(config.profile_at(given, Path()))}")
        where = mountpoint.absolute(folder)
        serve_there = functools.partial(daemonize.run, paths, os.fspath(where), texts)
        daemonize.start(paths, where, serve_there)
        if paths.pause.exists():
            from zonedrive.daemon import local_data

            if (pause := local_data.pause(paths)) is not None:  # its end may have been reached
                resume = f"zonedrive resume{paths.option}"
                say(f"{pause.line}; to end that, run '{resume}'", err=True)
        return
    daemonize.load()
    from zonedrive.daemon import serve
    from zonedrive.daemon.service_manager import Notifier

    try:
        require_folders(paths := find())
        Account.load(paths)
        found = options.parse(texts)
        _require_profile(config.load(config_file(), paths.account, found.settings), found)
        serve.run(serve.Start(paths, folder, texts, foreground=True), daemonize.Pipe(None))
    except (ZonedriveError, OSError) as wrong:
        Notifier().status(error_messages.line(wrong))  # a service manager shows this line
        raise


def _require_profile(settings: config.Settings, given: options.Options) -> None:
    """Raise BadOption if the profile in the option `-o profile` does not exist or cannot be read.

    Does nothing if a policy overrides the option in `settings`.
    """
    name = given.settings.get("profile")
    if name and settings.profile == config.profile_at(name, Path()):
        from zonedrive.remote.profiles.load import require_profile

        try:
            require_profile(settings.profile)
        except ConfigError as wrong:
            raise BadOption(f"-o profile: {wrong.message}", remedy=wrong.remedy) from wrong


def _base_urls() -> dict[str, str]:
    from zonedrive.logon.account import Account

    found = {}
    for paths in control_client.accounts():
        with contextlib.suppress(ZonedriveError):
            found[paths.account] = Account.load(paths).base_url
    return found


def _chosen(account: str | None, given: options.Options) -> AccountPaths:
    """Return the account that `--account` or `-o account=` names, or else the default account.

    `account` is the value of `--account`, and `given` contains the values of `-o`. Raises BadOption
    if the two options name different accounts, or if `-o` contains an option that is for mount(8)
    only.
    """
    if given.setuid:
        raise BadOption(
            "-o setuid is for mount(8) only",
            remedy="as root, run 'mount -t fuse.zonedrive -o setuid=USER URL DIR'",
        )
    if account and given.account and account != given.account:
        raise BadOption(
            f"--account {account} and -o account={given.account} are two accounts",
            remedy="give one of these options",
        )
    return AccountPaths(account or given.account or DEFAULT_ACCOUNT)


def _account_of(url: str, account: str | None) -> AccountPaths:
    """Return the account that is logged on at `url` and has the name `account` (None: any name).

    Raises ConfigError if no account matches, if several accounts match, or if the folders for the
    accounts cannot be used. Raises NotLoggedOn if the account's state folder must be moved.
    """
    require_folders(named := AccountPaths(account or DEFAULT_ACCOUNT))
    wanted = url.rstrip("/").lower()
    there = [name for name, base in _base_urls().items() if base.rstrip("/").lower() == wanted]
    found = [name for name in there if account in (None, name)]
    if len(found) > 1:
        raise ConfigError(
            f"several accounts are logged on at {url} ({', '.join(found)})",
            remedy="choose with -o account=NAME",
        )
    if found:
        return AccountPaths(found[0])
    remedy = f"run 'zonedrive logon {shlex.quote(url)}{named.option}'"
    require_moved(named)
    if there:
        names = " or ".join(f"account={name}" for name in there)
        raise ConfigError(
            f"the account '{account}' is not logged on at {url}",
            remedy=f"{remedy}, or give -o {names}",
        )
    if os.geteuid() == 0:
        remedy += ", or give -o setuid=USER to mount for a user who is logged on"
    raise ConfigError(f"nobody is logged on at {url}", remedy=remedy)


def no_address(source: str) -> ConfigError:
    """Return the error for a mount(8) source that is not a URL, such as an account name."""
    there, named = _base_urls(), source.rpartition("#")[2]
    account = named if named in there else DEFAULT_ACCOUNT
    url = there.get(account, "such as https://service.example")
    option = "" if account == DEFAULT_ACCOUNT else f", with the option account={account}"
    return ConfigError(
        f"{source!r} is not the address of a service",
        remedy="the first field of a line in /etc/fstab, and what mount(8) is given first, is the"
        f" base URL of the logon, {url}{option}",
    )


@click.command()
@click.argument("folder", metavar="DIR", type=LocalPath("dir"))
@timeout_option(UNMOUNT_SECONDS, "for uploads, and for programs that use the mount")
@click.option("--now", is_flag=True, help="Unmount at once, without waiting.")
def unmount(folder: str, timeout: float, now: bool) -> None:
    """Unmount DIR.

    Waits until all changes are on the service. Changes left after SECONDS stay on this machine,
    and their upload continues at the next mount. Does not wait for uploads that are paused.
    """
    path = mountpoint.absolute(folder)
    os.chdir("/")  # otherwise this process could keep the mount busy
    found = mountpoint.at(path)
    paths = control_client.serving(path)  # also for a detached mount that is still in use
    if not found.ours if found else paths is None:
        control_client.require_logon(None)
        raise MountError(f"{path} is not a mount of zonedrive")
    if found is not None and paths is None:
        _without_daemon(found, now)
        return
    assert paths is not None
    request = {"command": "unmount", "timeout": 0 if now else timeout, "now": now}
    patience = NOW_SECONDS if now else SILENT_SECONDS
    last: Message = {}
    try:
        with Progress() as progress:
            for last in control_client.stream(paths, request, timeout=patience):
                progress.show(_waiting(last))
    except StoreError as refused:  # the end of the mount would make data unreadable
        lose = marked("or end the mount with --now, and lose this data")
        raise StoreError(
            refused.message, remedy="; ".join(filter(None, (refused.remedy, lose)))
        ) from refused
    except MountEnded as ended:  # another command has unmounted it; it may still be closing
        if not lock.wait_until_free(paths.lock, CLOSING_SECONDS):
            if not now:
                raise lock.refusal(paths.account, lock.holder(paths.lock)) from ended
            _end(paths, found, HUNG_SECONDS)
            say(
                f"the daemon of account {paths.account} did not end: it was ended, and what was"
                " saved is kept",
                err=True,
            )
    except control_client.DaemonTimeout as busy:
        _detach(found)
        say(f"{path} is detached; {busy.message}: it is still closing", err=True)
    except control_client.NotResponding as hung:
        _end(paths, found, HUNG_SECONDS)
        say(f"{path} is unmounted; {hung.message}, and was ended: what was saved is kept", err=True)
    except control_client.Unconnectable:
        if not now:
            raise
        _end(paths, found, CLOSING_SECONDS)
    if users := last.get("users"):
        complain(f"unmounted {path}, although {', '.join(users)} still used it")
    sync.report_rejected(last)
    if last.get("left", {}).get("files"):
        left = unsent(last["left"])
        if reason := last.get("unreadable"):
            complain(f"{left} not on the service yet; no later mount can read this: {reason}")
            return
        then = _continuation(paths, is_paused=last.get("paused", False))
        say(f"{left} not on the service yet; kept here, {then}", err=True)


def _continuation(paths: AccountPaths, *, is_paused: bool) -> str:
    """Return a clause that tells when the uploads continue after an unmount."""
    from zonedrive.daemon import local_data

    pause = local_data.pause(paths) if is_paused else None
    if pause is None:
        return marked("uploads continue at the next mount")
    if pause.until_ns:
        end = local_time(pause.until_ns / 1e9)
        return marked(f"uploads are paused until {end}, and continue after that and the next mount")
    resume = f"zonedrive resume{paths.option}"
    return marked(f"uploads are paused, and continue after the next mount and '{resume}'")


def _waiting(message: Message) -> str:
    if users := message.get("users"):
        return f"waiting for {', '.join(users)}"
    left = message.get("left", {})
    return f"waiting for {unsent(left)}" if left.get("files") else ""


def _end(paths: AccountPaths, mount: Mount | None, seconds: float) -> None:
    """End the daemon, detach its mount, and remove the record of the daemon's run.

    Kill the daemon if it has not ended after `seconds`, and abort the mount's connection. The mount
    is detached only afterwards, because the connection of a detached mount cannot be found.
    """
    try:
        lock.end_holder(paths.lock, seconds)
    finally:
        _detach(mount)
    last_run.clear(paths)


def _detach(mount: Mount | None) -> None:
    """Detach the mount if it still exists."""
    if mount is not None and (now := mountpoint.at(mount.path)) and now.device == mount.device:
        mountpoint.detach(mount.path, lazy=True)


def _without_daemon(mount: Mount, now: bool) -> None:
    """Detach a mount whose daemon has died; if `now` is true, detach it even if a daemon serves it.

    If a daemon of this user died while it served the mount, print and log one line about its death,
    and remove the record of its run. Raises MountError if `now` is false and a daemon serves the
    mount.
    """
    path = mount.path
    if not now and not mountpoint.dead(path):
        if mount.user == os.geteuid():
            raise control_client.unknown_daemon(mount)
        raise MountError(
            f"{path} is served by a daemon that is not yours", remedy="use --now to detach it"
        )
    mountpoint.detach(path, lazy=True)
    for paths in control_client.accounts():
        died = last_run.death(paths)
        if died is not None and died.mountpoint == path:
            say(died.line, err=True)
            logs.append(paths.log, died.line)
            last_run.clear(paths)
