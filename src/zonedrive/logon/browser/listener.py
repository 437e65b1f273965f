"""The loopback listener: where a browser comes back to after a sign-on, once.

Must not know providers, logons or terminals.

    GET  /START                 to the provider; the page that the browser opens leads here
    GET  /PATH?state=STATE      back in fragment form: a page that hands the fragment over
    POST /PATH/answer           what that page hands over
    POST /PATH?state=STATE      back as a form post
    GET  /PATH/outcome          the end, which waits until it is known what came of it

INVARIANT: one answer is taken, the first that is whole; nothing that is refused ends the wait.
INVARIANT: START, PATH, STATE and the word that proves our own page cannot be guessed, and what is
written down elsewhere (a file, a history) is of no use a second time.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from zonedrive.logon.browser import door, page
from zonedrive.logon.browser.exchange import Exchange
from zonedrive.logon.browser.page import Verdict

LARGEST: Final = 256 * 1024  # bytes of an answer
MOST_FIELDS: Final = 50
MOST_CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 15.0
OUTCOME_SECONDS: Final = 90.0  # that the last page waits
# That we wait for the last page to be asked for: a busy machine's browser takes its time, and
# would show an error where the logon has worked.
FAREWELL_SECONDS: Final = 20.0
FORM: Final = b"application/x-www-form-urlencoded"


class Listener:
    """One wait for one answer."""

    def __init__(self, port: int, refused: Callable[[], None] = lambda: None) -> None:
        """`refused` is called for the first connection that is not this user's."""
        self._refused: Callable[[], None] | None = refused
        self._host = f"127.0.0.1:{port}"
        self._start, self._path = (f"/{secrets.token_urlsafe(24)}" for _ in range(2))
        self._state, self._page = (secrets.token_urlsafe(24) for _ in range(2))
        self._provider = ""
        self._answer: dict[str, str] = {}
        self._led, self._answered, self._concluded = trio.Event(), trio.Event(), trio.Event()
        self._verdict = page.GONE
        self._by_browser = False
        self._shown = trio.Event()
        self._connections = 0

    @property
    def redirect(self) -> str:
        """Where the provider sends the browser back to."""
        return f"http://{self._host}{self._path}?state={self._state}"

    @property
    def start(self) -> str:
        """An address that leads to the provider once, and holds nothing of use afterwards."""
        return f"http://{self._host}{self._start}"

    def lead_to(self, provider: str) -> None:
        """Let `start` lead there."""
        self._provider = provider

    async def led(self) -> None:
        """Wait until a browser was sent to the provider: `start` is of no use any more."""
        await self._led.wait()

    async def answer(self) -> Mapping[str, str]:
        """The fields that came back, as soon as they are here."""
        await self._answered.wait()
        return self._answer

    def conclude(self, verdict: Verdict) -> None:
        """Say what came of it; the browser shows it."""
        if not self._concluded.is_set():
            self._verdict = verdict
            self._concluded.set()

    async def farewell(self) -> None:
        """Wait a moment until the browser has shown the outcome, where it brought the answer."""
        if self._by_browser:
            with trio.move_on_after(FAREWELL_SECONDS):
                await self._shown.wait()

    def take_address(self, text: str) -> str:
        """As if the browser had come back to `text`; gives what is wrong with it, or ""."""
        try:
            parts = urlsplit(text.strip())
            here = parts.netloc == self._host and parts.path == self._path
        except ValueError:
            return "that is no address"
        if not here:
            return f"that is not the address the browser ended at, which begins {self._prefix}"
        if not self._is_state(parts.query):
            return "that address belongs to another sign-on"
        if not parts.fragment:
            return "that address is not whole: nothing stands after a #"
        return "" if self._take(parts.fragment) else "that address holds no answer"

    @property
    def _prefix(self) -> str:
        return f"http://{self._host}/"

    def _is_state(self, query: str) -> bool:
        given = dict(parse_qsl(query)).get("state", "")
        return secrets.compare_digest(given.encode(), self._state.encode())

    def _take(self, text: str) -> bool:
        """Keep the first answer that is one."""
        if self._answered.is_set():
            return False
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            return False
        fields = dict(pairs)
        if not any(fields.values()) or len(fields) != len(pairs):  # a name that is there twice
            return False
        self._answer = fields
        self._answered.set()
        return True

    # --- one connection, one request -------------------------------------------------------------

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer a browser's connection; nothing that goes wrong here is anybody's failure."""
        if self._connections >= MOST_CONNECTIONS:
            await stream.aclose()
            return
        self._connections += 1
        try:
            if await trio.to_thread.run_sync(door.is_this_user, stream.socket):
                await self._talk(Exchange(stream))
            elif self._refused is not None:
                refused, self._refused = self._refused, None
                refused()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
            pass  # the browser went away, or it was none
        finally:
            self._connections -= 1
            with trio.move_on_after(1, shield=True):
                await stream.aclose()

    async def _talk(self, exchange: Exchange) -> None:
        with trio.move_on_after(REQUEST_SECONDS) as reading:
            await exchange.receive(LARGEST)
        if reading.cancelled_caught or not exchange.method:
            return
        if exchange.too_large:
            await self._say(exchange, 413, page.REFUSED)
        elif not door.is_ours(exchange.headers, self._host):
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
        own = door.is_own_page(exchange.headers, self._host)
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
    """A listener on a free port of 127.0.0.1, open as long as the block lasts; see Listener."""
    (socket,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    listener = Listener(socket.socket.getsockname()[1], refused)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, listener.serve, [socket]))
            yield listener
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        # What the block raised; a nursery wraps it, and the callers know it by its type.
        raise _chief(several) from None


def _chief(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one exception that matters: an interrupt, else an error, else the cancellation."""
    leaves: list[BaseException] = []
    for one in group.exceptions:
        leaves.append(_chief(one) if isinstance(one, BaseExceptionGroup) else one)
    return min(
        leaves, key=lambda one: (isinstance(one, trio.Cancelled), isinstance(one, Exception))
    )
