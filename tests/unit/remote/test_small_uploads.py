"""Small uploads over separate connections have the same guarantees as other uploads."""

from collections.abc import AsyncIterator, Generator

import httpx
import pytest
import trio

from tests.harness.deployment import Deployment
from tests.unit.remote.test_real_service import Place, own_zone
from zonedrive import errors
from zonedrive.config import Settings
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.profiles.load import load_profile


class Renewing(httpx.Auth):
    """Bearer that is out of date at first."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the bearer; after a refusal, the next one."""
        request.headers["Authorization"] = self.texts[0]
        response = yield request
        if response.status_code == 401 and len(self.texts) > 1:
            del self.texts[0]
            request.headers["Authorization"] = self.texts[0]
            yield request


def opened(deployment: Deployment, *stale: str) -> HttpService:
    """Return a service for alice, which tries the `stale` bearers first."""
    bearer = deployment.person("alice").authorization
    auth = Renewing([*stale, bearer])
    return open_service(Place(deployment), auth, load_profile("sandbox"), Settings())


@pytest.fixture
async def service(deployment: Deployment) -> AsyncIterator[HttpService]:
    """Yield a service for alice."""
    found = opened(deployment)
    yield found
    await found.aclose()


async def test_many_at_once_arrive_whole(service: HttpService, zone: str) -> None:
    """Each of many small files is stored once, under its name and with its bytes."""
    here = await own_zone(service, zone)
    folder = (await service.make_folder(here.id, here.root_id, "in here")).id
    files = {f"Grüße {number} \U0001f600.txt": bytes([number]) * number for number in range(40)}
    async with trio.open_nursery() as nursery:
        for name, data in files.items():
            nursery.start_soon(service.upload, here.id, folder, name, data)
    found = {entry.name: entry for entry in await service.listing(here.id, folder)}
    assert found.keys() == files.keys()
    for name, data in files.items():
        with service.transfer.download(here.id, found[name].id) as download:
            assert b"".join(download) == data


async def test_the_result_is_the_entry(service: HttpService, zone: str) -> None:
    """The result is the entry of a listing, also for a second version."""
    here = await own_zone(service, zone)
    folder = (await service.make_folder(here.id, here.root_id, "in here")).id
    first = await service.upload(here.id, folder, "a.txt", b"one")
    second = await service.upload(here.id, folder, "a.txt", b"three")
    assert (first.id, first.size) == (second.id, 3)
    assert await service.listing(here.id, folder) == [second]


async def test_a_refusal_has_its_type(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """A refused file was certainly not stored, and the error has the reason."""
    here = await own_zone(service, zone)
    with pytest.raises(errors.NotFound):
        await service.upload(here.id, "0" * 32, "a.txt", b"one")
    deployment.fault(status=413, error="ILLEGAL_ARGUMENT", method="POST", times=1)
    with pytest.raises(errors.TooLarge):
        await service.upload(here.id, here.root_id, "a.txt", b"one")
    deployment.fault(status=503, error="NOT_AVAILABLE", method="POST", times=1)
    with pytest.raises(errors.Unavailable):
        await service.upload(here.id, here.root_id, "a.txt", b"one")
    assert (await service.upload(here.id, here.root_id, "a.txt", b"two")).size == 3


async def test_a_lost_answer_is_reported(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """A lost reply may belong to a stored file; the next request uses a new connection."""
    here = await own_zone(service, zone)
    folder = (await service.make_folder(here.id, here.root_id, "in here")).id
    await service.upload(here.id, folder, "a.txt", b"one")
    deployment.fault(drop_reply=True, method="POST", times=1)
    with pytest.raises(errors.ReplyLost):
        await service.upload(here.id, folder, "b.txt", b"two")
    await service.upload(here.id, folder, "c.txt", b"three")
    names = {entry.name for entry in await service.listing(here.id, folder)}
    assert names == {"a.txt", "b.txt", "c.txt"}


async def test_an_unreachable_service_is_reported(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """Without a connection no bytes were sent; a restart in between is not noticed."""
    here = await own_zone(service, zone)
    await service.upload(here.id, here.root_id, "a.txt", b"one")
    deployment.fault(down=True)
    with pytest.raises(errors.Unreachable):
        await service.upload(here.id, here.root_id, "b.txt", b"two")
    deployment.heal()
    assert (await service.upload(here.id, here.root_id, "b.txt", b"two")).name == "b.txt"


async def test_a_renewed_logon_sends_the_bytes_again(deployment: Deployment, zone: str) -> None:
    """An ended logon costs a second attempt, but causes no error."""
    service = opened(deployment, "Bearer out-of-date")
    try:
        here = await own_zone(service, zone)
        service._requests._client.auth = Renewing(["Bearer old", *opened_texts(deployment)])
        entry = await service.upload(here.id, here.root_id, "a.txt", b"one")
        assert entry.size == 3
        service._requests._client.auth = Renewing(["Bearer old"])
        with pytest.raises(errors.NotLoggedOn):
            await service.upload(here.id, here.root_id, "b.txt", b"two")
    finally:
        await service.aclose()


def opened_texts(deployment: Deployment) -> list[str]:
    """Return the valid bearer."""
    return [deployment.person("alice").authorization]
