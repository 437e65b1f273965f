"""Mounting and unmounting: errors are one line, and a mount can always be ended."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.waiting import eventually


def refused(machine: Machine, *arguments: str | Path, code: int = 1) -> str:
    """Return the single stderr line of a failing command."""
    ended = machine.run(*arguments)
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


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
