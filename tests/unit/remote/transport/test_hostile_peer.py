"""Peer that attacks memory or time, or sends answers for other requests.

All requests use the operations that the rest of zonedrive uses.
"""

import contextlib
import fcntl
import gzip
import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trio

from tests.unit.remote.conftest import Bearers, Place
from tests.unit.remote.transport.conftest import Peer, Receiving, Records, received, request
from zonedrive import errors
from zonedrive.config import Settings
from zonedrive.remote.clients import BlockingClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.probe import Probe, ProbeResult
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.transfer import Transfer
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.connection import Connection
from zonedrive.remote.transport.transports import BlockingTransport

pytestmark = pytest.mark.usefixtures("no_pauses")

MIB = 1 << 20
ENOUGH = 32 * MIB  # that a peer can send of what is not read, into buffers of the system
SHORT = 0.5  # seconds
LONG = 60.0  # seconds; the attack takes longer

Start = Callable[..., Peer]


def whole(connection: Receiving) -> bytes:
    """Receive a request with its body; return its head."""
    head, _, body = request(connection).partition(b"\r\n\r\n")
    _, _, length = head.lower().partition(b"content-length: ")
    left = int(length.split(b"\r\n")[0]) if length else 0
    while len(body) < left:
        body += received(connection)
    return head


def ok(value: object) -> bytes:
    """Return a successful answer with JSON."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def entry(name: str) -> dict[str, object]:
    """Return the entry in the answer to an upload."""
    return {
        "id": name, "zoneId": "z", "parentId": "p", "name": "n", "folder": False, "size": 3,
        "lastModified": "2026-11-21T12:00:00+00:00", "lastModifiedBy": "alice@acme.example",
    }  # fmt: skip


@contextlib.asynccontextmanager
async def service_at(peer: Peer, ca_file: Path) -> AsyncIterator[HttpService]:
    """Yield a service at the peer, for a limited time."""
    place = Place(peer.url, ca_file)
    service = open_service(place, Bearers("Bearer old"), load_profile("published"), Settings())
    try:
        with trio.fail_after(2 * LONG):
            yield service
    finally:
        await service.aclose()


def transfer(
    peer: Peer,
    ca_file: Path,
    auth: httpx.Auth | None = None,
    *,
    seconds: float = LONG,
    stall_seconds: float = LONG,
) -> Transfer:
    """Return a Transfer at the peer, with these deadlines."""
    transport = BlockingTransport(tls.trust(ca_file), stall_seconds)
    return Transfer(
        BlockingClient(peer.url, transport, auth or httpx.Auth()),
        Connectivity(), load_profile("published"),
        open_seconds=0.0, head_seconds=seconds, answer_seconds=seconds,
    )  # fmt: skip


def look(place: Place, seconds: float = LONG) -> ProbeResult:
    """Probe a service as doctor does."""
    with Probe(place, seconds) as probe:
        return probe.service()


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """Check that the block ends long before the attack does."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONG


# ---- left-over bytes ----


class WithMore:
    """Peer that answers each request on a connection, and adds another answer to each.

    `apart`: in a separate TLS record in the same packet, for a peer that does no TLS itself.
    """

    def __init__(
        self, answer: Callable[[str], bytes], context: ssl.SSLContext, *, apart: bool
    ) -> None:
        self._answer, self._context, self._apart = answer, context, apart
        self.asked = 0

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        records = Records(self._context, connection)
        while True:
            whole(records)
            self.asked += 1
            mine, ready = self._answer(f"answer {self.asked}"), self._answer("ready-made")
            if self._apart:
                records.sendall(mine, ready)
            else:
                records.sendall(mine + ready)

    def since(self, asked: int) -> list[str]:
        """Return the answers after this number of requests; a repeated request counts in any
        order."""
        return [f"answer {number}" for number in range(asked + 1, self.asked + 1)]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_ready_made_answer_is_not_the_next_small_upload(
    peer: Start, ca_file: Path, context: ssl.SSLContext, apart: bool
) -> None:
    """Each result belongs to a received upload; the connection is closed in between."""
    talk = WithMore(lambda name: ok(entry(name)), context, apart=apart)
    async with service_at(peer(talk, plain=True), ca_file) as service:
        for number in (1, 2, 3):
            found = await service.upload("z", "p", "n", b"abc")
            assert (found.id, talk.asked) == (f"answer {number}", number)


@pytest.mark.parametrize("apart", [False, True])
async def test_a_ready_made_answer_is_no_answer_to_simultaneous_requests(
    peer: Start, ca_file: Path, context: ssl.SSLContext, apart: bool
) -> None:
    """Before HTTP/2 is ruled out, libcurl reuses connections."""
    talk = WithMore(
        lambda name: ok([{"id": name, "name": name, "rootId": "r"}]), context, apart=apart
    )
    async with service_at(peer(talk, plain=True), ca_file) as service:
        found: list[str] = []

        async def ask() -> None:
            found.extend([zone.id for zone in await service.zones()])

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
    assert len(set(found)) == 8 and set(found) <= set(talk.since(0))


@pytest.mark.parametrize("apart", [False, True])
def test_a_ready_made_answer_is_not_the_next_content(
    peer: Start, ca_file: Path, context: ssl.SSLContext, apart: bool
) -> None:
    """A download never returns bytes of another file."""
    talk = WithMore(ok, context, apart=apart)
    service = transfer(peer(talk, plain=True), ca_file)
    for number in (1, 2, 3):
        before = talk.asked
        with service.download("z", "f") as download:
            assert json.loads(b"".join(download)) in talk.since(before)
            assert number <= talk.asked <= 2 * number
    service.hang_up()


@pytest.mark.parametrize("when", ["before", "after"])
def test_bytes_that_arrive_during_a_check(
    monkeypatch: pytest.MonkeyPatch, ca_file: Path, when: str
) -> None:
    """An extra answer that arrives during the check is not taken for the next one."""
    count = fcntl.ioctl
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        listener.accept()[0] as theirs,
    ):
        coming = [b"x" * 1000]

        def counted(descriptor: int, request: int, argument: bytes) -> bytes:
            found = count(descriptor, request, argument) if when == "after" else b""
            if coming:
                theirs.sendall(coming.pop())
                assert select.select([ours], [], [], LONG)[0]
            return found or count(descriptor, request, argument)

        monkeypatch.setattr(fcntl, "ioctl", counted)
        connection = Connection(tls.trust(ca_file), httpx.URL("https://localhost"))
        connection._sockets[ours.fileno()] = os.fstat(ours.fileno()).st_ino
        assert connection._taken() == 0
        connection.close()


class Early:
    """Peer that answers an upload after its head."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.over = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        request(connection)
        connection.sendall(self.answer)
        self.over.wait(2 * LONG)


EARLY = {
    "at once": ok(entry("early")),
    "after others": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\nX: y\r\n\r\n" + ok(entry("e")),
}


@pytest.mark.parametrize("how", EARLY)
def test_an_upload_that_is_answered_too_early(peer: Start, ca_file: Path, how: str) -> None:
    """The file is not stored; the error comes at once, and the upload may be repeated."""
    talk = Early(EARLY[how])
    service = transfer(peer(talk), ca_file)
    with soon(), pytest.raises(errors.Interrupted, match="before it had all"):
        service.upload("z", "p", "n", [bytes(MIB)] * 64, 64 * MIB)
    talk.over.set()
    service.hang_up()


def test_a_refusal_that_comes_early_ends_an_upload_at_once(peer: Start, ca_file: Path) -> None:
    """The upload ends although the service reads no more of it."""
    talk = Early(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
    service = transfer(peer(talk), ca_file)
    with soon(), pytest.raises(errors.TooLarge):
        service.upload("z", "p", "n", [bytes(MIB)] * 64, 64 * MIB)
    talk.over.set()
    service.hang_up()


def test_a_word_of_progress_is_no_answer(peer: Start, ca_file: Path) -> None:
    """A service may send interim answers during an upload."""

    def talk(connection: socket.socket) -> None:
        head, _, body = request(connection).partition(b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(body)
        while left:
            left -= len(received(connection))
        connection.sendall(ok(entry("e") | {"size": 64 * MIB}))

    service = transfer(peer(talk), ca_file)
    assert service.upload("z", "p", "n", [bytes(MIB)] * 64, 64 * MIB).id == "e"
    service.hang_up()


# ---- time ----


class SlowPeer:
    """Peer that reads a request, sends `head`, then `drip` at intervals."""

    def __init__(self, head: bytes, drip: bytes = b"x") -> None:
        self.head, self.drip = head, drip
        self.over = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        whole(connection)
        connection.sendall(self.head)
        while not self.over.wait(0.02):
            connection.sendall(self.drip)


SLOW = {
    "head": (b"HTTP/1.1 200 OK\r\nX-", b"x"),
    "informational": (b"", b"HTTP/1.1 102 Processing\r\nX: " + b"x" * 200 + b"\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
}
SLOW_BODY = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;a=b\r\n \r\n"),
    "extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=", b"b"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
}


@pytest.fixture
def slow(peer: Start) -> Iterator[Callable[[tuple[bytes, bytes]], Peer]]:
    """Return a function that starts a slow peer."""
    talks: list[SlowPeer] = []

    def start(how: tuple[bytes, bytes]) -> Peer:
        talks.append(SlowPeer(*how))
        return peer(talks[-1])

    yield start
    for talk in talks:
        talk.over.set()


@pytest.mark.parametrize("how", SLOW | SLOW_BODY)
def test_an_upload_waits_for_its_answer_only_so_long(
    slow: Callable[[tuple[bytes, bytes]], Peer], ca_file: Path, how: str
) -> None:
    """The whole answer, however it arrives, has one deadline."""
    service = transfer(slow((SLOW | SLOW_BODY)[how]), ca_file, seconds=SHORT)
    with soon(), pytest.raises(errors.ReplyLost):
        service.upload("z", "p", "n", [b"abc"], 3)
    service.hang_up()


@pytest.mark.parametrize("how", SLOW)
def test_a_download_waits_for_its_beginning_only_so_long(
    slow: Callable[[tuple[bytes, bytes]], Peer], ca_file: Path, how: str
) -> None:
    """The head of an answer has a deadline; afterwards, a stall ends a download."""
    service = transfer(slow(SLOW[how]), ca_file, seconds=SHORT)
    with soon(), pytest.raises(errors.TimedOut):
        service.download("z", "f")
    service.hang_up()


@pytest.mark.parametrize("how", SLOW | SLOW_BODY)
def test_doctor_looks_only_so_long(
    slow: Callable[[tuple[bytes, bytes]], Peer], ca_file: Path, how: str
) -> None:
    """An answer that drips does not extend the deadline."""
    place = Place(slow((SLOW | SLOW_BODY)[how]).url, ca_file)
    with soon(), pytest.raises(errors.TimedOut):
        look(place, SHORT)


def test_a_handshake_takes_only_so_long(peer: Callable[..., Peer], ca_file: Path) -> None:
    """The deadline includes the TLS handshake."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")  # a long greeting of the server
        while not over.wait(0.02):
            connection.sendall(b"\x03")

    place = Place(peer(talk, plain=True).url, ca_file)
    with soon(), pytest.raises(errors.Unreachable):
        look(place, SHORT)
    over.set()


# ---- memory ----


class Flood:
    """Peer that reads a request, and sends `head` and then `piece` without an end."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self.head, self.piece = head, piece
        self.sent = 0
        self.ended = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection."""
        whole(connection)
        try:
            connection.sendall(self.head)
            while self.sent < 1024 * MIB:
                connection.sendall(self.piece)
                self.sent += len(self.piece)
        finally:
            self.ended.set()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "body": (CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "small chunks": (CHUNKED, b"1\r\n \r\n" * 10_000),
    "extension": (CHUNKED + b"1;a=", b"b" * 65536),
    "trailers": (CHUNKED + b"0\r\n", b"X: yyyy\r\n" * 7000),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000),
    "encoded": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 99999999\r\n\r\n",
                gzip.compress(bytes(MIB))),
    "transfer encoding": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                          b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "announced": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", b" " * 65536),
    "refusal": (b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "encoded refusal": (b"HTTP/1.1 500 Oops\r\nContent-Encoding: gzip\r\n"
                        b"Content-Length: 99999999\r\n\r\n", gzip.compress(bytes(MIB))),
}  # fmt: skip
READABLE = 4 * MIB + ENOUGH  # of an answer that is read up to its limit


def assert_left(talk: Flood, times: int = 1) -> None:
    """Check that the peer could send little to this number of requests."""
    assert talk.ended.wait(LONG)
    assert talk.sent < READABLE * times


@pytest.mark.parametrize("how", FLOODS)
def test_the_answer_to_a_large_upload_is_bounded(peer: Start, ca_file: Path, how: str) -> None:
    """The upload ends long before the answer does; whether the file is stored is unknown."""
    talk = Flood(*FLOODS[how])
    service = transfer(peer(talk), ca_file)
    with pytest.raises(errors.RemoteError) as failed:
        service.upload("z", "p", "n", [b"abc"], 3)
    assert isinstance(failed.value, errors.ReplyLost) != ("refusal" in how)
    assert_left(talk)
    service.hang_up()


@pytest.mark.parametrize("how", FLOODS)
async def test_the_answer_to_a_small_upload_is_bounded(
    peer: Start, ca_file: Path, how: str
) -> None:
    """The same holds for small uploads."""
    talk = Flood(*FLOODS[how])
    async with service_at(peer(talk), ca_file) as service:
        with pytest.raises(errors.RemoteError) as failed:
            await service.upload("z", "p", "n", b"abc")
        assert isinstance(failed.value, errors.ReplyLost) != ("refusal" in how)
        await trio.to_thread.run_sync(assert_left, talk)


@pytest.mark.parametrize("how", FLOODS)
async def test_the_answer_to_a_reading_request_is_bounded(
    peer: Start, ca_file: Path, how: str
) -> None:
    """The first request may be repeated on another connection."""
    talk = Flood(*FLOODS[how])
    async with service_at(peer(talk), ca_file) as service:
        with pytest.raises(errors.RemoteError):
            await service.entry("z", "f")
        await trio.to_thread.run_sync(assert_left, talk, 8)


@pytest.mark.parametrize("how", ["encoded", "transfer encoding"])
def test_encoded_content_is_refused(peer: Start, ca_file: Path, how: str) -> None:
    """If a proxy compresses in spite of `identity`, no gzip data get into a file."""
    talk = Flood(*FLOODS[how])
    service = transfer(peer(talk), ca_file)
    with pytest.raises(errors.RemoteError) as failed:
        service.download("z", "f")
    assert type(failed.value) in (errors.BadAnswer, errors.Interrupted)
    assert_left(talk)
    service.hang_up()


@pytest.mark.parametrize("encoding", [b"", b"Content-Encoding: gzip, gzip\r\n"])
def test_a_refused_bearer_takes_no_memory(peer: Start, ca_file: Path, encoding: bytes) -> None:
    """The 401 answer that causes a repetition has the same size limit as any other."""
    sent: list[int] = []
    bomb = gzip.compress(gzip.compress(bytes(64 * MIB)))

    def talk(connection: socket.socket) -> None:
        head = whole(connection)
        if b"Bearer new" in head:
            connection.sendall(ok(entry("e")))
            return
        body = bomb if encoding else b" " * 64 * MIB
        connection.sendall(
            b"HTTP/1.1 401 No\r\n%sContent-Length: %d\r\n\r\n" % (encoding, len(body))
        )
        for start in range(0, len(body), 65536):
            sent.append(len(body[start : start + 65536]))
            connection.sendall(body[start : start + 65536])

    service = transfer(peer(talk), ca_file, Bearers("Bearer old", "Bearer new"))
    assert service.upload("z", "p", "n", [b"abc"], 3).id == "e"
    assert sum(sent) < ENOUGH
    service.hang_up()


# ---- cookies and dates ----


async def test_no_cookie_is_kept_or_sent(peer: Start, ca_file: Path) -> None:
    """No request contains a cookie that the service has set."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        while True:
            head = whole(connection)
            heads.append(head)
            body = json.dumps(entry("e") if head.startswith(b"POST") else []).encode()
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nSet-Cookie: track=me; Path=/\r\nSet-Cookie: a=b\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )

    place = peer(talk)
    async with service_at(place, ca_file) as service:

        def threads() -> None:
            for _ in range(2):
                service.transfer.upload("z", "p", "n", [b"abc"], 3)
                with service.transfer.download("z", "f") as download:
                    list(download)
                look(Place(place.url, ca_file))

        for _ in range(2):
            await service.zones()
            await service.upload("z", "p", "n", b"abc")
        await trio.to_thread.run_sync(threads)
    assert len(heads) >= 10  # a question may be asked twice
    assert not any(b"cookie:" in head.lower() for head in heads)
    assert all(b"accept-encoding: identity" in head.lower() for head in heads)


DATES = [
    "", "x", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2026 99:99:99 GMT",
    "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 1969 00:00:00 GMT",
    "Mon, 01 Jan 2026 00:00:00 +99999999999999", "Mon, 01 Jan 2026 00:00:00 -99999999999999",
]  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_an_invalid_date_is_ignored(peer: Start, ca_file: Path, date: str) -> None:
    """The probe reports its other results."""

    def talk(connection: socket.socket) -> None:
        whole(connection)
        connection.sendall(
            f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )

    seen = look(Place(peer(talk).url, ca_file))
    assert seen.ahead is None
    assert seen.certificate_days is not None
