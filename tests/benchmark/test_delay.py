"""Delay of bytes by the delay proxy."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

RTT_SECONDS = 0.2


@pytest.fixture
def echo() -> Iterator[int]:
    """Yield the port of an echo server behind the delay proxy."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        proxy = subprocess.Popen(
            [
                sys.executable, "-m", "tests.benchmark.delay",
                str(server.getsockname()[1]), str(1000 * RTT_SECONDS),
            ],
            stdout=subprocess.PIPE, encoding="ascii",
        )  # fmt: skip
        assert proxy.stdout is not None
        try:
            with proxy.stdout as said:
                yield int(said.readline())
        finally:
            proxy.kill()
            proxy.wait()


def test_answers_are_delayed_by_round_trips(echo: int) -> None:
    """The first answer takes two round trips, one for the connection; later answers take one."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        for trips in (2, 3):
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            assert time.monotonic() - began > 0.95 * trips * RTT_SECONDS


def test_bytes_arrive_completely_and_in_order(echo: int) -> None:
    """More data than fit in transit arrive in order, followed by the end."""
    sent = b"".join(number.to_bytes(4, "big") for number in range(2 << 20))
    with socket.create_connection(("127.0.0.1", echo)) as connection:

        def send() -> None:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        got = bytearray()
        while len(got) < len(sent):
            data = connection.recv(1 << 20)
            assert data, len(got)
            got += data
    assert bytes(got) == sent
