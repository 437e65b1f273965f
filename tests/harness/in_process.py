"""A client without kernel, daemon, network and waiting, for tests of behaviour in milliseconds.

`Client` is what a daemon builds below its mount, composed by `daemon.compose`, on a service in
memory (`fake_service`). `VirtualTime` is its clock: time passes only while all tasks wait. A client
can be killed at any await and started again on the same folder. Knows nothing about pytest.
"""

import contextlib
import contextvars
import errno
import fcntl
import functools
import inspect
import itertools
import logging
import math
import os
import random
import shutil
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

import outcome
import trio
import trio.testing
from greenlet import getcurrent, greenlet
from pyfuse3 import FUSEError
from trio._core._run import GLOBAL_RUN_CONTEXT

from tests.harness.fake_service import DOMAIN, FakeService, World
from zonedrive import config, failpoint
from zonedrive.cipher import Box, Clear, Sealed
from zonedrive.content import download_worker
from zonedrive.content.content_file import copy_file
from zonedrive.daemon.compose import Parts, open_state
from zonedrive.daemon.data_key import DataKey
from zonedrive.daemon.handlers import Commands
from zonedrive.errors import ZonedriveError, first_of
from zonedrive.failpoint import Place
from zonedrive.fuse import deadline
from zonedrive.fuse.deadline import DEADLINE
from zonedrive.fuse.errno_table import errno_of
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.logon.renewal import Renewal
from zonedrive.paths import AccountPaths
from zonedrive.remote.service import Service
from zonedrive.state.attributes import Attr
from zonedrive.state.invalidation import Invalidation
from zonedrive.views.stack import FileSystem

ResultT = TypeVar("ResultT")
ArgumentsT = ParamSpec("ArgumentsT")
ROOT = 1
URL = "https://service.example"
EXCHANGE, NOREPLACE = 2, 1
WALL_S = 1_800_000_000.0
TICK_S = 1e-6
ALICE = f"alice@{DOMAIN}"
NAMES_KEY, CONTENT_KEY = b"n" * 32, b"c" * 32


class VirtualTime:
    """Time of a trio loop that jumps to the next deadline when nothing else can happen.

    It stands still while a worker thread works, so that no deadline depends on the speed of the
    machine; threads take turns with the loop, so that each run does the same. `time.time` and the
    like tell the same time, and a bit more with each call, so that two events never have the same
    moment.
    """

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.fast_s: Callable[[], float] = lambda: 0.0  # by which the caller's clock is fast
        self._ticks = 0
        self._undo: list[Callable[[], None]] = []

    def install(self, sleep: Callable[[float], None]) -> None:
        """Replace the functions that tell the time, and `time.sleep` in this thread."""
        owner, real_sleep = threading.get_ident(), time.sleep

        def sleeping(seconds: float) -> None:
            (sleep if threading.get_ident() == owner else real_sleep)(seconds)

        self._replace(time, "time", self._wall)
        self._replace(time, "time_ns", lambda: int(self._wall() * 1e9))
        self._replace(time, "monotonic", self._now)
        self._replace(time, "monotonic_ns", lambda: int(self._now() * 1e9))
        self._replace(time, "clock_gettime", lambda _clock: self._now())
        self._replace(time, "clock_gettime_ns", lambda _clock: int(self._now() * 1e9))
        self._replace(time, "perf_counter", self.clock.current_time)
        self._replace(time, "sleep", sleeping)
        self._replace(trio, "sleep", self.clock.sleep)
        self._replace(trio.to_thread, "run_sync", _in_turn)
        self._replace(trio.from_thread, "run", _asked)
        self._replace(trio.from_thread, "run_sync", _asked)
        self._replace(trio.from_thread, "check_cancelled", lambda: None)
        self._undo.append(partial(random.setstate, random.getstate()))
        random.seed(0)
        self._replace(download_worker, "LINGER", 0.0)  # a download's thread waits in real time

    def remove(self) -> None:
        """Put the functions back."""
        while self._undo:
            self._undo.pop()()

    def _wall(self) -> float:
        return WALL_S + self.fast_s() + self._now()

    def _now(self) -> float:
        self._ticks += 1
        return self.clock.current_time() + self._ticks * TICK_S

    def _replace(self, owner: Any, name: str, new: object) -> None:
        old = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, old))
        setattr(owner, name, new)


class JumpingClock(trio.abc.Clock):
    """As `MockClock` of trio with an automatic jump, and several times faster.

    The time jumps as soon as no task can run. `sleep` needs no cancel scope.
    """

    def __init__(self) -> None:
        self._time_s = 0.0
        self._sleeping: list[tuple[float, int, list[trio.lowlevel.Task]]] = []  # a heap
        self._numbers = itertools.count()

    def start_clock(self) -> None:
        """Do nothing; the time is the same before and after."""

    def current_time(self) -> float:
        """Return the virtual time."""
        return self._time_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the next deadline or end of a sleep; trio asks when no task can run."""
        runner = GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle or runner.entry_queue.queue:  # these are due before
            return math.inf
        sleeping = self._sleeping
        while sleeping and not sleeping[0][2]:
            heappop(sleeping)
        end = min(deadline, sleeping[0][0]) if sleeping else deadline
        if end == math.inf:
            return math.inf
        self._time_s = max(self._time_s, end)
        while sleeping and sleeping[0][0] <= self._time_s:
            for task in heappop(sleeping)[2]:
                runner.reschedule(task)
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Do the same as `trio.sleep`."""
        if seconds <= 0:
            await trio.lowlevel.checkpoint()
            return
        waiting = [trio.lowlevel.current_task()]

        def abort(_raise: object) -> trio.lowlevel.Abort:
            waiting.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        heappush(self._sleeping, (self._time_s + seconds, next(self._numbers), waiting))
        await trio.lowlevel.wait_task_rescheduled(abort)


async def _in_turn(
    work: Callable[..., Any],
    *args: Any,
    limiter: trio.CapacityLimiter | None = None,
    **_options: Any,
) -> Any:
    """Do the work of `trio.to_thread.run_sync`, in turns with the loop and without a thread."""
    await trio.lowlevel.checkpoint_if_cancelled()
    worker = _Worker(partial(outcome.capture, work, *args))
    worker.gr_context = contextvars.copy_context()
    if limiter is not None:
        await limiter.acquire_on_behalf_of(worker)
    try:
        found = worker.switch()
        while not worker.dead:
            answer = await outcome.acapture(_answer, found)
            worker.parent = getcurrent()
            found = worker.switch(answer)
        return found.unwrap()
    finally:
        if limiter is not None:
            limiter.release_on_behalf_of(worker)


class _Worker(greenlet):  # type: ignore[misc]  # it has no types
    """Stands for a worker thread; runs only while the loop waits for it.

    No lock of the product is held while a thread waits for the loop, so none waits for another.
    """


async def _answer(call: Callable[[], Any]) -> Any:
    """Make a call of a worker; a cancellation ends the worker's work, too."""
    found = call()
    return await found if inspect.isawaitable(found) else found


def _asked(work: Callable[..., Any], *args: Any, **_options: Any) -> Any:
    """Make a call on the loop; `trio.from_thread.run` and `run_sync`."""
    worker = getcurrent()
    assert isinstance(worker, _Worker), "only worker threads ask the loop"
    return worker.parent.switch(partial(work, *args)).unwrap()


@dataclass(frozen=True)
class FolderPaths(AccountPaths):
    """The paths of an account below one folder."""

    folder: Path = Path()

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"


class Killed(BaseException):
    """The client died at a place of the crash protocol."""


def _unlock(folder: Path) -> None:
    """Release the locks that a killed client has left on a folder, as the kernel does."""
    if not folder.exists():
        return
    wanted = folder.stat()
    for number in os.listdir("/proc/self/fd"):  # hundreds after many kills
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(number)), wanted):
                fcntl.flock(int(number), fcntl.LOCK_UN)


class Client:
    """One user's mounted account: state, sync, vfs and content on a service in memory."""

    def __init__(
        self,
        folder: Path,
        world: World,
        *,
        user: str = ALICE,
        profile: str = "sandbox",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.paths = FolderPaths("default", folder)
        self.world, self.user, self.profile = world, user, profile
        policy = config.organization("default", folder)  # of config.toml, which a test may write
        self.settings = config.load(folder / "no.toml", "default", options or {}, system=policy)
        self.is_running = False
        self._descriptors = itertools.count(3)
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._gate = deadline.Gate()  # of all calls of programs
        self._kept: Path | None = None  # the folder as it was at the client's death
        self.died_at = ""

    def make_service(self) -> Service:
        """Return a connection for the next start."""
        return FakeService(self.world, self.user, self.profile)

    def make_kernel(self) -> "Kernel":
        """Return the kernel for the next start."""
        return Kernel(self.files, self._descriptors)

    async def start(self, nursery: trio.Nursery, kill_at: str = "") -> None:
        """Start as a daemon does, with the recovery of what an earlier client left.

        With `kill_at` the client dies at this place, and may be dead when this returns.
        """
        failpoint.arm({failpoint.VARIABLE: kill_at})
        _unlock(self.paths.content)
        try:
            await nursery.start(self._run)
        except Killed:
            self._bury()
            self._ended.set()

    async def stop(self) -> None:
        """Close everything in order; calls of programs end first, as at an unmount."""
        self._hang_up()
        self._scope.cancel()
        await self.ended()

    def _hang_up(self) -> None:
        self.is_running = False
        self._gate.shut()

    async def ended(self) -> None:
        """Wait until the client has ended."""
        await self._ended.wait()

    async def kill(self) -> None:
        """Die immediately: the folder keeps its present content."""
        self._keep()
        await self.stop()

    def die(self, place: Place) -> NoReturn:
        """Die in the middle of an operation, in any thread."""
        self._keep()
        self.died_at = str(place)
        failpoint.arm({})
        raise Killed(place)

    def _keep(self) -> None:
        folder = self.paths.folder
        self._kept = folder.with_name(f"{folder.name}.kept")
        copy_folder(folder, self._kept)

    def _bury(self) -> None:
        """Restore the folder as it was at the client's death; the ending tasks changed it."""
        assert self._kept is not None
        shutil.rmtree(self.paths.folder)
        self._kept.rename(self.paths.folder)

    async def call(self, work: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
        """Do the work of a program. Raises ConnectionError where the client is dead or dies."""
        # The client may be started again meanwhile.
        life, ended, gate = self._scope, self._ended, self._gate
        if self.is_running:
            try:
                call = cast(Coroutine[Any, Any, ResultT], work(*args))
                result = await deadline._limited("call", call, gate, math.inf)
                if not (self.died_at or ended.is_set()):  # a dead client gives no answer
                    return result
            except BaseException:
                if self.died_at or ended.is_set():
                    life.cancel()
                elif not gate.is_shut:  # the client is not ending
                    raise
        with trio.CancelScope(shield=True):
            await ended.wait()
        raise ConnectionAbortedError(errno.ENOTCONN, "the client is dead")

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        self._scope, self._gate = trio.CancelScope(), deadline.Gate()
        self.service = self.make_service()
        is_encrypted = self.settings.encrypt
        box: tuple[Box, bytes | None] = (
            (Sealed(NAMES_KEY), CONTENT_KEY) if is_encrypted else (Clear(), None)
        )
        state = open_state(self.paths, self.settings, self.service, box, self.user)
        self.files = FileSystem(state, self.service, "Acme")
        account = Account(name="default", base_url=URL, username=self.user, user_id=self.user)
        self.parts = Parts(
            account, self.paths, state, self.service, self.files,
            cast(BearerAuth, SimpleNamespace(last=None)), cast(Renewal, None),
            DataKey(self.paths, None),
        )  # fmt: skip
        session: Any = SimpleNamespace(folder=Path("/Zones"), ended=trio.Event(), stop=self.stop)
        self.commands = Commands(self.parts, session, trio.Event(), lambda: None)
        self.kernel = self.make_kernel()
        is_started = False
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.files.run)
                    nursery.start_soon(self._drain)
                    # Before this, a call of a program fails at once, because nothing is mounted.
                    self.is_running, self._ended = True, trio.Event()
                    is_started = True
                    task_status.started()
                    await trio.sleep_forever()
        except BaseException:
            if not self.died_at:
                raise
        finally:
            self._hang_up()
            self.service.transfer.hang_up()
            try:
                with trio.CancelScope(shield=True):
                    if self._kept is None:
                        await self.kernel.close_all()
                    await self.files.aclose()
            except BaseException:
                if not self.died_at:
                    raise
            state.database.close()
            if self._kept is not None:
                self._bury()
            self._ended.set()
        if not is_started:  # it died on the way
            task_status.started()

    async def _drain(self) -> None:
        """Pass the invalidations on to the kernel."""
        async for change in self.files.invalidations:
            self.kernel.invalidated(change)

    async def command(self, command: str, **request: object) -> dict[str, Any]:
        """Return the answer to a command of the control socket."""

        async def say(_progress: dict[str, Any]) -> None:
            """Show no progress."""

        try:
            return await self.commands.handlers[command]({"command": command, **request}, say)
        except ExceptionGroup as several:  # as the control server
            raise first_of(several) from several


@dataclass
class _File:
    """An open file of a program."""

    ino: int
    handle: int
    flags: int
    position: int = 0
    is_folder: bool = False


def _limited(
    method: Callable[Concatenate["Kernel", ArgumentsT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate["Kernel", ArgumentsT], Coroutine[Any, Any, ResultT]]:
    """Limit the time of a system call, from which only OSError comes."""

    @functools.wraps(method)
    async def call(
        self: "Kernel", /, *args: ArgumentsT.args, **options: ArgumentsT.kwargs
    ) -> ResultT:
        try:
            work = method(self, *args, **options)
            return await deadline._limited(method.__name__, work, self.gate, DEADLINE)
        except FUSEError as wrong:
            raise OSError(wrong.errno, os.strerror(wrong.errno)) from wrong
        except (OSError, ZonedriveError, trio.TooSlowError) as wrong:
            path = args[0] if args and isinstance(args[0], str) else ""
            raise _errno(wrong, path) from wrong

    return call


def _errno(error: Exception, path: str) -> OSError:
    number = errno_of(error)
    return OSError(number, os.strerror(number), path)


class Kernel:
    """System calls on a mounted account, as a kernel without caches passes them on.

    Paths are relative to the mount, without a leading slash. Raises OSError, as the functions of
    the same names in `os`.
    """

    def __init__(self, files: FileSystem, numbers: Iterator[int]) -> None:
        """Use `files`; `numbers` yields descriptors, which are not reused after a restart."""
        self._files, self._numbers = files, numbers
        self._open: dict[int, _File] = {}
        self._known: Counter[int] = Counter()  # lookups that were not forgotten
        self.gate = deadline.Gate()
        self.pid = os.getpid()  # of the program

    def invalidated(self, change: Invalidation) -> None:
        """Do nothing: nothing is cached."""

    @_limited
    async def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open a file; return its descriptor. After ESTALE, look the name up again, once."""
        try:
            return await self._open_once(path, flags, mode)
        except OSError as wrong:
            if wrong.errno != errno.ESTALE:
                raise
        return await self._open_once(path, flags, mode)

    async def _open_once(self, path: str, flags: int, mode: int) -> int:
        folder, name = await self._parent(path)
        found = await self._child(folder, name)
        if found is not None and flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "there is one")
        if found is None and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        if found is None:
            opened, attr = await self._files.create(folder, name, mode & ~0o022, flags)
            self._known[attr.ino] += 1
            ino = attr.ino
        else:
            ino = found.ino
            if _is_folder(found):
                return await self._open_folder(ino, flags)
            opened = await self._files.open(ino, flags, self.pid)
        return self._opened(_File(ino, opened.handle, flags))

    async def _open_folder(self, ino: int, flags: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no files without a name")
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        handle = await self._files.opendir(ino)
        return self._opened(_File(ino, handle, flags, is_folder=True))

    def _opened(self, file: _File) -> int:
        number = next(self._numbers)
        self._open[number] = file
        return number

    def _file(self, fd: int) -> _File:
        """Return an open file. Raises OSError if it was opened before the client was restarted."""
        if fd not in self._open:
            raise OSError(errno.ENOTCONN, "the client that opened the file has ended")
        return self._open[fd]

    def ino_of(self, fd: int) -> int:
        """Return the kernel's inode number of an open file, 0 for another one."""
        return self._open[fd].ino if fd in self._open else 0

    async def close(self, fd: int) -> None:
        """Close a descriptor."""
        file = self._file(fd)
        del self._open[fd]
        if file.is_folder:
            await self._files.releasedir(file.handle)
            return
        try:
            await self._flush(file.handle)
        finally:
            if not any(file is other for other in self._open.values()):
                await self._files.release(file.handle)

    async def dup(self, fd: int) -> int:
        """Return another descriptor of an open file."""
        return self._opened(self._file(fd))

    @_limited
    async def _flush(self, handle: int) -> None:
        await self._files.flush(handle)

    async def close_all(self) -> None:
        """Close the files of programs that end."""
        for fd in list(self._open):
            try:
                await self.close(fd)
            except OSError as wrong:
                logging.getLogger(__name__).info("closing failed: %s", wrong)

    @_limited
    async def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at an offset."""
        file, found = self._file(fd), bytearray()
        if file.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        while len(found) < size:
            want = min(128 * 1024, size - len(found))
            piece = self._files.available(file.handle, offset + len(found), want)
            if piece is None:
                piece = await self._files.read(file.handle, offset + len(found), want)
            found += piece
            if len(piece) < want:
                break
        return bytes(found)

    async def read(self, fd: int, size: int) -> bytes:
        """Read at the descriptor's position."""
        data = await self.pread(fd, size, self._file(fd).position)
        self._file(fd).position += len(data)
        return data

    @_limited
    async def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset."""
        file = self._file(fd)
        return await self._files.write(file.handle, offset, data)

    async def write(self, fd: int, data: bytes) -> int:
        """Write at the descriptor's position, or at the end."""
        file = self._file(fd)
        if file.flags & os.O_APPEND:
            file.position = (await self.fstat(fd)).st_size
        written = await self.pwrite(fd, data, file.position)
        file.position += written
        return written

    async def lseek(self, fd: int, offset: int, whence: int) -> int:
        """Set the descriptor's position."""
        file = self._file(fd)
        start = (0, file.position, 0)[whence] if whence < 2 else (await self.fstat(fd)).st_size
        file.position = start + offset
        return file.position

    @_limited
    async def ftruncate(self, fd: int, size: int) -> None:
        """Set the size of an open file."""
        file = self._file(fd)
        await self._files.setattr(file.ino, size=size, handle=file.handle)

    @_limited
    async def fsync(self, fd: int) -> None:
        """Make the bytes of an open file durable."""
        file = self._file(fd)
        await (self._files.fsyncdir if file.is_folder else self._files.fsync)(file.handle)

    @_limited
    async def fstat(self, fd: int) -> os.stat_result:
        """Return the attributes of an open file."""
        return _stat(await self._files.getattr(self._file(fd).ino))

    @_limited
    async def truncate(self, path: str, size: int) -> None:
        """Set the size of a file."""
        await self._files.setattr((await self._walk(path)).ino, size=size)

    @_limited
    async def lstat(self, path: str) -> os.stat_result:
        """Return the attributes of an entry."""
        found = await self._walk(path)
        return _stat(await self._files.getattr(found.ino))

    @_limited
    async def listdir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        folder = await self._walk(path)
        if not _is_folder(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is a file")
        return await self._names_in(folder.ino)

    async def tree(self, path: str) -> dict[str, bytes | None]:
        """Return the contents of all files below a folder, None for a folder.

        The content of a file that cannot be read is the text of the error.
        """
        found: dict[str, bytes | None] = {}
        with contextlib.suppress(FileNotFoundError):  # somebody removed the folder
            await self._look_into((await self._entry(path)).ino, "", found)
        return found

    async def _look_into(self, ino: int, prefix: str, found: dict[str, bytes | None]) -> None:
        try:
            names = sorted(await self._names(ino))
        except OSError as wrong:
            if wrong.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            return  # somebody removed the folder meanwhile
        for name in names:
            path = prefix + name
            try:
                child = await self._found(ino, name)
                found[path] = None if _is_folder(child) else await self._content(child.ino)
            except OSError as wrong:
                found[path] = f"{wrong.strerror}".encode()
            else:
                if found[path] is None:
                    await self._look_into(child.ino, f"{path}/", found)

    @_limited
    async def _entry(self, path: str) -> Attr:
        return await self._walk(path)

    @_limited
    async def _found(self, ino: int, name: str) -> Attr:
        child = await self._child(ino, os.fsencode(name))
        if child is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return child

    @_limited
    async def _names(self, ino: int) -> list[str]:
        return await self._names_in(ino)

    async def _names_in(self, ino: int) -> list[str]:
        handle = await self._files.opendir(ino)
        try:
            await self._files.load(handle)
            self._files.listed(handle, 0)  # reads the names
            names = [os.fsdecode(name) for name, _, _ in self._files.readdir(handle, 0)]
        finally:
            await self._files.releasedir(handle)
        return [name for name in names if name not in (".", "..")]

    @_limited
    async def _content(self, ino: int) -> bytes:
        opened = await self._files.open(ino, os.O_RDONLY, self.pid)
        fd = self._opened(_File(ino, opened.handle, os.O_RDONLY))
        try:
            return await self.pread(fd, sys.maxsize, 0)
        finally:
            await self.close(fd)

    @_limited
    async def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Create a folder."""
        folder, name = await self._parent(path)
        if await self._child(folder, name) is not None:
            raise FileExistsError(errno.EEXIST, "there is one")
        self._known[(await self._files.mkdir(folder, name, mode & ~0o022)).ino] += 1

    async def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        await self._remove(path, folder=True)

    async def unlink(self, path: str) -> None:
        """Remove a file."""
        await self._remove(path, folder=False)

    @_limited
    async def _remove(self, path: str, *, folder: bool) -> None:
        parent, name = await self._parent(path)
        found = await self._child(parent, name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        if _is_folder(found) != folder:
            wrong = errno.ENOTDIR if folder else errno.EISDIR
            raise OSError(wrong, os.strerror(wrong))
        await (self._files.rmdir if folder else self._files.unlink)(parent, name)
        self._forget(found.ino)

    @_limited
    async def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Rename, move or exchange."""
        old_parent, old_name = await self._parent(old)
        new_parent, new_name = await self._parent(new)
        moved = await self._child(old_parent, old_name)
        there = await self._child(new_parent, new_name)
        if moved is None or (flags == EXCHANGE and there is None):
            raise FileNotFoundError(errno.ENOENT, "no such name")
        if there is not None and flags == NOREPLACE:
            raise FileExistsError(errno.EEXIST, "there is one")
        if there is not None and there.ino == moved.ino:
            return
        if there is not None and not flags and _is_folder(there) != _is_folder(moved):
            wrong = errno.EISDIR if _is_folder(there) else errno.ENOTDIR
            raise OSError(wrong, os.strerror(wrong))
        await self._files.rename(old_parent, old_name, new_parent, new_name, flags)
        if there is not None and not flags:
            self._forget(there.ino)

    async def link(self, old: str, new: str) -> None:
        """Refuse a hard link, as the mount does."""
        await self._refuse_link(new)

    async def symlink(self, target: str, name: str) -> None:
        """Refuse a symbolic link, as the mount does."""
        await self._refuse_link(name)

    @_limited
    async def _refuse_link(self, path: str) -> None:
        if await self._child(*await self._parent(path)) is not None:
            raise FileExistsError(errno.EEXIST, "there is one")
        raise PermissionError(errno.EPERM, "no links")

    @_limited
    async def chmod(self, path: str, mode: int) -> None:
        """Set the permission bits."""
        await self._files.setattr((await self._walk(path)).ino, mode=stat.S_IMODE(mode))

    @_limited
    async def fchmod(self, fd: int, mode: int) -> None:
        """Set the permission bits of an open file."""
        await self._files.setattr(self._file(fd).ino, mode=stat.S_IMODE(mode))

    @_limited
    async def utime(self, where: str | int, ns: tuple[int, int] | None = None) -> None:
        """Set access and modification time in ns, by default to now."""
        atime, mtime = ns or (time.time_ns(),) * 2
        ino = self._file(where).ino if isinstance(where, int) else (await self._walk(where)).ino
        await self._files.setattr(ino, atime_ns=atime, mtime_ns=mtime)

    @_limited
    async def getxattr(self, path: str, name: str) -> bytes:
        """Return an extended attribute."""
        return await self._files.getxattr((await self._walk(path)).ino, name.encode())

    @_limited
    async def setxattr(self, path: str, name: str, value: bytes) -> None:
        """Set an extended attribute."""
        await self._files.setxattr((await self._walk(path)).ino, name.encode(), value)

    async def _walk(self, path: str) -> Attr:
        found = await self._files.getattr(ROOT)
        for name in path.split("/") if path else ():
            if not _is_folder(found):
                raise NotADirectoryError(errno.ENOTDIR, "is a file")
            child = await self._child(found.ino, os.fsencode(name))
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such name")
            found = child
        return found

    async def _parent(self, path: str) -> tuple[int, bytes]:
        parent, _, name = path.rpartition("/")
        folder = await self._walk(parent)
        if not _is_folder(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is a file")
        return folder.ino, os.fsencode(name)

    async def _child(self, parent: int, name: bytes) -> Attr | None:
        try:
            found = await self._files.lookup(parent, name)
        except FileNotFoundError:
            return None
        if not found.ino:
            return None
        self._known[found.ino] += 1
        return found

    def _forget(self, ino: int) -> None:
        """Forget an entry that lost its name, unless a program has it open."""
        if all(file.ino != ino for file in self._open.values()):
            self._files.forget(ino, self._known.pop(ino, 0))


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; names of one file stay names of one file, and holes stay holes."""
    copied: dict[int, Path] = {}
    for parent, _, names in os.walk(source):
        there = target / Path(parent).relative_to(source)
        there.mkdir(mode=0o700)
        for path in (Path(parent, name) for name in names):
            number = path.stat().st_ino
            if number in copied:
                (there / path.name).hardlink_to(copied[number])
            else:
                copied[number] = there / path.name
                with path.open("rb") as file:
                    copy_file(file.fileno(), copied[number])
                shutil.copystat(path, copied[number])


def _is_folder(attr: Attr) -> bool:
    return stat.S_ISDIR(attr.mode)


def _stat(attr: Attr) -> os.stat_result:
    times = (ns // 1_000_000_000 for ns in (attr.atime_ns, attr.mtime_ns, attr.ctime_ns))
    return os.stat_result(
        (attr.mode, attr.ino, 1, attr.nlink, attr.uid, attr.gid, attr.size, *times),
        {"st_mtime_ns": attr.mtime_ns, "st_ctime_ns": attr.ctime_ns},
    )
