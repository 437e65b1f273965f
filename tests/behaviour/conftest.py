"""Fixtures of some of these tests: a service that is not as it should be, and a mount of it."""

from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.meddler import Meddler


@pytest.fixture
def meddler(deployment: Deployment) -> Iterator[Meddler]:
    """What stands between a client and the service."""
    between = Meddler(deployment)
    yield between
    between.close()


@pytest.fixture
def meddled(
    meddler: Meddler, machine: Machine, deployment: Deployment, zone: str
) -> Iterator[Mounted]:
    """Alice's zones, by way of the meddler, who is honest again in the end; what the daemon
    complains of fails the test."""
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
