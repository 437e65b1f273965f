"""The interface of a mounted account (`harness.machine.Mounted`) over a client in this process.

The same test can run on a mount and on this. The client's loop runs in a thread of its own and
moves only during a call of the test, so that both take turns in one order always. Files are used
through `VirtualPath`, which has the methods of `pathlib.Path` that such tests need.
"""

import contextlib
import io
import logging
import os
import queue
import re
import shutil
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

import trio

from tests.harness import world as seed
from tests.harness.fake_service import DOMAIN, Coworker, World
from tests.harness.in_process import ALICE, EXCHANGE, Client, VirtualTime
from zonedrive import failpoint
from zonedrive.sandbox.zones import Level

ResultT = TypeVar("ResultT")
PATIENCE_S = 120.0  # in real time, for a call that would never end
LEVELS = {"alice": Level.MANAGE, "bob": Level.MODIFY, "carol": Level.ADD}
ZONE = "Zone 01"
FLAGS = {
    "r": os.O_RDONLY, "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND, "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}  # fmt: skip
"""Flags of open(2) by mode of `open`, without "b"."""


class Loop:
    """A trio loop in a thread; it runs only during `run`."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self._jobs: queue.SimpleQueue[Callable[[], Awaitable[Any]] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.nursery: trio.Nursery = self._result()
        self.time.install(lambda seconds: self.run(trio.sleep, seconds))

    def run(self, work: Callable[..., Awaitable[ResultT]], *args: Any, **options: Any) -> ResultT:
        """Run `work` to its end, and meanwhile all other tasks of the loop."""
        self._jobs.put(lambda: work(*args, **options))
        found: ResultT = self._result()
        return found

    def close(self) -> None:
        """End the loop and all its tasks."""
        self._jobs.put(None)
        self._thread.join(PATIENCE_S)
        self.time.remove()
        assert not self._thread.is_alive(), "the loop does not end"

    def _result(self) -> Any:
        try:
            found, wrong = self._results.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError("nothing will ever end this call") from None
        if wrong is not None:
            raise wrong
        return found

    def _serve(self) -> None:
        scheduler = trio._core._run  # of the order in which tasks run
        vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
        scheduler._r.seed(0)
        try:
            trio.run(self._main, clock=self.time.clock)
        except BaseException as wrong:
            self._results.put((None, wrong))

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            self._results.put((self.nursery, None))
            while (job := self._jobs.get()) is not None:  # blocks: nothing moves between calls
                try:
                    self._results.put((await job(), None))
                except Exception as wrong:
                    self._results.put((None, wrong))
            self.nursery.cancel_scope.cancel()


class System:
    """The functions of `os` for paths in a VirtualMount."""

    def __init__(self, mount: "VirtualMount") -> None:
        self._mount = mount

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the system call of that name."""

        def call(*args: Any, **options: Any) -> Any:
            plain = [str(each) if isinstance(each, VirtualPath) else each for each in args]
            work = getattr(self._mount.client.kernel, name)
            return self._mount.call(partial(work, *plain, **options))

        setattr(self, name, call)
        return call


class VirtualPath:
    """Path in a VirtualMount, relative to it."""

    def __init__(self, system: System, path: PurePosixPath) -> None:
        self.system, self._path = system, path
        self._text = str(path) if path.parts else ""

    def __truediv__(self, name: "str | VirtualPath") -> "VirtualPath":
        return VirtualPath(self.system, self._path / str(name))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"VirtualPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualPath) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __lt__(self, other: "VirtualPath") -> bool:
        return self._path < other._path

    @property
    def name(self) -> str:
        """The last component."""
        return self._path.name

    @property
    def parent(self) -> "VirtualPath":
        """The folder."""
        return VirtualPath(self.system, self._path.parent)

    def with_name(self, name: str) -> "VirtualPath":
        """Return the path of a sibling with this name."""
        return VirtualPath(self.system, self._path.with_name(name))

    def relative_to(self, other: "VirtualPath") -> PurePosixPath:
        """Return the path below another one."""
        return self._path.relative_to(other._path)

    def stat(self) -> os.stat_result:
        """Return the attributes."""
        found: os.stat_result = self.system.lstat(self)
        return found

    def exists(self) -> bool:
        """Return True if there is an entry."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return True if there is a folder."""
        return stat.S_ISDIR(self._mode())

    def is_file(self) -> bool:
        """Return True if there is a file."""
        return stat.S_ISREG(self._mode())

    def _mode(self) -> int:
        """Return the type and permissions, 0 without an entry."""
        try:
            return self.stat().st_mode
        except FileNotFoundError:
            return 0

    def open(self, mode: str = "r", buffering: int = -1) -> IO[Any]:
        """Open the file."""
        raw = _Raw(self.system, self, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw  # type: ignore[return-value]  # of the same interface
        buffer: Any
        if "+" in mode:
            buffer = io.BufferedRandom(raw)
        else:
            buffer = io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)
        found: IO[Any] = buffer if "b" in mode else io.TextIOWrapper(buffer, "utf-8")
        return found

    def read_bytes(self) -> bytes:
        """Return the content."""
        fd = self.system.open(self, os.O_RDONLY)
        try:
            parts = list(iter(lambda: self.system.read(fd, 1 << 20), b""))
        finally:
            self.system.close(fd)
        return b"".join(parts)

    def write_bytes(self, data: bytes) -> int:
        """Write the whole file."""
        with self.open("wb") as file:
            return file.write(data)

    def read_text(self) -> str:
        """Return the content as text."""
        return self.read_bytes().decode()

    def write_text(self, text: str) -> int:
        """Write the whole file as text."""
        return self.write_bytes(text.encode())

    def touch(self) -> None:
        """Create the file, or set its times."""
        self.system.close(self.system.open(self, os.O_WRONLY | os.O_CREAT))
        self.system.utime(str(self))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create the folder."""
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True)
        if not (exist_ok and self.is_dir()):
            self.system.mkdir(self)

    def rmdir(self) -> None:
        """Remove the folder."""
        self.system.rmdir(self)

    def unlink(self) -> None:
        """Remove the file."""
        self.system.unlink(self)

    def rename(self, new: "VirtualPath") -> "VirtualPath":
        """Rename or move."""
        self.system.rename(self, new)
        return new

    def chmod(self, mode: int) -> None:
        """Set the permission bits."""
        self.system.chmod(self, mode)

    def iterdir(self) -> Iterator["VirtualPath"]:
        """Yield the entries of the folder."""
        return (self / name for name in self.system.listdir(self))

    def rglob(self, pattern: str) -> Iterator["VirtualPath"]:
        """Yield everything below the folder."""
        with contextlib.suppress(FileNotFoundError):  # a coworker removed the folder meanwhile
            for path in list(self.iterdir()):
                if fnmatch(path.name, pattern):
                    yield path
                if path.is_dir():
                    yield from path.rglob(pattern)


class _Raw(io.RawIOBase):
    """An open file without a buffer."""

    _fd = -1  # until it is open

    def __init__(self, system: System, path: VirtualPath, mode: str) -> None:
        self.system = system
        self._flags = FLAGS[mode]
        self._fd = system.open(path, self._flags)

    def readable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.system.read(self._fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        written: int = self.system.write(self._fd, bytes(data))
        return written

    def seek(self, offset: int, whence: int = 0) -> int:
        found: int = self.system.lseek(self._fd, offset, whence)
        return found

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self.system.ftruncate(self._fd, size)
        return size

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._fd >= 0:
                self.system.close(self._fd)


class FakeDeployment:
    """Interface of `harness.deployment.Deployment` for a World."""

    def __init__(self, loop: Loop, world: World) -> None:
        self._loop, self.world = loop, world

    def fault(self, **what: object) -> None:
        """Set a fault, as in the sandbox's documentation."""
        self.world.fault(**what)

    def heal(self) -> None:
        """End all faults."""

        async def heal() -> None:
            self.world.heal()

        self._loop.run(heal)

    @contextmanager
    def faulty(self, **what: object) -> Iterator[None]:
        """Set a fault for the block."""
        self.fault(**what)
        try:
            yield
        finally:
            self.heal()

    def plant(self, zone: str, name: str, content: str) -> None:
        """Add a file with any name, even one that is in use."""
        self.world.plant(self._id(zone), name, content.encode(), user=ALICE)

    def person(self, name: str) -> "Person":
        """Return a person who works on the service without zonedrive."""
        return Person(self, name)

    def uploads(self) -> int:
        """Return the number of uploads that reached the service."""
        return sum(each.startswith("POST /api/zones/") for each in self.world.requests)

    def downloads(self) -> int:
        """Return the number of requests for content."""
        return sum(each.endswith("/content") for each in self.world.requests)

    def _id(self, zone: str) -> str:
        return next(each.id for each in self.world.zones.values() if each.name == zone)


class Person:
    """Coworker with another kind of client."""

    def __init__(self, deployment: FakeDeployment, name: str) -> None:
        self._deployment, self.id = deployment, f"{name}@{DOMAIN}"

    def zone(self, name: str) -> Coworker:
        """Return the zone of that name as this person sees it."""
        return Coworker(self._deployment.world, self.id, self._deployment._id(name))


class Complaints(logging.Handler):
    """Warnings and errors of the program."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.entries: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry with its traceback."""
        self.entries.append(logging.Formatter("%(levelname)s %(message)s").format(record))


class VirtualMount:
    """Alice's zones; `root` is one of them, `zone` the same as Bob sees it."""

    def __init__(self, folder: Path, *options: str, profile: str = "sandbox") -> None:
        self.folder = folder
        self.loop = Loop()
        world = World()
        people = {f"{name}@{DOMAIN}": level for name, level in LEVELS.items()}
        zone_id = world.add_zone(ZONE, people)
        alice = Coworker(world, ALICE, zone_id)
        for path, data in seed.SEED.items():
            above = PurePosixPath(path).parent
            for part in [*reversed(above.parents), above]:
                if part.name and alice.find(str(part)) is None:
                    alice.make_folder(str(part))
            alice.write(path, data)
        self.deployment = FakeDeployment(self.loop, world)
        self.zone = self.deployment.person("bob").zone(ZONE)
        self.system = System(self)
        self.path = VirtualPath(self.system, PurePosixPath())
        self.root = self.path / ZONE
        self._world, self._profile = world, profile
        self._options = _parsed(options)
        self._complaints = Complaints()
        self._allowed: list[str] = []
        self.client = self._new_client({})
        logging.getLogger("zonedrive").addHandler(self._complaints)
        self._die = failpoint._die
        failpoint._die = self._dies

    def allow(self, *patterns: str) -> None:
        """Allow warnings in the log that this test causes (regular expressions)."""
        self._allowed.extend(patterns)

    def complaints(self) -> list[str]:
        """Return the warnings that no test allowed."""
        found = self._complaints.entries
        return [each for each in found if not any(re.search(one, each) for one in self._allowed)]

    # ---- life and death ----

    def mount(self, *options: str, kill_at: str = "") -> None:
        """Start a client on the folder; with `kill_at` it may be dead when this returns."""
        self.client = self._new_client(_parsed(options))
        self.loop.run(self.client.start, self.loop.nursery, kill_at)

    def unmount(self, *_: str) -> None:
        """Send everything and close in order."""
        self.command("sync")
        self.loop.run(self.client.stop)

    def restart(self, *options: str) -> None:
        """Unmount and mount again."""
        self.unmount()
        self.mount(*options)

    def kill(self) -> None:
        """Kill the client."""
        self.loop.run(self.client.kill)

    def forget_cache(self) -> None:
        """Delete the cache folder.  Only while unmounted."""
        shutil.rmtree(self.client.paths.cache)

    def died_at(self, place: str) -> bool:
        """Return True if the client died at that place of the crash protocol."""
        if self.client.died_at:
            self.loop.run(self.client.ended)
        return self.client.died_at == place

    @property
    def database(self) -> Path:
        """Return the file with the local state."""
        return self.client.paths.database

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do nothing: outside of calls the client never runs."""
        yield

    def close(self) -> None:
        """Close everything."""
        try:
            if self.client.is_running:
                self.deployment.heal()
                self.loop.run(self.client.stop)
        finally:
            logging.getLogger("zonedrive").removeHandler(self._complaints)
            failpoint._die = self._die
            failpoint.arm({})
            self.loop.close()

    def _dies(self, place: failpoint.Place) -> None:
        self.client.die(place)

    def _new_client(self, options: dict[str, str]) -> Client:
        folder = self.folder / "account"
        folder.mkdir(exist_ok=True, parents=True)
        options = self._options | options
        profile = options.get("profile", self._profile)
        return Client(folder, self._world, profile=profile, options=options)

    # ---- commands ----

    def command(self, command: str, **request: object) -> dict[str, Any]:
        """Return the answer to a command of the control socket."""
        if command == "unmount":
            self.loop.run(self.client.stop)
            return {}
        return self.call(partial(self.client.command, command, **request))

    def call(self, work: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
        """Do the work of a program. Raises OSError if the client is dead or dies."""
        found: ResultT = self.loop.run(self.client.call, work, *args)
        return found

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json`."""
        return self.command("status")

    def sync(self, *paths: VirtualPath, seconds: float = 60) -> None:
        """Wait until everything is on the service."""
        assert self.try_sync(*paths, seconds=seconds) == 0, self.status()

    def try_sync(self, *paths: VirtualPath, seconds: float = 60) -> int:
        """Wait until everything is on the service; return the exit code of the command."""
        where = {"paths": [str(path) for path in paths]} if paths else {}
        code: int = self.command("sync", timeout=seconds, **where)["exit"]
        return code

    def conflicts(self) -> list[dict[str, Any]]:
        """Return the output of `conflicts --json`."""
        found: list[dict[str, Any]] = self.command("conflicts")["conflicts"]
        return found

    def outgoing(self) -> list[str]:
        """Return the names of the files that hold bytes the service does not have."""
        return os.listdir(self.client.paths.outgoing)

    # ---- what pathlib lacks ----

    def names(self, path: VirtualPath) -> list[str]:
        """Return the names in a folder."""
        found: list[str] = self.system.listdir(path)
        return found

    def remove_tree(self, path: VirtualPath) -> None:
        """Remove a folder with everything in it, as `rm -rf`."""
        for each in list(path.iterdir()):
            if each.is_dir():
                self.remove_tree(each)
            else:
                each.unlink()
        path.rmdir()

    def xattr(self, path: VirtualPath, name: str) -> str:
        """Return an extended attribute."""
        found: bytes = self.system.getxattr(path, name)
        return found.decode()

    def exchange(self, one: VirtualPath, other: VirtualPath) -> None:
        """Exchange two names."""
        self.system.rename(one, other, EXCHANGE)


def _parsed(options: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in options)}
