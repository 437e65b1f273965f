"""A failing background task does not end the mount."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.planting import ALWAYS, ONCE, Plant, planted_in
from tests.harness.waiting import eventually
from zonedrive.supervisor import Task

KEPT = [*Task][: [*Task].index(Task.DOWNLOAD_QUEUE)]
"""Tasks that run from the start."""

SMALL_STEPS = """
def first():
    from zonedrive.content import cache
    from zonedrive.sync import directory_cache, listing_batches
    listing_batches.ROWS = 1
    cache._BIG = -1
    directory_cache.LARGE = 1
"""


def test_tasks_that_fail_are_named_and_come_back(mounted: Mounted) -> None:
    """Failing tasks are named by status and doctor, and restart by themselves.

    Files can be read and written in the meantime.
    """
    mounted.allow("planted in", "could not be")
    mounted.unmount()
    plant = Plant(mounted.machine)
    failing = [task for task in KEPT if task is not Task.CONTROL_SOCKET]
    plant.put(ALWAYS, failing)
    mounted.mount()
    pid = mounted.pid

    def named() -> bool:
        found = mounted.status()
        names = {each["task"] for each in found.get("failing", [])}
        assert names == set(failing)
        assert all("Planted: planted in" in each["error"] for each in found["failing"])
        return bool(found["pid"] == pid)

    eventually(named, what="status names them")
    said = mounted.machine.done("status")
    assert "failing, and retried automatically: notifications" in said.replace("\n", " ")
    ended = mounted.machine.run("doctor", "--json")
    (check,) = [
        each for each in json.loads(ended.stdout)["checks"] if each["name"] == "background tasks"
    ]
    assert not check["ok"]
    assert all(f"{task} (Planted)" in check["detail"] for task in failing)
    assert "planted in" not in check["detail"]
    (mounted.root / "new.txt").write_bytes(b"kept meanwhile\n")
    assert (mounted.root / "new.txt").read_bytes() == b"kept meanwhile\n"
    assert (mounted.root / "notes.txt").read_bytes() == mounted.zone.read("notes.txt")
    plant.lift()
    eventually(lambda: "failing" not in mounted.status(), what="all of them work again")
    assert "failing" not in mounted.machine.done("status")
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"kept meanwhile\n"
    assert mounted.status()["pid"] == pid


def tried(work: Callable[[], object]) -> bool:
    """Return True if the operation succeeds; the program whose request met the fault gets an
    error."""
    try:
        work()
    except OSError:
        return False
    return True


@pytest.mark.mount("connections=6", "cache_size=40000000")
def test_any_task_may_fail_at_any_time(mounted: Mounted) -> None:
    """Each task fails once while the mount is used, and no data are lost.

    Only the program that made the request may see an error.
    """
    mounted.allow("planted in", "ended without", "cached", "cannot be", "refused")
    zone, root = mounted.zone, mounted.root
    for folder in ("small", "large"):
        zone.make_folder(folder)
    for number in range(30):
        zone.write(f"small/{number:02}.txt", b"%d" % number * 50)
    for number in range(8):
        zone.write(f"large/{number}.bin", os.urandom(300_000))
    mounted.unmount()
    plant = Plant(mounted.machine, SMALL_STEPS)
    plant.put(ONCE, Task)
    mounted.mount()
    pid = mounted.pid

    def missing() -> set[str]:
        log = mounted.log()
        return {str(task) for task in Task if not planted_in(log, task)}

    def read(path: Path) -> bool:
        return tried(path.read_bytes)

    eventually(lambda: tried(lambda: os.listdir(root)))
    mounted.machine.run("status")
    for name in ("first.txt", "second.txt"):
        eventually(partial(tried, partial((root / name).write_bytes, b"mine\n")))
    for number in range(30):
        eventually(partial(read, root / f"small/{number:02}.txt"))
    eventually(lambda: read(root / "big.bin"))
    large = [root / f"large/{number}.bin" for number in range(8)]
    stalled = mounted.deployment.faulty(stall=3, method="GET", path="/content$")
    with stalled, ThreadPoolExecutor(8) as pool:
        list(pool.map(read, large))
    zone.write("big.bin", os.urandom(200_000))
    eventually(lambda: read(root / "big.bin") and (root / "big.bin").stat().st_size == 200_000)
    eventually(lambda: tried(lambda: os.listdir(mounted.path)))
    eventually(lambda: not missing(), what="each has failed")
    eventually(lambda: "failing" not in mounted.status(), what="all work again")
    mounted.sync()
    for name in ("first.txt", "second.txt"):
        assert zone.read(name) == b"mine\n"
        assert len(zone.versions(name)) == 1
    for number in range(30):
        assert (root / f"small/{number:02}.txt").read_bytes() == b"%d" % number * 50
    assert mounted.status()["pid"] == pid
    assert (root / "big.bin").read_bytes() == zone.read("big.bin")
