"""Base URL of a deployment, validated and normalized."""

import contextlib
import re
from urllib.parse import urlsplit

from zonedrive.errors import ConfigError

_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*\])", re.ASCII)
_SECRET = re.compile(r"^([a-z]+://)?.*@", re.IGNORECASE | re.DOTALL)


def base_url(text: str) -> str:
    """Return the base URL in `text` as `https://host` or `https://host:port`.

    For a bare host name, the scheme is added; trailing slashes are removed. Raises ConfigError for
    plain HTTP, and for any part besides scheme, host and port (paths, queries, passwords).
    """
    stripped = text.strip()
    if not stripped:
        raise ConfigError("the base URL is empty", remedy="give one such as https://zones.example")
    if not re.match("https?:|.*://", stripped, re.IGNORECASE | re.DOTALL):
        stripped = f"https://{stripped}"
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        wrong = "…" if "@" in stripped else str(error)  # the error may quote a part of a password
        raise ConfigError(f"{_shown(text)} is not a URL ({wrong})") from None
    remedy = ""
    if parts.scheme.lower() == "http":
        problem = "is plain HTTP, which the service refuses and zonedrive never uses"
        remedy = "give the https:// address"
    elif parts.scheme.lower() != "https":
        problem = "is not an https:// address"
    elif parts.username is not None or parts.password is not None:
        # The message leaves out the text, because it may contain a password.
        raise ConfigError("a base URL holds no user name or password", remedy="use --username")
    elif not (host := _ascii_host(host, is_bracketed="[" in parts.netloc)):
        problem, remedy = "names no host", "give one such as https://zones.example"
    elif parts.path.strip("/") or parts.query or parts.fragment:
        problem, remedy = "has more than scheme and host", f"give only https://{parts.netloc}"
    else:
        return f"https://{host}" if port in (None, 443) else f"https://{host}:{port}"
    raise ConfigError(f"{_shown(text)} {problem}", remedy=remedy)


def _ascii_host(host: str, *, is_bracketed: bool) -> str:
    """Return `host` in ASCII, or "" if `host` is not a valid host name or IP address.

    `is_bracketed` is True if the host is in brackets in the URL, as an IPv6 address is. In this
    case, the result has brackets, but `host` has none.
    """
    host = f"[{host}]" if is_bracketed else host
    if not _HOST.fullmatch(host):
        import idna  # most addresses do not need it

        # Python's own codec follows the rules of 2003, by which ß becomes ss: another host.
        with contextlib.suppress(UnicodeError):
            host = idna.encode(host, uts46=True).decode("ascii")
    return host if _HOST.fullmatch(host) else ""


def _shown(text: str) -> str:
    return repr(_SECRET.sub(r"\1…@", text.strip())[:200])
