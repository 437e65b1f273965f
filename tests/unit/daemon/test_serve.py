"""Start of a daemon without a mount."""

import errno
import fcntl
import os
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from zonedrive.config import Settings
from zonedrive.daemon import compose
from zonedrive.daemon.serve import Daemon
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, save_bearer
from zonedrive.logon.secrets import FileStore, Secret
from zonedrive.paths import AccountPaths


async def told(number: signal.Signals, disposition: Any) -> list[int]:
    """Return the signals that a daemon handles if `number` comes while it mounts."""
    daemon, found = cast(Any, Daemon.__new__(Daemon)), list[int]()
    daemon._options, daemon._announce_in_lock = None, lambda: None
    daemon._server = SimpleNamespace(listen=lambda: None, hide=lambda: None)
    daemon._session = SimpleNamespace(attach=lambda options: signal.raise_signal(number))

    async def serve(signals: AsyncIterator[int]) -> None:
        with trio.move_on_after(1):
            found.append(await anext(signals))

    daemon._serve = serve
    usual = signal.signal(number, disposition)
    try:
        await daemon.main()
    finally:
        signal.signal(number, usual)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_during_the_mount_is_handled_after_it(
    autojump_clock: trio.abc.Clock, number: signal.Signals
) -> None:
    """If the signal killed the process, the mount would stay behind as a dead one."""
    assert await told(number, lambda *_: None) == [number]


async def test_a_signal_that_the_parent_ignores_stays_ignored(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A mount that nohup(1) started survives the end of its terminal, but not SIGTERM."""
    assert not await told(signal.SIGHUP, signal.SIG_IGN)
    assert await told(signal.SIGTERM, signal.SIG_IGN) == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGTERM, signal.SIGHUP], None),
        ([signal.SIGHUP, signal.SIGTERM], None),
        ([signal.SIGHUP, signal.SIGHUP], None),
        ([signal.SIGINT, signal.SIGINT], 128 + signal.SIGINT),
        ([signal.SIGTERM, signal.SIGHUP, signal.SIGTERM], 128 + signal.SIGTERM),
    ],
)
async def test_only_a_repeated_sigterm_or_sigint_ends_an_unmount(
    monkeypatch: pytest.MonkeyPatch, numbers: list[signal.Signals], code: int | None
) -> None:
    """The end of a session sends several signals; an exit at once would lose what is open."""
    daemon, codes, stops, died = cast(Any, Daemon.__new__(Daemon)), list[int](), [], list[str]()
    daemon._received = set()
    daemon._session = SimpleNamespace(stop=lambda: stops.append(1))
    daemon._record = SimpleNamespace(died=died.append)
    monkeypatch.setattr(os, "_exit", codes.append)

    async def signals() -> AsyncIterator[int]:
        for number in numbers:
            yield number

    await daemon._watch_signals(signals())
    assert stops
    assert codes == ([] if code is None else [code])
    assert len(died) == len(codes)


async def test_a_full_disk_during_the_start_leaves_no_dead_mount() -> None:
    """The daemon ends, and every access to the folder would fail."""
    daemon, mounts = cast(Any, Daemon.__new__(Daemon)), set[str]()
    daemon._options, daemon._server = None, SimpleNamespace(listen=lambda: None, hide=lambda: None)
    daemon._session = SimpleNamespace(
        attach=lambda options: mounts.add("mount"), close=mounts.clear, identity="mount"
    )

    def announce(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    daemon._lock = SimpleNamespace(announce=announce)
    daemon._server.path = None
    with pytest.raises(OSError, match="No space"):
        await daemon.main()
    assert not mounts


async def test_a_logon_at_the_same_time_does_not_overwrite_the_new_key(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both change the same file, so the first mount creates the key under the account's lock."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    account = Account(name="work", base_url="https://zones.example", username="alice")
    account.save(paths)
    store, write, is_held = FileStore(paths.secrets_file), FileStore.set, list[bool]()
    save_bearer(store, Bearer("b", "token"))

    def watched(self: FileStore, name: str, value: Secret) -> None:
        folder = os.open(paths.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held.append(False)
        except BlockingIOError:
            is_held.append(True)
        finally:
            os.close(folder)
        write(self, name, value)

    monkeypatch.setattr(FileStore, "set", watched)
    parts = compose.build(account, Settings(), paths)
    await parts.files.aclose()
    parts.state.database.close()
    assert is_held == [True]
    assert store.get("key") is not None
