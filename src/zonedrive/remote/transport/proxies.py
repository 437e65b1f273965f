"""Selection of the proxy for a host from the environment variables.

This module sends no requests.

INVARIANT: user and password of a proxy are in `Proxy.url` only.
"""

import os
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from zonedrive.errors import ProxyFailed

SCHEMES: Final = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


class Proxy(NamedTuple):
    """URL of a proxy, and the environment variable that contains the URL."""

    url: str
    variable: str

    def __repr__(self) -> str:
        return f"Proxy({self.place!r}, {self.variable!r})"

    @property
    def place(self) -> str:
        """Host and port of the proxy, without user and password."""
        return self._rest.rpartition("@")[2].split("/")[0]

    @property
    def has_user(self) -> bool:
        """True if the URL has a user and password."""
        return "@" in self._rest

    @property
    def is_socks(self) -> bool:
        """True if the proxy speaks SOCKS, not HTTP."""
        return self._scheme.startswith("socks")

    @property
    def is_usable(self) -> bool:
        """True if the URL has the form that libcurl requires."""
        try:
            parts = urlsplit(f"//{self.place}")
            port = parts.port
        except ValueError:
            return False
        has_space = any(char.isspace() for char in self.url)
        return self._scheme in SCHEMES and bool(parts.hostname) and port != 0 and not has_space

    @property
    def _scheme(self) -> str:
        scheme, mark, _ = self.url.partition("://")
        return scheme.lower() if mark else "http"

    @property
    def _rest(self) -> str:
        _, mark, rest = self.url.partition("://")
        return rest if mark else self.url


def proxy_for(host: str) -> Proxy | None:
    """Return the proxy for connections to `host`, or None for direct connections.

    `host` contains the port, unless the port is 443. As in other programs, `https_proxy` takes
    precedence over `all_proxy`, and lower case over upper case; `no_proxy` lists hosts to connect
    to directly.
    """
    proxies = getproxies()
    for name in ("https", "all"):
        if url := proxies.get(name):
            return None if proxy_bypass(host) else Proxy(url, _variable(f"{name}_proxy", url))
    return None


def _variable(name: str, url: str) -> str:
    """Return the exact name, in upper or lower case, of the variable that contains `url`.

    `name` is the name of the environment variable in lower case.
    """
    same = [each for each in os.environ if each.lower() == name and os.environ[each] == url]
    return name if name in same or not same else same[0]


class ProxyFailure(httpx.ProxyError):
    """Error for a proxy that did not connect to the service; `error` contains the reason.

    No part of the request was sent to the service.
    """

    def __init__(self, error: ProxyFailed) -> None:
        super().__init__(error.message)
        self.error = error
