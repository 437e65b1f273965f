"""Points in time as the sandbox keeps them, microseconds since the epoch, and as it sends them."""

import time
from datetime import UTC, datetime


def now_us() -> int:
    """The wall clock, in microseconds since the epoch."""
    return time.time_ns() // 1000


def iso(us: int) -> str:
    """ISO 8601 with microseconds and UTC offset."""
    seconds, micros = divmod(us, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    return moment.isoformat(timespec="microseconds")


def http_date(us: int) -> str:
    """The form of the Last-Modified header, whole seconds."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
