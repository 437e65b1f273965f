"""However programs save, the service sees one new version of the same file and nothing beside it.

The recordings in tests/traces/data are done again call by call: on a plain folder, which says
what names and bytes there must be in the end, and on a mount with the profile they were recorded
with.  Then the ways to save are done by hand, with the service slow, away, and with a pause
between any two steps that is longer than it takes for a change to be sent.
"""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.traces import player
from tests.traces.trace import DATA, Trace, expand, load
from zonedrive.config import LOCAL_ONLY

PROFILES = ("sandbox", "published")
TRACES = sorted(path.stem for path in DATA.glob("*.json"))
OLD, NEW = b"first line\nsecond line\n", b"first line\nsecond line, mended\nthird line\n"

Tree = dict[str, bytes | None]


def flush(mounted: Mounted, seconds: float = 30) -> None:
    """As `zonedrive sync`, without a process of its own."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds + 10)
        connection.connect(
            os.fspath(mounted.machine.folders["RUNTIME_DIR"] / "zonedrive/default.sock")
        )
        connection.sendall(json.dumps({"command": "sync", "timeout": seconds}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            last = next(said for said in map(json.loads, lines) if said.get("done"))
    assert last["exit"] == 0, last


def stays_here(name: str) -> bool:
    """Whether the name, or a folder it is in, never leaves this machine."""
    return any(fnmatch(part, glob) for part in Path(name).parts for glob in LOCAL_ONLY)


class Workplace:
    """A mount on which each trace and each way to save has a folder of its own."""

    def __init__(self, mounted: Mounted, traces: dict[str, Trace]) -> None:
        self.mounted = mounted
        self.traces = traces

    def versions(self, folder: str) -> dict[str, tuple[str, int]]:
        """Id and number of versions of every file below a folder of the service."""
        zone, found = self.mounted.zone, {}
        for name, data in zone.tree(folder).items():
            if data is not None:
                found[name.removeprefix(f"{folder}/")] = (
                    zone.entry_id(name), len(zone.versions(name))
                )  # fmt: skip
        return found

    def check(self, folder: str, before: Tree, ids: dict[str, tuple[str, int]]) -> None:
        """The service has what is here, in one version more where that is new, and no more."""
        flush(self.mounted)
        here = player.content(self.mounted.root / folder)
        shared = {name: data for name, data in here.items() if not stays_here(name)}
        there = self.mounted.zone.tree(folder)
        assert {name.removeprefix(f"{folder}/"): data for name, data in there.items()} == shared
        now = self.versions(folder)
        for name, data in shared.items():
            if data is None:
                continue
            if name not in ids:
                assert now[name][1] == 1, f"{name} is new and has {now[name][1]} versions"
                continue
            entry_id, versions = ids[name]
            more = data != before[name]
            assert now[name][0] == entry_id, f"{name} is another file"
            assert now[name][1] == versions + more, f"{name} has {now[name][1]} versions"


@pytest.fixture(scope="module")
def _service() -> Iterator[Deployment]:
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, zones=2)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


def workplace(deployment: Deployment, profile: str) -> Iterator[Workplace]:
    """A mount with a folder for each trace of the profile, as it was when the program began."""
    folder = Path(tempfile.mkdtemp(prefix="zd"))
    machine = Machine(folder)
    machine.log_on(deployment, profile=profile)
    traces = {
        name.removesuffix(f".{profile}"): load(DATA / f"{name}.json")
        for name in TRACES
        if name.endswith(f".{profile}")
    }
    mounted = Mounted(machine, deployment, deployment.fresh_zone(), ["settle=0.2"])
    for name, trace in traces.items():
        mounted.zone.make_folder(name)
        for path, kept in sorted(trace.before.items()):
            if kept is None:
                mounted.zone.make_folder(f"{name}/{path}")
            else:
                mounted.zone.write(f"{name}/{path}", expand(kept))
    try:
        mounted.mount()
        yield Workplace(mounted, traces)
    finally:
        mounted.tear_down()
        shutil.rmtree(folder, ignore_errors=True)
    assert not mounted.complaints()


@pytest.fixture(scope="module")
def sandbox(_service: Deployment) -> Iterator[Workplace]:
    """Where the deployment can do everything."""
    yield from workplace(_service, "sandbox")


@pytest.fixture(scope="module")
def published(_service: Deployment) -> Iterator[Workplace]:
    """Where names on the service cannot be changed."""
    yield from workplace(_service, "published")


@pytest.mark.parametrize("name", TRACES)
def test_a_program_saves(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """What the program leaves here is what it leaves on a local disk, and one version there."""
    program, profile = name.rsplit(".", 1)
    place: Workplace = request.getfixturevalue(profile)
    trace = place.traces[program]
    player.prepare(tmp_path, trace)
    before = player.content(tmp_path)
    for _ in player.Player(tmp_path, refuses=False).play(trace):
        pass
    folder = place.mounted.root / program
    assert player.content(folder) == before
    ids = place.versions(program)
    for _ in player.Player(folder, refuses=True).play(trace):
        pass
    assert player.content(folder) == player.content(tmp_path)
    place.check(program, before, ids)
    assert player.content(folder) == player.content(tmp_path)
