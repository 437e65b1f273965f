"""Fixture: an account at a service in memory."""

from pathlib import Path

import pytest

from tests.unit.sync.account import Account


@pytest.fixture
def account(tmp_path: Path) -> Account:
    """Return an account whose profile is that of the sandbox."""
    return Account(tmp_path)
