"""A client that can die between any two steps, on a disk and a connection of its own."""

import os
import random
import shutil
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import trio
import trio.testing

from tests.harness.fake_service import DOMAIN
from tests.harness.in_process import Client, Kernel, Killed, copy_folder
from tests.simulation import disk as disks
from tests.simulation.checker import RecordedWorld
from tests.simulation.disk import Disk
from tests.simulation.http_client import Logon, http_service
from tests.simulation.kernel import CachingKernel
from tests.simulation.network import WEATHERS, Line, SimulatedService, Weather
from tests.simulation.sandbox_world import SandboxWorld
from zonedrive.content import cache as cache_module
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.service import Service
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.names import is_aside
from zonedrive.state.reader import StateReader

DATABASE_HEADER = 100  # bytes; without them, a database is one of a newer version, or none

ResultT = TypeVar("ResultT")


class BootId:
    """The kernel's identifier of the boot, as a client of this process reads it."""

    def read_text(self, _encoding: str = "") -> str:
        """Return the identifier on the current client's machine."""
        disk = disks.CURRENT.get()
        return str(uuid.UUID(int=disk.boots if disk is not None else 0))


_CURRENT: ContextVar["Machine | None"] = ContextVar("machine", default=None)


def fast_s() -> float:
    """Return the seconds by which the clock of the current client is fast."""
    machine = _CURRENT.get()
    return machine.fast_s if machine is not None else 0.0


class Machine(Client):
    """One person's computer; `name` is a letter."""

    world: RecordedWorld

    def __init__(
        self,
        name: str,
        folder: Path,
        world: RecordedWorld,
        nursery: trio.Nursery,
        seed: int,
        *,
        user: str,
        profile: str,
        options: Mapping[str, str],
        may_lose_power: bool = True,
        has_caches: bool = False,
    ) -> None:
        super().__init__(folder, world, user=f"{user}@{DOMAIN}", profile=profile, options=options)
        self.name = name
        self._has_caches = has_caches
        self.cache_findings: list[str] = []
        self.place_findings: set[str] = set()
        self._weather = WEATHERS["calm"]
        numbers = random.Random(f"{seed} {name}")
        self._seed = f"{seed} {name}"
        self.disk = Disk(
            folder,
            random.Random(f"{seed} {name} disk"),
            self._passed,
            may_lose_power=may_lose_power,
        )
        self.fast_s = numbers.choice((0.0, 0.0, 5.0, -5.0, 3600.0, -3600.0))
        self._nursery = nursery
        self._backup = folder.with_name(f"{folder.name}.backup")
        self._logon: Logon | None = None
        self._left = -1  # steps until the death; negative: it lives on
        self._is_power_cut = False
        self.deaths = self.power_cuts = 0
        self._may_count_wrongly = False  # a size in the index of the cache may be another one
        self.lost_power: Callable[[], None] = lambda: None  # called at a power cut
        self.turn = trio.Lock()  # of the one who starts it
        self._ended.set()

    @property
    def weather(self) -> Weather:
        """State of the connection."""
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        if self.is_running and isinstance(self.service, HttpService):
            with self.acting():
                self._nursery.start_soon(self._reconnect, self.service)

    async def _reconnect(self, service: HttpService) -> None:
        """Use new connections, as the daemon does after a suspend or a change of network."""
        dead = random.Random(f"{self._seed} {trio.current_time()}").random() < 0.5
        await service.reconnect(dead=dead)

    def make_service(self) -> Service:
        """Return a connection for the next start."""
        line = self.make_line()
        if not isinstance(self.world, SandboxWorld):
            return SimulatedService(line, self.profile)
        self._logon = self._logon or Logon(self.world, self.user, line.weather)
        return http_service(line, self._logon, self.profile, self.settings)

    def make_kernel(self) -> Kernel:
        """Return the kernel for the next start, with caches if the scenario has them."""
        if not self._has_caches:
            return super().make_kernel()
        numbers = random.Random(f"{self._seed} {trio.current_time()} kernel")
        return CachingKernel(self.files, self._descriptors, numbers, self.cache_findings)

    async def check_caches(self) -> None:
        """Compare the kernel's caches with the state of the client, and note what is stale."""
        if not self._has_caches:
            return
        await trio.testing.wait_all_tasks_blocked()  # until all invalidations have arrived
        if self.is_running and not self.died_at and isinstance(self.kernel, CachingKernel):
            with disks.observing():
                stale = self.kernel.caches.stale(self.parts.state)
            self.cache_findings += [f"{self.name}: {each}" for each in stale]

    def check_places(self) -> None:
        """Note each entry that has another name here than on the service, although nothing waits.

        A listing that agrees with the recorded name would never correct it.
        """
        if not self.is_running or self.died_at:
            return
        state = self.parts.state
        with disks.observing():
            for inode in state.inodes.below(ROOT):
                if inode.kind not in (Kind.FILE, Kind.FOLDER) or inode.is_new or inode.local:
                    continue
                intent = state.intents.get(inode.ino)
                is_renamed = intent is not None and intent.concerns_name
                is_renamed |= is_aside(inode.remote_name)  # two names are exchanged
                # If the folder differs, the next listing of the entry's folder moves the entry.
                is_there = state.inodes.get(inode.parent).remote_id == inode.remote_parent
                if is_there and not is_renamed and state.is_elsewhere(inode):
                    self.place_findings.add(
                        f"{self.name}: {inode.name!r} is {inode.remote_name!r} on the service"
                    )

    def leftovers(self) -> list[str]:
        """Return what a client keeps that has sent everything, and whose files are all closed."""
        state, found = self.parts.state, []
        with disks.observing():
            intents = state.intents.all()
            parked = {one.ino for one in intents if one.parked}
            found += [f"{one.change(is_new=False)} is left" for one in intents if not one.parked]
            requests = [one for one in state.requests.all() if one.ino not in parked]
            if self.power_cuts:  # it stays until the next change of a file whose bytes are lost
                requests = [one for one in requests if one.remote_id is None]
            found += [f"the request {one} is left" for one in requests]
            found += [f"inode {ino} is open" for ino in (*state.opened, *state.kernel.former)]
            is_sound = not self.disk.had_trouble  # else a later flush or start deletes files
            for what in ("in_flight", "cancelled_uploads", "paused_uploads", "superseded"):
                if getattr(state, what) and (is_sound or what != "superseded"):
                    found.append(f"{what}: {getattr(state, what)}")
            stored, needed = set(state.spool.stored()), state.named_bytes()
            unneeded = stored - needed if is_sound else set[tuple[int, int]]()
            if self.power_cuts:  # as the request, see above
                needed -= {(one.bytes_ino, one.generation) for one in state.requests.all()}
            found += [f"nothing needs the outgoing bytes {one}" for one in unneeded]
            found += [f"the outgoing bytes {one} are missing" for one in needed - stored]
            local = {one.ino for one in state.inodes.below(ROOT) if one.local}
            found += [f"the bytes {one} are sent" for one in needed
                      if is_sound and one[0] not in local]  # fmt: skip
            cache = state.cache
            rows = list(cache._index.all_rows())
            files = {row.name for row in rows if not row.in_index}
            there = cache._files() or set()
            open_files = {each.path.name for each in cache.quota.entries}
            found += [f"no row has the cached file {one}" for one in there - files - open_files
                      if is_sound and cache_module._NAME.fullmatch(one)]  # fmt: skip
            used = sum(row.taken for row in rows)
            is_counted = not (cache.quota.entries or self._may_count_wrongly)
            if is_counted and cache.quota.usage() != used:
                found.append(f"the cache counts {cache.quota.usage()} bytes, not {used}")
            every = {ino for (ino,) in state.database.execute("SELECT ino FROM inodes")}
            here = {ROOT} | {one.ino for one in state.inodes.below(ROOT)}
            known = {ino for ino, times in self.kernel._known.items() if times}
            lost = [state.inodes.find(ino) for ino in every - here - known]
            found += [f"inode {one.ino} {one.name!r} is nowhere" for one in lost if one]
        return [f"{self.name} {each}" for each in found]

    def make_line(self) -> Line:
        """Return a line to the service for the next start."""
        self.line = Line(
            self.world, self.user, f"{self._seed} {self.deaths}",
            lambda: self.weather, self._passed, self._nursery,
        )  # fmt: skip
        return self.line

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Let everything in the block happen on this machine."""
        disk, machine = disks.CURRENT.set(self.disk), _CURRENT.set(self)
        try:
            yield
        finally:
            disks.CURRENT.reset(disk)
            _CURRENT.reset(machine)

    async def boot(self) -> None:
        """Start the client on the data of the previous one; it may die once more meanwhile."""
        with self.acting():
            self.died_at, self._kept = "", None
            await self.start(self._nursery)
        self.kernel.pid = 0  # not one of the programs that may not read everything

    def erase(self) -> bool:
        """Delete the data of a stopped client as a logoff does; return False if it refuses."""
        with disks.observing():
            with StateReader.open(self.paths.database) as state:
                if state.waiting()[0] or state.lost_files() or state.files_by_user():
                    return False
            shutil.rmtree(self.paths.folder)
            self.paths.folder.mkdir()
        self.disk.erased()
        return True

    def back_up(self) -> None:
        """Copy the data of the client as it is now."""
        with disks.observing():
            shutil.rmtree(self._backup, ignore_errors=True)
            copy_folder(self.paths.folder, self._backup)

    def bring_back(self) -> None:
        """Replace the data of a stopped client by the copy, if there is one."""
        with disks.observing():
            if self._backup.exists():
                shutil.rmtree(self.paths.folder)
                copy_folder(self._backup, self.paths.folder)
        self.disk.erased()

    def identity(self, path: str) -> str | None:
        """Return the id on the service of what the client shows at a path, without a request.

        Return "" if the service has no such entry, and None if there is nothing, or the client is
        dead.
        """
        if not self.is_running:
            return None
        inodes = self.parts.state.inodes
        with disks.observing():
            inode: Inode | None = inodes.get(ROOT)
            for name in path.split("/"):
                inode = inode and inodes.child(inode.ino, name)
        return None if inode is None else inode.remote_id or ""

    def spoil_cache(self, how: str, seed: str) -> str:
        """Change a file of the cache, as another program may; return its name, or ""."""
        numbers, what = random.Random(seed), "*.db*" if how.endswith("index") else "*-*[!mlh]"
        self._may_count_wrongly |= how == "flip_index"
        with disks.observing():
            files = sorted(self.paths.content.glob(what))
            files = [each for each in files if not each.name.endswith("-shm")]
            if not files:
                return ""
            path = numbers.choice(files)
            size = path.stat().st_size
            if how.startswith("delete"):
                path.unlink()
            elif how == "truncate":
                os.truncate(path, numbers.randrange(size + 1))
            else:
                start = numbers.randrange(size + 1)
                with path.open("r+b") as file:
                    file.seek(start)
                    data = file.read(1 if how.startswith("flip") else size)
                    file.seek(start)
                    file.write(bytes(each ^ 255 if how != "zero" else 0 for each in data))
        return path.name

    def damage_database(self, how: str, seed: str) -> None:
        """Damage the database of a stopped client; records are lost, as by a power cut."""
        self.power_cuts += 1
        numbers, path = random.Random(seed), self.paths.database
        with disks.observing():
            data = bytearray(path.read_bytes())
            places = range(min(DATABASE_HEADER, len(data) - 1), len(data))
            start = numbers.choice(places)
            match how:
                case "delete":
                    path.unlink()
                    return
                case "cut":
                    del data[start:]
                case "zero_page":
                    start -= start % disks.PAGE
                    data[start : start + disks.PAGE] = bytes(disks.PAGE)
                case "flip":
                    for place in numbers.choices(places, k=numbers.choice((1, 1, 30))):
                        data[place] ^= 255
            path.write_bytes(data)

    def die_after(self, steps: int, *, is_power_cut: bool) -> None:
        """Die after this number of steps."""
        self._left, self._is_power_cut = steps, is_power_cut

    def _passed(self, step: str) -> None:
        """Count a step; raise Killed at the last one."""
        if self.died_at:
            raise Killed(step)
        if self._left > 0:
            self._left -= 1
        elif self._left == 0:
            self._end_life(step)
            raise Killed(step)

    def _end_life(self, step: str) -> None:
        self._left = -1
        self.deaths += 1
        self.died_at = step
        self.is_running = False
        self._keep()
        if self._is_power_cut:
            assert self._kept is not None
            with disks.observing():  # the cut itself is no step of the client
                self.disk.cut_power(self._kept)
            self.power_cuts += 1
            self.lost_power()
        self.line.die()
        self._token.run_sync_soon(self._scope.cancel)

    def die_now(self) -> None:
        """Die immediately, if a death is planned and has not happened."""
        if self._left >= 0 and self.is_running and not self.died_at:
            self._end_life("await")

    def _keep(self) -> None:
        with disks.observing():
            super()._keep()
            self.disk.died()

    def _bury(self) -> None:
        with disks.observing():
            super()._bury()
            self.disk.restarted()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self.acting():
            await super()._run(task_status)

    async def perform(
        self, work: Callable[..., Coroutine[Any, Any, ResultT]], *args: object
    ) -> ResultT:
        """Do the work of a program. Raises OSError."""
        with self.acting():
            return await self.call(work, *args)
