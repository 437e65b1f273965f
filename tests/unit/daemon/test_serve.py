"""Start of a daemon without a mount."""

import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from zonedrive.daemon.serve import ENDING_SIGNALS, Daemon


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


@pytest.mark.usefixtures("autojump_clock")
@pytest.mark.parametrize("number", ENDING_SIGNALS)
async def test_a_signal_during_the_mount_is_handled_after_it(number: signal.Signals) -> None:
    """If the signal killed the process, the mount would stay behind as a dead one."""
    assert await told(number, lambda *_: None) == [number]


@pytest.mark.usefixtures("autojump_clock")
async def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    """A mount that nohup(1) started survives the end of its terminal, but not SIGTERM."""
    assert not await told(signal.SIGHUP, signal.SIG_IGN)
    assert await told(signal.SIGTERM, signal.SIG_IGN) == [signal.SIGTERM]
