"""At most one daemon per account."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from zonedrive.daemon import lock as lock_module
from zonedrive.daemon import serve
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.lock import Lock, holder, reading
from zonedrive.errors import AlreadyRunning, NotLoggedOn
from zonedrive.fuse import mountpoint
from zonedrive.logon.account import Account
from zonedrive.paths import AccountPaths, is_locked

HOLD = """
import sys, pathlib
from zonedrive.daemon.lock import Lock
Lock(pathlib.Path(sys.argv[1]), "default").take(pathlib.Path(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


def _hold(path: Path, folder: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, path, folder],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """The error names process, mount point and remedy."""
    path = tmp_path / "state" / "daemon.lock"
    with _hold(path, "/proc") as first:  # a mounting point that exists
        with pytest.raises(AlreadyRunning) as refused:
            Lock(path, "default").take(tmp_path)
        assert f"process {first.pid}" in refused.value.line()
        assert "zonedrive unmount /proc" in refused.value.remedy
        assert is_locked(path)
        first.kill()


def test_a_killed_daemon_releases_the_lock(tmp_path: Path) -> None:
    """After SIGKILL the next daemon can start."""
    path = tmp_path / "daemon.lock"
    with _hold(path, "/proc") as first:
        first.kill()
    assert not is_locked(path)
    lock = Lock(path, "default")
    lock.take(tmp_path)
    found = holder(path)
    assert found is not None and (found.pid, found.mountpoint) == (os.getpid(), tmp_path)
    lock.release()
    assert not is_locked(path)
    assert holder(path) is None


def test_the_lock_is_released_on_a_disk_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file still names the former holder, but the lock is free, and no error hides a result."""
    path = tmp_path / "daemon.lock"
    lock = Lock(path, "default")
    lock.take(tmp_path)

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "ftruncate", refuse)
    lock.release()
    assert not is_locked(path)


def test_an_ending_daemon_is_waited_for(tmp_path: Path) -> None:
    """`zonedrive mount` right after `fusermount3 -u` waits for the end of the first daemon."""
    path = tmp_path / "daemon.lock"
    with _hold(path, "/nowhere/mounted") as first:
        end = threading.Thread(target=lambda: first.communicate(timeout=60))
        lock = Lock(path, "default")
        taking = threading.Thread(target=lambda: lock.take(tmp_path))
        taking.start()
        end.start()
        taking.join(60)
        end.join(60)
    assert eventually(lambda: holder(path)) is not None
    lock.release()


def test_a_lock_file_that_was_deleted_during_the_wait_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logoff deletes the file while it holds the lock, and the next daemon creates another."""
    path = tmp_path / "state" / "daemon.lock"
    former, lock = Lock(path, "default"), Lock(path, "default")
    former.take(None)

    def log_off(_: float) -> None:
        shutil.rmtree(path.parent)
        former.release()

    monkeypatch.setattr(time, "sleep", log_off)
    lock.take(Path("/proc"))
    monkeypatch.undo()
    assert is_locked(path)
    with pytest.raises(AlreadyRunning):
        Lock(path, "default").take(tmp_path)
    lock.release()


def test_a_mount_that_waits_for_a_logoff_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is loaded after the wait, when its folder is gone."""
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    paths = AccountPaths("default")
    Account(name="default", base_url="https://zones.example", username="alice").save(paths)
    former, made = Lock(paths.lock, "default"), list[Account]()
    former.take(None)

    def log_off(_: float) -> None:
        shutil.rmtree(paths.state)
        former.release()

    monkeypatch.setattr(time, "sleep", log_off)
    lock, folder = Lock(paths.lock, "default"), tmp_path / "zones"
    folder.mkdir()

    def make(account: Account) -> Parts:
        made.append(account)
        raise AssertionError

    with pytest.raises(NotLoggedOn):
        serve._opened(serve.Start(paths, os.fspath(folder), ()), lock, make)
    assert not made
    lock.release()


def test_the_identity_of_the_mount_of_a_dead_daemon_is_ignored(tmp_path: Path) -> None:
    """Another mount may have it."""
    path, proc = tmp_path / "daemon.lock", mountpoint.at(Path("/proc"))
    assert proc is not None
    lock = Lock(path, "default")
    lock.take(Path("/former"))
    lock.announce(tmp_path / "a.sock", proc.identity)
    found, said = holder(path), path.read_bytes()
    assert found is not None and (found.mountpoint, found.is_mounted) == (Path("/proc"), True)
    lock.release()
    path.write_bytes(said)
    found = holder(path)
    assert found is not None and (found.mountpoint, found.is_mounted) == (Path("/former"), False)


def test_a_damaged_lock_file_is_ignored(tmp_path: Path) -> None:
    """Invalid content is not an error."""
    path = tmp_path / "daemon.lock"
    for content in (b"", b"{", b"[]", b'{"pid": "x", "mountpoint": "/"}', b"\xff"):
        path.write_bytes(content)
        assert holder(path) is None
    assert is_locked(tmp_path / "missing") is False


def test_the_refusal_distinguishes_ending_and_starting_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the command that ends the daemon."""
    monkeypatch.setattr(lock_module, "LEAVING_SECONDS", 0.0)
    path = tmp_path / "daemon.lock"
    lock = Lock(path, "default")
    lock.take(Path("/nowhere/My Zones"))
    end = "'zonedrive unmount --now '/nowhere/My Zones'' ends it"
    with pytest.raises(AlreadyRunning, match="is starting") as refused:
        Lock(path, "default").take(tmp_path)
    assert end in refused.value.line()
    for name in ("/run/somewhere.sock", "/a"):  # what was there before is longer
        lock.announce(Path(name), "")
        found = holder(path)
        assert found is not None and found.control == Path(name)
    with pytest.raises(AlreadyRunning, match="still serves what was mounted") as refused:
        Lock(path, "default").take(tmp_path)
    assert end in refused.value.line()
    lock.release()


def test_a_daemon_waits_for_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon starts when the readers are done, and is not refused as a second daemon is."""
    monkeypatch.setattr(lock_module, "TEST_SECONDS", 0.0)
    path = tmp_path / "daemon.lock"
    with _hold(path, "/proc") as first:  # where something is mounted: no daemon that is leaving
        with reading(path) as is_free:
            assert not is_free
        first.kill()
    before = path.stat().st_mtime_ns, path.read_bytes()
    tried, taken = threading.Event(), threading.Event()
    monkeypatch.setattr("zonedrive.daemon.lock.time.sleep", lambda _: tried.set())
    lock = Lock(path, "default")

    def take() -> None:
        lock.take(tmp_path)
        taken.set()

    with reading(path) as is_free:
        assert is_free
        assert not is_locked(path), "two may read"
        taking = threading.Thread(target=take)
        taking.start()
        assert tried.wait(30)
        assert not taken.is_set()
        assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert taken.wait(30)
    taking.join()
    assert is_locked(path)
    lock.release()


def test_a_refusal_because_of_a_reader_names_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file may still name the last daemon, which was killed."""
    monkeypatch.setattr(lock_module, "LEAVING_SECONDS", 0.0)
    path = tmp_path / "daemon.lock"
    with _hold(path, "/nowhere/mounted") as first:
        first.kill()
    assert holder(path) is not None
    with reading(path), pytest.raises(AlreadyRunning, match="still reading the data") as refused:
        Lock(path, "default").take(tmp_path)
    assert "process" not in refused.value.line()
