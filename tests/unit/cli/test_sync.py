"""Messages of `zonedrive sync` during the wait."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from zonedrive.cli.sync import HELD_SECONDS, LINES, Held
from zonedrive.fuse import mountpoint


class Clock:
    """Clock controlled by a test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time, as time.monotonic does."""
        return self.now


def test_an_open_file_is_reported_once() -> None:
    """A file is reported after some seconds, and not if it is closed by then."""
    clock = Clock()
    held = Held(clock)
    assert held.at({"held": ["/m/a", "/m/b"]}) == []
    clock.now = HELD_SECONDS / 2
    assert held.at({"held": ["/m/a", "/m/c"]}) == []
    clock.now = HELD_SECONDS
    both = {"held": ["/m/a", "/m/c"]}
    assert held.at(both) == ["waiting for a program to close /m/a"]
    assert held.at(both) == []
    clock.now = 2 * HELD_SECONDS
    assert held.at(both) == ["waiting for a program to close /m/c"]
    clock.now = 9 * HELD_SECONDS
    assert held.at(both) == held.at({"held": ["/m/c"]}) == held.at({}) == []


def test_many_open_files_are_a_few_lines() -> None:
    """Further files are only counted."""
    clock = Clock()
    held, many = Held(clock), {"held": [f"/m/{number}" for number in range(LINES + 2)]}
    held.at(many)
    clock.now = HELD_SECONDS
    lines = held.at(many)
    assert len(lines) == LINES + 1
    assert lines[-1] == "and for 2 more files to be closed"


def test_many_programs_are_a_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell and its child processes can have the same file open."""
    monkeypatch.setattr(mountpoint, "holders", lambda path: [f"sh ({pid})" for pid in range(5)])
    clock = Clock()
    held, one = Held(clock), {"held": ["/m/a"]}
    held.at(one)
    clock.now = HELD_SECONDS
    said = "waiting for sh (0) and sh (1) and 3 more programs to close /m/a"
    assert held.at(one) == [said]


def test_readers_of_an_open_file_are_not_named(tmp_path: Path) -> None:
    """Only the writer is named of the programs that have a file open."""
    path = tmp_path / "a file"
    path.touch()
    with path.open("rb") as reading, path.open("ab") as writing:
        readers = subprocess.Popen(["sleep", "60"], stdin=reading)
        writer = subprocess.Popen(["sleep", "60"], stdout=writing)
    try:
        expected = [f"sleep ({writer.pid})"]
        eventually(lambda: mountpoint.holders(path) == expected, what="it is found")
        assert mountpoint.holders(tmp_path / "another") == []
    finally:
        for process in (readers, writer):
            process.kill()
            process.wait()
    assert mountpoint.holders(path) == []
    with path.open("ab"):
        assert f"({os.getpid()})" not in str(mountpoint.holders(path)), "oneself is no other"


def test_a_reader_of_a_removed_file_is_named(tmp_path: Path) -> None:
    """The removal waits for any program that has the file open."""
    path = tmp_path / "a file"
    path.touch()
    with path.open("rb") as reading:
        reader = subprocess.Popen(["sleep", "60"], stdin=reading)
    try:
        assert mountpoint.holders(path) == []
        path.unlink()
        expected = [f"sleep ({reader.pid})"]
        eventually(lambda: mountpoint.holders(path) == expected, what="it is found")
    finally:
        reader.kill()
        reader.wait()
