"""Single members of an answer, read tolerantly: texts, counts, moments.

Must not know what they are members of.

INVARIANT: every integer given out fits SQLite (64 bits, signed), every text has a UTF-8 form.
"""

import math
import re
from datetime import UTC, datetime, timedelta, timezone

_LARGEST = (1 << 63) - 1
_MOMENT = re.compile(
    r"\s*(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d):?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?"
    r"\s*(Z|z|[+-]\d\d(?::?\d\d)?)?(?:\[[^\]]*\])?\s*",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SURROGATE = re.compile("[\ud800-\udfff]")


def text(value: object) -> str:
    """`value` as text: numbers are written out, half characters replaced, all else is ""."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return ""


def count(value: object) -> int:
    """`value` as a number from 0 to 2**63 - 1; 0 for anything odd."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return min(max(value, 0), _LARGEST) if isinstance(value, int) else 0


def is_count(value: object) -> bool:
    """Whether `value` is a number from 0, in any spelling that `count` reads."""
    if isinstance(value, str):
        return value.isascii() and value.isdecimal() and len(value) < 20
    if isinstance(value, float):
        return math.isfinite(value) and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def moment(value: object) -> int:
    """An ISO 8601 moment as nanoseconds since the epoch; 0 for anything odd or before it.

    Any number of fractional digits, any spelling of the offset; without one it is UTC.
    """
    if not isinstance(value, str):
        return 0
    # The usual spelling, ten thousand times in a large listing; no digit is cut off at this length.
    if len(value) >= 19 and not value[26:27].isdigit():
        try:
            return _nanoseconds(datetime.fromisoformat(value), 0)
        except (ValueError, OverflowError):
            pass
    return _moment_at_length(value)


def _moment_at_length(value: str) -> int:
    match = _MOMENT.fullmatch(value)
    if match is None:
        return 0
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    # A leap second (60) flows over into the next minute.
    beyond = int(second or 0) * 10**9 + int(f"{fraction or 0:0<9}"[:9])
    try:
        day_begins = datetime(int(year), int(month), int(day), tzinfo=_zone(offset))
        when = day_begins + timedelta(hours=_below(24, hour), minutes=_below(60, minute))
        return _nanoseconds(when, beyond)
    except (ValueError, OverflowError):
        return 0


def _below(limit: int, digits: str | None) -> int:
    number = int(digits or 0)
    if number >= limit:
        raise ValueError(number)
    return number


def _nanoseconds(when: datetime, beyond: int) -> int:
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    nanoseconds = (when - _EPOCH) // _MICROSECOND * 1000 + beyond
    return min(max(nanoseconds, 0), _LARGEST)


def _zone(offset: str | None) -> timezone:
    if offset is None or offset in "Zz":
        return UTC
    digits = offset[1:].replace(":", "").ljust(4, "0")
    difference = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-difference if offset[0] == "-" else difference)


def known(value: object) -> int | None:
    """A count that may be untold; the service writes -1 for that."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int | float) and not value >= 0:
        return None
    return count(value)
