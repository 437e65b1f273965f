"""httpx without its own command, whose import costs as much again as the rest of httpx.

That command needs pygments and rich.  Where pygments is missing, httpx does without the command.
"""

import sys


def load() -> None:
    """Import httpx; where pygments has been imported already, there is nothing to save."""
    if "pygments" in sys.modules:
        return
    sys.modules["pygments"] = None  # type: ignore[assignment]
    try:
        import httpx  # noqa: F401
    finally:
        del sys.modules["pygments"]
