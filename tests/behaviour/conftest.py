"""Fixtures: a faulty proxy in front of the service, and a mount through it."""

from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.meddler import Meddler


@pytest.fixture
def meddler(deployment: Deployment) -> Iterator[Meddler]:
    """Yield a proxy between a client and the service."""
    between = Meddler(deployment)
    yield between
    between.close()


@pytest.fixture
def meddled(
    meddler: Meddler, machine: Machine, deployment: Deployment, zone: str
) -> Iterator[Mounted]:
    """Yield a mount of Alice's zones through the proxy, which is reset afterwards.

    Unexpected warnings in the daemon's log fail the test.
    """
    machine.log_on(meddler, profile="sandbox")
    mount = Mounted(machine, deployment, zone, ["settle=0.1", "refresh=0.2"])
    try:
        mount.mount()
        yield mount
    finally:
        meddler.mood = lambda answer: None
        meddler.over.set()
        mount.tear_down()
    complaints = mount.complaints()
    assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)
