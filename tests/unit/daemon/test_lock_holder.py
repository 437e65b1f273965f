"""Signals reach only the daemon that holds the lock."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from tests.harness.waiting import eventually
from tests.unit.fuse.mounted import MemoryMount
from zonedrive.daemon import lock as lock_module
from zonedrive.daemon.lock import Lock, ask_to_listen, end_holder, holder, is_stopped, is_working
from zonedrive.errors import ZonedriveError
from zonedrive.fuse import mountpoint
from zonedrive.paths import is_locked

HOLD = """
import pathlib, signal, sys
from zonedrive.daemon.lock import Lock
if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "told" in sys.argv:
    # Blocked from the start: a signal that comes between two waits is not lost.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
lock = Lock(pathlib.Path(sys.argv[1]), "default")
lock.take(pathlib.Path("/proc"))
if "mounted" in sys.argv: lock.announce(pathlib.Path("/somewhere/a.sock"), sys.argv[-1])
if "told" in sys.argv: lock.announce(pathlib.Path("/somewhere/a.sock"), "")
print("held", flush=True)
while "told" in sys.argv:
    signal.sigwait({signal.SIGUSR1})
    print("told", flush=True)
signal.pause()
"""


class Daemon:
    """Process that holds the lock at `path`, at most until the end of the block."""

    def __init__(self, path: Path, *ways: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, *ways], stdout=subprocess.PIPE, encoding="utf-8"
        )
        try:
            self.expect("held")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def expect(self, word: str) -> None:
        """Wait for a line of the process."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"


@pytest.mark.parametrize(
    ("way", "number"), [("", signal.SIGTERM), ("deaf", signal.SIGKILL), ("stopped", signal.SIGTERM)]
)
def test_ending_the_holder(tmp_path: Path, way: str, number: int) -> None:
    """The holder gets SIGTERM, then SIGKILL if it ignores that; a stopped one is continued."""
    path = tmp_path / "daemon.lock"
    with Daemon(path, way) as daemon:
        if way == "stopped":
            daemon.process.send_signal(signal.SIGSTOP)
        end_holder(path, 0.5 if way == "deaf" else 60)
        assert not is_locked(path)
        assert daemon.process.wait(60) == -number
    end_holder(path, 0)  # nobody is there


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_mount_of_a_killed_holder_is_aborted(tmp_path: Path, is_killed: bool) -> None:
    """Otherwise the holder might wait forever for a program that waits for the mount. A holder that
    ends after SIGTERM answers its programs itself."""
    path, folder = tmp_path / "daemon.lock", tmp_path / "mnt"
    with MemoryMount(folder) as served:
        mount = mountpoint.at(folder)
        assert mount is not None
        with Daemon(path, "deaf" if is_killed else "", "mounted", mount.identity):
            end_holder(path, 0 if is_killed else 60)
        if is_killed:
            assert served.wait()[0] == "ended\n"
        else:
            assert os.listdir(folder) == []


def test_a_process_with_a_reused_pid_is_not_ended(tmp_path: Path) -> None:
    """The pid in the file of a killed daemon may belong to another process."""
    path = tmp_path / "daemon.lock"
    with subprocess.Popen(["sleep", "60"]) as somebody:
        path.write_text(f'{{"pid": {somebody.pid}, "mountpoint": "/proc"}}')
        end_holder(path, 0)
        assert not ask_to_listen(path)
        lock = Lock(tmp_path / "other", "default")
        lock.take(Path("/proc"))
        path.unlink()
        (tmp_path / "other").rename(path)
        path.write_text(f'{{"pid": {somebody.pid}, "mountpoint": "/proc"}}')
        with pytest.raises(ZonedriveError, match="cannot be ended from here"):
            end_holder(path, 0)
        lock.release()
        assert somebody.poll() is None
        somebody.kill()


def test_a_daemon_of_another_lock_is_not_ended(tmp_path: Path) -> None:
    """In another container, the pid may belong to another daemon."""
    path = tmp_path / "daemon.lock"
    with Daemon(tmp_path / "other.lock", "told") as daemon:
        lock = Lock(path, "default")
        lock.take(Path("/proc"))
        path.write_text(f'{{"pid": {daemon.process.pid}, "mountpoint": "/proc", "begun": 1}}')
        assert not ask_to_listen(path)
        with pytest.raises(ZonedriveError, match="cannot be ended from here"):
            end_holder(path, 0)
        lock.release()
        assert daemon.process.poll() is None


def test_only_a_daemon_with_a_socket_is_asked_for_a_new_one(tmp_path: Path) -> None:
    """The signal would kill a daemon that is still starting."""
    path = tmp_path / "daemon.lock"
    with Daemon(path, "") as daemon:
        assert not ask_to_listen(path)
        daemon.process.kill()
        assert daemon.process.wait(60) == -signal.SIGKILL
    with Daemon(path, "told") as daemon:
        assert ask_to_listen(path)
        daemon.expect("told")
        who = holder(path)
        assert who is not None and who.control == Path("/somewhere/a.sock")


def test_a_daemon_that_starts_meanwhile_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file is read once: a later holder may not handle the signal yet."""
    path = tmp_path / "daemon.lock"
    with Daemon(path, "told") as former:
        before = holder(path)
        former.process.kill()
        former.process.wait(60)
    with Daemon(path, "") as starting:
        found = iter([before])
        monkeypatch.setattr(lock_module, "holder", lambda path: next(found, None) or holder(path))
        assert not ask_to_listen(path)
        starting.process.send_signal(signal.SIGTERM)
        assert starting.process.wait(60) == -signal.SIGTERM


def test_states_of_a_process(tmp_path: Path) -> None:
    """Stopped, sleeping and ended processes are distinguished."""
    with Daemon(tmp_path / "daemon.lock", "") as daemon:
        assert not is_stopped(daemon.process.pid)
        daemon.process.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(daemon.process.pid))
        assert not is_working(daemon.process.pid)
    assert not is_stopped(daemon.process.pid)
    assert not is_working(daemon.process.pid)
