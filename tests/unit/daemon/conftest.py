"""Fixtures: the paths of an account, and a desktop on the user's session bus."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.harness.bus import Bus
from zonedrive.daemon.notification_client import Desktop
from zonedrive.paths import AccountPaths


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return the paths of an account of a user with empty folders."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name.lower()))
    return AccountPaths("work")


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Yield the user's session bus, for whose answers the daemon waits long."""
    monkeypatch.setattr("zonedrive.daemon.notification_client.SECONDS", 60.0)
    running = Bus(tmp_path)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", running.address)
    yield running
    running.close()


@pytest.fixture
async def desktop() -> AsyncIterator[Desktop]:
    """Yield a running connection to the bus."""
    running = Desktop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        await trio.testing.wait_all_tasks_blocked()
        yield running
        nursery.cancel_scope.cancel()
