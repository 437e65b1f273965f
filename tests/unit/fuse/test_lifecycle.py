"""Mounting points and the life of a mount, with real mounts of a file system in memory."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.harness.waiting import eventually
from tests.unit.fuse.mounted import HERE, MemoryMount, Mount
from zonedrive.daemon.lock import is_working
from zonedrive.errors import MountError
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.fuse.options import parse
from zonedrive.supervisor import Supervisor


def test_the_type_and_source_of_the_mount(mount: Mount) -> None:
    """`findmnt -t fuse.zonedrive` finds the mount, with the exact address of the service."""
    served = mount()
    found = mountpoint.at(served.path)
    assert found is not None and found.ours
    assert found.source == "https://memory.example:8443/a,b"
    listed = subprocess.run(
        ["findmnt", "-n", "-t", "fuse.zonedrive", "-o", "TARGET", os.fspath(served.path)],
        capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert listed.stdout.strip() == os.fspath(served.path)


def unmount(path: Path) -> None:
    """Unmount; a desktop may look into each new mount, and is then using it."""
    command = ["fusermount3", "-u", os.fspath(path)]
    eventually(lambda: subprocess.run(command, capture_output=True).returncode == 0)


def test_unmounting_from_outside_ends_the_process_cleanly(mount: Mount) -> None:
    """`fusermount3 -u` is enough."""
    served = mount()
    unmount(served.path)
    said, log = served.wait()
    assert (said, log, served.process.returncode) == ("ended\n", "", 0)


def test_a_mount_in_use_is_only_detached_lazily(mount: Mount) -> None:
    """A plain unmount names the programs that use the mount; a lazy one always works."""
    served = mount()
    sleep = ["sleep", "60"]
    with subprocess.Popen(sleep, cwd=served.path) as user, subprocess.Popen(sleep) as other:
        assert mountpoint.detach(served.path, lazy=False) is False
        found = mountpoint.users(served.path)
        # A desktop may be named as well, see `unmount`.
        assert [each for each in found if each.startswith("sleep ")] == [f"sleep ({user.pid})"]
        assert mountpoint.detach(served.path, lazy=True) is True
        assert mountpoint.at(served.path) is None
        user.kill()
        other.kill()
    assert served.wait()[0] == "ended\n"


def test_a_mount_in_use_is_not_taken_for_detached_when_another_one_goes(
    mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mount that ends at the same moment has no effect on the answer."""
    served, other = mount(), mount(path=tmp_path / "other")
    command = shutil.which("fusermount3")
    between = tmp_path / "bin/fusermount3"
    between.parent.mkdir()
    ended = f'until {command} -u "{other.path}" 2>/dev/null; do :; done'  # see `unmount`
    between.write_text(f'#!/bin/sh\n{ended}\nexec {command} "$@"\n')
    between.chmod(0o755)
    monkeypatch.setenv("PATH", f"{between.parent}:{os.environ['PATH']}")
    with subprocess.Popen(["sleep", "60"], cwd=served.path) as user:
        assert mountpoint.detach(served.path, lazy=False) is False
        user.kill()
    assert mountpoint.at(served.path) is not None
    assert other.wait()[0] == "ended\n"


@pytest.mark.parametrize("way", ["fusectl", "umount"])
def test_an_abort_ends_a_killed_daemon_that_waits_for_a_program(
    mount: Mount,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    way: str,
) -> None:
    """A thread that invalidates an entry waits for a program that creates another one in the same
    folder. Without an abort, neither ends. Other mounts are not affected."""
    if way == "fusectl":
        request.getfixturevalue("connections")
        monkeypatch.setattr(mountpoint, "ctypes", None)
    else:
        monkeypatch.setattr(mountpoint, "CONNECTIONS", tmp_path / "missing")
    served, other = mount(), mount(path=tmp_path / "other")
    pid = served.process.pid
    served.tell(stall=["create"])
    with subprocess.Popen(["touch", served.path / "a"]) as waiting:
        eventually(lambda: served.tell()["calls"].get("create"))
        served.tell(put="b", data="")
        threads = Path(f"/proc/{pid}/task")
        eventually(lambda: any(") D " in (t / "stat").read_text() for t in threads.iterdir()))
        served.process.kill()
        eventually(lambda: not is_working(pid), what="commands do not wait for it")
        found = mountpoint.at(served.path)
        assert found is not None
        mountpoint.abort(replace(found, source="another"))
        mountpoint.abort(replace(found, kind="fuse.another"))
        assert waiting.poll() is None
        mountpoint.abort(found)
        assert waiting.wait(60) == 1
    served.wait()
    assert os.listdir(other.path) == []


@pytest.mark.parametrize("way", ["fusectl", "umount"])
def test_an_aborted_mount_in_use_is_removed(
    mount: Mount,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    way: str,
) -> None:
    """`umount -f` aborts it, and leaves a mount where each access would fail."""
    if way == "fusectl":
        request.getfixturevalue("connections")
    else:
        monkeypatch.setattr(mountpoint, "CONNECTIONS", tmp_path / "missing")
    served = mount()
    found = mountpoint.at(served.path)
    assert found is not None
    with subprocess.Popen(["sleep", "60"], cwd=served.path) as user:
        mountpoint.abort(found)
        assert served.wait() == ("ended\n", "")
        assert mountpoint.at(served.path) is None
        user.kill()


def test_the_end_of_an_aborted_mount_detaches_no_later_one(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may give the number of the aborted mount to the next one, of another account."""
    served = mount()
    late = Session(
        cast(Any, SimpleNamespace(invalidations=None)), served.path, "https://x", Supervisor()
    )
    found = mountpoint.at(served.path)
    assert found is not None
    late.identity, late._is_aborted = found.identity, True
    monkeypatch.setattr("zonedrive.fuse.mount.pyfuse3.close", lambda unmount: None)
    late.close()
    assert os.listdir(served.path) == []
    assert mountpoint.at(served.path) is not None


def test_a_second_unmount_has_no_effect(mount: Mount) -> None:
    """The end after a lazy unmount is silent, and does not affect a new mount."""
    served = mount()
    with subprocess.Popen(["sleep", "60"], cwd=served.path) as user:
        mountpoint.detach(served.path, lazy=True)
        other = mount()  # the first one is served on, as it is in use
        assert served.process.poll() is None
        assert served.stop() == ("ended\n", "")
        assert os.listdir(other.path) == []
        assert mountpoint.at(other.path) is not None
        user.kill()
    assert other.stop() == ("ended\n", "")


def test_a_mount_ends_at_its_current_path(mount: Mount, tmp_path: Path) -> None:
    """After a rename of a folder above it, it is removed; a later one at the first path stays."""
    first = tmp_path / "first/mnt"
    first.parent.mkdir()
    served = mount(path=first)
    first.parent.rename(tmp_path / "moved")
    first.parent.mkdir()
    other = mount(path=first)
    served.path = tmp_path / "moved/mnt"
    assert served.stop() == ("ended\n", "")
    assert mountpoint.at(served.path) is None
    assert os.listdir(other.path) == []


def test_a_mount_that_is_covered_or_bound_elsewhere_is_found(tmp_path: Path) -> None:
    """Another type, service or user can have the device number of a former mount."""
    table = tmp_path / "mountinfo"
    rest = "fuse.zonedrive x rw,user_id=7"
    lines = [
        f"40 1 0:50 / /a rw - {rest}",
        f"41 1 0:50 /part /c rw - {rest}",
        f"42 1 0:50 / /d rw - {rest}",
        "43 1 0:52 / /e rw - tmpfs x rw",
        "44 1 0:52 / /f rw - fuse.zonedrive y rw,user_id=7",
        "45 1 0:52 / /g rw - fuse.zonedrive x rw,user_id=8",
    ]
    covered = f"46 1 0:51 / /a rw - {rest}"
    identity = "0:50 fuse.zonedrive x 7"
    for more, wanted, folder, found in (
        ([], identity, "/a", "/a"),
        ([], identity, "/former", "/a"),
        ([covered], identity, "/a", "/d"),
        ([], "0:52 fuse.zonedrive x 7", "/former", None),
        ([], "0:52 fuse.zonedrive x 7", "/e", None),
        ([], "", "/a", None),
        ([], None, "/a", "/a"),
        ([], None, "/former", None),
    ):
        table.write_text("\n".join([*lines, *more]))
        at = mountpoint.find(wanted, Path(folder), table)
        assert (at and str(at.path)) == found, (more, wanted, folder)


def test_two_mounts_at_the_same_moment(mount: Mount, tmp_path: Path) -> None:
    """The second one is refused while the first one is being made, and afterwards."""
    folder = tmp_path / "mnt"
    folder.mkdir()
    with mountpoint.reserved(folder), pytest.raises(AssertionError, match="another zonedrive"):
        mount()
    files = cast(Any, SimpleNamespace(invalidations=None))
    late = Session(files, mountpoint.check(str(folder)), "https://x", Supervisor())
    served = mount()
    with pytest.raises(MountError, match="already a mount"):
        late.attach(parse([]))
    assert served.stop() == ("ended\n", "")
    assert mountpoint.at(folder) is None


def test_a_free_folder_passes(tmp_path: Path) -> None:
    """An empty folder can be mounted on, also through a symbolic link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert mountpoint.check(str(tmp_path / "link")) == tmp_path / "real"


def test_a_second_mount_on_the_same_folder_is_refused(mount: Mount) -> None:
    """A folder that is already a mount, or inside one, is refused."""
    served = mount()
    (served.path / "inside").mkdir()
    with pytest.raises(MountError, match="already a mount") as refused:
        mountpoint.check(str(served.path))
    assert "zonedrive unmount" in refused.value.remedy
    with pytest.raises(MountError, match="lies inside the mount"):
        mountpoint.check(str(served.path / "inside"))
    assert (served.path / "inside").is_dir()


def test_a_foreign_mount_is_refused() -> None:
    """A mount of another program is named in the error and not covered."""
    with pytest.raises(MountError, match="already a mount"):
        mountpoint.check("/proc")


def test_a_mount_that_a_killed_daemon_left_errs_and_is_cleared(mount: Mount) -> None:
    """After a kill the path gives an error (and does not look empty); the next mount works."""
    served = mount()
    (served.path / "a").touch()
    served.kill()
    with pytest.raises(OSError, match="not connected") as broken:
        os.listdir(served.path)
    assert broken.value.errno == errno.ENOTCONN
    assert mountpoint.dead(served.path)
    again = mount()
    assert os.listdir(again.path) == []


def test_the_kernels_refusal_is_the_reason_in_the_line(tmp_path: Path) -> None:
    """The line has the reason of libfuse or fusermount3."""
    inside = (
        "import sys, trio; from pathlib import Path;"
        "from tests.unit.fuse.memory import Memory; from zonedrive.errors import MountError;"
        "from zonedrive.fuse.mount import Session; from zonedrive.fuse.options import Options;"
        "from zonedrive.supervisor import Supervisor\n"
        "try:\n"
        "  Session(Memory(), Path(sys.argv[1]), 5000 * 'x', Supervisor()).attach(Options())\n"
        "except MountError as wrong: print(wrong.line())"
    )
    said = subprocess.run(
        [sys.executable, "-c", inside, tmp_path],
        cwd=HERE, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert said.stdout == (
        f"{tmp_path} cannot be mounted: mount failed: Invalid argument;"
        f" run 'zonedrive doctor {tmp_path}'\n"
    )
    assert said.stderr == ""


def test_a_session_that_is_stopped_before_it_begins_ends_cleanly(tmp_path: Path) -> None:
    """The mount is made first, and the daemon may get a signal before it answers requests."""
    inside = (
        "import sys, trio; from pathlib import Path;"
        "from tests.unit.fuse.memory import Memory;"
        "from zonedrive.fuse.mount import Session; from zonedrive.fuse.options import Options;"
        "from zonedrive.supervisor import Supervisor\n"
        "session = Session(Memory(), Path(sys.argv[1]), 'x', Supervisor())\n"
        "session.attach(Options())\n"
        "async def main():\n"
        "  session.stop()\n"
        "  async with trio.open_nursery() as nursery:\n"
        "    await nursery.start(session.run)\n"
        "  print(session.ended.is_set())\n"
        "try: trio.run(main)\n"
        "finally: session.close()"
    )
    said = subprocess.run(
        [sys.executable, "-c", inside, tmp_path], cwd=HERE, capture_output=True, encoding="utf-8"
    )
    assert (said.stdout, said.stderr, said.returncode) == ("True\n", "", 0)
    assert mountpoint.at(tmp_path) is None


def test_the_table_of_mounts_is_read_with_its_escapes(tmp_path: Path) -> None:
    """A mount point may contain spaces, newlines, backslashes, and carriage returns as they are."""
    table = tmp_path / "mountinfo"
    table.write_bytes(
        b"25 1 0:23 / /proc rw,nosuid shared:5 - proc proc rw\n"
        b"42 27 0:39 / /home/a\\040b\\134c rw - fuse.zonedrive https://x\\0401 rw,user_id=0\n"
        b"43 27 0:40 / /over - fuse.zonedrive https://y rw\n"
        b"44 27 0:41 / /x\ry\x0b\x1c rw - fuse.other z rw,user_id=7\n"
        b"45 27\n"
    )
    found = mountpoint.mounts(table)
    assert [str(mount.path) for mount in found] == [
        "/proc", "/home/a b\\c", "/over", "/x\ry\x0b\x1c",
    ]  # fmt: skip
    assert [mount.ours for mount in found] == [False, True, True, False]
    assert found[1].source == "https://x 1"
    assert found[1].options == {"rw", "user_id=0"}


def test_a_killed_reader_does_not_freeze_the_mount(mount: Mount) -> None:
    """Programs that are killed during a read do not block the next one."""
    served = mount()
    served.tell(put="a.txt", data="x" * 100_000)
    for _ in range(20):
        with subprocess.Popen(
            ["dd", f"if={served.path / 'a.txt'}", "iflag=direct", "bs=1", "of=/dev/null"],
            stderr=subprocess.DEVNULL,
        ) as reader:
            before = _reads(served)
            eventually(partial(_more_reads, served, before))
            reader.kill()
        assert (served.path / "a.txt").stat().st_size == 100_000


def _reads(served: MemoryMount) -> int:
    return int(served.tell()["calls"].get("read", 0))


def _more_reads(served: MemoryMount, than: int) -> bool:
    return _reads(served) > than
