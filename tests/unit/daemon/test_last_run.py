"""Record of a daemon's run."""

import json
import os
from pathlib import Path

import pytest

from zonedrive.daemon import last_run
from zonedrive.daemon.last_run import Run
from zonedrive.paths import AccountPaths


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return the paths of an account whose daemon has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path))
    found = AccountPaths("default")
    found.state.mkdir(parents=True)
    return found


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff\0",
        *(json.dumps({"pid": 7, "mountpoint": "/zones"} | each).encode() for each in (
            {"seen": "yesterday"}, {"seen": "2026-13-01"}, {"seen": "9999-12-31T23:59:59-23:59"},
            {"at": "soon", "why": "it failed"}, {"why": "it failed"}, {"pid": "seven"},
        )),
    ],
)  # fmt: skip
def test_a_damaged_record_counts_as_none(paths: AccountPaths, content: bytes) -> None:
    """The next daemon starts, and writes a record of its own."""
    paths.run_record.write_bytes(content)
    last_run.keep_last_sign(paths)
    assert last_run.recorded(paths) is None
    Run(paths).begin(Path("/zones"))
    found = last_run.recorded(paths)
    assert found is not None and found.mountpoint == Path("/zones")


def test_the_reason_of_a_death_is_recorded(paths: AccountPaths) -> None:
    """The record has the mount point, the time and the reason."""
    run = Run(paths)
    run.begin(Path("/zones"))
    run.died("it failed")
    found = last_run.recorded(paths)
    assert found is not None
    assert (found.mountpoint, found.exact, found.why) == (Path("/zones"), True, "it failed")
    assert found.line.startswith("the daemon of /zones died at 20")


@pytest.mark.parametrize("folder", ["/zones", f"/{'Zonen/Ü' * 500}"])
def test_a_long_reason_needs_no_room_on_the_disk(paths: AccountPaths, folder: str) -> None:
    """The file keeps its size, also if each character of the reason takes several bytes."""
    run = Run(paths)
    run.begin(Path(folder))
    size = paths.run_record.stat().st_size
    run.died(ValueError("Ü" * 1000))
    assert paths.run_record.stat().st_size == size
    found = last_run.recorded(paths)
    assert found is not None and found.mountpoint == Path(folder)
    assert found.exact and found.why.startswith("ValueError: " + "Ü" * 50)
