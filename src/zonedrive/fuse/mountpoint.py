"""Mount points: existing mounts, checks of a folder before a mount, and detaching.

This module does not depend on pyfuse3, accounts or the daemon. Facts about mounts come from the
kernel's mount table (/proc/self/mountinfo, see proc(5)), never from a file of zonedrive.
"""

import ctypes
import errno
import fcntl
import os
import re
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from zonedrive.errors import MountError
from zonedrive.paths import GO_ELSEWHERE, NO_FOLDER, quoted

KIND = "fuse.zonedrive"
FUSE_CONF = Path("/etc/fuse.conf")
TABLE = Path("/proc/self/mountinfo")
CONNECTIONS = Path("/sys/fs/fuse/connections")
"""Mount point of fusectl: a folder for each FUSE mount, named after the minor device number."""

PROBE_SECONDS = 10.0
"""Seconds that a mount may take to answer statfs before the mount counts as hung."""

DETACH_SECONDS = 30.0
ABORT_SECONDS = 5.0
REMOVED = b" (deleted)"  # at the end of a link in /proc/PID/fd to a removed file

_MNT_FORCE, _UMOUNT_NOFOLLOW = 1, 8  # flags of umount2(2)

MOST_LINKS = 40
"""Maximum number of symbolic links that the kernel follows in one path."""

# Errors of the kernel for a mount whose daemon is gone.
_DEAD = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE})


@dataclass(frozen=True)
class Mount:
    """One line of the kernel's mount table."""

    path: Path
    kind: str  # file system type with subtype, such as fuse.zonedrive
    source: str
    user: int | None = None  # uid of the mounting user, for FUSE mounts
    device: str = ""  # `major:minor`, different for each FUSE mount
    options: frozenset[str] = frozenset()  # options of the mount and of its file system
    root: str = "/"  # mounted folder of the file system; differs from "/" for some bind mounts

    @property
    def ours(self) -> bool:
        """True if zonedrive (of any user) made the mount."""
        return self.kind == KIND

    @property
    def identity(self) -> str:
        """Text that distinguishes the mount from all others, except mounts of the same file system.

        The device number alone is not enough: after an unmount, the kernel soon reuses the number
        for another mount of any type.
        """
        return f"{self.device} {self.kind} {self.source} {self.user}"


def mounts(table: Path = TABLE) -> list[Mount]:
    """Return all mounts that this process sees, the oldest first.

    A later mount covers the earlier mounts at the same path.
    """
    # Any user can mount on a path with other control characters, which the kernel does not escape.
    lines = table.read_bytes().split(b"\n")
    return [mount for line in lines if (mount := _parsed(line)) is not None]


@lru_cache(1024)  # a start looks at the same lines several times
def _parsed(line: bytes) -> Mount | None:
    """Return the mount of a line of the table, or None for a line in another format."""
    before, _, after = line.partition(b" - ")
    fields, rest = before.split(b" "), after.split(b" ")
    if len(fields) < 5 or len(rest) < 3:
        return None
    kind, source, options = rest[:3]
    who = re.search(rb"(?:^|,)user_id=([0-9]+)", options)
    return Mount(
        Path(os.fsdecode(_unescaped(fields[4]))),
        os.fsdecode(kind),
        os.fsdecode(_unescaped(source)),
        int(who[1]) if who else None,
        os.fsdecode(fields[2]),
        frozenset(os.fsdecode(b",".join((*fields[5:6], options))).split(",")),
        os.fsdecode(_unescaped(fields[3])),
    )


def _unescaped(field: bytes) -> bytes:
    """Decode the octal escapes of space, tab, newline and backslash in a mount table field."""
    return re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), field)


def at(path: Path) -> Mount | None:
    """Return the topmost mount exactly at `path` (absolute, without symbolic links), or None."""
    return next(reversed(_stack(path)), None)


def _stack(path: Path) -> list[Mount]:
    """Return all mounts exactly at `path`; the last one is the topmost."""
    return [mount for mount in mounts() if mount.path == path]


def find(identity: str | None, folder: Path, table: Path = TABLE) -> Mount | None:
    """Return the mount with this `Mount.identity`, or None if no path leads to such a mount.

    The mount is at `folder`, unless a folder above the mount point was renamed. If `identity` is
    None, return the topmost mount at `folder`.
    """
    topmost = {mount.path: mount for mount in mounts(table)}
    here = topmost.get(folder)
    if identity is None or (here is not None and here.identity == identity):
        return here
    return next((m for m in topmost.values() if m.identity == identity and m.root == "/"), None)


def holding(path: Path) -> Mount | None:
    """Return the innermost zonedrive mount that contains `path`, or None.

    `path` is absolute and without symbolic links. A mount also contains its own mount point.
    """
    below = [m for m in mounts() if m.ours and (m.path == path or m.path in path.parents)]
    return max(below, key=lambda mount: len(mount.path.parts), default=None)


def absolute(path: str) -> Path:
    """Return `path` as the kernel's mount table would name it: absolute, without symbolic links.

    Like the kernel, follow a symbolic link before the `..` after it. Parts of the path that do not
    exist are kept.

    Nothing inside a zonedrive mount, even a dead one, is accessed: the access might hang, and
    zonedrive mounts contain no symbolic links. The working directory is not accessed either. Raises
    MountError for a relative path if the working directory does not exist any more.
    """
    try:
        # The kernel's name of the working directory has no links. Path.cwd() would access it.
        found = Path("/" if path.startswith("/") else os.getcwd())  # noqa: PTH109
    except OSError as wrong:
        raise MountError(f"{path}: {NO_FOLDER}", remedy=GO_ELSEWHERE) from wrong
    table = {mount.path: mount.ours for mount in mounts()}
    ahead, links = path.split("/"), 0
    while ahead:
        name = ahead.pop(0)
        if name == "..":
            found = found.parent
        elif name not in ("", "."):
            is_ours = any(table.get(each) for each in (found, *found.parents))
            target = None if is_ours or found / name in table else _target(found / name)
            if target is None or links == MOST_LINKS:
                found /= name
                continue
            links += 1
            found = Path("/") if target.startswith("/") else found
            ahead = [*target.split("/"), *ahead]
    return found


def _target(path: Path) -> str | None:
    """Return the target of the symbolic link at `path`, or None if `path` is not a link."""
    try:
        return os.fspath(path.readlink())
    except OSError:
        return None


def check(path: str) -> Path:
    """Check that the folder `path` can be a mount point, and return its absolute path.

    If a killed daemon left a dead mount at the folder, detach it first. Raises MountError with the
    reason if the folder cannot be a mount point.
    """
    folder = absolute(path)
    while mount := at(folder):
        if mount.kind == "autofs":  # any access would wait for the mount that is being made
            raise MountError(
                f"{folder} is mounted at the first access (x-systemd.automount), which a file"
                " system of a user cannot be",
                remedy="remove that option, or start zonedrive@ACCOUNT.service of the user",
            )
        if not dead(folder):
            raise MountError(
                f"{folder} is already a mount (of {mount.source})",
                remedy=f"run 'zonedrive unmount {quoted(folder)}' first" if mount.ours else "",
            )
        if not mount.ours:
            raise MountError(
                f"{folder} is a dead mount of {mount.source}",
                remedy=f"run 'fusermount3 -uz {quoted(folder)}' first",
            )
        detach(folder, lazy=True)
    if around := holding(folder):
        raise MountError(f"{folder} lies inside the mount {around.path}")
    try:
        with os.scandir(folder) as entries:
            empty = next(entries, None) is None
    except FileNotFoundError as wrong:
        make = f"run 'mkdir -p {quoted(folder)}'"
        raise MountError(f"{folder} does not exist", remedy=make) from wrong
    except NotADirectoryError as wrong:
        raise MountError(f"{folder} is not a folder") from wrong
    except OSError as wrong:
        raise MountError(f"{folder} cannot be used ({wrong.strerror})") from wrong
    if not empty:
        raise MountError(f"{folder} is not empty", remedy="mount on an empty folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MountError(f"{folder} is not writable", remedy="mount on a folder that you own")
    return folder


@contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """Prevent other daemons from mounting on `folder` while the `with` block runs.

    Raises MountError if another daemon is mounting there, or if `check` refuses the folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as wrong:
        raise MountError(f"{folder} cannot be used ({wrong.strerror})") from wrong
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise MountError(
                f"another zonedrive is mounting on {folder}",
                remedy="mount each account on a folder of its own",
            ) from held
        except OSError:  # NFS does not support locks of folders
            pass
        check(os.fspath(folder))
        yield
    finally:
        os.close(descriptor)


def check_sharing(folder: Path, options: Collection[str]) -> None:
    """Raise MountError if `allow_other` or `allow_root` is in `options` but not permitted.

    These options are permitted if `user_allow_other` is set in /etc/fuse.conf. Also raise
    MountError if this file cannot be read. Without these options, and for root, check nothing.
    """
    wanted = sorted({"allow_other", "allow_root"} & set(options))
    if not wanted or os.geteuid() == 0:
        return
    try:
        text = FUSE_CONF.read_text("utf-8", "replace")
    except FileNotFoundError:
        text = ""
    except OSError as wrong:
        raise MountError(
            f"{folder} cannot be mounted with {wanted[0]}: {FUSE_CONF} cannot be read"
            f" ({wrong.strerror})",
            remedy=f"run 'chmod a+r {FUSE_CONF}' as root, or leave {wanted[0]} out",
        ) from wrong
    if not re.search(r"^\s*user_allow_other\s*$", text, re.M):
        raise MountError(
            f"{folder} cannot be mounted: option {wanted[0]} only allowed if 'user_allow_other' is"
            f" set in {FUSE_CONF}",
            remedy="run 'echo user_allow_other >>/etc/fuse.conf' as root, or leave"
            f" {wanted[0]} out",
        )


def dead(path: Path) -> bool:
    """Return True if the mount at `path` has lost its daemon.

    Raises MountError if the mount does not answer statfs within PROBE_SECONDS; the kernel never
    answers statfs from its cache. The call runs in a daemon thread, because a call to a hung mount
    cannot be interrupted.
    """
    answers: list[bool] = []

    def ask() -> None:
        try:
            os.statvfs(path)
            answers.append(False)
        except OSError as wrong:
            answers.append(wrong.errno in _DEAD)

    probe = threading.Thread(target=ask, name="statfs", daemon=True)
    probe.start()
    probe.join(PROBE_SECONDS)
    if not answers:
        raise MountError(
            f"the mount at {path} does not answer",
            remedy=f"run 'zonedrive unmount --now {quoted(path)}'",
        )
    return answers[0]


def detach(path: Path, *, lazy: bool) -> bool:
    """Detach the mount at `path`; return True if the mount is detached.

    If `lazy`, also detach a mount in use, and raise MountError if fusermount3 refuses. Otherwise,
    return False if fusermount3 refuses, for example because a program uses the mount. Raises
    MountError if fusermount3 is missing or does not end within DETACH_SECONDS.
    """
    before = _stack(path)
    if not before:
        return True
    command = ["fusermount3", "-u", "-q", *(["-z"] if lazy else []), "--", os.fsdecode(path)]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, timeout=DETACH_SECONDS, check=False
        )
    except FileNotFoundError as wrong:
        raise MountError("fusermount3 is missing", remedy="install the package fuse3") from wrong
    except subprocess.TimeoutExpired as wrong:
        raise MountError(f"fusermount3 -u {path} does not end") from wrong
    if done.returncode == 0 or _stack(path) != before:
        return True
    if lazy:
        said = os.fsdecode(done.stderr).strip().splitlines() or ["fusermount3 gave no reason"]
        raise MountError(f"{path} cannot be unmounted ({said[-1]})")
    return False


def abort(mount: Mount) -> None:
    """Abort the FUSE connection of a mount whose daemon was killed or hangs.

    Programs that wait for the mount, and threads of the daemon that wait for these programs, then
    get an error. Without the abort, a killed process with such a thread would not end.

    The owner of the mount may abort the connection through fusectl. In containers, which often lack
    fusectl, only root can do so. Return without an effect if neither is possible, if zonedrive did
    not make the mount, or if `mount` is not the topmost mount at its path. The calls run in a
    daemon thread, because a call to a file system that hangs cannot be interrupted.
    """

    def write() -> None:
        try:
            # An open file belongs to one connection for ever, its path does not.
            with (CONNECTIONS / mount.device.removeprefix("0:") / "abort").open("wb", 0) as file:
                if at(mount.path) == mount:
                    file.write(b"1")
        except OSError:  # no fusectl, or not permitted
            if at(mount.path) == mount:
                place = os.fsencode(mount.path)
                ctypes.CDLL(None).umount2(place, _MNT_FORCE | _UMOUNT_NOFOLLOW)

    if not mount.ours:
        return
    call = threading.Thread(target=write, name="abort", daemon=True)
    call.start()
    call.join(ABORT_SECONDS)


def users(path: Path) -> list[str]:
    """Return the programs, as `name (pid)`, that use the mount at `path`.

    Processes that this user may not inspect are left out. The mount itself is not accessed.
    """
    inside = os.fsencode(path) + b"/"

    def uses(process: Path) -> bool:
        # Thousands of links: objects of pathlib would take half of the time.
        place = os.fsencode(process)
        names = os.listdir(place + b"/fd")  # noqa: PTH208
        links = (place + b"/cwd", place + b"/root", *(place + b"/fd/" + name for name in names))
        return any((os.readlink(link) + b"/").startswith(inside) for link in links)  # noqa: PTH115

    return _programs(uses)


def holders(path: Path) -> list[str]:
    """Return the programs, as `name (pid)`, that have the file at `path` open for writing.

    Also return those that have a removed file of this path open.
    """
    wanted, removed = os.fsencode(path), os.fsencode(path) + REMOVED

    def holds(process: Path) -> bool:
        for link in (process / "fd").iterdir():
            target = os.fsencode(link.readlink())
            is_open = target == wanted and _is_for_writing(process / "fdinfo" / link.name)
            if is_open or target == removed:
                return True
        return False

    return _programs(holds)


def _programs(chosen: Callable[[Path], bool]) -> list[str]:
    """Return the processes, as `name (pid)`, whose /proc folder satisfies `chosen`.

    This process itself is left out.
    """
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if chosen(process):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                found.append(f"{name} ({process.name})")
        except OSError:
            continue  # the process has ended, or belongs to another user
    return found


def _is_for_writing(information: Path) -> bool:
    """Return True if the flags in `information`, a file in /proc/PID/fdinfo, allow writing."""
    flags = re.search(r"^flags:\s*(\d+)$", information.read_text(), re.M)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY
