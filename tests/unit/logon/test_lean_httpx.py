"""Modules that httpx imports."""

import subprocess
import sys

LOOK = """
import sys
from zonedrive.logon import lean_httpx
lean_httpx.load()
assert "httpx" in sys.modules
assert not {"pygments", "rich"} & sys.modules.keys(), "the command of httpx is there"
import httpx, pygments, rich
assert httpx.URL("https://acme.example/x").path == "/x"
lean_httpx.load()
assert sys.modules["pygments"] is pygments
"""


def test_httpx_comes_without_its_command_and_pygments_can_still_be_imported() -> None:
    """The import works even if httpx or pygments is already loaded."""
    ended = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
