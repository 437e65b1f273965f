"""stat, chmod, utimensat, extended attributes and statvfs: values are kept and stable."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix.calls import (
    UTIME_NOW,
    UTIME_OMIT,
    descriptor,
    elsewhere,
    refusal,
    utimensat,
    wrong,
)

SECOND = 1_000_000_000


def times(path: Path) -> tuple[int, int]:
    """Return the times of access and of change."""
    found = path.stat()
    return found.st_atime_ns, found.st_mtime_ns


def test_modes_owners_and_times(mounted: Mounted) -> None:
    """New entries have the requested mode; chmod and utimensat have their exact effect."""
    root = mounted.root
    before = os.umask(0o027)
    try:
        os.close(os.open(root / "a", os.O_CREAT | os.O_WRONLY, 0o666))
        (root / "d").mkdir(0o777)
        os.mknod(root / "n", stat.S_IFREG | 0o606)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("a", "d", "n")}
    assert modes == {"a": 0o640, "d": 0o750, "n": 0o600}
    path = root / "a"
    for mode in (0o111, 0o4755, 0o2700, 0o1777, 0o600):
        before_ns = path.stat().st_ctime_ns
        path.chmod(mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.stat().st_ctime_ns > before_ns
    assert refusal(os.chown, path, os.getuid() + 1, -1) == "EPERM"
    assert refusal(os.chown, path, -1, os.getgid() + 1) == "EPERM"
    assert refusal(os.chown, path, os.getuid(), os.getgid()) == ""

    utimensat(path, (1, 123_456_789), (2, 987_654_321))
    assert times(path) == (SECOND + 123_456_789, 2 * SECOND + 987_654_321)
    utimensat(path, (5, 0), (0, UTIME_OMIT))
    assert times(path) == (5 * SECOND, 2 * SECOND + 987_654_321)
    utimensat(path, (0, UTIME_OMIT), (7, 0))
    assert times(path) == (5 * SECOND, 7 * SECOND)
    before_ns = path.stat().st_ctime_ns
    utimensat(path, (0, UTIME_OMIT), (0, UTIME_OMIT))
    assert times(path) == (5 * SECOND, 7 * SECOND)
    utimensat(path, (0, UTIME_NOW), (0, UTIME_NOW))
    assert min(times(path)) >= before_ns - SECOND
    utimensat(path, (-5, 0), (2**33, 0))  # before 1970, and after 2106
    assert times(path) == (-5 * SECOND, 2**33 * SECOND)
    assert refusal(utimensat, path, (0, SECOND), (0, 0)) == "EINVAL"
    assert refusal(utimensat, root / "missing", (0, 0), (0, 0)) == "ENOENT"
    utimensat(root / "d", (8, 0), (9, 0))
    assert times(root / "d") == (8 * SECOND, 9 * SECOND)
    assert refusal(os.utime, mounted.path) == "EPERM"


def test_the_times_that_calls_mark(mounted: Mounted) -> None:
    """Writing changes mtime and ctime, name changes those of the folder, reading none."""
    root = mounted.root
    path, folder = root / "a", root / "f"
    folder.mkdir()
    path.write_bytes(b"one")
    os.utime(path, ns=(SECOND, SECOND))
    kept = path.stat()
    assert kept.st_ctime_ns > SECOND
    path.read_bytes()
    with descriptor(path, os.O_RDWR) as both:
        os.read(both, 3)
        os.fsync(both)
        os.pwrite(both, b"", 0)
    assert path.stat() == kept
    for change in (
        lambda: path.write_bytes(b"two"),
        lambda: os.truncate(path, 1),
        lambda: os.truncate(path, 1),
    ):
        os.utime(path, ns=(SECOND, SECOND))
        before = path.stat().st_ctime_ns
        change()
        found = path.stat()
        assert found.st_mtime_ns >= before
        assert found.st_ctime_ns >= before
    namings: list[Callable[[], object]] = [
        lambda: (folder / "x").touch(),
        lambda: (folder / "x").rename(folder / "y"),
        lambda: (folder / "y").unlink(),
        lambda: (folder / "z").mkdir(),
        lambda: (folder / "z").rmdir(),
    ]
    for naming in namings:
        os.utime(folder, ns=(SECOND, SECOND))
        naming()
        assert folder.stat().st_mtime_ns > SECOND


def look(path: Path) -> tuple[int, ...]:
    """Return the attributes by which an editor detects a change by another program."""
    found = path.stat()
    return (
        found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode,
        found.st_nlink,
    )  # fmt: skip


def test_nothing_jumps_after_a_save(either: Mounted) -> None:
    """After a save the attributes stay until the file is changed again.

    They survive the upload, listings with the service's own time, and a restart.
    """
    either.restart("refresh=0.2")
    path, old = either.root / "new.txt", either.root / "notes.txt"
    os.utime(old, ns=(SECOND, SECOND))
    with path.open("wb", buffering=0) as file:
        file.write(b"mine\n")
        within = os.fstat(file.fileno())
    old.write_bytes(b"edited\n")
    before = look(path), look(old)
    assert (within.st_mtime_ns, within.st_ctime_ns) == before[0][2:4]
    either.sync()
    assert (look(path), look(old)) == before
    either.zone.write("by another.txt", b"x")  # a listing that shows it came after the upload
    eventually(lambda: (either.root / "by another.txt").exists(), what="a fresh listing")
    assert (look(path), look(old)) == before
    either.restart("refresh=0.2")
    assert (look(path), look(old)) == before
    either.zone.write("new.txt", b"theirs, and longer\n")
    eventually(lambda: path.stat().st_size == 19, what="the change of a coworker shows")
    assert path.stat().st_ino == before[0][0]
    assert path.stat().st_ctime_ns > before[0][3]


def test_a_folder_has_one_size(mounted: Mounted) -> None:
    """st_size and st_blocks of a folder are the same for every kind of query.

    The folders are the root, a zone, and folders that are empty, listed, new or renamed, also after
    entries were created in them.
    """
    root = mounted.root
    (root / "made").mkdir()
    folders = [mounted.path, root, root / "docs", root / "docs/2026", root / "made"]
    sizes = set()
    for folder in folders:
        sizes.add((folder.stat().st_size, folder.stat().st_blocks))
        if folder != mounted.path:
            (folder / "new").write_bytes(b"x")
        os.listdir(folder)
        descriptor = os.open(folder, os.O_RDONLY)
        sizes.add((os.fstat(descriptor).st_size, os.fstat(descriptor).st_blocks))
        os.close(descriptor)
        for entry in os.scandir(folder):
            if entry.is_dir():
                sizes.add((entry.stat().st_size, entry.stat().st_blocks))
    (root / "made").rename(root / "renamed")
    mounted.restart()
    sizes |= {(each.stat().st_size, each.stat().st_blocks) for each in folders[:-1]}
    versions = root / "docs" / ".versions"
    sizes.add((versions.stat().st_size, versions.stat().st_blocks))
    assert sizes == {(4096, 8)}  # as on ext4: a mount point has one size mounted or not


def test_an_inode_keeps_its_number(mounted: Mounted) -> None:
    """st_ino is unique and survives a rename, a save in place, an upload and a remount."""
    root = mounted.root
    path = root / "a"
    path.write_bytes(b"one")
    number = path.stat().st_ino
    path.rename(root / "b")
    (root / "b").write_bytes(b"two")
    mounted.sync()
    (root / "b").rename(root / "docs" / "c")
    mounted.sync()
    folder = (root / "docs").stat().st_ino
    mounted.restart()
    assert (root / "docs" / "c").stat().st_ino == number
    assert (root / "docs").stat().st_ino == folder
    numbers = [path.stat().st_ino for path in sorted(mounted.path.rglob("*"))]
    assert len(numbers) == len(set(numbers))
    listed = {entry.name: entry.inode() for entry in os.scandir(root)}
    assert listed == {name: (root / name).stat().st_ino for name in listed}


XATTRS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
path, name = os.fsencode(sys.argv[1]), b"user.zonedrive.state"
size = libc.getxattr(path, name, None, 0)
small = libc.getxattr(path, name, ctypes.create_string_buffer(1), 1)
print(size, errno.errorcode[ctypes.get_errno()], end=" ")
listed = libc.listxattr(path, None, 0)
libc.listxattr(path, ctypes.create_string_buffer(3), 3)
print(listed > 20, errno.errorcode[ctypes.get_errno()])
"""


def test_extended_attributes_can_be_read_only(mounted: Mounted) -> None:
    """The size can be queried, a buffer may be too small, and a missing attribute gives ENODATA."""
    path, missing = mounted.root / "notes.txt", mounted.root / "missing"
    assert elsewhere(XATTRS, path) == f"{len('remote')} ERANGE True ERANGE"
    found = {
        "get what is not there": (refusal(os.getxattr, path, "user.mine"), "ENODATA"),
        "get of a missing file": (refusal(os.getxattr, missing, "user.mine"), "ENOENT"),
        "an ACL": (refusal(os.getxattr, path, "system.posix_acl_access"), "ENOTSUP"),
        "capabilities": (refusal(os.getxattr, path, "security.capability"), "ENOTSUP"),
        "set": (refusal(os.setxattr, path, "user.mine", b"x"), "ENOTSUP"),
        "set ours": (refusal(os.setxattr, path, "user.zonedrive.state", b"x"), "ENOTSUP"),
        "remove": (refusal(os.removexattr, path, "user.zonedrive.state"), "ENOTSUP"),
        "set in no namespace": (refusal(os.setxattr, path, "mine", b"x"), "ENOTSUP"),
        "a long name": (refusal(os.setxattr, path, "user." + "n" * 300, b"x"), "ERANGE"),
    }
    assert wrong(found) == {}


def test_room_and_limits(mounted: Mounted) -> None:
    """statvfs reports the space on this machine, pathconf the longest name."""
    found = os.statvfs(mounted.root)
    here = os.statvfs(mounted.machine.state)
    assert found.f_namemax == os.pathconf(mounted.root, "PC_NAME_MAX") == 255
    assert found.f_blocks * found.f_frsize == here.f_blocks * here.f_frsize
    assert 0 < found.f_bavail <= found.f_blocks
    path = mounted.root / "sized"
    path.write_bytes(b"x" * 1025)
    assert (path.stat().st_blocks, path.stat().st_blksize) == (3, 4096)
