"""Every operation ends, whatever the service does: with cached data at once, otherwise in seconds.

Files that are saved meanwhile are uploaded when the service works again.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

FAULTS: dict[str, dict[str, object]] = {
    "stalls": {"stall": 300},
    "is down": {"down": True},
    "cuts every answer": {"cut_after": 0},
}
AWAY = {"ENETUNREACH", "ETIMEDOUT", "EREMOTEIO"}
LONGEST_SECONDS = 60.0
"""Longest duration: 15 seconds for a listing with retries, 10 seconds without a byte of content."""

Work = Callable[[], object]


def outcome(work: Work) -> tuple[str, float]:
    """Return `ok` or the name of the errno, and the duration."""
    begin = time.monotonic()
    try:
        work()
    except OSError as wrong:
        assert wrong.errno is not None
        return errno.errorcode[wrong.errno], time.monotonic() - begin
    return "ok", time.monotonic() - begin


def at_once(works: dict[str, Work]) -> dict[str, tuple[str, float]]:
    """Run operations at the same time; return their outcomes."""
    found: dict[str, tuple[str, float]] = {}

    def do(name: str, work: Work) -> None:
        found[name] = outcome(work)

    threads = [threading.Thread(target=do, args=each, daemon=True) for each in works.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def overwrite(path: Path) -> None:
    """Change the first bytes in place."""
    with path.open("r+b") as file:
        file.write(b"ZZ")


def saved(path: Path) -> None:
    """Write, fsync and close a file."""
    with path.open("wb") as file:
        file.write(b"saved\n")
        file.flush()
        os.fsync(file.fileno())


def known(mounted: Mounted) -> dict[str, Work]:
    """Return operations that need only local data."""
    here, run = mounted.root / "known", mounted.machine.run
    return {
        "stat": (mounted.root / "notes.txt").stat,
        "list": lambda: os.listdir(here),
        "look for what is not there": lambda: (here / "nothing").exists(),
        "read": (here / "read").read_bytes,
        "create": lambda: (here / "new").write_bytes(b"new\n"),
        "rewrite": lambda: (here / "rewritten").write_bytes(b"anew\n"),
        "change": lambda: overwrite(here / "read"),
        "save": lambda: saved(here / "saved"),
        "rename": lambda: (here / "a").rename(here / "b"),
        "unlink": (here / "gone").unlink,
        "mkdir": (mounted.root / "made").mkdir,
        "rmdir": (here / "void").rmdir,
        "getfattr": lambda: os.getxattr(here / "read", "user.zonedrive.state"),
        "statfs": lambda: os.statvfs(here),
        "status": lambda: run("status", "--json"),
        "sync": lambda: run("sync", "--timeout", "2"),
    }


def unknown(mounted: Mounted) -> dict[str, Work]:
    """Return operations that need the service."""
    return {
        "list": lambda: os.listdir(mounted.root / "docs"),
        "stat": (mounted.root / "docs/report.md").stat,
        "read a big file": (mounted.root / "big.bin").read_bytes,
        "read": (mounted.root / "known/remote").read_bytes,
        "change": lambda: overwrite(mounted.root / "known/other"),
    }


@pytest.mark.mount("refresh=0.3")
@pytest.mark.parametrize("fault", FAULTS)
def test_every_operation_ends_and_nothing_is_lost(mounted: Mounted, fault: str) -> None:
    """If the service stalls, is down or disconnects, cached data work and the rest fails soon."""
    mounted.allow(r"WARNING (?![^\n]*\n.)")
    here = mounted.root / "known"
    mounted.zone.make_folder("known")
    mounted.zone.make_folder("known/void")
    for name in ("read", "rewritten", "a", "gone", "remote", "other"):
        mounted.zone.write(f"known/{name}", b"old content\n")
    eventually((here / "other").exists, what="all shows")
    assert os.listdir(here / "void") == []
    assert (here / "read").read_bytes() == b"old content\n"
    assert (mounted.root / "notes.txt").exists()
    with mounted.deployment.faulty(**FAULTS[fault]):
        results = at_once(
            {f"known: {name}": work for name, work in known(mounted).items()}
            | {f"unknown: {name}": work for name, work in unknown(mounted).items()}
        )
        wrong = {
            name: result
            for name, result in results.items()
            if result[1] > LONGEST_SECONDS
            or (result[0] not in AWAY if name.startswith("unknown") else result[0] != "ok")
        }
        assert not wrong
        assert len(results) == 21
        begin = time.monotonic()
        assert mounted.machine.run("unmount", mounted.path, "--timeout", "1").returncode == 0
        assert time.monotonic() - begin < LONGEST_SECONDS
    mounted.mount()
    mounted.sync()
    assert mounted.zone.tree("known") == {
        "known/b": b"old content\n",
        "known/new": b"new\n",
        "known/other": b"old content\n",
        "known/read": b"ZZd content\n",
        "known/remote": b"old content\n",
        "known/rewritten": b"anew\n",
        "known/saved": b"saved\n",
    }
    assert mounted.zone.tree("made") == {}


WAITING: list[tuple[dict[str, object], set[str]]] = [
    ({"latency_ms": 1}, {"ok"}),
    ({"status": 403, "method": "POST", "path": "^/api/zones/"}, {"EACCES"}),
    ({"status": 500, "method": "POST", "path": "^/api/zones/"}, {"EREMOTEIO"}),
    ({"cut_after": 1, "method": "POST", "path": "^/api/zones/"}, {"ENETUNREACH", "EIO"}),
    ({"stall": 300}, AWAY),
    ({"down": True}, {"ENETUNREACH"}),
]


@pytest.mark.mount("close=wait", "fsync=service", "refresh=60")
def test_a_close_that_waits_reports_the_result(mounted: Mounted) -> None:
    """close=wait and fsync=service succeed or give an errno in each state, and never wait
    without an end."""
    mounted.allow(r"WARNING (?![^\n]*\n.)")
    assert os.listdir(mounted.root)
    for number, (fault, expected) in enumerate(WAITING):
        closed, synced = mounted.root / f"{number}.closed", mounted.root / f"{number}.synced"
        with mounted.deployment.faulty(**fault):
            results = at_once(
                {"close": lambda: closed.write_bytes(b"mine\n"), "fsync": lambda: saved(synced)}  # noqa: B023
            )
            for how, (result, seconds) in results.items():
                assert result in expected, (fault, how, result)
                assert seconds < LONGEST_SECONDS, (fault, how)
            assert len(results) == 2
            if expected == {"ok"}:
                assert mounted.zone.read(closed.name) == b"mine\n"
            assert closed.read_bytes() == b"mine\n"
        eventually(lambda: mounted.status()["state"] == "online", what="it is back")
    mounted.sync()
    for number in range(len(WAITING)):
        assert mounted.zone.read(f"{number}.closed") == b"mine\n"
        assert mounted.zone.read(f"{number}.synced") == b"saved\n"
