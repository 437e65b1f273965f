"""Lost data key, as in an emptied keyring: every command reports it, and no data get worse."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.waiting import eventually

GONE = "the account's data key is missing"


def secrets(machine: Machine) -> Path:
    """Return the file with token and key, because no keyring is in use."""
    return machine.state / "secrets.json"


def take_key(machine: Machine) -> str:
    """Remove the key from the secrets; return the former secrets."""
    before = secrets(machine).read_text()
    kept = json.loads(before)
    del kept["key"]
    secrets(machine).write_text(json.dumps(kept))
    return before


def doctor(machine: Machine) -> tuple[int, str]:
    """Return the exit code and the failed checks."""
    ended = machine.run("doctor")
    lines = ended.stdout.splitlines()
    return ended.returncode, "\n".join(line for line in lines if line.startswith(("BAD", "     ")))


def log_on(machine: Machine, mounted: Mounted) -> tuple[int, str]:
    """Log on as Alice again."""
    ended = machine.run(
        "logon", mounted.deployment.base_url, "--username", f"alice@{world.DOMAIN}",
        "--password-stdin", text=f"{world.PASSWORDS['alice']}\n",
    )  # fmt: skip
    return ended.returncode, ended.stderr


@pytest.fixture
def waiting(mounted: Mounted) -> Iterator[Mounted]:
    """Yield an unmounted account with a pending file."""
    mounted.allow("offline", "reach")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / "precious.txt").write_bytes(b"12345")
        mounted.unmount("--timeout", "0")
    yield mounted
    mounted.deployment.forget_people()


def test_pending_files_without_their_key(waiting: Mounted) -> None:
    """Doctor reports the lost key and a logon fails; with the key restored, all files are
    uploaded."""
    machine = waiting.machine
    before = take_key(machine)
    assert GONE in machine.run("mount", waiting.path).stderr
    assert f"1 file (5 bytes) not on the service yet: {GONE}" in machine.run("status").stderr
    code, bad = doctor(machine)
    assert code == 1
    assert "BAD  key: it is missing, and the local data cannot be read without it" in bad
    assert "BAD  outbox: 1 file (5 bytes) wait, and cannot be sent without the data key" in bad
    assert "zonedrive mount" not in bad and "zonedrive logoff --discard" in bad
    code, said = log_on(machine, waiting)
    assert code == 1
    assert said.startswith(f"zonedrive: {GONE}") and said.count("\n") == 1
    assert "key" not in json.loads(secrets(machine).read_text())
    said = machine.run("logoff").stderr
    assert f"1 file (5 bytes) not on the service yet: {GONE}" in said and "mount" not in said
    secrets(machine).write_text(before)
    assert log_on(machine, waiting)[0] == 0
    waiting.mount()
    waiting.sync()
    assert waiting.zone.read("precious.txt") == b"12345"


@pytest.mark.parametrize("broken", ["tree.db", "nothing"])
def test_no_new_key_is_created_for_existing_files(waiting: Mounted, broken: str) -> None:
    """No key is created even for a damaged or missing database, because its files need the old
    key."""
    machine = waiting.machine
    before = take_key(machine)
    for each in machine.state.glob("tree.db*"):
        each.unlink()
    if broken == "tree.db":
        (machine.state / "tree.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    for command in (("mount", waiting.path), ("status",)):
        assert GONE in machine.run(*command).stderr
    assert "key" not in json.loads(secrets(machine).read_text())
    waiting.allow("damaged", "missing", "lost")
    secrets(machine).write_text(before)
    waiting.mount()
    found = [path.read_bytes() for path in (waiting.path / "lost+found").iterdir()]
    assert b"12345" in found


def test_a_new_start_without_key_and_database(waiting: Mounted) -> None:
    """If both are lost, the given remedy works."""
    machine = waiting.machine
    take_key(machine)
    (machine.state / "tree.db").write_bytes(b"no database" * 500)
    assert machine.run("logoff").returncode == 1
    machine.done("logoff", "--discard")
    assert not machine.state.exists()


def test_another_key(waiting: Mounted) -> None:
    """Doctor reports a wrong key, as from another keyring."""
    machine = waiting.machine
    before = secrets(machine).read_text()
    kept = json.loads(before)
    key = kept["key"]
    secrets(machine).write_text(json.dumps(kept | {"key": key[-2::-1] + key[-1]}))
    assert "cannot be read with the key" in machine.run("mount", waiting.path).stderr
    assert "BAD  key: it does not fit the local data" in doctor(machine)[1]
    secrets(machine).write_text(before)


def test_a_logon_while_the_mount_has_the_key(mounted: Mounted) -> None:
    """The mount stores its key again at the next logon, so doctor finds no fault."""
    machine = mounted.machine
    list(mounted.root.iterdir())
    key = json.loads(take_key(machine))["key"]
    mounted.allow("missing")
    assert doctor(machine)[0] == 1
    code, said = log_on(machine, mounted)
    assert code == 0 and GONE not in said
    assert json.loads(secrets(machine).read_text())["key"] == key
    assert doctor(machine) == (0, "")
    (mounted.root / "late.txt").write_bytes(b"late")
    machine.done("logoff")
    assert mounted.zone.read("late.txt") == b"late"


@pytest.mark.parametrize("how", ["unmount", "signal"])
def test_secrets_that_were_removed_during_a_mount(mounted: Mounted, how: str) -> None:
    """The daemon stores its key again before it ends, so that the next mount uploads the rest."""
    machine = mounted.machine
    mounted.allow("offline", "reach", "missing")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / "precious.txt").write_bytes(b"12345")
        secrets(machine).unlink()
        if how == "unmount":
            mounted.unmount("--timeout", "0")
        else:
            pid = mounted.pid
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: has_ended(pid), what="the daemon has ended")
    assert log_on(machine, mounted)[0] == 0
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("precious.txt") == b"12345"
    mounted.deployment.forget_people()


def test_a_key_that_cannot_be_stored_during_a_mount(mounted: Mounted) -> None:
    """Another key is not replaced; an unmount does not make the waiting file unreadable."""
    machine = mounted.machine
    mounted.allow("offline", "reach", "not stored")
    list(mounted.root.iterdir())
    before = secrets(machine).read_text()
    kept = json.loads(before)
    other = json.dumps(kept | {"key": kept["key"][-2::-1] + kept["key"][-1]})
    with mounted.deployment.faulty(down=True):
        (mounted.root / "precious.txt").write_bytes(b"12345")
        secrets(machine).write_text(other)
        refused = machine.run("unmount", "--timeout", "0", mounted.path)
        assert refused.returncode == 1
        assert "only this machine has 1 file (5 bytes)" in refused.stderr
        assert (mounted.root / "precious.txt").read_bytes() == b"12345"
        assert "the account's data key is not stored" in machine.run("status").stdout
        assert secrets(machine).read_text() == other
        forced = machine.run("unmount", "--now", mounted.path)
        assert forced.returncode == 0 and "no later mount can read this" in forced.stderr
    secrets(machine).write_text(before)
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("precious.txt") == b"12345"
    mounted.deployment.forget_people()
