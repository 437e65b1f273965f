"""A running cache for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from zonedrive.content.cache import Cache

KEY = bytes(range(32))


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def key(request: pytest.FixtureRequest) -> bytes | None:
    """The key of each codec."""
    value: bytes | None = request.param
    return value


@pytest.fixture(autouse=True)
def _patient_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A download waits for its reader, however long a busy machine lets that one stand still."""
    monkeypatch.setattr("zonedrive.content.download_worker.LINGER", 1000.0)
    monkeypatch.setattr("zonedrive.content.fetcher.LINGER_WHOLE", 2000.0)


@pytest.fixture
async def cache(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Cache]:
    """A sealed cache with room enough."""
    made = Cache(tmp_path / "cache", KEY, 1 << 30, stall=60.0).start()
    await nursery.start(made.run)
    yield made
    await made.aclose()
