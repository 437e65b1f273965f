"""Fixtures: a sandbox that all tests share, its users, and separate sandboxes."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.sandbox.running import Person, Service, Zone, serving, world

_numbers = itertools.count()


@pytest.fixture(scope="session")
def _shared() -> Iterator[Service]:
    with serving(world("block_after = 1000")) as service:
        yield service


@pytest.fixture
def service(_shared: Service) -> Iterator[Service]:
    """Yield a running sandbox without faults, which all tests share."""
    yield _shared
    _shared.fault()


@pytest.fixture
def alice(service: Service) -> Person:
    """Return an administrator, manager of every zone."""
    return service.regular("alice")


@pytest.fixture
def bob(service: Service) -> Person:
    """Return a user with Modify in Project X, who manages the group Engineering."""
    return service.regular("bob")


@pytest.fixture
def carol(service: Service) -> Person:
    """Return a user with Add in Project X, who is in no group."""
    return service.regular("carol")


@pytest.fixture
def zone(alice: Person) -> Zone:
    """Return Project X as Alice sees it."""
    return alice.zone()


@pytest.fixture
def folder(zone: Zone) -> str:
    """Return a new folder in Project X."""
    return zone.folder(f"Folder {next(_numbers)}")


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Yield a function that starts a sandbox on a new folder; it ends with the test."""
    with contextlib.ExitStack() as running:
        yield lambda world_text=None: running.enter_context(serving(world_text))
