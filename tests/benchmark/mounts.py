"""Mounts of zonedrive and its alternatives on the same data set.

Knows nothing about the measurements. Every mount is fresh, with the default settings: nothing is
cached on the disk or in the kernel, and there is no connection. After the measurement, the mount
is removed in any state.
"""

import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import zonedrive
from tests.benchmark import usage
from tests.benchmark.servers import RCLONE, Disk, Servers, Shelf, Sshd, WebDav, Zone, end
from tests.harness import world
from tests.harness.machine import Machine

MOUNT_SECONDS = 30.0
UNMOUNT_SECONDS = 90.0
GLANCE_SECONDS = 0.002
"""Interval of checks for the mount: short compared to the fastest mount."""


@dataclass
class Place:
    """Mounted file system: its processes, its path, and the place of written data."""

    root: Path
    shelf: Shelf
    daemons: list[int] = field(default_factory=list)
    """Processes that serve the mount; their children count, too."""
    began: usage.Moment = field(default_factory=usage.Moment.now)
    """Start of the mount's command."""
    mount: Callable[[], None] | None = None
    """Function that mounts again with the same cache; None if that is not measured."""
    unmount: Callable[[], None] | None = None
    cache: Path | None = None

    def finish(self) -> None:
        """Unmount if the contestant can be mounted repeatedly; others are unmounted at the end."""
        if self.unmount is not None:
            self.unmount()

    def restart(self) -> None:
        """End the daemon and mount again, if the restart is measured."""
        self.finish()
        if self.mount is not None:
            self.mount()


class Contestant(Protocol):
    """Method of mounting the data set."""

    @property
    def name(self) -> str:
        """Return the name in the table."""
        ...

    def mounted(self, *options: str, far: bool = False) -> AbstractContextManager[Place]:
        """Return a context manager for a fresh mount; with `far`, through the delay proxy."""
        ...


class Native:
    """Local folder itself."""

    name = "native"

    def __init__(self, servers: Servers) -> None:
        self._root = servers.dataset

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`."""
        yield Place(self._root, Disk(self._root))


class Bare:
    """Passthrough file system in Python: the limit for its components."""

    name = "bare"

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`; no server is far away."""
        source = self._servers.dataset
        with short_folder() as folder, child(
            [sys.executable, "-m", "tests.benchmark.bare", source, folder / "mount"],
            folder / "mount",
            self._servers,
        ) as place:  # fmt: skip
            place.cache = source / "Data" / "big"
            yield place


class Zonedrive:
    """File system under test."""

    name = "zonedrive"

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._accounts: dict[bool, Machine] = {}
        self._shelf = Zones(servers)
        # As in an installed package, whatever PYTHONDONTWRITEBYTECODE says here.
        compileall.compile_dir(Path(zonedrive.__file__).parent, quiet=1)

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`; options are those of `mount -o`."""
        with short_folder() as folder:
            machine = Machine(folder, starts_programs=True)
            machine.copy_account(self._account(far))
            root = folder / "Zones"
            root.mkdir()
            place = Place(root, self._shelf, cache=machine.cache)

            def mount() -> None:
                place.began = usage.Moment.now()
                machine.done("mount", root, *(f"-o{each}" for each in options))
                record = json.loads((machine.state / "daemon.lock").read_bytes())
                place.daemons = [int(record["pid"])]

            def unmount() -> None:
                machine.done("unmount", root, seconds=UNMOUNT_SECONDS)
                place.daemons = []

            place.mount, place.unmount = mount, unmount
            mount()
            try:
                yield place
            finally:
                with suppress(subprocess.TimeoutExpired):
                    machine.run("unmount", root, "--now", seconds=20)
                clear(place)

    def _account(self, far: bool) -> Machine:
        """Return an account that is logged on; a service's token is valid for every mount."""
        if far not in self._accounts:
            machine = Machine(self._servers.folder / f"account-{far}")
            machine.done(
                "logon", self._servers.address(far=far),
                "--username", self._servers.service.person("alice").id, "--password-stdin",
                "--ca-file", self._servers.service.ca_file, "--profile", "sandbox",
                text=f"{world.PASSWORDS['alice']}\n",
            )  # fmt: skip
            self._accounts[far] = machine
        return self._accounts[far]


class Rclone:
    """rclone mount with a write cache, over WebDAV."""

    name = "rclone"

    def __init__(self, servers: Servers, server: WebDav) -> None:
        self._servers, self._server = servers, server

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`."""
        port = self._servers.port(self._server.port, far=far)
        with short_folder() as folder, child(
            [
                RCLONE, "mount", ":webdav:", folder / "mount",
                "--webdav-url", f"https://127.0.0.1:{port}/", "--ca-cert", self._server.ca_file,
                "--vfs-cache-mode", "writes", "--cache-dir", folder / "cache",
                "--config", folder / "none.conf", "--log-file", folder / "log",
            ],
            folder / "mount",
            self._servers,
        ) as place:  # fmt: skip
            yield place


class Sshfs:
    """sshfs to an sshd."""

    name = "sshfs"

    def __init__(self, servers: Servers, server: Sshd) -> None:
        self._servers, self._server = servers, server

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`."""
        port = self._servers.port(self._server.port, far=far)
        ssh = f"IdentityFile={self._server.key},StrictHostKeyChecking=no"
        with short_folder() as folder, child(
            [
                "sshfs", "-f", "-p", str(port), f"127.0.0.1:{self._servers.dataset}",
                folder / "mount", "-o", f"{ssh},UserKnownHostsFile=/dev/null,LogLevel=ERROR",
            ],
            folder / "mount",
            self._servers,
        ) as place:  # fmt: skip
            yield place


class Davfs:
    """davfs2, over WebDAV.  It can be mounted by root only."""

    name = "davfs2"

    def __init__(self, servers: Servers, server: WebDav) -> None:
        self._servers, self._server = servers, server

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[Place]:
        """See `Contestant`."""
        port = self._servers.port(self._server.port, far=far)
        with short_folder() as folder:
            root, settings = folder / "mount", folder / "davfs2.conf"
            root.mkdir()
            cache = folder / "cache"
            cache.mkdir()
            shutil.chown(cache, group="davfs2")  # its daemon runs as a user of its own
            cache.chmod(0o1775)
            folder.chmod(0o755)
            authority = shutil.copy(self._server.ca_file, folder)
            (folder / "secrets").touch(mode=0o600)
            settings.write_text(
                # Recent kernels list with more than its buffer's usual 16 KiB: EINVAL.
                f"ask_auth 0\nbuf_size 256\ncache_dir {cache}\n"
                f"secrets {folder}/secrets\ntrust_ca_cert {authority}\n"
            )
            began = usage.Moment.now()
            ended = subprocess.run(
                ["mount.davfs", f"https://127.0.0.1:{port}/", root, "-o", f"conf={settings}"],
                capture_output=True, encoding="utf-8", timeout=MOUNT_SECONDS, check=False,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
            place = Place(root, Disk(self._servers.dataset), processes(str(root)), began)
            try:
                yield place
            finally:
                clear(place)
                record = str(root).strip("/").replace("/", "-")
                Path(f"/run/mount.davfs/{record}.pid").unlink(missing_ok=True)


class Zones:
    """Places of written data in all zones; the first part of a path is the zone."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._zones: dict[str, Zone] = {}

    def sizes(self, folder: str) -> Mapping[str, int]:
        """See `Shelf`."""
        zone, _, inside = folder.partition("/")
        return self._zone(zone).sizes(inside)

    def remove(self, folder: str) -> None:
        """See `Shelf`."""
        zone, _, inside = folder.partition("/")
        self._zone(zone).remove(inside)

    def _zone(self, name: str) -> Zone:
        if name not in self._zones:
            self._zones[name] = Zone(self._servers.service, name)
        return self._zones[name]


@contextmanager
def child(command: Sequence[str | Path], root: Path, servers: Servers) -> Iterator[Place]:
    """Yield a mount at `root` that this command serves in the foreground."""
    root.mkdir()
    began = usage.Moment.now()
    with (root.parent / "said").open("wb") as said:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    place = Place(root, Disk(servers.dataset), [server.pid], began)
    try:
        while not is_mounted(root):
            said_so_far = (root.parent / "said").read_text()[-500:]
            assert server.poll() is None, said_so_far
            assert time.monotonic() - began.time_s < MOUNT_SECONDS, said_so_far
            time.sleep(GLANCE_SECONDS)
        assert os.listdir(root)
        yield place
    finally:
        clear(place)
        end(server)


def is_mounted(root: Path) -> bool:
    """Return True if the kernel has a mount there, alive or dead."""
    return f" {root} " in Path("/proc/self/mounts").read_text()


def processes(word: str) -> list[int]:
    """Return the processes with these words in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def clear(place: Place) -> None:
    """End the mount; programs that still use it get an error."""
    for pid in place.daemons:
        if is_mounted(place.root):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if is_mounted(place.root):
        subprocess.run(["umount", "-l", place.root], capture_output=True, check=False)
    if is_mounted(place.root):
        subprocess.run(["fusermount3", "-uz", place.root], check=False)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a folder with a short path, because a Unix socket's path is limited to 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="zdb"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
