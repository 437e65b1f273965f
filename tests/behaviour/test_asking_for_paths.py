"""Status of single paths: on the service or not, and the reason if a file never will be."""

import json
import os
from pathlib import Path

import pytest

from tests.harness.machine import Mounted

TRASH = f".Trash-{os.getuid()}"

pytestmark = pytest.mark.mount("settle=0", "refresh=0.2")


def first_line(mounted: Mounted, *paths: Path) -> str:
    """Return the first line of `status`."""
    return mounted.machine.done("status", *paths).splitlines()[0]


def refused(mounted: Mounted, *words: str | Path) -> str:
    """Return the single error line of a command that exits with 1."""
    ended = mounted.machine.run(*words)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended
    return ended.stderr


def test_a_local_only_file_is_not_called_safe(mounted: Mounted) -> None:
    """`status` and `sync` report that a local-only file stays here, and which pattern matches
    its name."""
    zone, folder = mounted.root.name, mounted.root / ".Trash-5"
    (mounted.root / "y.swp").write_bytes(b"edits\n")
    folder.mkdir()
    (folder / "letter.txt").write_bytes(b"mine\n")
    why = f"{zone}/y.swp stays on this machine: its name matches '*.swp', of local_only"
    assert first_line(mounted, mounted.root / "y.swp").startswith(why)
    assert why.replace(" stays", ": stays") in refused(mounted, "sync", mounted.root / "y.swp")
    for below in (folder, folder / "letter.txt"):
        assert "matches '.Trash-*'" in first_line(mounted, below)
        assert "matches '.Trash-*'" in refused(mounted, "sync", below)
    both = mounted.machine.done("status", mounted.root / "y.swp", folder / "letter.txt")
    assert both.splitlines()[0] == "2 of these stay on this machine"
    assert "y.swp" in mounted.machine.done("versions", mounted.root / "y.swp")


def test_a_file_renamed_to_a_local_only_name(mounted: Mounted) -> None:
    """The service keeps the file under the former name, but gets no later changes."""
    aside = mounted.root / "notes.txt~"
    (mounted.root / "notes.txt").rename(aside)
    said = refused(mounted, "sync", aside)
    assert said.endswith(f"the service keeps it as {mounted.root.name}/notes.txt\n")
    aside.write_bytes(b"changed\n")
    assert first_line(mounted, aside).endswith("/notes.txt, as it was before")
    assert len(json.loads(mounted.machine.done("versions", aside, "--json"))) == 1


def test_a_folder_with_swap_files_counts_as_synced(mounted: Mounted) -> None:
    """A folder counts as synced although it has swap files, which `status` does not list.

    A file of the service that has such a name here is listed.
    """
    (mounted.root / "docs/y.swp").write_bytes(b"edits\n")
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    mounted.sync(mounted.root / "docs")
    whole, part = mounted.machine.done("status"), mounted.machine.done("status", mounted.root)
    assert whole.startswith("everything is on the service\n")
    line = f"local      1 file stays on this machine (local_only), {mounted.root.name}/notes.txt~\n"
    assert line in whole and line in part
    assert part.startswith("everything there is on the service\n")
    assert "local" not in mounted.machine.done("status", mounted.root / "docs")
    assert set(mounted.status()) == {
        "account", "base_url", "mountpoint", "pid", "state", "outbox", "uploads", "cache", "tree",
        "paused", "held",
    }  # fmt: skip


@pytest.mark.mount("settle=600")
def test_without_a_mount_the_answer_is_the_same(mounted: Mounted) -> None:
    """Neither a pending removal nor an editor's swap file is reported as a local-only file."""
    (mounted.root / "notes.txt").unlink()
    (mounted.root / "y.swp").write_bytes(b"edits\n")
    mounted.unmount("--now")
    said = mounted.machine.done("status").splitlines()
    assert said[0] == "1 change (new folders, renames, removals) is only on this machine"
    assert not [line for line in said if line.startswith("local")]
    assert set(mounted.status()["outbox"]) == {
        "pending", "uploading", "failed", "conflicts", "bytes",
    }  # fmt: skip
    assert "local" not in mounted.status()


@pytest.mark.mount("settle=600")
def test_versions_gives_the_reason_for_a_file_without_versions(mounted: Mounted) -> None:
    """If a file is not uploaded yet, or never will be, `versions` gives the reason instead of a
    table."""
    new = mounted.root / "new.txt"
    new.write_bytes(b"mine\n")
    said = mounted.machine.done("versions", new)
    assert said == (
        f"{mounted.root.name}/new.txt has no versions on the service: it is not there yet\n"
    )
    assert mounted.machine.done("versions", new, "--json") == "[]\n"
    assert "is not there yet" in refused(mounted, "versions", new, "--get", "1")


@pytest.mark.mount("settle=600")
def test_versions_reports_a_change_that_is_not_uploaded(mounted: Mounted) -> None:
    """`versions` reports that the newest content is a local change, which is not a version yet."""
    path = mounted.root / "notes.txt"
    before = mounted.machine.run("versions", path)
    assert (before.returncode, before.stderr) == (0, "")
    path.write_bytes(b"changed\n")
    now = mounted.machine.run("versions", path)
    assert (now.returncode, now.stdout) == (0, before.stdout)
    assert "see 'zonedrive status'" in now.stderr
    mounted.sync()
    assert mounted.machine.run("versions", path).stderr == ""


def test_paths_in_the_versions_folder(mounted: Mounted) -> None:
    """Files in the versions folder can be named in commands: they are on the service and
    read-only."""
    folder = mounted.root / ".versions"
    history = folder / "notes.txt"
    (one,) = history.iterdir()
    for path in (folder, history, one):
        mounted.sync(path)
        assert first_line(mounted, path) == "everything there is on the service"
        assert "cannot be pinned: " in refused(mounted, "pin", path)
        assert "cannot be pinned: " in refused(mounted, "unpin", path)
    listed = mounted.machine.done("versions", mounted.root / "notes.txt")
    assert mounted.machine.done("versions", history) == listed
    assert mounted.machine.done("versions", one) == listed
    assert "has no versions" in refused(mounted, "versions", folder)
    assert "does not exist" in refused(mounted, "status", folder / "none.txt")


@pytest.mark.mount("settle=600")
def test_paths_in_the_trash_folder(mounted: Mounted) -> None:
    """A trashed file is pending until the service deleted it; a file manager's notes stay local."""
    trash = mounted.path / TRASH
    thing, note = trash / "files/notes.txt", trash / "info/notes.txt.trashinfo"
    note.write_bytes(b"[Trash Info]\n")
    with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE", method="DELETE"):
        (mounted.root / "notes.txt").rename(thing)
        for path in (thing, trash / "files", trash):
            assert first_line(mounted, path).startswith("1 change (")
        assert mounted.machine.run("sync", thing, "--timeout", "0").returncode != 0
    mounted.sync(thing)
    mounted.sync(trash)
    assert mounted.zone.find("notes.txt") is None
    said = mounted.machine.done("status", thing)
    assert said.startswith("everything there is on the service\n")
    assert "zonedrive trash" in said
    assert "has no versions" in refused(mounted, "versions", thing)
    assert "stays on this computer" in refused(mounted, "sync", note)


def test_a_name_of_other_bytes_does_not_exist(mounted: Mounted) -> None:
    """A file name on Linux need not be UTF-8, and in the mount none is like this."""
    path = mounted.root / os.fsdecode(b"no\xff.txt")
    for command in (
        "status", "sync", "send", "pin", "unpin", "versions", "share", "unshare", "log",
    ):  # fmt: skip
        said = refused(mounted, command, path)
        assert said.startswith("zonedrive: ") and "does not exist" in said, command
