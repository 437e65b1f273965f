"""Real connections with faulty peers: every test ends."""

import contextlib
import gc
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trio

from tests.unit.remote.transport.conftest import Peer, Talk, received, request
from tests.unit.remote.transport.test_hostile_peer import entry, ok, service_at, transfer, whole
from zonedrive import errors
from zonedrive.remote import requests
from zonedrive.remote.clients import BlockingClient, read_body_blocking
from zonedrive.remote.transfer import CHUNK
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.transports import BlockingTransport
from zonedrive.remote.urls import Request


def drip(connection: socket.socket, done: threading.Event) -> None:
    """Send one byte at a time until the peer closes."""
    while not done.wait(0.02):
        connection.sendall(b"x")


class Dripping:
    """Peer that sends `head` and then single bytes, until it is closed."""

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.done = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        request(connection)
        connection.sendall(self.head)
        drip(connection, self.done)


def test_a_dripping_download_ends(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """A download ends even if its bytes arrive one by one."""
    talk = Dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    try:
        service = transfer(peer(talk), ca_file, stall_seconds=0.2)
        with pytest.raises(errors.TimedOut), service.download("z", "f") as download:
            list(download)
    finally:
        talk.done.set()


def test_a_close_delimited_body_is_compared(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """Only the caller can check a body without a length; the download reports that."""

    def talk(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
        assert isinstance(connection, ssl.SSLSocket)
        connection.unwrap()  # otherwise any host on the way could have ended it

    with transfer(peer(talk), ca_file).download("z", "f") as download:
        assert download.total is None
        assert b"".join(download) == b"abc"


def test_a_large_body_comes_in_full_chunks(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """The bytes are right, and the connection can be used for the next request."""
    content, connections = bytes(range(256)) * 20_000, []

    def talk(connection: socket.socket) -> None:
        connections.append(connection)
        for _ in range(3):
            request(connection)
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n"
            connection.sendall(head.encode() + content)

    service = transfer(peer(talk), ca_file)
    for _ in range(3):
        with service.download("z", "f") as download:
            position = 0
            for chunk in download:
                assert chunk == content[position : position + len(chunk)]
                assert position // CHUNK == (position + len(chunk) - 1) // CHUNK
                position += len(chunk)
            assert position == len(content)
    assert len(connections) == 1
    service.hang_up()


def test_a_large_body_that_ends_early_is_an_error(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """An incomplete body is an error; the received bytes are returned first."""

    def talk(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n")
        connection.sendall(b"x" * 2_000_000)

    got = 0
    with (
        transfer(peer(talk), ca_file).download("z", "f") as download,
        pytest.raises(errors.Interrupted),
    ):
        for chunk in download:
            got += len(chunk)
    assert got == 2_000_000


def test_a_failed_upload_releases_its_body(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """An error that is kept holds no reference to the upload's body, which others may wait for."""
    ended = threading.Event()

    class Endless:
        def __iter__(self) -> Iterator[bytes]:
            try:
                while True:
                    yield bytes(64 * 1024)
            finally:
                ended.set()

    def cut(connection: socket.socket) -> None:
        request(connection)
        left = 1 << 20
        while left > 0:
            left -= len(received(connection))

    service = transfer(peer(cut), ca_file)
    with pytest.raises(errors.RemoteError) as kept:
        service.upload("z", "p", "n", Endless(), 1 << 30)
    assert ended.is_set()
    assert kept.value.__traceback__ is not None
    service.hang_up()


def test_an_upload_cut_in_the_middle_is_not_in_doubt(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """More bytes were left than a socket buffer holds, so the file cannot be stored."""
    service = transfer(peer(lambda connection: None), ca_file)
    with pytest.raises(errors.Interrupted):
        service.upload("z", "p", "n", [b"x" * (1 << 20)] * 64, 64 << 20)


WHOLE = [
    pytest.param(b"Content-Length: 4\r\n\r\nabcd", id="known length"),
    pytest.param(b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", id="chunks"),
]


@pytest.mark.parametrize("body", WHOLE)
def test_aborting_a_complete_download(
    peer: Callable[[Talk], Peer], ca_file: Path, body: bytes
) -> None:
    """The connection of a completed download may belong to another request already."""
    connections, more = [], threading.Event()

    def talk(connection: socket.socket) -> None:
        connections.append(connection)
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + body)
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        more.wait(30)
        connection.sendall(b"def")

    service = transfer(peer(talk), ca_file)
    first = service.download("z", "f")
    assert b"".join(first) == b"abcd"
    if b"Length" in body:
        first.abort()
    with service.download("z", "f") as second:
        first.abort()
        more.set()
        assert b"".join(second) == b"abcdef"
    assert len(connections) == 1
    service.hang_up()


def test_closing_the_client_ends_downloads(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    talk = Dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 600_000)
    service = transfer(peer(talk), ca_file)
    try:
        with service.download("z", "f") as download:
            chunks = iter(download)
            next(chunks)
            service.hang_up()
            with pytest.raises(errors.RemoteError):
                list(chunks)
    finally:
        talk.done.set()


class Once:
    """Peer that answers some requests on each connection, then keeps it open and silent."""

    def __init__(self, body: bytes = b"[]", times: int = 1) -> None:
        self.body, self.times = body, times
        self.connections = 0
        self.requests: list[bytes] = []  # their heads
        self.done = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        self.connections += 1
        for _ in range(self.times):
            self.requests.append(request(connection))
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\n\r\n"
            connection.sendall(head.encode() + self.body)
        self.done.wait(60)


async def test_dead_connections_are_dropped_together(
    peer: Callable[[Talk], Peer], ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a suspend only one request meets dead connections, and even that one succeeds."""
    for name in ("TIMEOUT", "FIRST_TIMEOUT"):
        monkeypatch.setattr(requests, name, httpx.Timeout(60, pool=None))
    talk = Once()
    async with service_at(peer(talk), ca_file) as service:
        assert await service.zones() == []  # it has no HTTP/2, and this connection is not kept
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(service.zones)
        assert len(service._client.transport.connections) == 4
        assert talk.connections == 5
        monkeypatch.setattr(requests, "FIRST_TIMEOUT", httpx.Timeout(60, read=0.3, pool=None))
        assert await service.zones() == []
        assert talk.connections == 6
        assert len(service._client.transport.connections) == 0
    talk.done.set()


def test_a_connection_that_is_ready_is_used(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """A connection that is prepared for a likely download is used by it, once."""
    talk = Once(times=2)
    service = transfer(peer(talk), ca_file)
    try:
        service.prepare()
        service.prepare()
        with service.download("z", "f") as download:
            assert b"".join(download) == b"[]"
        service.prepare()
        assert talk.connections == 1
        first = talk.requests[0].split(b"\r\n")
        assert first[0] == b"GET /api/access/authorizationrequirements HTTP/1.1"
        assert not any(line.lower().startswith(b"authorization:") for line in first)
    finally:
        talk.done.set()
        service.hang_up()


def test_a_ready_connection_that_has_ended_is_not_used(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """If the peer has closed it, the download makes a new connection."""
    waiting = threading.Event()
    connections = 0

    def talk(connection: socket.socket) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            connection.close()
            waiting.set()
            return
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    service = transfer(peer(talk), ca_file)
    service.prepare()
    assert waiting.wait(10)
    with service.download("z", "f") as download:
        assert b"".join(download) == b"[]"
    assert connections == 2
    service.hang_up()


def test_dead_connections_of_the_threads_too(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """The same holds for connections of worker threads."""
    talk = Once(bytes(4 << 20))  # more than is read ahead
    service = transfer(peer(talk), ca_file)
    try:
        with service.download("z", "f") as one, service.download("z", "f") as two:
            assert b"".join(one) == b"".join(two) == talk.body
        assert len(service._client.transport.connections) == 2
        service.reconnect(dead=False)
        with service.download("z", "f") as three:
            assert b"".join(three) == talk.body
        assert len(service._client.transport.connections) == 1
    finally:
        talk.done.set()
        service.hang_up()


class Dying:
    """Peer that answers one request on a connection, and no second one."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        self.heads.append(whole(connection))
        connection.sendall(ok([]))
        if len(self.heads) == 2:
            self.heads.append(whole(connection))


async def test_a_request_on_a_dead_connection_is_repeated(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """A request without effect is repeated on another connection at once, and counts as one."""
    talk = Dying()
    async with service_at(peer(talk), ca_file) as service:
        # The first answer shows that there is no HTTP/2, and its connection is not kept.
        for _ in range(3):
            assert await service.zones() == []
        assert len(talk.heads) == 4
        # A failed attempt, after which the client pauses, would be reported.
        assert service.link.last_error is None
        assert service.link.times.json()["kinds"]["metadata"]["failed"] == 0


@pytest.mark.parametrize(("method", "body"), [("DELETE", None), ("POST", {"a": 1}), ("GET", None)])
async def test_a_change_is_never_sent_twice(
    peer: Callable[[Talk], Peer], ca_file: Path, method: str, body: object
) -> None:
    """A change is not repeated even if an old connection dies without an answer."""
    talk = Dying()
    async with service_at(peer(talk), ca_file) as service:
        for _ in range(2):  # the first finds out that there is no HTTP/2
            assert await service.zones() == []
        with pytest.raises(errors.ReplyLost):
            await service._requests.change(Request(method, "/api/zones", body=body))
        assert [head.split()[0] for head in talk.heads] == [b"GET", b"GET", method.encode()]


async def test_the_accept_header_of_a_small_file(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """The request accepts any type, unlike others that accept JSON, and has one Host header."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        while True:
            heads.append(whole(connection).lower())
            connection.sendall(ok([]))

    async with service_at(peer(talk), ca_file) as service:
        for _ in range(3):
            assert await service.content("z", "f", 100) == b"[]"
    for head in heads:
        lines = head.split(b"\r\n")
        assert [line for line in lines if line.startswith(b"accept:")] == [b"accept: */*"]
        assert len([line for line in lines if line.startswith(b"host: localhost:")]) == 1


def test_the_headers_about_the_body(peer: Callable[[Talk], Peer], ca_file: Path) -> None:
    """An empty body has a length only where the method demands a body; nothing is left over."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        while True:
            heads.append(whole(connection))
            is_whole = not heads[-1].startswith(b"HEAD")
            connection.sendall(ok([]) if is_whole else b"HTTP/1.1 200 OK\r\n\r\n")

    client = BlockingClient(peer(talk).url, BlockingTransport(tls.trust(ca_file)), httpx.Auth())
    json = {"content-type": "application/json", "content-length": "2"}
    empty = {"content-length": "0"}
    nothing: dict[str, str] = {}
    expected = [
        ("PUT", b"", empty), ("PUT", b"{}", json), ("PUT", b"", empty),
        ("PATCH", b"", empty), ("GET", b"", nothing), ("POST", b"", empty),
        ("DELETE", b"", nothing), ("POST", b"{}", json), ("POST", b"", empty),
        ("HEAD", b"", nothing), ("PATCH", b"{}", json), ("DELETE", b"{}", json),
        ("DELETE", b"", nothing), ("PUT", b"", empty),
    ]  # fmt: skip
    for method, content, _ in expected:
        request = client.request(
            Request(method, "/x"), content=content, timeout=httpx.Timeout(60),
            headers={"Content-Type": "application/json"} if content else {},
        )  # fmt: skip
        read_body_blocking(client.send(request))
    client.transport.close()
    found = []
    for head in heads:
        start, *lines = head.decode().split("\r\n")
        pairs = [line.lower().split(": ") for line in lines]
        found.append((start, {k: v for k, v in pairs if k.startswith(("content-", "transfer-"))}))
    assert found == [(f"{method} /x HTTP/1.1", about) for method, _, about in expected]


class Watched:
    """Body of an upload whose deletion can be observed."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the only piece."""
        yield b"abc"


def test_a_connection_that_is_kept_keeps_no_request(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """An idle connection holds no reference to an uploaded body, whose file may be deleted."""

    def talk(connection: socket.socket) -> None:
        while True:
            whole(connection)
            connection.sendall(ok(entry("e")))

    service = transfer(peer(talk), ca_file)
    body = Watched()
    gone = weakref.ref(body)
    assert service.upload("z", "p", "n", body, 3).id == "e"
    del body
    gc.collect()
    assert gone() is None
    assert len(service._client.transport.connections) == 1
    service.hang_up()


def test_a_peer_that_vanished_is_noticed_by_the_system(
    peer: Callable[[Talk], Peer], ca_file: Path
) -> None:
    """A dead connection ends after half a minute, however long an answer may take."""
    talk = Once()
    place = peer(talk)
    service = transfer(place, ca_file)
    try:
        with service.download("z", "f") as download:
            assert b"".join(download) == b"[]"
        (found,) = connected_to(place.port)
        with found:
            tcp = [
                found.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert tcp[0] + tcp[1] * tcp[2] <= 30
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
    finally:
        talk.done.set()
        service.hang_up()


def connected_to(port: int) -> list[socket.socket]:
    """Return this process's connections to a port of this machine."""
    found = []
    sockets = [each for each in Path("/proc/self/fd").iterdir() if each.is_socket()]
    for each in sockets:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            view = stack.enter_context(socket.socket(fileno=os.dup(int(each.name))))
            if view.family in (socket.AF_INET, socket.AF_INET6) and view.getpeername()[1] == port:
                found.append(view)
                stack.pop_all()
    return found
