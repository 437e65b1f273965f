"""Requests with the user's password in their body: sent once, with a specific error handling.

Knows nothing about the other content of the body.

INVARIANT: a rejected password is not sent a second time. A 401 may concern the password or the
logon. Therefore the logon is checked (and renewed if it has ended) before the password is sent; any
later 401 concerns the password, and nothing is repeated.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from zonedrive.errors import CredentialsRefused, Forbidden, NotLoggedOn, RemoteError
from zonedrive.remote.requests import Requests
from zonedrive.remote.urls import ZONES

WRONG: Final = frozenset({"WRONG_PASSWORD", "PASSWORD_FAILURE", "AUTHORIZATION_FAILED"})
"""Error codes that reject the password, or the user with this password."""

_BLOCKED: Final = frozenset({"TEMPORARILY_BLOCKED", "TEMPORARY_BLOCKED"})


async def change_with_password(
    calls: Requests,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    body: object,
    *,
    doing: str,
) -> bytes:
    """Run Requests.change with a `body` that contains the logged-on user's password.

    Raises CredentialsRefused if the password is wrong, NotLoggedOn if the logon has ended.
    """
    with suppress(Forbidden):  # the answer to a limited but valid logon
        await calls.read(ZONES, doing=doing)
    with checked_password(doing):
        return await calls.change(method, path, query, body, doing=doing, password=True)


@contextmanager
def checked_password(doing: str) -> Iterator[None]:
    """Convert errors about the password of a request to CredentialsRefused.

    The logon of the request must be known to be valid.
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
