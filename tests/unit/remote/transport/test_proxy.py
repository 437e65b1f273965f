"""Connections through a proxy have the same guarantees."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.unit.remote.transport.conftest import Peer, Talk, end_listening, request
from tests.unit.remote.transport.test_hostile_peer import WithMore, entry, ok, opened, whole
from zonedrive import errors


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

    service = opened(peer(talk), ca_file)

    def threads() -> None:
        for _ in range(3):
            service.transfer.upload("z", "p", "n", [b"abc"], 3)
            with service.transfer.download("z", "f") as download:
                assert b"".join(download) == b"[]"

    try:
        with trio.fail_after(30):
            for _ in range(3):
                assert await service.zones() == []
                assert (await service.upload("z", "p", "n", b"abc")).id == "e"
            await trio.to_thread.run_sync(threads)
    finally:
        await service.aclose()
    assert proxy.made == 3  # the first shows that the service has no HTTP/2


async def test_a_ready_made_answer_is_none_behind_a_proxy(
    peer: Callable[..., Peer], ca_file: Path, context: ssl.SSLContext, proxy: Proxy
) -> None:
    """An extra answer is not used for uploads on the loop or in threads."""
    talk = WithMore(lambda name: ok(entry(name)), context, apart=False)
    service = opened(peer(talk, plain=True), ca_file)

    def threads() -> None:
        for number in (4, 5, 6):
            found = service.transfer.upload("z", "p", "n", [b"abc"], 3)
            assert (found.id, talk.asked) == (f"answer {number}", number)

    try:
        with trio.fail_after(30):
            for number in (1, 2, 3):
                found = await service.upload("z", "p", "n", b"abc")
                assert (found.id, talk.asked) == (f"answer {number}", number)
            await trio.to_thread.run_sync(threads)
    finally:
        await service.aclose()
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

    service = opened(peer(talk), ca_file)
    try:
        with trio.fail_after(30):
            assert await service.zones() == []
    finally:
        await service.aclose()
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

    service = opened(peer(talk), ca_file)
    try:
        with trio.fail_after(30):
            assert await service.zones() == []
    finally:
        await service.aclose()
    assert proxy.made == 0


async def test_a_proxy_that_refuses_is_named(
    peer: Callable[..., Peer], ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the proxy; the request had no effect."""

    def talk(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    refusing = peer(talk, plain=True)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{refusing.port}")
    service = opened(peer(talk), ca_file)
    try:
        with trio.fail_after(30), pytest.raises(errors.Unreachable, match="407"):
            await service.upload("z", "p", "n", b"abc")
    finally:
        await service.aclose()
