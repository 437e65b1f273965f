"""Certificate authority and server certificate of the sandbox.

The authority is stored in the data folder, so that clients still trust it after a restart. Each
start creates a new server certificate. The server accepts only TLS 1.2 or later.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme

from zonedrive.sandbox.errors import SandboxError, unusable


@dataclass(frozen=True, slots=True)
class Certificates:
    """TLS context of the server, and the file with the CA certificate that clients must trust."""

    context: ssl.SSLContext
    ca_file: Path


def prepare(data: Path, host: str) -> Certificates:
    """Create a server certificate for `host`; return its TLS context and the path of the CA file.

    The first start creates the authority in `data`. The server certificate is valid for `host`,
    localhost and the loopback addresses. Raises SandboxError if a certificate cannot be created.
    """
    ca_file, key_file = data / "ca.pem", data / "ca.key"
    try:
        if ca_file.exists() and key_file.exists():
            authority = trustme.CA.from_pem(ca_file.read_bytes(), key_file.read_bytes())
        else:
            authority = trustme.CA(organization_name="zonedrive sandbox")
            _write(key_file, authority.private_key_pem.bytes(), 0o600)
            _write(ca_file, authority.cert_pem.bytes(), 0o644)
        names = dict.fromkeys([host, "localhost", "127.0.0.1", "::1"])
        certificate = authority.issue_cert(*names)
    except OSError as wrong:
        raise unusable(data, wrong) from wrong
    except ValueError as wrong:
        raise SandboxError(f"cannot make a certificate for {host} in {data}: {wrong}") from wrong
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    certificate.configure_cert(context)
    return Certificates(context, ca_file)


def _write(path: Path, content: bytes, mode: int) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    part.rename(path)
