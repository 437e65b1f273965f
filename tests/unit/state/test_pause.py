"""Pause of the uploads and its file."""

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from zonedrive.state.pause import LONGEST_S, Pause, PauseSwitch, load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pause.json"


def test_a_pause_is_stored(path: Path) -> None:
    """A later process sees the pause, and its end."""
    switch = PauseSwitch(path)
    assert switch.current is None
    assert not switch.end()
    switch.begin()
    again = PauseSwitch(path)
    assert again.current == switch.current
    assert again.current is not None
    assert again.current.line == "uploads are paused"
    assert again.end()
    assert load(path) is None
    assert not path.exists()


def test_a_pause_ends_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its end a pause counts as over, and its file is removed with one notification."""
    switch, told = PauseSwitch(path), list[bool]()
    switch.begin(60)
    switch.changes.add(lambda: told.append(switch.current is None))
    switch.end_if_over()
    assert switch.current is not None
    assert 59 < switch.current.seconds_left <= 60
    end = datetime.fromtimestamp(switch.current.until_ns // 10**9).astimezone()
    assert switch.current.line == f"uploads are paused until {end:%Y-%m-%d %H:%M:%S}"
    later = time.time_ns() + 61 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert switch.current is None
    assert Pause(1, 2).seconds_left == 0
    assert load(path) is None
    assert told == []
    switch.end_if_over()
    switch.end_if_over()
    assert told == [True]
    assert not path.exists()


def test_a_second_pause_replaces_the_end(path: Path) -> None:
    """The time of the begin stays that of the first one."""
    switch = PauseSwitch(path)
    switch.begin(60)
    first = switch.current
    switch.begin()
    assert first is not None
    assert load(path) == switch.current == Pause(first.since_ns)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"\xff",
        b'{"since_ns": "x"}',
        b'{"since_ns": 1, "until_ns": 1e300}',
        b'{"since_ns": 1, "until_ns": 999999999999999999999999999}',
    ],
)
def test_an_unreadable_file_is_a_pause(path: Path, content: bytes) -> None:
    """The user has asked for a pause; `resume` ends it."""
    path.write_bytes(content)
    switch = PauseSwitch(path)
    assert switch.current == Pause(0)
    assert switch.end()
    assert load(path) is None


def test_a_pause_that_cannot_be_stored_does_not_begin(tmp_path: Path) -> None:
    """Uploads would continue after a restart, which the user would not expect."""
    path = tmp_path / "a file/pause.json"
    path.parent.write_bytes(b"")
    switch = PauseSwitch(path)
    with pytest.raises(OSError, match=r"."):
        switch.begin()
    assert switch.current is None


def test_the_end_of_a_pause_survives_a_power_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is synced after the removal of the file."""
    switch, synced, fsync = PauseSwitch(path), [], os.fsync
    switch.begin()

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.path.isdir(descriptor), path.exists()))  # noqa: PTH112 - a descriptor

    monkeypatch.setattr(os, "fsync", noted)
    switch.end()
    assert synced == [(True, False)]


def test_the_longest_pause_has_a_date(path: Path) -> None:
    switch = PauseSwitch(path)
    switch.begin(LONGEST_S)
    assert load(path) == switch.current
