"""Fixtures: a sandbox for all tests of a run, its people, and sandboxes of one's own."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sandbox.running import Person, Service, Zone, world

_numbers = itertools.count()


@pytest.fixture(scope="session")
def _shared() -> Iterator[Service]:
    folder = Path(tempfile.mkdtemp(prefix="zdsx"))
    service = Service(folder, world("block_after = 1000"))
    yield service
    service.close()
    log = service.log()
    shutil.rmtree(folder)
    assert "Traceback" not in log, log


@pytest.fixture
def service(_shared: Service) -> Iterator[Service]:
    """A running sandbox, shared by all tests, without faults."""
    yield _shared
    _shared.fault()


@pytest.fixture
def alice(service: Service) -> Person:
    """An administrator, manager of every zone."""
    return service.regular("alice")


@pytest.fixture
def bob(service: Service) -> Person:
    """Modify in Project X; manages the group Engineering."""
    return service.regular("bob")


@pytest.fixture
def carol(service: Service) -> Person:
    """Add in Project X; in no group."""
    return service.regular("carol")


@pytest.fixture
def zone(alice: Person) -> Zone:
    """Project X as Alice sees it."""
    return alice.zone()


@pytest.fixture
def folder(zone: Zone) -> str:
    """A folder of one's own in Project X."""
    return zone.folder(f"Folder {next(_numbers)}")


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Starts sandboxes on folders of their own; they end with the test."""
    running: list[Service] = []

    def start_one(world_text: str | None = None) -> Service:
        service = Service(Path(tempfile.mkdtemp(prefix="zdsx")), world_text)
        running.append(service)
        return service

    yield start_one
    for service in running:
        service.close()
        log = service.log()
        shutil.rmtree(service.folder)
        assert "Traceback" not in log, log
