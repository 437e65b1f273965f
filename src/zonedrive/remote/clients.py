"""HTTP clients of a deployment: httpx over the transports of this package.

Knows nothing about endpoints.
"""

import httpx

from zonedrive import __version__
from zonedrive.remote import response_limits
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import STALL_SECONDS, BlockingTransport, LoopTransport

USER_AGENT = f"zonedrive/{__version__}"
JSON = "application/json"


class LoopClient(httpx.AsyncClient):
    """Client for small requests on the trio loop: HTTP/2 if available, no redirects."""

    def __init__(self, trust: Trust, auth: httpx.Auth) -> None:
        self.transport = LoopTransport(trust)
        super().__init__(
            transport=self.transport,
            auth=auth,
            headers={"User-Agent": USER_AGENT, "Accept": JSON},
            follow_redirects=False,
        )


class BlockingClient(httpx.Client):
    """Client for worker threads: HTTP/1.1, keep-alive, no redirects, limited response sizes."""

    def __init__(
        self,
        trust: Trust,
        auth: httpx.Auth | None = None,
        *,
        accept: str = JSON,
        timeout: httpx.Timeout | float = 15.0,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.transport = BlockingTransport(trust, stall_seconds)
        super().__init__(
            transport=self.transport,
            auth=auth,
            headers={"User-Agent": USER_AGENT, "Accept": accept},
            timeout=timeout,
            follow_redirects=False,
        )
        response_limits.restrict(self)
