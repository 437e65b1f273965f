"""Program that works at random in a mounted folder, and records the results of its calls."""

import contextlib
import errno
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.model.claims import NOT_READ, NOTHING, Claims
from tests.posix import calls

FOLDERS = ("", "left", "right", "left/deep")
NAMES = ("one.txt", "two.txt", "three.txt")
PATHS = tuple(f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in NAMES)
ASIDE = ".old"
LARGE = 200_000  # bytes: such an upload has a thread of its own

USUAL = {
    errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.ESTALE,
    errno.EINVAL, errno.EPERM,
}  # fmt: skip
"""Errnos that a program may get if others work in the same folder, or the profile lacks an
operation."""

TROUBLE = {
    errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EIO, errno.ETIMEDOUT,
    errno.ENETUNREACH, errno.EREMOTEIO, errno.EACCES, errno.EHOSTUNREACH, errno.ENODEV,
}  # fmt: skip
"""Additional errnos while the service or the daemon has a problem."""


class Trace:
    """Log of the operations, line by line."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self.lines: list[str] = []

    def note(self, who: str, text: str) -> None:
        """Add a line."""
        with self._lock:
            self.lines.append(f"{time.monotonic() - self._begun:8.3f} {who} {text}")


class Program:
    """Program on one machine."""

    def __init__(
        self, who: str, folder: Path, claims: Claims, lock: threading.Lock, trace: Trace
    ) -> None:
        self.who = who
        self.folder = folder
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.troubled = False  # the service or the daemon may fail just now
        self._claims = claims
        self._lock = lock
        self._trace = trace
        self.draft = f"draft-{who}"

    def step(self, numbers: random.Random) -> None:
        """Do one random operation."""
        verb = numbers.choice(VERBS)
        path, other = numbers.sample(PATHS, 2)
        padding = LARGE if numbers.random() < 0.04 else numbers.randrange(300)
        self.do(verb, path, other, padding)

    def do(self, verb: str, path: str, other: str = "", padding: int = 0) -> None:
        """Do the operation; ignore an expected error."""
        try:
            getattr(self, verb)(path, other, padding)
        except OSError as refused:
            name = errno.errorcode.get(refused.errno or 0, "?")
            self._trace.note(self.who, f"{verb} {path} {other}: {name}")
            self.done[name] += 1
            if verb in WRITING and self._may_have_saved(refused.errno or 0):
                self._note_ids(path)
                self._removed(path)  # what was not sent yet may have been replaced, or not
            usual = refused.errno in USUAL or (self.troubled and refused.errno in TROUBLE)
            if not usual:
                self.wrong.append(f"{self.who}: {verb} {path} {other}: {refused!r}")
        else:
            self._trace.note(self.who, f"{verb} {path} {other}")
            self.done[verb] += 1

    def _may_have_saved(self, number: int) -> bool:
        """Return True if an operation that failed with this errno may have changed the file."""
        return number not in USUAL

    # ---- what it does ----

    def look(self, path: str, other: str, padding: int) -> None:
        """Read a file."""
        self._read(path, (self.folder / path).read_bytes())

    def list_all(self, path: str, other: str, padding: int) -> None:
        """Walk through everything."""
        for _ in os.walk(self.folder):
            pass

    def save(self, path: str, other: str, padding: int) -> None:
        """Truncate and write, without reading."""
        token, line = self._begin_unread(path, padding)
        (self.folder / path).write_bytes(line)
        self._saved(path, token)

    def save_over(self, path: str, other: str, padding: int) -> None:
        """Read the file, write a temporary one, and rename that over the file."""
        saw = NOTHING
        with contextlib.suppress(FileNotFoundError):
            saw = self._read(path, (self.folder / path).read_bytes())
        token, line = self._begin(saw, padding)
        draft = self.folder / Path(path).parent / self.draft
        try:
            draft.write_bytes(line)
            self._replaced(path, token)
            self._rename(draft, self.folder / path)
            self._saved(path, token)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def save_within(self, path: str, other: str, padding: int) -> None:
        """Read and write through one descriptor."""
        with (self.folder / path).open("r+b", buffering=0) as file:
            saw = self._read(path, file.read())
            token, line = self._begin(saw, padding)
            file.seek(0)
            file.write(line)
            file.truncate(len(line))
            number = self._inode(file.fileno())
        self._saved(path, token, number)

    def append(self, path: str, other: str, padding: int) -> None:
        """Append without reading."""
        token, line = self._begin(NOT_READ, padding)
        with (self.folder / path).open("ab", buffering=0) as file:
            file.write(line)
            number = self._inode(file.fileno())  # a coworker may move the file
        self._saved(path, token, number)

    def aside(self, path: str, other: str, padding: int) -> None:
        """Rename the file without reading it, and write a new one."""
        old = f"{path}{ASIDE}"
        self.rename(path, old, 0)
        self.save(path, "", padding)

    def aside_for_a_moment(self, path: str, other: str, padding: int) -> None:
        """Rename the file, write a new one, and remove the renamed one."""
        self.aside(path, other, padding)
        self.unlink(f"{path}{ASIDE}", "", 0)

    def rename(self, path: str, other: str, padding: int) -> None:
        """Rename, or move to another folder."""
        self._note_ids(path, other)
        with self._renaming(path, other):
            self._rename(self.folder / path, self.folder / other)

    def swap(self, path: str, other: str, padding: int) -> None:
        """Exchange two names in one call."""
        self._note_ids(path, other)
        with self._lock:
            self._claims.swapped(self.who, path, other)
        calls.renameat2(self.folder / path, self.folder / other, calls.EXCHANGE)

    def unlink(self, path: str, other: str, padding: int) -> None:
        """Remove a file."""
        self._note_ids(path)
        self._removed(path)
        (self.folder / path).unlink()

    def make_folder(self, path: str, other: str, padding: int) -> None:
        """Create one of the folders."""
        (self.folder / path).parent.mkdir()

    def remove_folder(self, path: str, other: str, padding: int) -> None:
        """Remove an empty folder."""
        if "/" in path:
            (self.folder / path).parent.rmdir()

    def move_folder(self, path: str, other: str, padding: int) -> None:
        """Rename a folder, or move it into another one."""
        old, new = Path(path).parent, Path(other).parent
        if "" in (str(old).strip("."), str(new).strip(".")):
            return
        with self._renaming(str(old), str(new)):
            self._rename(self.folder / old, self.folder / new)

    def clean_up(self) -> None:
        """Remove temporary files that a kill left, if the profile can do that."""
        for draft in [*self.folder.rglob(self.draft)]:
            with contextlib.suppress(PermissionError):
                self.unlink(str(draft.relative_to(self.folder)), "", 0)

    # ---- what it is told ----

    def _note_ids(self, *paths: str) -> None:
        """Record files before a rename, because their content may become that of other files."""
        for path in paths:
            with contextlib.suppress(OSError):
                found = os.getxattr(self.folder / path, "user.zonedrive.id").decode()
                with self._lock:
                    for each in paths:
                        self._claims.took(found, each)

    def _begin(self, saw: str, padding: int) -> tuple[str, bytes]:
        with self._lock:
            return self._claims.begin(self.who, saw, padding)

    def _begin_unread(self, path: str, padding: int) -> tuple[str, bytes]:
        """Begin a save of a file that is not read, and record which version the file is."""
        shown_ns = 0
        with contextlib.suppress(OSError):
            shown_ns = (self.folder / path).stat().st_mtime_ns
        token, line = self._begin(NOT_READ, padding)
        self._claims.shown_ns[token] = shown_ns
        return token, line

    def _read(self, path: str, content: bytes) -> str:
        with self._lock:
            return self._claims.read(self.who, path, content)

    def _saved(self, path: str, token: str, number: int = 0) -> None:
        number = number or self._number(path)
        with self._lock:
            self._claims.saved(self.who, path, token, number)
        self._trace.note(self.who, f"saved {token} at {path}")

    def _removed(self, path: str) -> None:
        number = self._number(path)
        with self._lock:
            self._claims.removed(self.who, path, number)

    def _replaced(self, path: str, token: str) -> None:
        """Record that the save takes the place of the file at a path, and when that was made."""
        number = 0
        with contextlib.suppress(OSError):
            status = (self.folder / path).stat()
            number = status.st_ino
            self._claims.replaced_ns[token] = status.st_mtime_ns
        with self._lock:
            self._claims.replaced(self.who, path, number)

    def _inode(self, descriptor: int) -> int:
        """Return the inode number of an open file."""
        return os.fstat(descriptor).st_ino

    def _number(self, path: str) -> int:
        """Return the inode number at a path, or 0."""
        with contextlib.suppress(OSError):
            return (self.folder / path).stat().st_ino
        return 0

    @contextlib.contextmanager
    def _renaming(self, old: str, new: str) -> Iterator[None]:
        replaced = self._number(new)
        try:
            yield
        except OSError as refused:
            if refused.errno in USUAL:
                raise
            with self._lock:
                self._claims.renamed(self.who, old, new, replaced, certain=False)
            raise
        with self._lock:
            self._claims.renamed(self.who, old, new, replaced)

    @staticmethod
    def _rename(old: Path, new: Path) -> None:
        os.rename(old, new)  # noqa: PTH104 - replaces what is there


WRITING = (
    "save", "save_over", "save_within", "append", "aside", "aside_for_a_moment", "save_synced",
    "write_on", "save_slowly", "save_shorter", "save_beside_backup", "save_redirected",
    "save_renamed_open", "save_unchanged", "save_and_sync", "save_emptied", "log", "patch",
)  # fmt: skip
VERBS = (
    *("look",) * 3, "list_all", *("save",) * 3, *("save_over",) * 3, *("save_within",) * 4,
    *("append",) * 3, *("aside",) * 2, "aside_for_a_moment", *("rename",) * 3, "swap",
    *("unlink",) * 2, "make_folder", "remove_folder", "move_folder",
)  # fmt: skip
