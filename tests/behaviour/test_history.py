"""Former versions and deleted entries in the shell: list, read, restore, remove."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Machine, Mounted
from tests.harness.terminal import Terminal

FIRST, SECOND = b"first line\nsecond line\n", b"another text\n" * 50_000


def versions(mounted: Mounted, path: Path) -> list[dict[str, object]]:
    """Return the output of `versions --json`."""
    found: list[dict[str, object]] = json.loads(mounted.machine.done("versions", path, "--json"))
    return found


def test_a_former_version_is_read_and_brought_back(mounted: Mounted) -> None:
    """A former version goes to a file or to standard output; written to the file it is the
    newest."""
    path = mounted.root / "notes.txt"
    path.write_bytes(SECOND)
    mounted.sync()
    (newest, oldest) = versions(mounted, path)
    assert (newest["version"], oldest["version"]) == ("2", "1")
    run = mounted.machine
    assert run.done("versions", path, "--get", "1") == FIRST.decode()
    assert run.done("versions", path, "--get", str(oldest["id"])) == FIRST.decode()
    elsewhere = run.folder / ("\U0001f600" * 63)  # as long as a name can be
    run.done("versions", path, "--get", "2", "-o", elsewhere)
    assert elsewhere.read_bytes() == SECOND
    run.done("versions", path, "--get", "1", "-o", path)
    assert path.read_bytes() == FIRST
    mounted.sync()
    assert mounted.zone.read("notes.txt") == FIRST
    assert [each["version"] for each in versions(mounted, path)] == ["3", "2", "1"]
    assert "notes.txt" in mounted.zone.listing()
    assert len(mounted.zone.listing()) == 4


def test_a_version_replaces_no_content_that_only_this_machine_has(mounted: Mounted) -> None:
    """A change that is not uploaded stays, as does a file that a program has open for writing."""
    run, path = mounted.machine, mounted.root / "notes.txt"
    run.done("pause")
    with path.open("ab") as file:
        ended = run.run("versions", path, "--get", "1", "-o", path)
        assert ended.stderr == (
            f"zonedrive: {path} is open for writing in a program; close it there, and try again\n"
        )
        file.write(SECOND)
    ended = run.run("versions", path, "--get", "1", "-o", path)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"zonedrive: {path} has content that is only on this computer and would be lost;"
        " see 'zonedrive status', or write to another file\n"
    )
    (run.folder / "link").symlink_to(mounted.root / "docs")
    by_link = f"{run.folder}/link/../{path.name}"
    ended = run.run("versions", path, "--get", "1", "-o", by_link)
    assert f"{by_link} has content that is only on this computer" in ended.stderr
    assert path.read_bytes() == FIRST + SECOND
    run.done("resume")
    mounted.sync()
    run.done("versions", path, "--get", "1", "-o", path)
    assert path.read_bytes() == FIRST
    mounted.sync()
    assert [each["version"] for each in versions(mounted, path)] == ["3", "2", "1"]


def test_a_version_that_standard_output_does_not_take(mounted: Mounted) -> None:
    """The message is about the output, not about a disk; a closed pipe is no error."""
    command = [str(COMMAND), "versions", str(mounted.root / "big.bin"), "--get", "1"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command, env=mounted.machine.environment, stdout=full,
            stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "zonedrive: the output cannot be written (No space left on device)\n"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            command, env=mounted.machine.environment, stdout=writing,
            stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_trash_of_a_zone_that_cannot_be_used(mounted: Mounted) -> None:
    """A zone that `zones` lists, but that the API does not open, is reported as such."""
    run = mounted.machine
    zones = {each["name"]: each for each in json.loads(run.done("zones", "--json"))}
    assert not zones["Closed"]["accessible"]
    words = (["trash"], ["trash", "--purge", "x", "--yes"], ["restore", "x"])
    for is_mounted in (True, False):
        if not is_mounted:
            mounted.unmount()
        for zone in ("Closed", zones["Closed"]["id"]):
            for command in words:
                ended = run.run(*command, "--zone", zone)
                assert ended.returncode == 1
                assert ended.stderr == (
                    f"zonedrive: the zone {zone!r} is not accessible through the API; use the web"
                    " application of the service\n"
                )
        missing = run.run("trash", "--zone", "Nowhere")
        assert missing.stderr == "zonedrive: there is no zone 'Nowhere'; run 'zonedrive zones'\n"


def test_a_missing_version_leaves_no_file(mounted: Mounted) -> None:
    """One line names the existing versions; FILE is unchanged, also if the service fails."""
    path, target = mounted.root / "notes.txt", mounted.machine.folder / "kept.txt"
    target.write_bytes(b"kept")
    ended = mounted.machine.run("versions", path, "--get", "7", "-o", target)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "zonedrive: the file has no version '7'; there is: 1\n"
    with mounted.deployment.faulty(status=403, error="NOT_ALLOWED", path="/content$"):
        ended = mounted.machine.run("versions", path, "--get", "1", "-o", target)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert target.read_bytes() == b"kept"
    there = {each.name for each in mounted.machine.folder.iterdir() if each.is_file()}
    assert "kept.txt" in there
    assert not [name for name in there if name.startswith(".zonedrive-")]
    assert mounted.machine.run("versions", path, "-o", target).returncode == 2


def test_an_error_names_the_file_as_it_was_given(mounted: Mounted) -> None:
    """One line names the path as the user gave it, never that of an internal file."""
    path, folder = mounted.root / "notes.txt", mounted.machine.folder
    for output, said in (
        (f"{folder}/none/x", "No such file or directory; give a file in an existing folder"),
        (f"{mounted.path}/x", "you may write in"),
        (f"{folder}/{'n' * 300}", "File name too long"),
        (str(folder), "is a folder; give a file in it"),
        ("/dev/full", "No space left on device"),
    ):
        ended = mounted.machine.run("versions", path, "--get", "1", "-o", output)
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert ended.stderr.startswith(f"zonedrive: {output} ")
        assert said in ended.stderr
        assert ".zonedrive-" not in ended.stderr


def test_the_trash_without_a_mount(mounted: Mounted) -> None:
    """Entries are listed, restored and purged without a mount."""
    zone, run = mounted.root.name, mounted.machine
    for name in ("notes.txt", "empty", "docs"):
        mounted.zone.delete(name)
    mounted.unmount()
    found = json.loads(run.done("trash", "--zone", zone, "--json"))
    assert {(each["name"], each["folder"]) for each in found} == {
        ("notes.txt", False), ("empty", False), ("docs", True),
    }  # fmt: skip
    assert run.done("restore", "docs", "empty", "--zone", zone) == (
        f"restored {zone}/docs\nrestored {zone}/empty\n"
    )
    assert {"docs", "empty"} <= set(mounted.zone.listing())
    refused = run.run("trash", "--zone", zone, "--purge", "notes.txt")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--yes" in refused.stderr
    assert "notes.txt" in run.done("trash", "--zone", zone)
    assert run.done("trash", "--zone", zone, "--purge", "notes.txt", "--yes") == (
        f"removed {zone}/notes.txt\n"
    )
    assert run.done("trash", "--zone", zone) == "the trash is empty\n"
    gone = run.run("restore", "notes.txt", "--zone", zone)
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)


def test_the_latest_deletion_is_listed_first(mounted: Mounted) -> None:
    """The latest deletion is listed first, whenever the entry was changed."""
    zone = mounted.root.name
    for name in ("notes.txt", "empty", "big.bin"):
        mounted.zone.delete(name)
    found = json.loads(mounted.machine.done("trash", "--zone", zone, "--json"))
    times = [one["deleted"] for one in found]
    assert None not in times and times == sorted(times, reverse=True)
    assert {one["name"] for one in found} == {"notes.txt", "empty", "big.bin"}
    shown = mounted.machine.done("trash", "--zone", zone)
    places = [shown.index(name) for name in ("deleted", "big.bin", "empty", "notes.txt")]
    assert places == sorted(places)


def test_a_zone_with_a_hidden_trash_is_named(shell: Machine, proxy: FaultProxy) -> None:
    """Other zones are listed; a failure of the service is reported for its zone."""
    every = json.loads(shell.done("zones", "--json"))
    zones = {zone["name"]: zone["id"] for zone in every if zone["accessible"]}
    hidden = min(zones)
    status = [403]

    def alter(answer: Answer) -> None:
        answer.status = status[0]
        answer.say({"error": "FAILED", "message": "m"})

    proxy.about = lambda asked: f"/{zones[hidden]}/deleted" in asked.path
    proxy.alter = alter
    shell.log_on(proxy, profile="sandbox")
    for status[0] in (403, 404):
        listed = shell.run("trash", "--json")
        assert (listed.returncode, listed.stderr.count("\n")) == (0, 1)
        assert hidden in listed.stderr and isinstance(json.loads(listed.stdout), list)
        missing = shell.run("restore", "no such thing")
        assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
        assert hidden in missing.stderr
    status[0] = 413
    for refused in (shell.run("trash"), shell.run("restore", "no such thing")):
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert hidden in refused.stderr


def test_entries_restored_before_a_failure_are_named(mounted: Mounted) -> None:
    """The second name is taken: one line reports it, and that the first entry is restored."""
    mounted.zone.delete("empty")
    mounted.zone.delete("notes.txt")
    mounted.zone.write("notes.txt", b"somebody else's")
    zone = mounted.root.name
    assert (mounted.root / "docs").is_dir()
    ended = mounted.machine.run("restore", "empty", "notes.txt", "--zone", zone)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "the name is taken" in ended.stderr
    assert "rename the 'notes.txt' that is there now" in ended.stderr
    assert f"restored: {zone}/empty" in ended.stderr
    assert (mounted.root / "empty").exists()


def test_one_entry_of_several_is_purged_in_the_mount(mounted: Mounted) -> None:
    """The mount stays usable; an ambiguous name purges nothing."""
    zone = mounted.root.name
    for _ in range(2):
        (mounted.root / "twice.txt").write_bytes(b"x")
        mounted.sync()
        (mounted.root / "twice.txt").unlink()
        mounted.sync()
    run = mounted.machine
    unclear = run.run("trash", "--zone", zone, "--purge", "twice.txt", "--yes")
    assert unclear.returncode == 1
    assert "2 entries called 'twice.txt' were deleted; give an id: " in unclear.stderr
    assert unclear.stderr.count(f"(in {zone}, 20") == 2 == unclear.stderr.count(", 1 byte)")
    ids = [each["id"] for each in json.loads(run.done("trash", "--zone", zone, "--json"))]
    assert len(ids) == 2
    run.done("trash", "--zone", zone, "--purge", ids[0], "--yes")
    assert [each["id"] for each in json.loads(run.done("trash", "--zone", zone, "--json"))] == ids[
        1:
    ]
    run.done("restore", "twice.txt", "--zone", zone)
    assert (mounted.root / "twice.txt").read_bytes() == b"x"


def test_a_folder_is_restored_before_its_content(mounted: Mounted) -> None:
    """The order of the arguments does not matter; without the folder, the error recommends it."""
    folder, zone, run = mounted.root / "docs/2026", mounted.root.name, mounted.machine
    shutil.rmtree(folder)
    mounted.sync()
    told = json.loads(run.done("trash", "--zone", zone, "--json"))
    ids = {each["name"]: each["id"] for each in told}
    assert set(ids) == {"2026", "q1.csv"}
    alone = run.run("restore", "q1.csv", "--zone", zone)
    assert (alone.returncode, alone.stderr.count("\n")) == (1, 1)
    assert f"restore {ids['2026']} first" in alone.stderr
    restored = run.done("restore", "q1.csv", "2026", "--zone", zone).splitlines()
    assert [Path(line).name.removeprefix("restored ") for line in restored] == ["2026", "q1.csv"]
    assert (folder / "q1.csv").read_bytes() == world.SEED["docs/2026/q1.csv"]


def test_restoring_a_folder_that_was_removed_entry_by_entry(
    mounted: Mounted,
) -> None:
    """`rm -r` deletes entries one by one, so each is listed with its folder."""
    zone, run = mounted.root.name, mounted.machine
    shutil.rmtree(mounted.root / "docs")
    listed = json.loads(run.done("trash", "--zone", zone, "--json"))  # at once: it is sent first
    (inner,) = [one for one in listed if one["name"] == "q1.csv"]
    assert {one["name"]: one["parent"] for one in listed}["docs"] == ""
    assert inner["parent"] == "docs/2026"
    assert "docs/2026" in run.done("trash", "--zone", zone)
    back = run.run("restore", "docs", "--zone", zone)
    assert (back.returncode, back.stdout) == (0, f"restored {zone}/docs\n")
    left = f"{len(listed) - 1} deleted entries in it are still in the trash"
    assert left in back.stderr
    mounted.unmount()
    names = sorted(one["name"] for one in listed if one["name"] not in ("docs", "q1.csv"))
    whole = run.run("restore", "docs/2026/q1.csv", *names, "--zone", zone)
    assert f"restored {zone}/docs/2026/q1.csv\n" in whole.stdout
    assert (whole.returncode, whole.stderr) == (0, "")


@pytest.mark.mount("settle=600")
def test_a_restore_does_not_rename_a_pending_file(mounted: Mounted) -> None:
    """A new, pending file keeps its name: the restore is refused, as the service itself would."""
    path, zone = mounted.root / "notes.txt", mounted.root.name
    path.unlink()
    mounted.sync()
    path.write_bytes(b"mine\n")
    refused = mounted.machine.run("restore", "notes.txt", "--zone", zone)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "the name is taken; rename the 'notes.txt' that is there now" in refused.stderr
    assert path.read_bytes() == b"mine\n"
    assert sorted(os.listdir(mounted.root)) == ["big.bin", "docs", "empty", "notes.txt"]
    path.rename(mounted.root / "mine.txt")
    said = mounted.machine.done("restore", "notes.txt", "--zone", zone)
    assert said == f"restored {zone}/notes.txt\n"
    assert path.read_bytes() == FIRST.splitlines(keepends=True)[0] + b"second line\n"


def test_the_answer_no_purges_nothing(mounted: Mounted) -> None:
    """The answer no ends the command without the exit code of an interruption."""
    zone = mounted.root.name
    mounted.zone.delete("notes.txt")
    terminal = Terminal(mounted.machine, "trash", "--zone", zone, "--purge", "notes.txt")
    terminal.until("with all versions?")
    terminal.type("n")
    assert terminal.end() == 1
    assert "nothing was removed" in terminal.shown
    assert "notes.txt" in mounted.machine.done("trash", "--zone", zone)


def test_the_question_counts_what_a_folder_takes_along(mounted: Mounted) -> None:
    """The question and the report count the entries that were deleted inside the folder before."""
    zone = mounted.root.name
    for name in ("docs/report.md", "docs"):
        mounted.zone.delete(name)
    terminal = Terminal(mounted.machine, "trash", "--zone", zone, "--purge", "docs")
    terminal.until("1 entry, and up to 1 other deleted entry inside, with all versions?")
    terminal.type("y")
    assert terminal.end() == 0
    assert f"removed {zone}/docs" in terminal.shown
    assert "removed 1 other deleted entry inside" in terminal.shown
    assert mounted.machine.done("trash", "--zone", zone) == "the trash is empty\n"
