"""Mapping from libcurl errors to httpx exceptions.

Knows nothing about requests.

INVARIANT: an error that reports a missing connection is returned only if nothing was sent.
"""

import os
import socket
import ssl
from typing import Final

import httpx
import pycurl

_NAME: Final = frozenset({pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY})
_CERTIFICATE: Final = frozenset({pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_ISSUER_ERROR, 91})
_BROKEN: Final = frozenset({pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR})
_ADDRESS: Final = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, pycurl.E_URL_MALFORMAT})


def failure(code: int, text: str, system: int, *, sent: bool, tunnel: int) -> httpx.TransportError:
    """Return the exception for libcurl's `code`.

    `system` is the errno of the failed system call, `sent` says that a part of the request was
    sent, `tunnel` is the status of a proxy's answer.
    """
    if code in _ADDRESS:
        return httpx.UnsupportedProtocol(text)
    if tunnel >= 300 and not sent:
        return httpx.ProxyError(f"the proxy answers {tunnel}")
    cause: Exception | None = None
    if code == pycurl.E_COULDNT_CONNECT and system:
        cause = OSError(system, os.strerror(system))
    elif code in _NAME:
        cause = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    elif code in _CERTIFICATE:
        cause = ssl.SSLCertVerificationError(1, text)
    elif not sent and code not in _BROKEN and code != pycurl.E_COULDNT_CONNECT:
        cause = ssl.SSLError(1, text)
    if not sent:
        kind: type[httpx.TransportError] = httpx.ConnectError
    elif code == pycurl.E_SEND_ERROR:
        kind = httpx.WriteError
    else:
        kind = httpx.ReadError if code == pycurl.E_RECV_ERROR else httpx.RemoteProtocolError
    found = kind(text)
    found.__cause__ = cause
    return found
