"""Sign-on in a browser: the short-lived token that the redirect carries back to the client.

Must not know pages.  A token works once, for two minutes, and not after a restart.
"""

import secrets
import time

LIFE_SECONDS = 120


class SignOns:
    """Tokens handed out by the sign-on page and not yet used."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, float]] = {}

    def issue(self, user_id: str) -> str:
        """A token with which the user can log on once."""
        token = secrets.token_urlsafe(24)
        self._waiting[token] = (user_id, time.monotonic() + LIFE_SECONDS)
        return token

    def redeem(self, token: str) -> str | None:
        """The user a token was issued for; the token is used up."""
        user_id, until = self._waiting.pop(token, ("", 0.0))
        return user_id if until > time.monotonic() else None
