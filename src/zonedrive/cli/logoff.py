"""Command `logoff`: end the logon, and delete the account's data from this machine.

Data that exists only on this machine is never deleted without a message. The requests that end the
logon are in `logon.flow`. The deletion of local data is in `logon.account_data`.
"""

import importlib
import time

import click
import trio

from zonedrive.cli import control_client, sync, text_output
from zonedrive.cli.error_messages import NOT_LOGGED_ON
from zonedrive.cli.options import account_option, timeout_option
from zonedrive.daemon import local_data
from zonedrive.errors import NotLoggedOn, StoreError, ZonedriveError
from zonedrive.formatting import count, saved, verb
from zonedrive.logon import account_data, bearer_auth, keys
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog, LocalData
from zonedrive.logon.account_lock import locked
from zonedrive.logon.account_profile import last_profile
from zonedrive.logon.api import open_access
from zonedrive.logon.flow import end_session, revoke
from zonedrive.logon.secrets import Secret, SecretStore, open_store
from zonedrive.paths import AccountPaths
from zonedrive.translation import marked

SYNC_SPARE = 15.0  # seconds the daemon may take beyond the timeout it is given
STOP_SECONDS = 60.0


@click.command()
@account_option
@timeout_option(30.0, "for uploads")
@click.option("--discard", is_flag=True, help="Delete changes that are not uploaded by then.")
def logoff(account: str, timeout: float, discard: bool) -> None:
    """Log off; delete the account's key, cache and logon from this machine.

    Waits for pending uploads first. Fails if data that is only on this machine would be lost. The
    account is no longer mounted at each login.
    """
    paths = AccountPaths(account)
    try:
        found = Account.load(paths)
    except NotLoggedOn as missing:
        names = ", ".join(each.account for each in control_client.accounts())
        there = f"accounts on this computer: {names}" if names else ""
        raise NotLoggedOn(f"{missing.message}: nothing to do", remedy=there) from missing
    for folder in (paths.state, paths.cache):
        if said := local_data.read_only(folder):
            raise ZonedriveError(f"nothing can be destroyed: {said}")
    account_data.require_deletable(paths)  # before anything ends
    try:
        left, why, remedy = _wait(paths, timeout, gives_up=not discard)
    except StoreError:
        if not discard:
            raise
        left, why, remedy = Backlog(), "", ""  # cannot be counted, and is to be discarded
    store = open_store(paths)
    if left.files and not discard:
        mounted = control_client.running(paths)
        if not mounted and local_data.needs_key(paths) and store.get(keys.NAME) is None:
            gone = keys.gone()
            raise ZonedriveError(
                f"{left} not on the service yet: {gone.message}", remedy=gone.remedy
            )
        if not mounted and (policy := local_data.forbidden(paths)):
            raise policy
        raise _refusal(paths, left, why, remedy, mounted=mounted)
    if not discard:
        _require_nothing_lost(paths, local_data.only_here(paths), store)
        store.get(bearer_auth.NAME)  # fails before anything ends if the keyring cannot be emptied
    _stop_daemon(paths)
    with locked(paths), local_data.hold(paths):
        # A logon or logoff in another terminal may have ended meanwhile.
        former, found = found, Account.load(paths)
        if not former.same_owner(found):
            raise ZonedriveError(
                f"another command has logged the account on as {text_output.word(found.username)}"
                f" at {found.base_url} meanwhile",
                remedy="log off again to end that logon",
            )
        dropped = _dropped(paths, store, discard)
        trio.run(_end_at_service, found, store)
        if wrong := account_data.destroy(paths, store, lost=discard):
            text_output.complain(
                f"the account's secrets could not be destroyed: {wrong}; remove them there"
            )
    # Not a static import: the window is in a layer above the commands.
    session_start = importlib.import_module("zonedrive.ui.session_start")
    try:
        session_start.choose(account, "", start=False)
    except OSError as wrong:
        text_output.complain(f"{wrong.filename}: {wrong.strerror}; remove it, or each login fails")
    text_output.say(f"logged off from {found.base_url}{dropped}")


def _require_nothing_lost(paths: AccountPaths, here: LocalData, store: SecretStore) -> None:
    """Raise ZonedriveError if logoff would delete files that exist only on this machine.

    `here` counts the files in lost+found, and the user's files that match the setting local_only.
    """
    if here.kept and not control_client.running(paths) and (policy := local_data.forbidden(paths)):
        raise policy
    if here.lost:
        raise ZonedriveError(
            saved(here.lost),
            remedy="mount and copy what you need from there, or drop it with --discard",
        )
    if number := here.wanted:
        some = local_data.wanted_place(paths, store)
        some = f", {'' if number == 1 else 'among them '}{text_output.word(some)}" if some else ""
        raise ZonedriveError(
            f"{count(number, 'file')} of local_only {verb(number)} only on this machine{some}",
            remedy="mount and move what you need elsewhere, or drop it with --discard",
        )


def _dropped(paths: AccountPaths, store: SecretStore, discard: bool) -> str:
    """Return a string, such as "; dropped 1 file in lost+found", that names the data to be deleted.

    Returns "" if logoff deletes only copies of data on the service. Raises ZonedriveError if data
    would be lost and `discard` is false. This check is necessary although `logoff` has made the
    same check before, because a daemon may have saved data meanwhile. Call this function while
    daemons are prevented from starting, so that no more data is added.
    """
    try:
        here = local_data.only_here(paths)
    except StoreError:
        if not discard:
            raise
        return "; dropped what was only on this machine, the amount of which is unknown"
    if not discard:
        if here.backlog.files:
            raise _refusal(paths, here.backlog, mounted=False)
        _require_nothing_lost(paths, here, store)
    dropped = [str(here.backlog)] if here.backlog.files else []
    dropped += [f"{count(here.lost, 'file')} in lost+found"] if here.lost else []
    dropped += [f"{count(here.local, 'file')} of local_only"] if here.local else []
    return marked(f"; dropped {' and '.join(dropped)}") if dropped else ""


def _wait(paths: AccountPaths, timeout: float, *, gives_up: bool) -> tuple[Backlog, str, str]:
    """Wait up to `timeout` seconds for uploads; return the pending changes, a reason and a remedy.

    With `gives_up`, the wait ends early if the user must log on first. The reason says why changes
    are pending. Reason and remedy are "" unless the uploads are paused or the logon has ended. If
    no daemon is running, returns at once, because nothing is uploaded.
    """
    request = {"command": "sync", "paths": [], "timeout": timeout, "give_up": gives_up}
    try:
        ended = control_client.ask(paths, request, timeout=timeout + SYNC_SPARE)
    except control_client.NoDaemon:
        return local_data.backlog(paths), "", ""
    sync.report_rejected(ended)
    left = ended["left"]
    waits = Backlog(int(left["files"]), int(left["bytes"]), int(left.get("changes", 0)))
    if ended.get("paused"):
        return waits, marked(", and uploads are paused"), f"run 'zonedrive resume{paths.option}'"
    if ended["exit"] == NOT_LOGGED_ON and ended.get("remedy"):
        return waits, marked(", and the logon has ended"), str(ended["remedy"])
    return waits, "", ""


def _refusal(
    paths: AccountPaths, left: Backlog, why: str = "", remedy: str = "", *, mounted: bool
) -> ZonedriveError:
    them = "it" if left.files == 1 else "them"
    first = f"see 'zonedrive status{paths.option}', give it more time with --timeout"
    if remedy:
        first = f"{remedy} first"
    elif not mounted:
        why, first = ", and nothing is sent while it is not mounted", "mount it first"
    return ZonedriveError(
        f"{left} {verb(left.files)} not on the service yet{why}",
        remedy=f"{first}, or drop {them} with --discard",
    )


def _stop_daemon(paths: AccountPaths) -> None:
    try:
        control_client.ask(
            paths, {"command": "unmount", "timeout": 0, "now": True}, timeout=STOP_SECONDS
        )
    except control_client.NoDaemon:
        if control_client.running(paths):
            raise control_client.NotResponding(paths) from None


async def _end_at_service(account: Account, store: SecretStore) -> None:
    """End the logon at the service; on failure, print a message and continue."""
    failure: ZonedriveError | None
    bearer = None
    try:
        bearer = bearer_auth.load_bearer(store)
        if bearer is None:
            return
        async with open_access(account.base_url, account.ca_file) as access:
            access.carry(Secret(bearer.secret))
            profile = last_profile(account)
            if await revoke(access, profile, bearer):
                return
            if bearer.kind == "session" or bearer.id:
                failure = await end_session(access)
                if bearer.id:  # a token, which could perhaps be revoked with a valid profile
                    failure = failure or profile.wrong
            else:  # a token that was created elsewhere, and that other programs may use
                await access.check()
                failure = None
    except ZonedriveError as wrong:
        failure = wrong
    if isinstance(failure, NotLoggedOn):
        return  # the service had ended it already
    if failure is not None:
        text_output.complain(f"the logon was not ended at the service: {failure.message}")
    is_over = bearer is not None and 0 < bearer.expires_ns <= time.time_ns()
    if bearer is not None and bearer.kind == "token" and not is_over:
        name = f" ({text_output.word(bearer.id)})" if bearer.id else ""
        until = f" until {bearer.until}" if bearer.until else ""
        text_output.complain(
            f"the token{name} remains valid at the service{until}; its secret is deleted here"
        )
