"""Invalidations that do not reach the kernel, because there is no session."""

import math

import pytest
import trio

from zonedrive.fuse import invalidate
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation
from zonedrive.supervisor import Supervisor

NO_NUMBER = 1 << 70  # more than the kernel's numbers have bits


async def test_the_log_has_no_names(caplog: pytest.LogCaptureFixture) -> None:
    """A failed invalidation is logged with its type and the number of the inode or the folder."""
    send, source = trio.open_memory_channel[Invalidation](math.inf)
    for parent in (7, NO_NUMBER):
        send.send_nowait(EntryChanged(parent, b"secret"))
        send.send_nowait(EntryGone(parent, b"secret", 9))
        send.send_nowait(InodeChanged(parent, attr_only=True))
    send.close()
    await invalidate.run(source, Supervisor())
    for kind in ("EntryChanged", "EntryGone", "InodeChanged"):
        assert f"the kernel rejected {kind} of inode 7 (" in caplog.text
        assert f"cannot send {kind} of inode {NO_NUMBER} to the kernel" in caplog.text
    assert "secret" not in caplog.text
    caplog.clear()
