"""Checks of the account's folders and of its database.

The checks of a folder cover its owner, its permissions and the free space.
"""

import contextlib
import fcntl
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zonedrive import config
from zonedrive.content.cache_index import usable_bytes
from zonedrive.content.spool import RESERVE as SPOOL_RESERVE
from zonedrive.daemon import local_data, protocol
from zonedrive.db import DOCTOR
from zonedrive.doctor.facts import CheckResult, DoctorFacts, bad, good
from zonedrive.errors import ConfigError, ForeignFolder, NoHomeDirectory, StoreError
from zonedrive.formatting import amount, count
from zonedrive.fuse import mountpoint
from zonedrive.paths import (
    FAULTY,
    NO_ROOM,
    config_file,
    given_runtime_dir,
    nearest_existing,
    no_folder,
    obstacle,
    policy_folders,
    quoted,
    require_own_folder,
    require_own_folders,
    require_policy_folders,
    require_room,
    runtime_dir,
)
from zonedrive.state.repair import REPAIR
from zonedrive.translation import marked

FIT = 256 << 20  # bytes that should be free for files that the user saves
_ANSWER_SECONDS = 5.0  # timeout of a connection to the control socket
REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse.sshfs", "fuse.rclone", "fuse.zonedrive")
LOCAL = (
    "set XDG_STATE_HOME to a folder on a disk of this machine, or ask the administrator for the"
    " policy state_dir"
)
MOVE = (
    "move FOLDER to a folder on a disk of this machine, and set XDG_STATE_HOME to that folder, or"
    " ask the administrator for the policy state_dir"
)


def home(facts: DoctorFacts) -> CheckResult | None:
    """Check that the paths of zonedrive's folders can be determined; return None if so.

    The check fails if the user has no home folder and the XDG variables are not set, or if one of
    the folders belongs to another user.
    """
    try:
        config_file(), facts.paths.state, facts.paths.cache, runtime_dir()
        require_own_folders(facts.paths)
    except ForeignFolder as wrong:
        detail = "a folder for the files of zonedrive belongs to another user"
        return bad(detail, wrong.remedy, here=wrong.line())
    except NoHomeDirectory as wrong:
        return bad(wrong.message, wrong.remedy)
    return None


def state(facts: DoctorFacts) -> CheckResult | None:
    """Check the state folder, which contains data that must not be lost.

    The check covers the owner, permissions, file system, file locks and free space. It returns None
    if the folder does not exist yet and can be created.
    """
    folder = facts.paths.state
    if wrong := _blocked(facts.paths.outgoing, "XDG_STATE_HOME"):
        return wrong
    if (found := nearest_existing(folder)) == folder:
        if wrong := _unfit(folder):
            return wrong
    elif not _is_writable(folder := found):
        return bad(
            "it cannot be created: the folder above it is read-only or not yours",
            config.unless_policy(
                "state_dir", "make FOLDER writable, or set XDG_STATE_HOME to a folder that you own"
            ),
            FOLDER=folder,
        )
    kind = _kind(folder)
    if kind.startswith(REMOTE):
        detail = f"it is on a network file system ({kind}), where databases are not safe"
        return _elsewhere(facts, detail)
    if detail := _lock_problem(folder):
        return _elsewhere(facts, detail)
    disk = os.statvfs(folder)
    if disk.f_files and not disk.f_favail:
        return bad(
            "its disk has no room for another file (no inodes are left)",
            "delete files that you do not need from that disk",
        )
    free = disk.f_bavail * disk.f_frsize - SPOOL_RESERVE
    if free < FIT:
        there = f"there is room for {amount(max(free, 0))} of what you save"
        if folder == facts.paths.state:  # has the logon, and perhaps pending changes
            return bad(there, "make room on the disk of the state folder")
        return bad(
            there,
            "make room on the disk of the state folder, or set XDG_STATE_HOME to a folder on"
            " another one",
        )
    if folder != facts.paths.state:
        return None  # the folder does not exist yet and can be created
    where = f", on {kind}" if kind else ""  # a chroot's mount table may not contain the disk
    return good(f"private{where}; there is room for {amount(free)} of what you save")


def _elsewhere(facts: DoctorFacts, detail: str) -> CheckResult:
    """Return a failed result for a state folder that must be on another file system.

    An existing folder must be moved, because it contains the logon and perhaps pending changes.
    """
    folder = facts.paths.state
    remedy = MOVE if nearest_existing(folder) == folder else LOCAL
    return bad(detail, config.unless_policy("state_dir", remedy), FOLDER=quoted(folder.parent))


def _blocked(folder: Path, variable: str) -> CheckResult | None:
    """Return a failed result if a file is in the place of `folder` or of a parent, else None.

    `variable` is the environment variable that the remedy suggests setting.
    """
    if not (found := obstacle(folder)):
        return None
    return bad(
        "it cannot be created: a file is in its place or in the place of a parent folder",
        f"move that file away, or set HOME or {variable} to a folder that you own",
        here=no_folder(found).line(),
    )


def _lock_problem(folder: Path) -> str:
    """Return the reason why files in the folder cannot be locked, or "" if they can.

    Without locks, two daemons could serve one account.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as wrong:
        if wrong.errno in NO_ROOM:
            return ""  # another check reports this
        return marked(f"files there cannot be locked ({wrong.strerror})")
    return ""


def runtime(facts: DoctorFacts) -> CheckResult:
    """Check that the control socket can be created, and that no other user owns it."""
    folder = runtime_dir()
    if wrong := _blocked(folder, "XDG_RUNTIME_DIR"):
        return wrong
    if wrong := _sockets(nearest_existing(folder)) or _foreign(folder, facts.paths.control):
        return wrong
    if not os.environ.get("XDG_RUNTIME_DIR"):
        return good("XDG_RUNTIME_DIR is not set; a folder in the state folder is used instead")
    if given_runtime_dir() is None:
        return good(
            "XDG_RUNTIME_DIR is not private: another user owns it, or can change or replace it;"
            " a folder in the state folder is used instead",
            "use a folder of yours with mode 700; or log in as the user, for instance with 'su -'"
            " or 'machinectl shell'",
        )
    return good("private" if folder.exists() else "not created yet")


def _sockets(folder: Path) -> CheckResult | None:
    """Return a failed result if no socket can be created in the folder, else None."""
    path = folder / f".probe-{secrets.token_hex(6)}"
    try:
        with socket.socket(socket.AF_UNIX) as probe, protocol.address(path) as name:
            probe.bind(name)
        path.unlink()
    except OSError as wrong:
        return bad(
            f"no socket can be created there ({wrong.strerror})",
            "set XDG_RUNTIME_DIR to a folder that you own on a disk of this machine",
        )
    return None


def _foreign(folder: Path, control: Path) -> CheckResult | None:
    """Return a failed result if another user owns the folder or the control socket, else None.

    A process of another user that listens on the socket counts as its owner.
    """
    theirs = [each for each in (folder, control) if _is_foreign(each)]
    try:
        protocol.connect(control, _ANSWER_SECONDS).close()
    except protocol.ForeignSocketError:
        theirs = [control]
    except OSError:
        pass  # no daemon listens; the check `daemon` decides if one should
    if not theirs:
        return None
    what = "the folder of the control socket" if theirs[0] == folder else "the control socket"
    return bad(
        f"{what} belongs to another user, so commands cannot reach the daemon",
        "unmount, run 'sudo rm -r PLACE', and mount again; or set XDG_RUNTIME_DIR to a folder of"
        " your own",
        PLACE=quoted(theirs[0]),
    )


def _is_foreign(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid != os.getuid()
    return False


def cache(facts: DoctorFacts) -> CheckResult | None:
    """Check the cache folder, whose content can be downloaded again.

    The check covers the owner, permissions and free space. It returns None if the folder does not
    exist yet and can be created.
    """
    folder = facts.paths.cache
    try:
        require_policy_folders({n: p for n, p in policy_folders().items() if n == "cache_dir"})
    except ConfigError as wrong_policy:
        detail = "this user cannot have it where the policy cache_dir says"
        return bad(detail, config.ADMINISTRATOR, here=wrong_policy.line())
    if wrong := _blocked(facts.paths.content, "XDG_CACHE_HOME"):
        return wrong
    if (found := nearest_existing(folder)) != folder:
        if _is_writable(found):
            return None
        return bad(
            "it cannot be created: the folder above it is read-only or not yours",
            "make FOLDER writable, or set XDG_CACHE_HOME to a folder that you own",
            FOLDER=found,
        )
    if wrong := _unfit(folder):
        return wrong
    limit = int((facts.vitals or {}).get("cache_size", facts.settings.cache_size))
    used = sum(each.st_blocks * 512 for each in _files(facts.paths.content))
    fits = max(0, usable_bytes(folder, limit, used))
    detail = f"{amount(used)} of at most {amount(limit)} used"
    if fits < limit:
        detail += f"; the disk has {amount(fits)} for it, because 5 % of the disk is kept free"
        if fits == 0 and limit:
            return bad(detail, "make room on the disk of the cache folder, or set XDG_CACHE_HOME")
    return good(detail)


def database(facts: DoctorFacts) -> CheckResult | None:
    """Check the structure of the whole database; return None before the first mount.

    The result also mentions earlier, damaged databases that are kept in the state folder.
    """
    path = facts.paths.database
    mount = "run 'zonedrive mount DIR'"
    if facts.running:  # only the start of a daemon repairs
        mount = "run 'zonedrive unmount DIR' and 'zonedrive mount DIR'"
    if lack := local_data.loss(facts.paths):
        return bad(lack, f"{mount}: files that lost their names are then in lost+found")
    if not path.exists():
        return None
    try:
        with local_data.reader(facts.paths) as state:
            state.require_sound()
    except StoreError as wrong:
        repaired = f"{mount}, which repairs a damaged one; pending changes are kept"
        return bad(
            "it cannot be read",
            repaired if wrong.remedy in (REPAIR, DOCTOR) else wrong.remedy,
            here="" if wrong.remedy == REPAIR else wrong.line(),
        )
    aside = path.parent.glob(f"{path.name}.damaged-*")
    if damaged := [each for each in aside if not each.name.endswith(("-wal", "-shm"))]:
        return good(
            f"sound; {len(damaged)} damaged one(s) from before are kept in the state folder",
            "delete them once nothing is missing, and have the disk checked",
        )
    return good(f"sound, {amount(path.stat().st_size)}")


def _unfit(folder: Path) -> CheckResult | None:
    """Return a failed result if the folder is not writable or not private, else None."""
    try:
        require_own_folder(folder)
    except ForeignFolder as wrong:
        return bad("it belongs to another user", wrong.remedy, here=wrong.line())
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return bad(
            "it cannot be written: its disk is read-only",
            "a disk that nobody made read-only has an error: look at 'dmesg', have it checked, and"
            " make it writable again; pending changes are kept",
        )
    if not _is_writable(folder):
        remedy = "run 'sudo chown -R USER FOLDER && chmod -R u+rwX FOLDER'"
        return bad("it cannot be written", remedy, USER=os.getuid(), FOLDER=quoted(folder))
    try:
        require_room(folder)
    except OSError as wrong_disk:
        if wrong_disk.errno not in NO_ROOM:  # other checks report the lack of room
            return bad(f"it cannot be written ({wrong_disk.strerror})", FAULTY)
    found = [folder.stat(), *_files(folder)]
    if foreign := sum(each.st_uid != os.getuid() for each in found):
        return bad(
            f"another user owns {count(foreign, 'file')} in it",
            "run 'sudo chown -R USER FOLDER'; was zonedrive run with sudo?",
            USER=os.getuid(),
            FOLDER=quoted(folder),
        )
    # The folder itself may be private, but others could read a copy of such a file.
    if open_ones := sum(bool(stat.S_IMODE(each.st_mode) & 0o077) for each in found):
        detail = f"others can read {count(open_ones, 'file')} in it"
        if folder.stat().st_mode & 0o077:
            detail = "others may enter it"
        return bad(detail, "run 'chmod -R go= FOLDER'", FOLDER=quoted(folder))
    return None


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file and folder below `folder`.

    Symbolic links and unreadable entries are skipped.
    """
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
    """Return the type of the file system that contains the folder, or "" if unknown."""
    real = folder.resolve()
    around = [
        mount for mount in mountpoint.mounts() if mount.path == real or mount.path in real.parents
    ]
    return max(around, key=lambda mount: len(mount.path.parts)).kind if around else ""
