"""The dates in the headers of an answer.

Must not know what a date is needed for.
"""

from email.utils import parsedate_to_datetime
from typing import Final

_LATEST: Final = 2**62 // 10**9  # seconds; a century later, the nanoseconds still fit 64 bits


def header_seconds(value: str | None) -> float | None:
    """Return the seconds since the epoch of a date in a header.

    None for no date, for nonsense, and for a moment before 1970 or after the year 2115.
    """
    try:
        found = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    return found if 0 <= found <= _LATEST else None
