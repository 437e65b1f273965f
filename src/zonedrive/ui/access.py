"""Access control of the web interface: only the user who started it can send requests.

Any page in a browser and any user of this machine can reach a port of the loopback interface. A
connection of another user is closed at once. A request needs a session cookie, which the browser
gets from a one-time URL that opens the web interface. A request that changes something must also
have the origin of the web interface's own pages.

INVARIANT: a one-time URL works once, and no URL that stays in the browser contains a secret.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from cachetools import TTLCache
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from zonedrive.logon.browser.request_check import is_own_page, is_this_user

START_SECONDS = 120.0  # validity of a one-time URL
MOST_STARTS = 100  # valid one-time URLs
START = "/start/"

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # `no-referrer` would make the origin of a form `null`
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class OwnProtocol(H11Protocol):
    """HTTP protocol for one connection; aborts the connection of another user before reading."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection that a process of this user opened; abort any other connection."""
        try:
            known = is_this_user(transport.get_extra_info("socket"))
        except OSError:  # the other side is gone
            known = False
        if known:
            super().connection_made(transport)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, unless the connection was aborted."""
        if getattr(self, "transport", None) is not None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, unless `connection_made` has aborted the connection."""
        if getattr(self, "transport", None) is not None:
            super().connection_lost(exc)


class Keys:
    """Session secret of the web interface, and the one-time URLs that are still valid."""

    def __init__(self) -> None:
        self.session = secrets.token_urlsafe(32)  # stored in the session cookie
        self._starts: TTLCache[str, str] = TTLCache(MOST_STARTS, START_SECONDS)  # page by token

    def start(self, page: str) -> str:
        """Return the path of a new one-time URL for `page`, valid for START_SECONDS seconds."""
        token = secrets.token_urlsafe(32)
        self._starts[token] = page
        return START + token

    def take(self, token: str) -> str | None:
        """Return the page of the one-time URL with `token`, and invalidate the URL.

        Return None if the URL is not valid.
        """
        return self._starts.pop(token, None)

    def knows(self, secret: str) -> bool:
        """Return True if `secret`, the value of a cookie, is the session secret."""
        return secrets.compare_digest(secret.encode(), self.session.encode())


class Guard:
    """ASGI middleware that enforces the access rules of this module for each request to the app."""

    def __init__(self, app: ASGIApp, keys: Keys, host: str, used: Callable[[], None]) -> None:
        """Create the middleware for `app`; `host` is the address and port of the server.

        The middleware calls `used` for each request that it passes on.
        """
        self._app, self._keys, self._host, self._used = app, keys, host, used
        self._cookie = f"zonedrive-{host.rpartition(':')[2]}"  # cookies are sent to all ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a one-time URL, reject an unauthorized request, or pass the request to the app."""
        request = Request(scope)
        refused = self._refusal(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        self._used()
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a one-time URL or a rejected request, or None otherwise."""
        if request.headers.get("host") != self._host:
            return _plain(421, "This address does not belong to zonedrive.")
        path = request.url.path
        if path.startswith(START):
            return self._started(request, path.removeprefix(START))
        if not self._keys.knows(request.cookies.get(self._cookie, "")):
            return _plain(403, "This page is closed. Open the window again from the menu: Zones.")
        changes = request.method not in ("GET", "HEAD")
        if changes and not is_own_page(dict(request.headers.raw), self._host):
            return _plain(403, "This request does not come from a page of zonedrive.")
        return None

    def _started(self, request: Request, token: str) -> Response:
        """Return the response to a one-time URL, which sets the cookie and loads the page.

        The response is an HTML page with a `refresh` to the requested page. After an HTTP redirect,
        a browser that came from another site would not send a cookie with SameSite=Strict.
        """
        page = self._keys.take(token) if request.method == "GET" else None
        if page is None:
            return _plain(410, "This address has been used. Open the window again from the menu.")
        text = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Zones</title>'
            f'<meta http-equiv="refresh" content="0;url={page}"><p><a href="{page}">Zones</a></p>'
        )
        answer = HTMLResponse(text, headers=HEADERS)
        answer.set_cookie(self._cookie, self._keys.session, httponly=True, samesite="strict")
        return answer


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(text, status, HEADERS)


def _with_headers(send: Send) -> Callable[[Any], Awaitable[None]]:
    extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending
