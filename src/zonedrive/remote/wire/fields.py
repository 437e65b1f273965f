"""Tolerant parsing of JSON and of single JSON values: strings, ids, names, counts, times.

This module does not depend on the objects that contain the values.

INVARIANT: every returned integer fits SQLite (64 bits, signed), and every returned text can be
encoded as UTF-8.
INVARIANT: every text except a `name` was passed through `formatting.plain`, so that it contains no
control characters.
"""

import contextlib
import json
import math
import re
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from zonedrive.errors import BadAnswer, during
from zonedrive.formatting import plain

MOST_VALUES: Final = 4_000_000
"""Maximum number of values in one response: the members of about 200,000 entries."""

LONGEST_HEADER: Final = 16_384  # characters; few servers accept a longer header

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors that msgspec raises for a string that is not the expected JSON."""

_DEEPEST = 64  # nested values
_LARGEST = (1 << 63) - 1
_LATEST = 2**62 // 10**9  # seconds; a time a century later still fits 64 bits in nanoseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FRACTION = re.compile(r"[.,](\d+)", re.ASCII)
_LEAP_SECOND = re.compile(r"(T\d\d:\d\d:)60", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


def require_few_values(body: bytes, doing: str) -> None:
    """Raise BadAnswer if `body` has too many values.

    Parsed values can take a hundred times the memory of `body`, so this check runs before parsing.
    """
    if len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise BadAnswer(during(doing, f"the answer has more than {MOST_VALUES} values"))


def parse(body: bytes, doing: str) -> Any:
    """Return the JSON value in `body`. Raises BadAnswer if `body` is not JSON."""
    require_few_values(body, doing)
    try:
        return msgspec.json.decode(body)
    except UNREADABLE as error:
        wrong = error
    # msgspec rejects escapes of lone surrogates (from a name cut inside an emoji), which services
    # send nevertheless. NaN and infinity become None.
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(
            body,
            parse_constant=lambda _name: None,
            parse_float=_finite,
            object_pairs_hook=lambda pairs: {plain(key): value for key, value in pairs},
        )
    # Raised outside, because json's error contains the body.
    raise BadAnswer(during(doing, f"the answer is not JSON ({wrong})")) from wrong


def parse_object(body: bytes, doing: str) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises BadAnswer if `body` is not a JSON object."""
    found = parse(body, doing)
    if not isinstance(found, dict):
        raise BadAnswer(during(doing, "the answer is not an object"))
    return found


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def member(value: object, path: str) -> object:
    """Return the value at a dotted path in parsed JSON, or None if the path does not exist."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: object) -> str:
    """Return an integer as text, or a string with `plain` applied; "" for any other type."""
    if isinstance(value, str):
        return value if value.isprintable() else plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return ""


def identifier(value: object) -> str:
    """Return a string or an integer as an id, or "" for any other type.

    Ids are sent back to the service unchanged. Therefore the result is also "" for a string with a
    character that `plain` would replace.
    """
    found = text(value)
    return found if found == value or not isinstance(value, str) else ""


def fits_header(secret: str) -> bool:
    """Return True if `secret` can be sent in an Authorization header.

    `secret` must have 1 to LONGEST_HEADER visible ASCII characters, and no spaces.
    """
    return 0 < len(secret) <= LONGEST_HEADER and all("!" <= char <= "~" for char in secret)


def name(value: object) -> str:
    """Return `value` as the name of an entry or zone, "" if `value` is not a string or an integer.

    Unlike `text`, this function keeps control characters and text direction overrides.
    """
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    return text(value)


def plain_value(value: Any, doing: str, *, without: Container[str] = (), depth: int = 0) -> Any:
    """Return parsed JSON with `plain` applied to all strings, without the members in `without`.

    Raises BadAnswer if `value` is nested too deeply. Callers leave `depth` out.
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


def known(value: object) -> int | None:
    """Return `value` as an integer from 0 to 2**63 - 1, or None if it is malformed or negative.

    The service writes -1 for an unknown number.
    """
    if type(value) is int and 0 <= value <= _LARGEST:  # a listing has thousands of them
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value >= 0 and math.isfinite(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return min(value, _LARGEST)
    return None


def count(value: object) -> int:
    """Return `value` as an integer from 0 to 2**63 - 1; 0 if it is malformed or negative."""
    return known(value) or 0


def moment(value: object) -> int:
    """Return an ISO 8601 time in ns since the epoch; 0 if it is malformed or before the epoch.

    Accepts any number of fractional digits and any form of UTC offset; the default is UTC.
    """
    if not isinstance(value, str):
        return 0
    # fromisoformat drops the digits after the sixth, and rejects leap seconds and zone names.
    if not value[26:27].isdigit():
        try:
            return _nanoseconds(datetime.fromisoformat(value), 0)
        except ValueError:
            pass  # another form
    value = value.strip().partition("[")[0].upper()
    beyond = 0
    if digits := _FRACTION.search(value):
        beyond = int(digits[1][:9].ljust(9, "0"))
        value = _FRACTION.sub("", value, count=1)
    value, leap_seconds = _LEAP_SECOND.subn(r"\g<1>59", value)
    beyond += leap_seconds * 10**9
    try:
        return _nanoseconds(datetime.fromisoformat(value), beyond)
    except ValueError:
        return 0


def _nanoseconds(when: datetime, beyond: int) -> int:
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    nanoseconds = (when - _EPOCH) // _MICROSECOND * 1000 + beyond
    return min(max(nanoseconds, 0), _LARGEST)


def header_seconds(value: str | None) -> float | None:
    """Return the date in a header as seconds since the epoch.

    Return None for a missing or malformed date, and for a time before 1970 or after `_LATEST`.
    """
    try:
        date = parsedate_to_datetime(value or "")
        # The old date format of HTTP names no time zone, and is in UTC.
        found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    return found if 0 <= found <= _LATEST else None
