"""The background tasks of a daemon: what happens when one of them raises an exception.

Must not know what a task does.

A task is kept (`keep`: started again after a pause until it returns), is a job (`job`: done once;
whoever asked for it tries again) or a callback of the loop (`call`: the same). In each case the
exception is logged with its traceback, and the task is named by `failing` until it works again.

INVARIANT: no exception of a task leaves this module, only a cancellation does: the mount goes on.
INVARIANT: every member of `Task` is started in exactly one line of the sources.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVarTuple

import msgspec
import trio

from zonedrive.errors import described, first_of

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 10.0
"""How long a task must have run since its last failure to count as working again."""

REMEMBERED_S = 600.0
"""How long a failed job is named, where no later job of its kind succeeds."""

Arguments = TypeVarTuple("Arguments")


class Task(StrEnum):
    """Every background task, by the name that people read."""

    # Kept by the daemon
    SIGNALS = "signals"
    CONTROL_SOCKET = "control socket"
    WATCHDOG = "watchdog of the service manager"
    STATUS_LINE = "status line of the service manager"
    LOGON_STATE = "logon state"
    LOGON_RENEWAL = "logon renewal"
    NOTIFICATIONS = "notifications"
    SHUTDOWN_LOCK = "shutdown and sleep"
    # Kept by the file system
    CONNECTION_CHECK = "connection check"
    CONNECTION_CHANGES = "connection changes"
    UPLOAD_QUEUE = "upload queue"
    OPEN_LOGS = "files that grow"
    ZONE_LIST = "zone list"
    PINNED_FILES = "pinned files"
    PINNED_FOLDERS = "pinned folders"
    UPKEEP = "upkeep of the stores"
    KERNEL_CACHE = "kernel cache"
    # Kept while there is something to do
    IDLE_MEMORY = "memory of idle readers"
    DOWNLOAD_QUEUE = "download queue"
    # Jobs
    REQUEST = "control request"
    UPLOAD = "upload"
    LISTING = "folder listing"
    LISTING_AHEAD = "zone listing ahead"
    FREED_MEMORY = "freed memory"
    DOWNLOAD = "download"
    CACHE_REMOVAL = "cache removal"
    DATABASE_LOG = "log of the database"
    SMALL_CONTENTS = "small files kept in the cache"
    READY_CONNECTION = "connection made ahead"
    READING_ORDER = "reading order"
    SIBLING_AHEAD = "file fetched ahead"
    INVALIDATION = "kernel invalidation"
    # Callbacks
    ARRIVAL = "bytes of a download"
    FAILED_ARRIVAL = "end of a failed download"


class Failure(msgspec.Struct, eq=False):
    """A task that fails."""

    task: Task
    since_ns: int  # of the first failure in a row, wall clock
    times: int
    error: str  # the last one, in one line
    kind: str  # its type
    until: float  # (trio's clock) when it counts as working again; infinite: it waits for a restart

    def json(self) -> dict[str, object]:
        """The object that `status` gives to programs."""
        return {
            "task": str(self.task),
            "since": datetime.fromtimestamp(self.since_ns / 1e9, UTC).isoformat(timespec="seconds"),
            "times": self.times,
            "error": self.error,
        }


class Supervisor:
    """Runs background tasks and knows which of them fail."""

    def __init__(self) -> None:
        self._failures: dict[Task, Failure] = {}

    def failing(self) -> list[Failure]:
        """The tasks that fail now."""
        now = trio.current_time()
        return [each for each in self._failures.values() if each.until > now]

    async def keep(self, task: Task, work: Callable[[], Awaitable[object]]) -> None:
        """Run `work` until it returns; start it again after each exception, later every time."""
        pause = FIRST_PAUSE_S
        while True:
            begun = trio.current_time()
            wrong = await self._run(task, work)
            if wrong is None:
                self._failures.pop(task, None)
                return
            if trio.current_time() - begun > max(STEADY_S, pause):
                pause = FIRST_PAUSE_S
            failure = self._note(task, wrong, float("inf"), f"starts again in {pause:.0f} s")
            await trio.sleep(pause)
            failure.until = trio.current_time() + STEADY_S
            pause = min(LONGEST_PAUSE_S, 2 * pause)

    async def job(
        self,
        task: Task,
        work: Callable[[*Arguments], Awaitable[object]],
        *args: *Arguments,
    ) -> None:
        """Run `work` once."""
        wrong = await self._run(task, lambda: work(*args))
        if wrong is None:
            self._failures.pop(task, None)
        else:
            self._note(task, wrong, trio.current_time() + REMEMBERED_S, "was given up")

    def call(
        self, task: Task, work: Callable[[*Arguments], object], *args: *Arguments
    ) -> Exception | None:
        """Run `work` in a callback of the loop, which an exception would end; what it raised."""
        try:
            work(*args)
        except Exception as wrong:
            self._note(task, wrong, trio.current_time() + REMEMBERED_S, "was given up")
            return wrong
        self._failures.pop(task, None)
        return None

    async def _run(self, task: Task, work: Callable[[], Awaitable[object]]) -> Exception | None:
        """The exception that `work` ended with.  A cancellation is raised."""
        try:
            await work()
        except Exception as wrong:
            return wrong
        except BaseExceptionGroup as group:
            ordinary, rest = group.split(Exception)
            if ordinary is not None:
                log.error("%s: failed while it was cancelled", task, exc_info=ordinary)
            if rest is not None:
                raise rest from None
        return None

    def _note(self, task: Task, wrong: Exception, until: float, what: str) -> Failure:
        cause = first_of(wrong)
        error = described(cause)
        before = self._failures.get(task)
        if before is None or before.until <= trio.current_time():
            before = Failure(task, time.time_ns(), 0, "", "", until)
        # The same failure again is told in one line, or it would fill the log.
        log.error(
            "the task %r failed and %s: %s",
            str(task),
            what,
            error,
            exc_info=wrong if error != before.error else None,
        )
        now = Failure(task, before.since_ns, before.times + 1, error, type(cause).__name__, until)
        self._failures[task] = now
        return now
