"""Fixtures of the crash tests: one logon, one zone."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.mounts import Mortal, mortal
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine


@pytest.fixture(scope="session")
def _accounts() -> Iterator[dict[str, tuple[Machine, str]]]:
    accounts: dict[str, tuple[Machine, str]] = {}
    yield accounts
    for machine, _ in accounts.values():
        shutil.rmtree(machine.folder, ignore_errors=True)


@pytest.fixture
def dying(deployment: Deployment, _accounts: dict[str, tuple[Machine, str]]) -> Iterator[Mortal]:
    """Yield a new machine of Alice, not mounted yet; all tests share a zone, each has a folder."""
    if deployment.base_url not in _accounts:
        machine = Machine(Path(tempfile.mkdtemp(prefix="zdlo")))
        machine.log_on(deployment, profile="sandbox")
        _accounts[deployment.base_url] = machine, deployment.fresh_zone()
    account, zone = _accounts[deployment.base_url]
    with mortal(account, deployment, zone) as mount:
        yield mount
