"""Tolerant parsing of single JSON values: texts, ids, names, counts, times.

Knows nothing about the objects they belong to. All decoding of answers passes through this module.

INVARIANT: every integer returned fits SQLite (64 bits, signed), every text has a UTF-8 form.
INVARIANT: every text but a `name` is plain (see `zonedrive.formatting`).
"""

import math
import re
from collections.abc import Container
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from zonedrive.errors import BadAnswer
from zonedrive.formatting import plain

_DEEPEST = 64  # values in each other; what hands them on goes down by recursion
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
    """Return `value` as plain text: a number in digits, "" for anything but text and numbers."""
    if isinstance(value, str):
        return value if value.isprintable() else plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return ""


def identifier(value: object) -> str:
    """Return `value` as an id, or "" if it contains characters that are not plain.

    Ids are sent back to the service unchanged, so an id is never altered.
    """
    if isinstance(value, str) and value.isprintable():  # nearly every one
        return value
    found = text(value)
    return found if found == value or not isinstance(value, str) else ""


def name(value: object) -> str:
    """Return the name of an entry or zone: the only text that may contain non-plain characters."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    return text(value)


def plain_value(value: Any, doing: str, *, without: Container[str] = (), depth: int = 0) -> Any:
    """Return JSON of unknown shape with plain texts, without members whose name is in `without`.

    Raises BadAnswer if the value is nested too deep.
    """
    if depth > _DEEPEST:
        raise BadAnswer(f"{doing}: the answer is nested more than {_DEEPEST} deep")
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {
            plain(key): plain_value(inner, doing, without=without, depth=depth + 1)
            for key, inner in value.items()
            if key not in without
        }
    if isinstance(value, list):
        return [plain_value(inner, doing, without=without, depth=depth + 1) for inner in value]
    return value


def count(value: object) -> int:
    """Return `value` as an integer from 0 to 2**63 - 1; 0 if it is malformed."""
    if type(value) is int and 0 <= value <= _LARGEST:
        return value
    if isinstance(value, bool):
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return min(max(value, 0), _LARGEST) if isinstance(value, int) else 0


def is_count(value: object) -> bool:
    """Return True if `value` is a non-negative number in any spelling that `count` reads."""
    if type(value) is int:
        return value >= 0
    if isinstance(value, str):
        return value.isascii() and value.isdecimal() and len(value) < 20
    if isinstance(value, float):
        return math.isfinite(value) and value >= 0
    return False


def moment(value: object) -> int:
    """Return an ISO 8601 time in ns since the epoch; 0 if it is malformed or before the epoch.

    Accepts any number of fractional digits and any spelling of the offset; the default is UTC.
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
    """Return a count, or None if it is unknown; the service writes -1 for unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int | float) and not value >= 0:
        return None
    return count(value)
