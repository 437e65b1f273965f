"""Mapping from HTTP status and APIError code to exceptions, in one table.

The mapping does not depend on the operation, except for the `Origin` of the endpoint. This module
repeats no requests.

INVARIANT: no decision depends on the wording of the service's messages. Their text is used only in
messages to users, without control characters.
"""

import codecs
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import httpx
import msgspec

from zonedrive.errors import (
    FULL,
    AlreadyExists,
    BadAnswer,
    CredentialsRefused,
    EndpointRefused,
    Forbidden,
    Interrupted,
    Locked,
    NotFound,
    NotLoggedOn,
    NoTls,
    Rejected,
    RemoteError,
    ReplyLost,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
    Untrusted,
    during,
)
from zonedrive.formatting import plain_text
from zonedrive.remote.transport.proxies import ProxyFailure, proxy_for
from zonedrive.remote.transport.tls import OWN_AUTHORITY, Explained
from zonedrive.remote.urls import REQUIREMENTS, ZONES, Origin, Request
from zonedrive.remote.wire.fields import UNREADABLE, header_seconds
from zonedrive.translation import marked


class Row(NamedTuple):
    """Row of TABLE: an error type, the statuses and codes that lead to it, and its message."""

    error: type[RemoteError]
    statuses: str
    words: str
    remedy: str = ""
    codes: str = ""


# The published codes that are in no row (FAILED, EXCEPTION, USER_UNKNOWN …) add nothing to the
# status.
TABLE = (
    Row(NotLoggedOn, "401", "the service does not accept the logon, or it has ended",
         "run zonedrive logon"),
    Row(Forbidden, "403", "your rights do not allow it",
         "ask a manager of the zone for the right",
         "NOT_ALLOWED INVALID_ACCESS"),
    Row(NotFound, "404 410", "the service does not have it (any more)", "",
         "UNKNOWN_ZONE UNKNOWN_FILE UNKNOWN_FILE_VERSION NOT_FOUND ID_NOT_FOUND"),
    Row(AlreadyExists, "409", "the name is taken", "use another name here or there",
         "ALREADY_EXISTS"),
    Row(Locked, "423", "another user has locked it", "wait until the lock is released",
         "LOCKED"),
    Row(TooLarge, "413", "it is larger than the service accepts",
         "make it smaller, or ask the administrator for a higher limit"),
    Row(Unavailable, "408 425 429 500 502 503 504", "the service cannot do it now", "",
         "NOT_AVAILABLE TEMPORARY_FAILURE TIMEOUT TEMPORARILY_BLOCKED TEMPORARY_BLOCKED OFFLINE"
         " SERVER_NOT_RESPONDING COMMUNICATION_ERROR LOAD_ERROR"),
    Row(Rejected, "400 405 406 411 412 414 415 416 422", "the service rejects the request", "",
         "ILLEGAL_ARGUMENT ILLEGAL_ARGUMENTS ILLEGAL_NAME NOT_A_FOLDER NOT_A_FILE WRONG_ZONE"
         " WRONG_FILE WRONG_STATE INVALID_DATA NOT_IMPLEMENTED NOT_SUPPORTED"),
)  # fmt: skip
UNCLEAR_401 = Row(
    EndpointRefused, "401", "the service accepts the logon, but not for this request",
    "ask the administrator of the service whether your account may use it",
)  # fmt: skip
"""Row for status 401 from an endpoint of a profile."""
PAGE = Row(
    Unavailable, "", "a proxy or firewall answers instead of the service",
    "check the network, or log on to it; if this lasts, ask the administrator of the network",
)  # fmt: skip
"""Row for a page instead of an answer of the service, see `is_page`."""

NO_ZONES = marked(
    "ask the administrator of the service whether your account is active and may use the API"
)
REMEDIES: dict[int | str, str] = {
    "USER_INACTIVE": "ask the administrator of the service whether the user is active",
    "USER_REMOVED": "ask the administrator of the service whether the user is active",
    FULL: "the service is full: delete something there, or ask the administrator for room",
    "ILLEGAL_NAME": "rename it here",
    "UNKNOWN_ZONE": "ask a manager of the zone whether it was deleted or your membership has ended",
    "UNSUPPORTED_VERSION": "update zonedrive",
    "TEMPORARILY_BLOCKED": "wait some minutes before the next attempt",
    "TEMPORARY_BLOCKED": "wait some minutes before the next attempt",
}
"""Remedies for some statuses and codes, more specific than the remedies in TABLE."""

REFUSAL_REMEDIES = frozenset(
    (NO_ZONES, *REMEDIES.values(), *(row.remedy for row in (*TABLE, UNCLEAR_401, PAGE)))
) - {""}
"""All remedies of `refusal`."""

WORDS: dict[str, str] = {
    "UNKNOWN_ZONE": "the service does not have this zone (any more)",
    "UNSUPPORTED_VERSION": "the service does not support this version of zonedrive",
    "TEMPORARILY_BLOCKED": "the user is blocked for a while, after too many failures",
    "TEMPORARY_BLOCKED": "the user is blocked for a while, after too many failures",
}
"""Messages for some codes, more specific than the messages in TABLE."""

_BY_STATUS = {status: row for row in TABLE for status in map(int, row.statuses.split())}
_BY_CODE = {code: row for row in TABLE for code in row.codes.split()}
_BY_ERROR = {row.error: row for row in TABLE}

# Statuses that are too general to decide alone: a code in TABLE, if there is one, decides.
# All other statuses decide alone, whatever the code.
_REFINED = frozenset({400, 409, 422, 500})
# A lock is reported with several statuses; its code has priority over these as well.
_LOCKABLE = _REFINED | {403}


def meaning(status: int, code: str) -> Row:
    """Return the row of TABLE for `status` >= 300 and APIError `code` ("" for none)."""
    row = _BY_CODE.get(code)
    if row is not None and (
        status in _REFINED
        or status not in _BY_STATUS
        or (row.error is Locked and status in _LOCKABLE)
    ):
        return row
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _BY_ERROR[Unavailable if status >= 500 else Rejected]


_BY_GATEWAY = (EndpointRefused, Forbidden, NotFound, NotLoggedOn, Rejected)
"""Types of errors with which gateways answer, too."""

PROBED = frozenset({ZONES, REQUIREMENTS})
"""Paths of requests that are never blocked alone: if they are, the service cannot be reached."""


def refusal(
    status: int,
    body: bytes,
    doing: str,
    *,
    origin: Origin = "",
    retry_after: float | None = None,
    early: bool = False,
) -> RemoteError:
    """Return the error for an unsuccessful response; the error message begins with `doing`.

    `retry_after` is the number of seconds in the response's Retry-After header. `early` means that
    the response came before the whole request was sent.
    """
    code, message = error_body(body)
    row = UNCLEAR_401 if origin == "profile" and status == 401 else meaning(status, code)
    by_gateway = is_page(body) and row.error in _BY_GATEWAY
    if by_gateway and origin == "published" and row.error is not NotLoggedOn:
        row = PAGE
    elif origin == "published" and row.error is NotFound and not (code or message):
        row = _BY_ERROR[Unavailable]
    elif by_gateway and origin == "profile" and row.error is not NotFound:
        row = PAGE._replace(error=row.error)
    remedy = marked(REMEDIES.get(status) or REMEDIES.get(code) or row.remedy)
    words, detail = WORDS.get(code) or row.words, f"HTTP {status}{' ' + code if code else ''}"
    said = f"{detail}: {message}" if message else detail
    error = row.error(
        during(doing, f"{words} ({said})"),
        remedy=remedy,
        status=status,
        code=code,
        logged=during(doing, f"{words} ({detail})"),
    )
    error.by_gateway = by_gateway
    if isinstance(error, Unavailable):
        error.retry_after = retry_after
        # A gateway also sends 503 if it lost contact with a service that already had the request.
        error.unprocessed = error.is_overload and (status == 429 or early)
    return error


def failed(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    request: Request,
    base: str,
    *,
    sent: bool = False,
    early: bool = False,
) -> RemoteError:
    """Return the error for a response with `status` >= 300 from the deployment at the URL `base`.

    For a redirect, return BadAnswer, because redirects are never followed. `sent` means that a
    request that changes something was sent completely. If a gateway then reports that it lost
    contact with the service, the effect is unknown, and the result is ReplyLost. For `early`, see
    `refusal`.
    """
    doing = request.doing
    if status < 400:
        # The rest of the URL may be a secret, for example a signature that gives access to a file.
        target = re.split("[?#]", plain_text(headers.get("Location", ""), 120))[0] or "nowhere"
        logged = f"{doing}: {base} redirects, which is not followed (HTTP {status})"
        return BadAnswer(
            during(doing, f"{base} redirects to {target}, which is not followed (HTTP {status})"),
            remedy="check the base URL",
            status=status,
            logged=logged.removeprefix(": "),
        )
    now = header_seconds(headers.get("Date"))
    delay = retry_after(headers.get("Retry-After"), time.time() if now is None else now)
    error = refusal(status, body, doing, origin=request.origin, retry_after=delay, early=early)
    if error.by_gateway and isinstance(error, Unavailable) and request.path in PROBED:
        error = Unreachable(error.message, remedy=error.remedy, status=status, logged=error.logged)
        error.by_gateway = True
        return error
    if not (sent and status in _LOST):
        return error
    return ReplyLost(_unknown(error.message), status=status, code=error.code,
                     logged=_unknown(error.logged))  # fmt: skip


def is_page(body: bytes) -> bool:
    """Return True if the body of a response is a page (HTML), as of a proxy or a network's logon.

    The service sends JSON, apart from the content of files.
    """
    return body.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"<")


def page_for_change(status: int, doing: str) -> RemoteError:
    """Return the error for a change that a page with a successful `status` answers."""
    said = _unknown(during(doing, f"{PAGE.words} (HTTP {status})"))
    error = ReplyLost(said, remedy=marked(PAGE.remedy), status=status)
    error.by_gateway = True
    return error


def _unknown(message: str) -> str:
    return marked(f"{message}, so it may or may not have taken effect")


_LOST = frozenset({408, 502, 504})
"""Statuses of a gateway that lost contact with the service."""


WRONG_PASSWORD: Final = frozenset({"WRONG_PASSWORD", "PASSWORD_FAILURE", "AUTHORIZATION_FAILED"})
"""Error codes for a wrong password, or a wrong combination of user and password."""

BLOCKED: Final = frozenset({"TEMPORARILY_BLOCKED", "TEMPORARY_BLOCKED"})
"""Error codes for a user who is blocked temporarily, even with the right password."""


@contextmanager
def checked_password(doing: str) -> Iterator[None]:
    """Replace an error about the password, raised in the `with` block, by CredentialsRefused.

    The caller must have checked that the logon is valid.
    """
    try:
        yield
    except RemoteError as refused:
        if refused.code in BLOCKED and refused.status in (401, 403):
            words = WORDS[refused.code]
            remedy = "wait a while before the next attempt, which could make it longer"
        elif refused.code in WRONG_PASSWORD or isinstance(refused, NotLoggedOn):
            known = refused.code in WRONG_PASSWORD
            words = "the password is wrong" if known else "the service refuses the password"
            remedy = "try again with the password of the user who is logged on"
        else:
            raise
        raise CredentialsRefused(
            f"{doing}: {words}", remedy=remedy, status=refused.status, code=refused.code
        ) from refused


@contextmanager
def not_about_a_zone(remedy: str = NO_ZONES) -> Iterator[None]:
    """Set the remedy of a Forbidden error, raised in the `with` block, to `remedy`.

    The default remedy concerns one zone. A remedy for an error code in REMEDIES is not replaced.
    """
    try:
        yield
    except Forbidden as refused:
        if refused.code not in REMEDIES:
            refused.remedy = remedy
        raise


def retry_after(value: str | None, now: float) -> float | None:
    """Return the delay in seconds that a Retry-After header (number or date) requests, or None.

    `now` is the service's time in seconds since the epoch.
    """
    value = (value or "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    date = header_seconds(value)
    return None if date is None else max(0.0, date - now)


def error_body(body: bytes) -> tuple[str, str]:
    """Return the API error code and the message from an error body, each "" if missing.

    A code that is not made of letters, digits and underscores is returned as "".
    """
    try:
        found = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    except UNREADABLE:
        found = None
    told = found if isinstance(found, dict) else {}
    code, message = (
        value if isinstance(value, str) else ""
        for value in (told.get("error"), told.get("message"))
    )
    if code == "NONE" or not _CODE.fullmatch(code):
        code = ""
    return code, plain_text(message)


_CODE = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


def broken(wrong: BaseException, host: str, doing: str, *, sent: bool = False) -> RemoteError:
    """Return the error for a request that failed with `wrong` before its response was complete.

    `sent` means that a request with an effect may have reached the service completely. Only then
    can the result be ReplyLost.
    """
    kind: type[RemoteError] = Interrupted
    remedy = after = ""
    bare = f"the connection to {host} broke ({_reason(wrong)})"
    cause = wrong.__cause__
    if isinstance(wrong, ProxyFailure):
        return wrong.error
    if isinstance(cause, Explained):
        return cause.error
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = f"the certificate of {host} is not trusted ({plain_text(str(cause))})"
        return Untrusted(said, remedy=OWN_AUTHORITY)
    if isinstance(cause, ssl.SSLError) and isinstance(wrong, httpx.ConnectError):
        # libcurl puts its own text before the message of the TLS library.
        why = plain_text(str(cause.args[-1]).rpartition("::")[2])
        said = f"{host} answers, but not with TLS ({why})"
        return NoTls(said, remedy="check the address and its port")
    proxy = proxy_for(host)
    through = f" through the proxy {proxy.place} (from {proxy.variable})" if proxy else ""
    if isinstance(wrong, httpx.ConnectTimeout) and proxy:
        bare = f"{host} did not answer in time{through}"
        return TimedOut(bare, remedy=f"check the proxy in {proxy.variable}, and the network")
    if sent and not isinstance(wrong, _BEFORE_SENDING):
        kind = ReplyLost
        bare = f"the connection to {host} broke before the answer arrived ({_reason(wrong)})"
        after = ", so it may or may not have taken effect"
    elif isinstance(wrong, httpx.TimeoutException):
        kind, bare = TimedOut, f"{host} did not answer in time"
    elif isinstance(wrong, httpx.ConnectError):
        kind, bare = Unreachable, f"{host} cannot be reached ({_reason(wrong)})"
        remedy = "check the network and the base URL"
        if proxy:
            remedy = f"check the proxy in {proxy.variable}, the network and the base URL"
    elif isinstance(wrong, httpx.DecodingError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        kind, bare = BadAnswer, f"the answer from {host} is not accepted: {plain_text(str(wrong))}"
    return kind(during(doing, f"{bare}{after}"), bare=bare, remedy=remedy)


_BEFORE_SENDING = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def _reason(wrong: BaseException) -> str:
    cause = wrong.__cause__
    if isinstance(cause, socket.gaierror) and cause.strerror:
        return plain_text(cause.strerror)
    if isinstance(cause, OSError) and cause.errno:  # its text may repeat the address
        return os.strerror(cause.errno)
    return plain_text(str(wrong)) or type(wrong).__name__
