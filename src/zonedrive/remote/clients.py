"""The clients for requests on trio's loop: the usual one, and the shorter way for small uploads.

Must not know endpoints.
"""

import ssl

import httpx

from zonedrive import __version__
from zonedrive.remote import calls
from zonedrive.remote.transport import lines
from zonedrive.remote.transport.direct import Direct
from zonedrive.remote.transport.pace import Pace

USER_AGENT = f"zonedrive/{__version__}"
KEEPALIVE_SECONDS = 300.0


def direct(client: httpx.AsyncClient, base: str, trust: ssl.SSLContext) -> Direct | None:
    """The short way for small uploads; None where a proxy is in between."""
    if client._transport_for_url(httpx.URL(base)) is not client._transport:
        return None
    headers = {name: client.headers[name] for name in ("User-Agent", "Accept")}
    return Direct(base, trust, headers | {"Accept-Encoding": "identity"}, KEEPALIVE_SECONDS)


def metadata_client(trust: ssl.SSLContext, auth: httpx.Auth, connections: int) -> httpx.AsyncClient:
    """The client for small requests: HTTP/1.1, kept alive, no redirects."""
    client = httpx.AsyncClient(
        verify=trust,
        auth=auth,
        headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
        timeout=calls.TIMEOUT,
        follow_redirects=False,
        limits=httpx.Limits(
            max_connections=Pace(connections).most,
            max_keepalive_connections=Pace(connections).most,
            keepalive_expiry=KEEPALIVE_SECONDS,
        ),
    )
    lines.keep(client, trust, KEEPALIVE_SECONDS)
    return client
