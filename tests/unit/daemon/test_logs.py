"""What stands in the daemon's log."""

import logging
from collections.abc import Iterator

import pytest

from zonedrive.daemon import logs


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is afterwards as it was."""
    root, chatty = logging.getLogger(), logging.getLogger("pyfuse3")
    handlers, level, filters = root.handlers[:], root.level, chatty.filters[:]
    yield root
    logging.captureWarnings(False)
    root.handlers[:], chatty.filters[:] = handlers, filters
    root.setLevel(level)


@pytest.mark.usefixtures("root")
def test_an_answer_that_nobody_waits_for_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Programs are killed, and mounts end, with requests under way; a real failure is told."""
    logs.to_stderr()
    said = "fuse_reply_* failed with %s"
    logging.getLogger("pyfuse3").error(f"fuse_release(): {said}", "No such file or directory")
    logging.getLogger("pyfuse3").error(f"fuse_read(): {said}", "Invalid argument")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("fuse_read(): fuse_reply_* failed with Invalid argument")
