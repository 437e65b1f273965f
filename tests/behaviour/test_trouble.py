"""Short, lasting and stalling faults: programs wait no longer than necessary, no data are lost."""

import errno
import os
import time
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

NEW = b"written in a bad hour\n" * 1000

# The stall deadline is 10 seconds, and the kernel asks a second time for a page that failed.
PATIENCE_SECONDS = 60.0


def trouble(mounted: Mounted) -> None:
    """Allow every kind of warning; a traceback still fails the test."""
    mounted.allow(r"WARNING (?![^\n]*\n.)")


def errno_of_reading(path: Path) -> int:
    """Return the errno of reading a file, which must end in time."""
    begin = time.monotonic()
    with pytest.raises(OSError, match=r".") as refusal:
        path.read_bytes()
    assert time.monotonic() - begin < PATIENCE_SECONDS
    assert refusal.value.errno is not None
    return refusal.value.errno


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_passing_fault_is_not_noticed_in_reading(mounted: Mounted, status: int) -> None:
    """Two consecutive failed answers are repeated without an error."""
    trouble(mounted)
    mounted.deployment.fault(status=status, method="GET", path="/content$", times=2)
    mounted.deployment.fault(status=status, method="GET", path="/folder/", times=2)
    assert (mounted.root / "docs/report.md").read_bytes() == world.SEED["docs/report.md"]


def readable(path: Path) -> bytes:
    """Return the content, or None while it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_stalled_download_ends_in_time(mounted: Mounted) -> None:
    """If the service stops sending, the program gets an error after a while, and does not hang."""
    trouble(mounted)
    with mounted.deployment.faulty(stall=300, method="GET", path="/content$"):
        assert errno_of_reading(mounted.root / "big.bin") in {
            errno.ETIMEDOUT, errno.EIO, errno.ENETUNREACH, errno.EREMOTEIO,
        }  # fmt: skip
    assert eventually(lambda: readable(mounted.root / "big.bin")) == world.SEED["big.bin"]


@pytest.mark.mount("refresh=60")
def test_a_prefetched_zone_is_listed_again(mounted: Mounted) -> None:
    """The first visitor of a prefetched zone sees a coworker's saves, whatever `refresh` says."""
    assert mounted.root in mounted.path.iterdir()
    eventually(
        lambda: os.getxattr(mounted.root, "user.zonedrive.state") == b"cached",
        what="the zone has been listed",
    )
    mounted.zone.write("new.txt", NEW)
    assert (mounted.root / "new.txt").read_bytes() == NEW


@pytest.mark.mount("connections=1")
def test_the_tops_of_zones_are_listed_also_over_a_single_connection(mounted: Mounted) -> None:
    """Zones are listed ahead over a single connection while no other request needs it."""
    zones = [each for each in mounted.path.iterdir() if each != mounted.root]
    eventually(
        lambda: {os.getxattr(each, "user.zonedrive.state") for each in zones} == {b"cached"},
        what="every zone has been listed",
    )


def test_a_prefetched_zone_can_be_written_offline(mounted: Mounted) -> None:
    """Listing the zones soon lists their top folders, so that saving works offline, too."""
    trouble(mounted)
    zones = [each for each in mounted.path.iterdir() if each != mounted.root]
    eventually(
        lambda: {os.getxattr(each, "user.zonedrive.state") for each in zones} == {b"cached"},
        what="every zone has been listed",
    )
    path = zones[0] / "not looked at before.txt"
    with mounted.deployment.faulty(down=True):
        path.write_bytes(NEW)
        assert path.read_bytes() == NEW
    mounted.sync()
    path.unlink()
    mounted.sync()
    # A later test may have that zone for its own.
    mounted.machine.done("trash", "--zone", zones[0].name, "--purge", path.name, "--yes")


def test_a_refused_upload_is_kept_and_reported(mounted: Mounted) -> None:
    """`sync` and `status` report the refusal; the bytes stay readable, also after a restart."""
    trouble(mounted)
    with mounted.deployment.faulty(status=403, method="POST", path="/files/"):
        (mounted.root / "notes.txt").write_bytes(NEW)
        ended = mounted.machine.run("sync", "--timeout", "20")
        assert ended.returncode == 1
        assert "notes.txt" in ended.stderr

        def told() -> bool:
            """Return True between two attempts."""
            [upload] = mounted.status()["uploads"]
            shown = os.getxattr(mounted.root / "notes.txt", "user.zonedrive.state")
            return bool(upload["error"] and upload["state"] == "failed" and shown == b"failed")

        eventually(told)
        mounted.kill()
        mounted.mount()
        assert (mounted.root / "notes.txt").read_bytes() == NEW
    mounted.sync()
    assert mounted.zone.read("notes.txt") == NEW


def test_a_refused_folder_does_not_block_other_files(mounted: Mounted) -> None:
    """`sync` ends and names the refused folder, instead of waiting for its files."""
    trouble(mounted)
    mounted.deployment.fault(status=403, method="POST", path="/folders$")
    (mounted.root / "plans").mkdir()
    (mounted.root / "plans/a.txt").write_bytes(NEW)
    (mounted.root / "other.txt").write_bytes(NEW)
    begin = time.monotonic()
    ended = mounted.machine.run("sync", "--timeout", "40")
    assert time.monotonic() - begin < 35
    assert ended.returncode == 1
    assert "plans" in ended.stderr
    assert mounted.zone.read("other.txt") == NEW
    mounted.deployment.heal()
    mounted.sync()
    assert mounted.zone.read("plans/a.txt") == NEW


def test_an_upload_that_breaks_off_makes_one_version(mounted: Mounted) -> None:
    """A connection reset in the middle of an upload leaves no incomplete version."""
    trouble(mounted)
    data = os.urandom(5_000_000)
    mounted.deployment.fault(cut_after=1_000_000, method="POST", path="/files/", times=1)
    (mounted.root / "big.bin").write_bytes(data)
    mounted.sync()
    assert mounted.zone.read("big.bin") == data
    assert len(mounted.zone.versions("big.bin")) == 2


def test_work_continues_without_a_logon(mounted: Mounted, machine: Machine) -> None:
    """After the session ended, cached files are readable, and written files wait for a logon."""
    trouble(mounted)
    mounted.unmount()
    machine.done("logoff")
    machine.done(
        "logon", mounted.deployment.base_url, "--username", f"alice@{world.DOMAIN}",
        "--password-stdin", "--ca-file", mounted.deployment.ca_file, "--profile", "sandbox",
        "--session-only", text=f"{world.PASSWORDS['alice']}\n",
    )  # fmt: skip
    mounted.mount()
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    mounted.deployment.tell({"expire_sessions": True})
    mounted.zone = mounted.deployment.fresh_person("bob").zone(mounted.root.name)
    (mounted.root / "notes.txt").write_bytes(NEW)
    eventually(lambda: mounted.status()["state"] == "logon-required")
    command = f"run: zonedrive logon {mounted.deployment.base_url} --username alice"
    assert command in machine.done("status")
    assert (mounted.root / "notes.txt").read_bytes() == NEW
    assert mounted.machine.run("sync", "--timeout", "1").returncode in (3, 4)
    machine.log_on(mounted.deployment, profile="sandbox")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == NEW
    assert mounted.status()["state"] == "online"
