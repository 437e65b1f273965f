"""Start of a FUSE session without a kernel."""

import os
import subprocess
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from zonedrive.errors import MountError
from zonedrive.fuse import mount
from zonedrive.fuse.mount import ANSWER_SECONDS, Session
from zonedrive.supervisor import Supervisor


@pytest.mark.parametrize("hung", ["parent", "mount"])
async def test_a_mount_that_hangs_is_reported_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock, hung: str
) -> None:
    """The parent folder may be on another file system, which does not answer either."""
    files, go_on = cast(Any, SimpleNamespace(invalidations=None)), threading.Event()
    session = Session(files, tmp_path / "mount", "https://memory.example", Supervisor())

    def stat(path: Path) -> SimpleNamespace:
        if (path == tmp_path) == (hung == "parent"):
            go_on.wait(60)
        return SimpleNamespace(st_dev=1)

    async def answer_late() -> None:
        await trio.sleep(2 * ANSWER_SECONDS)
        go_on.set()

    monkeypatch.setattr(mount, "os", SimpleNamespace(stat=stat, statvfs=stat))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_late)
        with pytest.raises(MountError, match="did not answer"):
            await session._try()
        assert trio.current_time() - began == pytest.approx(ANSWER_SECONDS)


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_session_can_be_stopped_before_the_mount_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock, is_early: bool
) -> None:
    """A signal during the start, or before it, ends the session without an error and at once."""
    files, go_on = cast(Any, SimpleNamespace(invalidations=None)), threading.Event()
    session = Session(files, tmp_path / "mount", "https://memory.example", Supervisor())
    monkeypatch.setattr(mount, "os", SimpleNamespace(stat=lambda _: go_on.wait(60)))
    assert not session.is_stopped
    began = trio.current_time()
    try:
        async with trio.open_nursery() as nursery:
            if is_early:
                session.stop()
            nursery.start_soon(session._try)
            if not is_early:
                await trio.testing.wait_all_tasks_blocked()
                session.stop()
    finally:
        go_on.set()
    assert session.is_stopped
    assert trio.current_time() == began


def test_errors_of_a_mount_are_read_without_a_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output of a child process such as fusermount3 is captured in memory."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    said: list[str] = []
    with mount._captured_stderr(said):
        os.write(2, b"fuse: denied\n")
        subprocess.run(["sh", "-c", "echo fusermount3: denied >&2"], check=True)
    assert said == ["fuse: denied", "fusermount3: denied"]
