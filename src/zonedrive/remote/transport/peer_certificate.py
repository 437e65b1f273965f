"""Diagnosis of a server's certificate that was not trusted, or of a failed TLS handshake.

TLS libraries report the reason as text, which differs from library to library. Therefore
`explain` opens another connection (through the same proxy), examines the server's certificate, and
closes the connection after the handshake.

INVARIANT: no request is sent on a connection whose certificate was not verified.
"""

import contextlib
import ipaddress
import ssl
import time
from datetime import UTC, datetime
from typing import Final

import httpx
import pycurl
from cryptography import x509

from zonedrive.errors import NoTls, OtherHost, Untrusted
from zonedrive.formatting import plain_text
from zonedrive.remote.transport.engine import GNUTLS, configure
from zonedrive.remote.transport.proxies import proxy_for
from zonedrive.remote.transport.tls import Explained, Trust
from zonedrive.translation import marked

SECONDS: Final = 5  # timeout of the additional connection
_OLD: Final[int] = pycurl.SSLVERSION_TLSv1_0 | pycurl.SSLVERSION_MAX_TLSv1_1


def explain(wrong: httpx.TransportError, trust: Trust, url: httpx.URL) -> None:
    """Set `__cause__` of the TLS error `wrong` to an `Explained` error, if a reason can be found.

    Opens another connection to `url`. Blocks for up to SECONDS seconds.
    """
    cause = wrong.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        with contextlib.suppress(Exception):  # an untrusted certificate may be malformed in any way
            if chain := _presented(trust, url):
                wrong.__cause__ = Explained(_untrusted(chain, url, trust))
    elif isinstance(cause, ssl.SSLError) and _presented(trust, url, old=True):
        host = url.netloc.decode()
        said = f"{host} supports only versions of TLS that are no longer secure (before 1.2)"
        remedy = "only the service's administrator can change that"
        wrong.__cause__ = Explained(NoTls(said, remedy=remedy))


def _untrusted(chain: list[x509.Certificate], url: httpx.URL, trust: Trust) -> Untrusted:
    """Return the error for an untrusted certificate chain; the server's certificate comes first."""
    host = url.netloc.decode()
    now = datetime.fromtimestamp(time.time(), UTC)
    for each in chain:
        whose = host if each is chain[0] else marked(f"an authority of {host}")
        start, end = each.not_valid_before_utc, each.not_valid_after_utc
        if not start <= now <= end:
            said = f"the certificate of {whose} is valid only from {_day(start)}"
            if now > end:
                said = f"the certificate of {whose} expired on {_day(end)}"
            found = Untrusted(said, remedy=_EXPIRED if now > end else _NOT_YET_VALID)
            found.is_renewable = True
            return found
    own, hosts = chain[0], _hosts(chain[0])
    if not any(_matches(each, url.host) for each in hosts):
        shown = ", ".join(hosts[:3]) + (", …" if len(hosts) > 3 else "") or "no host"
        return OtherHost(
            f"the certificate is for {plain_text(shown)}, not for {url.host}",
            remedy="check the address, and if the network asks for a logon",
        )
    if own.issuer == own.subject:
        said = f"the certificate of {host} is self-signed and not in {trust.name}"
    else:
        issuer = plain_text(_named(chain[-1].issuer)) or "an authority"
        said = f"the certificate of {host} is issued by {issuer}, which is not in {trust.name}"
    return Untrusted(said, remedy=trust.remedy)


_EXPIRED: Final = (
    "only the service's administrator can renew it; if that day is not past, check this computer's"
    " clock"
)
_NOT_YET_VALID: Final = (
    "check this computer's clock; if it is right, ask the service's administrator"
)


def _presented(trust: Trust, url: httpx.URL, *, old: bool = False) -> list[x509.Certificate]:
    """Return the certificates that the server presents, or an empty list if TLS fails.

    If `old`, offer only TLS versions before 1.2.
    """
    easy = pycurl.Curl()
    try:
        configure(easy, trust, proxy_for(url.netloc.decode()))
        easy.setopt(pycurl.URL, b"https://" + url.netloc)
        easy.setopt(pycurl.CONNECT_ONLY, 1)
        easy.setopt(pycurl.OPT_CERTINFO, 1)
        easy.setopt(pycurl.SSL_VERIFYPEER, 0)
        easy.setopt(pycurl.SSL_VERIFYHOST, 0)
        easy.setopt(pycurl.TIMEOUT, SECONDS)
        if old:
            easy.setopt(pycurl.SSLVERSION, _OLD)
            if not GNUTLS:
                easy.setopt(pycurl.SSL_CIPHER_LIST, "DEFAULT@SECLEVEL=0")
        with contextlib.suppress(pycurl.error, ValueError):
            easy.perform()
            texts = [dict(each).get("Cert", "") for each in easy.getinfo(pycurl.INFO_CERTINFO)]
            return [x509.load_pem_x509_certificate(text.encode()) for text in texts if text]
        return []
    finally:
        easy.close()


def _hosts(certificate: x509.Certificate) -> list[str]:
    with contextlib.suppress(x509.ExtensionNotFound, ValueError):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = found.get_values_for_type(x509.DNSName)
        return names + [str(each) for each in found.get_values_for_type(x509.IPAddress)]
    return []


def _matches(name: str, host: str) -> bool:
    """Return True if a name of a certificate covers `host`; a wildcard covers one label."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) == ipaddress.ip_address(name)
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    if name.startswith("*."):
        return host.partition(".")[2] == name[2:]
    return name == host


def _named(issuer: x509.Name) -> str:
    for kind in (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME):
        for each in issuer.get_attributes_for_oid(kind):
            return str(each.value)
    return ""


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"
