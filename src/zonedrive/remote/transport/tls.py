"""Trusted certificate authorities for all connections of a process to a service.

Knows nothing about addresses or requests.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from zonedrive.errors import ConfigError
from zonedrive.paths import require_file


@dataclass(frozen=True)
class Trust:
    """Location of the authorities' certificates: a PEM file, a folder, or both."""

    file: str | None
    folder: str | None = None
    is_same: bool = False  # both hold the same certificates


def trust(ca_file: str | Path | None = None) -> Trust:
    """Return the trust in `ca_file` (PEM) alone, or in the system's authorities.

    A system without authorities (a bare container) uses those of certifi. Raises ConfigError if
    `ca_file` is missing or holds no certificate.
    """
    if ca_file is None:
        return _system()
    require_file(Path(ca_file))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        made.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as wrong:
        reason = getattr(wrong, "strerror", None) or wrong
        raise ConfigError(
            f"{ca_file} cannot be used as certificate authority ({reason})",
            remedy="give a file with certificates in PEM form to --ca-file",
        ) from wrong
    if not made.cert_store_stats()["x509"]:
        raise ConfigError(
            f"{ca_file} holds no certificate",
            remedy="give a file with the authority's certificate in PEM form to --ca-file",
        )
    return Trust(str(ca_file))


def _system() -> Trust:
    """Return the default locations of the system's OpenSSL that contain certificates."""
    paths = ssl.get_default_verify_paths()
    file = paths.cafile if paths.cafile and Path(paths.cafile).stat().st_size else None
    folder = paths.capath if paths.capath and any(Path(paths.capath).glob("*.0")) else None
    if not (file or folder):
        import certifi  # imported here because most systems do not need it

        file = certifi.where()
    return Trust(file, folder, not os.environ.get(paths.openssl_cafile_env))
