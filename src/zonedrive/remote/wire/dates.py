"""Parsing of dates in the headers of an answer.

Knows nothing about their use.
"""

from email.utils import parsedate_to_datetime
from typing import Final

_LATEST: Final = 2**62 // 10**9  # seconds; a century later, the nanoseconds still fit 64 bits


def header_seconds(value: str | None) -> float | None:
    """Return the date of a header in seconds since the epoch.

    Returns None for a missing or malformed date, and for a time before 1970 or after 2115.
    """
    try:
        found = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    return found if 0 <= found <= _LATEST else None
