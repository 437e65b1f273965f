"""Whom we trust: the one TLS context that every connection of a process to a service uses.

Must not know addresses or requests.

INVARIANT: certificates and host names are always verified, TLS is 1.2 or later.
"""

import os
import ssl
from pathlib import Path

from zonedrive.errors import ConfigError
from zonedrive.paths import require_file


def context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """A client context that trusts `ca_file` (PEM) alone, or else this system's authorities.

    Where the system has none (a bare container), certifi's stand in.  Raises ConfigError where
    `ca_file` is missing or holds no certificate.
    """
    if ca_file is not None:
        require_file(Path(ca_file))
    try:
        if ca_file is not None:
            made = ssl.create_default_context(cafile=str(ca_file))
        elif _system_store():
            made = ssl.create_default_context()
        else:
            import certifi  # only here: a system with a store needs none of it

            made = ssl.create_default_context(cafile=certifi.where())
    except (OSError, ssl.SSLError) as wrong:
        reason = getattr(wrong, "strerror", None) or wrong
        raise ConfigError(
            f"{ca_file} cannot be used as certificate authority ({reason})",
            remedy="give a file with certificates in PEM form to --ca-file",
        ) from wrong
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None and not made.cert_store_stats()["x509"]:
        raise ConfigError(
            f"{ca_file} holds no certificate",
            remedy="give a file with the authority's certificate in PEM form to --ca-file",
        )
    return made


def _system_store() -> bool:
    paths = ssl.get_default_verify_paths()
    if paths.cafile and Path(paths.cafile).stat().st_size:
        return True
    if not paths.capath:
        return False
    with os.scandir(paths.capath) as found:
        return any(found)
