"""Command line arguments in terminals with an encoding other than UTF-8; limits of open files."""

import locale
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from zonedrive import process_setup


def test_a_word_is_read_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are decoded from the locale, unless they are UTF-8 or name a file."""
    monkeypatch.chdir(tmp_path)
    latin = "Z\udcf6nes"  # the byte of an ö there
    assert (
        process_setup.decode_argument(latin) == latin
    )  # this process was not begun again for its locale
    monkeypatch.setitem(sys._xoptions, "utf8", True)
    monkeypatch.setattr(locale, "getencoding", lambda: "ISO-8859-1")
    assert process_setup.decode_argument(latin) == "Zönes"
    assert process_setup.decode_argument("Zönes") == "Zönes"
    assert process_setup.decode_argument("") == ""
    Path(latin).touch()
    assert process_setup.decode_argument(latin) == latin


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
