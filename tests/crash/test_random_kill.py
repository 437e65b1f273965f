"""Kills of the daemon at random moments while a program works: see `soak` for the long run."""

import pytest

from tests.crash import soak
from tests.crash.mounts import Mortal


@pytest.mark.parametrize("seed", [20261121, 7])
def test_kills_at_random_moments_lose_nothing(dying: Mortal, seed: int) -> None:
    """Everything that close, rename and unlink confirmed is kept, and is sent once."""
    print(f"seed {seed}")
    done = soak.play(dying, f"random {seed}", seed, rounds=4)
    assert done.total() > 0
