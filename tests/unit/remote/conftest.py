"""Service in this process: a function answers each request, without sockets or waiting."""

from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.transports import BlockingHandler, Handler, LoopHandler
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.requests import Requests
from zonedrive.remote.transfer import Transfer

BASE = "https://zones.example"
_loaded = cache(load_profile)  # parsing takes longer than most tests


class Piece(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Body in pieces; an exception among them interrupts it."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    def __iter__(self) -> Any:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


class Bearers(httpx.Auth):
    """Authentication with a bearer, and with the next one after a refusal."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the bearer to the request."""
        request.headers["Authorization"] = self._texts[0]
        if (yield request).status_code == 401 and len(self._texts) > 1:
            del self._texts[0]
            request.headers["Authorization"] = self._texts[0]
            yield request


class Place:
    """Address of a deployment."""

    def __init__(self, base_url: str, ca_file: str | Path | None = None) -> None:
        self.base_url, self.ca_file = base_url, str(ca_file) if ca_file else None


def on_pages(items: list[Any]) -> Handler:
    """Return a handler that sends a list on pages, of 100 items by default."""

    def answer(request: httpx.Request) -> httpx.Response:
        size = int(request.url.params.get("pageSize", "100"))
        start = (int(request.url.params.get("page", "1")) - 1) * size
        return httpx.Response(200, json=items[start : start + size])

    return answer


class Stage:
    """Builder of services that answer with a function; it records all requests."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self.link = Connectivity(chance=lambda: 0.5)

    def _recording(self, handler: Handler) -> Handler:
        def handle(request: httpx.Request) -> httpx.Response:
            if request.method != "GET":
                request.read()
            self.requests.append(request)
            answer = handler(request)
            answer.request = request
            return answer

        return handle

    def transfer(self, handler: Handler, profile: str = "sandbox", **options: Any) -> Transfer:
        """Return a Transfer whose requests go to `handler`."""
        client = BlockingClient(BASE, BlockingHandler(self._recording(handler)), httpx.Auth())
        found = _loaded(profile)
        options = {
            "clock": lambda: 0.0,
            "sleep": self.slept.append,
            "chance": lambda: 0.5,
        } | options
        return Transfer(client, self.link, found, **options)

    def service(self, handler: Handler, profile: str = "sandbox", **options: Any) -> HttpService:
        """Return a service; `options` are those of Requests."""
        client = LoopClient(BASE, LoopHandler(self._recording(handler)), httpx.Auth())
        options = {"chance": lambda: 0.5} | options
        return HttpService(
            client,
            Requests(client, self.link, **options),
            self.transfer(handler, profile),
            self.link,
            _loaded(profile),
        )

    def asked(self) -> list[str]:
        """Return method, path and query of each request, in order."""
        return [f"{one.method} {one.url.raw_path.decode()}" for one in self.requests]


@pytest.fixture
def stage() -> Stage:
    """Return a new Stage."""
    return Stage()
