"""Tables of SEMANTICS.md as data, and an operation on a mount for each of their rows."""

import contextlib
import errno
import fcntl
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.posix import calls

PAGE = Path(__file__).parents[2] / "src/zonedrive/docs/SEMANTICS.md"

Operation = Callable[[Path], object]
"""Operation in a folder with a.txt, b.txt and sub/, all of them on the service."""


class Row(NamedTuple):
    """Row of a table of the page."""

    operation: str
    does: str
    survives: str  # the daemon killed right afterwards: yes, no, or - where nothing changed
    service: str  # what the service gets
    published: str  # ok, or the errno
    full: str  # the same with a profile that knows every operation


def table(title: str) -> Iterator[list[str]]:
    """Yield the cells of each line of the table below the heading `title`."""
    text = PAGE.read_text("utf-8")
    part = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def expected(cell: str, *, root: bool) -> str:
    """Return the expected result in a cell, `ok` or an errno, which may differ for root."""
    ordinary, _, other = cell.partition(", for root ")
    return other if root and other else ordinary


def rows() -> list[Row]:
    """Return the table of operations."""
    return [Row(*cells) for cells in table("Operations")]


def outcome(operation: Operation, folder: Path) -> str:
    """Run the operation; return `ok` or the name of the errno."""
    try:
        operation(folder)
    except OSError as refused:
        assert refused.errno is not None
        return errno.errorcode[refused.errno]
    return "ok"


@contextmanager
def descriptor(path: Path, flags: int, mode: int = 0o600) -> Iterator[int]:
    """Yield an open file."""
    number = os.open(path, flags, mode)
    try:
        yield number
    finally:
        os.close(number)


LEFT_OPEN: list[int] = []
"""Descriptors of programs that still run when the daemon is killed."""


def _in_place(folder: Path) -> None:
    with descriptor(folder / "a.txt", os.O_WRONLY) as file:
        os.pwrite(file, b"NEW", 0)


def _append(folder: Path) -> None:
    with descriptor(folder / "a.txt", os.O_WRONLY | os.O_APPEND) as file:
        os.write(file, b"more\n")


def _mapping(folder: Path) -> None:
    with descriptor(folder / "a.txt", os.O_RDWR) as file, mmap.mmap(file, 0) as mapped:
        mapped[:3] = b"MAP"
        mapped.flush()


def _new_over(folder: Path) -> None:
    (folder / "new.tmp").write_bytes(b"new content\n")
    (folder / "new.tmp").rename(folder / "a.txt")


def _aside(folder: Path) -> None:
    (folder / "a.txt").rename(folder / "a.bak")
    (folder / "a.txt").write_bytes(b"new content\n")
    (folder / "a.bak").unlink()


def _again(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "a.txt").write_bytes(b"new content\n")


def _new_renamed(folder: Path) -> None:
    (folder / "new.tmp").write_bytes(b"new content\n")
    (folder / "new.tmp").rename(folder / "new.txt")


def _new_removed(folder: Path) -> None:
    (folder / "new.txt").write_bytes(b"new content\n")
    (folder / "new.txt").unlink()


def _written_open(folder: Path) -> None:
    number = os.open(folder / "a.txt", os.O_WRONLY | os.O_TRUNC)
    LEFT_OPEN.append(number)
    os.write(number, b"not closed\n")


def _synced_open(folder: Path) -> None:
    _written_open(folder)
    os.fsync(LEFT_OPEN[-1])


def _locks(folder: Path) -> None:
    with descriptor(folder / "a.txt", os.O_RDWR) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)


def _fallocate(folder: Path) -> None:
    with descriptor(folder / "a.txt", os.O_RDWR) as file:
        calls.fallocate(file, 0, 0, 100)


def _new_folder_over_zones(folder: Path) -> None:
    (folder.parents[1] / "new zone").mkdir()


def _to_another_zone(folder: Path) -> None:
    other = next(each for each in folder.parents[1].iterdir() if each != folder.parent)
    (folder / "a.txt").rename(other / f"{folder.name}.txt")


def _exclusive(folder: Path) -> None:
    with descriptor(folder / "new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        os.write(file, b"new content\n")


def _taken(folder: Path) -> None:
    os.close(os.open(folder / "a.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL))


OPERATIONS: Mapping[str, Operation] = {
    "read a file": lambda folder: (folder / "a.txt").read_bytes(),
    "list a folder, `stat`": lambda folder: [each.stat() for each in folder.iterdir()],
    "`getfattr`": lambda folder: os.getxattr(folder / "a.txt", "user.zonedrive.state"),
    "`statfs`": os.statvfs,
    "write in place": _in_place,
    "truncate and write (`>`)": lambda folder: (folder / "a.txt").write_bytes(b"other\n"),
    "append (`>>`)": _append,
    "`truncate`": lambda folder: os.truncate(folder / "a.txt", 4),
    "write through a shared mapping": _mapping,
    "write, not closed": _written_open,
    "write and `fsync`, not closed": _synced_open,
    "create and write a new file": lambda folder: (folder / "new.txt").write_bytes(b"new\n"),
    "create with `O_EXCL`": _exclusive,
    "create with `O_EXCL` what exists": _taken,
    "new file renamed over an existing one": _new_over,
    "renamed aside, written again, backup removed": _aside,
    "removed and written again": _again,
    "save the same bytes again": lambda folder: (folder / "a.txt").write_bytes(
        (folder / "a.txt").read_bytes()
    ),
    "rename or remove what is not uploaded yet": _new_renamed,
    "a new file that is removed before its upload": _new_removed,
    "rename": lambda folder: (folder / "a.txt").rename(folder / "c.txt"),
    "rename to a name of `local_only`": lambda folder: (folder / "a.txt").rename(folder / "a.txt~"),
    "rename over another file": lambda folder: (folder / "a.txt").rename(folder / "b.txt"),
    "move to another folder": lambda folder: (folder / "a.txt").rename(folder / "sub/a.txt"),
    "move to another zone": _to_another_zone,
    "`renameat2`, `RENAME_NOREPLACE`, name taken": lambda folder: calls.renameat2(
        folder / "a.txt", folder / "b.txt", calls.NOREPLACE
    ),
    "`renameat2`, `RENAME_EXCHANGE`": lambda folder: calls.renameat2(
        folder / "a.txt", folder / "b.txt", calls.EXCHANGE
    ),
    "remove a file": lambda folder: (folder / "a.txt").unlink(),
    "make a folder": lambda folder: (folder / "made").mkdir(),
    "remove an empty folder": lambda folder: (folder / "sub").rmdir(),
    "make a folder next to the zones": _new_folder_over_zones,
    "create a file with a name of `local_only`": lambda folder: (folder / ".a.txt.swp").write_bytes(
        b"swap"
    ),
    "`chmod`, also `+x`": lambda folder: (folder / "a.txt").chmod(0o640),
    "`utimensat` (`touch`, `cp -p`)": lambda folder: os.utime(folder / "a.txt", (1000, 1000)),
    "`chown` to another user": lambda folder: os.chown(folder / "a.txt", 12345, 12345),
    "`flock`, `fcntl` locks": _locks,
    "symbolic link": lambda folder: (folder / "link").symlink_to("a.txt"),
    "hard link": lambda folder: os.link(folder / "a.txt", folder / "link"),
    "fifo, device file": lambda folder: os.mkfifo(folder / "fifo"),
    "`setfattr`": lambda folder: os.setxattr(folder / "a.txt", "user.mine", b"1"),
    "`fallocate`": _fallocate,
    "a name of more than 255 bytes": lambda folder: (folder / ("n" * 256)).write_bytes(b""),
    "create an entry with a name that is not UTF-8": lambda folder: (
        folder / os.fsdecode(b"no\xff.txt")
    ).write_bytes(b""),
    "create a file with a control character in its name": lambda folder: (
        folder / "new\tfile.txt"
    ).write_bytes(b"new\n"),
}
"""Operations by the first cell of the row that describes them."""


def perform(operation: str, folder: Path) -> str:
    """Return the outcome of the operation of a row."""
    return outcome(OPERATIONS[operation], folder)


def let_go() -> None:
    """Close the files of the programs that are still running."""
    while LEFT_OPEN:
        with contextlib.suppress(OSError):
            os.close(LEFT_OPEN.pop())


def seen_here(folder: Path) -> dict[str, object]:
    """Return the names, content, permissions and changed times that a program sees in a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        touched = status.st_mtime_ns if status.st_mtime < 1_000_000 else 0
        found[str(path.relative_to(folder))] = (content, status.st_mode & 0o777, touched)
    return found


class Remote(NamedTuple):
    """Entry of the service."""

    path: str
    folder: bool
    versions: int


def seen_there(zone: Any, folder: str, folder_id: str) -> dict[str, Remote]:
    """Return the entries of a folder on the service, by id."""
    found: dict[str, Remote] = {}
    for name, entry in zone.listing_id(folder_id).items():
        path = f"{folder}/{name}"
        versions = 0 if entry["folder"] else len(zone.versions_id(entry["id"]))
        found[entry["id"]] = Remote(path, entry["folder"], versions)
        if entry["folder"]:
            found |= seen_there(zone, path, entry["id"])
    return found


def difference(before: Mapping[str, Remote], after: Mapping[str, Remote]) -> str:
    """Return the changes to the service's entries in the words of the page."""
    said = []
    for each, was in before.items():
        now = after.get(each)
        if now is None:
            said.append("removed")
            continue
        if now.versions != was.versions:
            said.append({1: "a version"}.get(now.versions - was.versions, "several versions"))
        if now.path.rpartition("/")[0] != was.path.rpartition("/")[0]:
            said.append("moved")
        elif now.path != was.path:
            said.append("renamed")
    for each in after.keys() - before.keys():
        said.append("a folder" if after[each].folder else "a file")
    return ", ".join(sorted(said)) or "-"


def _synced(folder: Path) -> None:
    with descriptor(folder / "seen/file.txt", os.O_WRONLY) as file:
        os.pwrite(file, b"SYN", 0)
        os.fsync(file)


def _synced_to_service(folder: Path) -> None:
    number = os.open(folder / "new.txt", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(number, b"new content\n")
        os.fsync(number)
    finally:
        with contextlib.suppress(OSError):
            os.close(number)


def _appended_unseen(folder: Path) -> None:
    with descriptor(folder / "unread.txt", os.O_WRONLY | os.O_APPEND) as file:
        os.write(file, b"more\n")


def _folder_with_file(folder: Path) -> None:
    (folder / "made").mkdir()
    (folder / "made/inside.txt").write_bytes(b"inside\n")


def _written_cached(folder: Path) -> None:
    with descriptor(folder / "seen/file.txt", os.O_WRONLY) as file:
        os.pwrite(file, b"NEW", 0)


WAITING = {"close with `close=wait`", "`fsync` with `fsync=service`"}
"""Rows that need a mount of their own."""

AWAY: Mapping[str, Operation] = {
    "read what is cached": lambda folder: (folder / "seen/file.txt").read_bytes(),
    "read what is not cached": lambda folder: (folder / "unread.txt").read_bytes(),
    "list a folder seen before": lambda folder: os.listdir(folder / "seen"),
    "list a folder never seen": lambda folder: os.listdir(folder / "unseen"),
    "write in place, cached": _written_cached,
    "truncate and write, not cached": lambda folder: (folder / "unread.txt").write_bytes(b"anew\n"),
    "append, not cached": _appended_unseen,
    "create a file": lambda folder: (folder / "new.txt").write_bytes(b"new\n"),
    "create a file in a folder never seen": lambda folder: (folder / "unseen/new.txt").touch(),
    "make a folder and a file in it": _folder_with_file,
    "rename": lambda folder: (folder / "unread.txt").rename(folder / "renamed.txt"),
    "remove": lambda folder: (folder / "unread.txt").unlink(),
    "`fsync`": _synced,
    "close with `close=wait`": lambda folder: (folder / "new.txt").write_bytes(b"new\n"),
    "`fsync` with `fsync=service`": _synced_to_service,
}
"""Operations while the service is unreachable, in a folder with seen/file.txt, unread.txt and
unseen/."""
