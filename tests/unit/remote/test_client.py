"""The client for people's own programs, against a running sandbox."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio

from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from zonedrive import errors
from zonedrive.model import Zone
from zonedrive.remote import Client
from zonedrive.remote.client import _Token, abandonable, finished


def opened(deployment: Deployment, profile: str = "sandbox") -> Client:
    """Yield a client of alice."""
    bearer = deployment.person("alice").authorization.removeprefix("Bearer ")
    return Client.with_token(
        deployment.base_url, bearer, ca_file=str(deployment.ca_file), profile=profile
    )


@pytest.fixture
async def client(deployment: Deployment) -> AsyncIterator[Client]:
    """Yield a client of alice with the sandbox profile."""
    async with opened(deployment) as found:
        yield found


@pytest.fixture
async def here(client: Client, zone: str) -> Zone:
    """Return a new zone for this test."""
    return await client.zone(zone)


async def test_paths_lead_to_entries(client: Client, here: Zone) -> None:
    """Find returns a zone's root and the entries below it."""
    assert await client.zone(here.id) == here
    root = await client.find(here.name)
    assert (root.id, root.folder) == (here.root_id, True)
    file = await client.find(f"/{here.name}/docs//2026/q1.csv")
    assert (file.name, file.folder) == ("q1.csv", False)
    assert await client.entry(here.id, file.id) == file
    assert await client.listing(root) == await client.listing(here)
    for missing in (f"{here.name}/no", f"{here.name}/docs/no/x", "No zone/x", "", "/"):
        with pytest.raises(errors.NotFound):
            await client.find(missing)
    with pytest.raises(errors.Rejected, match="is a file"):
        await client.find(f"{here.name}/notes.txt/x")


async def test_a_name_that_several_have_is_not_guessed(
    client: Client, here: Zone, deployment: Deployment
) -> None:
    """The error lists the ids of all matches."""
    for _ in range(2):
        deployment.plant(here.name, "twin", "x")
    with pytest.raises(errors.ZonedriveError) as several:
        await client.find(f"{here.name}/twin")
    for entry in await client.listing(here):
        assert (entry.id in several.value.line()) == (entry.name == "twin")


async def test_files_go_up_and_come_back(client: Client, here: Zone, tmp_path: Path) -> None:
    """Upload files and bytes as new files and as versions; download to memory and to a file."""
    source = tmp_path / "größ.bin"
    source.write_bytes(bytes(range(256)) * 9000)
    sent = await client.upload(here, source)
    assert (sent.name, sent.size) == (source.name, 2_304_000)
    again = await client.upload(sent, b"")
    assert (again.id, again.size) == (sent.id, 0)
    other = await client.upload(await client.find(f"{here.name}/docs"), source, name="other")
    assert await client.download(other, tmp_path / "back") == 2_304_000
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    newest, first = await client.versions(sent)
    assert await client.read(sent) == b""
    assert len(await client.read(sent, version=first.version)) == first.size
    assert newest.size == 0


async def test_mistakes_are_reported_before_a_request(
    client: Client, here: Zone, tmp_path: Path
) -> None:
    """A folder as a file, bytes without a name, a missing file, an address without TLS."""
    docs, notes = (
        await client.find(f"{here.name}/docs"),
        await client.find(f"{here.name}/notes.txt"),
    )
    with pytest.raises(errors.Rejected):
        await client.read(docs)
    with pytest.raises(errors.Rejected):
        await client.listing(notes)
    with pytest.raises(errors.Rejected):
        await client.upload(docs, b"x")
    with pytest.raises(errors.Rejected, match="name of its file"):
        await client.upload(notes, b"x", name="other.txt")
    with pytest.raises(FileNotFoundError):
        await client.upload(docs, tmp_path / "no")
    other = next(zone for zone in await client.zones() if zone.id != here.id)
    with pytest.raises(errors.Rejected):
        await client.move(notes, to=other)
    with pytest.raises(errors.Rejected):
        Client.with_token("https://zones.example", "two words")
    with pytest.raises(errors.ConfigError):
        Client.with_token("http://zones.example", "t")
    with pytest.raises(errors.ConfigError):
        Client.with_token("https://zones.example", "t", profile="none such")


async def test_a_failed_download_leaves_the_target_unchanged(
    client: Client, here: Zone, tmp_path: Path, deployment: Deployment
) -> None:
    """The target is replaced completely or not at all, and no temporary file remains."""
    target = tmp_path / "big.bin"
    target.write_bytes(b"old")
    big = await client.find(f"{here.name}/big.bin")
    cut = deployment.faulty(cut_after=100_000, path="/content$")
    with cut, pytest.raises(errors.RemoteError):
        await client.download(big, target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


async def test_a_name_of_any_length_can_be_downloaded(
    client: Client, here: Zone, tmp_path: Path
) -> None:
    """The temporary file has a short name."""
    for name in ("L" * 255, "ü" * 127):
        sent = await client.upload(here, b"x", name=name)
        assert await client.download(sent, tmp_path / name) == 1
    assert {file.name for file in tmp_path.iterdir()} == {"L" * 255, "ü" * 127}


async def test_downloads_to_one_target_do_not_mix(
    client: Client, here: Zone, tmp_path: Path
) -> None:
    """Each download is complete; the last one remains."""
    first = await client.upload(here, b"a" * 3_000_000, name="one")
    newest = await client.upload(first, b"b" * 2_000_000)
    versions = await client.versions(newest)

    async def fetch(version: str) -> None:
        await client.download(first, tmp_path / "one", version=version)

    async with trio.open_nursery() as nursery:
        for version in (*versions, *versions):
            nursery.start_soon(fetch, version.version)
    assert (tmp_path / "one").read_bytes() in (b"a" * 3_000_000, b"b" * 2_000_000)
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


async def test_a_download_can_be_left_early(client: Client, here: Zone) -> None:
    """Leaving the block ends the download, and the client stays usable."""
    big = await client.find(f"{here.name}/big.bin")
    async with client.stream(big) as pieces:
        async for piece in pieces:
            assert piece
            break
    assert await client.read(await client.find(f"{here.name}/empty")) == b""


@pytest.mark.parametrize("what", ["download", "upload"])
async def test_cancelling_ends_a_transfer_that_hangs(
    client: Client, here: Zone, deployment: Deployment, what: str
) -> None:
    """A cancellation does not wait for a silent service."""
    notes = await client.find(f"{here.name}/notes.txt")
    verb = client.read(notes) if what == "download" else client.upload(notes, b"new")
    deployment.fault(stall=60, path="/files/")
    deployment.tell({"stats": "reset"})
    with trio.fail_after(20), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: verb)
            await trio.to_thread.run_sync(
                eventually, lambda: "/files/" in str(deployment.stats()["requests"])
            )
            scope.cancel()
    assert scope.cancelled_caught
    deployment.heal()
    assert await client.listing(here)


async def test_a_result_after_a_cancellation_is_closed() -> None:
    begun, go, dropped = trio.Event(), threading.Event(), threading.Event()

    def work(_unwanted: object) -> str:
        trio.from_thread.run_sync(begun.set)
        assert go.wait(20)
        return "result"

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abandonable, work, lambda _result: dropped.set())
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught and not dropped.is_set()
    go.set()
    assert await trio.to_thread.run_sync(dropped.wait, 20)
    assert await abandonable(lambda _unwanted: 7) == 7


async def test_without_a_profile_nothing_is_tried(deployment: Deployment, zone: str) -> None:
    """An operation that is not published raises NotSupported at once."""
    async with opened(deployment, "published") as client:
        here = await client.zone(zone)
        assert not client.can("versions")
        with pytest.raises(errors.NotSupported):
            await client.versions(await client.find(f"{zone}/notes.txt"))
        with pytest.raises(errors.NotSupported):
            await client.make_folder(here, "x")


async def test_a_cancelled_thread_is_waited_for() -> None:
    """A cancelled thread is stopped and joined; an error is not wrapped in a group."""
    told = []

    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        told.append("stop")

    def work() -> None:
        while not is_stopped:
            trio.from_thread.run(trio.sleep, 0)
        told.append("ended")
        raise ValueError

    with trio.CancelScope() as scope:
        scope.cancel()
        await finished(work, stop)
    assert scope.cancelled_caught and told == ["stop", "ended"]

    def fail() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        await finished(fail, lambda: told.append("never"))
    assert "never" not in told


async def test_a_token_is_sent_as_a_bearer() -> None:
    request = httpx.Request("GET", "https://zones.example")
    next(_Token("t0ken").auth_flow(request))
    assert request.headers["Authorization"] == "Bearer t0ken"
