"""Both profiles for the tests that say so."""

import pytest

from tests.harness.machine import Mounted

BOTH = [
    pytest.param(name, marks=pytest.mark.mount(profile=name), id=name)
    for name in ("sandbox", "published")
]


@pytest.fixture(params=BOTH)
def profile(request: pytest.FixtureRequest) -> str:
    """The deployment profile of `mounted`."""
    return str(request.param)


@pytest.fixture
def either(profile: str, mounted: Mounted) -> Mounted:
    """A mount with each profile, one after the other."""
    return mounted
