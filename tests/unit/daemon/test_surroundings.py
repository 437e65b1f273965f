"""Daemon in its environment: service manager, log, core dumps and parent process."""

import errno
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from tests.harness.waiting import eventually
from zonedrive.daemon import compose, daemonize, logs
from zonedrive.daemon.service_manager import READY_SECONDS, Notifier
from zonedrive.errors import MountError, NotLoggedOn
from zonedrive.logon.account import Account
from zonedrive.paths import AccountPaths


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the socket of a fake service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(os.fspath(tmp_path / "n"))
        listening.settimeout(60)
        yield listening


async def test_ready_and_stopping_are_reported(manager: socket.socket) -> None:
    """Type=notify works: ready when the mount answers, stopping at the end."""
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    await notifier.ready("/z is mounted")
    notifier.status("syncing")
    notifier.stopping()
    assert manager.recv(1000) == b"READY=1\nSTATUS=/z is mounted"
    assert manager.recv(1000) == b"STATUS=syncing"
    assert manager.recv(1000).startswith(b"STOPPING=1\n")


def fill(manager: socket.socket) -> None:
    """Fill the queue of the service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, suppress(BlockingIOError):
        other.setblocking(False)
        while other.sendto(b"STATUS=x", manager.getsockname()):
            pass


def received(manager: socket.socket) -> list[bytes]:
    """Return the messages in the queue of the service manager."""
    found = []
    manager.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            found.append(manager.recv(1000))
    return found


async def test_a_busy_manager_learns_that_the_mount_is_ready(
    manager: socket.socket, autojump_clock: MockClock
) -> None:
    """Without the message, systemd would end a working mount after the start timeout."""
    fill(manager)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Notifier({"NOTIFY_SOCKET": manager.getsockname()}).ready, "online")
        await trio.sleep(READY_SECONDS / 2)
        assert set(received(manager)) == {b"STATUS=x"}
    assert received(manager) == [b"READY=1\nSTATUS=online"]


def test_a_busy_manager_learns_that_a_start_takes_longer(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the message, systemd would end a long recovery, and begin it again."""
    fill(manager)
    pauses = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: received(manager))
    monkeypatch.setattr("zonedrive.daemon.service_manager.time", pauses)
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).extend_start("opening", 60)
    assert received(manager) == [b"EXTEND_TIMEOUT_USEC=60000000\nSTATUS=opening"]


async def test_a_manager_that_hangs_does_not_stop_the_mount(
    manager: socket.socket, autojump_clock: MockClock
) -> None:
    """Files can be read meanwhile, and an unmount is possible after a few seconds."""
    fill(manager)
    began = trio.current_time()
    await Notifier({"NOTIFY_SOCKET": manager.getsockname()}).ready("online")
    assert trio.current_time() - began == pytest.approx(READY_SECONDS)


async def test_an_abstract_socket_address(tmp_path: Path) -> None:
    """In containers the address begins with @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0zonedrive-test-{os.getpid()}")
        listening.settimeout(60)
        await Notifier({"NOTIFY_SOCKET": f"@zonedrive-test-{os.getpid()}"}).ready("x")
        assert listening.recv(1000).startswith(b"READY=1")


async def test_the_watchdog_signal(manager: socket.socket, autojump_clock: MockClock) -> None:
    """WATCHDOG=1 is sent three times per interval."""
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "3000000"}
    notifier = Notifier(environment)
    with trio.move_on_after(2.5):
        await notifier.watchdog()
    assert [manager.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3


async def test_without_a_service_manager_nothing_is_sent(tmp_path: Path) -> None:
    """Nothing is sent without a service manager, or after its end."""
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        notifier = Notifier(environment)
        await notifier.ready("x")
        await notifier.watchdog()
    other = Notifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    assert other.watchdog_seconds is None


async def test_a_daemon_without_free_descriptors_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that cannot be sent must not prevent the orderly end of the mount."""

    def too_many(*_arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    notifier = Notifier({"NOTIFY_SOCKET": "/run/nobody"})
    monkeypatch.setattr("zonedrive.daemon.service_manager.socket.socket", too_many)
    await notifier.ready("x")
    notifier.stopping()


@pytest.mark.parametrize("text", ["0", "²", "-1", "9" * 400, ""])
def test_a_watchdog_interval_without_a_meaning(text: str) -> None:
    """With an interval of 0, the watchdog signal would be sent without a pause."""
    assert Notifier({"WATCHDOG_USEC": text}).watchdog_seconds is None


def test_a_background_daemon_is_detached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The daemon is independent of the files, session and service manager of its parent."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "OTHER"):
        monkeypatch.setenv(name, "x")
    seen = tmp_path / "seen"

    def serve(pipe: daemonize.Pipe) -> int:
        standard = [str(Path(f"/proc/self/fd/{number}").readlink()) for number in range(3)]
        found = {
            "environment": dict(os.environ), "folder": str(Path.cwd()), "standard": standard,
            "session": os.getsid(0) == os.getpid(), "open": len(os.listdir("/proc/self/fd")),
        }  # fmt: skip
        seen.write_text(json.dumps(found))
        return 7

    account = AccountPaths("nobody-at-all")
    with seen.with_name("of the starter").open("wb") as held:
        os.set_inheritable(held.fileno(), True)
        with pytest.raises(MountError, match="ended with status 7 before it was ready"):
            daemonize.start(account, tmp_path, serve)
    found = json.loads(seen.read_text())
    assert found["environment"]["OTHER"] == "x"
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & found["environment"].keys()
    assert found["folder"] == "/"
    assert found["standard"] == [os.devnull, str(account.log), str(account.log)]
    assert found["session"]
    assert found["open"] == 5  # those three, the pipe, and the folder that is listed


def test_the_process_cannot_be_dumped() -> None:
    """Core files and debuggers cannot read the keys of the daemon."""
    text = (
        "import ctypes, resource; from zonedrive.process_setup import forbid_dumps; forbid_dumps();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    said = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, encoding="utf-8", check=True
    )
    assert said.stdout == "0 (0, 0)\n"


LOG = """
import logging, os, sys
from pathlib import Path
from zonedrive.daemon import logs
logs.MAX_BYTES = 2000
logs.to_file(Path(sys.argv[1]))
logs.add_anonymous(Path(sys.argv[1]))
for number in range(100):
    logging.getLogger("zonedrive.x").info("message %d", number)
    os.write(2, b"from C\\n")
logging.getLogger("httpx").info("GET https://service/secret")
logging.getLogger("zonedrive.x").info("name \\udcff")
"""


def test_the_log_is_private_bounded_and_complete(tmp_path: Path) -> None:
    """Mode 0600, rotated, with output of C libraries, without the address of every request."""
    path = tmp_path / "state" / "daemon.log"
    subprocess.run([sys.executable, "-c", LOG, path], check=True)
    files = sorted(path.parent.glob("daemon.log*"))
    assert [each.name for each in files] == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    assert stat.S_IMODE(logs.anonymous(path).stat().st_mode) == 0o600
    assert b"secret" not in logs.anonymous(path).read_bytes()
    for each in files:
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        assert each.stat().st_size < 4000
        assert b"from C" in each.read_bytes()
        assert b"secret" not in each.read_bytes()
    assert "\\udcff" in path.read_text()


REMOVED = """
import logging, os, shutil, sys
from pathlib import Path
from zonedrive.daemon import logs
path = Path(sys.argv[1])
logs.to_file(path)
logs.add_anonymous(path)
log = logging.getLogger("zonedrive.x")
log.info("message 0")
path.unlink()
logs.anonymous(path).rename(path.with_name("former"))
log.info("message 1")
os.write(2, b"from C\\n")
for each in (path, logs.anonymous(path)):
    assert "message 1" in each.read_text() and "message 0" not in each.read_text()
    assert each.stat().st_mode & 0o777 == 0o600
assert "from C" in path.read_text()
shutil.rmtree(path.parent)
log.info("message 2")
assert not path.parent.exists()
"""


def test_a_removed_log_is_created_again(tmp_path: Path) -> None:
    """The next record creates the file, but not a folder that a logoff has deleted."""
    path = tmp_path / "state" / "daemon.log"
    subprocess.run([sys.executable, "-c", REMOVED, path], check=True)


def test_the_parent_gets_the_error_of_the_daemon(tmp_path: Path) -> None:
    """The command raises the error of the background process."""
    account = AccountPaths("nobody-at-all")
    with pytest.raises(NotLoggedOn, match="not logged on"):
        daemonize.start(account, tmp_path, partial(daemonize.run, account, str(tmp_path), ()))


def test_a_daemon_that_dies_silently_is_reported(tmp_path: Path) -> None:
    """The error names the log, which has the traceback."""

    def killed(pipe: daemonize.Pipe) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def broken(pipe: daemonize.Pipe) -> int:
        raise KeyboardInterrupt

    account = AccountPaths("nobody-at-all")
    for serve, why in ((killed, "was ended by SIGKILL"), (broken, "ended with status 1")):
        with pytest.raises(MountError, match=f"{why} before it was ready") as silent:
            daemonize.start(account, tmp_path, serve)
        assert "daemon.log" in silent.value.remedy
    assert "KeyboardInterrupt" in account.log.read_text()


def test_a_daemon_that_hangs_at_its_start_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with an error and leaves no process."""
    number = tmp_path / "number"

    def hang(pipe: daemonize.Pipe) -> int:
        number.write_text(str(os.getpid()))
        signal.pause()
        return 0

    def look(*_: object) -> tuple[list[int], list[int], list[int]]:
        eventually(number.read_text, what="the daemon runs")
        return [], [], []

    monkeypatch.setattr("zonedrive.daemon.daemonize.select.select", look)
    with pytest.raises(MountError, match="did not answer within"):
        daemonize.start(AccountPaths("nobody-at-all"), tmp_path, hang)
    pid = int(number.read_text())
    eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 60, what="the daemon has ended")


def test_a_recovery_may_take_longer_than_other_starts(
    manager: socket.socket, paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each start were ended during the repair of a large database, no mount would succeed."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    folder, is_waiting = tmp_path / "Zones", tmp_path / "waiting"
    folder.mkdir()
    Account(name="work", base_url="https://zones.example", username="alice").save(paths)
    waits, address = list[float](), manager.getsockname()

    def recover(*_: object) -> None:
        eventually(is_waiting.exists, 60)
        raise MountError("recovered")

    def look(files: list[int], _: object, __: object, seconds: float) -> object:
        waits.append(seconds)
        if seconds > daemonize.START_SECONDS:
            is_waiting.touch()
        return select.select(files, [], [], 60)

    def serve(pipe: daemonize.Pipe) -> int:
        monkeypatch.setattr(compose, "open_state", recover)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        return daemonize.run(paths, os.fspath(folder), (), pipe)

    monkeypatch.setattr(daemonize, "select", SimpleNamespace(select=look))
    with pytest.raises(MountError, match="recovered"):
        daemonize.start(paths, folder, serve)
    assert waits[0] <= daemonize.START_SECONDS < waits[1] <= daemonize.RECOVERY_SECONDS
    extended = f"EXTEND_TIMEOUT_USEC={daemonize.RECOVERY_SECONDS * 1e6:.0f}\n"
    assert manager.recv(1000).startswith(extended.encode())


def test_the_exit_code_if_sigchld_is_ignored() -> None:
    """The kernel then reports no status."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pid = os.fork()
        if not pid:
            os._exit(3)
        assert daemonize.exit_code(pid, 60) == 0
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_parent_that_has_ended_is_ignored(tmp_path: Path) -> None:
    """After Ctrl-C in `zonedrive mount` at the last moment, the mount stays."""
    reading, writing = os.pipe()
    os.close(reading)
    pipe = daemonize.Pipe(writing)
    pipe.ok()
    pipe.failed(MountError("said already"))
