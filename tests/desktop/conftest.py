"""A mount, and a file manager that looks at it."""

from collections.abc import Iterator

import pytest

from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness.machine import Mounted


@pytest.fixture
def session(mounted: Mounted) -> Iterator[Session]:
    """The desktop's session of Alice, whose zones are mounted."""
    with Session(mounted.machine.environment) as session:
        yield session


@pytest.fixture
def thunar(session: Session, mounted: Mounted) -> Thunar:
    """A window of the file manager that shows the test's zone."""
    return Thunar(session, mounted.root)
