"""Thumbnailers and indexers see names, sizes and cached content, and never cause a download."""

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.semantics import table
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = world.SEED["big.bin"]


@pytest.fixture
def thumbnailer(tmp_path: Path) -> Path:
    """Return a program of the default list that copies a file to its standard output."""
    path = tmp_path / "tumblerd"
    shutil.copy("/bin/cat", path)
    return path


def read_by(program: Path, file: Path) -> "subprocess.CompletedProcess[bytes]":
    """Read a file with a program; return the finished process."""
    environment = dict(os.environ, LC_ALL="C")
    return subprocess.run([program, file], capture_output=True, check=False, env=environment)


def downloads(deployment: Deployment) -> int:
    """Return the number of requests for content so far."""
    requests: dict[str, int] = deployment.stats()["requests"]
    return sum(count for route, count in requests.items() if "content" in route)


# What a shell with a guarded name does in a folder; the shell itself, not another program.
ROWS = {
    "list a folder, `stat`": "set -- * && [ $# -ge 3 ] && [ -s big.bin ]",
    "read what is cached": 'exec 3<notes.txt && read line <&3 && [ -n "$line" ]',
    "read what waits to be uploaded": 'exec 3<waiting.txt && read line <&3 && [ -n "$line" ]',
    "read what is not cached, or only in parts": "exec 3<big.bin",
    "write in place or append to what is not cached, or only in parts": "echo more >>big.bin",
    "truncate and write": "echo other >docs/report.md",
    "create a file": "echo new >new.txt",
}


@pytest.mark.mount("settle=60")
def test_the_page_is_true(mounted: Mounted, tmp_path: Path) -> None:
    """Each row of the table in SEMANTICS.md is true."""
    program = tmp_path / "tumblerd"
    shutil.copy("/bin/sh", program)
    (mounted.root / "notes.txt").read_bytes()
    (mounted.root / "waiting.txt").write_bytes(b"not uploaded yet\n")
    ended = {}
    for operation, script in ROWS.items():
        done = subprocess.run(
            [program, "-c", script], cwd=mounted.root, capture_output=True, check=False,
            env=dict(os.environ, LC_ALL="C"), text=True,
        )  # fmt: skip
        refused = "EACCES" if "Permission denied" in done.stderr else done.stderr
        ended[operation] = "ok" if done.returncode == 0 else refused
    assert [cells[0] for cells in table("Programs that read everything")] == list(ROWS)
    assert ended == {cells[0]: cells[2] for cells in table("Programs that read everything")}


def test_a_guarded_program_causes_no_download(mounted: Mounted, thumbnailer: Path) -> None:
    """Reading is refused at once; names, sizes and times are visible as usual."""
    before = downloads(mounted.deployment)
    ended = read_by(thumbnailer, mounted.root / "big.bin")
    assert ended.returncode == 1
    assert b"Permission denied" in ended.stderr
    assert ended.stdout == b""
    listed = thumbnailer.with_name("tracker-miner-fs-3")
    shutil.copy("/bin/ls", listed)
    shown = subprocess.run([listed, "-lR", mounted.root], capture_output=True, check=True).stdout
    assert f"{len(BIG)}".encode() in shown
    assert downloads(mounted.deployment) == before


def test_partly_cached_files_are_refused(mounted: Mounted, thumbnailer: Path) -> None:
    """Opening a file is refused if only some of its bytes are cached.

    A program that maps the file would be killed by a page that cannot be read.
    """
    mounted.zone.write("huge.bin", BIG * 6)
    huge = mounted.root / "huge.bin"
    eventually(huge.exists)
    with huge.open("rb") as file:
        assert os.pread(file.fileno(), 4096, 0) == BIG[:4096]
        before = downloads(mounted.deployment)
        assert read_by(thumbnailer, huge).returncode == 1
        assert downloads(mounted.deployment) == before


@pytest.mark.mount("refresh=0.2")
def test_a_new_version_is_not_fetched_for_a_guarded_program(
    mounted: Mounted, tmp_path: Path
) -> None:
    """A version that was cached completely stays readable; the next version is not downloaded."""
    notes = mounted.root / "notes.txt"
    assert notes.read_bytes() == world.SEED["notes.txt"]
    program = tmp_path / "tumblerd"
    shutil.copy("/bin/sh", program)
    script = 'exec 3<"$0"; read line <&3; echo "$line"; read go; cat <&3 || echo refused'
    with subprocess.Popen(
        [program, "-c", script, notes],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"first line\n"
        mounted.zone.write("notes.txt", BIG)
        eventually(lambda: notes.stat().st_size == len(BIG))
        before = downloads(mounted.deployment)
        running.stdin.write(b"go\n")
        running.stdin.close()
        assert running.stdout.read() == b"second line\n"
        assert b"Permission denied" in read_by(program, notes).stderr
        assert downloads(mounted.deployment) == before


@pytest.mark.mount("guard=nosy:curious")
def test_the_list_can_be_replaced(mounted: Mounted, tmp_path: Path, thumbnailer: Path) -> None:
    """`guard` replaces the default list."""
    nosy = tmp_path / "curious"
    shutil.copy("/bin/cat", nosy)
    assert read_by(nosy, mounted.root / "big.bin").returncode == 1
    assert read_by(thumbnailer, mounted.root / "big.bin").stdout == BIG


@pytest.mark.mount("guard=")
def test_an_empty_list_restricts_no_program(mounted: Mounted, thumbnailer: Path) -> None:
    """With an empty list, every program reads every file, also through a mapping."""
    assert read_by(thumbnailer, mounted.root / "notes.txt").stdout == world.SEED["notes.txt"]
    with (
        (mounted.root / "big.bin").open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        assert mapped[:] == BIG


def test_content_type_detection_causes_no_download(mounted: Mounted, tmp_path: Path) -> None:
    """A file manager's content type detection causes no download; copying the file does."""
    manager = tmp_path / "thunar"
    shutil.copy(sys.executable, manager)
    file = mounted.root / "big.bin"
    before = downloads(mounted.deployment)
    look = "import os, sys; os.read(os.open(sys.argv[1], os.O_RDONLY | int(sys.argv[2])), 16384)"

    def ended(flags: int) -> str:
        home = {"PYTHONHOME": sys.base_prefix, "PATH": "/usr/bin:/bin"}
        command = [os.fspath(manager), "-c", look, os.fspath(file), str(flags)]
        said = subprocess.run(command, env=home, capture_output=True, check=False, text=True)
        return said.stderr

    assert "PermissionError" in ended(os.O_NOATIME)
    assert downloads(mounted.deployment) == before
    assert ended(0) == ""
    assert downloads(mounted.deployment) > before
