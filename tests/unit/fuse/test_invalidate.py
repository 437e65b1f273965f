"""Invalidations that do not reach the kernel, because there is no session."""

import math
import threading

import pyfuse3
import pytest
import trio
import trio.testing

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


async def test_a_call_that_waits_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the kernel reads a page of inode 7, the pages of other inodes are dropped."""
    calls: list[int] = []
    is_waiting, is_read, others = trio.Event(), threading.Event(), trio.Event()

    def wait(ino: int, _: bool) -> None:
        calls.append(ino)
        trio.from_thread.run_sync((is_waiting if ino == 7 else others).set)
        if ino == 7:
            is_read.wait()

    monkeypatch.setattr(pyfuse3, "invalidate_inode", wait)
    send, source = trio.open_memory_channel[Invalidation](math.inf)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(invalidate.run, source, Supervisor())
        try:
            for _ in range(3 * invalidate.THREADS):
                send.send_nowait(InodeChanged(7, attr_only=False))
                await trio.testing.wait_all_tasks_blocked()  # one batch each
            send.send_nowait(InodeChanged(8, attr_only=False))
            with trio.fail_after(20):
                await is_waiting.wait()
                await others.wait()
            assert sorted(calls) == [7, 8]
        finally:
            is_read.set()
            send.close()
    assert calls.count(7) > 1
