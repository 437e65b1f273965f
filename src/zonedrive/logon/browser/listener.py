"""HTTP listener on the loopback address, to which the browser returns after one sign-on.

This module does not depend on the provider, the logon or a terminal.

    GET  /START                 first URL that the browser opens; redirects to the provider
    GET  /PATH?state=STATE      answer in the fragment: responds with a page that posts the fragment
    POST /PATH/answer           the fragment posted by that page
    POST /PATH?state=STATE      answer as a form post
    GET  /PATH/outcome          last page; the response waits until the result is known

INVARIANT: only the first complete answer is accepted. A rejected request does not end the wait.
INVARIANT: START, PATH, STATE and the key that identifies zonedrive's own page cannot be guessed. A
URL that is recorded elsewhere (in a file, in the browser's history) cannot be used a second time.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from zonedrive.logon.browser import page, request_check
from zonedrive.logon.browser.page import Verdict

PIECE: Final = 16 * 1024
LARGEST: Final = 256 * 1024  # maximum size of a request's body in bytes
MOST_FIELDS: Final = 50
MOST_CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 15.0
OUTCOME_SECONDS: Final = 90.0  # maximum wait of the last page for the result
# Maximum wait for the request of the last page. If the listener ended before this request, the
# browser would show an error although the logon has worked; on a busy machine, a browser is slow.
FAREWELL_SECONDS: Final = 20.0
FORM: Final = b"application/x-www-form-urlencoded"


class Exchange:
    """One HTTP/1.1 request from a local browser, and its response.

    `method` is "" until the request is complete. The connection is closed after the response.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self.method = ""
        self.target = ""  # path and query
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    async def receive(self) -> None:
        """Receive the request; keep at most LARGEST + 1 bytes of its body.

        If the connection ends before the request is complete, `method` stays "".
        """
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(PIECE)))
            elif isinstance(event, h11.Request):
                request = event
                self.headers = dict(event.headers)
                self.target = event.target.decode("latin-1")
            elif isinstance(event, h11.Data):
                body += event.data[: LARGEST + 1 - len(body)]
            if request and isinstance(event, h11.EndOfMessage):
                self.method, self.body = request.method.decode("latin-1"), bytes(body)
                return
            if isinstance(event, h11.ConnectionClosed):
                return

    async def answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send the response, and close the sending side of the connection."""
        sized = [] if status == 204 else [("Content-Length", str(len(body)))]
        every = [*headers, *sized, ("Connection", "close")]
        parts = [
            self._http.send(h11.Response(status_code=status, headers=every)),
            self._http.send(h11.Data(data=b"" if self.method == "HEAD" else body)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self._stream.send_all(b"".join(part for part in parts if part))
        await self._stream.send_eof()


class Listener:
    """Local HTTP listener that receives the redirect of one browser sign-on."""

    def __init__(self, port: int, refused: Callable[[], None]) -> None:
        """Create the listener's random URLs on the local `port`.

        `refused` is called for the first connection that does not come from this user.
        """
        self._refused: Callable[[], None] | None = refused
        self._host = f"127.0.0.1:{port}"
        self._start, self._path = (f"/{secrets.token_urlsafe(24)}" for _ in range(2))
        self._state, self._page = (secrets.token_urlsafe(24) for _ in range(2))
        self.redirect = f"http://{self._host}{self._path}?state={self._state}"
        """URL to which the provider redirects the browser after the sign-on."""
        self.start = f"http://{self._host}{self._start}"
        """URL that redirects to the provider at the first request only."""
        self._provider = ""
        self._answer: dict[str, str] = {}
        self._led, self._answered, self._concluded = trio.Event(), trio.Event(), trio.Event()
        self._verdict = page.GONE
        self._by_browser = False
        self._shown = trio.Event()
        self._connections = 0

    def lead_to(self, provider: str) -> None:
        """Make `start` redirect to `provider`."""
        self._provider = provider

    async def led(self) -> None:
        """Wait until a browser has requested `start` and is redirected to the provider."""
        await self._led.wait()

    async def answer(self) -> Mapping[str, str]:
        """Wait until the provider has answered the sign-on; return the fields of the answer."""
        await self._answered.wait()
        return self._answer

    def conclude(self, verdict: Verdict) -> None:
        """Set the result that the browser shows; only the first call has an effect."""
        if not self._concluded.is_set():
            self._verdict = verdict
            self._concluded.set()

    async def farewell(self) -> None:
        """Wait up to FAREWELL_SECONDS until the browser shows the result.

        Return at once if the answer did not come from the browser, but was pasted by the user.
        """
        if self._by_browser:
            with trio.move_on_after(FAREWELL_SECONDS):
                await self._shown.wait()

    def take_address(self, text: str) -> str:
        """Accept `text` as the URL to which the provider has redirected the browser.

        Return "", or an error message if `text` is not such a URL.
        """
        try:
            parts = urlsplit(text.strip())
            here = parts.netloc == self._host and parts.path == self._path
        except ValueError:
            return "this is not an address"
        if not here:
            return (
                "this is not the final address of the browser, which begins with"
                f" http://{self._host}/"
            )
        if not self._is_state(parts.query):
            return "this address belongs to another sign-on"
        if not parts.fragment:
            return "the address is incomplete: the part after the # is missing"
        return "" if self._take(parts.fragment) else "this address has no answer in it"

    def _is_state(self, query: str) -> bool:
        given = dict(parse_qsl(query)).get("state", "")
        return secrets.compare_digest(given.encode(), self._state.encode())

    def _take(self, text: str) -> bool:
        """Accept the form fields in `text` as the answer; return True if they were accepted.

        Return False if the fields are invalid, or if an answer was already accepted.
        """
        if self._answered.is_set():
            return False
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            return False
        fields = dict(pairs)
        if not any(fields.values()) or len(fields) != len(pairs):  # duplicate names
            return False
        self._answer = fields
        self._answered.set()
        return True

    # --- one connection, one request -------------------------------------------------------------

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one browser connection; ignore connection errors."""
        try:
            if not request_check.is_this_user(stream.socket):
                if self._refused is not None:
                    refused, self._refused = self._refused, None
                    refused()
            elif self._connections < MOST_CONNECTIONS:
                self._connections += 1
                try:
                    await self._talk(Exchange(stream))
                finally:
                    self._connections -= 1
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
            pass  # the browser disconnected, or the client was not a browser
        finally:
            with trio.move_on_after(1, shield=True):
                await stream.aclose()

    async def _talk(self, exchange: Exchange) -> None:
        with trio.move_on_after(REQUEST_SECONDS) as reading:
            await exchange.receive()
        if reading.cancelled_caught or not exchange.method:
            return
        if len(exchange.body) > LARGEST:
            await self._say(exchange, 413, page.REFUSED)
        elif exchange.headers.get(b"host") != self._host.encode():
            await self._say(exchange, 421, page.REFUSED)
        else:
            await self._route(exchange)

    async def _route(self, exchange: Exchange) -> None:
        known = {
            self._start: {"GET": self._lead},
            self._path: {"GET": self._back, "POST": self._form},
            f"{self._path}/answer": {"POST": self._handed},
            f"{self._path}/outcome": {"GET": self._outcome},
        }
        target, _, query = exchange.target.partition("?")
        methods = known.get(target)
        if methods is None:
            await self._say(exchange, 404, page.REFUSED)
        elif exchange.method not in methods:
            await self._say(exchange, 405, page.REFUSED, ("Allow", ", ".join(methods)))
        elif target == self._path and not self._is_state(query):
            await self._say(exchange, 403, page.REFUSED)
        else:
            await methods[exchange.method](exchange)

    async def _lead(self, exchange: Exchange) -> None:
        provider, self._provider = self._provider, ""
        if provider:
            self._led.set()
            await self._send_on(exchange, provider)
        else:
            await self._say(exchange, 410, page.OVER)

    async def _back(self, exchange: Exchange) -> None:
        if self._answered.is_set():
            await self._say(exchange, 410, page.OVER)
        else:
            body = page.relay(f"{self._path}/answer", f"{self._path}/outcome", self._page)
            await exchange.answer(200, page.HEADERS, body)

    async def _handed(self, exchange: Exchange) -> None:
        proof = exchange.headers.get(b"x-page", b"")
        own = request_check.is_own_page(exchange.headers, self._host)
        if not own or not secrets.compare_digest(proof, self._page.encode()):
            await self._say(exchange, 403, page.REFUSED)
        elif not self._accept(exchange):
            await self._say(exchange, 400, page.NOTHING)
        else:
            await exchange.answer(204, page.HEADERS[2:], b"")

    async def _form(self, exchange: Exchange) -> None:
        if self._answered.is_set():
            await self._say(exchange, 410, page.OVER)
        elif not self._accept(exchange):
            await self._say(exchange, 400, page.NOTHING)
        else:
            await self._send_on(exchange, f"{self._path}/outcome")

    def _accept(self, exchange: Exchange) -> bool:
        kind = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != FORM or not self._take(exchange.body.decode("utf-8", "replace")):
            return False
        self._by_browser = True
        return True

    async def _outcome(self, exchange: Exchange) -> None:
        if not self._answered.is_set():
            await self._say(exchange, 404, page.REFUSED)
            return
        with trio.move_on_after(OUTCOME_SECONDS):
            await self._concluded.wait()
        await self._say(exchange, 200, self._verdict)
        self._shown.set()

    async def _send_on(self, exchange: Exchange, where: str) -> None:
        headers = (("Location", where), *page.HEADERS[2:])
        await exchange.answer(303, headers, b"")

    async def _say(
        self, exchange: Exchange, status: int, verdict: Verdict, *more: tuple[str, str]
    ) -> None:
        await exchange.answer(status, (*page.HEADERS, *more), page.outcome(verdict))


@asynccontextmanager
async def listening(refused: Callable[[], None] = lambda: None) -> AsyncIterator[Listener]:
    """Yield a listener on a free port of 127.0.0.1, which listens while the `with` block runs.

    `refused` is called for the first connection that does not come from this user.
    """
    (socket,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    listener = Listener(socket.socket.getsockname()[1], refused)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, listener.serve, [socket]))
            yield listener
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        # Callers catch the block's exception by its type, so it must leave the nursery's group.
        raise _chief(several) from None


def _chief(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most important exception of a group and its subgroups.

    An interrupt is more important than an error, and an error is more important than a
    cancellation.
    """
    leaves: list[BaseException] = []
    for one in group.exceptions:
        leaves.append(_chief(one) if isinstance(one, BaseExceptionGroup) else one)
    return min(
        leaves, key=lambda one: (isinstance(one, trio.Cancelled), isinstance(one, Exception))
    )
