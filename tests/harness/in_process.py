"""A client without kernel, daemon, network and waiting, for tests of behaviour in milliseconds.

`Client` is what a daemon builds below its mount, composed by `daemon.compose`, on a service in
memory (`fake_service`). `VirtualTime` is its clock: time passes only while all tasks wait. A client
can be killed at any await and started again on the same folder. Knows nothing about pytest.
"""

import contextlib
import contextvars
import errno
import inspect
import itertools
import logging
import math
import os
import queue
import random
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn, TypeVar, cast

import outcome
import trio
import trio.testing

from tests.harness.fake_service import DOMAIN, FakeService, World
from zonedrive import config, failpoint
from zonedrive.cipher import Sealed
from zonedrive.content import download_worker
from zonedrive.daemon.compose import Parts, open_state
from zonedrive.daemon.handlers import Commands
from zonedrive.errors import ZonedriveError
from zonedrive.failpoint import Place
from zonedrive.fuse.deadline import DEADLINE
from zonedrive.fuse.errno_table import errno_of
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.logon.renewal import Renewal
from zonedrive.paths import AccountPaths
from zonedrive.state.attributes import Attr
from zonedrive.views.stack import FileSystem

ResultT = TypeVar("ResultT")
ROOT = 1
URL = "https://service.example"
EXCHANGE, NOREPLACE = 2, 1
WALL_S = 1_800_000_000.0
TICK_S = 1e-6
THREAD_S = 0.5  # in real time, for a thread to end or to ask
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
        self.clock = trio.testing.MockClock(autojump_threshold=0)
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
        self._replace(trio.to_thread, "run_sync", self._in_thread(trio.to_thread.run_sync))
        self._replace(trio.from_thread, "run", _asked)
        self._replace(trio.from_thread, "run_sync", _asked)
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

    def _in_thread(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return `trio.to_thread.run_sync`, with threads that take turns with the loop."""

        async def run_sync(
            work: Callable[..., Any],
            *args: Any,
            limiter: trio.CapacityLimiter | None = None,
            **_options: Any,
        ) -> Any:
            await trio.lowlevel.checkpoint_if_cancelled()
            worker = _Worker(partial(contextvars.copy_context().run, work, *args))
            if limiter is not None:
                await limiter.acquire_on_behalf_of(worker)
            try:
                worker.start()
                while (call := await self._next(worker, real)) is not None:
                    await worker.answer(call)
                return worker.result()
            finally:
                if limiter is not None:
                    limiter.release_on_behalf_of(worker)

        return run_sync

    async def _next(
        self, worker: "_Worker", real: Callable[..., Awaitable[Any]]
    ) -> Callable[[], Any] | None:
        """Return the next call of a thread, None at its end; all else waits meanwhile."""
        with contextlib.suppress(queue.Empty):
            return worker.calls.get(timeout=THREAD_S)
        # The thread waits for another one, which waits for the loop.
        self.clock.autojump_threshold = math.inf
        try:
            found: Callable[[], Any] | None = await real(worker.calls.get)
            return found
        finally:
            self.clock.autojump_threshold = 0


class _Worker(threading.Thread):
    """A thread that runs only while the loop waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()
        self._end: outcome.Outcome[Any] | None = None

    def run(self) -> None:
        """Do the work, in the thread."""
        self._end = outcome.capture(self._work)
        self.calls.put(None)

    def ask(self, call: Callable[[], Any]) -> Any:
        """Have the loop make a call, and return its result; in the thread."""
        self.calls.put(call)
        return self._answers.get().unwrap()

    async def answer(self, call: Callable[[], Any]) -> None:
        """Make a call of the thread; a cancellation ends the thread's work, too."""

        async def made() -> Any:
            found = call()
            return await found if inspect.isawaitable(found) else found

        self._answers.put(await outcome.acapture(made))

    def result(self) -> Any:
        """Return or raise what the work did."""
        self.join()
        assert self._end is not None
        return self._end.unwrap()


def _asked(work: Callable[..., Any], *args: Any, **_options: Any) -> Any:
    """Make a call on the loop; `trio.from_thread.run` and `run_sync`."""
    worker = threading.current_thread()
    assert isinstance(worker, _Worker), "only threads of the loop ask it"
    return worker.ask(partial(work, *args))


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
        self.settings = config.load(folder / "no.toml", "default", options or {})
        self.is_running = False
        self._descriptors = itertools.count(3)
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._calls: set[trio.CancelScope] = set()
        self._kept: Path | None = None  # the folder as it was at the client's death
        self.died_at = ""

    def make_service(self) -> FakeService:
        """Return a connection for the next start."""
        return FakeService(self.world, self.user, self.profile)

    async def start(self, nursery: trio.Nursery, kill_at: str = "") -> None:
        """Start as a daemon does, with the recovery of what an earlier client left.

        With `kill_at` the client dies at this place, and may be dead when this returns.
        """
        failpoint.arm({failpoint.VARIABLE: kill_at})
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
        for call in self._calls:
            call.cancel()

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
        _copy(folder, self._kept)

    def _bury(self) -> None:
        """Restore the folder as it was at the client's death; the ending tasks changed it."""
        assert self._kept is not None
        shutil.rmtree(self.paths.folder)
        self._kept.rename(self.paths.folder)

    async def call(self, work: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
        """Do the work of a program. Raises ConnectionError where the client is dead or dies."""
        life, ended = self._scope, self._ended  # the client may be started again meanwhile
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                if self.is_running:
                    result = await work(*args)
                    if not (self.died_at or ended.is_set()):  # a dead client gives no answer
                        return result
            except BaseException:
                if not (self.died_at or ended.is_set()):
                    raise
                life.cancel()
            finally:
                self._calls.discard(scope)
        with trio.CancelScope(shield=True):
            await ended.wait()
        raise ConnectionAbortedError(errno.ENOTCONN, "the client is dead")

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        self._scope = trio.CancelScope()
        self.service = self.make_service()
        box = (Sealed(NAMES_KEY), CONTENT_KEY)
        state = open_state(self.paths, self.settings, self.service, box, self.user)
        self.files = FileSystem(state, self.service, "Acme")
        account = Account(name="default", base_url=URL, username=self.user, user_id=self.user)
        self.parts = Parts(
            account, self.paths, state, self.service, self.files,
            cast(BearerAuth, None), cast(Renewal, None),
        )  # fmt: skip
        session: Any = SimpleNamespace(folder=Path("/Zones"), ended=trio.Event(), stop=self.stop)
        self.commands = Commands(self.parts, session, trio.Event(), lambda: None)
        self.kernel = Kernel(self.files, self._descriptors)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.files.run)
                    nursery.start_soon(self._drain)
                    # Before this, a call of a program fails at once, because nothing is mounted.
                    self.is_running, self._ended = True, trio.Event()
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

    async def _drain(self) -> None:
        """Discard the invalidations for the kernel."""
        async for _ in self.files.invalidations:
            pass

    async def command(self, command: str, **request: object) -> dict[str, Any]:
        """Return the answer to a command of the control socket."""

        async def say(_progress: dict[str, Any]) -> None:
            """Show no progress."""

        return await self.commands.handlers[command]({"command": command, **request}, say)


@dataclass
class _File:
    """An open file of a program."""

    ino: int
    handle: int
    flags: int
    position: int = 0
    is_folder: bool = False


class _Call:
    """Limit of a system call's time, from which only OSError comes; a class for its speed."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._scope = trio.CancelScope(deadline=trio.current_time() + DEADLINE)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scope.__exit__(kind, wrong, trace)
        if self._scope.cancelled_caught:
            wrong = trio.TooSlowError()
        if isinstance(wrong, OSError | ZonedriveError | trio.TooSlowError):
            raise _errno(wrong, self._path) from wrong


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

    async def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open a file; return its descriptor."""
        with _Call(path):
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
                opened = await self._files.open(ino, flags, os.getpid())
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

    async def close(self, fd: int) -> None:
        """Close a descriptor."""
        file = self._file(fd)
        del self._open[fd]
        if file.is_folder:
            await self._files.releasedir(file.handle)
            return
        try:
            with _Call():
                await self._files.flush(file.handle)
        finally:
            await self._files.release(file.handle)

    async def close_all(self) -> None:
        """Close the files of programs that end."""
        for fd in list(self._open):
            try:
                await self.close(fd)
            except OSError as wrong:
                logging.getLogger(__name__).info("closing failed: %s", wrong)

    async def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at an offset."""
        file, found = self._file(fd), bytearray()
        with _Call():
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

    async def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset."""
        file = self._file(fd)
        with _Call():
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

    async def ftruncate(self, fd: int, size: int) -> None:
        """Set the size of an open file."""
        file = self._file(fd)
        with _Call():
            await self._files.setattr(file.ino, size=size)

    async def fsync(self, fd: int) -> None:
        """Make the bytes of an open file durable."""
        file = self._file(fd)
        with _Call():
            await (self._files.fsyncdir if file.is_folder else self._files.fsync)(file.handle)

    async def fstat(self, fd: int) -> os.stat_result:
        """Return the attributes of an open file."""
        with _Call():
            return _stat(await self._files.getattr(self._file(fd).ino))

    async def truncate(self, path: str, size: int) -> None:
        """Set the size of a file."""
        with _Call(path):
            await self._files.setattr((await self._walk(path)).ino, size=size)

    async def lstat(self, path: str) -> os.stat_result:
        """Return the attributes of an entry."""
        with _Call(path):
            found = await self._walk(path)
            return _stat(await self._files.getattr(found.ino))

    async def listdir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        with _Call(path):
            folder = await self._walk(path)
            if not _is_folder(folder):
                raise NotADirectoryError(errno.ENOTDIR, "is a file")
            handle = await self._files.opendir(folder.ino)
            try:
                self._files.listed(handle, 0)  # reads the names
                names = [os.fsdecode(name) for name, _, _ in self._files.readdir(handle, 0)]
            finally:
                await self._files.releasedir(handle)
            return [name for name in names if name not in (".", "..")]

    async def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Create a folder."""
        with _Call(path):
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

    async def _remove(self, path: str, *, folder: bool) -> None:
        with _Call(path):
            parent, name = await self._parent(path)
            found = await self._child(parent, name)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such name")
            if _is_folder(found) != folder:
                wrong = errno.ENOTDIR if folder else errno.EISDIR
                raise OSError(wrong, os.strerror(wrong))
            await (self._files.rmdir if folder else self._files.unlink)(parent, name)
            self._forget(found.ino)

    async def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Rename, move or exchange."""
        with _Call(old):
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

    async def _refuse_link(self, path: str) -> None:
        with _Call(path):
            if await self._child(*await self._parent(path)) is not None:
                raise FileExistsError(errno.EEXIST, "there is one")
            raise PermissionError(errno.EPERM, "no links")

    async def chmod(self, path: str, mode: int) -> None:
        """Set the permission bits."""
        with _Call(path):
            await self._files.setattr((await self._walk(path)).ino, mode=stat.S_IMODE(mode))

    async def fchmod(self, fd: int, mode: int) -> None:
        """Set the permission bits of an open file."""
        with _Call():
            await self._files.setattr(self._file(fd).ino, mode=stat.S_IMODE(mode))

    async def utime(self, where: str | int, ns: tuple[int, int] | None = None) -> None:
        """Set access and modification time in ns, by default to now."""
        atime, mtime = ns or (time.time_ns(),) * 2
        with _Call():
            ino = self._file(where).ino if isinstance(where, int) else (await self._walk(where)).ino
            await self._files.setattr(ino, atime_ns=atime, mtime_ns=mtime)

    async def getxattr(self, path: str, name: str) -> bytes:
        """Return an extended attribute."""
        with _Call(path):
            return await self._files.getxattr((await self._walk(path)).ino, name.encode())

    async def setxattr(self, path: str, name: str, value: bytes) -> None:
        """Set an extended attribute."""
        with _Call(path):
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


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; names of one file stay names of one file."""
    copied: dict[int, Path] = {}
    for parent, _, names in os.walk(source):
        there = target / Path(parent).relative_to(source)
        there.mkdir(mode=0o700)
        for path in (Path(parent, name) for name in names):
            number = path.stat().st_ino
            if number in copied:
                (there / path.name).hardlink_to(copied[number])
            else:
                copied[number] = Path(shutil.copy2(path, there))


def _is_folder(attr: Attr) -> bool:
    return stat.S_ISDIR(attr.mode)


def _stat(attr: Attr) -> os.stat_result:
    times = (ns // 1_000_000_000 for ns in (attr.atime_ns, attr.mtime_ns, attr.ctime_ns))
    return os.stat_result(
        (attr.mode, attr.ino, 1, attr.nlink, attr.uid, attr.gid, attr.size, *times),
        {"st_mtime_ns": attr.mtime_ns, "st_ctime_ns": attr.ctime_ns},
    )
