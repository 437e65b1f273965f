"""Fixtures for tests with both profiles."""

import pytest

from tests.harness.machine import Mounted

BOTH = [
    pytest.param(name, marks=pytest.mark.mount(profile=name), id=name)
    for name in ("sandbox", "published")
]


@pytest.fixture(params=BOTH)
def profile(request: pytest.FixtureRequest) -> str:
    """Return the deployment profile of `mounted`."""
    return str(request.param)


@pytest.fixture
def either(profile: str, mounted: Mounted) -> Mounted:
    """Return a mount with each profile, one after the other."""
    return mounted
