"""Errno of each call that fails, as POSIX or Linux define it.

Each test is a table: an operation, and the name of the errno ("" if it must succeed).
"""

import os
import socket
import stat
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.posix.calls import (
    EXCHANGE,
    FICLONE,
    NOREPLACE,
    WHITEOUT,
    descriptor,
    fallocate,
    opens,
    refusal,
    renameat2,
    wrong,
)

LONG, TOO_LONG = "n" * 255, "n" * 256
NOT_UTF_8 = os.fsdecode(b"no\xff.txt")
LONG_WAY = "./" * 2100
NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def test_open_and_its_flags(either: Mounted) -> None:
    """Each flag of open(2) has its effect, or is refused with the matching errno."""
    root = either.root
    file, folder, missing = root / "notes.txt", root / "docs", root / "missing"
    new = root / "made.txt"
    found = {
        "no such file": (opens(missing, os.O_RDONLY), "ENOENT"),
        "no such folder": (opens(missing / "a", NEW), "ENOENT"),
        "below a file": (opens(file / "a", os.O_RDONLY), "ENOTDIR"),
        "create below a file": (opens(file / "a", NEW), "ENOTDIR"),
        "create": (opens(new, NEW), ""),
        "create what exists": (opens(file, os.O_CREAT | os.O_WRONLY), ""),
        "exclusively": (opens(file, NEW), "EEXIST"),
        "exclusively a folder": (opens(folder, NEW), "EEXIST"),
        "exclusively once more": (opens(new, NEW), "EEXIST"),
        "a folder for writing": (opens(folder, os.O_WRONLY), "EISDIR"),
        "a folder with O_CREAT": (opens(folder, os.O_CREAT | os.O_RDONLY), "EISDIR"),
        "a folder with O_TRUNC": (opens(folder, os.O_TRUNC), "EISDIR"),
        "a folder": (opens(folder, os.O_RDONLY | os.O_DIRECTORY), ""),
        "a file as a folder": (opens(file, os.O_RDONLY | os.O_DIRECTORY), "ENOTDIR"),
        "without following": (opens(file, os.O_RDONLY | os.O_NOFOLLOW), ""),
        "O_TMPFILE": (opens(folder, os.O_TMPFILE | os.O_RDWR), "ENOTSUP"),
        "O_DIRECT": (opens(file, os.O_RDWR | os.O_DIRECT), ""),
        "O_PATH": (opens(file, os.O_PATH), ""),
        "O_SYNC": (opens(file, os.O_RDWR | os.O_SYNC), ""),
        "O_NOATIME": (opens(file, os.O_RDONLY | os.O_NOATIME), ""),
        "255 bytes": (opens(root / LONG, NEW), ""),
        "256 bytes": (opens(root / TOO_LONG, NEW), "ENAMETOOLONG"),
        "256 bytes to be read": (opens(root / TOO_LONG, os.O_RDONLY), "ENAMETOOLONG"),
        "256 bytes of folder": (opens(root / TOO_LONG / "a", os.O_RDONLY), "ENAMETOOLONG"),
        "4096 bytes of path": (opens(f"{root}/{LONG_WAY}a", os.O_RDONLY), "ENAMETOOLONG"),
        "not UTF-8": (opens(root / NOT_UTF_8, NEW), "EILSEQ"),
        "not UTF-8 to be read": (opens(root / NOT_UTF_8, os.O_RDONLY), "ENOENT"),
        "an odd name": (opens(root / "a\tb\\c:*?\n", NEW), ""),
        "a zone that is not there": (opens(either.path / "No zone" / "a", NEW), "ENOENT"),
        "a file beside the zones": (opens(either.path / "a", NEW), "EPERM"),
    }
    assert wrong(found) == {}
    assert file.read_bytes() == b"first line\nsecond line\n"
    os.close(os.open(file, os.O_RDONLY | os.O_TRUNC))  # as on a local disk
    assert (file.read_bytes(), file.stat().st_size) == (b"", 0)


def made(root: Path, *names: str) -> list[Path]:
    """Return new empty files with local-only names, so that no upload interferes."""
    paths = [root / f"{name}~" for name in names]
    for path in paths:
        path.touch()
    return paths


def test_names_are_made_and_removed(either: Mounted, profile: str) -> None:
    """Calls that make and remove names; EPERM for types that the service cannot store."""
    root = either.root
    file, folder, missing = root / "notes.txt", root / "docs", root / "missing"
    mine, target = made(root, "mine", "target")
    can = "" if profile == "sandbox" else "EPERM"
    found = {
        "mkdir": (refusal(os.mkdir, root / "new"), can),
        "mkdir on a file": (refusal(os.mkdir, file), "EEXIST"),
        "mkdir on a folder": (refusal(os.mkdir, folder), "EEXIST"),
        "mkdir below nothing": (refusal(os.mkdir, missing / "a"), "ENOENT"),
        "mkdir below a file": (refusal(os.mkdir, file / "a"), "ENOTDIR"),
        "mkdir with a long name": (refusal(os.mkdir, root / TOO_LONG), "ENAMETOOLONG"),
        "mkdir with a name that is not UTF-8": (refusal(os.mkdir, root / NOT_UTF_8), "EILSEQ"),
        "mkdir beside the zones": (refusal(os.mkdir, either.path / "a"), "EPERM"),
        "rmdir of nothing": (refusal(os.rmdir, missing), "ENOENT"),
        "rmdir of a file": (refusal(os.rmdir, file), "ENOTDIR"),
        "rmdir of .": (refusal(os.rmdir, f"{folder}/."), "EINVAL"),
        "rmdir of ..": (refusal(os.rmdir, f"{folder}/2026/.."), "ENOTEMPTY"),
        "rmdir of a zone": (refusal(os.rmdir, root), "EPERM"),
        "rmdir of the mount": (refusal(os.rmdir, either.path), "EBUSY"),
        "unlink of nothing": (refusal(os.unlink, missing), "ENOENT"),
        "unlink of a folder": (refusal(os.unlink, folder), "EISDIR"),
        "unlink below a file": (refusal(os.unlink, file / "a"), "ENOTDIR"),
        "unlink with a long name": (refusal(os.unlink, root / TOO_LONG), "ENAMETOOLONG"),
        "unlink with a name that is not UTF-8": (refusal(os.unlink, root / NOT_UTF_8), "ENOENT"),
        "unlink of what is on the service": (refusal(os.unlink, root / "empty"), can),
        "link": (refusal(os.link, mine, root / "hard"), "EPERM"),
        "link over a name": (refusal(os.link, mine, target), "EEXIST"),
        "link of nothing": (refusal(os.link, missing, root / "hard"), "ENOENT"),
        "symlink": (refusal(os.symlink, "mine", root / "soft"), "EPERM"),
        "symlink over a name": (refusal(os.symlink, "mine", target), "EEXIST"),
        "mknod": (refusal(os.mknod, root / "node~", stat.S_IFREG | 0o640), ""),
        "mknod of a pipe": (refusal(os.mknod, root / "pipe", stat.S_IFIFO | 0o600), "EPERM"),
        "mknod of a device": (refusal(os.mknod, root / "dev", stat.S_IFCHR | 0o600, 259), "EPERM"),
        "a socket": (refusal(socket_at, root / "s"), "EPERM"),
        "readlink": (refusal(os.readlink, file), "EINVAL"),
    }
    assert wrong(found) == {}
    assert refusal(os.rmdir, folder) == ("ENOTEMPTY" if profile == "sandbox" else "EPERM")
    assert refusal(os.unlink, mine) == ""
    assert not mine.exists()


def socket_at(path: Path) -> None:
    """Bind a Unix socket."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_rename_in_all_its_kinds(either: Mounted, profile: str) -> None:
    """rename and renameat2 move the entry or are refused, and a refusal changes nothing."""
    root = either.root
    file, folder, missing = root / "notes.txt", root / "docs", root / "missing"
    one, two, three = made(root, "one", "two", "three")
    before = two.stat().st_ino
    can = "" if profile == "sandbox" else "EPERM"
    other = next(each for each in sorted(either.path.iterdir()) if each != root)
    found = {
        "nothing": (refusal(os.rename, missing, root / "a"), "ENOENT"),
        "into nothing": (refusal(os.rename, one, missing / "a"), "ENOENT"),
        "below a file": (refusal(os.rename, one, file / "a"), "ENOTDIR"),
        "with a long name": (refusal(os.rename, one, root / TOO_LONG), "ENAMETOOLONG"),
        "from a name that is not UTF-8": (refusal(os.rename, root / NOT_UTF_8, one), "ENOENT"),
        "to a name that is not UTF-8": (refusal(os.rename, one, root / NOT_UTF_8), "EILSEQ"),
        "to itself": (refusal(os.rename, one, one), ""),
        "a file over a folder": (refusal(os.rename, one, folder), "EISDIR"),
        "a folder over a file": (refusal(os.rename, folder, one), "ENOTDIR"),
        "a folder into itself": (refusal(os.rename, folder, folder / "2026" / "a"), "EINVAL"),
        "a folder over a full one": (refusal(os.rename, folder / "2026", folder), "ENOTEMPTY"),
        "a zone": (refusal(os.rename, root, either.path / "Renamed"), "EPERM"),
        "out of the zone": (refusal(os.rename, one, other / "a"), "EXDEV"),
        "out of the mount": (refusal(os.rename, one, either.machine.folder / "a"), "EXDEV"),
        "beside the zones": (refusal(os.rename, one, either.path / "a"), "EPERM"),
        "without replacing": (refusal(renameat2, one, two, NOREPLACE), "EEXIST"),
        "without replacing, free": (refusal(renameat2, three, root / "free~", NOREPLACE), ""),
        "exchange with nothing": (refusal(renameat2, one, missing, EXCHANGE), "ENOENT"),
        "both flags": (refusal(renameat2, one, two, NOREPLACE | EXCHANGE), "EINVAL"),
        "whiteout": (refusal(renameat2, one, root / "white", WHITEOUT), "EINVAL"),
        "unknown flag": (refusal(renameat2, one, root / "white", 64), "EINVAL"),
        "exchange": (refusal(renameat2, one, two, EXCHANGE), ""),
        "over another": (refusal(os.rename, one, two), ""),
        "what is on the service": (refusal(os.rename, file, root / "renamed.txt"), can),
        "a folder of the service": (refusal(os.rename, folder, root / "renamed"), can),
    }
    assert wrong(found) == {}
    assert not one.exists()
    assert two.stat().st_ino == before  # it came back from the exchange, by the rename
    assert (root / "free~").exists()
    assert not three.exists()


def test_bytes_and_descriptors(mounted: Mounted) -> None:
    """Calls on descriptors: done by the kernel, emulated, or refused."""
    path = mounted.root / "bytes.bin"
    huge = (16 << 40) + 1
    with (
        descriptor(path, os.O_RDWR | os.O_CREAT) as both,
        descriptor(path, os.O_RDONLY) as reading,
        descriptor(path, os.O_WRONLY) as writing,
        descriptor(path, os.O_PATH) as only_path,
        descriptor(mounted.root, os.O_RDONLY) as folder,
        descriptor(mounted.root / "copy.bin", os.O_RDWR | os.O_CREAT) as copy,
    ):
        os.write(both, b"x" * 5000)
        found = {
            "write to a reader": (refusal(os.write, reading, b"x"), "EBADF"),
            "read from a writer": (refusal(os.read, writing, 1), "EBADF"),
            "read from O_PATH": (refusal(os.read, only_path, 1), "EBADF"),
            "read from a folder": (refusal(os.read, folder, 1), "EISDIR"),
            "write to a folder": (refusal(os.pwrite, folder, b"x", 0), "EBADF"),
            "ftruncate of a reader": (refusal(os.ftruncate, reading, 1), "EINVAL"),
            "ftruncate to less than nothing": (refusal(os.ftruncate, both, -1), "EINVAL"),
            "truncate of a folder": (refusal(os.truncate, mounted.root, 0), "EISDIR"),
            "truncate of nothing": (refusal(os.truncate, mounted.root / "missing", 0), "ENOENT"),
            "pread before the start": (refusal(os.pread, both, 1, -1), "EINVAL"),
            "lseek before the start": (refusal(os.lseek, both, -1, os.SEEK_SET), "EINVAL"),
            "SEEK_DATA past the end": (refusal(os.lseek, both, 6000, os.SEEK_DATA), "ENXIO"),
            "truncate to more than fits": (refusal(os.truncate, path, huge), "EFBIG"),
            "ftruncate to more than fits": (refusal(os.ftruncate, both, huge), "EFBIG"),
            "write where nothing fits": (refusal(os.pwrite, both, b"x", huge), "EFBIG"),
            "fallocate": (refusal(fallocate, both, 0, 0, 10_000), "ENOTSUP"),
            "punch a hole": (refusal(fallocate, both, 3, 0, 4096), "ENOTSUP"),
            "clone": (refusal(clone, both, copy), "ENOTSUP"),
            "an ioctl": (refusal(clone, both, folder), "EISDIR"),
            "fsync of a folder": (refusal(os.fsync, folder), ""),
            "fsync of a reader": (refusal(os.fsync, reading), ""),
            "fdatasync": (refusal(os.fdatasync, both), ""),
            "fadvise": (refusal(os.posix_fadvise, both, 0, 0, os.POSIX_FADV_DONTNEED), ""),
        }
        assert wrong(found) == {}
        assert os.fstat(both).st_size == 5000
        assert os.lseek(both, 0, os.SEEK_HOLE) == 5000
        os.posix_fallocate(both, 0, 9000)  # which writes, where fallocate is not there
        assert os.fstat(both).st_size == 9000
        assert os.copy_file_range(both, copy, 5000, 0, 0) == 5000
        assert os.sendfile(copy, both, 100, 100) == 100
        assert os.pread(copy, 6000, 0)[:5000] == b"x" * 5000


def clone(source: int, target: int) -> None:
    """Call FICLONE."""
    import fcntl

    fcntl.ioctl(target, FICLONE, source)


@pytest.mark.mount("ro")
def test_a_mount_for_reading_only(mounted: Mounted) -> None:
    """With -o ro every change gives EROFS; reading works."""
    root, file = mounted.root, mounted.root / "notes.txt"
    assert opens(root / "a", NEW) == opens(file, os.O_WRONLY) == "EROFS"
    assert refusal(os.rename, file, root / "a") == refusal(os.utime, file) == "EROFS"
    assert file.read_bytes() == b"first line\nsecond line\n"
    assert not os.access(file, os.W_OK)
    assert os.statvfs(root).f_flag & os.ST_RDONLY
