"""Every refusal has the error body, even those of the framework or the protocol."""

import asyncio
import json

import pytest
from starlette.requests import Request

from tests.sandbox.running import Person, Service, logon, receive_all, refusal
from zonedrive.sandbox.errors import NAMES, answer_crash

LOGON_ERRORS = {
    400: "ILLEGAL_ARGUMENT INVALID_DATA INVALID_SESSIONID",
    401: "TEMPORARY_BLOCKED PASSWORD_FAILURE VERIFICATIONCODE_FAILURE AUTHORIZATION_FAILED",
    403: "NOT_ALLOWED ALREADY_LOGGED_ON UNSUPPORTED_VERSION",
    408: "FAILED",
    500: "FAILED LOAD_ERROR",
    502: "COMMUNICATION_ERROR",
    503: "NOT_AVAILABLE",
}


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/nothing", "/api/zones/", "/share/key", "/api/%00", "/api/%ff"]
)
def test_unknown_paths(alice: Person, path: str) -> None:
    """Unknown paths give 404 with NOT_FOUND."""
    assert refusal(alice.get(path)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/zones", "GET"),
        ("PATCH", "/api/groups", "POST"),
        ("GET", "/api/groups", "POST"),
        ("PUT", "/api/tokens", "GET, POST"),
        ("OPTIONS", "/api/users", "GET"),
        ("GET", "/api/access/logon", "POST"),
    ],
)
def test_other_methods(alice: Person, method: str, path: str, allowed: str) -> None:
    """Other methods give 405 with the allowed methods."""
    answer = alice.client.request(method, path)
    assert refusal(answer) == (405, "NOT_SUPPORTED")
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


def test_every_error_of_the_interface_can_be_shown(service: Service, alice: Person) -> None:
    """A fault can produce each error, with the statuses in the logon's table."""
    for name in sorted(NAMES):
        service.fault(status=409, error=name, times=1)
        assert refusal(alice.get("/api/users")) == (409, name)
    client = service.client()
    for status, names in LOGON_ERRORS.items():
        for name in names.split():
            service.fault(status=status, error=name, path="/logon$", times=1)
            assert refusal(logon(client, alice.id, "x")) == (status, name)


def test_head_is_not_offered(alice: Person) -> None:
    """The service supports GET, POST, PUT and DELETE, but not HEAD."""
    assert alice.client.head("/api/zones").status_code == 405


BODIES = {
    "cut short": b'{"name": "x"',
    "not JSON": b"<xml/>",
    "not UTF-8": b'{"name": "\xff"}',
    "half a pair": b'{"name": "\\ud800"}',
    "nothing": b"",
    "another type": b"[1, 2]",
    "too deep": b"[" * 100_000,
    "too large": b'{"name": "' + b"x" * (1 << 20) + b'"}',
}


@pytest.mark.parametrize("case", BODIES)
def test_malformed_bodies(alice: Person, case: str) -> None:
    """JSON that is malformed, of another shape, too deep or too large gives 400."""
    kind = {"Content-Type": "application/json"}
    answer = alice.post("/api/groups", content=BODIES[case], headers=kind)
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_bodies_with_another_content_type(alice: Person, kind: str) -> None:
    """A JSON body must have the Content-Type application/json."""
    headers = {"Content-Type": kind}
    answer = alice.post("/api/groups", content=b'{"name": "x"}', headers=headers)
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


def test_unknown_fields_do_not_matter(alice: Person) -> None:
    """Unknown fields are ignored, because a newer client may send them."""
    body = {"name": "More fields", "description": "", "members": [], "colour": "red"}
    answer = alice.post("/api/groups", json=body)
    assert answer.status_code == 201
    alice.delete(f"/api/groups/{answer.json()['properties']['groupId']}")


def test_unpublished_operations_are_reported_as_missing(service: Service) -> None:
    """revalidate exists, but its form is not published."""
    answer = service.client().post("/api/access/revalidate", json={})
    assert refusal(answer) == (400, "NOT_SUPPORTED")


@pytest.mark.parametrize(
    "request_bytes",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"GET  HTTP/9\r\n\r\n"],
)
def test_bytes_that_are_not_http(service: Service, request_bytes: bytes) -> None:
    """Bytes that are not HTTP get the error body, too."""
    with service.connect() as connection:
        connection.sendall(request_bytes)
        head, _, body = receive_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"] == "ILLEGAL_ARGUMENT"


CHUNKED = b"POST /api/access/logon HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /api/zones HTTP/1.1\r\nX: " + b"a" * 200_000,
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 30_000,
        CHUNKED + b"0\r\n" + b"a: b\r\n" * 100_000,
        CHUNKED + b"0\r\na: " + b"b" * 600_000,
        CHUNKED + b"5;" + b"e" * 600_000,
        b"\r\n" * 300_000,
    ],
    ids=["one header", "the path", "many headers", "trailers", "a trailer", "a chunk", "blanks"],
)
def test_a_head_without_end_is_refused(service: Service, endless: bytes) -> None:
    """The head is kept in memory, so its size is limited."""
    with service.connect() as connection:
        try:
            connection.sendall(endless)
        except OSError:
            return  # hung up on
        answer = receive_all(connection)
    assert answer[:13] in (b"", b"HTTP/1.1 400 "), answer[:200]
    if answer:
        # One answer, be it to the head or to what the endpoint saw of the request.
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] in NAMES


def test_a_crash_announces_the_end_of_the_connection() -> None:
    """uvicorn closes the connection after an exception, so the next request must not use it."""
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    answer = asyncio.run(answer_crash(request, ValueError("secret")))
    assert (answer.status_code, answer.headers["connection"]) == (500, "close")
    assert b"secret" not in answer.body
