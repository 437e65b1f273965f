"""One probe of a service: reachability, end of its certificate, and its clock.

Does not log on, and sends nothing that identifies the user.
"""

import time
from dataclasses import dataclass

import httpx
from cryptography import x509

from zonedrive.remote.clients import BlockingClient
from zonedrive.remote.service import REQUIREMENTS
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.connection import CERTIFICATE
from zonedrive.remote.transport.exchange import WHOLE
from zonedrive.remote.urls import Deployment, base_url, host_of
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.dates import header_seconds

SECONDS = 15.0


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe."""

    seconds: float  # from the first packet to the answer
    ahead: float | None  # seconds by which the local clock is ahead; None: no Date header
    certificate_days: float | None  # until it ends; None: not known


def look(deployment: Deployment, seconds: float = SECONDS) -> ProbeResult:
    """Request the logon requirements once, without a logon. Blocks.

    The connection, TLS and the whole answer take at most `seconds` each. Raises RemoteError's
    subclasses, and ConfigError for an address or authority that cannot be used.
    """
    doing = "looking at the service"
    base = base_url(deployment.base_url)
    asked = {WHOLE: True, CERTIFICATE: True}
    client = BlockingClient(tls.trust(deployment.ca_file), timeout=seconds)
    began = time.monotonic()
    try:
        with client, client.stream("GET", base + REQUIREMENTS, extensions=asked) as answer:
            took = time.monotonic() - began
            days = _days(answer)
            ahead = _ahead(answer.headers.get("Date", ""), took)
            body = answer.read()
    except httpx.HTTPError as wrong:
        raise error_mapping.broken(wrong, host_of(base), doing, sent=False) from wrong
    if 300 <= answer.status_code < 400:
        raise error_mapping.redirected(
            answer.status_code, answer.headers.get("Location", ""), doing, base
        )
    if answer.status_code >= 300:
        raise error_mapping.refusal(answer.status_code, body, doing)
    return ProbeResult(took, ahead, days)


def _days(answer: httpx.Response) -> float | None:
    """Return the days until the server's certificate expires, or None."""
    text = answer.extensions.get(CERTIFICATE)
    if not text:
        return None
    end = x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc
    return (end.timestamp() - time.time()) / 86_400


def _ahead(date: str, took: float) -> float | None:
    """Return by how many seconds the local clock is ahead, or None if the answer has no date.

    Differences within the transfer time and the header's resolution of one second count as 0.
    """
    there = header_seconds(date)
    if there is None:
        return None
    ahead = time.time() - there
    return 0.0 if -took <= ahead <= took + 1 else ahead
