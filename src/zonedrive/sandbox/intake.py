"""Reading what a caller sends: JSON bodies, query parameters, names; all with the API's errors.

Must not know what the values are for.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request

from zonedrive.sandbox.errors import ApiError, bad_argument

LARGEST_BODY = 1 << 20

T = TypeVar("T")


async def json_body(request: Request, shape: type[T], *, code: str = "ILLEGAL_ARGUMENT") -> T:
    """The JSON body as `shape`; unknown fields are ignored.

    Raises ApiError 400 with `code` for a body that is too large, malformed or of another shape,
    and for another Content-Type than application/json.
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
        raise ApiError(400, code, f"The body does not fit: {wrong}") from wrong


async def no_body(request: Request) -> None:
    """Read a body away that nobody asked for."""
    async for _chunk in request.stream():
        pass


def text(request: Request, name: str) -> str:
    """A query parameter that must be there; raises ApiError 400."""
    value = request.query_params.get(name)
    if not value:
        raise bad_argument(f"The query parameter {name} is missing")
    return value


def boolean(request: Request, name: str, default: bool | None = None) -> bool:
    """A boolean query parameter; required where there is no default."""
    value = request.query_params.get(name)
    if value is None and default is not None:
        return default
    flag = {"true": True, "false": False}.get((value or "").lower())
    if flag is None:
        raise bad_argument(f"The query parameter {name} must be true or false")
    return flag


def page(request: Request) -> tuple[int, int]:
    """(limit, offset) as `page` (default 1) and `pageSize` (default 100) ask for."""
    size = _positive(request, "pageSize", 100)
    return size, (_positive(request, "page", 1) - 1) * size


def _positive(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", value) is None:
        raise bad_argument(f"The query parameter {name} must be a whole number from 1 on")
    return int(value)


def choice(value: str | None, name: str, allowed: Sequence[str]) -> str:
    """A value out of a few; raises ApiError 400."""
    if value is None or value not in allowed:
        raise bad_argument(f"{name} must be one of {', '.join(allowed)}")
    return value


def entry_name(name: str) -> str:
    """A name for a new or renamed entry; raises ApiError 400 ILLEGAL_NAME.

    Empty names, '/' and NUL are refused; everything else ('..', control characters) is let
    through, since a service may do so and clients have to bear it.
    """
    if not name or "/" in name or "\0" in name:
        raise ApiError(400, "ILLEGAL_NAME", "A name must not be empty nor contain '/' or NUL")
    return name


def address(request: Request) -> str:
    """Where a request comes from: X-Real-Ip as it is, where a proxy says so, else the peer."""
    return request.headers.get("x-real-ip") or peer(request)


def peer(request: Request) -> str:
    """The address at the other end of the connection."""
    return request.client.host if request.client is not None else ""


def characters(password: list[str] | None, *, code: str = "ILLEGAL_ARGUMENT") -> str | None:
    """A password out of its array of characters; raises ApiError 400 for longer elements."""
    if password is None:
        return None
    if any(len(character) != 1 for character in password):
        raise ApiError(400, code, "A password is an array with one character in each element")
    return "".join(password)
