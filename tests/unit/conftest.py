"""Fixtures: the databases of an account, and its state."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.disk import Disk
from zonedrive.state.local_state import LocalState


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield databases in new folders; all opened files are closed at the end."""
    (tmp_path / "outgoing").mkdir()
    (tmp_path / "cache").mkdir()
    found = Disk(tmp_path)
    yield found
    found.close()


@pytest.fixture
def state(disk: Disk) -> LocalState:
    """Return the state of an account."""
    return disk.start()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let failed requests be repeated at once, as often as usual."""
    monkeypatch.setattr("zonedrive.remote.retry.Backoff.ceiling", lambda *_: 0.0)


@pytest.fixture
def as_root() -> None:
    """Fail unless root runs the test, which acts as a second user or mounts a file system."""
    assert os.geteuid() == 0, "only root can act as a second user or mount a file system"
