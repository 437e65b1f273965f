"""Faults that the control socket sets, from the view of clients."""

import os
import socket
import ssl
import stat
import time
from typing import Any

import httpx
import pytest

from tests.sandbox.running import (
    DEADLINE_SECONDS,
    Person,
    Service,
    Zone,
    eventually,
    memory_peak,
    receive_all,
    refusal,
)

REQUIREMENTS = "/api/access/authorizationrequirements"


def test_an_answer_can_be_replaced(service: Service, alice: Person) -> None:
    """Matching requests get the error, as often as requested, without any effect."""
    service.fault(
        status=503, error="TEMPORARILY_BLOCKED", method="POST", path="^/api/groups", times=2
    )
    body = {"name": "Never made"}
    for _ in range(2):
        assert refusal(alice.post("/api/groups", json=body)) == (503, "TEMPORARILY_BLOCKED")
    assert alice.get("/api/zones").status_code == 200
    assert "error" in service.tell({"group": "Never made"})
    made = alice.post("/api/groups", json=body)
    assert made.status_code == 201
    alice.delete(f"/api/groups/{made.json()['properties']['groupId']}")


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, "NOT_AVAILABLE"), (502, "COMMUNICATION_ERROR"), (500, "FAILED"), (429, "FAILED")],
)
def test_a_status_alone_has_an_error_that_fits(
    service: Service, alice: Person, status: int, error: str
) -> None:
    """The error name matches the status until the fault is cleared."""
    service.fault(status=status)
    for _ in range(3):
        assert refusal(alice.get("/api/zones")) == (status, error)
    service.fault()
    assert alice.get("/api/zones").status_code == 200


def test_a_large_upload_meets_a_replaced_answer(service: Service, zone: Zone, folder: str) -> None:
    """The client can send its body and read the refusal; the connection stays usable."""
    service.fault(status=503, method="POST", times=1)
    answer = zone.upload("a", b"x" * (5 << 20), folder)
    assert refusal(answer) == (503, "NOT_AVAILABLE")
    assert zone.names(folder) == []


def test_latency_delays_every_request(service: Service, alice: Person) -> None:
    service.fault(latency_ms=150)
    before = time.monotonic()
    alice.get("/api/zones")
    assert time.monotonic() - before >= 0.15


def test_a_stall_holds_the_answer_back(service: Service, zone: Zone, folder: str) -> None:
    """The work is done at once, and the answer is delayed."""
    theirs = zone.by(service.person())
    service.fault(stall=3600, method="POST")
    with zone.begin_upload("stalled", folder) as connection:
        eventually(lambda: theirs.names(folder) == ["stalled"], "the work is done")
        service.fault()
        assert connection.recv(12) == b"HTTP/1.1 200"
    service.fault(stall=1, method="POST", times=1)
    before = time.monotonic()
    with zone.begin_upload("stalled", folder) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert time.monotonic() - before >= 1


@pytest.mark.parametrize("order", [{"latency_ms": 3_600_000, "status": 503}, {"stall": 3600}])
def test_clearing_releases_delayed_requests(service: Service, order: dict[str, Any]) -> None:
    """A request that would wait for an hour is answered normally."""
    service.tell({"stats": "reset"})
    service.fault(**order)
    with service.connect() as connection:
        connection.settimeout(60)
        connection.sendall(f"GET {REQUIREMENTS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        eventually(
            lambda: service.tell({"stats": True})["requests"] == {f"GET {REQUIREMENTS}": 1},
            "it is waiting",
        )
        service.fault()
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_dropped_reply_follows_done_work(service: Service, zone: Zone, folder: str) -> None:
    """The connection is reset without a byte of an answer, and the version exists."""
    service.fault(drop_reply=True, method="POST", times=1)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        zone.upload("kept", b"content", folder)
    assert zone.names(folder) == ["kept"]
    service.fault(drop_reply=True, times=1)
    with zone.begin_upload("also", folder) as connection:
        assert receive_all(connection) == b""
    assert sorted(zone.names(folder)) == ["also", "kept"]


@pytest.mark.parametrize("after", [0, 1, 65_536, 1_000_000])
def test_a_download_is_cut(service: Service, zone: Zone, folder: str, after: int) -> None:
    """The download is reset after exactly the given number of bytes of its body."""
    content = os.urandom(2_000_000)
    file_id = zone.file("big", content, folder)["id"]
    service.fault(cut_after=after, times=1)
    received = b""
    path = f"{zone.url}/files/{file_id}/content"
    with (
        pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
        zone.person.client.stream("GET", path) as answer,
    ):
        assert answer.headers["content-length"] == str(len(content))
        for piece in answer.iter_raw():
            received += piece
    assert received == content[:after]
    assert zone.content(file_id).content == content


def test_only_longer_answers_are_cut(service: Service, zone: Zone, folder: str) -> None:
    """A single cut applies to the next answer that is longer than its limit."""
    file_id = zone.file("big", b"x" * 100_000, folder)["id"]
    service.fault(cut_after=50_000, times=1)
    assert zone.names(folder) == ["big"]
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        zone.content(file_id)
    assert len(zone.content(file_id).content) == 100_000


def test_an_upload_is_cut(service: Service, zone: Zone, folder: str) -> None:
    """The upload is reset after the given number of bytes, which leave no trace."""
    incoming = service.data / "incoming"
    service.fault(cut_after=300_000, method="POST", times=1)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        zone.upload("cut", b"x" * 8_000_000, folder)
    assert zone.names(folder) == []
    eventually(lambda: not list(incoming.iterdir()), "what was received is removed")
    assert zone.upload("cut", b"x" * 8_000_000, folder).status_code == 200


@pytest.mark.parametrize(
    ("head", "start"),
    [("Content-Length: 1000000", b""), ("Transfer-Encoding: chunked", b"f4240\r\n")],
)
def test_a_client_that_goes_away_leaves_nothing(
    service: Service, zone: Zone, folder: str, head: str, start: bytes
) -> None:
    """An upload that its client aborts leaves no version and no file."""
    incoming = service.data / "incoming"
    with zone.begin_upload("half", folder, head, start + b"x" * 400_000):
        eventually(lambda: list(incoming.iterdir()), "the upload has begun")
    eventually(lambda: not list(incoming.iterdir()), "what was received is removed")
    assert zone.names(folder) == []


def is_reset(raw: socket.socket) -> bool:
    """Return True if the next read gets a reset instead of an end."""
    try:
        while raw.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return False


def bare_request(service: Service) -> socket.socket:
    """Return a TCP connection with a request over TLS, whose answer is not read."""
    raw = socket.create_connection((service.host, service.port), DEADLINE_SECONDS)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = service.context.wrap_bio(incoming, outgoing, server_hostname=service.host)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            raw.sendall(outgoing.read())
            incoming.write(raw.recv(65536))
    tls.write(f"GET {REQUIREMENTS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    raw.sendall(outgoing.read())
    return raw


@pytest.mark.parametrize("order", [{"drop_reply": True}, {"cut_after": 20}])
def test_cuts_and_drops_are_resets(service: Service, order: dict[str, Any]) -> None:
    """The connection is reset, because clients may take a normal end for a short answer."""
    service.fault(**order, times=1)
    with bare_request(service) as raw:
        assert is_reset(raw)


def test_being_down_is_refused_at_once(service: Service, alice: Person) -> None:
    """New connections are refused, open ones are reset, and afterwards all work again."""
    idle = bare_request(service)
    eventually(lambda: idle.recv(65536), "an answer")
    service.fault(down=True)
    with idle:
        assert is_reset(idle)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((service.host, service.port), 10)
    with pytest.raises(httpx.TransportError):
        alice.get("/api/zones")
    service.fault(down=True, latency_ms=1)
    service.fault(down=False)
    assert alice.get("/api/zones").status_code == 200
    service.fault(down=True)
    service.fault()
    assert alice.get("/api/zones").status_code == 200


def test_faults_add_up_until_cleared(service: Service, alice: Person) -> None:
    """Several faults, in one command or several, apply together; each has its own count."""
    service.fault(latency_ms=60, status=500, times=1)
    service.fault(latency_ms=60, path="^/api/users")
    before = time.monotonic()
    assert refusal(alice.get("/api/users")) == (500, "FAILED")
    assert time.monotonic() - before >= 0.12
    before = time.monotonic()
    assert alice.get("/api/users").status_code == 200
    assert time.monotonic() - before >= 0.06


WRONG: list[Any] = [
    5, [], {}, {"colour": "red"}, {"status": 200}, {"status": "503"}, {"cut_after": -1},
    {"stall": 1, "times": 0}, {"status": 503, "path": "("}, {"times": 3},
    {"status": 503, "error": "NO_SUCH_NAME"}, {"status": 503, "error": ""},
    {"stall": 1, "error": "FAILED"}, {"error": "FAILED"}, {"status": 503, "method": "FETCH"},
    {"down": True, "times": 1}, {"down": True, "method": "GET"}, {"down": True, "path": "x"},
    {"down": True, "status": 503, "times": 1},
]  # fmt: skip


@pytest.mark.parametrize("order", WRONG)
def test_an_invalid_fault_is_refused(service: Service, alice: Person, order: Any) -> None:
    """An invalid fault gives an error message and has no effect."""
    assert service.tell({"fault": order})["error"]
    assert alice.get("/api/zones").status_code == 200


@pytest.mark.parametrize(
    "line",
    [
        b"", b"  ", b"nonsense", b"[]", b"{}", b'{"no": 1}', b'{"stats": 5}', b"\xff",
        b'{"stats":' * 5000 + b"1" + b"}" * 5000,
    ],
)  # fmt: skip
def test_the_control_socket_answers_every_line(service: Service, line: bytes) -> None:
    """An invalid line gets an error, and the connection stays usable."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(60)
        control.connect(service.ready["control"])
        with control.makefile("rwb") as lines:
            for request, expected in [(line, b'{"error"'), (b'{"stats": true}', b'{"requests"')]:
                lines.write(request + b"\n")
                lines.flush()
                assert lines.readline().startswith(expected)


def test_the_control_socket_is_private(service: Service) -> None:
    mode = (service.data / "control.sock").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_requests_and_bytes_are_counted(service: Service, zone: Zone, folder: str) -> None:
    """Requests are counted by method and route, with the refused and unknown ones."""
    service.tell({"stats": "reset"})
    file_id = zone.upload("a", b"x" * 1000, folder).json()["id"]
    zone.content(file_id)
    zone.content(file_id)
    zone.person.get("/api/nothing")
    service.client().get("/api/zones")
    stats = service.tell({"stats": True})
    assert stats["requests"] == {
        "POST /api/zones/{zone_id}/files/{file_id}": 1,
        "GET /api/zones/{zone_id}/files/{file_id}/content": 2,
        "GET (none)": 1,
        "GET /api/zones": 1,
    }
    assert stats["bytes_in"] > 1000
    assert stats["bytes_out"] > 2000


def test_a_slow_reader_takes_no_memory(service: Service, zone: Zone, folder: str) -> None:
    """Content that a client does not read is not read into memory."""
    file_id = zone.file("big", bytes(120 << 20), folder)["id"]
    before = memory_peak(service.ready["pid"])
    connections = []
    for _ in range(4):
        connection = service.connect()
        connection.sendall(
            f"GET {zone.url}/files/{file_id}/content HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {zone.person.session}\r\n\r\n".encode()
        )
        assert connection.recv(4) == b"HTTP"
        connections.append(connection)
    assert zone.names(folder) == ["big"]
    for connection in connections:
        connection.close()
    assert memory_peak(service.ready["pid"]) - before < 60 << 20
