"""Sign-on in a browser: visits to the provider's page, and the tokens that come out of them.

Must not know pages or passwords.  A visit is one address given out for one sign-on; it lasts ten
minutes and ends with the sign-on, a refusal to go on, or too many wrong passwords.  A token works
once, for two minutes.  Neither outlives a restart.

INVARIANT: where a visit leads back to is checked before it is kept, and never changed afterwards.
"""

import secrets
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

LIFE_SECONDS = 120
VISIT_SECONDS = 600
MOST_VISITS = 1000
MOST_FAILURES = 5


@dataclass(eq=False)
class Visit:
    """One sign-on under way."""

    kind: Literal["idp", "personal-id"]
    name: str
    redirect: str  # "": the browser's address is still to tell
    fragment: bool  # else the answer is a form post
    username: str = ""  # whom the page is to expect, "" where that is open
    failures: int = 0
    begun: float = field(default_factory=time.monotonic)


class SignOns:
    """Visits under way, and tokens handed out and not yet used."""

    def __init__(self) -> None:
        self._visits: dict[str, Visit] = {}
        self._waiting: dict[str, tuple[str, float]] = {}

    def begin(self, visit: Visit) -> str:
        """Open the provider's page to one visit; returns the visit's id."""
        self._forget_old()
        visit_id = secrets.token_urlsafe(24)
        self._visits[visit_id] = visit
        return visit_id

    def find(self, visit_id: str) -> Visit | None:
        """The visit, if it is still under way."""
        self._forget_old()
        return self._visits.get(visit_id)

    def end(self, visit_id: str) -> None:
        """The visit is over."""
        self._visits.pop(visit_id, None)

    def issue(self, user_id: str) -> str:
        """A token with which the user can log on once."""
        token = secrets.token_urlsafe(24)
        self._waiting[token] = (user_id, time.monotonic() + LIFE_SECONDS)
        return token

    def redeem(self, token: str) -> str | None:
        """The user a token was issued for; the token is used up."""
        user_id, until = self._waiting.pop(token, ("", 0.0))
        return user_id if until > time.monotonic() else None

    def _forget_old(self) -> None:
        oldest = time.monotonic() - VISIT_SECONDS
        # Visits are kept in order of their beginning.
        for visit_id, visit in list(self._visits.items()):
            if visit.begun > oldest and len(self._visits) < MOST_VISITS:
                break
            del self._visits[visit_id]
        now = time.monotonic()
        self._waiting = {token: one for token, one in self._waiting.items() if one[1] > now}


def may_return_to(address: str) -> bool:
    """Whether a browser may be sent there with an answer: https anywhere, http to this machine."""
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if any(not "!" <= char <= "~" for char in address) or parts.fragment or "@" in parts.netloc:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(host)))


def origin(address: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
