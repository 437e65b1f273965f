"""Simulated logon service in this process, and a user who answers its questions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.harness.transports import LoopHandler
from zonedrive.errors import CredentialsRefused
from zonedrive.logon.api import LogonApi
from zonedrive.logon.secrets import Secret
from zonedrive.paths import AccountPaths
from zonedrive.remote.clients import LoopClient

BASE = "https://zones.example"
PASSWORD = "correct horse ✓"
SESSION = "session-4711"
TOKEN = "token-0815"
GOOD = {"logonOK": True, "sessionId": SESSION, "expiresInMillis": 3600000,
        "userId": {"name": "alice@acme.example"}}  # fmt: skip
Answer = httpx.Response | BaseException | Callable[[], httpx.Response]


class Network(LoopHandler):
    """Transport whose requests can be cancelled, as those of a network."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the function's response."""
        await trio.lowlevel.checkpoint()
        return await super().handle_async_request(request)


class Desk:
    """Access endpoints: a list of answers for each, and a record of the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, str | None]] = []
        self.answers: dict[str, list[Answer]] = {
            "GET /api/access/authorizationrequirements": [say(200, {})],
            "POST /api/access/logon": [say(200, GOOD)],
            "POST /api/tokens": [say(201, {"id": "t1", "token": TOKEN, "expiry": 1893456000000})],
            "GET /api/zones": [say(200, [])],
            "GET /api/access/logoff": [say(204)],
        }

    def answer(self, route: str, *answers: Answer) -> None:
        """Set the answers, one after the other; the last one repeats.

        A function is called when the request arrives, and returns the answer.
        """
        self.answers[route] = list(answers)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        route = f"{request.method} {request.url.path}"
        body = json.loads(request.content) if request.content else None
        self.asked.append(
            (request.method, request.url.path, body, request.headers.get("Authorization"))
        )
        answers = self.answers[route]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, BaseException):
            raise found
        if not isinstance(found, httpx.Response):
            found = found()
        return httpx.Response(found.status_code, content=found.content, headers=found.headers)

    def routes(self) -> list[str]:
        """Return the requests, in order."""
        return [f"{method} {path}" for method, path, _, _ in self.asked]

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies that were sent to `path`."""
        return [body for _, where, body, _ in self.asked if where == path]

    def client(self) -> LoopClient:
        """Return a client of the service."""
        return LoopClient(BASE, Network(self.handle), httpx.Auth())

    def access(self) -> LogonApi:
        """Return the access endpoints."""
        return LogonApi(self.client())


def say(status: int, value: object = None, **headers: str) -> httpx.Response:
    """Return an answer with JSON, or an empty one."""
    if value is None:
        return httpx.Response(status, headers=headers)
    return httpx.Response(status, json=value, headers=headers)


def refuse(status: int, code: str) -> httpx.Response:
    """Return an error of the service."""
    return say(status, {"error": code, "message": "no"})


class Person:
    """User with credentials, who counts the questions."""

    def __init__(self, password: str = PASSWORD, code: str = "", given: str = "") -> None:
        self._password, self._code, self._given = password, code, given
        self.wanted: list[str] = []
        self.has_cancelled = False

    def password(self) -> Secret:
        """Return the typed password."""
        self.wanted.append("password")
        return Secret(self._password)

    def code(self, kind: str) -> Secret:
        """Return the typed code, if there is one."""
        self.wanted.append(f"code {kind}")
        if not self._code:
            raise CredentialsRefused("nobody to ask")
        return Secret(self._code)

    def given_code(self, kind: str) -> Secret | None:
        """Return the code from the command line."""
        return Secret(self._given) if self._given else None

    def require_wanted(self, *, is_last: bool = False) -> None:
        """Raise CredentialsRefused if the user has cancelled the logon."""
        if self.has_cancelled:
            raise CredentialsRefused("it was cancelled")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return an account's own folders; no unit of systemd gives it credentials."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    return AccountPaths("work")


@pytest.fixture
def desk() -> Desk:
    """Return a service that accepts the logon."""
    return Desk()
