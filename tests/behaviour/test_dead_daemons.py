"""After a daemon died, commands report the time and reason until the next mount or unmount."""

import errno
import json
import os
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness.machine import Mounted, has_ended
from tests.harness.planting import Plant
from tests.harness.waiting import eventually

BREAKING = """
def first():
    from zonedrive.fuse.mount import Session
    answer = Session._answer

    async def break_when_told():
        while not FILE.with_name("break").exists():
            await trio.sleep(0.02)
        raise ValueError("the loop\\nbroke")

    async def breaking(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_when_told)
            await answer(self)
            nursery.cancel_scope.cancel()

    Session._answer = breaking
"""

DYING = """
def first():
    import signal
    from zonedrive.daemon.daemonize import Pipe
    ok = Pipe.ok

    def last_words(self):
        ok(self)
        os.kill(os.getpid(), signal.SIGKILL)

    Pipe.ok = last_words
"""


def check(mounted: Mounted, name: str) -> dict[str, Any]:
    """Return doctor's finding about the daemon."""
    ended = mounted.machine.run("doctor", "--json")
    found = [each for each in json.loads(ended.stdout)["checks"] if each["name"] == name]
    return dict(found[0]) if found else {}


def top(mounted: Mounted) -> str:
    """Return the first lines of `status`."""
    return "\n".join(mounted.machine.done("status").splitlines()[:4])


def forgotten(mounted: Mounted) -> bool:
    """Return True if no command mentions the death any more."""
    return "died" not in top(mounted) and "died" not in mounted.status()


def test_a_killed_daemon_is_reported(mounted: Mounted) -> None:
    """Status, doctor and the next daemon's log report the kill with its time, until the next
    mount."""
    (mounted.root / "new.txt").write_bytes(b"x")
    mounted.sync()
    assert forgotten(mounted)
    pid = mounted.pid
    mounted.kill()
    said = top(mounted)
    assert f"the daemon of {mounted.path} died after 2" in said
    assert "it was killed (SIGKILL)" in said
    assert f"run: zonedrive mount {mounted.path}" in said
    first = mounted.status()
    assert (first["died"]["pid"], first["died"]["mountpoint"]) == (pid, str(mounted.path))
    assert (first["mountpoint"], first["pid"], first["state"]) == (None, None, "offline")
    age = datetime.now(UTC) - datetime.fromisoformat(first["died"]["at"])
    assert 0 <= age.total_seconds() < 300
    assert mounted.status()["died"] == first["died"], "to ask changes nothing about the time"
    found = check(mounted, "last daemon")
    assert not found["ok"]
    assert "SIGKILL" in found["detail"]
    assert str(mounted.path) not in found["detail"] + found["remedy"]
    assert str(mounted.path) in mounted.machine.run("doctor").stdout
    mounted.mount()
    assert forgotten(mounted)
    assert f"the daemon of {mounted.path} died after" in mounted.log()
    mounted.kill()
    ended = mounted.machine.run("unmount", mounted.path)
    assert ended.returncode == 0
    assert f"the daemon of {mounted.path} died after" in ended.stderr
    assert ended.stderr.strip() in mounted.log()
    assert forgotten(mounted)
    assert check(mounted, "last daemon") == {}


def test_a_crash_is_not_reported_as_a_kill(mounted: Mounted) -> None:
    """The log contains the stack trace, and `status` refers to the log."""
    mounted.allow("Fatal Python error")
    pid = mounted.pid
    os.kill(pid, signal.SIGSEGV)
    eventually(lambda: has_ended(pid), what="the daemon is dead")
    assert "it crashed (Segmentation fault); the log has the stack" in top(mounted)
    assert "most recent call first" in mounted.log()
    mounted.mount()
    mounted.kill()
    assert "it was killed (SIGKILL)" in top(mounted), "the crash was of the daemon before"
    mounted.unmount()


def test_a_failed_daemon_reports_the_reason(mounted: Mounted) -> None:
    """The path gives the same errno as after a kill; status, doctor and the log report the
    reason."""
    mounted.allow("the loop", "the daemon failed")
    mounted.unmount()
    Plant(mounted.machine, BREAKING)
    mounted.mount()
    assert (mounted.root / "notes.txt").read_bytes()
    pid = mounted.pid
    (mounted.machine.folder / "site" / "break").touch()
    eventually(lambda: has_ended(pid), what="the daemon is dead")
    with pytest.raises(OSError, match=r".") as dead:
        os.listdir(mounted.root)
    assert dead.value.errno == errno.ENOTCONN
    assert "died at 2" in top(mounted)
    assert "ValueError: the loop broke" in top(mounted)
    assert mounted.status()["died"]["why"] == "ValueError: the loop broke"
    found = check(mounted, "last daemon")
    assert "an unexpected ValueError" in found["detail"]
    assert "broke" not in found["detail"]
    assert "Traceback" in mounted.log()
    (mounted.machine.folder / "site" / "break").unlink()
    mounted.mount()
    assert (mounted.root / "notes.txt").read_bytes()
    assert forgotten(mounted)


def test_a_power_cut_is_reported_as_such(mounted: Mounted) -> None:
    """After a power cut, the restart of the machine is reported, not a kill."""
    mounted.kill()
    record = mounted.machine.state / "daemon.run"
    said = json.loads(record.read_bytes())
    record.write_text(json.dumps({**said, "boot": "that of before"}))
    assert "the machine stopped without unmounting it" in top(mounted)
    mounted.mount()
    assert forgotten(mounted)


def test_an_orderly_end_is_no_death(mounted: Mounted) -> None:
    """After SIGTERM, no command reports a death."""
    pid = mounted.pid
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: has_ended(pid), what="the daemon has ended")
    assert not mounted.is_mounted()
    assert forgotten(mounted)
    assert not (mounted.machine.state / "daemon.run").exists()


def test_mount_fails_with_a_daemon_that_dies_at_once(mounted: Mounted) -> None:
    """The daemon was ready before it died: `mount` prints one line and exits with status 1."""
    mounted.unmount()
    Plant(mounted.machine, DYING)
    ended = mounted.machine.run("mount", mounted.path)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "the daemon ended right after it had mounted" in ended.stderr
    assert "SIGKILL" in ended.stderr
    assert "died after" in top(mounted)
    mounted.unmount()
    assert forgotten(mounted)
