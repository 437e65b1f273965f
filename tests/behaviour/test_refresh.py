"""Changes on the service are visible within `refresh` seconds, and disturb no running program."""

import json
import mmap
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

QUICK = pytest.mark.mount("refresh=0.3")


@contextmanager
def inside(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a shell whose working directory is `folder`; it runs the lines it gets."""
    with subprocess.Popen(
        ["sh"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, bufsize=1,
    ) as shell:  # fmt: skip
        try:
            yield shell
        finally:
            shell.kill()


def says(shell: "subprocess.Popen[str]", command: str) -> str:
    """Return the single line that a command in that shell prints."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(command + "\n")
    return shell.stdout.readline().strip()


def shown(root: Path) -> dict[str, bytes | None]:
    """Return everything below a folder of the mount: content by path, None for folders."""
    try:
        return {
            str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
            for path in root.rglob("*")
        }
    except OSError:  # deleted, or another version, since it was listed
        return {}


@QUICK
def test_everything_a_coworker_does_shows(mounted: Mounted) -> None:
    """New files and folders, contents, renames, moves and deletions are visible in names and in
    stat."""
    root, zone = mounted.root, mounted.zone
    assert not (root / "new.txt").exists()  # a name that was missed is not remembered as missing
    assert {path.name for path in root.rglob("*")} >= {"notes.txt", "report.md", "q1.csv"}
    zone.write("new.txt", b"by bob\n")
    zone.make_folder("made")
    zone.write("notes.txt", b"another version by bob\n")
    zone.move("docs/report.md", "docs/2026/report.md")
    zone.move("empty", "void")
    zone.delete("big.bin")
    place = {"zone": root.name, "path": "docs/2026/q1.csv"}
    mounted.deployment.tell({"protect": {**place, "writeProtected": True}})
    expected = zone.tree()
    eventually(lambda: shown(root) == expected, what="the mount shows what the service has")
    assert (root / "notes.txt").stat().st_size == 23
    assert not (root / "big.bin").exists()
    assert not (root / "empty").exists()
    assert (root / "docs/2026/q1.csv").stat().st_mode & 0o777 == 0o400


@QUICK
def test_open_and_mapped_files_keep_their_version(mounted: Mounted) -> None:
    """A program with an open or mapped file keeps its version, never a mixture.

    A new open gets a coworker's version, as does an open file of which nothing was read yet.
    """
    path, other = mounted.root / "notes.txt", mounted.root / "docs" / "report.md"
    old, new, longer = path.read_bytes(), b"SECOND LINE, first line", b"longer" * 1000
    assert len(old) == len(new)
    with (
        path.open("rb", buffering=0) as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as m,
        other.open("rb", buffering=0) as unread,
    ):
        assert m[:] == old
        mounted.zone.write("notes.txt", new)
        mounted.zone.write("docs/report.md", longer)
        eventually(lambda: path.read_bytes() == new, what="a new open shows the new version")
        eventually(lambda: other.stat().st_size == len(longer), what="the other one shows")
        assert m[:] == os.pread(file.fileno(), 100, 0) == old
        assert os.fstat(file.fileno()).st_mtime_ns != path.stat().st_mtime_ns
        assert unread.read() == longer
        assert os.fstat(unread.fileno()).st_mtime_ns == other.stat().st_mtime_ns


@QUICK
def test_a_program_in_a_folder_that_is_renamed_goes_on(mounted: Mounted) -> None:
    """A shell stays in its folder under the new name, and can read and save there."""
    with inside(mounted.root / "docs") as shell:
        assert says(shell, "pwd -P") == str(mounted.root / "docs")
        mounted.zone.move("docs", "papers")
        mounted.zone.write("notes.txt", b"renamed\n")
        eventually(lambda: (mounted.root / "notes.txt").stat().st_size == 8, what="it is refreshed")
        assert says(shell, "head -1 report.md") == "# Report"
        assert says(shell, "echo mine > mine.txt; cat mine.txt") == "mine"
        assert (mounted.root / "papers/mine.txt").read_bytes() == b"mine\n"
        assert says(shell, "/bin/pwd") == str(mounted.root / "papers")
    assert not (mounted.root / "docs").exists()
    mounted.sync()
    assert mounted.zone.read("papers/mine.txt") == b"mine\n"


@QUICK
def test_a_program_in_a_deleted_folder_gets_errors(mounted: Mounted) -> None:
    """A shell in a folder that a coworker deletes gets errors; no other program is disturbed."""
    with inside(mounted.root / "docs/2026") as shell:
        assert says(shell, "head -1 q1.csv") == "month,amount"
        mounted.zone.delete("docs")
        eventually(lambda: not (mounted.root / "docs").exists(), what="the folder is gone")
        assert "No such file" in says(shell, "cat q1.csv 2>&1")
        assert "onexistent" in says(shell, "echo x > y")
    assert (mounted.root / "notes.txt").exists()


def test_the_first_program_may_be_inside_at_once(mounted: Mounted) -> None:
    """If `cd` is the first access, the folder keeps its place when its listing arrives."""
    with inside(mounted.root / "docs") as shell:
        assert says(shell, "cat report.md | tail -1") == "All is well."
        for _ in range(3):
            assert says(shell, "/bin/pwd") == str(mounted.root / "docs")


@QUICK
def test_a_name_that_changes_its_kind(mounted: Mounted) -> None:
    """A coworker replaces a file by a folder of the same name, and a folder by a file."""
    assert (mounted.root / "notes.txt").is_file()
    assert (mounted.root / "docs/report.md").is_file()
    mounted.zone.delete("notes.txt")
    mounted.zone.make_folder("notes.txt")
    mounted.zone.write("notes.txt/part", b"one\n")
    mounted.zone.delete("docs")
    mounted.zone.write("docs", b"a file now\n")
    eventually((mounted.root / "notes.txt").is_dir, what="the file is a folder")
    assert (mounted.root / "notes.txt/part").read_bytes() == b"one\n"
    eventually((mounted.root / "docs").is_file, what="the folder is a file")
    assert (mounted.root / "docs").read_bytes() == b"a file now\n"


@QUICK
def test_an_edit_of_a_deleted_file_is_no_conflict_copy(mounted: Mounted) -> None:
    """`zonedrive conflicts` reports that the file was deleted, not that there is a conflict
    copy."""
    mounted.allow("deleted on the service")
    with (mounted.root / "notes.txt").open("ab", buffering=0) as file:
        file.write(b"third line\n")
        mounted.zone.delete("notes.txt")
    mounted.sync()
    said = mounted.machine.done("conflicts")
    assert "deleted on the service" in said
    assert "notes.txt" in said
    (told,) = json.loads(mounted.machine.done("conflicts", "--json"))
    assert told["path"] == told["original"] == f"{mounted.root.name}/notes.txt"


def on_the_service(mounted: Mounted, change: str, value: object) -> None:
    """Change the test's zone as an administrator."""
    path = mounted.deployment.folder / "data/sandbox.db"
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as database:
        done = database.execute(
            f"UPDATE zones SET {change} = ? WHERE id = ?", (value, mounted.zone.id)
        )
        assert done.rowcount == 1


@QUICK
def test_zones_are_renamed_closed_and_opened(mounted: Mounted) -> None:
    """Programs continue in a renamed zone; a closed zone disappears, and can come back."""
    old, new = mounted.root, mounted.path / f"{mounted.root.name} renamed"
    others = set(os.listdir(mounted.path)) - {old.name}
    with inside(old / "docs") as shell:
        assert says(shell, "head -1 report.md") == "# Report"
        on_the_service(mounted, "name", new.name)
        eventually(lambda: not old.exists(), what="the old name is gone")
        assert set(os.listdir(mounted.path)) == others | {new.name}
        assert says(shell, "echo mine > mine.txt; cat mine.txt") == "mine"
        assert (new / "docs/mine.txt").read_bytes() == b"mine\n"
        assert says(shell, "/bin/pwd") == str(new / "docs")
    mounted.sync()
    assert mounted.zone.read("docs/mine.txt") == b"mine\n"
    on_the_service(mounted, "accessible", 0)
    eventually(lambda: not new.exists(), what="the closed zone is gone")
    assert set(os.listdir(mounted.path)) == others
    on_the_service(mounted, "accessible", 1)
    eventually((new / "docs/mine.txt").exists, what="the opened zone is there")
    on_the_service(mounted, "name", old.name)
