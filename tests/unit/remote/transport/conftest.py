"""A peer on a real socket that does what each test wants."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

Talk = Callable[[socket.socket], None]


class Peer:
    """A TLS server on a real socket that does what each test wants with a connection."""

    def __init__(self, context: ssl.SSLContext | None, talk: Talk) -> None:
        self._context, self._talk = context, talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.done = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Its base URL."""
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
        """Accept no more."""
        self.done.set()
        self._listener.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Signs the peer's certificate."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    """Its certificate."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path / "ca.pem"


@pytest.fixture
def peer(authority: trustme.CA) -> Iterator[Callable[[Talk], Peer]]:
    """Starts one."""
    peers: list[Peer] = []

    def start(talk: Talk, *, plain: bool = False) -> Peer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        peers.append(Peer(None if plain else context, talk))
        return peers[-1]

    yield start
    for each in peers:
        each.close()


def received(connection: socket.socket) -> bytes:
    """Some bytes; ends the conversation where the client has."""
    found = connection.recv(65536)
    if not found:
        raise ConnectionResetError
    return found


def request(connection: socket.socket) -> bytes:
    """The head of the request that comes."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += received(connection)
    return head
