"""Program that mounts the zones of a secure storage and collaboration service as local folders."""

import sys

__version__ = "0.1.0"

# httpx would import its command line, which doubles the import time.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
