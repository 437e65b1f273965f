"""Tolerant parsing of the JSON of tokens, users and groups.

Knows the JSON member names of these; `entries` knows those of zones and entries. Knows nothing
about requests.

The form of a list of users or tokens is not published. The parser therefore accepts a list wherever
it is found and passes its items on unchanged. It interprets only the members that the interface
publishes for a token elsewhere.

INVARIANT: only `new_token` returns the secret of a token.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.model import Group, Member, NewToken, Scope, Token
from zonedrive.remote.wire.entries import parse
from zonedrive.remote.wire.fields import count, identifier, moment, plain_value, text
from zonedrive.remote.wire.pagination import whole

_LARGEST = (1 << 63) - 1
_MILLISECOND = 10**6  # in nanoseconds
# An expiry is in milliseconds; whether since the epoch or from now on is not published.  Where the
# life that was asked for does not tell: few durations reach this (31 years), and no moment of our
# time is below it (2001).
_MOMENTS_FROM = 10**12
_CLOCKS_DIFFER = 2 * 86_400_000  # milliseconds that two clocks may be apart
_SECRETS = frozenset({"token", "password"})


class Record(msgspec.Struct, eq=False):
    """One item of a list as received, excluding secrets."""

    id: str  # the same whenever the same item comes again, in another request
    fields: dict[str, Any]


def records(body: bytes, doing: str, known_by: str = "") -> list[Record]:
    """Return the items of a list, which is an array or the only array in an object.

    The id of an item is its published member `known_by`. Without it, the id is computed from the
    item's content and its number among equal items. Raises BadAnswer if there is no list.
    """
    found = parse(body, doing)
    if isinstance(found, dict):
        arrays = [value for value in found.values() if isinstance(value, list)]
        found = arrays[0] if len(arrays) == 1 else None
    if not isinstance(found, list):
        raise BadAnswer(f"{doing}: the answer holds no list")
    fields = [
        plain_value(item if isinstance(item, dict) else {"value": item}, doing, without=_SECRETS)
        for item in found
    ]
    return [
        Record((known_by and identifier(each.item.get(known_by))) or each.id, each.item)
        for each in whole(fields)
    ]


def token(record: Record) -> Token:
    """Return the token that an item of the token list describes."""
    fields = record.fields
    expiry = count(fields.get("expiry"))
    return Token(
        id=identifier(fields.get("id")),
        name=text(fields.get("tokenName")),
        # A duration says nothing here: from when on is unknown.
        expires_ns=_nanoseconds(expiry) if expiry >= _MOMENTS_FROM else 0,
        record=fields,
    )


def new_token(body: bytes, doing: str, now_ns: int, seconds: int) -> NewToken:
    """Return the token created at `now_ns` with a requested lifetime of `seconds`.

    Raises BadAnswer if the answer holds no token, or none that can be used.
    """
    found = _object(body, doing)
    secret = text(found.get("token"))
    if not secret or not all("!" <= char <= "~" for char in secret):
        raise BadAnswer(f"{doing}: the answer holds no token that could stand in a request")
    expiry = count(found.get("expiry"))
    if expiry > 0:
        expiry = _end(expiry, now_ns // _MILLISECOND, seconds * 1000)
    return NewToken(identifier(found.get("id")), secret, _nanoseconds(expiry))


def _end(expiry: int, now: int, life: int) -> int:
    """Return the end of a token, in ms; `expiry` is either that time or a duration from `now`.

    The interpretation must not exceed the requested `life`. If both are possible, the earlier end
    is returned, because a token that is renewed too early does no harm.
    """
    latest = now + life + _CLOCKS_DIFFER
    readings = [end for end in (expiry, now + expiry) if now < end <= latest]
    if readings:
        return min(readings)
    return expiry if expiry >= _MOMENTS_FROM else now + expiry


def group(body: bytes, doing: str) -> Group:
    """Return the group in an answer. Raises BadAnswer if there is none."""
    found = _object(body, doing)
    about = found.get("properties")
    if not isinstance(about, dict) or not identifier(about.get("groupId")):
        raise BadAnswer(f"{doing}: the answer is not a group with an id")
    actions, members = about.get("zoneActions"), found.get("members")
    return Group(
        id=identifier(about.get("groupId")),
        name=text(about.get("name")),
        description=text(about.get("description")),
        members=tuple(_members(members if isinstance(members, list) else [])),
        created_ns=moment(about.get("createdAt")),
        created_by=text(about.get("createdBy")),
        administrator_managed=about.get("administratorManaged") is True,
        open=about.get("open") is True,
        may_assign_rights=isinstance(actions, dict) and actions.get("assignAccessRights") is True,
    )


def _members(items: list[Any]) -> Iterable[Member]:
    for item in items:
        if isinstance(item, dict) and (member_id := identifier(item.get("memberId"))):
            yield Member(
                id=member_id,
                type=text(item.get("memberType")),
                name=text(item.get("displayName")),
                level=text(item.get("accessLevel")),
                authorization=text(item.get("authorization")),
            )


def members_wanted(levels: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the `members` of a request: the id and the new level of each member."""
    return [{"accessLevel": level, "memberId": member} for member, level in levels.items()]


def token_wanted(name: str, seconds: int, password: str, scope: Scope | None) -> dict[str, object]:
    """Return the body of a token request; the password is sent as an array of characters."""
    body: dict[str, object] = {
        "tokenName": name,
        "validity": seconds,
        "password": list(password),
    }
    if scope is not None:
        body["scope"] = scope
    return body


def _nanoseconds(milliseconds: int) -> int:
    return min(milliseconds * _MILLISECOND, _LARGEST)


def _object(body: bytes, doing: str) -> dict[str, Any]:
    found = parse(body, doing)
    if not isinstance(found, dict):
        raise BadAnswer(f"{doing}: the answer is not an object")
    return found
