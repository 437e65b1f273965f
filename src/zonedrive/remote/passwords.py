"""Requests that carry the user's password in their body: sent once, and what a refusal means.

Must not know what else is in them.

INVARIANT: a password that was refused is not sent a second time.  A 401 may mean the password as
well as the logon, so the logon is tried (and renewed, where it has ended) before the password goes
out; whatever is said to the request itself is then about the password, and repeats nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from zonedrive.errors import CredentialsRefused, Forbidden, NotLoggedOn, RemoteError
from zonedrive.remote.calls import Calls

TRIED: Final = "/api/zones"
"""What shows whether a logon is accepted; a limited one gets 403, which says as much."""

WRONG: Final = frozenset({"WRONG_PASSWORD", "PASSWORD_FAILURE", "AUTHORIZATION_FAILED"})
"""The codes that mean the password, or the user who has it."""

_BLOCKED: Final = frozenset({"TEMPORARILY_BLOCKED", "TEMPORARY_BLOCKED"})


async def change_with_password(
    calls: Calls,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    body: object,
    *,
    doing: str,
) -> bytes:
    """As Calls.change, for a `body` that holds the password of the user who is logged on.

    Raises CredentialsRefused for a wrong one, NotLoggedOn where the logon itself has ended.
    """
    with suppress(Forbidden):
        await calls.read(TRIED, doing=doing)
    with checked_password(doing):
        return await calls.change(method, path, query, body, doing=doing, password=True)


@contextmanager
def checked_password(doing: str) -> Iterator[None]:
    """Raises CredentialsRefused where the service refuses the password in a request.

    The logon that carries the request is known to be accepted.
    """
    try:
        yield
    except RemoteError as refused:
        if refused.code in _BLOCKED and refused.status in (401, 403):
            words = "the user is blocked for a while, after too many failures"
            remedy = "wait a while before the next attempt, which could make it longer"
        elif refused.code in WRONG or isinstance(refused, NotLoggedOn):
            known = refused.code in WRONG
            words = "the password is wrong" if known else "the service refuses the password"
            remedy = "try again with the password of the user who is logged on"
        else:
            raise
        raise CredentialsRefused(
            f"{doing}: {words}", remedy=remedy, status=refused.status, code=refused.code
        ) from refused
