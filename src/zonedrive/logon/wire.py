"""Tolerant parsing of the JSON responses to logon requests.

No other module of the package contains the JSON member names of these responses. This module
builds no requests. The parameter `doing` names the attempted operation at the beginning of an error
message.
"""

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.formatting import plain_text
from zonedrive.remote.wire.fields import count, identifier, parse_object, text

_MILLISECOND = 10**6  # in nanoseconds
_LONGEST_LIFE = 100 * 365 * 86_400 * 10**9  # an expiry this far in the future fits into 64 bits
LONGEST_ADDRESS = 16_384  # characters


class Offer(msgspec.Struct, frozen=True):
    """Method of a browser sign-on.

    `kind` is "idp" for an identity provider, or "personal-id" for a personal identification.
    """

    kind: Literal["idp", "personal-id"]
    name: str
    description: str = ""

    @property
    def option(self) -> tuple[str, ...]:
        """Command-line option that selects this method."""
        return (f"--{self.kind}", self.name)

    @property
    def title(self) -> str:
        """Display name, with the description if there is one."""
        return f"{self.name} ({self.description})" if self.description else self.name


class Requirements(msgspec.Struct, frozen=True):
    """The organization's requirements for a logon."""

    password: bool = True
    code: bool = False  # a one-time code is always required
    code_kind: str = ""  # TOTP, HOTP, ServiceMail
    has_codes: bool = True  # the organization uses one-time codes, or does not say
    organization: str = ""
    can_save: bool = True  # the password may be saved
    idp: bool = False  # every user signs on at an identity provider
    offers: tuple[Offer, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """Result of a logon request; `session` and `pending` are empty if they do not apply."""

    logged_on: bool
    pending: str = ""  # PASSWORDPENDING, VERIFICATIONCODEPENDING, or something unknown
    session: str = ""  # session id, also of an unfinished flow
    life_ns: int = 0  # life of the session, 0: unknown
    user_id: str = ""
    change_password: bool = False
    elsewhere: str = ""  # URL of the browser sign-on that the service requires

    def __repr__(self) -> str:
        return f"Outcome(logged_on={self.logged_on}, pending={self.pending!r})"


def requirements(body: bytes, doing: str) -> Requirements:
    """Return the service's requirements for a logon, parsed from the response `body`.

    Raises BadAnswer if the body is not a JSON object.
    """
    found = parse_object(body, doing)
    kind = text(found.get("otpType"))
    code = found.get("otpRequired") is True
    return Requirements(
        password=found.get("passwordRequired") is not False,
        code=code,
        code_kind="" if kind == "None" else kind,
        has_codes=code or kind != "None",
        organization=identifier(found.get("organizationName")),
        can_save=found.get("canSavePassword") is not False,
        idp=found.get("idpRequired") is True,
        offers=(
            *_offers("idp", found.get("idpData"), identifier(found.get("idpName"))),
            *_offers("personal-id", found.get("personalIdentificationTypes"), ""),
        ),
    )


def _offers(kind: Literal["idp", "personal-id"], items: object, alone: str) -> list[Offer]:
    """Return the sign-on methods in `items`, without duplicates.

    If `items` has none, return one method with the name `alone`, or [] if `alone` is "".
    """
    found: dict[str, Offer] = {}
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and (name := identifier(item.get("name"))):
            found.setdefault(name, Offer(kind, name, text(item.get("description"))))
    return list(found.values()) or ([Offer(kind, alone)] if alone else [])


def sign_on_uri(body: bytes, doing: str) -> str:
    """Return the URL of a browser sign-on, parsed from the response `body`.

    Raises BadAnswer if the URL is missing or not safe for a browser.
    """
    return browser_address(text(parse_object(body, doing).get("uri")), doing)


def browser_address(address: str, doing: str) -> str:
    """Return `address` if it is safe for a browser: HTTPS, a host, no user name, visible ASCII.

    Raises BadAnswer for any other URL.
    """
    try:
        parts = urlsplit(address)
        sound = parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        sound = False
    if not sound or len(address) > LONGEST_ADDRESS:
        raise BadAnswer(f"{doing}: the answer holds no https:// address for a browser")
    if any(not "!" <= char <= "~" for char in address):
        raise BadAnswer(f"{doing}: the address for a browser has characters that are not allowed")
    return address


def outcome(body: bytes, doing: str) -> Outcome:
    """Return the result of a logon request, parsed from the response `body`.

    Raises BadAnswer if the body has neither a result nor a next step.
    """
    found = parse_object(body, doing)
    user = found.get("userId")
    logged_on = found.get("logonOK") is True
    result = Outcome(
        logged_on=logged_on,
        pending="" if logged_on else text(found.get("state")),
        session=text(found.get("sessionId")) or text(found.get("sessionID")),
        life_ns=min(count(found.get("expiresInMillis")) * _MILLISECOND, _LONGEST_LIFE),
        user_id=identifier(user.get("name") if isinstance(user, dict) else user),
        change_password=found.get("passwordChangeIsRequired") is True,
        elsewhere=text(found.get("idpURI")),
    )
    if not logged_on and not result.pending and not isinstance(found.get("logonOK"), bool):
        raise BadAnswer(f"{doing}: the answer says neither that it worked nor what is missing")
    return result


def message(body: bytes) -> str:
    """Return the service's message to the user, on one line; "" if the body has no message."""
    try:
        return plain_text(text(parse_object(body, "").get("message")))
    except BadAnswer:
        return ""
