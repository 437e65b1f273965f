"""Name of a logon's token."""

import getpass
import re
import socket

import pytest

from zonedrive.logon.bearer_auth import token_name


def test_tokens_of_one_computer_have_different_names() -> None:
    """The name has computer, user, account and time."""
    name = token_name("work")
    begin = f"zonedrive on {socket.gethostname()} ({getpass.getuser()}, account work, "
    assert name.startswith(begin)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d\)", name.removeprefix(begin))


def test_a_computer_whose_name_is_not_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name can be sent, and is one line."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h\udcff\nst")
    assert token_name("work").startswith("zonedrive on h\ufffd st (")
