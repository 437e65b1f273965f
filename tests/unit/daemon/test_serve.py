"""Start of a daemon without a mount."""

import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from zonedrive.daemon.serve import ENDING_SIGNALS, Daemon


@pytest.mark.parametrize("number", ENDING_SIGNALS)
async def test_a_signal_during_the_mount_is_handled_after_it(
    autojump_clock: trio.abc.Clock, number: signal.Signals
) -> None:
    """If the signal killed the process, the mount would stay behind as a dead one."""
    daemon, told = cast(Any, Daemon.__new__(Daemon)), list[int]()
    daemon._options, daemon._announce_in_lock = None, lambda: None
    daemon._server = SimpleNamespace(listen=lambda: None, hide=lambda: None)
    daemon._session = SimpleNamespace(attach=lambda options: signal.raise_signal(number))

    async def serve(signals: AsyncIterator[int]) -> None:
        with trio.move_on_after(1):
            told.append(await anext(signals))

    daemon._serve = serve
    usual = signal.signal(number, lambda *_: None)
    try:
        await daemon.main()
    finally:
        signal.signal(number, usual)
    assert told == [number]
