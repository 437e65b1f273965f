"""Operations without a daemon, on an account's stores or with requests to the service.

Changes no local state, and starts no part of a daemon. `vfs.status` computes the status, as in a
daemon.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from zonedrive import config
from zonedrive.cipher import Box, Clear
from zonedrive.config import Settings
from zonedrive.content import room
from zonedrive.content.index import cache_usage
from zonedrive.daemon import last_run, lock, remains
from zonedrive.daemon.answers import zone_names, zone_objects
from zonedrive.daemon.backlog import at_rest, lost, needs_key, reader
from zonedrive.daemon.build import connect, patiently, unreadable
from zonedrive.daemon.trash import Trash
from zonedrive.errors import StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.keys import data_box
from zonedrive.logon.local import Backlog
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.logon.session import BearerAuth
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import Service
from zonedrive.vfs.recovery import losses
from zonedrive.vfs.status import Status, staying


def status(paths: AccountPaths, most: int | None = None) -> dict[str, Any]:
    """Return the contract's status object of an unmounted account, which counts as offline.

    With `most` the object is for users, as the answer of a daemon with `most`. Raises NotLoggedOn,
    StoreError, or AlreadyRunning while a daemon is starting or ending.
    """
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    with lock.reading(paths.lock) as is_free:
        if not is_free:
            raise lock.refusal(paths.account, lock.holder(paths.lock))
        died = last_run.recorded(paths)
        try:
            found = _left(paths, settings, most)
        except StoreError as wrong:
            raise _with_backlog(paths, wrong) from wrong
    return {
        "account": paths.account,
        "base_url": account.base_url,
        "mountpoint": None,
        "pid": None,
        **found,
        **({} if died is None else {"died": died.json()}),
    }


def _with_backlog(paths: AccountPaths, wrong: StoreError) -> StoreError:
    """Return the error `wrong`, extended by the number of pending changes.

    They can be counted even if a missing key hides their names.
    """
    left = Backlog()
    with suppress(StoreError):  # damaged as well
        left = at_rest(paths)
    said = f"{left} not on the service yet: {wrong.message}" if left.files else wrong.message
    return StoreError(said, remedy=wrong.remedy)


def _left(paths: AccountPaths, settings: Settings, most: int | None) -> dict[str, Any]:
    """Return the state that a daemon would report. Raises StoreError."""
    box = _box(paths, settings)
    with reader(paths) as state:
        if not state.is_opened_by(box):
            raise unreadable(paths, settings)
        found, number = state.stores(box), lost(paths)
        used = cache_usage(paths.content)
        return Status(found).answer(
            found.pending(),
            most,
            state="offline",
            cache=(used, max(0, room.most(paths.cache, settings.cache_size, used))),
            notices=(losses.notice(paths.database, number), remains.hindrance(paths)),
            lost=number,
        ) | ({} if most is None else {"local": staying(found)})


def _box(paths: AccountPaths, settings: Settings) -> Box:
    """Return the box that decrypts the local names. Raises StoreError."""
    if not needs_key(paths):
        return Clear()
    secrets = open_store(paths)
    return patiently(lambda: data_box(secrets, settings.encrypt, make=False))[0]


def zones(paths: AccountPaths) -> list[dict[str, Any]]:
    """Return the zones that the service lists now, with their current or future local names."""
    settings = config.load(config_file(), paths.account)
    found, names = trio.run(_asked, paths, Service.zones), dict[str, str]()
    with suppress(StoreError):  # the names cannot be read
        box = _box(paths, settings)
        with reader(paths) as state:
            names = zone_names(state.stores(box).tree)
    return zone_objects(found, names)


def trash(paths: AccountPaths, zone: str | None) -> dict[str, Any]:
    """Return the deleted entries of the named zone or all zones, as `daemon.trash` does."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).answer())


def restore(paths: AccountPaths, zone: str | None, entries: list[str]) -> list[dict[str, Any]]:
    """Restore deleted entries, each given by id or name; the result is that of `daemon.trash`."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).restore(entries))


def purge(paths: AccountPaths, zone: str | None, entries: list[str]) -> list[str]:
    """Permanently delete trash entries, each given by id or name; return their paths."""
    return trio.run(_asked, paths, lambda service: Trash(service, zone).purge(entries))


def version(
    paths: AccountPaths,
    zone_id: str,
    file_id: str,
    name: str,
    take: Callable[[bytes | bytearray | memoryview], object],
) -> None:
    """Pass the content of a file's version to `take`, chunk by chunk."""

    async def fetch(service: Service) -> None:
        def pieces() -> None:
            with service.transfer.download(zone_id, file_id, version=name) as download:
                for piece in download:
                    take(piece)

        await trio.to_thread.run_sync(pieces)

    trio.run(_asked, paths, fetch)


ResultT = TypeVar("ResultT")


async def _asked(paths: AccountPaths, work: Callable[[Service], Awaitable[ResultT]]) -> ResultT:
    """Return the result of `work` with the account's service."""
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
