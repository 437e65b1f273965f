"""Name of a logon's token."""

import getpass
import re
import socket

from zonedrive.logon.bearer_auth import token_name


def test_tokens_of_one_computer_have_different_names() -> None:
    """The name has computer, user, account and time."""
    name = token_name("work")
    begin = f"zonedrive on {socket.gethostname()} ({getpass.getuser()}, account work, "
    assert name.startswith(begin)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d\)", name.removeprefix(begin))
