"""Refusals of the service as errnos: protection, and levels in a zone."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from tests.conftest import short_folder
from tests.harness import intruder, world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.ordinary import OrdinaryMachine, Worker, working
from tests.harness.waiting import eventually
from tests.posix.adding import add, change_what_is_there, may, mode, modes
from tests.posix.calls import opens, refusal, wrong

NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def protect(mounted: Mounted, path: str, **what: bool) -> None:
    """Set attributes on the service."""
    mounted.deployment.tell({"protect": {"zone": mounted.root.name, "path": path, **what}})


def test_protection_on_the_service_is_permission_here(either: Mounted) -> None:
    """Protected entries refuse with EACCES at once, even for root, before any data are lost."""
    root = either.root
    protect(either, "notes.txt", writeProtected=True)
    protect(either, "empty", executable=True, hidden=True)
    protect(either, "big.bin", readProtected=True)
    protect(either, "docs/2026", writeProtected=True)
    notes, closed, folder = root / "notes.txt", root / "big.bin", root / "docs" / "2026"
    new = root / "new.txt"
    new.write_bytes(b"new")
    assert [mode(each) for each in (notes, root / "empty", closed, folder)] == [
        0o400,
        0o600,
        0o200,
        0o500,
    ]
    found = {
        "write": (opens(notes, os.O_WRONLY), "EACCES"),
        "append": (opens(notes, os.O_WRONLY | os.O_APPEND), "EACCES"),
        "cut at open": (opens(notes, os.O_WRONLY | os.O_TRUNC), "EACCES"),
        "truncate": (refusal(os.truncate, notes, 0), "EACCES"),
        "remove": (refusal(os.unlink, notes), "EACCES"),
        "rename": (refusal(os.rename, notes, root / "renamed"), "EACCES"),
        "rename over it": (refusal(os.rename, new, notes), "EACCES"),
        "make it writable": (refusal(os.chmod, notes, 0o600), "EPERM"),
        "make it executable": (refusal(os.chmod, notes, 0o500), ""),
        "read what is protected": (opens(closed, os.O_RDONLY), "EACCES"),
        "make in the folder": (opens(folder / "a", NEW), "EACCES"),
        "make a folder in it": (refusal(os.mkdir, folder / "a"), "EACCES"),
        "remove from the folder": (refusal(os.unlink, folder / "q1.csv"), "EACCES"),
        "move into the folder": (refusal(os.rename, new, folder / "a"), "EACCES"),
        "remove the folder": (refusal(os.rmdir, folder), "EACCES"),
        "write below it": (opens(folder / "q1.csv", os.O_WRONLY), ""),
        "list it": (refusal(os.listdir, folder), ""),
        "read": (opens(notes, os.O_RDONLY), ""),
    }
    assert wrong(found) == {}
    assert notes.read_bytes() == b"first line\nsecond line\n"
    assert new.read_bytes() == b"new"
    either.sync()
    assert either.zone.read("new.txt") == b"new"


def test_a_coworkers_attribute_makes_nothing_runnable(mounted: Mounted) -> None:
    """A program that a coworker marked as executable is not executable here by default.

    A mode that the local user sets stays; with the setting, the service's attribute counts.
    """
    program = mounted.root / "program"
    mounted.zone.write("program", b"#!/bin/sh\necho ran\n")
    protect(mounted, "program", executable=True)
    mounted.restart()
    assert mode(program) == 0o600
    with pytest.raises(PermissionError):
        subprocess.run([program], check=True)
    assert not os.access(program, os.X_OK)
    program.chmod(0o700)
    mounted.restart()
    assert subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout == b"ran\n"
    program.chmod(0o600)
    assert not os.access(program, os.X_OK)
    mounted.zone.write("other", b"#!/bin/sh\necho too\n")
    protect(mounted, "other", executable=True)
    mounted.restart("executable=keep")
    assert subprocess.run([mounted.root / "other"], stdout=subprocess.PIPE, check=True).stdout == (
        b"too\n"
    )


@contextmanager
def carols_mount(
    machine: Machine, deployment: Deployment, zone: str, *, settle: float = 0.2
) -> Iterator[Mounted]:
    """Yield a mount of a user who may only add to the zone."""
    options = [f"settle={settle}", "refresh=0.3"]
    with Mounted(machine, deployment, zone, options).mounting() as mount:
        yield mount


def test_a_refused_change_without_a_known_level_is_kept(
    machine: Machine, deployment: Deployment, zone: str
) -> None:
    """With a profile that does not report the level, a forbidden change is kept locally as failed.

    It never changes the service.
    """
    machine.log_on(deployment, name="carol", profile="published")
    with carols_mount(machine, deployment, zone) as carols:
        path = carols.root / "notes.txt"
        assert mode(path) == 0o600
        (carols.root / "mine.txt").write_bytes(b"from carol\n")
        carols.sync()
        path.write_bytes(b"changed by carol\n")
        eventually(
            lambda: os.getxattr(path, "user.zonedrive.state") == b"failed", what="the refusal shows"
        )
        assert path.read_bytes() == b"changed by carol\n"
        assert carols.zone.read("notes.txt") == b"first line\nsecond line\n"
        assert carols.zone.read("mine.txt") == b"from carol\n"
        assert carols.status()["outbox"]["failed"] == 1
        refused = carols.machine.run("sync", "--timeout", "20")
        assert refused.returncode == 1
        assert "notes.txt" in refused.stderr


@pytest.mark.parametrize("root", [True, False], ids=["root", "ordinary"])
def test_files_of_an_add_only_zone_are_read_only(
    deployment: Deployment, zone: str, root: bool
) -> None:
    """With the level Add new files and folders are uploaded, and existing ones are read-only.

    Modes and access(2) show that, and every change is refused at once, even for root.
    """
    with (
        short_folder() as folder,
        nullcontext(Worker(None)) if root else working("tests.posix.adding") as worker,
    ):
        machine = Machine(folder) if root else OrdinaryMachine(folder)
        machine.log_on(deployment, name="carol", profile="sandbox")
        with carols_mount(machine, deployment, zone, settle=600) as mount:
            here = mount.root
            assert worker.do(modes, here) == [0o400, 0o700, 0o700]
            said = worker.do(change_what_is_there, here)
            assert {name for name, number in said.items() if not number} == {
                "read",
                "set the times",
            }
            assert said.pop("make it writable") == "EPERM"
            assert {number for number in said.values() if number} == {"EACCES"}
            if not root:
                assert not worker.do(may, here / "notes.txt", os.W_OK)
            assert worker.do(may, here / "docs", os.W_OK)
            worker.do(add, here)
            mount.sync()
            assert mount.zone.read("folder/inside.txt") == b"too\n"
            assert mount.zone.read("mine.txt") == b"from carol\nand more\n"
            assert mount.zone.read("notes.txt") == b"first line\nsecond line\n"
            assert mount.status()["outbox"]["failed"] == 0
            eventually(
                lambda: not worker.do(mode, here / "mine.txt") & 0o222,
                what="the file that was sent is read-only like the others",
            )
            level(mount, "Modify")
            eventually(
                lambda: worker.do(modes, here)[0] == 0o600, what="with a higher level it is not"
            )
            assert worker.do(opens, here / "notes.txt", os.O_WRONLY) == ""


def level(mount: Mounted, level: str) -> None:
    """Change Carol's level as the zone's manager."""
    alice = mount.deployment.person("alice")
    where = f"/api/sandbox/zones/{mount.zone.id}/members/carol@{world.DOMAIN}"
    assert alice.http.put(where, params={"accesslevel": level}).status_code == 204


@pytest.mark.mount("allow_other")
def test_other_users_of_the_machine(mounted: Mounted) -> None:
    """With `allow_other` they can list the zones, and use what `chmod` opens to them."""

    def entered(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=mounted.path, user=intruder.UID, group=intruder.UID, extra_groups=[],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    zone, notes = mounted.root.name, mounted.root / "notes.txt"
    assert zone in entered("ls").stdout.splitlines()
    assert "Permission denied" in entered("ls", zone).stderr
    mounted.root.chmod(0o755)
    assert "notes.txt" in entered("ls", zone).stdout.splitlines()
    assert "Permission denied" in entered("cat", f"{zone}/notes.txt").stderr
    notes.chmod(0o644)
    assert entered("cat", f"{zone}/notes.txt").stdout == notes.read_text()
