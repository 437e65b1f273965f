"""Users, groups and tokens of the organization, as typed methods.

This module contains no operations on zones or files. No endpoint lists or shows groups, so the
caller must store the id that the creation of a group returns.

The API documentation does not describe the response of a user or token list. The parser therefore
accepts an array, or an object that contains exactly one array, and returns the items with all
fields except secrets. The parser interprets only those fields of a token that the documentation of
token creation describes.

INVARIANT: each change is one request, sent once except after a response with status 401.
INVARIANT: a password occurs only in the body of a request.
INVARIANT: only `new_token` returns the secret of a token.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zonedrive.errors import BadAnswer, NotFound, ReplyLost
from zonedrive.model import Group, Level, Member, NewToken, Scope, Token
from zonedrive.remote.requests import Requests
from zonedrive.remote.urls import Request, fill_path
from zonedrive.remote.wire.error_mapping import not_about_a_zone
from zonedrive.remote.wire.fields import (
    count,
    fits_header,
    identifier,
    moment,
    parse,
    parse_object,
    plain_value,
    text,
)
from zonedrive.remote.wire.pagination import Page, identified

TOKENS = "/api/tokens"
USERS = "/api/users"
GROUPS = "/api/groups"
GROUP = "/api/groups/{group}"
MEMBER = "/api/groups/{group}/members/{member}"

_TOKEN_ADVICE = "this logon may be limited; tokens of scope SCIM are for administrators"  # noqa: S105
_LARGEST = (1 << 63) - 1
_MILLISECOND = 10**6  # in nanoseconds
# An expiry is in milliseconds, either since the epoch or from now on; which of the two is not
# published. Few durations reach this number (31 years), and every current time since the epoch
# exceeds it (reached in 2001).
_TIMES_FROM = 10**12
_CLOCKS_DIFFER = 2 * 86_400_000  # milliseconds that two clocks may be apart
_SECRETS = frozenset({"token", "password"})


class Directory:
    """Client for the users, groups and tokens of the organization, with one user's rights.

    A method that fails raises a subclass of errors.RemoteError.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def users(self) -> list[dict[str, Any]]:
        """Return all users, each with all fields that the service sent.

        The names of the fields are not published.
        """
        with _advice("ask an administrator of the organization for the right to see its users"):
            return await self._list(USERS, "listing the users")

    async def tokens(self) -> list[Token]:
        """Return all tokens of the user, including expired ones."""
        with _advice(_TOKEN_ADVICE):
            found = await self._list(TOKENS, "listing the tokens")
        return [token(fields) for fields in found]

    async def create_token(
        self, name: str, seconds: int, password: str, scope: Scope | None = None
    ) -> NewToken:
        """Create a token for the user, valid for `seconds` seconds; return it with its secret.

        `password` is the user's password, which the service requires. `scope` limits the token; if
        there is no scope, the token has all rights of the user. Raises CredentialsRefused for a
        wrong password, which is not sent again, and BadAnswer if the response has no usable token.
        """
        doing = "making a token"
        body = token_wanted(name, seconds, password, scope)
        with _advice(_TOKEN_ADVICE):
            request = Request("POST", TOKENS, body=body, doing=doing)
            answer = await self._requests.change_with_password(request)
        try:
            return new_token(answer, doing, time.time_ns(), seconds)
        except BadAnswer as wrong:
            wrong.remedy = "the service has created a token anyway: see the list of tokens"
            raise

    async def create_group(
        self, name: str, description: str = "", members: Mapping[str, Level] | None = None
    ) -> Group:
        """Create a group and return it; `members` maps ids of users and groups to their level."""
        doing = "making a group"
        body = {"name": name, "description": description, "members": _levels(members or {})}
        request = Request("POST", GROUPS, body=body, doing=doing, origin="published")
        return _changed_group(await self._change(request), doing)

    async def update_group(
        self, group_id: str, members: Mapping[str, Level], *, relative: bool = True
    ) -> Group:
        """Set the level of each member in `members`, and return the changed group.

        Unless `relative`, all other members are removed. A relative update with empty `members`
        changes nothing and returns the current group.
        """
        doing = "changing a group"
        path = fill_path(GROUP, {"group": group_id})
        query = {"relative": "true" if relative else "false"}
        body = {"members": _levels(members)}
        request = Request("PUT", path, query, body, doing=doing, origin="published")
        return _changed_group(await self._change(request), doing)

    async def set_member(self, group_id: str, member_id: str, level: Level) -> None:
        """Set the level of one member of a group; the level "None" removes the member."""
        path = fill_path(MEMBER, {"group": group_id, "member": member_id})
        query = {"accesslevel": level}
        doing = "changing a member of a group"
        await self._change(Request("PUT", path, query, doing=doing, origin="published"))

    async def delete_group(self, group_id: str) -> None:
        """Delete a group. Its members then have no access to zones through the group."""
        path = fill_path(GROUP, {"group": group_id})
        await self._change(Request("DELETE", path, doing="deleting a group", origin="published"))

    async def _change(self, request: Request) -> bytes:
        try:
            with _advice("ask a manager of the group, or an administrator"):
                return await self._requests.change(request)
        except NotFound as missing:
            raise NotFound(
                "the service has no group or member with this id",
                remedy="check the ids; that of a group has the form group.UUID@DOMAIN",
                status=missing.status,
                code=missing.code,
            ) from missing

    async def _list(self, path: str, doing: str) -> list[dict[str, Any]]:
        def items(body: bytes) -> Page[dict[str, Any]]:
            # The ids of tokens are published, those of users are not.
            return identified(_records(body, doing), "id" if path == TOKENS else "")

        request = Request("GET", path, doing=doing)
        found = await self._requests.listing(request, items, kind=path)
        return [item.value for item in found]


@contextmanager
def _advice(remedy: str) -> Iterator[None]:
    """Replace the remedies of Forbidden and ReplyLost errors raised in the `with` block.

    `remedy` is the new remedy of a Forbidden error (see `not_about_a_zone` for an exception). The
    new remedy of ReplyLost is a fixed text.
    """
    with not_about_a_zone(remedy):
        try:
            yield
        except ReplyLost as lost:
            lost.remedy = "find out before you repeat it"
            raise


# ---- requests ----


def _levels(members: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"accessLevel": level, "memberId": member} for member, level in members.items()]


def token_wanted(name: str, seconds: int, password: str, scope: Scope | None) -> dict[str, object]:
    """Return the body of a token request, with the password as an array of characters."""
    body: dict[str, object] = {
        "tokenName": name,
        "validity": seconds,
        "password": list(password),
    }
    if scope is not None:
        body["scope"] = scope
    return body


# ---- responses ----


def _records(body: bytes, doing: str) -> list[dict[str, Any]]:
    """Return the items of the JSON array in `body`, without their members `token` and `password`.

    The array may be a member of an object, if no other member is an array. An item that is not an
    object is returned as {"value": item}. Raises BadAnswer if there is no such array.
    """
    found = parse(body, doing)
    if isinstance(found, dict):
        arrays = [value for value in found.values() if isinstance(value, list)]
        found = arrays[0] if len(arrays) == 1 else None
    if not isinstance(found, list):
        raise BadAnswer(f"{doing}: the answer holds no list")
    items = [item if isinstance(item, dict) else {"value": item} for item in found]
    return [plain_value(item, doing, without=_SECRETS) for item in items]


def token(fields: Mapping[str, Any]) -> Token:
    """Parse `fields`, one item of the token list, and return the token."""
    expiry = count(fields.get("expiry"))
    return Token(
        id=identifier(fields.get("id")),
        name=text(fields.get("tokenName")),
        # A duration says nothing here, because its start is unknown.
        expires_ns=_nanoseconds(expiry) if expiry >= _TIMES_FROM else 0,
        record=fields,
    )


def new_token(body: bytes, doing: str, now_ns: int, seconds: int) -> NewToken:
    """Return the new token in the response `body`.

    `now_ns` is the time of the token's creation in ns since the epoch, `seconds` the requested
    lifetime. Raises BadAnswer if the response contains no usable token.
    """
    found = parse_object(body, doing)
    secret = text(found.get("token"))
    if not fits_header(secret):
        raise BadAnswer(f"{doing}: the answer contains no token that a request can carry")
    expiry = count(found.get("expiry"))
    if expiry > 0:
        expiry = _end(expiry, now_ns // _MILLISECOND, seconds * 1000)
    return NewToken(identifier(found.get("id")), secret, _nanoseconds(expiry))


def _end(expiry: int, now: int, life: int) -> int:
    """Return the expiry time of a token in ms since the epoch.

    `expiry` is either this time or a duration from `now`, in ms. The interpretation that lies
    within the requested lifetime `life` (in ms) takes precedence. If both interpretations do, the
    earlier time is returned, because a token that is renewed too early does no harm. If neither
    interpretation does, `expiry` is taken as a time if it is at least `_TIMES_FROM`.
    """
    latest = now + life + _CLOCKS_DIFFER
    readings = [end for end in (expiry, now + expiry) if now < end <= latest]
    if readings:
        return min(readings)
    return expiry if expiry >= _TIMES_FROM else now + expiry


def _nanoseconds(milliseconds: int) -> int:
    return min(milliseconds * _MILLISECOND, _LARGEST)


def _changed_group(body: bytes, doing: str) -> Group:
    try:
        found = parse_object(body, doing)
        about = found.get("properties")
        if not isinstance(about, dict) or not identifier(about.get("groupId")):
            raise BadAnswer(f"{doing}: the answer is not a group with an id")
    except BadAnswer as wrong:
        wrong.remedy = "the service has made the change anyway; check before you repeat it"
        raise
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


def _members(items: list[Any]) -> Iterator[Member]:
    for item in items:
        if isinstance(item, dict) and (member_id := identifier(item.get("memberId"))):
            yield Member(
                id=member_id,
                type=text(item.get("memberType")),
                name=text(item.get("displayName")),
                level=text(item.get("accessLevel")),
                authorization=text(item.get("authorization")),
            )
