"""However real programs save, the service sees one new version of the same file and no more.

The recordings in tests/traces/data are done again call by call: on a plain folder, which says
what names and bytes there must be in the end, and on a mount with the profile they were recorded
with, since programs go other ways where a rename or a removal is refused.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment
from tests.harness.workplace import Tree, Workplace, content, service, workplace
from tests.traces import player
from tests.traces.trace import DATA, Trace, expand, load

TRACES = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """A service for this module."""
    with service() as running:
        yield running


def filled(profile: str) -> Tree:
    """A folder for each trace of the profile, as it was when the program began."""
    found: Tree = {}
    for name, trace in TRACES.items():
        if trace.profile == profile:
            found[name] = None
            for path, kept in trace.before.items():
                found[f"{name}/{path}"] = None if kept is None else expand(kept)
    return found


@pytest.fixture(scope="module")
def sandbox(deployment: Deployment) -> Iterator[Workplace]:
    """Where the deployment can do everything."""
    with workplace(deployment, "sandbox", filled("sandbox"), "settle=30") as place:
        yield place


@pytest.fixture(scope="module")
def published(deployment: Deployment) -> Iterator[Workplace]:
    """Where names on the service cannot be changed."""
    with workplace(deployment, "published", filled("published"), "settle=30") as place:
        yield place


def play(trace: Trace, folder: Path, *, refuses: bool) -> None:
    """All of it."""
    for _ in player.Player(folder, refuses=refuses).play(trace):
        pass


@pytest.mark.parametrize("name", TRACES)
def test_a_program_saves(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """What the program leaves here is what it leaves on a local disk, and one version there."""
    trace = TRACES[name]
    place: Workplace = request.getfixturevalue(trace.profile)
    folder = place.root / name
    player.prepare(tmp_path, trace)
    before = content(tmp_path)
    play(trace, tmp_path, refuses=False)
    assert content(folder) == before
    known = place.known(name)
    play(trace, folder, refuses=True)
    assert content(folder) == content(tmp_path)
    place.check(name, before, known)
    assert content(folder) == content(tmp_path)
