"""Probes of a service, and of the endpoints that a profile defines, for `zonedrive doctor`.

All requests block.

INVARIANT: no request has credentials, a body, or the id of an existing object.
"""

import contextlib
import re
import secrets
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import httpx
from cryptography import x509

from zonedrive.remote.clients import BlockingClient, read_body_blocking
from zonedrive.remote.profiles.operations import OPERATIONS, Operation
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.connection import CERTIFICATE
from zonedrive.remote.transport.exchange import WHOLE
from zonedrive.remote.transport.transports import BlockingTransport
from zonedrive.remote.urls import REQUIREMENTS, Deployment, Request
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.fields import header_seconds
from zonedrive.service_address import base_url

SECONDS: Final = 15.0


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe of the service."""

    seconds: float  # from the first packet to the response
    ahead: float | None  # seconds by which the local clock is ahead; None: no Date header
    certificate_days: float | None  # until the certificate expires; None: not known


class ProbeVerdict(Enum):
    """Result of the check of one operation's path and method, with a text for users."""

    PRESENT = "it is there"
    WRONG_METHOD = "the address is there, but not for this method"
    ABSENT = "there is no such address"
    UNGUARDED = "it answers without a logon, so no further request was sent"
    ELSEWHERE = "it redirects to another address, which is never followed"
    OPEN = "cannot be checked without running the operation"


class Probe:
    """Client that sends requests without credentials to one deployment; a context manager."""

    def __init__(self, deployment: Deployment, seconds: float = SECONDS) -> None:
        """Prepare the client.

        `seconds` limits the time to connect, TLS included, and the time for each whole response.
        Raises ConfigError if the base URL or the CA file cannot be used.
        """
        base = base_url(deployment.base_url)
        transport = BlockingTransport(tls.trust(deployment.ca_file))
        self._client = BlockingClient(base, transport, httpx.Auth())
        self._seconds = seconds
        self._nowhere: dict[str, httpx.Response] = {}

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.transport.close()

    def service(self) -> ProbeResult:
        """Request the logon requirements once; return the service properties found in the response.

        Raises a subclass of RemoteError if the request fails.
        """
        began = time.monotonic()
        request = Request("GET", REQUIREMENTS)
        with self._answer(request) as answer:
            took = time.monotonic() - began
            result = ProbeResult(took, _ahead(answer.headers.get("Date", ""), took), _days(answer))
            body = read_body_blocking(answer)
        status = answer.status_code
        if status >= 300:
            raise error_mapping.failed(status, answer.headers, body, request, self._client.base_url)
        return result

    def endpoint(self, operation: Operation) -> ProbeVerdict:
        """Check the path and method of an operation without running the operation.

        The first request, `OPTIONS` with random ids, changes nothing by definition. An `Allow`
        header in its response lists the methods of the path. Without this header, the operation's
        own method is sent if `is_harmless` allows it. The service demands a logon for everything,
        so 401 means that the path exists, 404 that the path does not exist, and 405 that the method
        is wrong. A response that equals the response for a random path proves nothing. Raises a
        subclass of RemoteError if the service does not answer.
        """
        method, path = operation.method, operation.request(_random_values()).path
        allowed = _allowed(self._response("OPTIONS", path))
        if allowed and allowed != _allowed(self._response_at_nowhere("OPTIONS")):
            return ProbeVerdict.PRESENT if method in allowed else ProbeVerdict.WRONG_METHOD
        if not is_harmless(operation):
            return ProbeVerdict.OPEN
        answer = self._response(method, path)
        if answer.is_redirect:
            return ProbeVerdict.ELSEWHERE
        if answer.is_success:
            return ProbeVerdict.UNGUARDED
        if answer.status_code in (404, 410, 501):
            return ProbeVerdict.ABSENT
        if answer.status_code == 405:
            return ProbeVerdict.WRONG_METHOD
        is_same = answer.status_code == self._response_at_nowhere(method).status_code
        return ProbeVerdict.OPEN if is_same or answer.is_server_error else ProbeVerdict.PRESENT

    def _response(self, method: str, path: str) -> httpx.Response:
        with self._answer(Request(method, path)) as answer:
            return answer  # the body is not needed

    def _response_at_nowhere(self, method: str) -> httpx.Response:
        """Return the response for a random, nonexistent path; cached per method."""
        if method not in self._nowhere:
            self._nowhere[method] = self._response(method, f"/api/{secrets.token_hex(8)}")
        return self._nowhere[method]

    @contextlib.contextmanager
    def _answer(self, request: Request) -> Iterator[httpx.Response]:
        timeout, extensions = httpx.Timeout(self._seconds), {WHOLE: True, CERTIFICATE: True}
        made = self._client.request(request, timeout=timeout, extensions=extensions)
        try:
            with contextlib.closing(self._client.send(made)) as answer:
                yield answer
        except httpx.HTTPError as wrong:
            raise error_mapping.broken(wrong, self._client.host, "") from wrong


def is_harmless(operation: Operation) -> bool:
    """Return True if the method of an operation may be sent to its path without a logon.

    Below `/api/access`, even a GET may begin or end a session; outside `/api/`, a GET may have any
    effect. A profile cannot override this check.
    """
    return _GUARDED.match(operation.path) is not None


_GUARDED: Final = re.compile(r"/api/(?!access(?![A-Za-z0-9_-]))", re.IGNORECASE)
"""Paths below `/api/` but not below `/api/access`, in upper or lower case."""


def _allowed(answer: httpx.Response) -> frozenset[str]:
    words = answer.headers.get("Allow", "").split(",")
    return frozenset(word.strip().upper() for word in words) - {""}


def _random_values() -> dict[str, str]:
    values = {name: secrets.token_hex(16) for kind in OPERATIONS.values() for name in kind.may}
    return values | {"zone": str(uuid.uuid4())}


def _days(answer: httpx.Response) -> float | None:
    text = answer.extensions.get(CERTIFICATE)
    if not text:
        return None
    end = x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc
    return (end.timestamp() - time.time()) / 86_400


def _ahead(date: str, took: float) -> float | None:
    """Return the seconds by which the local clock is ahead of `date`; None if `date` is not valid.

    Differences within the transfer time `took` and the header's resolution of 1 s count as 0.
    """
    there = header_seconds(date)
    if there is None:
        return None
    ahead = time.time() - there
    return 0.0 if -took <= ahead <= took + 1 else ahead
