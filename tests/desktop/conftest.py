"""Fixtures: a mount, and a file manager that shows it."""

from collections.abc import Iterator

import pytest

from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness.machine import Mounted


@pytest.fixture
def session(mounted: Mounted) -> Iterator[Session]:
    """Yield Alice's desktop session, with mounted zones."""
    with Session(mounted.machine.environment) as session:
        yield session


@pytest.fixture
def thunar(session: Session, mounted: Mounted) -> Thunar:
    """Return a window of the file manager that shows the test's zone."""
    return Thunar(session, mounted.root)
