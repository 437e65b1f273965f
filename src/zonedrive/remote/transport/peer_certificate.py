"""Reason for which a server's certificate was not trusted, or TLS failed.

TLS libraries report a reason as text, each in its own words. So the certificate is looked at here:
another connection gets it, through the same proxy, and ends after the TLS handshake.

INVARIANT: nothing is sent on a connection whose certificate was not verified.
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

from zonedrive.remote.transport.engine import GNUTLS, configure
from zonedrive.remote.transport.proxies import proxy_for
from zonedrive.remote.transport.tls import CertificateRejected, Fault, OldTls, Trust

SECONDS: Final = 5  # of that connection
_OLD: Final[int] = pycurl.SSLVERSION_TLSv1_0 | pycurl.SSLVERSION_MAX_TLSv1_1


def explain(wrong: httpx.TransportError, trust: Trust, url: httpx.URL) -> None:
    """Make the reason of a TLS error its cause, if the reason can be found. Blocks."""
    cause = wrong.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        chain = _presented(trust, url)
        if chain:
            wrong.__cause__ = reason(chain, url.host, trust)
    elif isinstance(cause, ssl.SSLError) and _presented(trust, url, old=True):
        wrong.__cause__ = OldTls(1, "no TLS 1.2")


def reason(chain: list[x509.Certificate], host: str, trust: Trust) -> CertificateRejected:
    """Return the reason why `chain` (the server's certificate first) is not trusted."""
    now = datetime.fromtimestamp(time.time(), UTC)
    for each in chain:
        of_authority = each is not chain[0]
        if now > each.not_valid_after_utc:
            day = _day(each.not_valid_after_utc)
            return CertificateRejected(Fault.EXPIRED, day, trust, of_authority=of_authority)
        if now < each.not_valid_before_utc:
            day = _day(each.not_valid_before_utc)
            return CertificateRejected(Fault.NOT_YET_VALID, day, trust, of_authority=of_authority)
    own = chain[0]
    hosts = _hosts(own)
    if not any(_matches(each, host) for each in hosts):
        shown = ", ".join(hosts[:3]) + (", …" if len(hosts) > 3 else "")
        return CertificateRejected(Fault.OTHER_HOST, shown or "no host", trust)
    if own.issuer == own.subject:
        return CertificateRejected(Fault.SELF_SIGNED, "", trust)
    return CertificateRejected(Fault.UNKNOWN_AUTHORITY, _named(chain[-1].issuer), trust)


def _presented(trust: Trust, url: httpx.URL, *, old: bool = False) -> list[x509.Certificate]:
    """Return the certificates that the server presents; `old`: in TLS before 1.2.

    Returns an empty list if there is no such connection.
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
    """Return the host names and addresses of a certificate."""
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
    """Return the name of an authority; "" if it has none."""
    for kind in (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME):
        for each in issuer.get_attributes_for_oid(kind):
            return str(each.value)
    return ""


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"
