"""One save makes one version, whichever way a program saves."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix import calls

SLOWLY = pytest.mark.mount("settle=600")
"""However long a program takes for its steps, nothing is sent between them."""

NEW = b"first line\nsecond line, mended\nthird line\n"


def append(path: Path) -> None:
    """As `>>` in a shell."""
    with path.open("ab") as file:
        file.write(b"third line\n")


def write_in_place(path: Path) -> None:
    """As a program that changes a record."""
    with path.open("r+b") as file:
        file.write(NEW)


def rewrite(path: Path) -> None:
    """As `>` in a shell: truncate, then write in pieces."""
    with path.open("wb") as file:
        for start in range(0, len(NEW), 7):
            file.write(NEW[start : start + 7])
            file.flush()


def rename_over(path: Path) -> None:
    """As most editors and `sed -i`: a temporary file takes the place of the old one."""
    new = path.with_name("tmpaBcD12")
    new.write_bytes(NEW)
    new.rename(path)


def rename_aside(path: Path) -> None:
    """As vim with a backup: the old one aside, a new one written, the backup removed."""
    backup = path.with_name(path.name + ".bak")
    path.rename(backup)
    path.write_bytes(NEW)
    backup.unlink()


def delete_and_write(path: Path) -> None:
    """As a program that starts afresh."""
    path.unlink()
    path.write_bytes(NEW)


def sed(path: Path) -> None:
    """`sed -i`."""
    subprocess.run(["sed", "-i", "s/second line/second line, mended/", path], check=True)


WAYS: list[Callable[[Path], None]] = [
    append, write_in_place, rewrite, rename_over, rename_aside, delete_and_write, sed,
]  # fmt: skip


@SLOWLY
@pytest.mark.parametrize("save", WAYS, ids=lambda way: way.__name__)
def test_one_save_makes_one_version(mounted: Mounted, save: Callable[[Path], None]) -> None:
    """The service sees one new version of the same file, and no stray entries."""
    path = mounted.root / "notes.txt"
    before = mounted.zone.find("notes.txt")
    save(path)
    saved = path.read_bytes()
    mounted.sync()
    after = mounted.zone.find("notes.txt")
    assert before is not None
    assert after is not None
    assert after["id"] == before["id"]
    assert mounted.zone.read("notes.txt") == saved
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}
    assert path.read_bytes() == saved


@SLOWLY
def test_vim_makes_one_version(mounted: Mounted) -> None:
    """A save in vim, with its swap, probe and backup files, is one version of the same file."""
    vim = shutil.which("vim") or shutil.which("vim.tiny") or shutil.which("vi")
    assert vim, "the tests need vim.tiny, which every Debian has"
    path = mounted.root / "docs/report.md"
    before = mounted.zone.entry_id("docs/report.md")
    subprocess.run(
        [vim, "-u", "NONE", "-es", "-c", "set backup|%s/well/very well/|wq", path],
        check=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    mounted.sync()
    assert mounted.zone.entry_id("docs/report.md") == before
    assert mounted.zone.read("docs/report.md") == b"# Report\n\nAll is very well.\n"
    assert len(mounted.zone.versions("docs/report.md")) == 2
    assert set(mounted.zone.listing("docs")) == {"2026", "Grüße aus Köln.txt", "report.md"}


def test_a_new_file_is_on_the_service(mounted: Mounted) -> None:
    """A file that is created gets to the service with one version."""
    data = os.urandom(2_500_000)
    (mounted.root / "docs/new.bin").write_bytes(data)
    assert (mounted.root / "docs/new.bin").read_bytes() == data
    mounted.sync()
    assert mounted.zone.read("docs/new.bin") == data
    assert len(mounted.zone.versions("docs/new.bin")) == 1


def test_an_empty_file_is_on_the_service(mounted: Mounted) -> None:
    """`touch` creates a file of no bytes."""
    (mounted.root / "flag").touch()
    mounted.sync()
    assert mounted.zone.read("flag") == b""


@SLOWLY
def test_saves_in_quick_succession_settle(mounted: Mounted) -> None:
    """Many saves within the settle time are one version, the last one."""
    path = mounted.root / "notes.txt"
    for number in range(10):
        path.write_text(f"draft {number}\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"draft 9\n"
    assert len(mounted.zone.versions("notes.txt")) == 2


def test_a_save_without_a_change_of_content_keeps_the_file(mounted: Mounted) -> None:
    """Opening for writing and closing again without writing makes no version."""
    with (mounted.root / "notes.txt").open("r+b"):
        pass
    mounted.sync()
    assert len(mounted.zone.versions("notes.txt")) == 1


def test_a_file_is_readable_while_it_waits(mounted: Mounted) -> None:
    """With the service down a save succeeds, can be read back, and goes out when it is up again."""
    mounted.allow("offline", "reach", "upload")
    assert "notes.txt" in os.listdir(mounted.root)
    with mounted.deployment.faulty(down=True):
        (mounted.root / "notes.txt").write_bytes(NEW)
        assert (mounted.root / "notes.txt").read_bytes() == NEW
        outbox = mounted.status()["outbox"]
        assert outbox["pending"] + outbox["uploading"] == 1
        assert outbox["bytes"] == len(NEW)
    mounted.sync()
    assert mounted.zone.read("notes.txt") == NEW
    assert len(mounted.zone.versions("notes.txt")) == 2


def test_seeded_files_have_one_version(mounted: Mounted) -> None:
    """Reading never makes a version."""
    for name in world.SEED:
        (mounted.root / name).read_bytes()
    mounted.sync()
    assert {len(mounted.zone.versions(name)) for name in world.SEED} == {1}


@pytest.mark.mount("settle=0")
def test_a_temporary_file_that_was_already_sent_still_makes_one_version(mounted: Mounted) -> None:
    """However long a program takes between writing and renaming: the history goes on."""
    before = mounted.zone.find("notes.txt")
    temporary = mounted.root / "notes.tmp"
    temporary.write_bytes(NEW)
    mounted.sync()
    assert mounted.zone.find("notes.tmp") is not None
    temporary.rename(mounted.root / "notes.txt")
    mounted.sync()
    after = mounted.zone.find("notes.txt")
    assert before is not None
    assert after is not None
    assert after["id"] == before["id"]
    assert mounted.zone.read("notes.txt") == NEW
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("settle=0", "refresh=0.2")
@pytest.mark.parametrize("change", ["rename", "rename_over", "unlink", "rewrite"])
def test_a_change_during_the_upload_is_not_lost(mounted: Mounted, change: str) -> None:
    """Renamed, removed or written again while its bytes are on their way: that is what counts."""
    new = mounted.root / "new.bin"
    with mounted.deployment.faulty(stall=300, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"n" * 300_000)
        eventually(lambda: mounted.status()["outbox"]["uploading"] == 1, what="it is on its way")
        match change:
            case "rename":
                new.rename(mounted.root / "renamed.bin")
            case "rename_over":
                new.rename(mounted.root / "notes.txt")
            case "unlink":
                new.unlink()
            case "rewrite":
                new.write_bytes(b"m" * 200_000)
        os.listdir(mounted.root)
    mounted.sync()
    here = {path.name: path.read_bytes() for path in mounted.root.iterdir() if path.is_file()}
    there = {name: data for name, data in mounted.zone.tree().items() if data is not None}
    assert here == {name: data for name, data in there.items() if "/" not in name}


@pytest.mark.mount("settle=0", "refresh=0.2", profile="published")
@pytest.mark.parametrize("change", ["rename", "unlink"])
def test_published_a_name_changed_during_the_upload(mounted: Mounted, change: str) -> None:
    """Where names cannot be changed on the service: done in time, or refused; never half."""
    new = mounted.root / "new.bin"

    def uploads() -> int:
        """The uploads that have reached the service, answered or not."""
        requests = mounted.deployment.stats()["requests"]
        return sum(
            number for route, number in requests.items() if route.startswith("POST /api/zones/")
        )

    before = uploads()
    with mounted.deployment.faulty(stall=1.5, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"n" * 300_000)
        eventually(lambda: uploads() > before, what="it is on its way")
        try:
            if change == "rename":
                new.rename(mounted.root / "renamed.bin")
            else:
                new.unlink()
        except OSError as refused:
            assert refused.errno in (errno.EPERM, errno.EACCES, errno.EBUSY)
    mounted.sync()
    assert set(os.listdir(mounted.root)) == set(mounted.zone.listing())


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
def test_a_lost_reply_and_a_newer_edit_are_no_conflict(mounted: Mounted, name: str) -> None:
    """An upload arrived, its answer was lost, and the file was saved again: one file, in order."""
    path = mounted.root / name
    faults = {"drop_reply": True, "times": 1, "method": "POST", "path": "^/api/zones/"}
    with mounted.deployment.faulty(**faults):
        path.write_bytes(b"one\n")
        eventually(
            lambda: mounted.zone.find(name) is not None and mounted.zone.read(name) == b"one\n",
            what="it arrived",
        )
        path.write_bytes(b"two!!\n")
        mounted.sync()
    assert mounted.zone.read(name) == b"two!!\n"
    assert not [each for each in mounted.zone.listing() if "conflict" in each]


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("way", ["over", "again"])
def test_a_new_file_replaced_during_its_upload(mounted: Mounted, way: str) -> None:
    """Replaced by rename, or removed and written anew, while it is on its way: one file."""
    new = mounted.root / "new.txt"
    with mounted.deployment.faulty(stall=300, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"one\n")
        eventually(lambda: mounted.status()["outbox"]["uploading"] == 1, what="it is on its way")
        if way == "over":
            (mounted.root / "other").write_bytes(b"two!!\n")
            (mounted.root / "other").rename(new)
        else:
            new.unlink()
            new.write_bytes(b"two!!\n")
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"two!!\n"
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", "new.txt"}


@pytest.mark.mount("settle=0")
def test_renamed_there_and_back_during_the_move(mounted: Mounted) -> None:
    """A rename that is taken back while the service carries it out is taken back there, too."""
    notes, other = mounted.root / "notes.txt", mounted.root / "other.txt"
    with mounted.deployment.faulty(stall=300, times=1, method="PUT", path="^/api/sandbox/"):
        notes.rename(other)
        eventually(lambda: mounted.status()["outbox"]["uploading"] == 1, what="it is on its way")
        other.rename(notes)
    mounted.sync()
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("settle=0")
def test_a_folder_renamed_while_it_is_made(mounted: Mounted) -> None:
    """A folder renamed before the service has made it arrives under its last name."""
    with mounted.deployment.faulty(stall=300, times=1, method="POST", path="^/api/sandbox/"):
        (mounted.root / "new").mkdir()
        eventually(lambda: mounted.status()["outbox"]["uploading"] == 1, what="it is on its way")
        (mounted.root / "new").rename(mounted.root / "final")
        (mounted.root / "final/x").write_bytes(b"x\n")
    mounted.sync()
    assert mounted.zone.find("new") is None
    assert mounted.zone.read("final/x") == b"x\n"


@SLOWLY
@pytest.mark.parametrize("way", ["removed", "aside", "exchanged"])
def test_a_temporary_file_that_was_already_sent_takes_the_place_of_one_moved_away(
    mounted: Mounted, way: str
) -> None:
    """A slow save whose temporary file is on the service before its target is moved away."""
    before = mounted.zone.entry_id("notes.txt")
    temporary, target = mounted.root / "notes.new", mounted.root / "notes.txt"
    temporary.write_bytes(NEW)
    mounted.sync()
    if way == "removed":
        target.unlink()
        temporary.rename(target)
    elif way == "exchanged":
        calls.renameat2(temporary, target, calls.EXCHANGE)
        temporary.unlink()
    else:
        target.rename(mounted.root / "notes.bak")
        temporary.rename(target)
        (mounted.root / "notes.bak").unlink()
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == NEW
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("close=wait")
def test_a_shell_redirection_that_waits_makes_one_version(mounted: Mounted) -> None:
    """With close=wait nobody sees the file empty in between; the version is there at the end."""
    subprocess.run(["sh", "-c", "echo redirected > notes.txt"], cwd=mounted.root, check=True)
    assert mounted.zone.read("notes.txt") == b"redirected\n"
    assert [version["size"] for version in mounted.zone.versions("notes.txt")] == [
        len(b"redirected\n"),
        len(world.SEED["notes.txt"]),
    ]


def test_names_passed_on_keep_their_histories(mounted: Mounted) -> None:
    """Renames alone, one after the other into each other's places, end no file's history."""
    ids = {}
    for name in ("log", "log.1"):
        (mounted.root / name).write_bytes(name.encode())
        mounted.sync()
        ids[name] = mounted.zone.entry_id(name)
    (mounted.root / "log.1").rename(mounted.root / "log.2")
    (mounted.root / "log").rename(mounted.root / "log.1")
    mounted.sync()
    assert mounted.zone.entry_id("log.2") == ids["log.1"]
    assert mounted.zone.entry_id("log.1") == ids["log"]
    assert mounted.zone.find("log") is None
    assert mounted.zone.read("log.1") == b"log"
