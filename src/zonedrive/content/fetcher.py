"""Single-flight downloads of one cache entry: waiting readers and the downloads that serve them.

`CacheEntry` stores the received bytes. All code of this module runs on the event loop; `Download`
has the code that runs in threads.

INVARIANT: bytes that a running download will receive soon are not requested again.

INVARIANT: every wait ends with the bytes, with the download's error, or with TimedOut. TimedOut is
raised after `stall` seconds without a new byte, or after SLOW times as many seconds with fewer than
LEAST new bytes from all downloads of the entry together. While a download waits for a thread, each
new byte of any other download restarts the `stall` seconds.

INVARIANT: bytes received before a connection broke are not requested again, unless the source
ignores ranges.

INVARIANT: bytes of streams with different sizes or validators are never mixed; Changed is raised
instead, or BadAnswer if the source still has the version.
"""

import logging
from collections.abc import Callable

import trio

from zonedrive import memory
from zonedrive.content.cache_entry import CacheEntry, Stopped
from zonedrive.content.download_worker import Download
from zonedrive.content.source import Source, Stream
from zonedrive.errors import (
    BadAnswer,
    Changed,
    Interrupted,
    RemoteError,
    StoreError,
    TimedOut,
    ZonedriveError,
)
from zonedrive.observers import Observers
from zonedrive.supervisor import Supervisor, Task

log = logging.getLogger(__name__)

MAX_DOWNLOADS = 3  # of one entry at once
ALIGN = 64 * 1024  # downloads begin at multiples of this, the chunk size of encrypted files
NEAR = 4 << 20  # bytes: readers wait for a download that is this close
SKIP = 1 << 20  # bytes: larger ranges that are present are not downloaded again
LINGER_WHOLE = 20.0  # seconds to keep a download that would have to begin at 0 again
PAUSE = 0.05  # seconds to wait if a connection breaks before the first byte; doubled each time
LONGEST_PAUSE = 1.0
AGAIN = 5.0  # seconds without read-ahead after a failure
LOOK = 0.05  # seconds between two checks for a free thread
TURN = 2.0  # seconds after which a running download gives its thread to a waiting download
DRIP = 1024  # bytes: downloads with fewer new bytes in TURN seconds give their threads first
LEAST = 4096  # minimum progress in bytes; the kernel requests a failed page twice
SLOW = 2.5  # times `stall`: seconds after which a reader with fewer than LEAST bytes times out

LARGE = 8 << 20  # bytes of a download after which free memory is returned to the system


class Engine:
    """State shared by the fetchers of a cache: nursery, thread limit and timeouts."""

    def __init__(self, connections: int, stall: float, supervisor: Supervisor) -> None:
        """Allow at most `connections` threads; a wait times out `stall` s after the last byte."""
        self.supervisor = supervisor
        self.limiter = trio.CapacityLimiter(connections)
        self.stall = stall
        self.nursery: trio.Nursery | None = None
        self.running: set[Download] = set()
        self.progressed = 0.0  # time at which the last bytes of any download were received
        # Notified of the end of each wait, with the inode and the error or None.
        self.fetched: Observers[[int, RemoteError | None]] = Observers()
        self._freeing = False

    def request_slot(self) -> None:
        """If no thread is free for the next download, ask other downloads to stop."""
        if self.limiter.available_tokens < 1 and not self._freeing and self.nursery is not None:
            self._freeing = True
            self.nursery.start_soon(self.supervisor.keep, Task.DOWNLOAD_QUEUE, self._free_threads)

    async def _free_threads(self) -> None:
        while True:
            marks = {each: each.position for each in self.running if each.position > each.start}
            for _ in range(round(TURN / LOOK)):
                await trio.sleep(LOOK)
                self.stop_idle()
                if not self.limiter.statistics().tasks_waiting:
                    self._freeing = False
                    return
            # Slow downloads, then those with the most bytes, go to the end of the queue, except
            # downloads that would have to restart at 0.
            resumable = [
                each for each in marks if each in self.running and each.linger < LINGER_WHOLE
            ]
            resumable.sort(
                key=lambda each: (each.position - marks[each] >= DRIP, each.start - each.position)
            )
            for each in resumable[: self.limiter.statistics().tasks_waiting]:
                each.stop()

    def stop_idle(self) -> None:
        """If no thread is free, stop one download that has received all requested bytes."""
        if self.limiter.available_tokens < 1:
            for download in self.running:
                if download.paused and not download.stopped:
                    download.stop()
                    return


class WaitingReader:
    """Reader that is waiting for the bytes [start, end)."""

    def __init__(self, start: int, end: int, download: Download | None) -> None:
        """Create a waiting reader.

        `download` will fetch the first byte; None means that no download can be started yet.
        """
        self.start = start
        self.end = end
        self.download = download
        self.event = trio.Event()
        self.error: Exception | None = None
        self.since = trio.current_time()


class Pace:
    """Progress check for a waiting reader.

    At least LEAST bytes must arrive in each period of `seconds` seconds.
    """

    def __init__(self, seconds: float, came: int) -> None:
        self.seconds = seconds
        self._came = came
        self.until = trio.current_time() + seconds

    def is_too_slow(self, came: int) -> bool:
        """Return True if the period has ended with fewer than LEAST new bytes.

        `came` is the number of bytes received so far. After a period with enough bytes, the next
        period begins.
        """
        if trio.current_time() < self.until:
            return False
        if came - self._came < LEAST:
            return True
        self._came, self.until = came, trio.current_time() + self.seconds
        return False


class Fetcher:
    """Downloads of one entry and their waiting readers."""

    def __init__(
        self,
        entry: CacheEntry,
        source: Source,
        engine: Engine,
        stamp: Callable[[str], str],
        *,
        moved: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        """Create a fetcher; `stamp` returns the hash that the entry stores for a validator.

        `moved` is called after bytes were received. `over` is called when the source no longer has
        the entry's version.
        """
        self.entry = entry
        self.source = source
        self.dead: Exception | None = None  # error that every further wait raises
        self._moved, self._over = moved, over
        self._engine = engine
        self._stamp = stamp
        self._begun = False  # a stream was opened
        self._ranged: bool | None = None  # False if the source ignores ranges, None if unknown
        self._downloads: list[Download] = []
        self._waiters: set[WaitingReader] = set()
        self._quiet_until = 0.0
        self._broken = 0  # connections in a row that broke without one new byte
        self._broken_since = 0.0  # time at which the first of these connections broke
        self._resume_at = 0.0  # time before which no new connection is made
        self._came = 0  # bytes received by all downloads, including bytes already present

    async def wait(self, offset: int, end: int, goal: int, *, bounded: bool = False) -> None:
        """Wait until the bytes [offset, end) are present; `goal` is the end of the read-ahead.

        If `bounded` is true, only bytes up to `goal` are requested from the source. Raises Changed,
        TimedOut, the source's error, or StoreError if the file or the cache is closed.
        """
        try:
            await self._wait(offset, end, goal, bounded=bounded)
        except RemoteError as error:
            self._engine.fetched.notify(self.entry.ino, error)
            raise
        self._engine.fetched.notify(self.entry.ino, None)

    async def _wait(self, offset: int, end: int, goal: int, *, bounded: bool) -> None:
        self._catch_up()
        pace = Pace(self._engine.stall * SLOW, self._came)
        while (gap := self.entry.present.reach(offset)) < end:
            if self.dead is not None:
                raise self.dead
            stop = min(self.entry.present.following(gap) or end, end)
            waiter = WaitingReader(gap, stop, self._ask(gap, max(goal, end), bounded=bounded))
            self._waiters.add(waiter)
            self._update_awaited(waiter.download)
            self._catch_up()  # the thread may not know of the waiting reader yet
            try:
                await self._until(waiter, pace)
            finally:
                self._waiters.discard(waiter)
                self._update_awaited(waiter.download)
                for other in self._waiters:
                    if other.download is None:
                        other.event.set()  # a download may be possible now
            if waiter.error is not None and not self.entry.present.covers(gap, stop):
                raise waiter.error

    def _update_awaited(self, download: Download | None) -> None:
        """Set `awaited` of a download to the smallest end offset that a reader is waiting for."""
        if download is not None:
            ends = (each.end for each in self._waiters if each.download is download)
            download.awaited = min(ends, default=self.entry.size)

    async def wait_until_stored(self) -> None:
        """Wait until all received bytes are stored on the disk or storing them has failed."""
        self._catch_up()
        while self.entry.recent.is_storing:
            await trio.to_thread.run_sync(self.entry.wait_for_store, abandon_on_cancel=True)
            self.entry.process_arrivals()
        self._moved()  # an entry that is complete now survives a kill of the daemon

    async def _until(self, waiter: WaitingReader, pace: Pace) -> None:
        """Wait until `waiter` is notified. Raises TimedOut if too few bytes arrive."""
        while not waiter.event.is_set():
            download, stall = waiter.download, self._engine.stall
            since = max(waiter.since, self._progressed(download))
            with trio.move_on_at(min(since + stall, pace.until)):
                await waiter.event.wait()
                return
            self._catch_up()  # the thread does not report fewer bytes than the reader waits for
            since = max(since, self._progressed(download))
            error: TimedOut | None = None
            if pace.is_too_slow(self._came):
                error = TimedOut(f"fewer than {LEAST} bytes arrived in {pace.seconds:g} seconds")
            elif since + stall <= trio.current_time():
                error = TimedOut(f"no byte arrived for {stall:g} seconds")
            if error is not None:
                if download is not None:
                    download.stop()
                    self._ended(download, error, final=True)
                raise error

    def _progressed(self, download: Download | None) -> float:
        """Return the time at which `download` last received bytes.

        If `download` is queued, or is None because it cannot be started yet, return the time at
        which any download last received bytes.
        """
        if download is None or download.queued:
            return self._engine.progressed
        return download.progressed

    def ahead(self, offset: int, goal: int, near: int, *, bounded: bool) -> None:
        """Request the missing bytes from `offset` to `goal` without waiting.

        A new download starts only if the first missing byte is at most `near` bytes after `offset`.
        If `bounded` is true, the new download requests only bytes up to `goal` from the source.
        """
        self._catch_up()
        gap = self.entry.present.reach(offset)
        goal = min(goal, self.entry.size)
        if gap >= goal or self.dead is not None:
            return
        goal = self._barrier(gap, goal)
        download = self._serving(gap)
        if download is not None and download.extend(goal):
            return
        if gap - offset <= near and trio.current_time() >= self._quiet_until:
            self._ask(gap, goal, bounded=bounded)

    def stop(self, error: Exception) -> None:
        """Stop all downloads permanently; current and later waits raise `error`."""
        self.dead = error
        for download in list(self._downloads):
            self._end(download)
        for waiter in self._waiters:
            waiter.error = error
            waiter.event.set()

    # -- selecting a download

    def _serving(self, gap: int) -> Download | None:
        """Return the running download that will reach offset `gap` first, or None."""
        coming = [
            download
            for download in self._downloads
            if download.noted <= gap < download.end
            and (self._ranged is False or self._barrier(download.noted, gap + 1) > gap)
            and (gap - download.position <= NEAR or self._ranged is False)
        ]
        return max(coming, key=lambda download: download.noted, default=None)

    def _barrier(self, start: int, goal: int) -> int:
        """Return the offset at which a download from `start` to `goal` should end.

        The result is the start of the first present range of more than SKIP bytes. The result is
        `goal` if there is no such range, or if the source ignores ranges.
        """
        if self._ranged is not False:
            for first, end in self.entry.present.within(start, goal):
                if first > start and end - first > SKIP:
                    return first
        return goal

    def _ask(self, gap: int, goal: int, *, bounded: bool) -> Download | None:
        """Return a download that will fetch the byte at `gap`; start a new download if necessary.

        Return None if MAX_DOWNLOADS downloads are running and readers wait for all of them.
        """
        goal = self._barrier(gap, min(-(-goal // ALIGN) * ALIGN, self.entry.size))
        download = self._serving(gap)
        if download is not None and download.extend(goal):
            return download
        if len(self._downloads) >= MAX_DOWNLOADS:
            needed = {waiter.download for waiter in self._waiters}
            spare = [download for download in self._downloads if download not in needed]
            if not spare:
                return None
            self._end(min(spare, key=lambda download: download.progressed))
        return self._begin(gap, goal, bounded=bounded)

    def _begin(self, gap: int, goal: int, *, bounded: bool) -> Download:
        engine = self._engine
        if engine.nursery is None:
            raise StoreError("the cache is closed")
        engine.stop_idle()
        start = 0
        if self._ranged is not False:
            aligned = gap // ALIGN * ALIGN
            if aligned < gap:  # discards damaged bytes, with which the chunk could not be completed
                self.entry.read(aligned, gap - aligned)
            start = self.entry.present.reach(aligned)
        if trio.current_time() >= self._resume_at + AGAIN:
            self._broken = 0  # the last failure was long ago
        download = Download(
            self.source,
            self.entry,
            start,
            goal,
            bounded=bounded and self._ranged is not False,
            opened=self._opened,
            advanced=self._advanced,
        )
        if self._ranged is False:
            download.linger = LINGER_WHOLE
        self._downloads.append(download)
        engine.running.add(download)
        engine.nursery.start_soon(engine.supervisor.job, Task.DOWNLOAD, self._run, download)
        return download

    # -- running

    async def _run(self, download: Download) -> None:
        error: Exception | None = None
        try:
            with download.scope:
                if self._resume_at > trio.current_time():
                    await trio.sleep_until(self._resume_at)
                self._engine.request_slot()
                limiter = self._engine.limiter
                await trio.to_thread.run_sync(
                    download.work, limiter=limiter, abandon_on_cancel=True
                )
        except Stopped:
            pass
        except (ZonedriveError, OSError) as wrong:
            error = wrong
        except Exception as wrong:
            log.exception("a download failed with an unexpected error")
            error = wrong
        finally:
            download.stop()  # the thread may have been abandoned
            self._ended(download, error)
        # The C library keeps freed memory for the thread's next allocations: up to 16 MiB.
        if download.position - download.start >= LARGE and not self._engine.running:
            await trio.to_thread.run_sync(memory.give_back)

    async def _opened(self, download: Download, stream: Stream) -> bool:
        """Check an opened stream; return True if the download should continue.

        The download's thread calls this method on the event loop. If the size of the stream is
        wrong, or if size and validator do not identify the version, the source first confirms that
        it still has the entry's version. For example, the stream may be the login page of a captive
        portal. Raises Changed if the source has another version, BadAnswer if the size of the
        stream differs, and the errors of the source.
        """
        entry = self.entry
        if download not in self._downloads:
            return False
        download.progressed = trio.current_time()
        stamp = None if stream.validator is None else self._stamp(stream.validator)
        # Versions of the same size can be distinguished only by their validators. If there is no
        # validator, every stream except the first must be confirmed.
        can_compare = stamp is not None and entry.validator != ""
        is_known = can_compare and entry.validator == stamp
        is_size_right = stream.total == entry.size or (stream.total is None and is_known)
        is_first = not (self._begun or entry.present)
        self._begun = True
        if not is_size_right or not (can_compare or is_first):
            await download.source.confirm()
            if download not in self._downloads:
                return False
        if stream.total not in (None, entry.size):
            raise BadAnswer(
                f"{stream.total} bytes are announced for the {entry.size} bytes of the file"
            )
        if stamp is not None:
            if entry.validator not in ("", stamp):
                raise Changed("the content has changed on the service")
            entry.validator = stamp
        download.progressed = trio.current_time()
        offset = stream.offset
        download.first_new = entry.present.reach(offset)
        if offset == download.start:
            return True
        # The source ignores ranges: one download from the beginning serves all readers.
        self._ranged = False
        for other in self._downloads:
            if other is download or other.noted > download.start:
                continue
            if other.extend(download.limit):
                return False
        download.start = download.noted = download.position = offset
        download.end = entry.size
        download.linger = LINGER_WHOLE
        return True

    def _advanced(self, download: Download) -> None:
        """Process newly received bytes on the event loop; stop the download on an error."""
        call = self._engine.supervisor.call
        wrong = call(Task.ARRIVAL, self._arrived, download)
        if wrong is not None:
            download.stop()
            call(Task.FAILED_ARRIVAL, self._ended, download, wrong)

    def _catch_up(self) -> None:
        """Process the bytes that downloads have received but not reported yet."""
        for download in list(self._downloads):
            if download.position > download.noted:
                self._arrived(download)

    def _arrived(self, download: Download) -> None:
        if download not in self._downloads:
            return
        self.entry.process_arrivals()
        self._came += max(0, download.position - download.noted)
        download.noted = max(download.noted, download.position)
        download.progressed = self._engine.progressed = trio.current_time()
        present = self.entry.present
        for waiter in self._waiters:
            # If memory is short, received bytes may have been dropped: they are requested again.
            has_passed = waiter.download is download and download.noted >= waiter.end
            if has_passed or present.covers(waiter.start, waiter.end):
                waiter.event.set()
        if self._ranged is not False and present.reach(download.noted) > download.noted + SKIP:
            self._end(download)
        self._moved()

    def _end(self, download: Download) -> None:
        """Stop a download; its waiting readers request another download."""
        download.stop()
        self._ended(download, None)

    def _ended(self, download: Download, error: Exception | None, *, final: bool = False) -> None:
        """Remove a download and notify its waiting readers.

        The waiting readers get `error`. If `error` is None, or if `final` is False and a new
        connection may get further, the readers instead request another download.
        """
        if download not in self._downloads:
            return
        self._downloads.remove(download)
        self._engine.running.discard(download)
        self.entry.process_arrivals()
        if not self._downloads:
            self.entry.recent.drop_stored()
            self.entry.recount()  # gives back granted space that no download needs now
        if isinstance(error, Changed):
            self.stop(error)
            self._over()
            return
        if self._is_worth_another(download, error) and not final:
            error = None
        if error is not None:
            self._quiet_until = trio.current_time() + AGAIN
        for waiter in self._waiters:
            if waiter.download is download:
                waiter.error = error
            if waiter.download is download or waiter.download is None:
                waiter.event.set()
        self._moved()

    def _is_worth_another(self, download: Download, error: Exception | None) -> bool:
        """Return True if a new connection may get further than the failed download.

        Connections that break without a new byte are retried after pauses, for `stall` seconds.
        """
        if download.position > download.first_new:
            self._broken = 0
            return isinstance(error, RemoteError)
        if not isinstance(error, Interrupted):
            return False
        now = trio.current_time()
        if not self._broken:
            self._broken_since = now
        self._resume_at = now + min(LONGEST_PAUSE, PAUSE * 2 ** min(self._broken, 16))
        self._broken += 1
        return self._resume_at < self._broken_since + self._engine.stall
