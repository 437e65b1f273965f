"""The client against a running sandbox: real TLS, real sockets, real faults."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.harness.deployment import Deployment
from tests.unit.remote.conftest import Bearers, Place
from zonedrive import errors
from zonedrive.config import Settings
from zonedrive.model import Entry, Zone
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.profiles.load import load_profile


def opened(deployment: Deployment, profile: str = "sandbox", bearer: str = "") -> HttpService:
    """Return a service for alice."""
    text = bearer or deployment.person("alice").authorization
    place = Place(deployment.base_url, deployment.ca_file)
    return open_service(place, Bearers(text), load_profile(profile), Settings())


@pytest.fixture
async def service(deployment: Deployment) -> AsyncIterator[HttpService]:
    """Yield a service for alice with the sandbox profile."""
    found = opened(deployment)
    yield found
    await found.aclose()


def read(service: HttpService, zone: Zone, entry: Entry) -> bytes:
    """Return the content of a file."""
    with service.transfer.download(zone.id, entry.id) as download:
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


async def test_a_part_of_the_content(service: HttpService, zone: str) -> None:
    """Many small parts come over one connection."""
    here = await own_zone(service, zone)
    data = bytes(range(256)) * 8000
    entry = service.transfer.upload(here.id, here.root_id, "p", [data], len(data))
    for offset in (0, 70_000, 2_000_000, len(data) - 10):
        with service.transfer.download(here.id, entry.id, offset=offset, end=offset + 99) as part:
            assert b"".join(part) == data[offset : offset + 99]
    assert len(service.transfer._client.transport.connections) == 1


async def test_a_download_can_be_broken_off(service: HttpService, zone: str) -> None:
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


async def test_many_small_uploads_arrive_whole(service: HttpService, zone: str) -> None:
    """Each of many files is stored once, under its name and with its bytes."""
    here = await own_zone(service, zone)
    folder = await service.make_folder(here.id, here.root_id, "in here")
    files = {f"Grüße {number} \U0001f600.txt": bytes([number]) * number for number in range(40)}
    async with trio.open_nursery() as nursery:
        for name, data in files.items():
            nursery.start_soon(service.upload, here.id, folder.id, name, data)
    found = {entry.name: entry for entry in await service.listing(here.id, folder.id)}
    assert {name: read(service, here, entry) for name, entry in found.items()} == files


async def test_a_renewed_logon_sends_a_small_upload_again(
    service: HttpService, deployment: Deployment, zone: str
) -> None:
    """An ended logon costs a second attempt, but causes no error."""
    here = await own_zone(service, zone)
    client = service._requests._client
    client.auth = Bearers("Bearer old", deployment.person("alice").authorization)
    assert (await service.upload(here.id, here.root_id, "a.txt", b"one")).size == 3
    client.auth = Bearers("Bearer old")
    with pytest.raises(errors.NotLoggedOn):
        await service.upload(here.id, here.root_id, "b.txt", b"two")


async def test_an_expired_logon(deployment: Deployment) -> None:
    """An ended logon is a state, on both clients."""
    service = opened(deployment, bearer="Bearer gone")
    with pytest.raises(errors.NotLoggedOn):
        await service.zones()
    assert service.link.state == "logon-required"
    with pytest.raises(errors.NotLoggedOn):
        service.transfer.download("z", "f")
    await service.aclose()
