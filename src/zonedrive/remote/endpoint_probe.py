"""Check that a deployment has the address named in a profile, without running the operation.

Knows nothing about the purpose of an operation, and carries no credentials.

Two requests are sent, with ids made up for this check, without a body and without a logon:

1. `OPTIONS`, which by definition changes nothing.  An `Allow` header in the response lists the
   methods of the address.
2. The method itself, if `OPTIONS` gave no result.  The service demands a logon for everything, so
   `401` means that the address exists; `404` and `405` mean that it does not.

Each response is compared with the response for a random address. If both are equal, it is no
evidence.

INVARIANT: no request carries an existing id, a body, or credentials. Where the service answers
without a logon, or ends one, only OPTIONS is sent, see `may_be_asked`.
"""

import re
import secrets
import uuid
from enum import Enum
from typing import Final

import httpx

from zonedrive.remote.clients import BlockingClient
from zonedrive.remote.profiles.operations import OPERATIONS, Operation
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.exchange import WHOLE
from zonedrive.remote.urls import Deployment, base_url, host_of
from zonedrive.remote.wire import error_mapping

SECONDS: Final = 15.0
_GUARDED: Final = re.compile(r"/api/(?!access(?![A-Za-z0-9_-]))", re.IGNORECASE)
"""Paths below `/api/` but not below `/api/access`, in upper or lower case."""

_NOBODY: Final = (404, 410, 501)


def may_be_asked(operation: Operation) -> bool:
    """Return True if a method other than OPTIONS is harmless at the address of an operation.

    Below `/api/access/`, a GET begins and ends sessions; outside `/api/`, it may have any effect. A
    profile cannot override this check.
    """
    return _GUARDED.match(operation.path) is not None


class ProbeVerdict(Enum):
    """Result of the check of one address."""

    PRESENT = "it is there"
    WRONG_METHOD = "the address is there, but not for this method"
    ABSENT = "there is no such address"
    UNGUARDED = "it answers without a logon, so nothing more was asked"
    ELSEWHERE = "it leads elsewhere, which is never followed"
    OPEN = "cannot be told without doing it"


class EndpointProbe:
    """Checker of the addresses of one deployment; blocking, a context manager."""

    def __init__(self, deployment: Deployment, seconds: float = SECONDS) -> None:
        """Prepare the client.

        Raises ConfigError for an address or authority that cannot be used.
        """
        self._base = base_url(deployment.base_url)
        self._client = BlockingClient(tls.trust(deployment.ca_file), timeout=seconds)
        self._nobody: dict[str, httpx.Response] = {}

    def __enter__(self) -> "EndpointProbe":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def look(self, operation: Operation) -> ProbeVerdict:
        """Return the verdict on an operation's address and method.

        Raises RemoteError's subclasses if the service does not answer.
        """
        path = operation.request(_made_up()).path
        told = self._by_options(operation.method, path)
        if told is ProbeVerdict.OPEN and may_be_asked(operation):
            told = self._by_method(operation.method, path)
        return told

    def _by_options(self, method: str, path: str) -> ProbeVerdict:
        answer, nobody = self._asked("OPTIONS", path), self._at_nobodys("OPTIONS")
        allowed = _allowed(answer)
        if not allowed or _allowed(nobody) == allowed:
            return ProbeVerdict.OPEN
        return ProbeVerdict.PRESENT if method in allowed else ProbeVerdict.WRONG_METHOD

    def _by_method(self, method: str, path: str) -> ProbeVerdict:
        answer = self._asked(method, path)
        if answer.is_redirect:
            return ProbeVerdict.ELSEWHERE
        if answer.is_success:
            return ProbeVerdict.UNGUARDED
        if answer.status_code in _NOBODY:
            return ProbeVerdict.ABSENT
        if answer.status_code == 405:
            return ProbeVerdict.WRONG_METHOD
        same = answer.status_code == self._at_nobodys(method).status_code
        return ProbeVerdict.OPEN if same or answer.status_code >= 500 else ProbeVerdict.PRESENT

    def _at_nobodys(self, method: str) -> httpx.Response:
        """Return the response for a random address that no endpoint has, cached per method."""
        if method not in self._nobody:
            self._nobody[method] = self._asked(method, f"/api/{secrets.token_hex(8)}")
        return self._nobody[method]

    def _asked(self, method: str, path: str) -> httpx.Response:
        try:
            address = self._base + path
            with self._client.stream(method, address, extensions={WHOLE: True}) as answer:
                return answer  # the body is not needed
        except httpx.HTTPError as wrong:
            doing = "asking for an address"
            raise error_mapping.broken(wrong, host_of(self._base), doing, sent=False) from wrong


def _allowed(answer: httpx.Response) -> frozenset[str]:
    words = answer.headers.get("Allow", "").split(",")
    return frozenset(word.strip().upper() for word in words) - {""}


def _made_up() -> dict[str, str]:
    """Return random values for every placeholder, which no object of a service can have."""
    values = {name: secrets.token_hex(16) for kind in OPERATIONS.values() for name in kind.may}
    return values | {"zone": str(uuid.uuid4())}
