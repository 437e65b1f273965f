"""Mapping from HTTP status and APIError code to exceptions, in one table.

Knows nothing about the operation that was requested, and retries nothing.

INVARIANT: decisions depend on status, code and exception type. The service's own text is only
shown, after control characters are removed.
"""

import os
import socket
import ssl
from dataclasses import dataclass

import httpx
import msgspec

from zonedrive.errors import (
    AlreadyExists,
    BadAnswer,
    Forbidden,
    Interrupted,
    Locked,
    NotFound,
    NotLoggedOn,
    Rejected,
    RemoteError,
    ReplyLost,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
    Untrusted,
)
from zonedrive.formatting import plain


@dataclass(frozen=True)
class ErrorMapping:
    """One row of the table: an error type, the statuses and codes that lead to it, and its text."""

    error: type[RemoteError]
    statuses: frozenset[int]
    codes: frozenset[str]
    words: str
    remedy: str = ""


def _meaning(
    error: type[RemoteError], statuses: str, codes: str, words: str, remedy: str = ""
) -> ErrorMapping:
    numbers = frozenset(int(status) for status in statuses.split())
    return ErrorMapping(error, numbers, frozenset(codes.split()), words, remedy)


# The codes of the published interface that stand in no line (FAILED, EXCEPTION, USER_UNKNOWN …)
# say nothing that the status does not.
TABLE = (
    _meaning(
        NotLoggedOn,
        "401",
        "",
        "the service does not accept the logon, or it has ended",
        "run zonedrive logon",
    ),
    _meaning(
        Forbidden,
        "403",
        "NOT_ALLOWED INVALID_ACCESS",
        "your rights do not allow it",
        "ask a manager of the zone for the right",
    ),
    _meaning(
        NotFound,
        "404 410",
        "UNKNOWN_ZONE UNKNOWN_FILE UNKNOWN_FILE_VERSION NOT_FOUND ID_NOT_FOUND",
        "the service does not have it (any more)",
    ),
    _meaning(
        AlreadyExists,
        "409",
        "ALREADY_EXISTS",
        "the name is taken",
        "use another name here or there",
    ),
    _meaning(
        Locked, "423", "LOCKED", "somebody holds a lock on it", "wait until it is released there"
    ),
    _meaning(
        TooLarge,
        "413",
        "",
        "it is larger than the service takes",
        "make it smaller, or ask the administrator for a higher limit",
    ),
    _meaning(
        Unavailable,
        "408 425 429 500 502 503 504",
        "NOT_AVAILABLE TEMPORARY_FAILURE TIMEOUT TEMPORARILY_BLOCKED TEMPORARY_BLOCKED OFFLINE"
        " SERVER_NOT_RESPONDING COMMUNICATION_ERROR LOAD_ERROR",
        "the service cannot do it now",
    ),
    _meaning(
        Rejected,
        "400 405 406 411 412 414 415 416 422",
        "ILLEGAL_ARGUMENT ILLEGAL_ARGUMENTS ILLEGAL_NAME NOT_A_FOLDER NOT_A_FILE WRONG_ZONE"
        " WRONG_FILE WRONG_STATE INVALID_DATA NOT_IMPLEMENTED NOT_SUPPORTED",
        "the service finds the request wrong",
    ),
)
REMEDIES: dict[int | str, str] = {
    507: "the service is full: delete something there, or ask the administrator for room",
    "ILLEGAL_NAME": "rename it here",
    "UNSUPPORTED_VERSION": "update zonedrive",
    "TEMPORARILY_BLOCKED": "wait some minutes before the next attempt",
    "TEMPORARY_BLOCKED": "wait some minutes before the next attempt",
}
"""Remedy by status or code, where it is more specific than the remedy in the table's row."""

WORDS: dict[str, str] = {
    "UNSUPPORTED_VERSION": "the service does not support this version of zonedrive",
    "TEMPORARILY_BLOCKED": "the user is blocked for a while, after too many failures",
    "TEMPORARY_BLOCKED": "the user is blocked for a while, after too many failures",
}
"""Message by code, where it is more specific than the message in the table's row."""

_BY_STATUS = {status: row for row in TABLE for status in row.statuses}
_BY_CODE = {code: row for row in TABLE for code in row.codes}
_BY_ERROR = {row.error: row for row in TABLE}

# Statuses that are too general to stand alone: a code of the table, where there is one, decides.
# All other statuses decide alone, whatever the code.
_REFINED = frozenset({400, 409, 422, 500})
# A lock is reported with several statuses; its code has priority over these as well.
_LOCKABLE = _REFINED | {403}


class _ErrorBody(msgspec.Struct, eq=False):
    error: object = None
    message: object = None
    data: object = None


def meaning(status: int, code: str) -> ErrorMapping:
    """Return the table's row for `status` >= 300 and APIError `code` ("" for none)."""
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


def refusal(
    status: int,
    body: bytes,
    doing: str,
    *,
    retry_after: float | None = None,
    early: bool = False,
) -> RemoteError:
    """Return the error for an unsuccessful answer; `doing` begins its message.

    `retry_after` is the delay in seconds that the answer asks for, `early` means that it came
    before the whole request was sent.
    """
    if 300 <= status < 400:
        return BadAnswer(f"{doing}: the service sends us elsewhere (HTTP {status})", status=status)
    code, message, data = error_body(body)
    row = meaning(status, code)
    remedy = REMEDIES.get(status) or REMEDIES.get(code) or row.remedy
    detail = f"HTTP {status}{' ' + code if code else ''}{': ' + message if message else ''}"
    error = row.error(
        f"{doing}: {WORDS.get(code) or row.words} ({detail})",
        remedy=remedy,
        status=status,
        code=code,
        data=data,
    )
    if isinstance(error, Unavailable) and error.is_overload:
        error.retry_after = retry_after
        # A gateway also answers 503 if it lost a service that already had the request.
        error.unprocessed = status == 429 or early
    return error


LOST = frozenset({408, 502, 504})
"""Statuses of a gateway that lost contact with the service: the effect is then unknown."""


def lost(error: RemoteError) -> ReplyLost:
    """Return the error for a changing request that ended with a status of LOST."""
    return ReplyLost(
        f"{error.message}, so it may have been done or not", status=error.status, code=error.code
    )


def redirected(status: int, location: str, doing: str, base: str) -> BadAnswer:
    """Return the error for a redirect; redirects are never followed."""
    target = plain_text(location, 120) or "nowhere"
    return BadAnswer(
        f"{doing}: {base} redirects to {target}, which is not followed (HTTP {status})",
        remedy="check the base URL",
        status=status,
    )


def error_body(body: bytes) -> tuple[str, str, str | None]:
    """Return APIError code, message and data of an error body; ("", "", None) if it has none.

    A code that is not made of letters, digits and underscores is returned as "".
    """
    try:
        found = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "", "", None
    code = found.error if isinstance(found.error, str) else ""
    if not (code.isascii() and code.replace("_", "").isalnum() and len(code) <= 64):
        code = ""
    message = plain_text(found.message) if isinstance(found.message, str) else ""
    data = plain_text(found.data) if isinstance(found.data, str) else None
    return ("" if code == "NONE" else code), message, data


def plain_text(text: str, limit: int = 200) -> str:
    """Return at most `limit` characters of `text`; remove control and formatting characters."""
    clean = "".join(char for char in plain(text[: limit * 8]) if char.isprintable())
    clean = " ".join(clean.split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def broken(
    wrong: BaseException, host: str, doing: str, *, sent: bool = False
) -> RemoteError:  # what a request without an answer comes to
    """Return the error for a request that the exception `wrong` ended.

    `sent`: the whole of a request with an effect may have reached the service. Only then the result
    is ReplyLost.
    """
    certificate = _in_chain(wrong, ssl.SSLCertVerificationError)
    if certificate is not None:
        why = plain_text(getattr(certificate, "verify_message", "") or str(certificate))
        bare = f"the certificate of {host} is not trusted ({why})"
        remedy = (
            "if the deployment has a certificate authority of its own, log on with --ca-file PEM"
        )
        return Untrusted(f"{doing}: {bare}", bare=bare, remedy=remedy)
    before = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
    if sent and not isinstance(wrong, before):
        bare = f"the connection to {host} broke before the answer came ({_reason(wrong)})"
        return ReplyLost(f"{doing}: {bare}, so it may have been done or not", bare=bare)
    if isinstance(wrong, httpx.TimeoutException):
        bare = f"{host} did not answer in time"
        return TimedOut(f"{doing}: {bare}", bare=bare)
    if isinstance(wrong, (httpx.ConnectError, httpx.ProxyError)):
        bare = f"{host} cannot be reached ({_reason(wrong)})"
        remedy = "check the network and the base URL"
        return Unreachable(f"{doing}: {bare}", bare=bare, remedy=remedy)
    if isinstance(wrong, (httpx.DecodingError, httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return BadAnswer(f"{doing}: the answer of {host} is not accepted: {plain_text(str(wrong))}")
    bare = f"the connection to {host} broke ({_reason(wrong)})"
    return Interrupted(f"{doing}: {bare}", bare=bare)


def _reason(wrong: BaseException) -> str:
    for found in _chain(wrong):
        if isinstance(found, ssl.SSLError):
            return plain_text(f"TLS: {getattr(found, 'reason', None) or found}")
        if isinstance(found, socket.gaierror) and found.strerror:
            return plain_text(found.strerror)
        if isinstance(found, OSError) and found.errno:  # its text may repeat the address
            return os.strerror(found.errno)
    return plain_text(str(wrong)) or type(wrong).__name__


def _in_chain(wrong: BaseException, kind: type[Exception]) -> BaseException | None:
    return next((found for found in _chain(wrong) if isinstance(found, kind)), None)


def _chain(wrong: BaseException) -> list[BaseException]:
    """Return `wrong` and its causes, innermost first, including the members of groups."""
    found: list[BaseException] = []
    ahead: list[BaseException | None] = [wrong]
    while ahead:
        link = ahead.pop()
        if link is None or any(link is known for known in found):
            continue
        found.append(link)
        ahead += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            ahead += link.exceptions
    return found[::-1]
