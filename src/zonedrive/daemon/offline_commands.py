"""Operations without a daemon that send requests to the service (`offline_status` sends none).

Changes no local state, and starts no part of a daemon.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from zonedrive import config
from zonedrive.daemon.compose import connect
from zonedrive.daemon.pending_summary import box_of, reader
from zonedrive.daemon.serialize import zone_names, zone_objects
from zonedrive.daemon.trash import Trash
from zonedrive.errors import StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import Service


def zones(paths: AccountPaths) -> list[dict[str, Any]]:
    """Return the zones that the service lists now, with their current or future local names."""
    settings = config.load(config_file(), paths.account)
    found, names = trio.run(_asked, paths, lambda service: service.zones()), dict[str, str]()
    with suppress(StoreError):  # the names cannot be read
        box = box_of(paths, settings)
        with reader(paths) as state:
            names = zone_names(state.stores(box).inodes)
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
