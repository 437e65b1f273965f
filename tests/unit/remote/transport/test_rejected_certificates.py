"""Certificates that are not trusted: the error has the reason and the remedy in one line.

Every certificate comes from a real TLS server, and every request is that of a command.
"""

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.remote.conftest import Place
from tests.unit.remote.transport.conftest import Peer, request
from tests.unit.remote.transport.test_hostile_peer import ok, service_at
from zonedrive import errors
from zonedrive.logon.api import open_access
from zonedrive.remote.probe import Probe
from zonedrive.remote.transport import tls

pytestmark = pytest.mark.usefixtures("no_pauses")

PAST = datetime.datetime(2025, 2, 1, 12, tzinfo=datetime.UTC)
FUTURE = datetime.datetime(2190, 3, 7, 12, tzinfo=datetime.UTC)
REQUIREMENTS = {"verificationCodeType": "None"}


class Server:
    """Peer with a given certificate; `asked` is set if it receives a request."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.asked = threading.Event()
        self.peer = Peer(context, self._talk)
        self.host = f"localhost:{self.peer.port}"

    def _talk(self, connection: socket.socket) -> None:
        request(connection)
        self.asked.set()
        connection.sendall(ok(REQUIREMENTS))


Serve = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Yield a function that starts a server with a certificate."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    servers: list[Server] = []

    def start(certificate: trustme.LeafCert | ssl.SSLContext) -> Server:
        context = certificate
        if isinstance(certificate, trustme.LeafCert):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
        assert isinstance(context, ssl.SSLContext)
        servers.append(Server(context))
        return servers[-1]

    yield start
    for each in servers:
        each.peer.close()


def refused(server: Server, ca_file: Path | None) -> errors.Unreachable:
    """Return the error of a first request for a logon, which is that of the other requests, too."""
    ca = None if ca_file is None else str(ca_file)

    async def ask() -> None:
        async with open_access(server.peer.url, ca) as access:
            await access.requirements()

    with pytest.raises(errors.Unreachable) as found:
        trio.run(ask)
    if ca_file is not None:
        with (
            Probe(Place(server.peer.url, ca_file)) as probe,
            pytest.raises(type(found.value)) as again,
        ):
            probe.service()
        assert again.value.line() == found.value.line()
    assert not server.asked.is_set()
    assert "\n" not in found.value.line()
    return found.value


def test_an_expired_certificate(serve: Serve, authority: trustme.CA, ca_file: Path) -> None:
    """The day is named, and --ca-file is no remedy."""
    server = serve(authority.issue_cert("localhost", not_after=PAST))
    wrong = refused(server, ca_file)
    assert wrong.line() == (
        f"the certificate of {server.host} expired on 1 February 2025; only the service's"
        " administrator can renew it; if that day is not past, check this computer's clock"
    )


def test_a_certificate_that_is_not_valid_yet(
    serve: Serve, authority: trustme.CA, ca_file: Path
) -> None:
    """A wrong clock of this computer is the most likely reason."""
    end = FUTURE.replace(year=2191)
    server = serve(authority.issue_cert("localhost", not_before=FUTURE, not_after=end))
    wrong = refused(server, ca_file)
    assert wrong.message == f"the certificate of {server.host} is valid only from 7 March 2190"
    assert wrong.remedy.startswith("check this computer's clock")


@pytest.mark.parametrize(
    "hosts",
    [["elsewhere.example"], ["*.example"], ["127.0.0.1"], ["other.localhost", "*.b.example"]],
)
def test_a_certificate_for_another_host(
    serve: Serve, authority: trustme.CA, ca_file: Path, hosts: list[str]
) -> None:
    """The error names both hosts."""
    wrong = refused(serve(authority.issue_cert(*hosts)), ca_file)
    assert isinstance(wrong, errors.OtherHost)
    assert wrong.message == f"the certificate is for {', '.join(hosts)}, not for localhost"
    assert "check the address" in wrong.remedy
    assert "--ca-file" not in wrong.line()


def test_a_certificate_of_another_authority(serve: Serve, ca_file: Path) -> None:
    """The issuer is named, and the file that does not have it."""
    other = trustme.CA(organization_name="Acme", organization_unit_name="IT")
    server = serve(other.issue_cert("localhost"))
    wrong = refused(server, ca_file)
    assert wrong.message == (
        f"the certificate of {server.host} is issued by Acme, which is not in {ca_file}"
    )
    assert wrong.remedy.startswith("log on with --ca-file and the right file")


def test_an_authority_that_the_system_does_not_know(serve: Serve, authority: trustme.CA) -> None:
    """The remedy for a service with an authority of its own is --ca-file."""
    wrong = refused(serve(authority.issue_cert("localhost")), None)
    assert "which is not in this computer's certificate store; " in wrong.line()
    assert "log on with --ca-file PEM" in wrong.remedy


def test_the_file_of_ssl_cert_file_is_named(
    serve: Serve, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE replaces the system's authorities."""
    file = tmp_path / "own.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    server = serve(authority.issue_cert("localhost"))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert f"not in {file} (from SSL_CERT_FILE); " in refused(server, None).line()
    authority.cert_pem.write_to_path(str(file))

    async def ask() -> object:
        async with open_access(server.peer.url, None) as access:
            return await access.requirements()

    assert trio.run(ask) is not None
    assert server.asked.is_set()


@pytest.mark.parametrize("text", [None, "", "nonsense"])
def test_an_unusable_ssl_cert_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """The variable is named; OpenSSL would ignore it without a message."""
    file = tmp_path / "own.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(errors.ConfigError, match=r"SSL_CERT_FILE: .*own\.pem") as found:
        tls.trust()
    assert found.value.remedy == "correct SSL_CERT_FILE, or unset it"


def self_signed(file: Path, names: x509.ExtensionType) -> ssl.SSLContext:
    """Return a context with a new certificate for `names`; the certificate is written to `file`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_self_signed_certificate(serve: Serve, ca_file: Path, tmp_path: Path) -> None:
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    server = serve(self_signed(tmp_path / "self.pem", names))
    wrong = refused(server, ca_file)
    assert wrong.message == f"the certificate of {server.host} is self-signed and not in {ca_file}"


def test_a_certificate_that_cannot_be_explained(
    serve: Serve, ca_file: Path, tmp_path: Path
) -> None:
    """A certificate with a name of an unknown kind (an X.400 address) is not trusted, either."""
    x400 = x509.UnrecognizedExtension(x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"0\2\xa3\0")
    server = serve(self_signed(tmp_path / "odd.pem", x400))
    wrong = refused(server, ca_file)
    assert isinstance(wrong, errors.Untrusted)
    assert f"the certificate of {server.host} is not trusted" in wrong.message


def test_only_old_versions_of_tls(serve: Serve, authority: trustme.CA, ca_file: Path) -> None:
    """The address is right; only the administrator can help."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    server = serve(context)
    wrong = refused(server, ca_file)
    assert isinstance(wrong, errors.NoTls)
    assert wrong.message == (
        f"{server.host} supports only versions of TLS that are no longer secure (before 1.2)"
    )


def test_a_port_without_tls(
    peer: Callable[..., Peer], ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port of another service, which speaks no TLS, is reported as such."""
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    other = peer(lambda connection: connection.sendall(b"220 mail.example ESMTP\r\n"), plain=True)
    with Probe(Place(other.url, ca_file)) as probe, pytest.raises(errors.NoTls) as found:
        probe.service()
    assert f"localhost:{other.port} answers, but not with TLS" in found.value.message
    assert found.value.remedy == "check the address and its port"


async def test_content_has_the_same_error(
    serve: Serve, authority: trustme.CA, ca_file: Path
) -> None:
    """An upload and a download in a thread, which a mount does, name the reason as well."""
    server = serve(authority.issue_cert("localhost", not_after=PAST))
    async with service_at(server.peer, ca_file) as service:

        def download() -> None:
            with service.transfer.download("z", "f") as found:
                list(found)

        with pytest.raises(errors.Untrusted, match="expired on 1 February 2025"):
            await service.upload("z", "p", "n", b"abc")
        with pytest.raises(errors.Untrusted, match="expired on 1 February 2025"):
            await trio.to_thread.run_sync(download)
    assert not server.asked.is_set()
    assert service.link.reason.startswith(f"the certificate of {server.host} expired on")
