"""Limits of open files."""

import resource
import subprocess

from zonedrive import process_setup


def test_other_programs_get_the_former_limit_of_open_files() -> None:
    """The daemon itself may open as many files as the hard limit permits."""
    former, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    ask, found = ["sh", "-c", "ulimit -Sn; ulimit -Hn"], []
    try:
        process_setup.raise_file_limit()
        for command in (ask, process_setup.with_former_limit(ask)):
            found.append(subprocess.check_output(command, text=True).split())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (former, hard))
        process_setup.former_limits.clear()
    assert found == [[f"{hard}", f"{hard}"], [f"{hard - 1}", f"{hard}"]]
    assert process_setup.with_former_limit(ask) == ask
