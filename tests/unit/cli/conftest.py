"""Private folders for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.stand_in import StandIn, daemon, log_on


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(folder / name.lower()))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def stand_in(home: Path) -> Iterator[StandIn]:
    """Yield a stand-in for the daemon of the default account."""
    with daemon(log_on(), Path("/proc")) as running:
        yield running
