"""Parsing of JSON bodies, query parameters and names in requests; invalid input raises ApiError.

This module does not depend on how the values are used.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from zonedrive.sandbox.errors import ApiError, bad_argument

LARGEST_BODY = 1 << 20
LONGEST_NAME = 64 * 1024  # bytes of UTF-8
LARGEST_PAGE = 10**9  # limit of `page` and `pageSize`, so that their product fits into SQLite

T = TypeVar("T")


async def json_body(request: Request, shape: type[T], *, code: str = "ILLEGAL_ARGUMENT") -> T:
    """Return the request's JSON body as an instance of `shape`.

    Ignores unknown fields, except in a scope (see `sessions.Scope`). Raises ApiError 400 with
    `code` for a body that is too large, malformed or of another shape, and for a Content-Type other
    than application/json.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(400, code, "The Content-Type must be application/json")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > LARGEST_BODY:
            raise ApiError(400, code, f"The body is larger than {LARGEST_BODY} bytes")
    try:
        return msgspec.json.decode(received, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise _misfit(wrong, code) from wrong


def fitting(fields: dict[str, Any], shape: type[T], *, code: str) -> T:
    """Return a parsed JSON object as an instance of `shape`.

    Raises ApiError 400 with `code` if the object does not have this shape.
    """
    try:
        return msgspec.convert(fields, shape)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise _misfit(wrong, code) from wrong


def _misfit(wrong: Exception, code: str) -> ApiError:
    return ApiError(400, code, f"The body does not fit: {wrong}")


async def no_body(request: Request) -> None:
    """Read and discard a body that the endpoint does not need."""
    async for _chunk in request.stream():
        pass


def text(request: Request, name: str) -> str:
    """Return a required query parameter; raise ApiError 400 if it is missing, empty or not UTF-8.

    `request.query_params` cannot be used here, because it replaces bytes that are not UTF-8, so
    that different names become equal.
    """
    try:
        given = dict(parse_qsl(request.url.query, errors="strict"))
    except UnicodeDecodeError:
        raise bad_argument("The query is not UTF-8") from None
    if name not in given:
        raise bad_argument(f"The query parameter {name} is missing")
    return given[name]


def since(request: Request) -> int:
    """Return the query parameter `since` in microseconds since the epoch; 0 if it is missing.

    The parameter is a time in ISO 8601. A time without an offset is in UTC. Raises ApiError 400 for
    an invalid time.
    """
    value = request.query_params.get("since")
    if value is None:
        return 0
    try:
        when = datetime.fromisoformat(value)
    except ValueError as wrong:
        raise bad_argument("The query parameter since must be a time in ISO 8601") from wrong
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def boolean(request: Request, name: str, default: bool | None = None) -> bool:
    """Return a boolean query parameter, or `default` if it is missing.

    Raises ApiError 400 if the value is neither `true` nor `false`, or if the parameter is missing
    and has no default.
    """
    value = request.query_params.get(name)
    if value is None and default is not None:
        return default
    flag = {"true": True, "false": False}.get((value or "").lower())
    if flag is None:
        raise bad_argument(f"The query parameter {name} must be true or false")
    return flag


def page(request: Request) -> tuple[int, int]:
    """Return (limit, offset) for the parameters `page` (default 1) and `pageSize` (default 100).

    Values above LARGEST_PAGE count as LARGEST_PAGE. Raises ApiError 400 for a value that is not a
    positive integer.
    """
    size = _positive(request, "pageSize", 100)
    return size, (_positive(request, "page", 1) - 1) * size


def _positive(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if re.fullmatch(r"0*[1-9][0-9]*", value) is None:
        raise bad_argument(f"The query parameter {name} must be a whole number from 1 on")
    digits = value.lstrip("0")
    return int(digits) if len(digits) < 10 else LARGEST_PAGE


def choice(value: str | None, name: str, allowed: Sequence[str]) -> str:
    """Return `value` of the parameter `name`; raise ApiError 400 if it is not in `allowed`."""
    if value is None or value not in allowed:
        raise bad_argument(f"{name} must be one of {', '.join(allowed)}")
    return value


def entry_name(name: str) -> str:
    """Return a valid entry name unchanged; raise ApiError 400 ILLEGAL_NAME otherwise.

    Empty names, names longer than LONGEST_NAME, '/' and NUL are rejected. Other names, such as '..'
    or names with control characters, are accepted, because real services may accept them and
    clients must handle them.
    """
    if not name or "/" in name or "\0" in name:
        raise ApiError(400, "ILLEGAL_NAME", "A name must not be empty nor contain '/' or NUL")
    if len(name.encode()) > LONGEST_NAME:
        raise ApiError(400, "ILLEGAL_NAME", f"A name has at most {LONGEST_NAME} bytes")
    return name


def address(request: Request) -> str:
    """Return the client's address: the X-Real-Ip header if present, else the peer's address."""
    return request.headers.get("x-real-ip") or peer(request)


def peer(request: Request) -> str:
    """Return the address of the connection's peer, or "" if unknown."""
    return request.client.host if request.client is not None else ""


def characters(password: list[str] | None, *, code: str = "ILLEGAL_ARGUMENT") -> str | None:
    """Join a password that the client sent as an array of characters; return the string.

    Returns None for None. Raises ApiError 400 with `code` if an element is not a single character.
    """
    if password is None:
        return None
    if any(len(character) != 1 for character in password):
        raise ApiError(400, code, "A password is an array with one character in each element")
    return "".join(password)
