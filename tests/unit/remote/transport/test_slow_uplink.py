"""An upload ends when its peer accepts no bytes, not when libcurl requests none, or after 30 s."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.unit.remote.transport.conftest import Peer, Talk, received, request
from tests.unit.remote.transport.test_hostile_peer import entry, ok, service_at
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.connection import Connection
from zonedrive.remote.transport.exchange import Exchange

PATIENCE = 60.0  # seconds for what a busy machine does in a moment
WRITE_SECONDS = 30.0
PIECE = 512 * 1024
LENGTH = 1 << 30


class Frugal:
    """Peer that reads as much of an upload as the test says, and reports it."""

    def __init__(self) -> None:
        self.orders: queue.Queue[int] = queue.Queue()
        self.done: queue.Queue[int] = queue.Queue()

    def __call__(self, connection: socket.socket) -> None:
        """Handle one connection; an order of nothing ends it."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        request(connection)
        while wanted := self.orders.get():
            left = wanted
            while left > 0:
                left -= len(received(connection))
            self.done.put(wanted)

    def read(self, size: int) -> None:
        """Let the peer read `size` bytes."""
        self.orders.put(size)
        self.done.get(timeout=PATIENCE)


class Uplink:
    """Upload on a separate connection, whose write timeout has passed at each check."""

    def __init__(self, url: str, ca_file: Path) -> None:
        seconds = {"connect": PATIENCE, "write": WRITE_SECONDS, "read": PATIENCE}
        asked = httpx.Request(
            "POST", url, headers={"Content-Length": str(LENGTH)}, extensions={"timeout": seconds}
        )
        self.exchange = Exchange(asked, (bytes(PIECE) for _ in range(LENGTH // PIECE)), room=0)
        self.connection = Connection(tls.trust(ca_file), asked.url)
        self.connection.begin(self.exchange)

    def look(self) -> float:
        """Return how long to wait, WRITE_SECONDS after the last progress that libcurl reported."""
        self.exchange.moved = time.monotonic() - WRITE_SECONDS
        return self.connection.seconds_left()

    def fill(self) -> None:
        """Send until the peer accepts no more, which raises an error."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            events = self.connection.epoll.poll(0.1)
            self.connection.step(events)
            if self.exchange.is_sent and not events:
                self.look()
        pytest.fail("an upload that nobody takes is not given up")

    def acknowledged(self) -> int:
        """Return how many bytes the peer's system has taken."""
        return self.connection._wire().acknowledged


@pytest.fixture
def uplink(peer: Callable[[Talk], Peer], ca_file: Path) -> Iterator[tuple[Uplink, Frugal]]:
    """Yield an upload whose peer reads nothing yet."""
    frugal = Frugal()
    made = Uplink(peer(frugal).url, ca_file)
    yield made, frugal
    frugal.orders.put(0)
    made.connection.close()


def test_a_slow_upload_goes_on_and_a_stuck_one_ends(uplink: tuple[Uplink, Frugal]) -> None:
    """The peer's acknowledgements count, because libcurl takes the data in large pieces."""
    upload, peer = uplink
    for _ in range(3):
        with pytest.raises(httpx.WriteTimeout):
            upload.fill()
        before, unsent = upload.acknowledged(), upload.exchange.unsent
        assert 0 < unsent < LENGTH
        end = time.monotonic() + PATIENCE
        peer.read(128 * 1024)
        while upload.acknowledged() == before and time.monotonic() < end:
            time.sleep(0.001)
        assert upload.look() > 0
        assert upload.exchange.unsent == unsent  # nothing else tells of the progress


async def test_a_small_upload_may_take_longer_than_its_answer(
    peer: Callable[[Talk], Peer], ca_file: Path, mock_clock: MockClock
) -> None:
    """Many small uploads at the same time share a slow connection, and all are progressing."""
    has_begun, may_end = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        request(connection)
        has_begun.set()
        may_end.wait(PATIENCE)
        body = b""
        while not body.endswith(b"--\r\n"):
            body = body[-4:] + received(connection)
        connection.sendall(ok(entry("made")))

    async def slow_down() -> None:
        await trio.to_thread.run_sync(has_begun.wait, PATIENCE)
        mock_clock.jump(100)
        await wait_all_tasks_blocked()
        may_end.set()

    async with service_at(peer(talk), ca_file) as service, trio.open_nursery() as nursery:
        nursery.start_soon(slow_down)
        found = await service.upload("z", "p", "n", bytes(120_000))
    assert found.id == "made"
