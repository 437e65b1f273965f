"""Import of httpx without its command line, which would double the import time.

The command line of httpx needs pygments and rich. If pygments is missing, httpx does not import its
command line.
"""

import sys


def load() -> None:
    """Import httpx without its command line; do nothing if pygments is already imported."""
    if "pygments" in sys.modules:
        return
    sys.modules["pygments"] = None  # type: ignore[assignment]
    try:
        import httpx  # noqa: F401
    finally:
        del sys.modules["pygments"]
