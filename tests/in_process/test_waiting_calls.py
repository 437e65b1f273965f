"""Calls that wait for the service: close with `close=wait`, fsync with `fsync=service`, sync."""

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.in_process.test_entry_states import virtual

WAITING = [
    pytest.param("close", marks=pytest.mark.mount("close=wait")),
    pytest.param("fsync", marks=pytest.mark.mount("fsync=service")),
]


async def limited(work: Callable[..., Awaitable[Any]], *args: object) -> Any:
    """Do the work; a wait without an end fails the test."""
    with trio.fail_after(600):
        return await work(*args)


def save(mount: VirtualMount, call: str, name: str) -> None:
    """Write a file, and make the call that waits for the service."""
    kernel = mount.client.kernel
    with (mount.root / name).open("wb", buffering=0) as file:
        file.write(b"saved\n")
        if call == "fsync":
            mount.loop.run(limited, kernel.fsync, file.fileno())
        else:
            descriptor = mount.system.dup(file.fileno())
            mount.loop.run(limited, kernel.close, descriptor)


async def make_read_only(mount: VirtualMount, value: str) -> None:
    """Make the database read-only with "ON", as a disk with errors does."""
    mount.client.parts.state.database.execute(f"PRAGMA query_only = {value}")


async def break_disk(mount: VirtualMount) -> None:
    """Make the database read-only one second later."""

    async def later() -> None:
        await trio.sleep(1)
        await make_read_only(mount, "ON")

    mount.loop.nursery.start_soon(later)


@pytest.mark.parametrize("call", WAITING)
def test_a_disk_that_becomes_read_only_during_the_upload(desk: Mounted, call: str) -> None:
    """The call fails, because the result of the upload cannot be recorded; so does `sync`."""
    mount = virtual(desk)
    mount.allow("read-only", "could not be recorded", "not sent")
    mount.deployment.fault(latency_ms=2000, method="POST", path="^/api/zones/")
    mount.loop.run(break_disk, mount)
    with pytest.raises(OSError, match="Read-only") as failed:
        save(mount, call, "a.txt")
    assert failed.value.errno == errno.EROFS
    answer = mount.loop.run(limited, mount.client.command, "sync")
    assert (answer["exit"], answer["left"]["files"]) == (1, 1)
    assert "read-only" in answer["reason"]
    mount.loop.run(make_read_only, mount, "OFF")
    mount.sync()
    assert mount.zone.read("a.txt") == b"saved\n"
    assert len(mount.zone.versions("a.txt")) == 1


@pytest.mark.mount("settle=30")
def test_sync_ends_if_the_disk_is_read_only(desk: Mounted) -> None:
    """Also a file that waits for its folder does not keep it waiting."""
    mount = virtual(desk)
    mount.allow("read-only", "could not be recorded", "not sent")
    (mount.root / "new").mkdir()
    (mount.root / "new/a.txt").write_bytes(b"saved\n")
    mount.loop.run(make_read_only, mount, "ON")
    answer = mount.loop.run(limited, mount.client.command, "sync")
    assert (answer["exit"], answer["left"]["files"]) == (1, 2)
    assert "read-only" in answer["reason"]
    mount.loop.run(make_read_only, mount, "OFF")
    mount.sync()
    assert mount.zone.read("new/a.txt") == b"saved\n"
