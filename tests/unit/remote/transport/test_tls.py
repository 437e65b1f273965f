"""Trusted certificate authorities."""

import ssl
from pathlib import Path

import pytest
import trustme

from zonedrive.errors import ConfigError
from zonedrive.remote.transport import tls


def test_without_a_file_the_systems_authorities_are_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    found = tls.trust()
    paths = ssl.get_default_verify_paths()
    assert (found.file, found.folder) == (paths.cafile, paths.capath)


def test_a_system_without_authorities_has_certifis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container without certificates can connect to a public deployment."""
    (tmp_path / "certs").mkdir()
    nothing = ssl.DefaultVerifyPaths(
        "", str(tmp_path / "certs"), "SSL_CERT_FILE", "", "SSL_CERT_DIR", ""
    )
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    found = tls.trust()
    assert found.folder is None
    assert found.file is not None
    assert Path(found.file).read_text().count("BEGIN CERTIFICATE") > 50


@pytest.mark.parametrize(
    "text",
    [None, "", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n",
     trustme.CA().private_key_pem.bytes().decode()],
    ids=["missing", "empty", "no PEM", "a broken certificate", "a private key"],
)  # fmt: skip
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, text: str | None) -> None:
    """The error is one line that names the file."""
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"ca\.pem") as refused:
        tls.trust(file)
    assert "\n" not in refused.value.line()
