"""Local data of an account: pending changes, data key, pause of the uploads, disk and status.

This module works without a daemon, and sends no request to the service. Functions whose results
contain no file names need neither the data key nor a logon, because the commands `logon` and
`logoff` call them too.

INVARIANT: only `hold` and `pause_switch` change files.
INVARIANT: the account's lock is never held while the user is asked to unlock a keyring, so that a
mount does not have to wait for the user.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from zonedrive import config
from zonedrive.cipher import Box, Clear
from zonedrive.config import Settings
from zonedrive.content.cache_index import cache_usage, usable_bytes
from zonedrive.content.spool import Spool, is_any_sealed, oldest
from zonedrive.daemon import last_run, lock
from zonedrive.errors import ConfigError, MountError, NotLoggedOn, StoreError
from zonedrive.formatting import timestamp
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog, LocalData
from zonedrive.logon.keys import data_box, kept_key, names_box
from zonedrive.logon.previous_account import LocalDataQueries
from zonedrive.logon.secrets import KeyringTimeout, SecretStore, open_store
from zonedrive.paths import (
    NO_ROOM,
    SYSTEM_FOLDER,
    AccountPaths,
    config_file,
    is_locked,
    require_room,
)
from zonedrive.state import repair
from zonedrive.state.pause import Pause, PauseSwitch
from zonedrive.state.pause import load as load_pause
from zonedrive.state.reader import StateReader
from zonedrive.state.status import Status, Stores, damage_notice, staying
from zonedrive.translation import marked

UNWRITABLE = (*NO_ROOM, errno.EROFS, errno.EACCES, errno.EPERM)
UNLOCK_SECONDS = 90.0  # time for the user to unlock a keyring; the start timeout is longer

READ_ONLY = (
    "its disk is read-only: if nobody made it read-only, the disk has an error; look at 'dmesg',"
    " have the disk checked, and make it writable again; pending changes are kept"
)
FULL = "its disk is full: make room there; pending changes are kept"

Found = TypeVar("Found")


@contextmanager
def reader(paths: AccountPaths) -> Iterator[StateReader]:
    """Open the account's state for reading; no daemon can start while the `with` block runs.

    A daemon that is already running continues, and its committed changes are visible. Raises
    StoreError if the state cannot be read.
    """
    with lock.reading(paths.lock), StateReader.open(paths.database) as state:
        yield state


# ---- counts ----


def backlog(paths: AccountPaths) -> Backlog:
    """Return the number of pending changes and their size in bytes. Raises StoreError."""
    with reader(paths) as state:
        return Backlog(*state.waiting())


def only_here(paths: AccountPaths) -> LocalData:
    """Return the amount of data that exists only on this machine. Raises StoreError."""
    with reader(paths) as state:
        return LocalData(
            Backlog(*state.waiting()),
            _lost_files(paths, state),
            state.local_files(),
            state.files_by_user(),
        )


def _lost_files(paths: AccountPaths, state: StateReader) -> int:
    """Return the number of files in lost+found.

    If the database has lost rows, spooled files that no row refers to count as well, because the
    next mount moves them to lost+found.
    """
    nameless = set(_spooled(paths)) - state.named_bytes() if loss(paths) else ()
    return state.lost_files() + len(nameless)


def loss(paths: AccountPaths) -> str:
    """Return the evidence that the database has lost rows, or "". See `repair.loss`."""
    return repair.loss(paths.database, is_used=bool(_spooled(paths)))


def _spooled(paths: AccountPaths) -> list[tuple[int, int]]:
    return Spool(paths.outgoing, None).stored()


def wanted_place(paths: AccountPaths, store: SecretStore) -> str:
    """Return the path of a local-only file that is not a program's temporary file.

    Return "" if there is no such file or its name cannot be decrypted.
    """
    with suppress(StoreError):
        key = kept_key(store) if needs_key(paths) else None
        with reader(paths) as state:
            return state.path_by_user(Clear() if key is None else names_box(key))
    return ""


# ---- the data key ----


def needs_key(paths: AccountPaths) -> bool:
    """Return True if local data may be encrypted, so that the data key must not be replaced."""
    try:
        with reader(paths) as state:
            sealed = state.is_sealed()
    except StoreError:
        return True
    return bool(sealed) or is_any_sealed(paths.outgoing)


def is_sealed(paths: AccountPaths) -> bool | None:
    """Return True if the local names are encrypted, and False if they are not encrypted.

    Return None if there are no local names or the state cannot be read.
    """
    with suppress(StoreError), reader(paths) as state:
        return state.is_sealed()
    return None


def is_opened_by(paths: AccountPaths, box: Box) -> bool:
    """Return False if the state has local names that `box` cannot decrypt, else True."""
    with suppress(StoreError), reader(paths) as state:
        return state.is_opened_by(box)
    return True


def box_of(paths: AccountPaths) -> Box:
    """Return the `Box` that decrypts the local names. Raises StoreError.

    The setting `encrypt` is not used, because the local data may come from a mount with a different
    value (`-o encrypt`). The call may wait until the user unlocks a keyring, so the caller must not
    hold the account's lock.
    """
    if not needs_key(paths) or is_sealed(paths) is False:
        return Clear()
    secrets = open_store(paths)
    return wait_for_keyring(lambda: data_box(secrets, encrypt=True, make=False))[0]


def wait_for_keyring(look: Callable[[], Found]) -> Found:
    """Call `look` and return its result; repeat the call while `look` raises KeyringTimeout.

    Raises KeyringTimeout after UNLOCK_SECONDS.
    """
    end = time.monotonic() + UNLOCK_SECONDS
    while True:
        try:
            return look()
        except KeyringTimeout:
            if time.monotonic() >= end:
                raise
        time.sleep(1)


def unreadable(paths: AccountPaths, settings: Settings) -> StoreError:
    """Return the error for local data that does not match the key or the `encrypt` setting."""
    if policy := forbidden(paths):
        return StoreError(policy.message, remedy=policy.remedy)
    sealed = is_sealed(paths)
    if sealed is not None and sealed != settings.encrypt:
        was = str(sealed).lower()
        return StoreError(
            f"the local data of account {paths.account} was made with encrypt = {was}",
            remedy=f"set encrypt = {was} again; to change it, run 'zonedrive sync', then 'zonedrive"
            " logoff', change the setting, and log on",
        )
    return _wrong_key(paths)


def _wrong_key(paths: AccountPaths) -> StoreError:
    return StoreError(
        f"{paths.database} cannot be read with the key of this account",
        remedy="was the keyring emptied, or is another one open?",
    )


# ---- policies ----


def forbidden(paths: AccountPaths) -> ConfigError | None:
    """Return the error if the organization's policies forbid mounting the account, else None.

    A policy can forbid the account's service, or the way in which its local data is stored. The
    remedy deletes no data that exists only on this machine. Return None if there is no valid logon.
    """
    try:
        account = Account.load(paths)
    except (NotLoggedOn, ConfigError):
        return None
    shared, sealed, option = config.organization(paths.account), is_sealed(paths), paths.option
    file = SYSTEM_FOLDER / "config.toml"
    causes, rules, over = list[str](), list[str](), ""
    mount = [f"zonedrive mount DIR{option}"]
    must = "encrypt" in shared.closed or shared.policy.get("encrypt", sealed)
    if sealed is not None and sealed != must:
        was = str(sealed).lower()
        stored = f"the local data of account {paths.account} was made with encrypt = {was}"
        if "encrypt" in shared.closed:
            return ConfigError(
                f"a policy of the organization cannot be read, and {stored}",
                remedy=f"ask the administrator of this computer to correct {file}; pending changes"
                " are kept",
            )
        causes.append(
            marked(f"the organization's policy sets encrypt = {str(must).lower()}, but {stored}")
        )
        rules.append("encrypt")
        mount.append(f"-o encrypt={was}")
        over = f"run 'zonedrive logoff{option}', then '{account.logon_command()}'"
    try:
        shared.check_service(account.base_url, option)
    except ConfigError as wrong:
        causes.append(wrong.message)
        rules.append("base_url")
        over = wrong.remedy
    if not causes:
        return None
    try:
        here = only_here(paths)
        kept, is_sendable = here.kept, bool(here.backlog.files)
    except StoreError:
        kept, is_sendable = "an unknown number of files", True
    if not kept:
        return ConfigError("; ".join(causes), remedy=over)
    message = "; ".join([*causes, marked(f"only this machine has {kept}")])
    if not is_sendable:
        return ConfigError(
            message,
            remedy=f"ask the administrator of this computer to remove {' and '.join(rules)} from"
            f" the policies in {file} until '{' '.join(mount)}' is done and what you need is copied"
            f" elsewhere; then run 'zonedrive logoff --discard{option}'",
        )
    return ConfigError(
        message,
        remedy=f"ask the administrator of this computer to remove {' and '.join(rules)} from the"
        f" policies in {file} until '{' '.join(mount)}', 'zonedrive sync{option}' and"
        f" 'zonedrive logoff{option}' are done; pending changes are kept",
    )


# ---- locks of other commands ----


@contextmanager
def hold(paths: AccountPaths) -> Iterator[None]:
    """Prevent the account's daemon from starting while the `with` block runs.

    Raises AlreadyRunning if a daemon is running. If the lock file cannot be locked (full disk, no
    lock support), the block runs without the lock, because no daemon can start either.
    """
    taken = lock.Lock(paths.lock, paths.account)
    try:
        taken.take(None)
    except MountError:
        pass
    except OSError as wrong:
        if wrong.errno not in UNWRITABLE:
            raise
    try:
        yield
    finally:
        taken.release()


QUERIES = LocalDataQueries(
    only_here, lambda paths: is_locked(paths.lock), needs_key, hold, forbidden
)


# ---- pause of the uploads ----


def pause(paths: AccountPaths) -> Pause | None:
    """Return the current pause of the uploads, or None if there is no pause.

    The function works with and without a running daemon.
    """
    return load_pause(paths.pause)


@contextmanager
def pause_switch(paths: AccountPaths) -> Iterator[PauseSwitch]:
    """Yield the switch that pauses or resumes the uploads of an unmounted account.

    Raises AlreadyRunning if a daemon is running.
    """
    with hold(paths):
        yield PauseSwitch(paths.pause)


# ---- the disk ----


def disk_problem(paths: AccountPaths) -> str:
    """Return a problem and its remedy as text if the state folder's disk is read-only or full.

    Return "" otherwise.
    """
    if said := read_only(paths.state):
        return said
    try:
        if paths.state.exists():
            require_room(paths.state)
    except OSError as wrong:
        return f"{paths.state}: {marked(FULL)}" if wrong.errno in NO_ROOM else ""
    return ""


def read_only(folder: Path) -> str:
    """Return the problem and its remedy as text if the file system is read-only, else ""."""
    if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"{folder}: {marked(READ_ONLY)}"
    return ""


# ---- metrics ----


def outbox(paths: AccountPaths) -> dict[str, Any]:
    """Return metrics of the outbox.

    The function works with and without a running daemon. `oldest` is the time when the oldest
    waiting content was saved, in seconds since the epoch, or None if no content is waiting. A file
    that was never closed is not counted. Raises StoreError if the state cannot be read.
    """
    with reader(paths) as state:
        pending, size, _ = state.waiting()
        return {
            "pending": pending,
            "bytes": size,
            "failures": state.failures(),
            "conflicts": state.conflicts(),
            "lost": _lost_files(paths, state),
            "oldest": oldest(paths.outgoing, state.contents()),
        }


def cache(paths: AccountPaths) -> dict[str, int]:
    """Return the cache usage and the usable cache size of an unmounted account, both in bytes.

    The keys are `bytes` and `limit`. Raises ConfigError if the settings are invalid.
    """
    used, limit = _cache(paths, config.load(config_file(), paths.account))
    return {"bytes": used, "limit": limit}


def _cache(paths: AccountPaths, settings: Settings) -> tuple[int, int]:
    used = cache_usage(paths.content)
    return used, max(0, usable_bytes(paths.cache, settings.cache_size, used))


# ---- zonedrive status ----


def status(paths: AccountPaths, most: int | None = None) -> dict[str, Any]:
    """Return the status object of an unmounted account; its connection state is "offline".

    `most` limits the number of uploads in the object. If `most` is not None, `local` in the object
    describes the local-only files. If the settings are invalid, the object has a notice, and the
    limit of the cache is the default. Raises NotLoggedOn if there is no logon, ConfigError if the
    account file is not usable, StoreError if the state cannot be read, and AlreadyRunning if a
    daemon is running, starting or ending.
    """
    account = Account.load(paths)
    try:
        with _stores(paths) as stores:
            died = last_run.recorded(paths)
            found = _stored_status(paths, stores, most)
    except StoreError as wrong:
        left = Backlog()
        with suppress(StoreError):  # pending changes can be counted without the key to their names
            left = backlog(paths)
        said = f"{left} not on the service yet: {wrong.message}" if left.files else wrong.message
        raise StoreError(said, remedy=wrong.remedy) from wrong
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
    """Prevent the account's daemon from starting while the `with` block runs.

    Raises AlreadyRunning if a daemon is running.
    """
    with lock.reading(paths.lock) as is_free:
        if not is_free:
            raise lock.refusal(paths.account, lock.holder(paths.lock))
        yield


@contextmanager
def _stores(paths: AccountPaths) -> Iterator[Stores]:
    """Open the stores of an unmounted account; no daemon can start while the `with` block runs.

    Raises StoreError if the state cannot be read, and AlreadyRunning if a daemon is running.
    """
    with _no_daemon(paths):
        pass  # while a daemon is starting, the user is not asked to unlock a keyring
    box = box_of(paths)
    with _no_daemon(paths), reader(paths) as state:
        if not state.is_opened_by(box):
            raise _wrong_key(paths)
        yield state.stores(box)


def _stored_status(paths: AccountPaths, found: Stores, most: int | None) -> dict[str, Any]:
    number, policy = only_here(paths).lost, forbidden(paths)
    settings, wrong = Settings(), ""
    try:
        settings = config.load(config_file(), paths.account)
    except ConfigError as wrong_settings:  # only the limit of the cache depends on them
        wrong = wrong_settings.line()
    return Status(found).answer(
        found.intents.pending(),
        most,
        state="offline",
        cache=_cache(paths, settings),
        notices=(
            policy.line() if policy else "",
            wrong,
            damage_notice(paths.database, number),
            disk_problem(paths),
        ),
        lost=number,
        pause=pause(paths),
    ) | ({} if most is None else {"local": staying(found)})


# ---- zonedrive conflicts ----


def conflicts(paths: AccountPaths) -> list[dict[str, Any]]:
    """Return the JSON objects of the conflict copies of an unmounted account.

    Raises StoreError if the state cannot be read, and AlreadyRunning if a daemon is running.
    """
    with _stores(paths) as found:
        return conflict_objects(Status(found).conflicts())


def conflict_objects(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the JSON objects of conflict copies; `found` is a result of `Status.conflicts`."""
    return [
        {name: one[name] for name in ("path", "original", "by")} | {"at": timestamp(one["at_ns"])}
        for one in found
    ]
