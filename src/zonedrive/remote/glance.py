"""One look at a service: does it answer, until when is its certificate good, what time has it.

Must not log on, and sends nothing that tells who asks.
"""

import ssl
import time
from dataclasses import dataclass

import httpx

from zonedrive.remote.address import Deployment, base_url, host_of
from zonedrive.remote.clients import USER_AGENT
from zonedrive.remote.service import REQUIREMENTS
from zonedrive.remote.transport import response_limits, sockets, tls
from zonedrive.remote.transport.dates import header_seconds
from zonedrive.remote.transport.deadline import answer_within
from zonedrive.remote.wire import answers

SECONDS = 15.0


@dataclass(frozen=True)
class Glance:
    """What there was to see."""

    seconds: float  # from the first packet to the answer
    ahead: float | None  # seconds by which this machine's clock is ahead; None: it tells no time
    certificate_days: float | None  # until it ends; None: not known


def look(deployment: Deployment, seconds: float = SECONDS) -> Glance:
    """Ask how one logs on there, once.  Blocks.

    The connection, TLS and the whole answer take at most `seconds` each.

    Raises RemoteError's subclasses, ConfigError for an address or authority that cannot be used.
    """
    doing = "looking at the service"
    base = base_url(deployment.base_url)
    client = httpx.Client(
        verify=tls.context(deployment.ca_file),
        headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
        timeout=seconds,
        follow_redirects=False,
    )
    response_limits.restrict(client)
    sockets.guard(client)
    began = time.monotonic()
    try:
        with (
            client,
            answer_within(seconds),
            client.stream("GET", base + REQUIREMENTS) as answer,
        ):
            took = time.monotonic() - began
            days = _days(answer)
            ahead = _ahead(answer.headers.get("Date", ""), took)
            body = answer.read()
    except httpx.HTTPError as wrong:
        raise answers.broken(wrong, host_of(base), doing, sent=False) from wrong
    if 300 <= answer.status_code < 400:
        raise answers.redirected(
            answer.status_code, answer.headers.get("Location", ""), doing, base
        )
    if answer.status_code >= 300:
        raise answers.refusal(answer.status_code, body, doing)
    return Glance(took, ahead, days)


def _days(answer: httpx.Response) -> float | None:
    """Until the peer's certificate ends."""
    stream = answer.extensions.get("network_stream")
    tunnel = stream.get_extra_info("ssl_object") if stream is not None else None
    certificate = tunnel.getpeercert() if tunnel is not None else None
    if not certificate or "notAfter" not in certificate:
        return None
    return (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / 86_400


def _ahead(date: str, took: float) -> float | None:
    """By the answer's date, which names whole seconds; the way of the answer is no difference."""
    there = header_seconds(date)
    if there is None:
        return None
    ahead = time.time() - there
    return 0.0 if -took <= ahead <= took + 1 else ahead
