"""Limits of open files."""

import resource
import subprocess
import sys

import pytest

from zonedrive import process_setup


def test_other_programs_get_the_former_limit_of_open_files() -> None:
    """The daemon itself may open as many files as the hard limit permits."""
    former, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    ask, found = ["sh", "-c", "ulimit -Sn; ulimit -Hn"], []
    try:
        process_setup.raise_limits()
        for command in (ask, process_setup.with_former_limit(ask)):
            found.append(subprocess.check_output(command, text=True).split())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (former, hard))
        process_setup.former_limits.clear()
    assert found == [[f"{hard}", f"{hard}"], [f"{hard - 1}", f"{hard}"]]
    assert process_setup.with_former_limit(ask) == ask


def test_a_soft_limit_of_file_sizes_is_raised() -> None:
    """A limit from the user's shell would make saves fail."""
    former, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, hard))
    try:
        process_setup.raise_limits()
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (former, hard))
        process_setup.former_limits.clear()


@pytest.mark.parametrize(
    ("limit", "number"), [(20, 1), (64, 2), (304, 32), (resource.RLIM_INFINITY, sys.maxsize)]
)
def test_a_low_limit_of_open_files_allows_few_connections(
    monkeypatch: pytest.MonkeyPatch, limit: int, number: int
) -> None:
    """The connections leave descriptors for files and commands."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
    assert process_setup.affordable_connections() == number
