"""The client against a running sandbox: real TLS, real sockets, real faults."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import httpx
import pytest
import trio

from tests.harness.deployment import Deployment
from zonedrive import errors
from zonedrive.config import Settings
from zonedrive.model import Entry, Zone
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.profiles.load import load_profile


class Bearer(httpx.Auth):
    """Authentication with a fixed bearer."""

    def __init__(self, text: str) -> None:
        self._text = text

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the bearer to the request."""
        request.headers["Authorization"] = self._text
        yield request


class Place:
    """Address of the sandbox."""

    def __init__(self, deployment: Deployment) -> None:
        self.base_url, self.ca_file = deployment.base_url, str(deployment.ca_file)


def opened(deployment: Deployment, profile: str = "sandbox", bearer: str = "") -> HttpService:
    """Return a service for alice."""
    text = bearer or deployment.person("alice").authorization
    return open_service(Place(deployment), Bearer(text), load_profile(profile), Settings())


@pytest.fixture
async def service(deployment: Deployment) -> AsyncIterator[HttpService]:
    """Yield a service for alice with the sandbox profile."""
    found = opened(deployment)
    yield found
    await found.aclose()


def read(service: HttpService, zone: Zone, entry: Entry, offset: int = 0) -> bytes:
    """Return all bytes from `offset`."""
    with service.transfer.download(zone.id, entry.id, offset=offset) as download:
        assert download.total == entry.size
        return b"".join(download)


async def own_zone(service: HttpService, name: str) -> Zone:
    """Return the zone of that name."""
    return next(zone for zone in await service.zones() if zone.name == name)


async def test_everything_the_profile_offers(service: HttpService, zone: str) -> None:
    """Folders, files, versions, moves and the trash work."""
    here = await own_zone(service, zone)
    folder = await service.make_folder(here.id, here.root_id, "new folder?")
    assert folder.folder
    assert folder.parent_id == here.root_id
    upload = service.transfer.upload
    first = await trio.to_thread.run_sync(upload, here.id, folder.id, "a#b.txt", [b"one"], 3)
    second = await trio.to_thread.run_sync(upload, here.id, folder.id, "a#b.txt", [b"three"], 5)
    assert first.id == second.id
    assert first.revision != second.revision
    assert await service.entry(here.id, first.id) == second
    assert await service.listing(here.id, folder.id) == [second]
    newest, oldest = await service.versions(here.id, first.id)
    assert (newest.size, oldest.size) == (5, 3)
    download = service.transfer.download(here.id, first.id, version=oldest.version)
    with download:
        assert b"".join(download) == b"one"
    assert read(service, here, second) == b"three"
    moved = await service.move(here.id, first.id, here.root_id, "Grüße \U0001f600.txt")
    assert (moved.name, moved.parent_id) == ("Grüße \U0001f600.txt", here.root_id)
    with pytest.raises(errors.AlreadyExists):
        await service.make_folder(here.id, here.root_id, "new folder?")
    await service.delete(here.id, moved.id)
    assert [entry.id for entry, _ in await service.deletions(here.id)] == [moved.id]
    restored = await service.restore(here.id, moved.id)
    assert not restored.deleted
    await service.delete(here.id, moved.id)
    await service.purge(here.id, moved.id)
    with pytest.raises(errors.NotFound):
        await service.entry(here.id, moved.id)


async def test_names_of_every_kind_arrive(service: HttpService, zone: str) -> None:
    """Names may contain quotes, line breaks and percent signs."""
    here = await own_zone(service, zone)
    for name in ['a"b', "a\nb", "a\\b", "100%", "a&b=c", "%22", "ü" * 120, "a;b", "{zone}"]:
        entry = service.transfer.upload(here.id, here.root_id, name, [b"x"], 1)
        assert entry.name == name


async def test_a_range_of_the_content(service: HttpService, zone: str) -> None:
    """A download can start at any offset; at the end it is empty."""
    here = await own_zone(service, zone)
    data = bytes(range(256)) * 8000
    entry = service.transfer.upload(here.id, here.root_id, "r", [data], len(data))
    for offset in (0, 1, 1_000_000, len(data) - 1, len(data)):
        assert read(service, here, entry, offset) == data[offset:]


async def test_a_part_of_the_content(service: HttpService, zone: str) -> None:
    """Many small parts come over one connection."""
    here = await own_zone(service, zone)
    data = bytes(range(256)) * 8000
    entry = service.transfer.upload(here.id, here.root_id, "p", [data], len(data))
    for offset in (0, 70_000, 2_000_000, len(data) - 10):
        with service.transfer.download(here.id, entry.id, offset=offset, end=offset + 99) as part:
            assert b"".join(part) == data[offset : offset + 99]
    assert len(service.transfer._client.transport.connections) == 1


async def test_a_download_can_be_broken_off(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """An aborted download ends at once, and the state stays online."""
    here = await own_zone(service, zone)
    data = bytes(8_000_000)
    entry = service.transfer.upload(here.id, here.root_id, "b", [data], len(data))
    for _ in range(6):  # five breaks of another kind in a row would mean: offline
        with service.transfer.download(here.id, entry.id) as download:
            pieces = iter(download)
            next(pieces)
            download.abort()
            with pytest.raises(errors.ZonedriveError):
                list(pieces)
    assert service.link.state == "online"
    assert len(read(service, here, entry)) == len(data)


async def test_a_folder_of_more_than_a_page(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """A service without pagination returns it in one request."""
    here = await own_zone(service, zone)
    folder = await service.make_folder(here.id, here.root_id, "many")
    for number in range(150):
        plant = {"zone": zone, "parent": "many", "name": f"f{number}", "content": ""}
        deployment.tell({"plant": plant})
    deployment.tell({"stats": "reset"})
    for _ in range(2):
        assert len({entry.id for entry in await service.listing(here.id, folder.id)}) == 150
    route = "GET /api/zones/{zone_id}/folder/{folder_id}"
    assert deployment.stats()["requests"][route] == 2


async def test_a_paginating_service() -> None:
    """All entries arrive from a service that paginates."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, zones=1, organization="page_listings = true")
    try:
        service = opened(deployment)
        zones = await service.zones()
        assert len(zones) == 2
        zone = next(zone for zone in zones if zone.name == "Zone 01")
        for number in range(205):
            plant = {"zone": zone.name, "parent": "docs", "name": f"f{number}", "content": ""}
            deployment.tell({"plant": plant})
        docs = next(e for e in await service.listing(zone.id, zone.root_id) if e.name == "docs")
        for _ in range(2):
            found = {entry.name for entry in await service.listing(zone.id, docs.id)}
            assert found >= {f"f{number}" for number in range(205)}
        await service.aclose()
    finally:
        deployment.close()
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_lost_reply_to_an_upload(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """The version exists exactly once; the error says that it may exist, and must not be sent
    again."""
    here = await own_zone(service, zone)
    with (
        deployment.faulty(drop_reply=True, method="POST", times=1),
        pytest.raises(errors.ReplyLost),
    ):
        service.transfer.upload(here.id, here.root_id, "lost", [b"x" * 100_000], 100_000)
    found = {entry.name: entry for entry in await service.listing(here.id, here.root_id)}
    assert found["lost"].size == 100_000


async def test_a_lost_reply_of_a_change(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """The folder was created once, and the error says that it may exist."""
    here = await own_zone(service, zone)
    with (
        deployment.faulty(drop_reply=True, method="POST", times=1),
        pytest.raises(errors.ReplyLost),
    ):
        await service.make_folder(here.id, here.root_id, "lost")
    found = [entry.name for entry in await service.listing(here.id, here.root_id)]
    assert found.count("lost") == 1


async def test_a_download_that_is_cut(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """The received part can be kept, and the rest requested."""
    here = await own_zone(service, zone)
    data = bytes(range(251)) * 20_000
    entry = service.transfer.upload(here.id, here.root_id, "cut", [data], len(data))
    came = b""
    with (
        deployment.faulty(cut_after=2_000_000, times=1),
        pytest.raises(errors.Interrupted),
        service.transfer.download(here.id, entry.id) as download,
    ):
        for chunk in download:
            came += chunk
    assert data.startswith(came)
    assert came + read(service, here, entry, len(came)) == data


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_moment_of_trouble_is_not_noticed(
    service: HttpService, zone: str, deployment: Deployment, status: int
) -> None:
    """Two failures are hidden by repetitions."""
    with deployment.faulty(status=status, method="GET", times=2):
        here = await own_zone(service, zone)
        assert await service.listing(here.id, here.root_id)
    assert service.link.state == "online"


async def test_a_reset_connection_is_not_noticed(
    service: HttpService, zone: str, deployment: Deployment
) -> None:
    """A dead idle connection is replaced."""
    await service.zones()
    with deployment.faulty(drop_reply=True, method="GET", times=2):
        assert await own_zone(service, zone)


async def test_a_service_that_goes_and_comes_back(
    service: HttpService, deployment: Deployment
) -> None:
    """The state is offline at once, and online as soon as the service answers."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.link.run, service.probe)
        await service.zones()
        with deployment.faulty(down=True):
            with pytest.raises(errors.Unreachable):
                await service.zones()
            with trio.fail_after(30):
                while service.link.state != "offline":
                    await service.link.wait_change()
            with pytest.raises(errors.Unreachable, match="offline"):
                await service.zones()
        with trio.fail_after(30):
            await service.link.wait_online()
        await service.zones()
        nursery.cancel_scope.cancel()


async def test_an_expired_logon(deployment: Deployment) -> None:
    """An ended logon is a state, on both clients."""
    service = opened(deployment, bearer="Bearer gone")
    with pytest.raises(errors.NotLoggedOn):
        await service.zones()
    assert service.link.state == "logon-required"
    with pytest.raises(errors.NotLoggedOn):
        service.transfer.download("z", "f")
    await service.aclose()


async def test_the_published_profile(deployment: Deployment, zone: str) -> None:
    """Reading and uploading need only the published profile."""
    service = opened(deployment, "published")
    here = await own_zone(service, zone)
    entry = service.transfer.upload(here.id, here.root_id, "p", [b"abc"], 3)
    assert read(service, here, entry) == b"abc"
    with pytest.raises(errors.NotSupported):
        await service.delete(here.id, entry.id)
    await service.aclose()
