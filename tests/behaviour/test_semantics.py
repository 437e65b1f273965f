"""SEMANTICS.md describes the real behaviour."""

import os
import time
from pathlib import Path

import pytest

from tests.behaviour.semantics import (
    AWAY,
    OPERATIONS,
    WAITING,
    difference,
    expected,
    let_go,
    outcome,
    perform,
    rows,
    seen_here,
    seen_there,
    table,
)
from tests.conftest import short_folder
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.ordinary import OrdinaryMachine, Worker, working
from tests.harness.waiting import eventually
from zonedrive.config import LOCAL_ONLY


def test_every_row_is_executed() -> None:
    """Every row of the page has a test, and every test has a row."""
    assert [row.operation for row in rows()] == list(OPERATIONS)


@pytest.mark.mount("settle=60")
def test_operations(mounted: Mounted) -> None:
    """Each operation ends as its row says, survives a kill, and the service gets exactly that
    change."""
    require_the_page(mounted, "sandbox", Worker(None))


@pytest.mark.parametrize("profile", ["published", "sandbox"])
def test_operations_of_an_ordinary_user(deployment: Deployment, zone: str, profile: str) -> None:
    """The rows are also true for ordinary users, whom the kernel refuses what the mode bits
    forbid, and with each profile."""
    with short_folder() as folder, working("tests.behaviour.semantics") as worker:
        machine = OrdinaryMachine(folder)
        machine.log_on(deployment, profile=profile)
        with Mounted(machine, deployment, zone, ["settle=60"]).mounting() as mounted:
            require_the_page(mounted, profile, worker)
        assert not mounted.complaints()


def require_the_page(mounted: Mounted, profile: str, worker: Worker) -> None:
    """Perform the operation of every row, and compare it with the page."""
    every = {f"row {number}": row for number, row in enumerate(rows())}
    for name in every:
        mounted.zone.make_folder(name)
        mounted.zone.write(f"{name}/a.txt", b"former content\n")
        mounted.zone.write(f"{name}/b.txt", b"another\n")
        mounted.zone.make_folder(f"{name}/sub")
    mounted.restart()

    def seen() -> dict[str, dict[str, object]]:
        return {name: worker.do(seen_here, mounted.root / name) for name in every}

    first = seen()
    ids = {name: entry["id"] for name, entry in mounted.zone.listing().items()}
    remote = {name: seen_there(mounted.zone, name, ids[name]) for name in every}
    ended = {
        name: worker.do(perform, row.operation, mounted.root / name) for name, row in every.items()
    }
    second = seen()
    mounted.kill()
    worker.do(let_go)
    mounted.mount()
    third = seen()
    mounted.sync()
    wrong = []
    for name, row in every.items():
        cell = row.published if profile == "published" else row.full
        wanted = expected(cell, root=worker.is_root)
        refused = wanted != "ok"
        survives = "-" if second[name] == first[name] else "no"
        if survives == "no" and third[name] == second[name]:
            survives = "yes"
        told = difference(remote[name], seen_there(mounted.zone, name, ids[name]))
        found = (ended[name], survives, told)
        if found != (wanted, "-" if refused else row.survives, "-" if refused else row.service):
            wrong.append(f"{row.operation}: {found}, the page says {row}")
    assert not wrong, "\n".join(wrong)


def test_the_local_names_are_those_of_the_program() -> None:
    """The page lists exactly the default local-only names."""
    cells = (row[0] for row in table("Names of this machine only"))
    assert sorted(" ".join(cells).replace("`", "").split()) == sorted(LOCAL_ONLY)


def test_every_row_without_the_service_is_executed() -> None:
    """Every row about an unreachable service has a test, and every test has a row."""
    assert [cells[0] for cells in table("When the service is unreachable")] == list(AWAY)


@pytest.fixture(params=["offline", "logon-required"])
def away(request: pytest.FixtureRequest) -> str:
    """Return the state into which the service is brought."""
    return str(request.param)


@pytest.mark.parametrize("settings", [(), ("close=wait", "fsync=service")], ids=["usual", "wait"])
def test_without_the_service(
    machine: Machine, deployment: Deployment, zone: str, away: str, settings: tuple[str, ...]
) -> None:
    """Without the service, each operation ends within seconds as its row says, and is sent
    later."""
    chosen = {
        f"row {number}": cells
        for number, cells in enumerate(table("When the service is unreachable"))
        if (cells[0] in WAITING) == bool(settings)
    }
    machine.log_on(deployment, profile="sandbox", options=("--session-only",))
    mounted = Mounted(machine, deployment, zone, ["settle=0.1", "refresh=0.5", *settings])
    for name in chosen:
        mounted.zone.make_folder(name)
        mounted.zone.make_folder(f"{name}/seen")
        mounted.zone.make_folder(f"{name}/unseen")
        mounted.zone.write(f"{name}/seen/file.txt", b"former content\n")
        mounted.zone.write(f"{name}/unread.txt", b"never read\n")
    try:
        mounted.mount()
        for name in chosen:
            os.listdir(mounted.root / name)
            (mounted.root / name / "seen/file.txt").read_bytes()
        _bring(mounted, away)
        ended = {}
        for name, cells in chosen.items():
            begun = time.monotonic()
            ended[name] = outcome(AWAY[cells[0]], mounted.root / name)
            assert time.monotonic() - begun < 30, cells[0]
        assert ended == {
            name: cells[2 if away == "offline" else 3] for name, cells in chosen.items()
        }
        here = {name: seen_names(mounted.root / name) for name in chosen}
        deployment.heal()
        deployment.forget_people()
        if away == "logon-required":
            machine.log_on(deployment, profile="sandbox", options=("--session-only",))
        mounted.sync()
        bob = deployment.person("bob").zone(zone)
        assert {name: set(bob.tree(name)) for name in chosen} == here
    finally:
        deployment.heal()
        mounted.tear_down()
        deployment.forget_people()


def seen_names(folder: Path) -> set[str]:
    """Return the paths of a folder's entries that are known without the service, from the zone's
    root."""
    unseen = folder / "unseen"
    return {
        str(path.relative_to(folder.parent))
        for path in [*folder.glob("*"), *folder.glob("seen/*"), *folder.glob("made/*"), unseen]
    }


def _bring(mounted: Mounted, state: str) -> None:
    """Let the daemon notice that the service is unreachable."""
    if state == "offline":
        mounted.deployment.fault(down=True)
    else:
        mounted.deployment.tell({"expire_sessions": True})

    def noticed() -> bool:
        os.listdir(mounted.root)
        return str(mounted.status()["state"]) == state

    eventually(noticed, what=f"the state is {state}")
