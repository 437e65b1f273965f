"""Construction of the daemon's components.

This module does not depend on the kernel interface, the control socket or the command line, and
sends no request to the service, so that a mount can also start offline.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from zonedrive.cipher import Box
from zonedrive.config import Settings
from zonedrive.content.cache import Cache
from zonedrive.content.spool import Spool
from zonedrive.daemon.data_key import DataKey, open_silently
from zonedrive.daemon.local_data import needs_key, unreadable, wait_for_keyring
from zonedrive.errors import Damaged, StoreError, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.account_lock import locked
from zonedrive.logon.account_profile import account_profile
from zonedrive.logon.bearer_auth import NAME, BearerAuth
from zonedrive.logon.keys import data_box, kept_key
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.paths import AccountPaths, private_dir
from zonedrive.remote.http_service import open_service
from zonedrive.remote.service import Service
from zonedrive.state.attributes import Owner
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.state.pause import PauseSwitch
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.state.recovery import recover
from zonedrive.state.repair import WrongKey, noting_damage, open_sound
from zonedrive.state.schema import ONLY_HERE, SCHEMAS, whole
from zonedrive.supervisor import Supervisor
from zonedrive.sync.remote_source import CurrentSource
from zonedrive.views.stack import FileSystem

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Components of one daemon, without the kernel interface and the control socket."""

    account: Account
    paths: AccountPaths
    state: LocalState
    service: Service
    files: FileSystem
    auth: BearerAuth
    renewal: Renewal
    data_key: DataKey


def build(
    account: Account,
    settings: Settings,
    paths: AccountPaths,
    before_recovery: Callable[[], None] = lambda: None,
) -> Parts:
    """Create the components of the account's daemon.

    `before_recovery` is called after the user has answered all prompts, and before the recovery of
    the local state. The recovery can take long.

    Raises KeyringLocked if the keyring has to be unlocked, StoreError if local data cannot be read,
    and ConfigError if the profile or a setting is invalid.
    """
    secrets = open_store(paths)
    # Later, each request of a program could prompt the user again to unlock the keyring.
    reopen = partial(open_silently, paths)
    renewal = Renewal(paths, reopen)
    auth = BearerAuth(reopen(), renewal, command=partial(Account.logon_again, paths), reopen=reopen)
    profile = account_profile(account, settings)
    if profile.wrong is not None:
        log.error("%s; until then only the published operations are possible", profile.wrong.line())
    service = open_service(account, auth, profile, settings)
    encryption = wait_for_keyring(
        lambda: data_box(
            secrets, settings.encrypt, make=not needs_key(paths), hold=partial(locked, paths)
        )
    )
    master = wait_for_keyring(lambda: kept_key(secrets)) if settings.encrypt else None
    with contextlib.suppress(ZonedriveError):  # the first request reports a missing logon
        secrets.get(NAME)  # may prompt the user, unlike the next line
        auth.find()  # while the keyring is open: it may be locked later
    before_recovery()
    state = open_state(paths, settings, service, encryption, account.user_id or account.username)
    with contextlib.ExitStack() as stack:
        stack.callback(state.database.close)  # on an error
        stack.callback(state.cache.close_index)
        with noting_damage(paths.database):  # the pins read rows that `open_sound` has not checked
            files = FileSystem(state, service, account.title)
        data_key = DataKey(paths, master)
        stack.pop_all()
    return Parts(account, paths, state, service, files, auth, renewal, data_key)


def open_state(
    paths: AccountPaths,
    settings: Settings,
    service: Service,
    encryption: tuple[Box, bytes | None],
    user: str,
) -> LocalState:
    """Open the local state of an account, and recover the state after a crash.

    `encryption` is a result of `data_box`: the cipher for names, and the key for content, which is
    None if content is not encrypted. `user` is the account's user on the service. Raises StoreError
    if local data cannot be read.
    """
    box, key = encryption
    private_dir(paths.state)
    used = max((ino for ino, _ in Spool(paths.outgoing, None).stored()), default=0)
    try:
        database = open_sound(paths.database, SCHEMAS, whole(box), used, ONLY_HERE)
    except WrongKey as wrong:
        raise unreadable(paths, settings) from wrong
    with contextlib.ExitStack() as stack, noting_damage(paths.database):
        stack.callback(database.close)  # on an error: the log's marker must go with the log
        try:
            inodes = Inodes.open(database, box)
            requests = PendingRequests(database, box)
        except (Damaged, msgspec.DecodeError) as wrong:
            raise unreadable(paths, settings) from wrong
        if not paths.outgoing.exists() and inodes.rows.with_bytes():
            raise StoreError(
                f"the folder {paths.outgoing} with the files to upload is missing",
                remedy="put it back; if it is lost, create an empty folder there",
            )
        supervisor = Supervisor()
        outgoing = private_dir(paths.outgoing)
        cache = Cache(
            paths.content,
            key,
            settings.cache_size,
            identity=database.identity,
            connections=settings.transfers,
            supervisor=supervisor,
        ).start()
        stack.callback(cache.close_index)
        state = LocalState(
            database=database,
            inodes=inodes,
            intents=IntentTable(database, box),
            requests=requests,
            spool=Spool(outgoing, key, database, box, make_room=cache.make_room),
            cache=cache,
            source=partial(CurrentSource, service),
            settings=settings,
            user=user,
            owner=Owner(os.getuid(), os.getgid()),
            supervisor=supervisor,
            pause=PauseSwitch(paths.pause),
        )
        recover(state)
        stack.pop_all()
    return state
