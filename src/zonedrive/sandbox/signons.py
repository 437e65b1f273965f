"""Sign-ons in a browser at a simulated provider (called visits), and the tokens they produce.

This module does not depend on pages or passwords. A visit has its own URL, and allows one sign-on.
The visit lasts up to ten minutes, and ends with the sign-on, a cancellation, or too many wrong
passwords. A token is valid for one logon within two minutes. A restart ends all visits and tokens.

INVARIANT: the URL to which a visit redirects the browser is checked before it is stored, and never
changes.
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
    """Unfinished sign-on at the provider's page."""

    kind: Literal["idp", "personal-id"]
    name: str
    redirect: str  # "": not known yet, the page request sets it
    fragment: bool  # True: the result is sent in the URL fragment, False: by form post
    username: str = ""  # prefilled in the form, "" if unknown
    failures: int = 0
    begun: float = field(default_factory=time.monotonic)


class SignOns:
    """Sign-ons that users have begun in a browser, and issued tokens that are not used yet."""

    def __init__(self) -> None:
        self._visits: dict[str, Visit] = {}
        self._waiting: dict[str, tuple[str, float]] = {}

    def begin(self, visit: Visit) -> str:
        """Store a new visit; return its id."""
        self._forget_old()
        visit_id = secrets.token_urlsafe(24)
        self._visits[visit_id] = visit
        return visit_id

    def find(self, visit_id: str) -> Visit | None:
        """Return the visit, or None if it has ended or expired."""
        self._forget_old()
        return self._visits.get(visit_id)

    def end(self, visit_id: str) -> None:
        """End the visit."""
        self._visits.pop(visit_id, None)

    def issue(self, user_id: str) -> str:
        """Return a token with which the user can log on once within LIFE_SECONDS."""
        token = secrets.token_urlsafe(24)
        self._waiting[token] = (user_id, time.monotonic() + LIFE_SECONDS)
        return token

    def redeem(self, token: str) -> str | None:
        """Consume a token; return the id of its user, or None if the token is not valid."""
        user_id, until = self._waiting.pop(token, ("", 0.0))
        return user_id if until > time.monotonic() else None

    def _forget_old(self) -> None:
        oldest = time.monotonic() - VISIT_SECONDS
        # Visits are in chronological order.
        for visit_id, visit in list(self._visits.items()):
            if visit.begun > oldest and len(self._visits) < MOST_VISITS:
                break
            del self._visits[visit_id]
        now = time.monotonic()
        self._waiting = {token: one for token, one in self._waiting.items() if one[1] > now}


def may_return_to(address: str) -> bool:
    """Return True if a browser may be redirected to the URL `address`.

    An https URL may have any host, an http URL must lead to this machine (loopback). Neither may
    contain a fragment or a user name.
    """
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if any(not "!" <= char <= "~" for char in address) or parts.fragment or "@" in parts.netloc:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(host)))


def origin(address: str) -> str:
    """Return the scheme, host and port of a URL."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
