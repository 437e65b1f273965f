"""Trusted certificate authorities for all connections of a process to a service, and TLS errors.

This module opens no connections and sends no requests.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zonedrive.config import unless_policy
from zonedrive.errors import ConfigError, Unreachable
from zonedrive.paths import require_file
from zonedrive.translation import marked

OWN_AUTHORITY: Final = (
    "if this is your organization's own authority, log on with --ca-file PEM; if it was trusted"
    " before, ask the administrator"
)
OTHER_FILE: Final = (
    "log on with --ca-file and the right file; if it was trusted before, ask the administrator"
)


@dataclass(frozen=True)
class Trust:
    """Location of the trusted authorities' certificates: a PEM file, a folder, or both."""

    file: str | None
    folder: str | None = None
    is_same: bool = False  # file and folder hold the same certificates
    variable: str = ""  # environment variable that names the file
    is_given: bool = False  # by the account or --ca-file, not by the system

    @property
    def name(self) -> str:
        """Location of the trusted CA certificates, as shown in error messages."""
        if self.variable:
            return f"{self.file} (from {self.variable})"
        return str(self.file) if self.is_given else marked("this computer's certificate store")

    @property
    def remedy(self) -> str:
        """Remedy for a certificate whose authority is not trusted."""
        return unless_policy("ca_file", marked(OTHER_FILE if self.is_given else OWN_AUTHORITY))


class Explained(ssl.SSLError):
    """TLS error whose reason was found; `error` contains the reason and the remedy."""

    def __init__(self, error: Unreachable) -> None:
        super().__init__(1, error.message)
        self.error = error


def trust(ca_file: str | Path | None = None) -> Trust:
    """Return the trusted authorities: those in `ca_file` (PEM) only, or by default the system's.

    On a system without authorities, such as a bare container, the authorities of certifi are used.
    Raises ConfigError if `ca_file`, or the file that SSL_CERT_FILE names, is missing or contains no
    certificate.
    """
    if ca_file is None:
        return _system()
    remedy = unless_policy("ca_file", "give a file with certificates in PEM form to --ca-file")
    _require_certificate(ca_file, remedy)
    return Trust(str(ca_file), is_given=True)


def _require_certificate(ca_file: str | Path, remedy: str, variable: str = "") -> None:
    named = f"{variable}: " if variable else ""
    require_file(Path(ca_file))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        made.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as wrong:
        reason = getattr(wrong, "strerror", None) or wrong
        raise ConfigError(
            f"{named}{ca_file} cannot be used as certificate authority ({reason})", remedy=remedy
        ) from wrong
    if not made.cert_store_stats()["x509"]:
        raise ConfigError(f"{named}{ca_file} holds no certificate", remedy=remedy)


def _system() -> Trust:
    """Return OpenSSL's default CA certificate locations, or certifi's bundle if these are empty."""
    paths = ssl.get_default_verify_paths()
    variable = paths.openssl_cafile_env
    wanted = os.environ.get(variable, "")
    if wanted:  # OpenSSL itself would ignore a missing file
        remedy = f"correct {variable}, or unset it"
        _require_certificate(wanted, remedy, variable)
    file = paths.cafile if paths.cafile and Path(paths.cafile).stat().st_size else None
    folder = paths.capath if paths.capath and any(Path(paths.capath).glob("*.0")) else None
    if not (file or folder):
        import certifi  # imported here because most systems do not need it

        file = certifi.where()
    return Trust(file, folder, is_same=not wanted, variable=variable if wanted else "")
