"""How the parts of a daemon are made and put together.

Must not know the kernel side, the control socket or the command line.  Nothing here asks the
service anything, so that a mount comes up offline as well.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from zonedrive.cipher import Box
from zonedrive.config import Settings
from zonedrive.content.cache import Cache
from zonedrive.content.manifest_table import ManifestTable
from zonedrive.content.spool import Spool
from zonedrive.daemon.backlog import is_sealed, needs_key
from zonedrive.db import Database
from zonedrive.errors import Damaged, StoreError, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.keys import data_box
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import Locked, open_store
from zonedrive.logon.session import BearerAuth
from zonedrive.outbox.doubts import Doubts
from zonedrive.outbox.journal import Journal
from zonedrive.paths import AccountPaths, private_dir
from zonedrive.remote import Service, load_profile, open_service
from zonedrive.salvage import WrongKey, open_sound
from zonedrive.supervisor import Supervisor
from zonedrive.tree.tree import Tree
from zonedrive.vfs.attributes import Owner
from zonedrive.vfs.core import Core
from zonedrive.vfs.filesystem import FileSystem
from zonedrive.vfs.recovery.restart import recover
from zonedrive.vfs.schema import ONLY_HERE, SCHEMAS, whole
from zonedrive.vfs.source import source_of

UNLOCK_SECONDS = 90.0
"""How long a keyring may ask a person for its password; whoever starts a daemon waits longer."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Parts:
    """Everything below the kernel."""

    account: Account
    paths: AccountPaths
    database: Database
    tree: Tree
    service: Service
    files: FileSystem
    auth: BearerAuth
    renewal: Renewal
    supervisor: Supervisor

    def hang_up(self) -> None:
        """End transfers at once: their threads could wait for the service for a long time.

        What was being uploaded is in the outbox, and looked for before it is sent again.
        """
        self.service.transfer.hang_up()

    async def aclose(self) -> None:
        """Keep what was being written, and end all transfers."""
        await self.files.aclose()

    def close(self) -> None:
        """Close the stores; may be called again."""
        self.database.close()


def build(account: Account, settings: Settings, paths: AccountPaths) -> Parts:
    """Make the parts of the account's daemon.

    Raises StoreError where what is kept here cannot be read, ConfigError for a profile or
    settings that cannot be used.
    """
    secrets = open_store(paths)
    renewal = Renewal(paths, secrets)
    auth = BearerAuth(secrets, renewal, command=Account.logon_again(paths))
    service = connect(account, settings, auth)
    box, key = patiently(lambda: data_box(secrets, settings.encrypt, make=not needs_key(paths)))
    with contextlib.suppress(ZonedriveError):  # who has none finds out at the first request
        auth.find()  # while the keyring is open: it may be locked later
    try:
        database = open_database(paths, box)
    except WrongKey as wrong:
        raise unreadable(paths, settings) from wrong
    try:
        tree = Tree.open(database, box)
        in_doubt = Doubts(database, box)
    except (Damaged, msgspec.DecodeError) as wrong:
        database.close()
        raise unreadable(paths, settings) from wrong
    private_dir(paths.cache)
    supervisor = Supervisor()
    core = Core(
        database=database,
        tree=tree,
        journal=Journal(database, box),
        doubts=in_doubt,
        spool=Spool(private_dir(paths.outgoing), key, ManifestTable(database, box)),
        cache=Cache(
            private_dir(paths.content),
            key,
            settings.cache_size,
            identity=database.identity,
            connections=settings.transfers,
            supervisor=supervisor,
        ).start(),
        source=partial(source_of, service),
        settings=settings,
        user=account.user_id or account.username,
        owner=Owner(os.getuid(), os.getgid()),
        supervisor=supervisor,
    )
    recover(core)
    files = FileSystem(core, service)
    return Parts(account, paths, database, tree, service, files, auth, renewal, supervisor)


def patiently(look: Callable[[], Found]) -> Found:
    """What `look` finds, which a person may have to unlock first."""
    end = time.monotonic() + UNLOCK_SECONDS
    while True:
        try:
            return look()
        except Locked:
            if time.monotonic() >= end:
                raise
        time.sleep(1)


def unreadable(paths: AccountPaths, settings: Settings) -> StoreError:
    """What is kept has another key, or none."""
    sealed = is_sealed(paths)
    if sealed is not None and sealed != settings.encrypt:
        was = str(sealed).lower()
        return StoreError(
            f"what account {paths.account} keeps was made with encrypt = {was}",
            remedy=f"set encrypt = {was} again; to change it, 'zonedrive sync', then 'zonedrive"
            " logoff', change it, and log on",
        )
    return StoreError(
        f"{paths.database} cannot be read with the key of this account",
        remedy="was the keyring emptied, or another one opened?",
    )


def connect(account: Account, settings: Settings, auth: BearerAuth) -> Service:
    """The service with the account's logon; connects at the first request."""
    profile = load_profile(settings.profile or account.profile)
    return open_service(account, auth, profile, settings)


def open_database(paths: AccountPaths, box: Box) -> Database:
    """The one file of tree and journal: a change and its intent are one transaction.

    A damaged one is salvaged.  Raises StoreError.
    """
    private_dir(paths.state)
    used = max((ino for ino, _ in Spool(paths.outgoing, None).stored()), default=0)
    return open_sound(paths.database, SCHEMAS, whole(box), used, ONLY_HERE)
