"""Supervisor that restarts a daemon's background tasks and records their exceptions.

This module does not depend on the work of a task.

`keep` restarts a task after each exception until the task returns. `job` runs a task once; only its
caller may try again. `call` runs a function once, from within an event-loop callback. In each case
an exception is logged, with its traceback unless the same error is repeated. `failing` lists the
task until the task works again or, after `job` and `call`, for at most REMEMBERED_S seconds.

INVARIANT: no exception of a task leaves this module except a cancellation, so the mount continues.

INVARIANT: every member of `Task` is started in exactly one line of the sources.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeVarTuple

import msgspec
import trio

from zonedrive.errors import described, first_of
from zonedrive.formatting import timestamp

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 10.0  # seconds without a failure after which a task counts as working again
# Seconds for which a failed job is reported, unless a later job of its kind succeeds.
REMEMBERED_S = 600.0

Arguments = TypeVarTuple("Arguments")


class Task(StrEnum):
    """Background tasks, with the names that are shown to users."""

    # Kept by the daemon
    SIGNALS = "signals"
    CONTROL_SOCKET = "control socket"
    WATCHDOG = "watchdog of the service manager"
    STATUS_LINE = "status line of the service manager"
    DESKTOP = "connection to the desktop"
    LOGON_STATE = "logon state"
    LOGON_RENEWAL = "logon renewal"
    NOTIFICATIONS = "notifications"
    SHUTDOWN_LOCK = "shutdown and sleep"
    # Kept by the file system
    CONNECTION_CHECK = "connection check"
    CONNECTION_CHANGES = "connection changes"
    UPLOAD_QUEUE = "upload queue"
    OPEN_LOGS = "files that grow"
    REPLACED_BYTES = "replaced content"
    ZONE_LIST = "zone list"
    PINNED_FILES = "pinned files"
    PINNED_FOLDERS = "pinned folders"
    UPKEEP = "upkeep of the stores"
    KERNEL_CACHE = "kernel cache"
    # Kept while there is something to do
    DOWNLOAD_QUEUE = "download queue"
    # Jobs
    REQUEST = "control request"
    UPLOAD = "upload"
    LISTING = "folder listing"
    LISTING_AHEAD = "zone listing ahead"
    LEVELS = "access levels"
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
    """Ongoing or recent failure of a task, with the number of failures in a row."""

    task: Task
    since_ns: int  # of the first failure in a row, wall clock
    times: int
    error: str  # last error, in one line
    kind: str  # type name of the last exception
    until: float  # end of the failure (trio's clock); infinite: waiting for a restart

    def json(self) -> dict[str, object]:
        """Return the failure as a JSON object for `status`."""
        return {
            "task": str(self.task),
            "since": timestamp(self.since_ns),
            "times": self.times,
            "error": self.error,
        }


class Supervisor:
    """Supervisor of background tasks, which runs the tasks and records their failures."""

    def __init__(self) -> None:
        self._failures: dict[Task, Failure] = {}

    def failing(self) -> list[Failure]:
        """Return the current failures of tasks.

        The failure of a job or a callback counts as current for REMEMBERED_S seconds, unless a
        later run succeeds.
        """
        now = trio.current_time()
        return [each for each in self._failures.values() if each.until > now]

    async def keep(self, task: Task, work: Callable[[], Awaitable[object]]) -> None:
        """Run `work` until it returns; restart it after each exception, with growing pauses."""
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
        """Run `work` once, and record an exception as a failure of the task."""
        wrong = await self._run(task, lambda: work(*args))
        if wrong is None:
            self._failures.pop(task, None)
        else:
            self._note(task, wrong, trio.current_time() + REMEMBERED_S, "was given up")

    def call(
        self, task: Task, work: Callable[[*Arguments], object], *args: *Arguments
    ) -> Exception | None:
        """Call `work` from within an event-loop callback; return the exception that it raises.

        Return None if `work` raises no exception. Without this method, an exception would end the
        event loop.
        """
        try:
            work(*args)
        except Exception as wrong:
            self._note(task, wrong, trio.current_time() + REMEMBERED_S, "was given up")
            return wrong
        self._failures.pop(task, None)
        return None

    async def _run(self, task: Task, work: Callable[[], Awaitable[object]]) -> Exception | None:
        """Run `work`; return the exception that ended it, or None. Propagate a cancellation."""
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
        # A repeated failure is logged without its traceback, to keep the log short.
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
