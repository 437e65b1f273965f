"""Requests that share a connection, with a real HTTP/2 server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing

from tests.harness.front import Front, Request, front
from tests.harness.waiting import eventually
from zonedrive.remote.clients import REFUSAL, read_body
from zonedrive.remote.transport.engine import READ_BYTES
from zonedrive.remote.transport.exchange import ROOM
from zonedrive.remote.transport.tls import trust
from zonedrive.remote.transport.transports import LoopTransport, StreamBody

PATIENCE = 60.0  # seconds

LOCATIONS = """
    location /small {{ default_type text/plain; return 200 "small answer"; }}
    location /large {{ root {folder}; }}
    location /slow {{ root {folder}; limit_rate 1k; }}
    location /encoded {{ alias {folder}/large; add_header Content-Encoding gzip; }}
    location /hidden {{ return 404 "not here"; }}
    location /long-refusal {{ error_page 401 /large; return 401; }}
    location /first {{ if ($connection_requests != 1) {{ return 444; }} return 200 "first"; }}
"""


@contextmanager
def serving(folder: Path) -> Iterator[Front]:
    """Start an HTTP/2 server with some files."""
    folder.chmod(0o755)
    for name in ("large", "slow"):
        (folder / name).write_bytes(b"0123456789abcdef" * 200_000)
    with front(locations=LOCATIONS.format(folder=folder)) as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Share one server among the tests."""
    with serving(tmp_path_factory.mktemp("files")) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Front]:
    """Yield a server for a test that counts requests, because earlier ones may be logged late."""
    with serving(tmp_path) as found:
        yield found


def logged(server: Front, count: int) -> list[Request]:
    """Wait for this number of requests, which the server logs after answering."""
    eventually(lambda: len(server.requests()) >= count)
    found = server.requests()
    assert len(found) == count
    return found


class Client:
    """Transport, and requests on it."""

    def __init__(self, server: Front) -> None:
        self.transport = LoopTransport(trust(server.ca_file))
        self.server = server

    async def get(self, path: str, *, seconds: float = PATIENCE) -> tuple[int, bytes]:
        """Send a request; return its status and complete body."""
        timeout = {"connect": seconds, "read": seconds, "write": seconds}
        request = httpx.Request("GET", self.server.base_url + path, extensions={"timeout": timeout})
        response = await self.transport.handle_async_request(request)
        try:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            return response.status_code, b"".join([part async for part in response.stream])
        finally:
            await response.stream.aclose()  # type: ignore[union-attr]


@pytest.fixture
async def client(server: Front) -> AsyncIterator[Client]:
    """Yield a transport to the shared server."""
    found = Client(server)
    yield found
    await found.transport.aclose()


async def test_a_hundred_at_once_share_a_connection(own: Front) -> None:
    client = Client(own)
    found = {}

    async def ask(path: str) -> None:
        found[path] = await client.get(path)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(ask, f"/small/{number}")
            nursery.start_soon(ask, f"/hidden/{number}")
    await client.transport.aclose()
    for number in range(50):
        assert found[f"/small/{number}"] == (200, b"small answer")
        assert found[f"/hidden/{number}"] == (404, b"not here")
    seen = logged(own, 100)
    assert {each.protocol for each in seen} == {"HTTP/2.0"}
    assert len({each.connection for each in seen}) == 1


async def test_a_body_in_many_pieces(client: Client) -> None:
    """A large body arrives completely, in parallel with small ones."""
    bodies = []

    async def ask() -> None:
        bodies.append(await client.get("/large"))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(ask)
        for _ in range(10):
            assert await client.get("/small") == (200, b"small answer")
    assert bodies == [(200, b"0123456789abcdef" * 200_000)] * 4


async def test_a_long_refusal_that_is_not_read_takes_no_memory(client: Client) -> None:
    """A 401 response that waits for a renewal is received only in part; its beginning is kept."""
    request = httpx.Request("GET", client.server.base_url + "/long-refusal")
    refused = await client.transport.handle_async_request(request)
    assert isinstance(refused.stream, StreamBody)
    with trio.fail_after(PATIENCE):
        while not refused.stream.exchange.is_over:
            assert await client.get("/large") == (200, b"0123456789abcdef" * 200_000)
    assert ROOM < refused.stream.exchange.waiting <= ROOM + READ_BYTES
    assert await read_body(refused, 0) == (b"0123456789abcdef" * 200_000)[:REFUSAL]
    assert await client.get("/small") == (200, b"small answer")


async def test_an_encoded_answer_is_refused_and_cancelled(client: Client) -> None:
    """The rest of a rejected answer is not received while other requests wait."""
    with pytest.raises(httpx.DecodingError):
        await client.get("/encoded")
    assert client.transport._streams is not None and not client.transport._streams._running
    assert await client.get("/small") == (200, b"small answer")


async def test_a_cancelled_request_does_not_disturb_others(client: Client) -> None:
    """Another task drives the connection if the one that does is cancelled."""
    await client.get("/small")
    got = []
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            scopes = [trio.CancelScope() for _ in range(3)]

            async def slowly(scope: trio.CancelScope) -> None:
                with scope:
                    await client.get("/slow")
                    raise AssertionError("it cannot have come already")

            async def quickly() -> None:
                got.append(await client.get("/large"))

            nursery.start_soon(slowly, scopes[0])
            nursery.start_soon(quickly)
            nursery.start_soon(slowly, scopes[1])
            nursery.start_soon(quickly)
            nursery.start_soon(slowly, scopes[2])
            await trio.testing.wait_all_tasks_blocked()
            for scope in scopes:
                scope.cancel()
    assert len(got) == 6
    assert await client.get("/small") == (200, b"small answer")


async def test_a_server_that_dies_ends_every_answer_in_an_error(client: Client) -> None:
    """All requests get an error, and the next one uses the new server."""
    await client.get("/small")
    failed = []
    begun, all_begun = 0, trio.Event()

    async def ask() -> None:
        nonlocal begun
        request = httpx.Request("GET", client.server.base_url + "/slow")
        response = await client.transport.handle_async_request(request)
        begun += 1
        if begun == 5:
            all_begun.set()
        try:
            async for _ in response.stream:  # type: ignore[union-attr]
                pass
        except httpx.TransportError as wrong:
            failed.append(wrong)
        finally:
            await response.stream.aclose()  # type: ignore[union-attr]

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
            await all_begun.wait()
            await trio.to_thread.run_sync(client.server.kill)
    assert len(failed) == 5
    assert await client.get("/small") == (200, b"small answer")


async def test_an_answer_that_stalls(client: Client) -> None:
    """A stalled answer times out without effect on others."""
    await client.get("/small")
    body = httpx.Request(
        "GET",
        client.server.base_url + "/slow",
        extensions={"timeout": {"read": 0.05, "connect": 60.0}},
    )
    with trio.fail_after(PATIENCE):
        with pytest.raises(httpx.ReadTimeout):
            response = await client.transport.handle_async_request(body)
            async for _ in response.stream:  # type: ignore[union-attr]
                pass
        assert await client.get("/small") == (200, b"small answer")


async def test_the_end_of_the_transport_ends_all_requests(client: Client) -> None:
    await client.get("/small")
    failed = []

    async def ask() -> None:
        with pytest.raises(httpx.ReadError) as wrong:
            await client.get("/slow")
        failed.append(wrong)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await client.transport.aclose()
    assert len(failed) == 3


async def test_connections_are_dropped(own: Front) -> None:
    """After `drop_idle` a new connection is used; running requests end normally."""
    client = Client(own)
    bodies = []

    async def ask() -> None:
        bodies.append(await client.get("/large"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        client.transport.drop_idle()
        await client.get("/small")
    client.transport.drop_idle()
    await client.get("/small")
    await client.transport.aclose()
    assert bodies == [(200, b"0123456789abcdef" * 200_000)]
    assert len({each.connection for each in logged(own, 3)}) == 3


async def test_a_request_without_an_answer_is_repeated(own: Front) -> None:
    """The server answers the request only as the first one of a connection."""
    client = Client(own)
    await client.get("/small")
    assert await client.get("/first") == (200, b"first")
    await client.transport.aclose()
    seen = logged(own, 3)
    assert [each.status for each in seen] == [200, 444, 200]
    assert seen[0].connection == seen[1].connection != seen[2].connection
