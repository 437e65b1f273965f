"""One run: people work on several machines while networks, disks and machines fail.

At the end all faults are cleared: everything is sent, and the checker compares what programs were
told with the service's versions and with what each machine shows.
"""

import contextlib
import contextvars
import errno
import hashlib
import logging
import math
import os
import re
import socket
import threading
import traceback
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Container,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import coroutine
from typing import Any, TypeVar, cast
from unittest import mock

import outcome
import trio
from greenlet import getcurrent, greenlet

from tests.harness.fake_service import DOMAIN, Coworker
from tests.harness.in_process import EXCHANGE, Client, VirtualTime
from tests.harness.partial_profile import profile_without
from tests.harness.virtual_mount import LEVELS, ZONE, VirtualPath
from tests.model.claims import COPY, NOT_READ, NOTHING, Claims, History, head, lines_in, short
from tests.model.programs import ASIDE, FOLDERS, NAMES, USUAL, WRITING, Program, Trace
from tests.simulation import checker
from tests.simulation import disk as disks
from tests.simulation.checker import (
    WASTEBASKET,
    LocalNames,
    RecordedWorld,
    WatchedSystem,
)
from tests.simulation.machine import BootId, Machine, fast_s
from tests.simulation.network import WEATHERS
from tests.simulation.posix_model import ALONE, Model
from tests.simulation.sandbox_world import SandboxWorld
from tests.simulation.scenario import (
    LOCAL_NAMES,
    MACHINES,
    SECOND_NAMES,
    SERVICE,
    WEB,
    Scenario,
    Step,
    is_file,
)
from zonedrive.config import LOCAL_ONLY
from zonedrive.content import cache as cache_module
from zonedrive.content import fetcher, reader
from zonedrive.content.slots import CHUNK
from zonedrive.errors import ZonedriveError
from zonedrive.fuse.deadline import DEADLINE
from zonedrive.pins.fetch import RECHECK_S
from zonedrive.pins.poll import PASS_S
from zonedrive.prefetch import files as prefetch
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.zones import Level
from zonedrive.state import recovery
from zonedrive.state.inode import ROOT
from zonedrive.state.names import is_aside
from zonedrive.sync import dispatcher, planner, upload

ResultT = TypeVar("ResultT")
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Folder for the data of a run, None for the usual one."""
FOLDER = "shared"
RESCUED = "rescued"
SYNC_S = 120.0  # virtual seconds for sending everything
PEACE_S = 120.0  # virtual seconds after which machines must show what the service has
LONGEST_S = 3 * DEADLINE  # of one operation of a program, which is several calls
ALL = 1 << 20  # bytes, more than any file has
PINNED_S = 3 * PASS_S  # virtual seconds after which pinned files must be on the machine
KEPT_S = 65.0  # after which appended bytes are saved although the file is open
STARTS_AGAIN = 5  # one of so many seeds ends with a start without a connection
ADVICES = 3  # of errors that a person follows: a file may have one after the other
SECOND_US, SECOND_NS = 1_000_000, 1_000_000_000
LOOK_S = 5.0  # between two looks at what they show
MOMENT_S = 0.01  # after which programs have got the answers of calls that have ended
HANGING_S = 20_000.0  # virtual seconds after which nothing is expected to end any more
DISK_TROUBLE = {errno.ENOSPC, errno.EIO, errno.EDQUOT}
TABLE = re.compile("(outbox|request): unknown transition")  # a transition that is in no table
ADDRESS = re.compile("cannot be part of an address")  # a request about something without an entry
DISK_STEPS, ENDS = (
    ("full", "room", "failing", "sound"),
    ("room", "sound", "resume", "pause", "clock"),
)
EMPTYING = {
    "save_shorter", "full", "failing", "power", "restart", "profile", "log_off", "bring_back",
    "damage", "remove_tree",
}  # fmt: skip
"""Steps that may leave an empty version; a restart ends programs, which closes their files."""
REPLACING = {
    "save_over", "save_renamed_open", "aside", "aside_for_a_moment", "rename", "swap",
    "move_folder", "save_beside_backup", "save_unchanged",
}  # fmt: skip
IN_PLACE = {
    "save", "save_within", "append", "save_synced", "write_on", "save_slowly", "save_shorter",
    "save_redirected", "save_and_sync", "save_emptied", "log", "patch",
}  # fmt: skip
LATE_ANSWERS = (
    "the service is full", "the service does not have this zone", "your rights do not allow it",
)  # fmt: skip
"""Parts of errors that may come when their cause is over; the next attempt succeeds."""
LATE_DELETION = "listing a folder: the service does not have it"
"""The same, if a rename of the folder has failed because the profile of before had no rename."""
STOPPING = {"restart", "log_off", "bring_back", "damage", "profile"}
LESS_RIGHTS = {"level", "zone_gone", "write_protect", "read_protect"}
BACKUP = "~"
START = 64  # bytes that contain the tokens of a line
FIRST = re.compile(rb"(?P<token>[A-Z]\d+) after [A-Z0-9-]+ [a-z]")  # the beginning of a line
SHOWN = re.compile(r"~[0-9a-f]{8}(?=\.|$)")  # of a file whose name a local-only file has
DAMAGED = re.compile(r"(?<=\.)damaged-[\d-]+")  # in the name of a database that was set aside
SQLITE = re.compile(r"(?<=is damaged) \(.*\)(?=: |$)")  # its words differ between its versions
RANDOM = re.compile(r"(?<=\d-)[0-9a-f]{12}\b")  # in the names of files in the cache
MARK = re.compile(r"~[0-9a-f]{8}(?=\.txt$)")  # of a file that was deleted during an exchange


class Finding(AssertionError):
    """Violation of a guarantee."""


@dataclass
class Result:
    """Outcome of one run."""

    scenario: Scenario
    findings: list[str]
    trace: list[str]
    digest: str
    done: Counter[str] = field(default_factory=Counter)


class SimulatedProgram(Program):
    """Program whose system calls go to a machine of the simulation."""

    system: WatchedSystem
    settle_s: float  # negative if a close waits for the upload
    waits = False  # a close that succeeds means that the service has the file
    flushes_there = False  # the same for fsync
    expected: set[int]  # errnos of a disk that is full or fails
    lines: dict[str, bytes]  # by token, of all programs
    world: RecordedWorld
    wastebasket: VirtualPath  # folder of entries in the trash of file managers
    continued: list[tuple[str, str]]  # tokens of two saves through one descriptor
    shortened: set[str]  # tokens that a power cut may leave in the synced bytes of another save
    _stored: set[str]  # tokens that the file of the operation has or had
    _is_refused = False  # the id of a file that is renamed was not known
    _noted: list[str]  # ids that were known
    has_lost_power = is_restored = False  # during the operation
    hurried_s = -math.inf  # end of the last `sync` of a logoff, which sends changes at once
    # Path and token of what is saved while the file is open, and the deaths before.
    _kept: tuple[str, str, int] | None = None
    _last = NOTHING  # token of the save that began last
    _open = 0  # inode number of the file that the operation has open, if it knows the number
    _begun_s = math.inf  # when that save began
    _verb = ""  # of the operation in progress

    def do(self, verb: str, path: str, other: str = "", padding: int = 0) -> None:
        count, before = len(self.wrong), self._claims.here(self.who).get(path)
        self._stored = {before} if before else set()
        self.has_lost_power = self.is_restored = False
        self._kept, self._verb, self._open = None, verb, 0
        super().do(verb, path, other, padding)
        if self._kept and not (self.has_lost_power or self.is_restored):
            place, token, deaths = self._kept
            if cast(Mount, self.system._mount).machine.deaths > deaths:
                self._claims.saved(self.who, place, token)
        if verb in WRITING and path not in self._claims.here(self.who):
            # After a failed save, the file has one of these contents, and a rename may follow.
            self._claims.may_replace(self._stored | {self._last})
        self.wrong[count:] = [
            each
            for each in self.wrong[count:]
            if not any(f"OSError({number}," in each for number in self.expected)
        ]

    def _removed(self, path: str) -> None:
        if self.has_lost_power and self._verb in IN_PLACE:  # what was synced before must stay
            with self._lock:
                self._claims.replaced(self.who, path, self._number(path))
        else:
            super()._removed(path)
            if self._open:  # a folder above it may have been renamed meanwhile
                self._claims.removed(self.who, path, self._open)

    def _may_have_saved(self, number: int) -> bool:
        """Return True also for a call that waits: it has any error of the upload."""
        return self.waits or self.flushes_there or super()._may_have_saved(number)

    def set_mode(self, path: str, other: str, padding: int) -> None:
        """Change the permission bits, which stay on this machine."""
        self.system.chmod(self.folder / path, 0o600 | (padding % 2 and 0o111))

    def touch(self, path: str, other: str, padding: int) -> None:
        """Set the times of a file, which stay on this machine."""
        self.system.utime(self.folder / path, (padding * SECOND_NS, padding * SECOND_NS + 7))

    def list_all(self, path: str, other: str, padding: int) -> None:
        for _ in self.folder.rglob("*"):
            pass

    def save_synced(self, path: str, other: str, padding: int) -> None:
        """Truncate, write and wait for the disk."""
        token, line = self._begin(NOT_READ, padding)
        with (self.folder / path).open("wb") as file:
            file.write(line)
            file.flush()
            self.system.fsync(file.fileno())
        self._saved(path, token)
        self._flushed(path, token)

    def save_and_sync(self, path: str, other: str, padding: int) -> None:
        """Save, and wait for the disk through another descriptor, as sync(1) does."""
        self.save(path, "", padding)
        descriptor = self.system.open(self.folder / path, os.O_RDONLY)
        try:
            self.system.fsync(descriptor)
        finally:
            self.system.close(descriptor)
        self._flushed(path, self._last)

    def write_on(self, path: str, other: str, padding: int) -> None:
        """Append a line, wait for the disk, and append more through the same descriptor."""
        with (self.folder / path).open("ab", buffering=0) as file:
            token, line = self._begin(NOT_READ, padding)
            file.write(line)
            self.system.fsync(file.fileno())
            self._saved(path, token, is_closed=False)
            self._flushed(path, token)
            first = token
            token, line = self._begin(NOT_READ, padding)
            file.write(line)
            number = self._inode(file.fileno())  # a coworker may move the file
        self._saved(path, token, number)
        self.continued.append((first, token))

    def log(self, path: str, other: str, padding: int) -> None:
        """Append a line, wait until it is saved although the file is open, and append another."""
        machine = cast(Mount, self.system._mount).machine
        with (self.folder / path).open("ab", buffering=0) as file:
            is_new = not self.system.fstat(file.fileno()).st_size
            token, line = self._begin(NOT_READ, padding)
            deaths = machine.deaths
            file.write(line)
            _sleep(KEPT_S)
            self.system.note_saved(file.fileno())
            is_same = machine.is_running and not machine.died_at and machine.deaths == deaths
            if is_same and not (is_new or machine.disk.had_trouble):
                self._kept = path, token, deaths
            _sleep(padding % 20)
            last, line = self._begin(NOT_READ, padding)
            file.write(line)
            number = self._inode(file.fileno())
        self._kept = None
        self._saved(path, last, number)
        self._claims.may_replace({token})  # the second line may be alone in a file

    def save_slowly(self, path: str, other: str, padding: int) -> None:
        """Read the file, and keep it open for a while before writing and before the close."""
        with (self.folder / path).open("r+b", buffering=0) as file:
            saw = self._read(path, file.read())
            number = self.system.fstat(file.fileno()).st_ino  # a coworker may move the file
            _sleep(padding % 7)
            token, line = self._begin(saw, padding)
            file.seek(0)
            file.write(line)
            file.truncate(len(line))
            if padding % 2:
                self.system.fsync(file.fileno())
            _sleep(padding % 5)
        self._saved(path, token, number)

    def patch(self, path: str, other: str, padding: int) -> None:
        """Overwrite the beginning of a file, which is all that is read, and wait meanwhile.

        A file that is too short, or has more than one line, is read and written as a whole.
        """
        with (self.folder / path).open("r+b", buffering=0) as file:
            start = file.read(START)
            number = self._inode(file.fileno())  # a coworker may move the file
            found = FIRST.match(start)
            before = self.lines.get(found["token"].decode(), b"") if found else b""
            size = self.system.fstat(file.fileno()).st_size
            if len(before) != size or size < 2 * START:
                content = start + file.read()
                token, line = self._begin(self._read(path, content), padding)
                file.seek(0)
                file.write(line)
                file.truncate(len(line))
            else:
                saw = self._read(path, before)
                _sleep(padding % 7)
                token, line = self._begin(saw, 0)
                line = self.lines[token] = line[:-1].ljust(size - 1, before[-2:-1]) + b"\n"
                file.seek(0)
                file.write(line[:START])
            _sleep(padding % 5)
        self._saved(path, token, number)

    def save_shorter(self, path: str, other: str, padding: int) -> None:
        """Append to a file, wait for the disk, and cut the file in front of its former content."""
        with (self.folder / path).open("r+b", buffering=0) as file:
            saw = self._read(path, file.read())
            token, line = self._begin(saw, padding)
            self.shortened.add(token)
            file.write(b"\0" * 5000)
            self.system.fsync(file.fileno())
            file.truncate(0)
            file.seek(0)
            file.write(line)
        self._saved(path, token)

    def save_emptied(self, path: str, other: str, padding: int) -> None:
        """Read the file, truncate it to nothing through the same descriptor, and write."""
        with (self.folder / path).open("r+b", buffering=0) as file:
            saw = self._read(path, file.read())
            number = self.system.fstat(file.fileno()).st_ino
            token, line = self._begin(saw, padding)
            file.seek(0)
            file.truncate()
            _sleep(padding % 5)
            file.write(line)
        self._saved(path, token, number)

    def save_redirected(self, path: str, other: str, padding: int) -> None:
        """Truncate the file, and close a duplicate of the descriptor first, as a shell does."""
        token, line = self._begin_unread(path, padding)
        first = self.system.open(self.folder / path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        output = self.system.dup(first)
        try:
            number = self.system.fstat(output).st_ino
            self.system.close(first)
            _sleep(padding % 5)
            self.system.write(output, line)
        finally:
            self.system.close(output)
        self._saved(path, token, number)

    def save_renamed_open(self, path: str, other: str, padding: int) -> None:
        """Read the file, write a temporary one, and rename that over the file before its close."""
        saw = NOTHING
        with contextlib.suppress(FileNotFoundError):
            saw = self._read(path, (self.folder / path).read_bytes())
        token, line = self._begin(saw, padding)
        draft = self.folder / PurePosixPath(path).parent / self.draft
        try:
            output = self.system.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                self.system.write(output, line)
                self._replaced(path, token)
                self._rename(draft, self.folder / path)
                self._stored.add(token)  # also if the close fails
                number = self.system.fstat(output).st_ino  # a coworker may move the file
                _sleep(padding % 5)
            finally:
                self.system.close(output)
            self._saved(path, token, number)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def save_beside_backup(self, path: str, other: str, padding: int) -> None:
        """Rename the file to a backup name, which stays on the machine, and write a new file."""
        backup = path + BACKUP
        with contextlib.suppress(FileNotFoundError):
            self.rename(path, backup, 0)
            self._removed(backup)
        self.save(path, "", padding)
        if padding % 2:
            self._removed(backup)
            with contextlib.suppress(FileNotFoundError):
                (self.folder / backup).unlink()

    def save_unchanged(self, path: str, other: str, padding: int) -> None:
        """Read the file, and save the same bytes again, in place or with a temporary file."""
        content = (self.folder / path).read_bytes()
        token = self._read(path, content)
        if token == NOT_READ:
            return
        self._claims.copied.add(token)  # the file may have another version by now
        self._last, self._begun_s = token, trio.current_time()
        refused = self.system.refused.copy()
        try:
            if padding % 2:
                (self.folder / path).write_bytes(content)
            else:
                self._replace(path, content, token)
        finally:
            self.system.refused = refused  # the service has the content anyway
        self._saved(path, token)

    def _replace(self, path: str, content: bytes, token: str) -> None:
        draft = self.folder / PurePosixPath(path).parent / self.draft
        try:
            draft.write_bytes(content)
            self._replaced(path, token)
            self._rename(draft, self.folder / path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def swap(self, path: str, other: str, padding: int) -> None:
        """Exchange two names; if the service refuses to tell an id before, ask again."""
        self._is_refused = False
        self._note_ids(path, other, moved=2)
        self._claims.swapped(self.who, path, other)
        self.system.rename(self.folder / path, self.folder / other, EXCHANGE)
        if self._is_refused:
            self._note_ids(path, other, known=self._noted, moved=2)

    def unlink(self, path: str, other: str, padding: int) -> None:
        """Remove a file whose attributes can be read."""
        try:
            found = self.system.getxattr(self.folder / path, "user.zonedrive.id")
            self._claims.took(found.decode(), path)
            self._claims.gave_up(self.who, found.decode())
        except OSError as wrong:
            if wrong.errno != errno.ENODATA:
                raise
        self._removed(path)
        (self.folder / path).unlink()

    def remove_tree(self, path: str, other: str, padding: int) -> None:
        """Remove a folder with all entries and, with an odd `padding`, create it again."""
        folder = PurePosixPath(path).parent
        if str(folder) == ".":
            return
        self._remove_below(folder)
        (self.folder / folder).rmdir()
        if padding % 2:
            (self.folder / folder).mkdir()

    def _remove_below(self, folder: PurePosixPath) -> None:
        for name in self.system.listdir(self.folder / folder):
            path = folder / name
            if (self.folder / path).is_dir():
                self._remove_below(path)
                (self.folder / path).rmdir()
            else:
                self.unlink(str(path), "", 0)

    def trash(self, path: str, other: str, padding: int) -> None:
        """Move a file or, with an odd `padding`, its folder into the trash of file managers."""
        path = str(PurePosixPath(path).parent) if padding % 2 and "/" in path else path
        self._note_ids(path)
        here = self._claims.here(self.who)
        below = [one for one in here if one == path or one.startswith(f"{path}/")]
        saved = {one: here[one] for one in below if self._is_at(one, here[one])}
        self._removed(path)
        trashed = self.wastebasket / f"{PurePosixPath(path).name} {padding}"
        self.system.rename(self.folder / path, trashed)
        self._claims.sent(saved)  # before the entry is deleted

    def _is_at(self, path: str, token: str) -> bool:
        """Return False if a file has another inode than the save, which is in a conflict copy.

        Also return False if a coworker has moved the file's entry to another folder.
        """
        file = self.folder / path
        with contextlib.suppress(OSError):
            if self._claims.inode(token) not in (0, file.stat().st_ino):
                return False
            ids = [self.system.getxattr(each, "user.zonedrive.id") for each in (file, file.parent)]
            node = self.world.nodes.get(ids[0].decode())
            return node is None or node.parent_id == ids[1].decode()
        return True

    def untrash(self, path: str, other: str, padding: int) -> None:
        """Move an entry out of the trash: each file, or the folder, of that name."""
        names = self.system.listdir(self.wastebasket)
        path = str(PurePosixPath(path).parent) if padding % 2 and "/" in path else path
        for name in names:
            if name.rpartition(" ")[0] == PurePosixPath(path).name:
                (self.wastebasket / name).rename(self.folder / path)

    def resolve(self, path: str, other: str, padding: int) -> None:
        """Do with a conflict copy in the folder what a person does with it."""
        folder = PurePosixPath(path).parent
        names = sorted(filter(COPY.search, self.system.listdir(self.folder / folder)))
        if not names:
            return
        copy = str(folder / names[padding % len(names)])
        original = COPY.sub("", copy)
        token = self._read(copy, (self.folder / copy).read_bytes())
        for place, saved in self._claims.here(self.who).items():
            if saved == token and place != copy:  # under the name that it had before the conflict
                self._claims.renamed(self.who, place, copy)
        match padding % 5:
            case 0:
                self.do("unlink", copy)
            case 1:
                self.do("rename", copy, original)
            case 2:
                self.do("save_within", copy, padding=padding)
            case 3:
                self.do("rename", copy, other)
            case 4:
                self.do("save_over", original, padding=padding)
                self.do("unlink", copy)

    def rename(self, path: str, other: str, padding: int) -> None:
        """Rename a file; if its id is not known before, because the service refuses, ask again.

        A coworker may have moved the folder of a file since it was saved.
        """
        self._is_refused = False
        with contextlib.suppress(OSError):
            number, here = (self.folder / path).stat().st_ino, self._claims.here(self.who)
            same = {token for token in here.values() if self._claims.inode(token) == number}
            self._claims.copied |= same
        super().rename(path, other, padding)
        if self._is_refused:
            self._note_ids(path, other, known=self._noted)

    def _note_ids(self, *paths: str, known: Sequence[str] | None = None, moved: int = 1) -> None:
        """Record files before a rename, because their content may become that of other files.

        After a rename, do so if one of the files is not in `known`, the ids from before. `moved` is
        the number of files that get the name of another one.
        """
        ids, taken = list[str](), list[str]()
        replaced = paths[1] if len(paths) == 2 and moved == 1 else ""
        for path in paths:
            try:
                found = self.system.getxattr(self.folder / path, "user.zonedrive.id")
                ids.append(found.decode())
                if path == replaced:
                    self._claims.gave_up(self.who, found.decode())
            except OSError as wrong:
                is_unknown = wrong.errno == errno.ENOENT  # a listing may come with the rename
                self._is_refused |= is_unknown or wrong.errno not in {*USUAL, errno.ENODATA}
                if is_unknown:
                    continue
            taken.append(path)
        if known is not None:
            taken = list(paths) if set(ids) - set(known) else []
        for each in (*ids, *(known or ())):
            for path in taken:
                self._claims.took(each, path)
        is_new = len(paths) == 2 and known is None and self._claims.was_left(paths[1])
        replaces = len(ids) == 2 or is_new
        for each in ids[:moved] if replaces else ():
            # One file replaces another. A coworker may have given it its name, so that the claims
            # do not know what it contains.
            if (node := self.world.nodes.get(each)) is not None and node.versions:
                self._claims.may_replace({head(node.versions[-1].data) or NOTHING})
        self._noted = ids

    def _read(self, path: str, content: bytes) -> str:
        saw = super()._read(path, content)
        # An earlier save of this machine may have emptied it, before the machine died.
        return NOT_READ if saw == NOTHING else saw

    def _inode(self, descriptor: int) -> int:
        self._open = int(self.system.fstat(descriptor).st_ino)
        return self._open

    def _flushed(self, path: str, token: str) -> None:
        if self.is_restored:
            return
        self._claims.flushed(self.who, path, token)
        if self.flushes_there and not self._claims.stays(path):
            self._claims.sent({path: token})

    def _saved(self, path: str, token: str, number: int = 0, *, is_closed: bool = True) -> None:
        self._stored.add(token)
        if trio.current_time() > self._begun_s:  # a newer version may have been opened
            self._claims.shown_ns.pop(token, None)
        super()._saved(path, token, number)
        if self.waits and is_closed and not self._claims.stays(path):
            self._claims.sent({path: token})
        if self.is_restored:
            self._claims.restored(self.who)
        if self.has_lost_power:  # after close(2) had returned, and before the descriptor was gone
            self._claims.forget(self.who)

    def _begin(self, saw: str, padding: int) -> tuple[str, bytes]:
        token, line = super()._begin(saw, padding)
        self._last, self._begun_s = token, trio.current_time()
        self.lines[token] = line
        return token, line

    def _rename(self, old: Any, new: Any) -> None:  # type: ignore[override]
        began_s = trio.current_time()
        is_settled = began_s > self._begun_s + self.settle_s
        try:
            old.rename(new)
        finally:  # a logoff may have begun meanwhile
            if old.name == self.draft and (is_settled or self._begun_s <= self.hurried_s):
                self._claims.copied.add(self._last)  # the temporary file may have been sent
        if trio.current_time() > began_s:  # the file may have got another version meanwhile
            self._claims.replacing.add(self._last)


def _sleep(seconds: float) -> None:
    """Let a program wait, in virtual time."""
    if seconds:
        getcurrent().parent.switch(partial(trio.sleep, seconds))


class Complaints(logging.Handler):
    """Errors that the clients log, and other entries that show a mistake of a client."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self.entries: list[str] = []
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry that is a finding, as an error with a traceback is."""
        disk = disks.CURRENT.get()
        who = "?" if disk is None else disk.folder.name
        text = logging.Formatter("%(levelname)s %(message)s").format(record)
        if disk is not None:
            text = DAMAGED.sub("damaged", text.replace(f"{disk.folder}/", ""))
        self._trace.note(f"{who}.", SQLITE.sub("", RANDOM.sub("", text)))
        error = record.levelno >= logging.ERROR and (record.exc_info or TABLE.search(text))
        if error or ADDRESS.search(text):
            self.entries.append(f"{who} logged {text}")

    @contextmanager
    def listening(self, level: int) -> Iterator[None]:
        """Get the entries from this level on that are logged in the block."""
        logger = logging.getLogger("zonedrive")
        before, propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(level)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before)
            logger.propagate = propagate


class Mount:
    """Members of a mount that `System` needs."""

    def __init__(self, machine: Machine) -> None:
        self.client: Client = machine
        self.machine = machine

    def call(self, work: Callable[..., Coroutine[Any, Any, ResultT]], *args: Any) -> ResultT:
        """Make a system call; the other tasks continue only if it waits."""
        call = self.machine.call(work, *args)
        try:
            wait = call.send(None)
        except StopIteration as done:
            return cast(ResultT, done.value)
        found: outcome.Outcome[ResultT] = getcurrent().parent.switch(partial(_rest, call, wait))
        return found.unwrap()

    def take(self, lock: trio.Lock) -> None:
        """Wait for a lock; the other tasks continue only if another program has it."""
        try:
            lock.acquire_nowait()
        except trio.WouldBlock:
            getcurrent().parent.switch(lock.acquire)


class Run:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self._folder = scenario, folder
        self.trace, self.claims = Trace(), Claims()
        self.findings: list[str] = []
        self.done: Counter[str] = Counter()
        self._rescued = 0
        self._pinned: dict[str, set[str]] = defaultdict(set)  # ids by machine
        self._doing: dict[str, str] = {}
        self.world = RecordedWorld()
        if scenario.service != "memory":
            is_paged = scenario.service == "paged"
            sandbox = self.world = SandboxWorld(folder / "service", is_paged=is_paged)
            sandbox.paginates = all(step.verb != "paginate" for step in scenario.steps)
        if scenario.times != "exact":
            self.world.answer_unit_us = SECOND_US
            self.world.step_us = SECOND_US if scenario.times == "whole" else self.world.step_us
        levels = LEVELS | {"dora": Level.MANAGE}  # a zone always has a manager
        people = {f"{name}@{DOMAIN}": level for name, level in levels.items()}
        self._zone = self.world.add_zone(ZONE, people)
        self._zones = dict(self.world.zones)
        self._web = Coworker(self.world, f"bob@{DOMAIN}", self._zone)
        self.machines: dict[str, Machine] = {}
        self._programs: dict[str, SimulatedProgram] = {}
        self._systems: dict[str, WatchedSystem] = {}
        self._lines: dict[str, bytes] = {}
        verbs = {step.verb for step in scenario.steps}
        self._is_alone = len(scenario.users) == 1 and all(
            step.who != WEB and step.verb not in ("restore", "trash", "untrash")
            for step in scenario.steps
        )
        # Two programs write the same files: a version may have bytes of both.
        self._shares = any(
            step.who.endswith("+") and PurePosixPath(step.arguments[0]).name not in SECOND_NAMES
            for step in scenario.steps
        )
        self._changes_profile = "profile" in verbs
        self._has_trouble = any(step.who.endswith("~") for step in scenario.steps)
        self._loses_rights = not LESS_RIGHTS.isdisjoint(verbs)
        self._is_full_once = Step(SERVICE, "full") in {
            replace(step, at_s=0.0) for step in scenario.steps
        }
        self._is_published = scenario.profile == "published" or self._changes_profile
        self._is_published |= bool(scenario.lacking)
        self._profile = scenario.profile
        if scenario.lacking:
            path = folder / "profile.toml"
            path.write_text(profile_without(scenario.lacking))
            self._profile = str(path)

    async def play(self) -> None:
        """Play the scenario."""
        async with trio.open_nursery() as nursery:
            try:
                await self._begin(nursery)
                self._began = trio.current_time()
                last_s = max((step.at_s for step in self.scenario.steps), default=0.0)
                with trio.move_on_after(last_s + HANGING_S) as scope:
                    async with trio.open_nursery() as actors:
                        for who in dict.fromkeys(step.who for step in self.scenario.steps):
                            actors.start_soon(self._act, who)
                if scope.cancelled_caught:
                    raise Finding(f"these do not end: {sorted(self._doing.items())}")
                with trio.move_on_after(HANGING_S) as scope:
                    await self._end()
                if scope.cancelled_caught:
                    raise Finding("the end does not come")
            except Finding as found:
                self.findings.append(str(found))
            for machine in self.machines.values():
                if machine.is_running:
                    with contextlib.suppress(OSError):
                        await machine.stop()
            nursery.cancel_scope.cancel()
        for system in self._systems.values():
            self.findings += system.findings
        if self.world.moved_late:  # as by a coworker, whom the model does not know
            self.findings = [each for each in self.findings if not each.startswith(ALONE)]
        for program in self._programs.values():
            self.findings += program.wrong
            self.done += program.done
        for machine in self.machines.values():
            self.findings += machine.cache_findings
            self.findings += sorted(machine.place_findings)

    # ---- the days ----

    async def _begin(self, nursery: trio.Nursery) -> None:
        scenario = self.scenario
        self._web.make_folder(FOLDER)
        for folder in FOLDERS[1:]:
            self._web.make_folder(f"{FOLDER}/{folder}")
        for path in scenario.planted:
            self._web_writes(path, 2 * CHUNK if scenario.pieces == "small" else 0)
        options = dict(each.split("=") for each in scenario.options)
        local_only = options.get("local_only")
        self._stays = LocalNames(local_only.split(":") if local_only else LOCAL_ONLY)
        self.claims.stays = self._stays
        cut = {step.who for step in scenario.steps if step.verb == "power"}
        for name, user in zip(MACHINES, scenario.users, strict=False):
            place = self._folder / name
            place.mkdir()
            machine = Machine(
                name, place, self.world, nursery, scenario.seed,
                user=user, profile=self._profile, options=options,
                may_lose_power=f"{name}!" in cut, has_caches=scenario.kernel == "caching",
            )  # fmt: skip
            machine.lost_power = partial(self._lose_power, name)
            self.machines[name] = machine
            system = self._systems[name] = WatchedSystem(
                Mount(machine), name, machine.identity, self.world
            )
            for who in sorted({name, *(step.who for step in scenario.steps)} & {name, f"{name}+"}):
                self._programs[who] = self._program(who, machine, system)
            await machine.boot()
        is_usual = not (self._changes_profile or self._loses_rights or scenario.lacking)
        # The bytes of an open file that another program replaces are only in the cache.
        is_usual &= not (self._shares and self._is_spoiled(self.machines["A"]))
        if self._is_alone and is_usual:
            tree = {path: (content, self._id(path)) for path, content in self._there().items()}
            settle_s = self.machines["A"].settings.settle
            drafts = {each.draft for each in self._programs.values()}
            drafts = drafts if scenario.profile == "published" else set()
            late = self.world.sent_late
            # A client that gets no second answer cannot know whether a time is its own.
            self._systems["A"].model = Model(
                f"{ZONE}/{FOLDER}", tree, settle_s, drafts, late, self._stays,
                keeps_times=scenario.times != "mixed" or not self._has_trouble,
            )  # fmt: skip

    def _program(self, who: str, machine: Machine, system: WatchedSystem) -> SimulatedProgram:
        """Return the program `who` on a machine."""
        scenario = self.scenario
        verbs = {step.verb for step in scenario.steps}
        root = VirtualPath(system, PurePosixPath(ZONE, FOLDER))
        program = SimulatedProgram(machine.name, root, self.claims, threading.Lock(), self.trace)  # type: ignore[arg-type]
        program.system, program.lines, program.world = system, self._lines, self.world
        troubles = {
            step.verb
            for step in scenario.steps
            if step.who in (f"{machine.name}~", f"{machine.name}!", f"{machine.name}@")
        }
        program.continued, program.shortened = [], set()
        program.wastebasket = VirtualPath(system, PurePosixPath(WASTEBASKET))
        program.troubled = bool(troubles) or self._loses_rights or self._is_full_once
        program.expected = DISK_TROUBLE if troubles & {"full", "failing"} else set()
        if self._is_published or "trash" in verbs:
            program.expected = program.expected | {errno.EXDEV, errno.EBUSY}
        if not self._is_alone:  # a coworker may rename an entry at the same time
            program.expected = program.expected | {errno.EBUSY}
        program.waits = machine.settings.close == "wait"
        program.flushes_there = machine.settings.fsync == "service"
        system.waits = program.waits or program.flushes_there
        program.troubled |= system.waits
        program.settle_s = -1.0 if program.waits else machine.settings.settle
        program.draft = f"draft-{who}"
        return program

    def _id(self, path: str) -> str:
        return self._web.entry_id(f"{FOLDER}/{path}")

    async def _act(self, who: str) -> None:
        """Do the steps of one actor, one after the other."""
        for step in [each for each in self.scenario.steps if each.who == who]:
            await trio.sleep_until(self._began + step.at_s)
            self._doing[who] = str(step)
            if who == WEB:
                self._web_works(step)
            elif who == SERVICE:
                self._change_service(step)
            elif who.endswith("~"):
                self._change_weather(self.machines[who[0]], step)
            elif who.endswith("!"):
                await self._change_life(self.machines[who[0]], step)
            elif who.endswith("$"):
                await self._run_command(self.machines[who[0]], step)
            elif who.endswith("&"):
                await self._hold(self.machines[who[0]], *step.arguments)
            elif who.endswith("%"):
                name = self.machines[who[0]].spoil_cache(step.verb, step.arguments[0])
                self.trace.note(who, RANDOM.sub("", f"{step.verb} {name}"))
            elif who.endswith("@"):
                await self._change_account(self.machines[who[0]], step)
            else:
                await self._work(self.machines[who[0]], step)
            del self._doing[who]
            self._check_places()

    def _check_places(self) -> None:
        for machine in self.machines.values():
            machine.check_places()

    async def _work(self, machine: Machine, step: Step) -> None:
        who, program = step.who, self._programs[step.who]
        if not machine.is_running:
            await self._revive(machine)
        path, other, padding = step.arguments
        began = trio.current_time()
        with machine.acting():
            await _ran(program.do, step.verb, path, other, int(padding))
        took = trio.current_time() - began
        await machine.check_caches()
        if took > LONGEST_S:
            self.findings.append(f"{who}: {step.verb} {path} took {took:.0f} s")

    async def _hold(self, machine: Machine, path: str, size: str, seconds: str) -> None:
        """Read a part of a file, wait, and read the rest: both are of one version.

        A program that reads the version of before may get ESTALE if somebody else changes files.
        """
        if not machine.is_running:
            return

        async def call(name: str, *args: object) -> Any:
            return await machine.perform(getattr(machine.kernel, name), *args)

        kernel, system = machine.kernel, self._systems[machine.name]
        whole, began_s = f"{ZONE}/{FOLDER}/{path}", trio.current_time()
        what, descriptor, said = f"hold {path}", 0, ""
        try:
            descriptor = await call("open", whole, os.O_RDONLY)
            data: bytes = await call("read", descriptor, int(size))
            await trio.sleep(float(seconds))
            with contextlib.suppress(OSError):
                said = await self._look(machine, whole)
            data += await call("read", descriptor, ALL)
            shown = (await call("fstat", descriptor)).st_size
            is_changed = system.changed_s.get(kernel.ino_of(descriptor), -1.0) >= began_s
            if not is_changed and (rest := checker.rest_of(data, self._lines)):
                said = f"reads {len(data)} bytes, with what nobody wrote: {rest[-60:]!r}"
            # A write that a full disk rejects may undo what was read.
            elif not (is_changed or machine.disk.had_trouble) and shown != len(data):
                said = f"reads {len(data)} bytes, and fstat says {shown}"
        except OSError as wrong:
            number = wrong.errno or 0
            self.trace.note(f"{machine.name}&", f"{what}: {wrong}")
            is_usual = {errno.ESTALE} if not self._is_alone else set[int]()
            is_usual |= set() if descriptor else {errno.ENOENT, errno.EISDIR, errno.ENOTDIR}
            is_same = machine.kernel is kernel and machine.is_running
            is_hindered = system.lost_power or self._loses_rights
            if is_same and system.calm and not is_hindered and number not in is_usual:
                said = f"{errno.errorcode.get(number)}, though nothing is wrong"
        else:
            self.trace.note(f"{machine.name}&", f"{what}: {len(data)} bytes")
        if said and not ((self._has_torn_bytes() or self._shares) and "nobody wrote" in said):
            self.findings.append(f"{machine.name}: {what} {said}")
        if descriptor:
            with contextlib.suppress(OSError):
                await call("close", descriptor)

    async def _look(self, machine: Machine, path: str) -> str:
        """Read a file anew; return what is wrong if its size is not that of its content."""
        kernel, now_s = machine.kernel, trio.current_time()
        size = (await machine.perform(kernel.lstat, path)).st_size
        data, ino = await self._read_whole(machine, path)
        is_changed = self._systems[machine.name].changed_s.get(ino, -1.0) >= now_s
        if len(data) == size or is_changed or trio.current_time() > now_s:
            return ""
        return f"has {size} bytes, and shows {len(data)} to another program"

    async def _read_whole(self, machine: Machine, path: str) -> tuple[bytes, int]:
        """Return the content of a file, and its inode number."""
        kernel = machine.kernel
        descriptor = await machine.perform(kernel.open, path, os.O_RDONLY)
        ino = kernel.ino_of(descriptor)
        try:
            return await machine.perform(kernel.pread, descriptor, ALL, 0), ino
        finally:
            if machine.kernel is kernel:
                await machine.perform(kernel.close, descriptor)

    def _has_torn_bytes(self) -> bool:
        """Return True if a file may have bytes that no program wants, without any sign of that."""
        verbs = {step.verb for step in self.scenario.steps}
        is_plain = "encrypt=no" in self.scenario.options or "save_shorter" in verbs
        # A machine that is stopped in order closes the files of its programs between two writes.
        is_stopped = not STOPPING.isdisjoint(verbs)
        is_cut_off = any(each.done["ENOTCONN"] for each in self._programs.values())
        return ("power" in verbs and is_plain) or (is_stopped and is_cut_off)

    async def _revive(self, machine: Machine) -> None:
        """Start a dead machine; it may die again on the way."""
        async with machine.turn:
            while not machine.is_running:
                await machine.ended()
                self.trace.note(machine.name, "starts")
                if (model := self._systems[machine.name].model) is not None:
                    model.ended()
                try:
                    await machine.boot()
                except OSError as wrong:
                    if wrong.errno not in DISK_TROUBLE or not machine.disk.is_troubled:
                        raise
                    await trio.sleep(LOOK_S)

    def _programs_of(self, name: str) -> list[SimulatedProgram]:
        """Return the programs on a machine."""
        return [program for who, program in self._programs.items() if who[0] == name]

    def _lose_power(self, name: str) -> None:
        self.claims.forget(name)
        self.world.forget_listings(name)
        self._pinned.pop(name, None)
        for program in self._programs_of(name):
            program.has_lost_power = True
            self.claims.copied |= program.shortened
        self._systems[name].lost_power = True
        if (model := self._systems[name].model) is not None:
            model.is_off = True

    def _change_weather(self, machine: Machine, step: Step) -> None:
        self.trace.note(step.who, step.verb)
        self._systems[machine.name].calm.note("weather", begins=step.verb != "calm")
        machine.weather = WEATHERS[step.verb]
        if step.verb == "calm" and machine.is_running:
            machine.service.link.recheck()

    async def _change_life(self, machine: Machine, step: Step) -> None:
        self.trace.note(step.who, f"{step.verb} {' '.join(step.arguments)}")
        calm = self._systems[machine.name].calm
        calm.note("disk" if step.verb in DISK_STEPS else step.verb, begins=step.verb not in ENDS)
        match step.verb:
            case "die" | "power":
                machine.die_after(int(step.arguments[0]), is_power_cut=step.verb == "power")
                await trio.sleep(20)
                machine.die_now()
                await self._revive(machine)
            case "restart":
                if machine.is_running:
                    await machine.stop()
                await self._revive(machine)
            case "pause" | "resume":
                with contextlib.suppress(OSError):
                    await machine.perform(partial(machine.command, step.verb))
            case "clock":
                machine.fast_s += float(step.arguments[0])
            case "full" | "room":
                machine.disk.is_full = step.verb == "full"
            case "failing" | "sound":
                machine.disk.failing = 0.05 if step.verb == "failing" else 0.0
        if step.verb in ("die", "power", "restart"):
            calm.note(step.verb, begins=False)

    async def _run_command(self, machine: Machine, step: Step) -> None:
        """Run a command on a machine; its errors do not matter."""
        (path,) = step.arguments
        arguments: dict[str, Any] = {"paths": [str(PurePosixPath(ZONE, FOLDER, path))]}
        if step.verb == "restore":
            trash = self._web.trash()
            arguments = {"zone": ZONE, "entries": [trash[-1]["id"]] if trash else []}
        if step.verb == "send":
            arguments["timeout"] = SYNC_S
        whole, said = f"{ZONE}/{FOLDER}/{path}", "fails"
        ids = {machine.identity(whole)}
        # The end of a client cancels the wait of a command, not the command, as a deadline does:
        # its nursery then ends without a result.
        with contextlib.suppress(OSError, ZonedriveError, UnboundLocalError):
            answer = await machine.perform(partial(machine.command, step.verb, **arguments))
            said = str(answer.get("exit"))
        self.trace.note(step.who, f"{step.verb} {path}: {said}")
        ids.add(machine.identity(whole))
        if step.verb in ("pin", "unpin"):
            known = set(filter(None, ids))
            self._pinned[machine.name] -= known
            if step.verb == "pin" and said in ("0", "4") and len(ids) == 1:
                self._pinned[machine.name] |= known

    async def _change_account(self, machine: Machine, step: Step) -> None:
        """Use the other profile from now on, log off and on again, or restore a copy of data."""
        self.trace.note(step.who, step.verb)
        calm = self._systems[machine.name].calm
        calm.note(step.verb, begins=True)
        if step.verb == "back_up":
            machine.back_up()
        elif step.verb in ("bring_back", "damage"):
            await self._lose_data(machine, step)
        elif step.verb == "profile":
            is_published = machine.profile == "published"
            await self._use(machine, "sandbox" if is_published else "published")
        elif machine.is_running:
            with contextlib.suppress(OSError):  # it died meanwhile
                await self._log_off(machine)
            await self._revive(machine)
        calm.note(step.verb, begins=False)

    async def _use(self, machine: Machine, profile: str) -> None:
        """Start again with a profile."""
        if machine.is_running:
            await machine.stop()
        machine.profile = profile
        await self._revive(machine)

    async def _lose_data(self, machine: Machine, step: Step) -> None:
        """Restore the data of an earlier time, or damage it: saves are lost, or sent again."""
        if machine.is_running:
            with contextlib.suppress(OSError):
                await machine.stop()
        if step.verb == "damage":
            machine.damage_database(*step.arguments)
        else:
            machine.bring_back()
        self.claims.restored(machine.name)
        self.world.forget_listings(machine.name)
        self._pinned.pop(machine.name, None)
        for program in self._programs_of(machine.name):
            program.is_restored = True
        self._systems[machine.name].lost_power = True  # bytes of that time may be gone
        if (model := self._systems[machine.name].model) is not None:
            model.is_off = True
        await self._revive(machine)

    async def _log_off(self, machine: Machine) -> None:
        """Delete all local data, unless some of it is only on the machine."""
        before = await self._sendable(machine)
        doing = [  # a program may have emptied its file, or appended to it
            word
            for who, step in self._doing.items()
            if who.rstrip("+") == machine.name
            for word in step.split()
        ]
        before = {path: token for path, token in before.items() if path not in doing}
        local = self.claims.here(machine.name).keys() - before.keys()
        for program in self._programs_of(machine.name):
            program.hurried_s = math.inf
        answer = await machine.perform(partial(machine.command, "sync", timeout=SYNC_S))
        for program in self._programs_of(machine.name):
            program.hurried_s = trio.current_time()
        if answer.get("exit") == 0:
            here = self.claims.here(machine.name)  # programs work meanwhile
            self.claims.sent(
                {path: token for path, token in before.items() if here.get(path) == token}
            )
        if machine.is_running:
            await machine.stop()
        if machine.died_at or not machine.erase():
            self.trace.note(machine.name, "stays logged on")
            return
        self.trace.note(machine.name, "is logged off")
        self._pinned.pop(machine.name, None)
        await trio.sleep(MOMENT_S)  # programs hear of the end of their last calls
        for path, token in self.claims.here(machine.name).items():
            if path in local or (self._stays(path) and before.get(path) != token):
                self.claims.removed(machine.name, path)
        if (model := self._systems[machine.name].model) is not None:
            model.is_off = True

    def _change_service(self, step: Step) -> None:
        self.trace.note(SERVICE, " ".join([step.verb, *step.arguments]))
        match step.verb:
            case "paginate":
                if isinstance(self.world, SandboxWorld):
                    self.world.paginates = True
            case "level":
                user, level = step.arguments
                self._set_level(user, level)
            case "zone_gone" | "zone_back":
                self._show_zone(is_shown=step.verb == "zone_back")
            case "write_protect" | "read_protect" | "unprotect":
                (path,) = step.arguments
                self._protect(path, step.verb)
            case "full" | "room":
                self.world.is_full = step.verb == "full"
                for system in self._systems.values():
                    system.calm.note("full", begins=self.world.is_full)

    def _show_zone(self, *, is_shown: bool) -> None:
        """Let the service know the zone, or not; a sandbox cannot forget one."""
        if not isinstance(self.world, SandboxWorld):
            self.world.zones = dict(self._zones) if is_shown else {}
            for system in self._systems.values():
                system.calm.note("zone", begins=not is_shown)

    def _protect(self, path: str, verb: str) -> None:
        """Protect what is at a path, or end that; entries of a sandbox stay as they are."""
        node = None if isinstance(self.world, SandboxWorld) else self._web.node(f"{FOLDER}/{path}")
        if node is not None:
            node.flags["writeProtected"] = verb == "write_protect"
            node.flags["readProtected"] = verb == "read_protect"

    def _set_level(self, user: str, name: str) -> None:
        """Change the rights of a person in the zone."""
        level = Level.parse(name)
        assert level is not None
        self.world.set_level(self._zone, f"{user}@{DOMAIN}", level)
        for machine in self.machines.values():
            if machine.user == f"{user}@{DOMAIN}":
                self._systems[machine.name].calm.note("level", begins=level < Level.MODIFY)

    # ---- somebody at a browser ----

    def _web_writes(self, path: str, padding: int = 0) -> None:
        token, line = self.claims.begin(WEB, NOT_READ, padding)
        self._lines[token] = line
        self._web.write(f"{FOLDER}/{path}", line)
        self.claims.saved(WEB, path, token)
        self.trace.note(WEB, f"saved {token} at {path}")

    def _web_works(self, step: Step) -> None:
        """Write, rename, remove or restore an entry as a person in a browser."""
        path, other, *padding = step.arguments
        self.trace.note(WEB, f"{step.verb} {path} {other}")
        with contextlib.suppress(AssertionError, ApiError):  # not there, taken, in a lost folder
            match step.verb:
                case "write":
                    self._web_writes(path, *map(int, padding))
                case "move":
                    self.claims.renamed(WEB, path, other)
                    self._web.move(f"{FOLDER}/{path}", f"{FOLDER}/{other}")
                case "delete":
                    self._web.delete(f"{FOLDER}/{path}")
                case "restore":
                    if trash := self._web.trash():
                        self._web.restore(trash[-1]["id"])
                case "move_folder":
                    old, new = str(PurePosixPath(path).parent), str(PurePosixPath(other).parent)
                    if old != ".":
                        self.claims.renamed(WEB, old, f"{new}/moved")
                        self._web.move(f"{FOLDER}/{old}", f"{FOLDER}/{new}/moved")
                case "delete_folder":
                    folder = PurePosixPath(path).parent
                    if str(folder) != ".":
                        self._web.delete(f"{FOLDER}/{folder}")

    # ---- the end ----

    async def _end(self) -> None:
        self.world.is_full = False
        self._show_zone(is_shown=True)
        for user in {*self.scenario.users} if self._loses_rights else ():
            self._set_level(user, "Modify")
        for node in self.world.nodes.values() if self._loses_rights else ():
            node.flags |= {"writeProtected": False, "readProtected": False}
        for name, machine in self.machines.items():
            machine.weather = WEATHERS["calm"]
            machine.disk.is_full, machine.disk.failing = False, 0.0
            machine.die_after(-1, is_power_cut=False)
            await self._revive(machine)
            if self._changes_profile:
                await self._use(machine, "sandbox")
            await self._go_online(machine)
            await machine.perform(partial(machine.command, "resume"))
            await self._clean_up(name)
        self.trace.note("-", "peace")
        for final in (False, False, True):
            for name in self.machines:
                await self._sync(name, final=final)
        for machine in self.machines.values():
            self.findings += await self._missing_offline(machine)
        await self._converge()
        cut = [name for name, machine in self.machines.items() if machine.power_cuts]
        for name in cut:  # it may have forgotten a temporary file, and found it on the service
            await self._clean_up(name)
            await self._sync(name, final=True)
        if cut:
            await self._converge()
        for name in self.machines:
            await self._sync(name, final=True)
        await trio.sleep(LOOK_S)
        for machine in self.machines.values():
            if machine.is_running:
                await self._go_online(machine)  # a request of before may have just timed out
                self.findings += machine.leftovers()
                self.findings += await self._misreported(machine)
            if self.scenario.seed % STARTS_AGAIN == 0:
                self.findings += await self._forgotten(machine)
        allowed = {each.draft for each in self._programs.values()}
        waits = any(each.waits for each in self._programs.values())  # a close sends a draft, too
        # A file that was sent and then got a name of `local_only` stays there. A client that has
        # not heard of the rights again cannot remove a draft.
        may_stay = self._is_published or waits or self._has_local_names() or self._loses_rights
        allowed = allowed if may_stay else set()
        allowed |= set(LOCAL_NAMES)
        # An entry that was waiting under a temporary name is deleted under the name that it has
        # here, which may be a backup's. A coworker may restore it, or the profile cannot delete it.
        is_kept = "delete" in self.scenario.lacking
        if is_kept or any(step.verb == "restore" for step in self.scenario.steps):
            allowed |= {name + BACKUP for name in (*NAMES, *SECOND_NAMES)}
        # An exchange of two names had begun, and nobody knows of it any more: the data of its
        # machine is older, or somebody has deleted the entry meanwhile, and it is restored.
        losing = {"bring_back", "damage", "restore"}
        is_restored = any(step.verb in losing for step in self.scenario.steps)
        for path in self._there():
            if is_restored and any(map(is_aside, path.split("/"))):
                continue
            if not _expected(path, allowed):
                self.findings.append(f"a stray entry: {path}")
        self.claims.late, self.claims.moment_s = self.world.sent_late, self.world.race_s
        if not self._shares:
            versions = [each for node in self.world.nodes.values() for each in node.versions]
            contained = set[str]().union(*(lines_in(each.data) for each in versions))
            self.findings += self.claims.findings(self._histories(), contained)
            self.findings += self._twice()
        await self._check()

    async def _converge(self) -> None:
        """Wait until all machines show what the service has. Raises Finding."""
        deadline = trio.current_time() + PEACE_S
        trusted_s = max(machine.settings.refresh for machine in self.machines.values())
        # A name is asked for again after this time. A listing that took long is trusted for longer.
        # A file that was renamed to a name of `local_only` is released after the listing.
        has_more_steps = self._has_trouble or self._has_local_names()
        if self.scenario.kernel == "caching" and not has_more_steps:
            deadline = trio.current_time() + trusted_s
        while not await self._agree():
            if trio.current_time() > deadline:
                raise Finding(f"no agreement: {await self._differences()}")
            await trio.sleep(max(LOOK_S, trusted_s))

    async def _clean_up(self, name: str) -> None:
        """Let the programs of a machine remove their temporary files."""
        for program in self._programs_of(name):
            program.troubled = False
            with self.machines[name].acting(), contextlib.suppress(OSError):
                await _ran(program.clean_up)

    async def _go_online(self, machine: Machine) -> None:
        """Wait until a machine knows that the service can be reached, for up to PEACE_S."""
        with trio.move_on_after(PEACE_S):
            while machine.service.link.state != "online":
                machine.service.link.recheck()
                await trio.sleep(1)

    async def _missing_offline(self, machine: Machine) -> list[str]:
        """Return the pins that a machine has lost, and the pinned files that it cannot read without
        a connection, although there was time to fetch them.
        """
        pins = (await machine.perform(partial(machine.command, "pins")))["pins"]
        if self._is_spoiled(machine) or self._is_small or not (pins or self._pinned[machine.name]):
            return []
        # What a disk has lost after it was fetched is noticed by the next check of all pins.
        await trio.sleep(PINNED_S + (RECHECK_S if machine.disk.had_trouble else 0))
        pins = (await machine.perform(partial(machine.command, "pins")))["pins"]
        listed = {machine.identity(pin["path"]) for pin in pins}
        nodes = self.world.nodes
        lost = [nodes[one] for one in self._pinned[machine.name] - listed if one in nodes]
        found = [f"the pin of {node.name} is lost" for node in lost if not node.trash_id]
        machine.weather = WEATHERS["down"]
        with trio.move_on_after(PEACE_S):
            while machine.service.link.state == "online":
                machine.service.link.recheck()
                await trio.sleep(1)
        there = self._there()
        ids = {self._id(path): path for path in there} | {self._web.entry_id(FOLDER): ""}
        for pin in pins:
            root = ids.get(machine.identity(pin["path"]) or "")
            for path, content in there.items() if root is not None else ():
                if content is None or self._stays(path) or not _is_at_or_below(path, root or ""):
                    continue
                whole = str(PurePosixPath(pin["path"], path.removeprefix(root or "").lstrip("/")))
                try:
                    data, _ = await self._read_whole(machine, whole)
                except OSError as wrong:
                    # Here, the file may have the name of a backup.
                    is_backup = machine.identity(whole + BACKUP) == self._id(path)
                    may_be_away = is_backup or self._has_local_names()
                    if wrong.errno != errno.ENOENT or not may_be_away:
                        found.append(f"the pinned file {whole} cannot be read: {wrong}")
                else:
                    if data != content:
                        found.append(f"the pinned file {whole} has {short(data)}")
        machine.weather = WEATHERS["calm"]
        machine.service.link.recheck()
        return [f"{machine.name}: {each}" for each in found]

    async def _forgotten(self, machine: Machine) -> list[str]:
        """Return what a machine shows in another way after a start without a connection."""
        if self._is_small:  # content that is not cached may be newer than the listing
            await trio.sleep(machine.settings.refresh)
        before = await self._shown(machine)
        await machine.stop()
        machine.weather = WEATHERS["down"]
        await machine.boot()
        after = await self._shown(machine)
        machine.weather = WEATHERS["calm"]
        machine.service.link.recheck()
        found = []
        uncached = {"remote", "conflict"}  # states of files whose content need not be here
        if self._is_spoiled(machine) or self._is_small:
            uncached.add("cached")
        for path in sorted(before.keys() | after.keys()):
            one, other = before.get(path), after.get(path)
            if machine.disk.had_trouble and one and one[0] == short(b"") and one[2] == "local":
                continue  # the disk was too full to store the file, and to remove it
            if one and other and one[3:] == other[3:]:
                is_backup = one[2] == "local" and one[1]  # its content is that of the service
                if one[2] in uncached or is_backup:
                    continue
            if one != other:
                found.append(f"{machine.name} {path} was {one}, and is {other} after a start")
        return found

    def _has_local_names(self) -> bool:
        """Return True if a step of the scenario has a name of `local_only`."""
        steps = self.scenario.steps
        return any(self._stays(argument) for step in steps for argument in step.arguments)

    def _is_spoiled(self, machine: Machine) -> bool:
        """Return True if another program changes the cache of a machine."""
        return any(step.who == f"{machine.name}%" for step in self.scenario.steps)

    @property
    def _is_small(self) -> bool:
        """True if a cache may have no room for all files, so that reading one removes another."""
        return "cache_size=100000" in self.scenario.options

    async def _shown(self, machine: Machine) -> dict[str, tuple[object, ...]]:
        """Return content, id, state, mode, size and time of all that a machine shows, by path."""
        found: dict[str, tuple[object, ...]] = {}
        tree = await machine.perform(machine.kernel.tree, f"{ZONE}/{FOLDER}")
        for path, content in tree.items():
            status = await machine.perform(machine.kernel.lstat, f"{ZONE}/{FOLDER}/{path}")
            said = [await self._attribute(machine, path, name) for name in ("id", "state")]
            times = (status.st_mtime_ns, status.st_size) if content is not None else ()
            # The rights in a zone are not known at a start without a connection.
            mode = status.st_mode & ~(0o222 if self._loses_rights else 0)
            found[path] = (short(content), *said, mode, *times)
        return found

    async def _check(self) -> None:
        """Compare the service with what programs wrote, and were told."""
        there = self._there()
        steps = self.scenario.steps
        # Of a file that is not encrypted, nothing shows that a power cut has torn it. What is
        # written after an fsync changes the synced bytes in place.
        verbs = {step.verb for step in steps}
        if not (self._has_torn_bytes() or self._shares):
            self.findings += checker.torn(self.world, self._lines)
        if not (verbs & EMPTYING or self._shares):
            freed = {Path(step.arguments[0]).name for step in steps
                     if step.verb in ("unlink", "trash")}  # fmt: skip
            freed |= {Path(path).name for step in steps if step.verb in ("swap", "rename")
                      or step.verb == "resolve" for path in step.arguments[:2]}  # fmt: skip
            self.findings += checker.emptied(self.world, freed)
        for system in self._systems.values():
            if not (self._programs[system.who].waits or self._shares):
                self.findings += checker.refused(self.world, system.refused)
            if system.model is not None:
                ids = {path: self._id(path) for path in there}
                self.findings += system.model.final(there, ids)
        if self._is_alone and self._shows_no_copies():
            self.findings += [f"{ALONE}a conflict copy of one's own edit: {path}"
                              for path in there if COPY.search(path)]  # fmt: skip
        # After a power cut, a client may take its own version for a coworker's.
        continued = [pair for who, program in self._programs.items() for pair in program.continued
                     if not self.machines[who[0]].power_cuts]  # fmt: skip
        self.findings += checker.scattered(self.world, continued, self.claims.copied)
        self.findings += checker.unseen(self.world, self.claims)
        calls = {name: system.names for name, system in self._systems.items()}
        self.findings += checker.uncalled(self.world, calls, self.claims)
        is_forgotten = bool({"log_off", "bring_back", "damage"} & verbs)
        # A copy that a person has removed and then restored is a file like any other. One that gets
        # a name of `local_only` stays on the service, but not in the list. So does one that is
        # removed during its upload, if it cannot be deleted.
        if not {"resolve", "remove_tree", "trash"}.isdisjoint(verbs):
            is_forgotten |= not {"restore", "untrash"}.isdisjoint(verbs)
            is_forgotten |= self._is_published or self._loses_rights
            is_forgotten |= self._has_local_names()
        if not (is_forgotten or any(machine.power_cuts for machine in self.machines.values())):
            self.findings += await self._unlisted(there)

    def _shows_no_copies(self) -> bool:
        """Return True if nothing in the scenario makes a conflict copy of one's own edit.

        If the removal of a file is refused, the file that was renamed over it becomes one if its
        former name is in use, and so does a new file in its place, as long as its folder cannot be
        listed. A client that does not know a time may make one, one whose request was carried out
        late, and one that has lost its records.
        """
        verbs = {step.verb for step in self.scenario.steps}
        may_refuse = self._loses_rights or "delete" in self.scenario.lacking
        is_refused = may_refuse and not verbs.isdisjoint({*REPLACING, "unlink"})
        is_late = self.world.moved_late or self.world.sent_late
        is_unclear = self.scenario.times == "mixed" and self._has_trouble
        return not (
            is_refused
            or is_late
            or is_unclear
            or verbs & {"bring_back", "damage", "log_off", "power"}
        )

    async def _misreported(self, machine: Machine) -> list[str]:
        """Return what the status of a machine says although everything is sent."""
        status = await machine.perform(partial(machine.command, "status"))
        listed = await machine.perform(partial(machine.command, "conflicts"))
        outbox, tree = status["outbox"], status["tree"]
        shown = {"pending": 0, "uploading": 0, "failed": 0, "bytes": 0}
        shown |= {"conflicts": len(listed["conflicts"])}
        found = [f"{key}: {outbox[key]}" for key in shown if outbox[key] != shown[key]]
        found += [f"{key}: {status[key]}" for key in ("paused", "held", "uploads") if status[key]]
        found += [status["state"]] if status["state"] != "online" else []
        with disks.observing():
            state = machine.parts.state
            # A local-only file that a full disk could neither store nor remove has no row.
            inodes = [each for each in state.inodes.below(ROOT)
                      if not (each.local and each.ino in state.inodes._drafts)]  # fmt: skip
        folders = sum(each.is_folder for each in inodes)
        if (tree["entries"], tree["folders"]) != (len(inodes), folders):
            found.append(f"{tree}, not {len(inodes)} entries and {folders} folders")
        return [f"the status of {machine.name} says {each}" for each in found]

    async def _unlisted(self, there: Mapping[str, bytes | None]) -> list[str]:
        """Return the conflict copies that the command lists on no machine."""
        listed, said = set[str](), list[str]()
        for machine in self.machines.values():
            answer = await machine.perform(partial(machine.command, "conflicts"))
            for each in answer["conflicts"]:
                name = PurePosixPath(each["path"]).name
                listed.add(name)
                try:
                    await machine.perform(machine.kernel.lstat, each["path"])
                except OSError:
                    said.append(f"{machine.name} lists as a conflict {each}")
        names = {path: PurePosixPath(path).name for path in there}
        said += [f"the conflict copy {path} is not listed" for path, name in names.items()
                if COPY.search(name) and name not in listed]  # fmt: skip
        if not any(map(_moves_folders, self.scenario.steps)):
            # A folder that is created again may find a file under its name.
            said += [f"a folder is in conflict: {path}" for path, name in names.items()
                     if COPY.search(name) and there[path] is None
                     and there.get(COPY.sub("", path)) is None]  # fmt: skip
        return said

    async def _sync(self, name: str, *, final: bool) -> None:
        machine = self.machines[name]
        before = await self._sendable(machine)
        answer = await machine.perform(partial(machine.command, "sync", timeout=SYNC_S))
        self.trace.note(name, f"sync exits with {answer.get('exit')}")
        for _ in range(ADVICES):
            if not (answer.get("exit") and await self._follow(machine, answer.get("failed") or ())):
                break
            before = await self._sendable(machine)
            answer = await machine.perform(partial(machine.command, "sync", timeout=SYNC_S))
        left = {key: answer.get(key) for key in ("reason", "left", "failed", "lost", "taken_back")}
        rescued = answer.get("lost") and machine.power_cuts and not answer.get("failed")
        if answer.get("exit") == 0 or (rescued and not any((answer.get("left") or {}).values())):
            # The file may have been shown as local-only after the look before.
            after, here = await self._sendable(machine), self.claims.here(name)
            self.claims.sent(
                {path: token for path, token in before.items() if path in after or path not in here}
            )
        elif final or not answer.get("taken_back"):
            raise Finding(f"sync of {name} exits with {answer.get('exit')}: {left}")

    async def _sendable(self, machine: Machine) -> dict[str, str]:
        """Return the last save of a machine by path, without the files that are local-only."""
        here = self.claims.here(machine.name)
        # A power cut may have undone the rename that gave the file a name to be sent.
        is_undone = machine.power_cuts > 0
        if not (is_undone or any(map(self._stays, here))):
            return dict(here)
        try:
            tree = await machine.perform(machine.kernel.tree, f"{ZONE}/{FOLDER}")
        except OSError:  # a request of the time before has just ended without an answer
            await trio.sleep(LOOK_S)
            tree = await machine.perform(machine.kernel.tree, f"{ZONE}/{FOLDER}")
        # A coworker may have moved the folder of such a file, also while the tree was read.
        states = {
            path: await self._attribute(machine, path, "state")
            for path in tree
            if self._stays(path)
        }
        local = {
            head(tree[path] or b"") for path, state in states.items() if state in ("local", "")
        }
        shown = {head(content) for content in tree.values() if content is not None}
        local |= {token for path, token in here.items() if self._stays(path)} - shown
        return {
            path: token
            for path, token in here.items()
            if not ((self._stays(path) or is_undone) and token in local)
        }

    async def _is_local(self, machine: Machine, path: str) -> bool:
        return await self._attribute(machine, path, "state") == "local"

    async def _attribute(self, machine: Machine, path: str, name: str) -> str:
        """Return an attribute of an entry, "" if the machine does not tell it."""
        with contextlib.suppress(OSError):
            whole = f"{ZONE}/{FOLDER}/{path}"
            attribute = f"user.zonedrive.{name}"
            return (await machine.perform(machine.kernel.getxattr, whole, attribute)).decode()
        return ""

    async def _follow(self, machine: Machine, failed: Iterable[dict[str, str]]) -> bool:
        """Do what the errors of rejected uploads ask a person to do; return False for others."""
        done = False
        for one in failed:
            path, done = one["path"], True
            self.trace.note(machine.name, f"{path}: {one['error']}")
            if "are damaged" in one["error"] and machine.power_cuts:  # they were never synced
                await self._repair(machine, path.removeprefix(f"{ZONE}/{FOLDER}/"))
            elif "the parent folder was deleted" in one["error"]:
                self._rescued += 1
                place = f"{RESCUED}-{self._rescued}.txt"
                old = path.removeprefix(f"{ZONE}/{FOLDER}/")
                self.claims.renamed(machine.name, old, place)
                self._systems[machine.name].note_names("rename", path, f"{ZONE}/{FOLDER}/{place}")
                await machine.perform(machine.kernel.rename, path, f"{ZONE}/{FOLDER}/{place}")
                with contextlib.suppress(OSError):  # up to a folder with other entries
                    for folder in PurePosixPath(path).parents:
                        await machine.perform(machine.kernel.rmdir, str(folder))
            elif not any(late in one["error"] for late in LATE_ANSWERS) and not (
                self._changes_profile and LATE_DELETION in one["error"]
            ):
                return False
        return done

    async def _repair(self, machine: Machine, path: str) -> None:
        """Delete a file, or save it again where the profile cannot delete."""
        program = self._programs[machine.name]
        verb = "unlink" if machine.service.can("delete") else "save"
        self.claims.damaged(machine.name, path)
        with machine.acting():
            await _ran(program.do, verb, path, "", 9)

    def _there(self) -> dict[str, bytes | None]:
        if self._web.find(FOLDER) is None:
            return {}
        tree = self._web.tree(FOLDER)
        return {path.removeprefix(f"{FOLDER}/"): content for path, content in tree.items()}

    async def _agree(self) -> bool:
        self._check_places()
        there = self._there()
        for name in self.machines:
            try:
                if await self._here(name, there) != there:
                    return False
            except OSError as wrong:  # a request of before has just ended without an answer
                self.trace.note(name, f"shows nothing: {wrong}")
                return False
        return True

    async def _here(self, name: str, there: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
        """Return what a machine shows, without the files that are local-only.

        A file that was renamed to such a name stands for the file that the service keeps, and a
        local-only file for a file of the service that has its name.
        """
        machine = self.machines[name]
        found = await machine.perform(machine.kernel.tree, f"{ZONE}/{FOLDER}")
        staying = [each for each in found if self._stays(each)]
        local = [each for each in staying if await self._is_local(machine, each)]
        ids = {self._id(path): path for path in there} if local else {}
        for path in local:
            del found[path]
        for path in local:
            for folder in map(str, PurePosixPath(path).parents):  # deleted there, kept for it
                if folder in found and folder not in there and not _has_entries(found, folder):
                    del found[folder]
            kept = ids.get(await self._attribute(machine, path, "id"))
            if kept is not None and kept not in found:
                found[kept] = there[kept]
        for path in [each for each in found if each not in there]:
            if (plain := SHOWN.sub("", path)) in local:
                found[plain] = found.pop(path)
        # A local-only file may hide a file that somebody else has made, or that cannot be removed.
        if not self._is_alone or self._loses_rights:
            found |= {path: there[path] for path in local if path in there and path not in found}
        return found

    async def _differences(self) -> str:
        there, said = self._there(), []
        for name in self.machines:
            here = await self._here(name, there)
            for path in sorted(here.keys() | there.keys()):
                one, other = here.get(path, b"(none)"), there.get(path, b"(none)")
                if one != other:
                    said.append(f"{name} {path}: {short(one)}, the service {short(other)}")
        return "; ".join(said)

    def _histories(self) -> list[History]:
        """Return every file that ever was in the zone."""
        nodes = self.world.nodes
        has_power_cuts = any(machine.power_cuts for machine in self.machines.values())
        found = []
        for node in nodes.values():
            if node.folder:
                continue
            above, path = nodes[node.parent_id], node.name
            while above.parent_id:
                above, path = nodes[above.parent_id], f"{above.name}/{path}"
            again = self.world.sent_again
            versions = [version for version in node.versions if version.id not in again]
            tokens = tuple(head(version.data) for version in versions)
            if node.trash_id not in ("", node.id):
                # Deleted with its folder: if the reply was lost, it is sent again as a new file.
                self.claims.copied |= {token for token in tokens if token is not None}
            elif node.trash_id and has_power_cuts:
                # Its record is lost: the client sends a file that is not there any more.
                self.claims.copied |= {token for token in tokens if token is not None}
            elif node.trash_id:
                # Deleted while the answer about a version was lost: the client cannot see it there.
                self.claims.copied |= self.world.unanswered & set(tokens)
            if self.world.failed_reads[node.id] >= checker.UNREADABLE:
                # A client that cannot read the versions sends its own as a conflict copy at last.
                self.claims.copied |= self.world.unanswered & set(tokens[:-1])
            if self._is_published:
                # Without a list of versions a client cannot find its own below a coworker's.
                self.claims.copied |= {token for token in tokens[:-1] if token is not None}
            made_s = tuple(self.world.made_s[version.id] for version in versions)
            named_s = tuple(self.world.named_s.get(version.id, 0.0) for version in versions)
            checked_s = tuple(self.world.checked_s.get(version.id) for version in versions)
            modified_ns = tuple(version.modified_us * 1000 for version in versions)
            senders = tuple(self.world.made_by.get(version.id) for version in versions)
            found.append(
                History(node.id, path, tokens, made_s, checked_s, modified_ns, senders, named_s)
            )
        return found

    def _twice(self) -> list[str]:
        """Return saves that are several versions of one file."""
        said = []
        # A client uploads what it cannot compare because of an answer that is broken.
        compares = "unchanged=version" not in self.scenario.options and all(
            not step.who.endswith("~") for step in self.scenario.steps
        )
        for history in self._histories():
            if compares:
                said += [f"{history.path}: {token} is a version that changes nothing"
                         for token, after in pairwise(history.tokens)
                         if token is not None and token == after]  # fmt: skip
            for token, times in Counter(history.tokens).items():
                if token is not None and times > 1 and token not in self.claims.copied:
                    said.append(f"{history.path}: {token} is {times} versions")
        return said


async def _ran(work: Callable[..., ResultT], *args: Any) -> ResultT:
    """Run a program; while it waits for a system call, all other tasks continue."""
    program = greenlet(partial(work, *args))
    program.gr_context = contextvars.copy_context()
    found = program.switch()
    while not program.dead:
        found = program.switch(await outcome.acapture(found))
    return found  # type: ignore[no-any-return]


@coroutine
def _rest(call: Coroutine[Any, Any, ResultT], wait: Any) -> Generator[Any, Any, ResultT]:
    """Continue a call that has begun to wait."""
    while True:
        try:
            step = partial(call.send, (yield wait))
        except BaseException as raised:
            step = partial(call.throw, raised)
        try:
            wait = step()
        except StopIteration as done:
            return cast(ResultT, done.value)


def _is_at_or_below(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _has_entries(tree: Mapping[str, object], folder: str) -> bool:
    return any(path.startswith(f"{folder}/") for path in tree)


def _moves_folders(step: Step) -> bool:
    """Return True if a step renames or exchanges folders."""
    if step.verb not in ("rename", "swap", "move"):
        return step.verb == "move_folder"
    return not is_file(step.arguments[0])


def _expected(path: str, allowed: Container[str]) -> bool:
    """Return True if an entry of that name was requested, or is a conflict copy of one."""
    folder, _, name = COPY.sub("", path).rpartition("/")
    known = {part for each in FOLDERS for part in each.split("/") if part} | {"moved"}
    if any(part.startswith(RESCUED) for part in (*folder.split("/"), name)):
        return True
    name = MARK.sub("", name.removesuffix(ASIDE))
    return (name in (*NAMES, *SECOND_NAMES) or name in known or name in allowed) and set(
        folder.split("/")
    ) <= known | {""}


@contextmanager
def _pieces(size: str) -> Iterator[None]:
    """Let programs fetch and send files in small pieces in the block if `size` is "small"."""
    small = {
        (cache_module, "LARGEST"): 200,
        (reader, "FIRST_WINDOW"): 1000,
        (reader, "MAX_WINDOW"): 2 * CHUNK,
        (reader, "STEP"): CHUNK // 2,
        (reader, "EAGER"): 3 * CHUNK,
        (reader, "FILL_STEP"): CHUNK,
        (fetcher, "NEAR"): CHUNK,
        (fetcher, "SKIP"): CHUNK // 2,
        (upload, "TINY"): 1000,
        (dispatcher, "TINY"): 1000,
        (planner, "LARGE"): 2000,
        (prefetch, "SMALL"): 1000,
    }
    with ExitStack() as stack:
        for (module, name), value in small.items() if size == "small" else ():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def simulated(seed: int) -> Iterator[VirtualTime]:
    """Replace time, disks and the names of machine and boot in the block, the same way each time.

    `seed` decides on the order of tasks.
    """
    time = VirtualTime()
    time.fast_s = fast_s
    scheduler = trio._core._run
    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler._r.seed(seed)
    with (
        disks.instrument(),
        mock.patch.object(socket, "gethostname", lambda: "machine"),
        mock.patch.object(recovery, "_BOOT", BootId()),
        mock.patch.object(cache_module, "_BOOT", BootId()),
    ):
        time.install(lambda _seconds: None)
        try:
            yield time
        finally:
            time.remove()


def run(scenario: Scenario) -> Result:
    """Run a scenario to its end."""
    with (
        TemporaryDirectory(prefix="zdsim", dir=MEMORY) as folder,
        _pieces(scenario.pieces),
        simulated(scenario.seed) as time,
    ):
        played = Run(scenario, Path(folder))
        complaints = Complaints(played.trace)
        try:
            with complaints.listening(logging.INFO):
                trio.run(played.play, clock=time.clock)
        except KeyboardInterrupt:
            raise
        except BaseException as wrong:
            played.findings.append("".join(traceback.format_exception(wrong)))
        finally:
            played.world.close()
        without_id = [f"{each} has an empty id" for each in played.world.requests if "//" in each]
        findings = played.findings + complaints.entries + without_id
    what = "\n".join([*played.trace.lines, *played.world.requests, *findings])
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    return Result(scenario, findings, played.trace.lines, digest, played.done)
