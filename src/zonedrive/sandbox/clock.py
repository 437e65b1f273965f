"""Timestamps in microseconds since the epoch, and their text forms in responses."""

import time
from datetime import UTC, datetime
from functools import lru_cache


def now_us() -> int:
    """Return the wall clock time in microseconds since the epoch."""
    return time.time_ns() // 1000


def iso(us: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601 text in UTC."""
    seconds, micros = divmod(us, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}+00:00"


@lru_cache(4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def http_date(us: int) -> str:
    """Return a time in microseconds since the epoch as the text of a Last-Modified header."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
