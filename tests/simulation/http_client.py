"""The product's HTTP client on a simulated line to the sandbox's application.

Only the transports stand for libcurl: they pass each request to a `SandboxWorld`, and raise what
the real ones raise where the line breaks.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import httpx
import trio

from tests.harness.in_process import URL
from tests.harness.transports import LoopBody, PulledBody
from tests.simulation.network import PAGE, WEATHERS, Line, Passage, Sending, Weather
from tests.simulation.sandbox_world import Answer, SandboxWorld
from zonedrive.config import Settings
from zonedrive.logon.bearer_auth import NAME, BearerAuth
from zonedrive.logon.secrets import Kind, Secret, SecretStore
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.requests import Requests
from zonedrive.remote.transfer import Transfer
from zonedrive.remote.transport.connection import Pool
from zonedrive.remote.transport.exchange import EARLY, SENT, TARGET
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import BODY, BlockingTransport, LoopTransport
from zonedrive.remote.wire.multipart import MultipartBody
from zonedrive.sandbox.errors import ApiError, code_of, error_body

ResultT = TypeVar("ResultT")
WHOLE = 0.7  # probability that head and body of an answer come at once
BY_PAGE = "PAGE"  # code of an error that becomes a page
UPLOADS = b"/files/"  # in the target of an upload, and of a read


class Logon(SecretStore):
    """Logon of one person, who logs on again as soon as the service accepts that."""

    kind: Kind = "file"

    def __init__(self, world: SandboxWorld, user: str, weather: Callable[[], Weather]) -> None:
        self._world, self._user, self._weather = world, user, weather
        self._token = world.log_on(user)
        self._has_ended = False

    def get(self, name: str) -> Secret | None:
        if name != NAME:
            return None
        if self._weather().is_logged_off:
            self._has_ended = True
        elif self._has_ended:
            self._token = self._world.log_on(self._user, instead=self._token)
            self._has_ended = False
        return Secret(self._token)

    def set(self, name: str, value: Secret) -> None:
        """Do nothing; nobody renews a logon."""

    def delete(self, name: str) -> None:
        """Do nothing."""


def http_service(line: Line, logon: Logon, profile: str, settings: Settings) -> HttpService:
    """Return the service as `open_service` does, with virtual time and numbers from the seed."""
    auth = BearerAuth(logon, monotonic=trio.current_time)
    chance = random.Random(f"{line.seed} chance").random
    link = Connectivity(chance=chance, clock=trio.current_time)
    client = LoopClient(URL, LineLoopTransport(line), auth)
    requests = Requests(client, link, connections=settings.connections, chance=chance)
    loaded = load_profile(profile)
    transfer = Transfer(
        BlockingClient(URL, LineBlockingTransport(line), auth),
        link,
        loaded,
        upload_limit=settings.upload_limit,
        download_limit=settings.download_limit,
        clock=trio.current_time,
        sleep=lambda seconds: trio.from_thread.run(trio.sleep, seconds),
        chance=chance,
    )
    return HttpService(client, requests, transfer, link, loaded)


class _Sent(Sending):
    """Request of the HTTP client."""

    def __init__(self, request: httpx.Request) -> None:
        self.target = request.extensions[TARGET].decode()
        self.what = f"{request.method} {self.target}"
        self.effect = request.method != "GET"
        self.seconds = request.extensions["timeout"]["read"]
        request.extensions[SENT] = True

    def ended(self) -> Exception:
        return httpx.ConnectError("all connections are closed")

    def unreachable(self) -> Exception:
        return httpx.ConnectError("Connection refused")

    def unsent(self) -> Exception:
        return httpx.WriteError("Connection reset")

    def broken(self) -> Exception:
        return httpx.ReadError("Connection reset")

    def slow(self) -> Exception:
        return httpx.ReadTimeout("too little data arrived in time")

    def refused(self, error: ApiError) -> Exception:
        return error  # which the transport turns into an answer

    def answered_by_page(self, status: int) -> Exception:
        return ApiError(status, BY_PAGE, "")


class _End:
    """The service's end of a client's line."""

    def __init__(self, line: Line, kind: str) -> None:
        assert isinstance(line.world, SandboxWorld)
        self.line, self._world = line, line.world
        self.numbers = random.Random(f"{line.seed} {kind}")

    def ask(self, request: httpx.Request, content: list[bytes], *, is_cut: bool = False) -> Answer:
        """Let the application answer, or begin to answer a request that is cut off."""
        target, headers = request.extensions[TARGET].decode(), request.headers.raw
        return self._world.ask(
            self.line.user, request.method, target, headers, content, is_cut=is_cut
        )

    def asked(self, request: httpx.Request, content: list[bytes]) -> tuple[Answer, str]:
        """Let the application answer; return also the token of the version that this made."""
        self._world.newest = ""
        return self.ask(request, content), self._world.newest

    def late(
        self, passage: Passage, sending: Sending, request: httpx.Request, content: list[bytes]
    ) -> Exception:
        """Let the application answer later; return the error of the client."""
        self.line.do_late(passage, lambda: self.ask(request, content))
        return sending.broken()

    def refusal(self, request: httpx.Request, refused: ApiError) -> Answer:
        """Return an answer of the service, or of a gateway in front of it.

        If the weather is calm again, the answer still has the status that was drawn.
        """
        numbers, status = self.numbers, refused.status
        if refused.code == BY_PAGE:
            return Answer(status, [(b"content-length", b"%d" % len(PAGE))], PAGE)
        body = error_body(code_of(status), refused.message)
        form = numbers.choice(("service", "service", "page", "nothing", "redirect", "success"))
        if self.line.weather() == WEATHERS["calm"]:
            form = "service"
        if form == "success":
            status, body = 200, PAGE
        elif form == "redirect":
            return Answer(302, [(b"location", b"/maintenance"), (b"content-length", b"0")])
        elif form != "service":
            body = PAGE if form == "page" else b""
        headers = [(b"content-length", b"%d" % len(body))]
        if status in (429, 503) and numbers.random() < 0.3:
            headers.append((b"retry-after", numbers.choice((b"1", b"20", b"120"))))
        return Answer(status, headers, body)


class LineLoopTransport(LoopTransport):
    """Transport for the trio loop."""

    def __init__(self, line: Line) -> None:
        super().__init__(Trust(None))
        self._end = _End(line, "loop")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the application's response. Raises httpx's errors."""
        assert isinstance(request.stream, httpx.SyncByteStream)
        end, sending, content = self._end, _Sent(request), list(request.stream)
        try:
            passage = await end.line.sent(sending, is_ending=self._is_closed)
            if passage.late_s is not None:
                raise end.late(passage, sending, request, content)
            answer, made = end.asked(request, content)
            answered = partial(end.line.answered, passage, sending, made)
            stream: httpx.AsyncByteStream = _LoopHalves(answer.body, answered)
            if end.numbers.random() < WHOLE:
                await answered()
                stream = httpx.ByteStream(answer.body)
        except ApiError as refused:
            answer = end.refusal(request, refused)
            stream = httpx.ByteStream(answer.body)
        return httpx.Response(answer.status, headers=answer.headers, stream=LoopBody(stream))


class _Pool(Pool):
    """Pool without connections, whose requests in progress can be aborted."""

    def __init__(self) -> None:
        super().__init__(Trust(None))
        self._scopes: set[trio.CancelScope] = set()

    def cut(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    def wait(self, work: Callable[..., Coroutine[Any, Any, ResultT]], *args: object) -> ResultT:
        """Do a worker's part on the loop. Raises httpx.ReadError after `cut`."""
        return trio.from_thread.run(self._waiting, work, *args)

    async def _waiting(
        self, work: Callable[..., Coroutine[Any, Any, ResultT]], *args: object
    ) -> ResultT:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await work(*args)
            finally:
                self._scopes.discard(scope)
        raise httpx.ReadError("the transfer was aborted")


class LineBlockingTransport(BlockingTransport):
    """Transport for worker threads."""

    connections: _Pool

    def __init__(self, line: Line) -> None:
        super().__init__(Trust(None))
        self.connections = _Pool()
        self._end = _End(line, "blocking")

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the application's response. Raises httpx's errors."""
        assert isinstance(request.stream, httpx.SyncByteStream)
        pieces = iter(request.stream)
        try:
            return self._response(request, pieces)
        finally:
            if isinstance(pieces, Generator):
                pieces.close()

    def _response(self, request: httpx.Request, pieces: Iterator[bytes]) -> httpx.Response:
        end, sending, form = self._end, _Sent(request), request.stream
        try:
            passage = self.connections.wait(end.line.sent, sending)
        except (httpx.WriteError, httpx.ReadError):
            if content := list(islice(pieces, self._end.numbers.choice((0, 2, None)))):
                end.ask(request, content, is_cut=True)
            raise
        except httpx.ReadTimeout:
            deque(pieces, maxlen=0)
            raise
        except ApiError as refused:
            deque(islice(pieces, self._end.numbers.choice((0, 2, None))), maxlen=0)
            answer = end.refusal(request, refused)
            answer.is_early = isinstance(form, MultipartBody) and not form.complete
            return _blocking(answer)
        content = self._whole(request, pieces)
        if passage.late_s is not None:
            raise end.late(passage, sending, request, content)
        answer, made = end.asked(request, content)
        if answer.is_early and isinstance(form, MultipartBody):
            form.complete = False
        answered = partial(self.connections.wait, end.line.answered, passage, sending, made)
        if end.numbers.random() < WHOLE:
            answered()
            return _blocking(answer)
        return _blocking(answer, _Halves(answer.body, answered))

    def _whole(self, request: httpx.Request, pieces: Iterator[bytes]) -> list[bytes]:
        """Return the body of a request; if reading it fails, the connection is closed."""
        content = []
        try:
            for piece in pieces:
                content.append(piece)
        except Exception:
            self._end.ask(request, content, is_cut=True)
            raise
        return content


class _LoopHalves(httpx.AsyncByteStream):
    """Body of which the second half comes when the line has carried it, or never."""

    def __init__(self, body: bytes, answered: Callable[[], Awaitable[None]]) -> None:
        self._body, self._answered = body, answered

    async def __aiter__(self) -> AsyncIterator[bytes]:
        half = len(self._body) // 2
        yield self._body[:half]
        await self._answered()
        yield self._body[half:]


class _Halves(httpx.SyncByteStream):
    """The same for worker threads."""

    def __init__(self, body: bytes, answered: Callable[[], None]) -> None:
        self._body, self._answered = body, answered

    def __iter__(self) -> Iterator[bytes]:
        half = len(self._body) // 2
        yield self._body[:half]
        self._answered()
        yield self._body[half:]


def _blocking(answer: Answer, stream: httpx.SyncByteStream | None = None) -> httpx.Response:
    """Return the response of a BlockingTransport."""
    stream = stream or httpx.ByteStream(answer.body)
    extensions = {BODY: PulledBody(stream), EARLY: answer.is_early}
    return httpx.Response(
        answer.status, headers=answer.headers, stream=stream, extensions=extensions
    )
