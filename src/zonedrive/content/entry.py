"""One cached content that is in use: which parts are there, on the disk or in memory.

Knows nothing of downloads or of other entries.  `store` is called in download threads, all the
rest on the loop.

INVARIANT: `present` lists only bytes that can be read now; `on_disk` is the part of it that is
in the file.  Both belong to the loop: threads only append to `_arrived`.
INVARIANT: no byte goes to the disk that the limit has not allowed before.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from zonedrive.content.codec import create_file
from zonedrive.content.download import Stopped
from zonedrive.content.file import Buffer, ContentFile
from zonedrive.content.ranges import Ranges
from zonedrive.content.recent import Recent
from zonedrive.content.slot import CHUNK
from zonedrive.content.window import Window, Windows
from zonedrive.errors import Damaged
from zonedrive.paths import private_dir

log = logging.getLogger(__name__)

ALLOW = 16 << 20  # bytes that are allowed at once, to ask seldom


def cost(length: int) -> int:
    """At most how many bytes on the disk a write of `length` bytes takes."""
    return length + length // 1024 + 3 * 4096


class Entry:
    """The bytes of one revision of one inode."""

    def __init__(
        self, ino: int, stamp: str, size: int, path: Path, key: bytes | None, windows: Windows
    ) -> None:
        """Begin with nothing; the file at `path` is made with the first bytes."""
        self.ino = ino
        self.stamp = stamp
        self.size = size
        self.path = path
        self.validator = ""
        self.present = Ranges()
        self.on_disk = Ranges()
        self.users = 0
        self.doomed = False  # no longer in the cache, only its users still have it
        self.held = 0  # bytes of the limit that it takes
        self.indexed = False  # the index has it as complete
        self.allow: Callable[[Entry, int, int], bool] = lambda _entry, _need, _want: False
        self.failed: Callable[[OSError], None] = lambda _error: None
        self.damaged: Callable[[Entry], bool] = lambda _entry: False
        self._key = key
        self._file: ContentFile | None = None
        self._windows = windows
        self._window: Window | None = None
        self._allowance = 0  # bytes that may be written
        self._writing = 0  # bytes of it that are being written
        self._count = threading.Lock()  # of these two
        self._disk = True  # false after a failed write
        self._said = False  # that some of it was damaged
        self._closed = False
        self._lock = threading.Lock()  # of storing and closing, not of reading
        self._arrived: deque[tuple[int, int, bool]] = deque()  # start, end, whether on the disk
        self._recent = Recent()

    # -- on the loop

    def adopt(self, file: ContentFile, present: Ranges) -> None:
        """Begin with what is in `file`."""
        file.without_journal()
        self._file = file
        self.on_disk = present
        self.present = Ranges(present)

    @property
    def complete(self) -> bool:
        """Whether all of it is on the disk."""
        return self.on_disk.covers(0, self.size)

    @property
    def streaming(self) -> bool:
        """Whether some of it cannot be kept and goes through memory."""
        return self._window is not None

    @property
    def ahead(self) -> int:
        """How many bytes may wait in memory to be read."""
        return self._windows.ahead

    @property
    def unused(self) -> int:
        """Bytes allowed but not written yet."""
        with self._count:
            return self._allowance + self._writing

    def permit(self, granted: int, need: int) -> None:
        """Allow `granted` bytes, of which `need` are going to be written at once."""
        self.settle(granted)
        with self._count:
            self._allowance = granted - need if granted else 0
            self._writing += need if granted else 0

    def settle(self, more: int = 0) -> None:
        """Count what is really on the disk, and `more`; nothing else is allowed any more."""
        file = self._file
        with self._count:
            self._allowance = 0
            self.held = more + self._writing
        if file is not None and not file.closed:
            self.held += file.allocated + file.pending

    def without_disk(self) -> None:
        """Keep nothing of it: the disk refuses."""
        self._disk = False

    def arrive(self) -> int:
        """Note what the threads stored; give back how many bytes are new."""
        gained = 0
        while self._arrived:
            start, end, on_disk = self._arrived.popleft()
            gained += self.present.add(start, end)
            if on_disk:
                self.on_disk.add(start, end)
        self.shed()
        return gained

    def shed(self) -> None:
        """Note what is no longer in memory."""
        while self._window is not None and self._window.dropped:
            start, end = self._window.dropped.popleft()
            if not self._window.holds(start):  # it may have come anew since
                self._forget(start, min(end, self.size), disk=False)

    def _forget(self, start: int, end: int, *, disk: bool) -> None:
        kept = (
            []
            if disk
            else [(max(s, start), min(e, end)) for s, e in self.on_disk.within(start, end)]
        )
        self.present.remove(start, end)
        if disk:
            self.on_disk.remove(start, end)
        for pair in kept:
            self.present.add(*pair)

    def pread(self, offset: int, length: int) -> bytes | None:
        """Exactly `length` bytes, or None where some are not there (any more)."""
        parts: list[bytes] = []
        end = offset + length
        # A reader that waits for a download is served without a system call, for which it would
        # have to fight with the download's thread.
        if (recent := self._recent.get(offset, length)) is not None:
            return recent
        while offset < end:
            reach = min(self.on_disk.reach(offset), end)
            if reach > offset:
                part = self._from_disk(offset, reach)
            else:
                reach = min(self.on_disk.following(offset) or end, end)
                part = self._window.pread(offset, reach - offset) if self._window else None
                if part is None:  # dropped since
                    self._forget(offset, reach, disk=False)
            if part is None:
                return None
            parts.append(part)
            offset = reach
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _from_disk(self, start: int, end: int) -> bytes | None:
        file = self._file
        if file is None or file.closed:
            return None
        try:
            data = file.pread(start, end - start)
            if len(data) == end - start:
                return data
            log.warning("cached bytes of %s are missing and are fetched again", self.path.name)
        except Damaged as wrong:
            level = logging.DEBUG if self._said else logging.WARNING  # once, not for each chunk
            self._said = True
            log.log(level, "cached bytes are damaged and are fetched again (%s)", wrong)
        except OSError as wrong:
            self.failed(wrong)
        self._discard(file, start // CHUNK * CHUNK, min(-(-end // CHUNK) * CHUNK, self.size))
        return None

    def _discard(self, file: ContentFile, start: int, end: int) -> None:
        """Forget damaged bytes, here, in the index and in the file."""
        # Locked, because a thread may just be storing good bytes there: those go as well, or
        # come afterwards.
        with self._lock:
            self.arrive()
            self._forget(start, end, disk=True)
            try:
                # The index first: it must not call complete what has a hole now.
                self._disk = self.damaged(self) and self._disk
                if self._disk:
                    file.punch(start, end)
            except OSError as wrong:
                self.failed(wrong)
                self._disk = False

    def rest(self) -> None:
        """No download runs any more: give its memory back."""
        self._recent.clear()

    def flush(self) -> bool:
        """Hand everything to the kernel; False where the disk does not take it."""
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as wrong:
            self.failed(wrong)
            return False
        return True

    @property
    def linked(self) -> bool:
        """Whether its file still has a name, so that it can be found again."""
        return self._file is not None and not self._file.closed and self._file.linked

    @property
    def manifest(self) -> bytes:
        """The state of its file, see `ContentFile.manifest`."""
        return self._file.manifest() if self._file is not None else b""

    def copy_source(self) -> ContentFile | None:
        """The file with the content, shared with the caller, who closes it."""
        return self._file.share() if self._file is not None else None

    def close(self) -> bool:
        """End all use; whether everything in `on_disk` is in the file."""
        with self._lock:
            self._closed = True
        if self._window is not None:
            self._window.close()
        self.rest()
        self.arrive()
        kept = self.flush() and self.linked
        self.settle()
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                kept = False
        return kept

    # -- in a download's thread

    def store(self, offset: int, data: Buffer) -> list[Buffer]:
        """Keep `data`: on the disk where the limit and the disk allow it, else in memory.

        Gives back the memory of earlier calls that is no longer looked at.
        """
        need = cost(len(data))
        allowed = self._disk and self._may_write(need)
        try:
            with self._lock:
                if self._closed:
                    raise Stopped
                stored = allowed and self._to_disk(offset, data)
                if not stored:
                    if self._window is None:
                        self._window = self._windows.new()
                    self._window.pwrite(offset, data)
                spent = self._recent.put(offset, data) if stored else []
                self._arrived.append((offset, offset + len(data), stored))
                return spent
        finally:
            if allowed:
                with self._count:
                    self._writing -= need

    def _may_write(self, need: int) -> bool:
        with self._count:
            if self._allowance >= need:
                self._allowance -= need
                self._writing += need
                return True
        return self.allow(self, need, max(need, min(ALLOW, cost(self.size))))

    def _to_disk(self, offset: int, data: Buffer) -> bool:
        try:
            if self._file is None:
                self._file = self._create()
            self._file.pwrite(offset, data)
        except (OSError, Damaged) as wrong:
            if isinstance(wrong, OSError):
                self.failed(wrong)
            self._disk = False
            return False
        return True

    def _create(self) -> ContentFile:
        try:
            file = create_file(self.path, self._key)
        except FileNotFoundError:  # somebody removed the folder
            private_dir(self.path.parent)
            file = create_file(self.path, self._key)
        file.without_journal()
        file.truncate(self.size)
        return file
