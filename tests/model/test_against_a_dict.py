"""Random sequences of operations: mount and service end up like a dict."""

import pytest

from tests.harness.machine import Mounted
from tests.model.steps import Steps, run
from tests.model.trouble import ALLOWED, TroubledSteps


@pytest.mark.timeout(900)
def test_any_sequence_of_operations_ends_as_it_should(mounted: Mounted) -> None:
    """After any operations in any order, the mount and the service have the expected content."""
    run(Steps, mounted, examples=6, steps=30)


@pytest.mark.timeout(900)
@pytest.mark.mount("refresh=1")
def test_any_sequence_with_any_trouble_ends_as_it_should(mounted: Mounted) -> None:
    """With lost replies, an unreachable service, kills and a coworker, both still end up the same.

    In the end nothing is pending, no bytes are left over, and there are no unexpected entries
    except the copies of real conflicts.
    """
    mounted.allow(*ALLOWED)
    run(TroubledSteps, mounted, examples=4, steps=20)
