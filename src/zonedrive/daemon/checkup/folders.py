"""The folders of an account: are they private, is there room, are they fast enough.

Must not know what the files in them mean.
"""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from zonedrive.content.room import RESERVE
from zonedrive.content.spool import RESERVE as SPOOL_RESERVE
from zonedrive.daemon.checkup.finding import Finding, size
from zonedrive.daemon.checkup.patient import Patient
from zonedrive.fuse import mountpoint

FIT = 256 << 20  # bytes that should be free for what is saved
PROBE = 4 << 20
SLOW = 5e6  # bytes a second
REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse.sshfs", "fuse.rclone", "fuse.zonedrive")


def state(patient: Patient) -> Finding | None:
    """Where what must not be lost is."""
    folder = patient.paths.state
    if not folder.exists():
        return None
    if wrong := _unfit(folder):
        return wrong
    kind = _kind(folder)
    if kind.startswith(REMOTE):
        return Finding(
            False,
            f"it is on a network file system ({kind}), where databases are not safe",
            "set XDG_STATE_HOME to a folder on a disk of this machine",
        )
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize - SPOOL_RESERVE
    if free < FIT:
        return Finding(
            False, f"there is room for {size(max(free, 0))} of what you save", "make room there"
        )
    return Finding(True, f"private, on {kind}; there is room for {size(free)} of what you save")


def cache(patient: Patient) -> Finding | None:
    """Where content is kept that can be fetched again."""
    folder = patient.paths.cache
    if not folder.exists():
        return None
    if wrong := _unfit(folder):
        return wrong
    disk = os.statvfs(folder)
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    limit = patient.settings.cache_size
    used = sum(each.st_blocks * 512 for each in _files(patient.paths.content))
    room = min(limit - used, free - int(total * RESERVE))
    detail = f"{size(used)} of at most {size(limit)} used"
    if used + room < limit:
        fits = max(0, used + room)
        detail += f"; the disk leaves {size(fits)} for it, as 5 % of it stay free"
        if fits == 0 and limit:
            return Finding(False, detail, "make room on that disk, or set XDG_CACHE_HOME")
    return Finding(True, detail)


def cache_speed(patient: Patient) -> Finding | None:
    """Whether reading from the cache can be faster than the service."""
    folder = patient.paths.cache
    if not folder.exists() or not os.access(folder, os.W_OK):
        return None
    path = folder / f".speed-{secrets.token_hex(6)}"
    data = secrets.token_bytes(1 << 20)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        began = time.monotonic()
        for offset in range(0, PROBE, len(data)):
            os.pwrite(descriptor, data, offset)
        os.fdatasync(descriptor)
        speed = PROBE / max(time.monotonic() - began, 1e-6)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    if speed < SLOW:
        return Finding(
            False,
            f"the disk takes {speed / 1e6:.1f} MB/s",
            "set XDG_CACHE_HOME to a folder on a faster disk",
        )
    return Finding(True, f"the disk takes {speed / 1e6:.0f} MB/s")


def database(patient: Patient) -> Finding | None:
    """Whether it was damaged once."""
    path = patient.paths.database
    if not path.exists():
        return None
    aside = [each for each in path.parent.glob(f"{path.name}.damaged-*") if _is_main(each)]
    if aside:
        return Finding(
            True,
            f"sound; {len(aside)} damaged one(s) of former times are kept in the state folder",
            "delete them once nothing is missing, and have the disk checked",
        )
    return Finding(True, f"sound, {size(path.stat().st_size)}")


def _is_main(path: Path) -> bool:
    return not path.name.endswith(("-wal", "-shm"))


def _unfit(folder: Path) -> Finding | None:
    """What is wrong with a folder that must be ours alone."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & (
        os.ST_RDONLY
    ):
        return Finding(False, "it cannot be written", "give the folder back to your user")
    foreign = open_ones = 0
    for each in [folder.stat(), *_files(folder)]:
        foreign += each.st_uid != os.getuid()
        open_ones += bool(stat.S_IMODE(each.st_mode) & 0o077)
    if foreign:
        return Finding(
            False,
            f"{foreign} file(s) in it belong to another user",
            "give them back to your user with chown; was zonedrive run with sudo?",
        )
    if folder.stat().st_mode & 0o077:
        return Finding(False, "others may enter it", f"run 'chmod -R go= {_shown(folder)}'")
    if open_ones:  # nobody else gets that far; but a copy of the folder would be readable
        return Finding(
            False,
            f"{open_ones} file(s) in it could be read by others",
            f"run 'chmod -R go= {_shown(folder)}'",
        )
    return None


def _shown(folder: Path) -> str:
    """The folder without the name of the person."""
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except ValueError:
        return "FOLDER"


def _files(folder: Path) -> Iterator[os.stat_result]:
    """The status of each plain file and folder below."""
    pending = [folder]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    if not entry.is_symlink():
                        yield entry.stat(follow_symlinks=False)


def _kind(folder: Path) -> str:
    """The type of the file system that a folder is on."""
    real = folder.resolve()
    around = [
        mount for mount in mountpoint.mounts() if mount.path == real or mount.path in real.parents
    ]
    return max(around, key=lambda mount: len(mount.path.parts)).kind if around else "unknown"
