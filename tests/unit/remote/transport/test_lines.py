"""The kept connections of the metadata client: lent to one request at a time."""

from collections.abc import AsyncIterator

import httpcore
import httpx
import pytest
import trio

from tests.harness.deployment import Deployment
from tests.unit.remote.test_real_service import opened
from zonedrive.remote import Service
from zonedrive.remote.transport import sockets
from zonedrive.remote.transport.lines import Lines


@pytest.fixture
async def service(deployment: Deployment) -> AsyncIterator[Service]:
    """As alice."""
    found = opened(deployment)
    yield found
    await found.aclose()


def lines_of(service: Service) -> Lines:
    """Its connections."""
    transport = service._client._transport
    assert isinstance(transport, httpx.AsyncHTTPTransport)
    assert isinstance(transport._pool, Lines)
    return transport._pool


async def test_a_connection_that_broke_takes_no_other_request_along(service: Service) -> None:
    """Idle ones are dropped then; one that a request has just been given is not idle."""
    for _ in range(10):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(service.zones)
                nursery.start_soon(sockets.drop_idle, service._client)
    await sockets.drop_idle(service._client)
    assert not lines_of(service).connections


async def test_who_finds_no_connection_takes_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends between two requests costs nothing; that none lasts is an error by type."""
    await service.zones()
    lines = lines_of(service)
    (kept,) = lines.connections
    borrow = lines._borrow
    ended = 0

    async def ending(origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        nonlocal ended
        connection = await borrow(origin)
        if connection is kept:
            ended += 1
            await connection.aclose()
        return connection

    monkeypatch.setattr(lines, "_borrow", ending)
    assert await service.zones()
    assert ended == 1
    assert kept not in lines.connections
