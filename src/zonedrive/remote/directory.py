"""Users, groups and tokens of the organization, as typed methods.

Knows nothing about zones, files or the form of answers. No endpoint lists or shows groups: a group
is known by the id that its creation returned.

INVARIANT: each change is one request, sent once. A password goes into the body of a request and
nowhere else.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zonedrive.errors import (
    BadAnswer,
    Forbidden,
    NotFound,
    ReplyLost,
)
from zonedrive.model import Group, Level, NewToken, Scope, Token
from zonedrive.remote.passwords import change_with_password
from zonedrive.remote.requests import Requests
from zonedrive.remote.urls import fill_path
from zonedrive.remote.wire import directory
from zonedrive.remote.wire.directory import Record
from zonedrive.remote.wire.error_mapping import REMEDIES
from zonedrive.remote.wire.pagination import BOUNDS, Bounds, Budget, Pagination, Reader

TOKENS = "/api/tokens"
USERS = "/api/users"
GROUPS = "/api/groups"
GROUP = "/api/groups/{group}"
MEMBER = "/api/groups/{group}/members/{member}"


class Directory:
    """Users, groups and tokens of the organization that one user may see and change.

    Every method raises subclasses of errors.RemoteError.
    """

    def __init__(self, requests: Requests, bounds: Bounds = BOUNDS) -> None:
        self._calls = requests
        self._bounds = bounds
        self._pagination = {path: Pagination() for path in (TOKENS, USERS)}

    async def users(self) -> list[Mapping[str, Any]]:
        """Return all users, each with the fields of this deployment; no fields are published."""
        with _advice("ask an administrator of the organization for the right to see its users"):
            return [record.fields for record in await self._list(USERS, "listing the users", "")]

    async def tokens(self) -> list[Token]:
        """Return all tokens of the user, including expired ones."""
        with _advice(_TOKEN_ADVICE):
            found = await self._list(TOKENS, "listing the tokens", "id")
        return [directory.token(record) for record in found]

    async def create_token(
        self, name: str, seconds: int, password: str, scope: Scope | None = None
    ) -> NewToken:
        """Create a token for the user with `password`; `scope` limits its rights.

        Without a scope, the token has all rights of the user. Raises CredentialsRefused for a wrong
        password, which is not sent again.
        """
        doing = "making a token"
        body = directory.token_wanted(name, seconds, password, scope)
        with _advice(_TOKEN_ADVICE):
            answer = await change_with_password(
                self._calls, "POST", TOKENS, None, body, doing=doing
            )
        try:
            return directory.new_token(answer, doing, time.time_ns(), seconds)
        except BadAnswer as wrong:
            wrong.remedy = "one was made all the same: see the list of tokens"
            raise

    async def create_group(
        self, name: str, description: str = "", members: Mapping[str, Level] | None = None
    ) -> Group:
        """Create a group; `members` maps ids of users and groups to their level."""
        doing = "making a group"
        body = {
            "name": name,
            "description": description,
            "members": directory.members_wanted(members or {}),
        }
        return _done(await self._changed("POST", GROUPS, doing, body=body), doing)

    async def update_group(
        self, group_id: str, members: Mapping[str, Level], *, relative: bool = True
    ) -> Group:
        """Set the levels of `members`; unless `relative`, also remove all other members.

        A relative update without members changes nothing and returns the current group.
        """
        doing = "changing a group"
        path = fill_path(GROUP, {"group": group_id})
        query = {"relative": "true" if relative else "false"}
        body = {"members": directory.members_wanted(members)}
        return _done(await self._changed("PUT", path, doing, query=query, body=body), doing)

    async def set_member(self, group_id: str, member_id: str, level: Level) -> None:
        """Set the level of one member; "None" removes the member."""
        path = fill_path(MEMBER, {"group": group_id, "member": member_id})
        query = {"accesslevel": level}
        await self._changed("PUT", path, "changing a member of a group", query=query)

    async def delete_group(self, group_id: str) -> None:
        """Delete a group. Its members lose the access to zones that they have through the group."""
        path = fill_path(GROUP, {"group": group_id})
        await self._changed("DELETE", path, "deleting a group")

    async def _changed(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> bytes:
        try:
            with _advice("ask a manager of the group, or an administrator"):
                return await self._calls.change(method, path, query, body, doing=doing)
        except NotFound as missing:
            missing.remedy = (
                "check the ids: that of a group is group.UUID@DOMAIN, as it was printed when the"
                " group was made"
            )
            raise

    async def _list(self, path: str, doing: str, known_by: str) -> list[Record]:
        budget = Budget(doing, self._bounds)

        async def fetch(query: Mapping[str, str]) -> list[Record]:
            body = await self._calls.page(budget, path, query, doing=doing)
            return directory.records(body, doing, known_by)

        return await Reader(fetch, self._pagination[path], budget).read()


_TOKEN_ADVICE = "this logon may be limited; tokens of scope SCIM are for administrators"  # noqa: S105


def _done(body: bytes, doing: str) -> Group:
    try:
        return directory.group(body, doing)
    except BadAnswer as wrong:
        wrong.remedy = "the service took it all the same; do not repeat it without a look"
        raise


@contextmanager
def _advice(remedy: str) -> Iterator[None]:
    """Replace the remedy of ReplyLost and Forbidden, because the default texts concern zones."""
    try:
        yield
    except Forbidden as refused:
        if refused.code not in REMEDIES:  # which knows better
            refused.remedy = remedy
        raise
    except ReplyLost as lost:
        lost.remedy = "find out before you repeat it"
        raise
