"""Encoding of a caller's values for a request.

Knows nothing about requests, or about the meaning of the values.

INVARIANT: the error for a value that cannot be encoded does not contain the value, because the same
body may contain a password.
"""

from collections.abc import Mapping

import msgspec

from zonedrive.errors import Rejected

_REMEDY = "give texts that are valid Unicode, and plain values"
_FORMLESS = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


def as_json(value: object, doing: str) -> bytes:
    """Return `value` as JSON. Raises Rejected if it has no JSON form, e.g. lone surrogates."""
    try:
        return msgspec.json.encode(value)
    except _FORMLESS:
        pass  # raised outside, because this exception contains the value
    raise Rejected(f"{doing}: something that was given cannot be sent as JSON", remedy=_REMEDY)


def as_query(query: Mapping[str, str] | None, doing: str) -> dict[str, str]:
    """Return `query` as a dict. Raises Rejected if a value is not valid Unicode."""
    found = dict(query or {})
    for value in found.values():
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise Rejected(f"{doing}: something that was given is not Unicode", remedy=_REMEDY)
    return found
