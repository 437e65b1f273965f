"""A fixture of some of these tests: a service that is not as it should be."""

from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.meddler import Meddler


@pytest.fixture
def meddler(deployment: Deployment) -> Iterator[Meddler]:
    """What stands between a client and the service."""
    between = Meddler(deployment)
    yield between
    between.close()
