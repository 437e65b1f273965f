"""The answer of `zonedrive status` while no daemon is running.

Must not change anything, nor import what talks to the service: that costs more than the answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from zonedrive import config
from zonedrive.cipher import Box
from zonedrive.config import Settings
from zonedrive.content import disk_limit
from zonedrive.content.cache_index import cache_usage
from zonedrive.daemon import last_run, lock, readonly_status
from zonedrive.daemon.pending_summary import at_rest, box_of, lost, reader, unreadable
from zonedrive.errors import StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog
from zonedrive.paths import AccountPaths, config_file
from zonedrive.state.status import Status, damage_notice, staying


def status(paths: AccountPaths, most: int | None = None) -> dict[str, Any]:
    """Return the contract's status object of an unmounted account, which counts as offline.

    With `most` the object is for users, as the answer of a daemon with `most`.  Raises NotLoggedOn,
    StoreError, or AlreadyRunning while a daemon is starting or ending.
    """
    account = Account.load(paths)
    settings = config.load(config_file(), paths.account)
    with _no_daemon(paths):
        pass  # while a daemon is starting, the user is not asked to unlock a keyring
    try:
        # Without the lock: unlocking a keyring may take minutes, and a mount must not wait for it.
        box = box_of(paths, settings)
        with _no_daemon(paths):
            died = last_run.recorded(paths)
            found = _left(paths, settings, box, most)
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


@contextmanager
def _no_daemon(paths: AccountPaths) -> Iterator[None]:
    """Keep daemons from starting inside the block.  Raises AlreadyRunning if one is running."""
    with lock.reading(paths.lock) as is_free:
        if not is_free:
            raise lock.refusal(paths.account, lock.holder(paths.lock))
        yield


def _with_backlog(paths: AccountPaths, wrong: StoreError) -> StoreError:
    """Return the error `wrong`, extended by the number of pending changes.

    They can be counted even if a missing key hides their names.
    """
    left = Backlog()
    with suppress(StoreError):  # damaged as well
        left = at_rest(paths)
    said = f"{left} not on the service yet: {wrong.message}" if left.files else wrong.message
    return StoreError(said, remedy=wrong.remedy)


def _left(paths: AccountPaths, settings: Settings, box: Box, most: int | None) -> dict[str, Any]:
    """Return the state that a daemon would report.  Raises StoreError."""
    with reader(paths) as state:
        if not state.is_opened_by(box):
            raise unreadable(paths, settings)
        found, number = state.stores(box), lost(paths)
        used = cache_usage(paths.content)
        return Status(found).answer(
            found.pending(),
            most,
            state="offline",
            cache=(used, max(0, disk_limit.most(paths.cache, settings.cache_size, used))),
            notices=(damage_notice(paths.database, number), readonly_status.hindrance(paths)),
            lost=number,
        ) | ({} if most is None else {"local": staying(found)})
