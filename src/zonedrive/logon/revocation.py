"""Revocation of bearers that were replaced or could not be stored.

Knows nothing about their local storage.

INVARIANT: if an unused bearer cannot be ended, the user is told its id and its expiry. Errors of
the service are not raised.
"""

import contextlib
from collections.abc import Callable

import trio

from zonedrive.errors import ConfigError, NotLoggedOn, RemoteError
from zonedrive.logon.api import LogonApi
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.flow import GOODBYE_SECONDS, end_session, revoke
from zonedrive.logon.secrets import Secret
from zonedrive.remote.profiles.load import load_profile

Tell = Callable[[str], None]


async def dismiss(access: LogonApi, profile: str, bearer: Bearer, tell: Tell, which: str) -> None:
    """End `bearer`, also during the cancellation of a logon.

    `which` describes it for the user, as "your previous token".
    """
    ended = False
    with trio.move_on_after(GOODBYE_SECONDS, shield=True):
        ended = await _end(access, profile, bearer)
    if not ended and not 0 < bearer.expires_ns <= access.clock.now_ns():
        known = f" ({bearer.id[:80]})" if bearer.id else ""
        until = f" until {bearer.until}" if bearer.until else ""
        tell(f"{which}{known} remains valid at the service{until}{_reason(profile, bearer)}")


def _reason(profile: str, bearer: Bearer) -> str:
    """Return the reason why a bearer was not ended, as the end of a sentence."""
    with contextlib.suppress(ConfigError):
        if bearer.kind == "token" and not load_profile(profile).can("revoke_token"):
            return ", because the deployment profile cannot revoke tokens"
    return ", because it could not be ended now"


async def _end(access: LogonApi, profile: str, bearer: Bearer) -> bool:
    """Return True if the bearer is no longer valid."""
    access.carry(Secret(bearer.secret))
    try:
        if bearer.kind == "token":
            return await revoke(access, load_profile(profile), bearer)
        failure = await end_session(access)
    except (RemoteError, ConfigError) as wrong:
        return isinstance(wrong, NotLoggedOn)
    return failure is None or isinstance(failure, NotLoggedOn)
