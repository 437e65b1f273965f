"""What a caller put into a request, in the form in which it travels.

Must not know requests, nor what the values mean.

INVARIANT: a value that has no such form is a refusal that does not hold it: there may be a
password beside it.
"""

from collections.abc import Mapping

import msgspec

from zonedrive.errors import Rejected

_REMEDY = "give texts that are valid Unicode, and plain values"
_FORMLESS = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


def as_json(value: object, doing: str) -> bytes:
    """`value` as JSON.  Raises Rejected for what has no such form, half characters for instance."""
    try:
        return msgspec.json.encode(value)
    except _FORMLESS:
        pass  # and raised outside: the error in here holds the value
    raise Rejected(f"{doing}: something that was given cannot be sent as JSON", remedy=_REMEDY)


def as_query(query: Mapping[str, str] | None, doing: str) -> dict[str, str]:
    """`query` as it is.  Raises Rejected where one of its values is not Unicode."""
    found = dict(query or {})
    for value in found.values():
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise Rejected(f"{doing}: something that was given is not Unicode", remedy=_REMEDY)
    return found
