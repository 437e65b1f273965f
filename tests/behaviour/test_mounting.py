"""Mounting and unmounting: errors are one line, and a mount can always be ended."""

import errno
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.waiting import eventually


def refused(machine: Machine, *arguments: str | Path, code: int = 1) -> str:
    """Return the single stderr line of a failing command."""
    ended = machine.run(*arguments)
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_mount_point_must_be_an_empty_folder(mounted: Mounted) -> None:
    """A missing, a full and a used mount point are refused with the reason."""
    machine = mounted.machine
    mounted.unmount()
    assert "does not exist" in refused(machine, "mount", machine.folder / "nowhere")
    (machine.folder / "full").mkdir()
    (machine.folder / "full/file").touch()
    assert "not empty" in refused(machine, "mount", machine.folder / "full")
    assert "is not a folder" in refused(machine, "mount", machine.folder / "full/file")
    mounted.mount()
    assert "already a mount" in refused(machine, "mount", mounted.path)


def test_an_account_is_mounted_once(mounted: Mounted) -> None:
    """A second mount of the account is refused with the path of the first."""
    second = mounted.machine.folder / "second"
    second.mkdir()
    assert str(mounted.path) in refused(mounted.machine, "mount", second)
    assert (mounted.root / "notes.txt").exists()


@pytest.mark.parametrize("form", ["/{0}/Zones", "{0}/other/link/../Zones"])
def test_a_mount_is_found_by_any_form_of_its_path(mounted: Mounted, form: str) -> None:
    """The path may begin with two slashes, or have `..` after a link."""
    machine, path = mounted.machine, form.format(mounted.path.parent)
    (mounted.path.parent / "other").mkdir()
    (mounted.path.parent / "other/link").symlink_to(mounted.path.parent / "state")
    mounted.unmount()
    machine.done("mount", path)
    assert mounted.status()["mountpoint"] == str(mounted.path)
    assert "is on the service" in machine.done("status", path)
    machine.done("unmount", path)
    assert not mounted.is_mounted()


def test_mounting_needs_a_logon(machine: Machine) -> None:
    """Without a logon, exit code 3 and a remedy."""
    (machine.folder / "Zones").mkdir()
    assert "zonedrive logon" in refused(machine, "mount", machine.folder / "Zones", code=3)


def test_a_mount_may_have_many_open_files(mounted: Mounted) -> None:
    """The usual soft limit of descriptors, 1024, does not hold for the daemon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mounted.unmount()
    mounted.machine.starts_programs = True
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard - 1), hard))
    try:
        mounted.mount()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(mounted.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_findmnt_finds_it(mounted: Mounted) -> None:
    """The type is fuse.zonedrive and the source is the address of the service."""
    found = subprocess.check_output(
        ["findmnt", "-n", "-o", "SOURCE", "-t", "fuse.zonedrive", mounted.path], text=True
    )
    assert found.strip() == mounted.deployment.base_url.rstrip("/")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts(mounted: Mounted, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the daemon cleanly."""
    pid = mounted.pid
    os.kill(pid, number)
    eventually(lambda: has_ended(pid), what="the daemon has ended")
    assert not mounted.is_mounted()


def mount_by(mounted: Mounted, option: str) -> None:
    """Mount again as a child of env(1) with this option."""
    mounted.unmount()
    command: list[str | Path] = ["env", option, COMMAND, "mount", mounted.path]
    subprocess.run(command, env=mounted.machine.environment, check=True)


def test_a_signal_that_the_parent_blocks_unmounts(mounted: Mounted) -> None:
    """A blocked SIGTERM would wait for ever, and a shutdown would kill the daemon."""
    mount_by(mounted, "--block-signal=TERM")
    pid = mounted.pid
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: has_ended(pid), what="the daemon has ended")
    assert not mounted.is_mounted()


def test_a_mount_in_use_is_unmounted_if_the_parent_ignores_its_children(mounted: Mounted) -> None:
    """Some window managers pass on that SIGCHLD is ignored; `unmount` left a dead mount."""
    mount_by(mounted, "--ignore-signal=CHLD")
    with subprocess.Popen(["sleep", "60"], cwd=mounted.root) as inside:
        ended = mounted.machine.run("unmount", mounted.path, "--timeout", "1")
        inside.kill()
    assert (ended.returncode, f"sleep ({inside.pid})" in ended.stderr) == (0, True)
    assert not mounted.is_mounted()


def test_a_dead_mount_errs_and_is_replaced(mounted: Mounted) -> None:
    """After SIGKILL the path gives an error instead of an empty folder; the next mount works."""
    mounted.kill()
    with pytest.raises(OSError, match="connect") as refusal:
        os.listdir(mounted.path)
    assert refusal.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    mounted.mount()
    assert "notes.txt" in os.listdir(mounted.root)


def test_inode_numbers_stay(mounted: Mounted) -> None:
    """Inode numbers are the same after a remount, because backups and editors rely on them."""
    paths = [mounted.root, *sorted(mounted.root.rglob("*"))]
    before = {path: path.stat().st_ino for path in paths}
    assert len(set(before.values())) == len(paths)
    mounted.restart()
    assert {path: path.stat().st_ino for path in paths} == before


def test_unmounting_waits_for_uploads(mounted: Mounted) -> None:
    """After a successful unmount, everything is on the service."""
    (mounted.root / "last.txt").write_bytes(b"just in time")
    mounted.unmount()
    assert mounted.zone.read("last.txt") == b"just in time"


def test_pending_changes_wait_for_the_next_mount(mounted: Mounted) -> None:
    """Without the service, unmount reports the pending changes; the next mount sends them."""
    mounted.allow("offline", "reach", "upload")
    assert "notes.txt" in os.listdir(mounted.root)
    with mounted.deployment.faulty(down=True):
        (mounted.root / "later.txt").write_bytes(b"patience")
        ended = mounted.machine.run("unmount", mounted.path, "--timeout", "1")
        assert "1 file" in ended.stderr
        assert not mounted.is_mounted()
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("later.txt") == b"patience"


def test_a_service_that_is_down_refuses_a_logon(machine: Machine, deployment: Deployment) -> None:
    """A host that does not answer gives exit code 4."""
    line = refused(
        machine, "logon", "https://127.0.0.1:9", "--username", "alice@acme.example",
        "--password-stdin", code=4,
    )  # fmt: skip
    assert "127.0.0.1:9" in line


def test_a_wrong_password_is_refused_once(machine: Machine, deployment: Deployment) -> None:
    """A wrong password is exit code 3 after a single attempt."""
    before = logons(deployment)
    ended = machine.run(
        "logon", deployment.base_url, "--username", "alice@acme.example", "--password-stdin",
        "--ca-file", deployment.ca_file, text="wrong horse\n",
    )  # fmt: skip
    assert ended.returncode == 3
    assert "wrong horse" not in ended.stderr
    assert logons(deployment) == before + 1


def logons(deployment: Deployment) -> int:
    """Return the number of logon requests at the service."""
    text = deployment.stats()["requests"]
    return sum(count for route, count in text.items() if route.endswith("/api/access/logon"))


def test_another_authority_is_not_trusted(machine: Machine, deployment: Deployment) -> None:
    """A certificate of an unknown authority is rejected with a message."""
    line = refused(
        machine, "logon", deployment.base_url, "--username", "alice@acme.example",
        "--password-stdin", code=4,
    )  # fmt: skip
    assert "certificate" in line


def test_plain_http_is_refused(machine: Machine) -> None:
    """Only HTTPS addresses are accepted."""
    ended = machine.run("logon", "http://127.0.0.1:9", "--username", "a", "--password-stdin")
    assert ended.returncode in (1, 2)
    assert "https" in ended.stderr
