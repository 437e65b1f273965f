"""Account whose pins a test checks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.pins.office import Office
from tests.unit.state.disk import Disk


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Yield an account with one zone."""
    disk = Disk(tmp_path)
    state = disk.start()
    cache = state.cache
    try:
        yield Office(state)
    finally:
        state.cache = cache
        disk.close()
