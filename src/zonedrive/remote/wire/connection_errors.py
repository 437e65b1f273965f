"""Errors of a connection that a proxy, a certificate or TLS prevented: one line with the remedy.

Knows nothing about requests: nothing was sent, so nothing was done.
"""

import errno
import os
import ssl

from zonedrive.errors import NoTls, OtherHost, ProxyFailed, Untrusted
from zonedrive.formatting import plain_text
from zonedrive.remote.transport.proxies import ProxyFailure
from zonedrive.remote.transport.tls import CertificateRejected, Fault, OldTls


def by_proxy(wrong: ProxyFailure, host: str) -> ProxyFailed:
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


def untrusted(wrong: ssl.SSLCertVerificationError, host: str) -> Untrusted:
    """Return the error for the certificate of `host`."""
    if not isinstance(wrong, CertificateRejected):
        said = f"the certificate of {host} is not trusted ({plain_text(str(wrong))})"
        return Untrusted(said, remedy=_OWN)
    detail, trust = plain_text(wrong.detail), wrong.trust
    whose = f"the certificate of {host}"
    if wrong.of_authority:
        whose = f"the certificate of an authority of {host}"
    match wrong.fault:
        case Fault.EXPIRED | Fault.NOT_YET_VALID:
            verb = "expired on" if wrong.fault is Fault.EXPIRED else "is valid only from"
            found = Untrusted(f"{whose} {verb} {detail}", remedy=_RENEW[wrong.fault])
            found.is_renewable = True
            return found
        case Fault.OTHER_HOST:
            name = host.rpartition(":")[0] or host
            said = f"the certificate is for {detail}, not for {name}"
            return OtherHost(said, remedy="check the address, and if the network asks for a logon")
        case Fault.SELF_SIGNED:
            said = f"{whose} is self-signed and not in {trust.name}"
        case Fault.UNKNOWN_AUTHORITY:
            said = f"{whose} is issued by {detail or 'an authority'}, which is not in {trust.name}"
    return Untrusted(said, remedy=_OTHER if trust.is_given else _OWN)


def no_tls(wrong: ssl.SSLError, host: str) -> NoTls:
    """Return the error for a failed TLS handshake with `host`."""
    if isinstance(wrong, OldTls):
        said = f"{host} supports only versions of TLS that are no longer secure (before 1.2)"
        return NoTls(said, remedy="only the service's administrator can change that")
    # libcurl repeats its own words before those of the library.
    why = plain_text(str(wrong.args[-1]).rpartition("::")[2])
    said = f"{host} answers, but not with TLS ({why})"
    return NoTls(said, remedy="check the address and its port")


_OWN = (
    "if this is your organization's own authority, log on with --ca-file PEM; if it was trusted"
    " before, ask the administrator"
)
_OTHER = "log on with --ca-file and the right file; if it was trusted before, ask the administrator"
_RENEW = {
    Fault.EXPIRED: "only the service's administrator can renew it; if that day is not past, check"
    " this computer's clock",
    Fault.NOT_YET_VALID: "check this computer's clock; if it is right, ask the service's"
    " administrator",
}
