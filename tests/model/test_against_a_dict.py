"""Any sequence of operations: the mount and the service end up as a dict does."""

import pytest

from tests.harness.machine import Mounted
from tests.model.steps import Steps, run
from tests.model.trouble import ALLOWED, TroubledSteps


@pytest.mark.timeout(900)
def test_any_sequence_of_operations_ends_as_it_should(mounted: Mounted) -> None:
    """Whatever programs do, in whatever order: the mount shows it, and the service gets it."""
    run(Steps, mounted, examples=6, steps=30)


@pytest.mark.timeout(900)
@pytest.mark.mount("refresh=1")
def test_any_sequence_with_any_trouble_ends_as_it_should(mounted: Mounted) -> None:
    """Lost replies, a service that goes away, kills, a coworker: still both end up the same.

    Nothing waits in the end, no bytes are left, and there is nothing beside what should be there
    but the copies of real conflicts.
    """
    mounted.allow(*ALLOWED)
    run(TroubledSteps, mounted, examples=4, steps=20)
