"""Some seeds run on the sandbox's application, through the product's HTTP client."""

import pytest

from tests.model.claims import head
from tests.simulation.run import run
from tests.simulation.sandbox_world import SandboxWorld
from tests.simulation.scenario import draw, on_sandbox, parse

LOST = """
seed 4
profile sandbox
users alice
options settle=0.5 refresh=10 upload_limit=1000000
planted one.txt
service sandbox
A 1 save one.txt left/one.txt 6
A 20 save left/one.txt one.txt 6
A 40 save one.txt left/one.txt 6
A~ 0.5 losing-replies
A~ 60 calm
"""


@pytest.mark.parametrize("seed", [4, 17])
def test_a_seed_gives_the_same_trace_again(seed: int) -> None:
    """The application adds nothing random, such as its identifiers and times."""
    scenario = on_sandbox(draw(seed))
    first, second = run(scenario), run(scenario)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert not first.findings


def test_the_upload_of_a_lost_reply_is_in_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application stored it once, though the client did not get the answer."""
    unanswered = set[str]()
    stored: list[str | None] = []
    close = SandboxWorld.close

    def look(world: SandboxWorld) -> None:
        unanswered.update(world.unanswered)
        for row in world.deployment.database.all("SELECT id FROM versions"):
            stored.append(head(world.deployment.entries.blobs.path(row["id"]).read_bytes()))
        close(world)

    monkeypatch.setattr(SandboxWorld, "close", look)
    result = run(parse(LOST))
    assert not result.findings
    assert unanswered
    assert all(stored.count(token) == 1 for token in unanswered)


def test_a_few_seeds_run_on_the_sandbox() -> None:
    """The share is small, because such a run takes longer."""
    services = [draw(seed).service for seed in range(400)]
    assert 4 < services.count("sandbox") + services.count("paged") < 20
