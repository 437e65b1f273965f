"""Fixtures: a running cache for each test, and the key of each codec."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from zonedrive.content.cache import Cache

KEY = bytes(range(32))


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def key(request: pytest.FixtureRequest) -> bytes | None:
    """Return the key of each codec: one that encrypts, and None."""
    value: bytes | None = request.param
    return value


@pytest.fixture(autouse=True)
def _patient_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a download wait for its reader without a limit, because the machine may be busy."""
    monkeypatch.setattr("zonedrive.content.download_worker.LINGER", 1000.0)
    monkeypatch.setattr("zonedrive.content.fetcher.LINGER_WHOLE", 2000.0)


@pytest.fixture(autouse=True)
def eager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let each reader request the rest of the file at once; a parameter sets another threshold."""
    threshold: int = getattr(request, "param", 0)
    monkeypatch.setattr("zonedrive.content.reader.EAGER", threshold)
    return threshold


@pytest.fixture
async def cache(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Cache]:
    """Yield an encrypted cache with enough room."""
    made = Cache(tmp_path / "cache", KEY, 1 << 30, stall=60.0).start()
    await nursery.start(made.run)
    yield made
    await made.aclose()
