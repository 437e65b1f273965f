"""`zonedrive log`: who did what, when, to a file, a folder and a zone."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted

ALICE, BOB = f"alice@{world.DOMAIN}", f"bob@{world.DOMAIN}"


def log(machine: Machine, *arguments: str | Path) -> list[dict[str, Any]]:
    """Return the messages, newest first."""
    found: list[dict[str, Any]] = json.loads(machine.done("log", *arguments, "--json"))
    return found


def events(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return kind and user of each message, oldest first."""
    return [(one["event"], one["user"].partition("@")[0]) for one in reversed(found)]


def test_the_log_of_a_file(mounted: Mounted) -> None:
    """A file's log has the changes under each of its names, by all users."""
    path, machine = mounted.root / "notes.txt", mounted.machine
    path.write_bytes(b"mine\n")
    mounted.sync()
    mounted.zone.write("notes.txt", b"theirs\n")
    path.rename(mounted.root / "docs" / "renamed.txt")
    mounted.sync()
    moved = mounted.root / "docs" / "renamed.txt"
    found = log(machine, moved)
    assert events(found)[-4:] == [
        ("FileModified", "alice"), ("FileModified", "bob"),
        ("Renamed", "alice"), ("Moved", "alice"),
    ]  # fmt: skip
    zone = mounted.root.name
    assert found[0].keys() == {"time", "user", "event", "path", "id", "message"}
    assert found[0]["path"] == f"{zone}/docs/renamed.txt"
    assert found[-1]["path"] == f"{zone}/notes.txt"
    assert {one["id"] for one in found} == {mounted.zone.entry_id("docs/renamed.txt")}
    former = next(iter((mounted.root / "docs/.versions/renamed.txt").iterdir()))
    assert log(machine, former) == found
    table = machine.done("log", moved, "--user", "bob")
    assert BOB in table and ALICE not in table and "has the version 3" in table
    assert log(machine, moved, "--user", BOB) == [found[2]]
    assert log(machine, moved, "--since", found[1]["time"]) == [
        one for one in found if one["time"] >= found[1]["time"]
    ]
    assert "there are no messages" in machine.done("log", moved, "--since", "9999-01-01")


def test_the_log_of_a_deleted_file(mounted: Mounted) -> None:
    """The log of a path that does not exist any more shows how the file was deleted."""
    machine = mounted.machine
    (mounted.root / "docs/report.md").rename(mounted.root / "docs/final.md")
    mounted.sync()
    mounted.zone.delete("docs/final.md")
    mounted.zone.delete("docs/2026")
    assert events(log(machine, mounted.root / "docs/final.md")) == [
        ("FileAdded", "alice"), ("Renamed", "alice"), ("Deleted", "bob"),
    ]  # fmt: skip
    assert events(log(machine, mounted.root / "docs/2026"))[-1] == ("Deleted", "bob")
    assert events(log(machine, mounted.root / "docs/2026/q1.csv")) == [("FileAdded", "alice")]
    never = machine.run("log", mounted.root / "docs/never.md")
    assert (never.returncode, never.stdout, never.stderr.count("\n")) == (1, "", 1)
    assert "does not exist, and its zone's log does not name it" in never.stderr
    assert machine.run("log", mounted.path / "No such zone" / "x").returncode == 1


def test_the_log_of_folders_and_zones(mounted: Mounted) -> None:
    """A folder's log covers its present and former content, a zone's log everything."""
    machine, root = mounted.machine, mounted.root
    mounted.zone.write("notes.txt", b"outside\n")
    mounted.zone.write("docs/report.md", b"inside\n")
    mounted.zone.delete("docs/report.md")
    (root / "big.bin").rename(root / "docs/big.bin")
    mounted.sync()
    folder, zone = log(machine, root / "docs"), log(machine, root)
    done = [("FileModified", "bob"), ("Deleted", "bob"), ("Moved", "alice")]
    assert events(folder)[-3:] == done
    assert f"{root.name}/big.bin" in {one["path"] for one in folder}  # from before its move
    assert f"{root.name}/notes.txt" not in {one["path"] for one in folder}
    assert events(zone)[-4:] == [("FileModified", "bob"), *done]
    assert zone[-1]["event"] == "ZoneCreated"
    mine = [one for one in log(machine) if one["path"].startswith(f"{root.name}/")]
    assert mine == [one for one in zone if one["path"]]
    assert log(machine, mounted.path) == log(machine)


def test_without_a_mount_and_with_a_closed_log(machine: Machine, deployment: Deployment) -> None:
    """All zones can be logged without a mount; a zone that hides its log is named, and the
    others are shown."""
    machine.log_on(deployment, profile="sandbox")
    every = log(machine)
    zones = {one["path"].partition("/")[0] for one in every if one["path"]}
    assert len(zones) >= world.ZONES - 1
    listed = json.loads(machine.done("zones", "--json"))
    closed = next(one for one in listed if one["path"] in zones)
    with deployment.faulty(status=403, error="NOT_ALLOWED", path=f"{closed['id']}/log"):
        part = machine.run("log", "--json")
    assert part.returncode == 0 and closed["path"] in part.stderr
    assert {one["path"].partition("/")[0] for one in json.loads(part.stdout) if one["path"]} == (
        zones - {closed["path"]}
    )
    with deployment.faulty(down=True):
        away = machine.run("log")
    assert (away.returncode, away.stdout, away.stderr.count("\n")) == (4, "", 1)


def test_a_log_is_followed(mounted: Mounted) -> None:
    """A new message comes as one line of JSON, while a reader waits."""
    process = subprocess.Popen(
        [COMMAND, "log", mounted.root, "--follow", "--json"],
        env=mounted.machine.environment, cwd=mounted.machine.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline()) for _ in range(6)]
        assert [one["time"] for one in first] == sorted(one["time"] for one in first)
        mounted.zone.write("notes.txt", b"theirs\n")
        while (one := json.loads(process.stdout.readline()))["event"] != "FileModified":
            assert one["user"] == ALICE
        assert (one["user"], one["path"]) == (BOB, f"{mounted.root.name}/notes.txt")
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.mount(profile="published")
def test_a_profile_without_a_log(mounted: Mounted) -> None:
    """One line says what is missing and what to do."""
    refused = mounted.machine.run("log", mounted.root / "notes.txt")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "has no endpoint for zone_log; log on with a --profile that has it" in refused.stderr
