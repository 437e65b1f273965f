"""On a full disk of the outbox or the cache, writes fail in time, and no data are lost."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from zonedrive.content.spool import RESERVE_PART

MIB = 1 << 20
PAGE = 4096
RESERVED = 8 * MIB // RESERVE_PART // PAGE  # pages, of the disk of `tiny`


class Filler:
    """File that takes all space of a disk except some pages."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def leave(self, pages: int) -> None:
        """Leave the given number of pages free."""
        while True:  # until no other program has used the space in between
            self.go()
            found = os.statvfs(self._path.parent)
            try:
                with self._path.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail - pages) * PAGE)
                return
            except OSError as wrong:
                if wrong.errno != errno.ENOSPC:
                    raise

    def go(self) -> None:
        """Free the space."""
        self._path.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """Yield a disk of `size` bytes at `path`, with the content of the folder moved to it."""
    kept = path.with_name(path.name + "-kept")
    path.mkdir(parents=True, exist_ok=True)
    path.rename(kept)
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"this test needs to mount a small disk: {made.stderr}"
    subprocess.run(["cp", "-a", f"{kept}/.", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def tiny(mounted: Mounted) -> Iterator[Mounted]:
    """Yield the mount with 8 MiB for the state folder."""
    mounted.unmount()
    with small_disk(mounted.machine.folders["STATE_HOME"], 8 * MIB):
        mounted.mount()
        yield mounted
        mounted.unmount("--timeout", "5")


def fill(path: Path) -> OSError:
    """Write into a new file until an error; return the error."""
    with pytest.raises(OSError, match="No space") as refused:
        path.write_bytes(os.urandom(32 * MIB))
    return refused.value


def test_earlier_saves_survive_a_full_disk(tiny: Mounted) -> None:
    """A failed write does not affect other files: earlier saves arrive, later ones work again."""
    tiny.allow("No space|could not be recorded")
    with tiny.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        (tiny.root / "before.txt").write_bytes(b"before\n")
        fill(tiny.root / "huge.bin")
        (tiny.root / "huge.bin").unlink()
        (tiny.root / "after.txt").write_bytes(b"after\n")
    tiny.sync()
    assert tiny.zone.read("before.txt") == b"before\n"
    assert tiny.zone.read("after.txt") == b"after\n"
    assert tiny.zone.find("huge.bin") is None


def test_a_redirection_into_an_existing_file_keeps_it_when_the_disk_is_full(tiny: Mounted) -> None:
    """A shell truncates the file before the program writes; this alone is no save."""
    path = tiny.root / "notes.txt"
    before, versions = path.read_bytes(), len(tiny.zone.versions("notes.txt"))
    ended = subprocess.run(
        ["sh", "-c", f"head -c {32 * MIB} /dev/urandom >'{path}'"],
        stderr=subprocess.PIPE, encoding="utf-8", check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "No space" in ended.stderr
    eventually(lambda: path.read_bytes() == before, what="the former content is there")
    tiny.sync()
    assert tiny.zone.read("notes.txt") == before
    assert len(tiny.zone.versions("notes.txt")) == versions


def test_a_file_that_is_emptied_first_keeps_its_content_when_the_disk_is_full(
    tiny: Mounted,
) -> None:
    """A program truncates the file that it has open before it writes, as vim does."""
    path = tiny.root / "notes.txt"
    before, versions = path.read_bytes(), len(tiny.zone.versions("notes.txt"))
    file = os.open(path, os.O_WRONLY)
    os.ftruncate(file, 0)
    with pytest.raises(OSError, match="No space"):
        for _ in range(32):
            os.write(file, os.urandom(MIB))
    for refused in (os.fsync, os.close):
        with pytest.raises(OSError, match="No space"):
            refused(file)
    eventually(lambda: path.read_bytes() == before, what="the former content is there")
    tiny.sync()
    assert tiny.zone.read("notes.txt") == before
    assert len(tiny.zone.versions("notes.txt")) == versions


def test_an_edit_in_place_that_was_refused_is_not_shown(tiny: Mounted) -> None:
    """Bytes of a failed edit are not part of the file, and are in no cache."""
    path = tiny.root / "notes.txt"
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"), path.open("r+b", buffering=0) as file:
        file.write(b"EDITED")
        file.seek(len(before))
        for _ in range(32):
            file.write(os.urandom(MIB))
    eventually(lambda: path.read_bytes() == before, what="the former content is there")
    assert path.stat().st_size == len(before)
    tiny.sync()
    assert tiny.zone.read("notes.txt") == before


def test_a_new_file_that_could_not_be_written_is_an_empty_file(tiny: Mounted) -> None:
    """The new file stays with no content, as on any disk; it is pending, survives a crash, and
    is sent."""
    tiny.allow("could not be recorded")
    path = tiny.root / "huge.bin"
    with tiny.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        fill(path)
        eventually(lambda: path.read_bytes() == b"", what="what was refused takes no room")
        assert os.getxattr(path, "user.zonedrive.state") in (b"pending", b"uploading")
        assert [each["size"] for each in tiny.status()["uploads"]] == [0]
        assert "huge.bin" in tiny.machine.done("status", path)
        tiny.kill()
        tiny.mount()
        assert path.read_bytes() == b""
        tiny.unmount("--timeout", "0")
        tiny.mount()
        assert path.read_bytes() == b""
    tiny.sync()
    assert tiny.zone.read("huge.bin") == b""
    path.write_bytes(b"room again")
    tiny.sync()
    assert tiny.zone.read("huge.bin") == b"room again"


def test_fsynced_bytes_survive_a_full_disk(tiny: Mounted) -> None:
    """Bytes that fsync confirmed are the file's content, and are uploaded after the close."""
    path = tiny.root / "log.txt"
    with pytest.raises(OSError, match="No space"), path.open("wb", buffering=0) as file:
        file.write(b"safe\n" * 50_000)
        os.fsync(file.fileno())
        for _ in range(32):
            file.write(os.urandom(MIB))
    eventually(lambda: path.stat().st_size == 250_000, what="what was refused is not shown")
    assert path.read_bytes() == b"safe\n" * 50_000
    tiny.sync()
    assert tiny.zone.read("log.txt") == b"safe\n" * 50_000


def test_a_full_disk_of_this_machine_is_no_refusal(tiny: Mounted) -> None:
    """An upload that needs local space reports the remedy, and continues once there is space."""
    tiny.allow("disk", "No space", "could not be")
    path, former = tiny.root / "notes.txt", os.urandom(MIB)
    tiny.zone.write("notes.txt", former)
    eventually(lambda: path.stat().st_size == MIB, what="the new version shows")
    filler = Filler(tiny.machine.folders["STATE_HOME"])
    with path.open("rb", buffering=0) as reader:
        assert reader.read(100) == former[:100]
        with tiny.deployment.faulty(status=503, path="^/api/zones/"):
            # The new file follows the former one, whose content the reader still needs.
            path.unlink()
            path.write_bytes(b"new\n")
            filler.leave(RESERVED + 100)
        (failed,) = eventually(
            lambda: [each for each in tiny.status()["uploads"] if "disk" in str(each["error"])]
        )
        assert "make room" in failed["error"]
        said = tiny.machine.done("status")
        ended = tiny.machine.run("sync", "--timeout", "1")
        assert ended.returncode == 1
        assert "make room" in ended.stderr
        for text in (failed["error"], said, ended.stderr, tiny.log()):
            assert "refused" not in text
            assert "administrator" not in text
        filler.go()
        tiny.sync()
        assert tiny.zone.read("notes.txt") == b"new\n"
        assert len(tiny.zone.versions("notes.txt")) == 3
        assert reader.read(MIB) == former[100:]


def test_a_full_disk_is_unmounted(tiny: Mounted) -> None:
    """A full disk is unmounted cleanly, and no confirmed data are lost.

    There are pending files, a file that is being written, and no space for a record; one line
    reports what is pending.
    """
    tiny.allow("No space|could not be|cannot be|disk is full|full")
    disk = tiny.machine.folders["STATE_HOME"]
    with tiny.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        for number in range(5):
            (tiny.root / f"{number}.txt").write_bytes(b"%d" % number * 20_000)
        (tiny.root / "0.txt").rename(tiny.root / "renamed.txt")
        eventually(lambda: any(each["error"] for each in tiny.status()["uploads"]))
        filler = Filler(disk)
        filler.leave(0)
        said = tiny.machine.run("unmount", tiny.path, "--timeout", "2")
        assert (said.returncode, said.stdout) == (0, ""), said
        assert "internal error" not in said.stderr
        assert "not on the service yet; kept here" in said.stderr
        assert not tiny.is_mounted()
        assert "died" not in tiny.machine.run("status").stdout
        filler.go()
    tiny.mount()
    tiny.sync()
    for number in range(5):
        name = f"{number}.txt" if number else "renamed.txt"
        assert tiny.zone.read(name) == b"%d" % number * 20_000


def test_an_outbox_that_fills_its_disk_empties_itself(tiny: Mounted) -> None:
    """The records' reserve lets pending changes be renamed, removed and sent.

    The write-ahead log of the database takes a small part of the reserve.
    """
    tiny.allow("No space|could not be recorded")
    disk = tiny.machine.folders["STATE_HOME"]
    with tiny.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        saved = {}
        for number in range(200):
            try:
                (tiny.root / f"file {number}").write_bytes(b"%d" % number * 50_000)
            except OSError:
                (tiny.root / f"file {number}").unlink(missing_ok=True)
                break
            saved[f"file {number}"] = b"%d" % number * 50_000
        (tiny.root / "file 0").unlink()
        (tiny.root / "file 1").rename(tiny.root / "renamed")
    logs = [path.stat().st_size for path in disk.rglob("*.db-wal")]
    assert len(logs) == 1
    assert logs[0] <= RESERVED * PAGE // 2
    del saved["file 0"]
    saved["renamed"] = saved.pop("file 1")
    tiny.kill()
    tiny.mount()
    tiny.sync()
    assert {name: tiny.zone.read(name) for name in saved} == saved
