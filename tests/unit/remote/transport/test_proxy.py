"""Connections through a proxy have the same guarantees."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trustme

from tests.unit.remote.transport.conftest import Peer, Talk, end_listening, request
from tests.unit.remote.transport.test_hostile_peer import WithMore, entry, ok, service_at, whole
from zonedrive import errors
from zonedrive.logon.api import open_access

pytestmark = pytest.mark.usefixtures("no_pauses")


class Proxy:
    """Proxy that forwards the data after CONNECT and counts the connections."""

    def __init__(self) -> None:
        self.made = 0
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = request(connection)
            self.heads.append(head)
            host, _, port = head.split()[1].decode().partition(":")
            with socket.create_connection((host, int(port))) as there:
                self.made += 1
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=pump, args=(connection, there), daemon=True).start()
                pump(there, connection)

    def close(self) -> None:
        """Stop accepting connections."""
        end_listening(self._listener)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Forward bytes until one of both sides closes."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Start a proxy and name it in the environment."""
    found = Proxy()
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, found.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield found
    found.close()


async def test_a_connection_through_a_proxy_is_kept(
    peer: Callable[[Talk], Peer], ca_file: Path, proxy: Proxy
) -> None:
    """One connection for small requests and one for content serve many requests each."""

    def talk(connection: socket.socket) -> None:
        while True:
            head = whole(connection)
            connection.sendall(ok(entry("e") if head.startswith(b"POST") else []))

    async with service_at(peer(talk), ca_file) as service:

        def threads() -> None:
            for _ in range(3):
                service.transfer.upload("z", "p", "n", [b"abc"], 3)
                with service.transfer.download("z", "f") as download:
                    assert b"".join(download) == b"[]"

        for _ in range(3):
            assert await service.zones() == []
            assert (await service.upload("z", "p", "n", b"abc")).id == "e"
        await trio.to_thread.run_sync(threads)
    assert proxy.made == 3  # the first shows that the service has no HTTP/2


async def test_extra_answers_behind_a_proxy_are_ignored(
    peer: Callable[..., Peer], ca_file: Path, context: ssl.SSLContext, proxy: Proxy
) -> None:
    """An extra answer is not used for uploads on the loop or in threads."""
    talk = WithMore(lambda name: ok(entry(name)), context, apart=False)
    async with service_at(peer(talk, plain=True), ca_file) as service:

        def threads() -> None:
            for number in (4, 5, 6):
                found = service.transfer.upload("z", "p", "n", [b"abc"], 3)
                assert (found.id, talk.asked) == (f"answer {number}", number)

        for number in (1, 2, 3):
            found = await service.upload("z", "p", "n", b"abc")
            assert (found.id, talk.asked) == (f"answer {number}", number)
        await trio.to_thread.run_sync(threads)
    assert proxy.made == 6


async def test_a_proxy_learns_no_bearer(
    peer: Callable[[Talk], Peer], ca_file: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy gets only the credentials in its address, and the service only the bearer."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy.url.replace("http://", "http://user:pass@"))
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heads.append(whole(connection))
        connection.sendall(ok([]))

    async with service_at(peer(talk), ca_file) as service:
        assert await service.zones() == []
    assert b"Bearer" not in proxy.heads[0]
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in proxy.heads[0]
    assert b"Bearer old" in heads[0]
    assert b"dXNlcjpwYXNz" not in heads[0]


async def test_a_host_without_a_proxy_is_asked_directly(
    peer: Callable[[Talk], Peer], ca_file: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy settings of the environment apply."""
    monkeypatch.setenv("no_proxy", "elsewhere.example,localhost")

    def talk(connection: socket.socket) -> None:
        whole(connection)
        connection.sendall(ok([]))

    async with service_at(peer(talk), ca_file) as service:
        assert await service.zones() == []
    assert proxy.made == 0


Start = Callable[..., Peer]
SECRET = "pa55word"


def refused(monkeypatch: pytest.MonkeyPatch, ca_file: Path, **variables: str) -> errors.ProxyFailed:
    """Return the error of a logon's first request, with these variables alone."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    async def ask() -> None:
        async with open_access("https://service.example", str(ca_file)) as access:
            await access.requirements()

    with pytest.raises(errors.ProxyFailed) as found:
        trio.run(ask)
    line = found.value.line()
    assert "\n" not in line
    assert SECRET not in line + repr(found.value.__cause__)
    return found.value


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, ca_file: Path, variable: str
) -> None:
    """The proxy and its variable are named, without the password."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    found = refused(monkeypatch, ca_file, **{variable: f"http://ann:{SECRET}@{place}/"})
    assert found.line() == (
        f"the proxy {place} (from {variable}) refused the connection;"
        f" check the proxy in {variable}, and the network"
    )


def test_a_proxy_with_an_unknown_name(monkeypatch: pytest.MonkeyPatch, ca_file: Path) -> None:
    """The name of the proxy is not mistaken for that of the service."""
    found = refused(monkeypatch, ca_file, https_proxy=f"http://ann:{SECRET}@proxy.invalid:3128")
    proxy = "proxy.invalid:3128 (from https_proxy)"
    assert found.message == f"the name of the proxy {proxy} is not known"


@pytest.mark.parametrize(
    "address",
    ["ftp://ann:pa55word@proxy:21", "http://ann:pa55word@[::1", "not a proxy", "http://p:999999"],
)
def test_an_address_that_is_no_proxy(
    monkeypatch: pytest.MonkeyPatch, ca_file: Path, address: str
) -> None:
    """The remedy shows the form of an address."""
    found = refused(monkeypatch, ca_file, HTTPS_PROXY=address)
    assert found.line() == (
        "HTTPS_PROXY does not hold the address of a proxy;"
        " set HTTPS_PROXY to http://PROXY:PORT, or unset it"
    )


@pytest.mark.parametrize(
    ("status", "user", "message", "remedy"),
    [
        (407, "", "demands a user and password (HTTP 407)", "set HTTPS_PROXY to http://USER:PASS"),
        (
            407, f"ann:{SECRET}@",
            "does not accept the user and password in HTTPS_PROXY (HTTP 407)",
            "correct them in HTTPS_PROXY",
        ),
        (
            403, "", "refuses connections to service.example (HTTP 403)",
            "ask its administrator, or put service.example into NO_PROXY",
        ),
        (502, "", "cannot reach service.example (HTTP 502)", "check the base URL"),
        (0, "", "ended the connection", "check the proxy in HTTPS_PROXY"),
    ],
)  # fmt: skip
def test_a_proxy_that_does_not_connect(
    monkeypatch: pytest.MonkeyPatch,
    peer: Start,
    ca_file: Path,
    status: int,
    user: str,
    message: str,
    remedy: str,
) -> None:
    """Each answer of a proxy has its remedy."""

    def talk(connection: socket.socket) -> None:
        request(connection)
        if status:
            connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)

    proxy = peer(talk, plain=True)
    found = refused(monkeypatch, ca_file, HTTPS_PROXY=f"http://{user}127.0.0.1:{proxy.port}")
    assert found.message == f"the proxy 127.0.0.1:{proxy.port} (from HTTPS_PROXY) {message}"
    assert found.remedy.startswith(remedy)


async def test_an_upload_through_a_proxy_that_refuses_had_no_effect(
    peer: Start, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount reports the same reason, and sends the file again later."""

    def talk(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    refusing = peer(talk, plain=True)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{refusing.port}")
    async with service_at(peer(talk), ca_file) as service:
        with pytest.raises(errors.ProxyFailed, match="407"):
            await service.upload("z", "p", "n", b"abc")
    assert service.link.state == "offline"
    assert "demands a user and password" in service.link.reason


def test_a_certificate_is_found_through_the_proxy(ca_file: Path, proxy: Proxy) -> None:
    """A proxy that inspects connections is recognized by its issuer."""
    other = trustme.CA(organization_name="Inspecting proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.issue_cert("localhost").configure_cert(context)
    server = Peer(context, lambda _connection: None)

    async def ask() -> None:
        async with open_access(server.url, str(ca_file)) as access:
            await access.requirements()

    try:
        with pytest.raises(errors.Untrusted, match="is issued by Inspecting proxy"):
            trio.run(ask)
    finally:
        server.close()
    assert len(proxy.heads) >= 2
