"""Command line arguments in terminals with an encoding other than UTF-8."""

import locale
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
