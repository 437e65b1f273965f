"""A proxy in between: the same promises over the connections that it makes."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.unit.remote.transport.conftest import Peer, Talk, request
from tests.unit.remote.transport.test_hostile_peer import WithMore, entry, ok, opened, whole


class Proxy:
    """Passes on what is sent through CONNECT; counts the connections."""

    def __init__(self) -> None:
        self.made = 0
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
            host, _, port = request(connection).split()[1].decode().partition(":")
            with socket.create_connection((host, int(port))) as there:
                self.made += 1
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=pump, args=(connection, there), daemon=True).start()
                pump(there, connection)

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one of both ends."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """One that the environment names."""
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
    """One for small requests and one for content serve many requests each."""

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
    assert proxy.made == 2


async def test_a_ready_made_answer_is_none_behind_a_proxy(
    peer: Callable[[Talk], Peer], ca_file: Path, proxy: Proxy
) -> None:
    """Neither for uploads on the loop nor for those in threads."""
    talk = WithMore(lambda name: ok(entry(name)), apart=False)
    service = opened(peer(talk), ca_file)

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
