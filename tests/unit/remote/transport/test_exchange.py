"""Parsing of the head of an answer, line by line."""

import httpx
import pytest

from zonedrive.remote.transport.exchange import HEAD_BYTES, HEADERS, ROOM, Exchange


def given(*lines: bytes, request: httpx.Request | None = None) -> Exchange:
    """Parse lines until one is refused."""
    exchange = Exchange(request or httpx.Request("GET", "https://zones.example/x"), (), room=1)
    for line in lines:
        if exchange.head(line) is not None:
            break
    return exchange


def test_words_of_progress_are_left_out() -> None:
    """Headers of an interim answer are not part of the final answer."""
    exchange = given(
        b"HTTP/1.1 103 Early Hints\r\n", b"Link: </style>\r\n", b"\r\n",
        b"HTTP/1.1 200 OK\r\n", b"Content-Length:  2 \r\n", b"X:\r\n", b"\r\n", b"Trailer: t\r\n",
    )  # fmt: skip
    assert (exchange.has_head, exchange.status) == (True, 200)
    answer = exchange.response(httpx.ByteStream(b"{}"), {"early": False})
    assert answer.headers.raw == [(b"Content-Length", b"2"), (b"X", b"")]
    assert answer.extensions == {"early": False}


@pytest.mark.parametrize("value", ["plain", "Grüße"])
@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
def test_headers_are_understood_in_either_encoding(value: str, encoding: str) -> None:
    """Headers may be UTF-8 or Latin-1."""
    exchange = given(b"HTTP/1.1 200 OK\r\n", b"X: " + value.encode(encoding) + b"\r\n", b"\r\n")
    assert exchange.response(httpx.ByteStream(b""), {}).headers["x"] == value


@pytest.mark.parametrize("lines", [
    [b"HTTP/1.1\r\n", b"\r\n"],
    [b"HTTP/1.1 OK\r\n", b"\r\n"],
    [b"ICY 200 OK\r\n", b"\r\n"],
    [b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", b"no header\r\n", b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", b"a name: x\r\n", b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", b": x\r\n", b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", b" folded: x\r\n", b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 201 Created\r\n", b"\r\n"],
    [b"HTTP/1.1 200 OK\r\n", *[b"X: " + b"y" * 1000 + b"\r\n"] * (HEAD_BYTES // 1000)],
    [b"HTTP/1.1 102 Processing\r\n", b"\r\n"] * (HEAD_BYTES // 20),
])  # fmt: skip
def test_an_invalid_head_ends_the_request(lines: list[bytes]) -> None:
    """An invalid head raises an error of httpx."""
    exchange = given(*lines)
    assert not exchange.has_head
    with pytest.raises(httpx.RemoteProtocolError):
        exchange.response(httpx.ByteStream(b""), {})


@pytest.mark.parametrize(("status", "kept"), [(b"200", 2 * ROOM), (b"401", ROOM)])
def test_a_response_that_cannot_be_paused_has_a_limit(status: bytes, kept: int) -> None:
    """More unread bytes than the limit are an error; the unread bytes can be read."""
    asked = httpx.Request("GET", "https://zones.example/x")
    exchange = Exchange(asked, (), room=2 * ROOM, may_pause=False)
    for line in (b"HTTP/2 " + status + b" \r\n", b"\r\n"):
        assert exchange.head(line) is None
    part = bytes(ROOM // 4)
    while exchange.waiting <= kept:
        assert exchange.body(part) is None
    assert exchange.body(part) == -1
    assert isinstance(exchange.wrong, httpx.RemoteProtocolError)
    assert exchange.waiting == kept + len(part)
    exchange.take()
    assert exchange.waiting == kept


def test_a_header_that_would_be_two_is_not_sent() -> None:
    """A line break in a header value is an error."""
    request = httpx.Request("GET", "https://zones.example", headers=[(b"X", b"a\r\nY: b")])
    with pytest.raises(httpx.LocalProtocolError):
        given(request=request)


@pytest.mark.parametrize(
    "headers", [[b"X: y\r\n"] * (HEADERS + 1), [b"Content-Encoding: gzip\r\n"],
                [b"Transfer-Encoding: gzip, chunked\r\n"]],
)  # fmt: skip
def test_a_success_with_too_many_headers_or_encoded_is_refused(headers: list[bytes]) -> None:
    """The error comes before any of the body is read."""
    exchange = given(b"HTTP/1.1 200 OK\r\n", *headers, b"\r\n")
    with pytest.raises(httpx.DecodingError):
        exchange.response(httpx.ByteStream(b""), {})
