"""Modules that the import of httpx loads."""

import subprocess
import sys

LOOK = """
import sys
import zonedrive.daemon.serve
import zonedrive.ui.serve
import httpx
assert not {"pygments", "rich"} & sys.modules.keys(), "the command of httpx is there"
assert httpx.URL("https://acme.example/x").path == "/x"
"""


def test_httpx_comes_without_its_command() -> None:
    """Neither the daemon nor the window imports it."""
    ended = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
