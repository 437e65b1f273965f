"""Fixtures: a faulty proxy in front of the service, and a mount through it."""

from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.fault_proxy import FaultProxy
from tests.harness.machine import Machine, Mounted


@pytest.fixture
def proxy(deployment: Deployment) -> Iterator[FaultProxy]:
    """Yield a proxy between a client and the service."""
    between = FaultProxy(deployment)
    yield between
    between.close()


@pytest.fixture
def proxied(
    proxy: FaultProxy, machine: Machine, deployment: Deployment, zone: str
) -> Iterator[Mounted]:
    """Yield a mount of Alice's zones through the proxy, which is reset afterwards.

    Unexpected warnings in the daemon's log fail the test.
    """
    machine.log_on(proxy, profile="sandbox")
    mount = Mounted(machine, deployment, zone, ["settle=0.1", "refresh=0.2"])
    try:
        mount.mount()
        yield mount
    finally:
        proxy.alter = lambda answer: None
        proxy.over.set()
        mount.tear_down()
    complaints = mount.complaints()
    assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)
