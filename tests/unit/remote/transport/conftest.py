"""Peer on a real socket whose behaviour each test defines."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
import trustme

Talk = Callable[[socket.socket], None]
Value = TypeVar("Value")


class Peer:
    """TLS server on a real socket that handles a connection as the test says."""

    def __init__(self, context: ssl.SSLContext | None, talk: Talk) -> None:
        self._context, self._talk = context, talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.done = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"https://localhost:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._context is None:
                self._talk(connection)
            else:
                with self._context.wrap_socket(connection, server_side=True) as wrapped:
                    self._talk(wrapped)

    def close(self) -> None:
        """Stop accepting connections."""
        self.done.set()
        end_listening(self._listener)


def end_listening(listener: socket.socket) -> None:
    """Shut down a socket on which a thread accepts; closing alone would leave the thread
    waiting."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return the authority that signs the peer's certificate."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    """Return the file with the authority's certificate."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path / "ca.pem"


@pytest.fixture
def context(authority: trustme.CA) -> ssl.SSLContext:
    """Return the TLS context of the peer."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(made)
    return made


@pytest.fixture
def peer(context: ssl.SSLContext) -> Iterator[Callable[[Talk], Peer]]:
    """Yield a function that starts a peer."""
    peers: list[Peer] = []

    def start(talk: Talk, *, plain: bool = False) -> Peer:
        peers.append(Peer(None if plain else context, talk))
        return peers[-1]

    yield start
    for each in peers:
        each.close()


class Receiving(Protocol):
    """Source of received bytes."""

    def recv(self, size: int, /) -> bytes:
        """Return some bytes, none at the end."""


class Records:
    """Server side of TLS on a socket, which can send several records in one packet."""

    def __init__(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        self._connection = connection
        self._come, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._come, self._going, server_side=True)
        self._until(self._tls.do_handshake)

    def recv(self, size: int, /) -> bytes:
        """Return some bytes."""
        return self._until(lambda: self._tls.read(size))

    def sendall(self, *parts: bytes) -> None:
        """Send each part as a separate record, all at once."""
        for part in parts:
            self._tls.write(part)
        self._connection.sendall(self._going.read())

    def _until(self, step: Callable[[], Value]) -> Value:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._connection.sendall(self._going.read())
                self._come.write(received(self._connection))


def received(connection: Receiving) -> bytes:
    """Return some bytes; end the conversation if the client has closed."""
    found = connection.recv(65536)
    if not found:
        raise ConnectionResetError
    return found


def request(connection: Receiving) -> bytes:
    """Return the head of the next request."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += received(connection)
    return head
