"""Errors of a connection that a proxy prevented: one line with the remedy.

Knows nothing about requests: nothing was sent, so nothing was done.
"""

import errno
import os
import ssl

from zonedrive.errors import ProxyFailed
from zonedrive.formatting import plain_text
from zonedrive.remote.transport.proxies import ProxyFailure


def proxy_error(wrong: ProxyFailure, host: str) -> ProxyFailed:
    """Return the error for a proxy that did not connect to `host`."""
    proxy, cause = wrong.proxy, wrong.__cause__
    named = f"the proxy {plain_text(proxy.place)} (from {proxy.variable})"
    remedy = f"check the proxy in {proxy.variable}, and the network"
    if not proxy.is_usable:
        said = f"{proxy.variable} does not hold the address of a proxy"
        remedy = f"set {proxy.variable} to http://PROXY:PORT, or unset it"
    elif isinstance(cause, ssl.SSLError):
        said = f"the certificate of {named} is not trusted"
        remedy = "ask the administrator of the proxy for its certificate authority"
    elif isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED:
        said = f"{named} refused the connection"
    elif isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        said = f"{named} cannot be reached ({os.strerror(cause.errno)})"
    elif isinstance(cause, OSError):  # of the resolver
        said = f"the name of {named} is not known"
        remedy = f"correct {proxy.variable}, or check the network"
    elif wrong.status == 407 and proxy.has_user:
        said = f"{named} does not accept the user and password in {proxy.variable} (HTTP 407)"
        remedy = f"correct them in {proxy.variable}"
    elif wrong.status == 407:
        said = f"{named} demands a user and password (HTTP 407)"
        remedy = f"set {proxy.variable} to http://USER:PASSWORD@{plain_text(proxy.place)}"
    elif wrong.status >= 500:
        said = f"{named} cannot reach {host} (HTTP {wrong.status})"
        remedy = "check the base URL, or try again later"
    elif wrong.status:
        said = f"{named} refuses connections to {host} (HTTP {wrong.status})"
        name = host.rpartition(":")[0] or host
        remedy = f"ask its administrator, or put {name} into NO_PROXY"
    else:
        said = f"{named} ended the connection"
    return ProxyFailed(said, remedy=remedy)
