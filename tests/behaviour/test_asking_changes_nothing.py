"""Read-only commands without a daemon change no file of the account.

The states are those that a daemon, a disk or an earlier version leaves: a full outbox of a killed
daemon, the same with almost unreadable data, and the state after an orderly end.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_full_disk import Filler, small_disk
from tests.crash import damage, former
from tests.harness.machine import Mounted, has_ended
from tests.harness.waiting import eventually

ASKED = (
    ("status",),
    ("status", "--json"),
    ("status", "--metrics"),
    ("doctor",),
    ("doctor", "--json"),
    ("zones",),
    ("conflicts",),
    ("pin",),
    ("versions", "Zones/notes.txt"),
    ("sync", "--timeout", "0"),
    ("logoff", "--timeout", "0"),
)
BRIEFLY = (("status",), ("status", "--json"), ("doctor", "--json"), ("logoff", "--timeout", "0"))
"""Those of the commands that read the database."""

EDITED = b"Alice's version\n"


def snapshot(folders: list[Path]) -> dict[str, tuple[object, ...]]:
    """Return all files and folders below `folder`, with all attributes that a change would
    affect."""
    found: dict[str, tuple[object, ...]] = {}
    for folder in folders:
        for parent, _, names in os.walk(folder):
            found[parent] = (Path(parent).stat().st_ino,)
            for path in (Path(parent, name) for name in names):
                known = path.stat()
                data = sha256(path.read_bytes()).hexdigest()
                found[str(path)] = (known.st_ino, known.st_mode, known.st_mtime_ns, data)
    return found


@contextmanager
def unchanged(mounted: Mounted) -> Iterator[None]:
    """Compare the folders of the account before and after the block."""
    folders = [mounted.machine.folders[f"{each}_HOME"] for each in ("STATE", "CACHE", "CONFIG")]
    before = snapshot(folders)
    yield
    after = snapshot(folders)
    assert after.keys() == before.keys()
    assert {path for path, known in after.items() if known != before[path]} == set()


def ask_all(mounted: Mounted, commands: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Run the commands; return the object of `status --json` if it was printed."""
    found: dict[str, Any] = {}
    for command in commands:
        with unchanged(mounted):
            ended = mounted.machine.run(*command)
        assert "Traceback" not in ended.stderr, command
        assert "internal error" not in ended.stderr, command
        if command[0] in ("logoff", "sync"):
            assert ended.returncode == 1, (command, ended)
            assert ended.stderr.count("\n") == 1, ended
        if command == ("status", "--json") and ended.returncode == 0:
            found = json.loads(ended.stdout)
    return found


def kill(mounted: Mounted) -> None:
    """Kill the daemon and detach its mount."""
    mounted.kill()
    subprocess.run(["fusermount3", "-uz", mounted.path], check=True)
    assert has_ended(mounted.pid)


def fill(mounted: Mounted) -> None:
    """Create a conflict, a pin, and a pending change of each kind."""
    root, deployment = mounted.root, mounted.deployment
    mounted.allow("a conflict copy", "offline", "reach", "reply", "answer", "upload", "stays on")
    mounted.machine.done("pin", root / "docs")
    with (root / "notes.txt").open("wb", buffering=0) as file:
        mounted.zone.write("notes.txt", b"Bob's version\n")
        file.write(EDITED)
    mounted.sync()
    assert len(json.loads(mounted.machine.done("conflicts", "--json"))) == 1
    (root / "big.bin").read_bytes()
    deployment.fault(drop_reply=True, times=1, method="POST", path="^/api/zones/")
    (root / "in doubt.txt").write_bytes(b"sent, and no answer came")
    eventually(lambda: mounted.zone.find("in doubt.txt") is not None, what="it arrived")
    deployment.fault(down=True)
    (root / "notes.txt").write_bytes(b"edited again\n")
    (root / "new").mkdir()
    (root / "new/a.txt").write_bytes(b"a\n")
    (root / "big.bin").rename(root / "new/large.bin")
    (root / "empty").rmdir() if (root / "empty").is_dir() else (root / "empty").unlink()
    (root / "kept.txt~").write_bytes(b"never leaves this machine\n")


@contextmanager
def another_state(mounted: Mounted) -> Iterator[Path]:
    """Yield the state folder for changes, and restore it afterwards."""
    state = mounted.machine.state
    kept = state.with_name("kept")
    subprocess.run(["cp", "-a", state, kept], check=True)
    try:
        yield state
    finally:
        shutil.rmtree(state)
        kept.rename(state)


@pytest.mark.mount("settle=0.1")
def test_asking_changes_no_file(mounted: Mounted) -> None:
    """In any state, the commands write, remove, rename and touch no file."""
    fill(mounted)
    seen = mounted.status()
    with (mounted.root / "open.txt").open("wb", buffering=0) as file:
        file.write(b"written and not closed")
        kill(mounted)
        with suppress(OSError):
            file.close()
    state = mounted.machine.state
    assert (state / "tree.db-wal").stat().st_size > 0
    found = ask_all(mounted, ASKED)
    assert found["mountpoint"] is None and found["died"]["mountpoint"] == str(mounted.path)
    assert found["outbox"]["pending"] >= seen["outbox"]["pending"] + seen["outbox"]["uploading"]
    assert found["outbox"]["conflicts"] == 1
    assert {one["path"] for one in seen["uploads"]} <= {one["path"] for one in found["uploads"]}
    with another_state(mounted):
        former.make_fourth(state)
        again = ask_all(mounted, BRIEFLY)
        assert (again["outbox"], again["tree"]) == (found["outbox"], found["tree"])
    with another_state(mounted):
        damage.flatten(state / "tree.db")
        damage.overwrite(state / "tree.db", 4096, 3 * 4096)
        ask_all(mounted, BRIEFLY)
        (state / "tree.db").unlink()
        ask_all(mounted, BRIEFLY)
    with small_disk(mounted.machine.folders["STATE_HOME"], 8 << 20) as disk:
        Filler(disk).leave(0)
        assert ask_all(mounted, BRIEFLY)["outbox"] == found["outbox"]
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert ask_all(mounted, BRIEFLY)["outbox"] == found["outbox"]
    disk.rmdir()
    disk.with_name(f"{disk.name}-kept").rename(disk)  # what is on no small disk is as it was
    mounted.mount()
    mounted.unmount("--timeout", "0")
    assert not (state / "tree.db-wal").exists()
    assert ask_all(mounted, ASKED)["outbox"]["pending"] >= seen["outbox"]["pending"]
    mounted.deployment.heal()
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"edited again\n"


def test_status_is_the_same_with_and_without_a_daemon(mounted: Mounted) -> None:
    """After an orderly end, `status` reports the same facts as the daemon did."""
    (mounted.root / "docs/report.md").read_bytes()
    (mounted.root / "big.bin").read_bytes()
    mounted.allow("offline", "reach")
    mounted.deployment.fault(down=True)
    (mounted.root / "new").mkdir()
    (mounted.root / "new/a.txt").write_bytes(b"a\n")
    (mounted.root / "notes.txt").rename(mounted.root / "new/renamed.txt")
    eventually(lambda: mounted.status()["state"] == "offline", what="it notices")
    eventually(lambda: mounted.status()["outbox"]["uploading"] == 0, what="nothing is under way")
    with_daemon = mounted.status()
    mounted.unmount("--timeout", "0")
    without = mounted.status()
    for name in ("account", "base_url", "state", "outbox", "cache", "tree"):
        assert with_daemon[name] == without[name], name
    for one in with_daemon["uploads"]:
        one["error"] = None
    assert {str(one | {"error": None}) for one in without["uploads"]} == {
        str(one) for one in with_daemon["uploads"]
    }
