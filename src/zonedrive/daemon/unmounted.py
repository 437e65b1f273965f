"""What can be said and done without a daemon: from an account's stores, or by asking the service.

Must not change anything here, nor start what runs in a daemon.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.daemon import last_run, remains
from zonedrive.daemon.answers import zone_objects
from zonedrive.daemon.backlog import at_rest, lost
from zonedrive.daemon.build import build, connect
from zonedrive.daemon.last_run import Death
from zonedrive.daemon.lock import Lock
from zonedrive.daemon.trash import Trash
from zonedrive.db import is_unwritable
from zonedrive.errors import StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.local import Backlog
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.logon.session import BearerAuth
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import Service


def status(paths: AccountPaths, most: int | None = None) -> dict[str, Any]:
    """The contract's object: not mounted, hence offline; what waits in the outbox.

    With `most` it is for people, as a daemon's answer is.
    Raises NotLoggedOn, StoreError, or AlreadyRunning while a daemon is starting or ending.
    """
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    died = last_run.death(paths)
    try:
        found, died = _left(account, settings, paths, most)
    except (OSError, StoreError) as wrong:
        if not is_unwritable(wrong):
            _raise_with_backlog(paths, wrong)
            raise
        found = remains.status(paths, settings, people=most is not None)
        if most is not None:
            found["lost"] = lost(paths)
    return {
        "account": paths.account,
        "base_url": account.base_url,
        "mountpoint": None,
        "pid": None,
        **found,
        "state": "offline",
        **({} if died is None else {"died": died.json()}),
    }


def _raise_with_backlog(paths: AccountPaths, wrong: Exception) -> None:
    """Where the stores cannot be read for want of a key, what waits in them can be counted."""
    left = Backlog()
    with suppress(StoreError):  # damaged as well
        left = at_rest(paths)
    if isinstance(wrong, StoreError) and left.files:
        said = f"{left} not on the service yet: {wrong.message}"
        raise StoreError(said, remedy=wrong.remedy) from wrong


def _left(
    account: Account, settings: Settings, paths: AccountPaths, most: int | None
) -> tuple[dict[str, Any], Death | None]:
    lock = Lock(paths.lock, paths.account)
    lock.take(paths.state)
    try:
        last_run.keep_last_sign(paths)
        died = last_run.recorded(paths)
        parts = build(account, settings, paths)
        found = parts.files.report.status(most=most)
        if most is not None:
            found["local"] = parts.files.places.local()
        trio.run(parts.aclose)
        parts.close()
    finally:
        lock.release()
    return found, died


def zones(paths: AccountPaths) -> list[dict[str, Any]]:
    """The zones as the service lists them now, with the names they have (or would have) here."""
    settings = config.load(config_file(), paths.account)
    secrets = open_store(paths)
    found = trio.run(_asked, paths, Service.zones)
    return zone_objects(found, remains.tree(paths, settings, secrets))


def trash(paths: AccountPaths, zone: str | None) -> dict[str, Any]:
    """What was deleted, in the zone of that name or all, as `daemon.trash` answers it."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).answer())


def restore(paths: AccountPaths, zone: str | None, entries: list[str]) -> list[dict[str, Any]]:
    """Bring back deleted entries, each given by id or name; as `daemon.trash` answers it."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).restore(entries))


def purge(paths: AccountPaths, zone: str | None, entries: list[str]) -> list[str]:
    """Remove deleted entries for good, each given by id or name; their paths."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).purge(entries))


def version(
    paths: AccountPaths,
    zone_id: str,
    file_id: str,
    name: str,
    take: Callable[[bytes | bytearray | memoryview], object],
) -> None:
    """Hand the bytes of a version of a file to `take`, piece by piece."""

    async def fetch(service: Service) -> None:
        def pieces() -> None:
            with service.transfer.download(zone_id, file_id, version=name) as download:
                for piece in download:
                    take(piece)

        await trio.to_thread.run_sync(pieces)

    trio.run(_asked, paths, fetch)


ResultT = TypeVar("ResultT")


async def _asked(paths: AccountPaths, work: Callable[[Service], Awaitable[ResultT]]) -> ResultT:
    """What `work` makes of the account's service."""
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    secrets = open_store(paths)
    service = connect(
        account,
        settings,
        BearerAuth(secrets, Renewal(paths, secrets), command=Account.logon_again(paths)),
    )
    try:
        return await work(service)
    finally:
        await service.aclose()
