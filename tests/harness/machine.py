"""User's machine: XDG folders, the command, a mount, and kills of its daemon."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

from tests.harness import starter, world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.waiting import eventually
from tests.posix import calls
from zonedrive.fuse import mountpoint

XDG = ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR")

# Longer than any test may take: then the daemon is killed, so that waiting calls fail.
WATCHDOG_SECONDS = 270.0

# Longer than a killed daemon needs to end by itself, also on a busy machine.
SECONDS_BEFORE_ABORT = 20.0

_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+ (\w+) ", re.MULTILINE)


def has_ended(pid: int) -> bool:
    """Return True if a process has ended with all of its threads, and closed its files.

    Its parent need not have waited for it yet.
    """
    return _is_killed(pid) and _threads(pid) <= 1


def _is_killed(pid: int) -> bool:
    """Return True if a process has ended or been killed, though some threads may still run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def files_below(folder: Path, *, without: Path | None = None) -> Iterator[tuple[Path, bytes]]:
    """Yield every file below a folder with its bytes, ignoring files that disappear meanwhile.

    The folder `without` is skipped.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(parent, name) != without]
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.read_bytes()


class Address(Protocol):
    """Address of a service."""

    base_url: str
    ca_file: Path


class Machine:
    """Private XDG folders below `folder`, and programs that use them."""

    def __init__(self, folder: Path, *, starts_programs: bool = False) -> None:
        """Create the folders; `starts_programs`: start an interpreter for each command, see
        `starter`."""
        self.folder = folder
        self.starts_programs = starts_programs
        self.folders = {name: folder / name.split("_")[0].lower() for name in XDG}
        for path in self.folders.values():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.environment = dict(os.environ, HOME=str(folder), NO_COLOR="1", COLUMNS="200")
        self.environment |= {f"XDG_{name}": str(path) for name, path in self.folders.items()}
        self.environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
        self.environment["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={folder}/no-bus"

    @property
    def state(self) -> Path:
        """Return the state folder of the account."""
        return self.folders["STATE_HOME"] / "zonedrive" / "default"

    @property
    def cache(self) -> Path:
        """Return the cache folder of the account."""
        return self.folders["CACHE_HOME"] / "zonedrive" / "default"

    def run(
        self, *arguments: str | Path, text: str = "", seconds: float = 120
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command with `text` on standard input; the caller checks the exit code."""
        if starter.can_run(self.environment) and not self.starts_programs:
            words = [os.fspath(word) for word in arguments]
            return starter.run(words, text, self.environment, self.folder, seconds)
        return subprocess.run(
            [COMMAND, *arguments],
            input=text, env=self.environment, timeout=seconds,
            capture_output=True, encoding="utf-8", cwd=self.folder, check=False,
        )  # fmt: skip

    def done(self, *arguments: str | Path, text: str = "", seconds: float = 120) -> str:
        """Return the output of the command, which must succeed."""
        ended = self.run(*arguments, text=text, seconds=seconds)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout

    def log_on(
        self,
        deployment: Address,
        *,
        name: str = "alice",
        profile: str,
        options: Sequence[str] = (),
    ) -> None:
        """Log on with a password."""
        self.done(
            "logon", deployment.base_url, "--username", f"{name}@{world.DOMAIN}",
            "--password-stdin", "--ca-file", deployment.ca_file, "--profile", profile, *options,
            text=f"{world.PASSWORDS[name]}\n",
        )  # fmt: skip

    def copy_account(self, other: "Machine") -> None:
        """Copy the logon of the machine `other`."""
        for name in ("CONFIG_HOME", "STATE_HOME"):
            shutil.copytree(other.folders[name], self.folders[name], dirs_exist_ok=True)


class Mounted:
    """Mounted zones of a deployment below `path`, served by a daemon of `machine`.

    `root` is the folder of the test's own zone there, `zone` the same zone on the service as a
    coworker sees it.
    """

    system: Any = os

    def __init__(
        self, machine: Machine, deployment: Deployment, zone: str, options: Sequence[str]
    ) -> None:
        self.machine = machine
        self.deployment = deployment
        self.path = machine.folder / "Zones"
        self.root = self.path / zone
        self.zone = deployment.person("bob").zone(zone)
        self._options = list(options)
        self._watchdog: threading.Timer | None = None
        self.allowed: list[str] = []

    def allow(self, *patterns: str) -> None:
        """Allow warnings in the daemon's log that this test causes (regular expressions)."""
        self.allowed.extend(patterns)

    # --- life and death ----------------------------------------------------------------------

    def mount(self, *options: str) -> None:
        """Mount with the options of the fixture and these; both as NAME=VALUE."""
        if not self.is_mounted():
            self.path.mkdir(exist_ok=True)
        every = [f"-o{option}" for option in [*self._options, *options]]
        self.machine.done("mount", self.path, *every)
        self._watch(self.pid)

    @property
    def pid(self) -> int:
        """Return the daemon's pid."""
        return int(json.loads((self.machine.state / "daemon.lock").read_bytes())["pid"])

    def unmount(self, *options: str, seconds: float = 120) -> str:
        """Unmount; return the output of the command."""
        said = self.machine.done("unmount", self.path, *options, seconds=seconds)
        self._unwatch()
        return said

    def restart(self, *options: str) -> None:
        """Unmount and mount again."""
        self.unmount()
        self.mount(*options)

    def kill(self) -> None:
        """Kill the daemon, as in a power cut that leaves the disk's cache intact."""
        self._unwatch()
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self._see_end(pid)

    def _see_end(self, pid: int) -> None:
        """Return after a daemon that is killed has ended.

        One of its threads may wait in the kernel, without end, for a program that waits for the
        daemon.  The connection is aborted then, which may also remove the mount.
        """
        eventually(lambda: _is_killed(pid), what="the daemon is killed")
        try:
            eventually(lambda: has_ended(pid), SECONDS_BEFORE_ABORT)
        except AssertionError:
            if (mount := mountpoint.at(self.path)) is not None:
                mountpoint.abort(mount)
            eventually(lambda: has_ended(pid), what="the daemon has ended")

    def forget_cache(self) -> None:
        """Delete the cache folder, as a user may at any time.  Only while unmounted."""
        shutil.rmtree(self.machine.cache, ignore_errors=True)

    def _watch(self, pid: int) -> None:
        self._unwatch()
        self._watchdog = threading.Timer(WATCHDOG_SECONDS, os.kill, (pid, signal.SIGKILL))
        self._watchdog.daemon = True
        self._watchdog.start()

    def _unwatch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog.join()
            self._watchdog = None

    @contextmanager
    def mounting(self) -> Iterator[Self]:
        """Mount for the duration of the block."""
        try:
            self.mount()
            yield self
        finally:
            self.tear_down()

    @contextmanager
    def joined(self) -> Iterator[Self]:
        """Use the machine's mount, which another object has made, for the duration of the block.

        Unexpected warnings in the daemon's log fail the test.
        """
        before = len(self.log())
        self._watch(self.pid)
        try:
            yield self
            self.sync()
        finally:
            self._unwatch()
        complaints = unexpected(self.log()[before:], self.allowed)
        assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)

    def leave(self) -> None:
        """Leave the mount to other objects, see `joined`."""
        self._unwatch()

    def tear_down(self) -> None:
        """Remove mount, daemon and threads in any state."""
        try:
            if self.is_mounted():
                ended = self.machine.run("unmount", self.path, "--now", seconds=60)
                if ended.returncode:
                    self.kill()
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError):
            if self._alive():
                self.kill()
        finally:
            self._unwatch()
            if self.is_mounted():
                subprocess.run(["fusermount3", "-uz", self.path], check=False)

    def _alive(self) -> bool:
        try:
            return not has_ended(self.pid)
        except (OSError, ValueError, KeyError):
            return False

    def is_mounted(self) -> bool:
        """Return True if the kernel has a mount at `path`, alive or dead."""
        mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
        return f" {self.path} fuse" in mounts

    # --- what it says ------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json`."""
        found: dict[str, Any] = json.loads(self.machine.done("status", "--json"))
        return found

    def sync(self, *paths: Path, seconds: float = 60) -> None:
        """Wait until everything is on the service."""
        self.machine.done("sync", *paths, "--timeout", str(seconds), seconds=seconds + 60)

    def try_sync(self, *paths: Path, seconds: float = 60) -> int:
        """Wait until everything is on the service; return the exit code of the command."""
        return self.machine.run("sync", *paths, "--timeout", str(seconds)).returncode

    def conflicts(self) -> list[dict[str, Any]]:
        """Return the output of `conflicts --json`."""
        found: list[dict[str, Any]] = json.loads(self.machine.done("conflicts", "--json"))
        return found

    def outgoing(self) -> list[str]:
        """Return the names of the files that hold bytes the service does not have."""
        return os.listdir(self.machine.state / "outgoing")

    @staticmethod
    def names(path: Path) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(path)

    @staticmethod
    def remove_tree(path: Path) -> None:
        """Remove a folder with everything in it, as `rm -rf`."""
        shutil.rmtree(path)

    @staticmethod
    def xattr(path: Path, name: str) -> str:
        """Return an extended attribute."""
        return os.getxattr(path, name).decode()

    def command(self, command: str, **request: object) -> dict[str, Any]:
        """Return the last answer to a command of the control socket."""
        *_, last = self.answers(command=command, **request)
        return last

    def answers(self, **request: object) -> Iterator[dict[str, Any]]:
        """Yield all answers to a command of the control socket, as they come."""
        runtime = self.machine.folders["RUNTIME_DIR"] / "zonedrive"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(os.fspath(runtime / "default.sock"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for said in map(json.loads, lines):
                    yield said
                    if said.get("done"):
                        return

    @staticmethod
    def exchange(one: Path, other: Path) -> None:
        """Exchange two names."""
        calls.renameat2(one, other, calls.EXCHANGE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the daemon inside the block."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Return the daemon's log, including earlier runs."""
        path = self.machine.state / "daemon.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def complaints(self) -> list[str]:
        """Return log entries at WARNING or above that no test allowed, with their tracebacks."""
        return unexpected(self.log(), self.allowed)


def unexpected(log: str, allowed: Iterable[str]) -> list[str]:
    """Return log entries that are warnings or worse, or malformed, and not allowed."""
    starts = [found.start() for found in _ENTRY.finditer(log)] + [len(log)]
    before = log[: starts[0]]
    entries = [before] if before.strip() else []
    for start, end in pairwise(starts):
        entry = log[start:end]
        level = _ENTRY.match(entry)
        assert level is not None
        calm = level[1] in ("INFO", "DEBUG") and entry.count("\n") <= 1
        if not calm:
            entries.append(entry)
    return [entry for entry in entries if not any(re.search(each, entry) for each in allowed)]
