"""Fixture: the state of an account, and operations on its files."""

import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.state.local_state import LocalState


@pytest.fixture
def machine(state: LocalState) -> Machine:
    """Return an account with one zone."""
    return Machine(state)
