"""What can be said of an account that is not mounted: from its stores, or by asking the service.

Must not change anything, nor start what runs in a daemon.
"""

from typing import Any

import trio

from zonedrive import config
from zonedrive.daemon.answers import zone_objects
from zonedrive.daemon.build import build, connect
from zonedrive.daemon.lock import Lock
from zonedrive.db import Database
from zonedrive.logon.account import Account
from zonedrive.logon.keys import data_box
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.logon.session import BearerAuth
from zonedrive.model import Zone
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import Service
from zonedrive.tree.glance import is_sealed
from zonedrive.tree.tree import Tree
from zonedrive.vfs.schema import SCHEMAS


def status(paths: AccountPaths) -> dict[str, Any]:
    """The contract's object: not mounted, hence offline; what waits in the outbox.

    Raises NotLoggedOn, StoreError, or AlreadyRunning while a daemon is starting or ending.
    """
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    lock = Lock(paths.lock, paths.account)
    lock.take(paths.state)
    try:
        parts = build(account, settings, paths)
        found = parts.files.report.status()
        trio.run(parts.aclose)
        parts.close()
    finally:
        lock.release()
    return {
        "account": paths.account,
        "base_url": account.base_url,
        "mountpoint": None,
        "pid": None,
        **found,
        "state": "offline",
    }


def zones(paths: AccountPaths) -> list[dict[str, Any]]:
    """The zones as the service lists them now, with the names they have (or would have) here."""
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    secrets = open_store(paths)
    auth = BearerAuth(secrets, Renewal(paths, secrets))
    found = trio.run(_zones, connect(account, settings, auth))
    box, _ = data_box(secrets, settings.encrypt, make=not is_sealed(paths.database))
    database = Database(paths.database, SCHEMAS)
    try:
        return zone_objects(found, Tree(database, box))
    finally:
        database.close()


async def _zones(service: Service) -> list[Zone]:
    try:
        return await service.zones()
    finally:
        await service.aclose()
