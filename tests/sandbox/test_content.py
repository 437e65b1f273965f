"""Content of files: complete, in ranges, and of one version at a time."""

import hashlib
import os
from collections.abc import Callable

import pytest

from tests.sandbox.running import Service, Zone, memory_peak, refusal, world

TEXT = bytes(range(256)) * 4


@pytest.fixture
def file_id(zone: Zone, folder: str) -> str:
    """Create a file that contains TEXT; return its id."""
    return str(zone.file("text.bin", TEXT, folder)["id"])


def test_content_is_what_was_uploaded(zone: Zone, file_id: str) -> None:
    """The content is sent as application/octet-stream, with its length and a validator."""
    answer = zone.content(file_id)
    assert answer.status_code == 200
    assert answer.content == TEXT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(TEXT))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"].strip('"') == zone.versions(file_id)[0]["id"]
    assert answer.headers["last-modified"].endswith(" GMT")
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0), ("bytes=10-19", 10, 19), ("bytes=1000-", 1000, 1023),
        ("bytes=1020-5000", 1020, 1023), ("bytes=-4", 1020, 1023), ("bytes=-5000", 0, 1023),
        ("bytes=0-", 0, 1023), ("Bytes = 5-6", 5, 6),
        ("bytes=0-99999999999999999999", 0, 1023), ("bytes=-99999999999999999999", 0, 1023),
    ],
)  # fmt: skip
def test_a_range_is_that_part(zone: Zone, file_id: str, wanted: str, first: int, last: int) -> None:
    """A single range gives 206 with the header of its bytes."""
    answer = zone.content(file_id, Range=wanted)
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(TEXT)}"
    assert answer.content == TEXT[first : last + 1]


@pytest.mark.parametrize(
    "wanted", ["bytes=1024-", "bytes=5000-6000", "bytes=-0", "bytes=99999999999999999999-"]
)
def test_a_range_outside_is_416(zone: Zone, file_id: str, wanted: str) -> None:
    """The answer has the size, so that the client can correct its request."""
    answer = zone.content(file_id, Range=wanted)
    assert refusal(answer) == (416, "ILLEGAL_ARGUMENT")
    assert answer.headers["content-range"] == f"bytes */{len(TEXT)}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,4-5", "lines=1-2", "bytes=", "bytes=-", "bytes=9-5"])
def test_other_ranges_are_ignored(zone: Zone, file_id: str, wanted: str) -> None:
    """Several ranges, other units and malformed ranges give the whole content."""
    answer = zone.content(file_id, Range=wanted)
    assert (answer.status_code, answer.content) == (200, TEXT)


def test_an_empty_file_has_empty_content(zone: Zone, folder: str) -> None:
    """An empty file can be downloaded; each range is outside of it."""
    file_id = zone.file("empty", b"", folder)["id"]
    answer = zone.content(file_id)
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    assert zone.content(file_id, Range="bytes=0-").status_code == 416


def test_if_range_keeps_versions_apart(zone: Zone, folder: str, file_id: str) -> None:
    """With the validator of another version, the whole new content is sent."""
    validator = zone.content(file_id).headers["etag"]
    headers = {"Range": "bytes=1-2", "If-Range": validator}
    assert zone.content(file_id, **headers).content == TEXT[1:3]
    zone.file("text.bin", b"another", folder)
    answer = zone.content(file_id, **headers)
    assert (answer.status_code, answer.content) == (200, b"another")
    assert answer.headers["etag"] != validator


def test_if_range_with_a_date_is_the_whole_content(zone: Zone, file_id: str) -> None:
    """A date does not tell two versions of one second apart."""
    date = zone.content(file_id).headers["last-modified"]
    answer = zone.content(file_id, **{"Range": "bytes=1-2", "If-Range": date})
    assert (answer.status_code, answer.content) == (200, TEXT)


def test_without_the_switch_ranges_are_not_served(start: Callable[..., Service]) -> None:
    """In a deployment without ranges, the whole content is sent, without a range header."""
    zone = start(world("ranges = false")).person().zone()
    file_id = zone.file("text.bin", TEXT)["id"]
    answer = zone.content(file_id, Range="bytes=1-2")
    assert (answer.status_code, answer.content) == (200, TEXT)
    assert "accept-ranges" not in answer.headers


def test_a_download_goes_on_while_the_file_changes(zone: Zone, folder: str) -> None:
    """A running download gets one version to its end, even if the file is purged."""
    old = os.urandom(8 << 20)
    file_id = zone.file("big", old, folder)["id"]
    path = f"{zone.url}/files/{file_id}/content"
    with zone.person.client.stream("GET", path) as answer:
        pieces = answer.iter_raw()
        received = [next(pieces)]
        zone.file("big", b"new", folder)
        zone.person.delete(f"{zone.own}/entries/{file_id}")
        assert zone.person.delete(f"{zone.own}/entries/{file_id}/purge").status_code == 204
        received += pieces
    assert b"".join(received) == old


def test_large_content_is_never_held_in_memory(start: Callable[..., Service]) -> None:
    """150 MB are uploaded and downloaded while the memory of the process stays small."""
    service = start(world())
    zone = service.person().zone()
    zone.content(zone.file("warm-up", TEXT)["id"])
    before = memory_peak(service.ready["pid"])
    block, count = os.urandom(1 << 20), 150
    sent = hashlib.sha256()

    def body() -> object:
        for _ in range(count):
            sent.update(block)
            yield block

    answer = zone.person.post(
        f"{zone.url}/files/{zone.root}",
        params={"fileName": "large"},
        content=body(),  # type: ignore[arg-type]
        headers={"Content-Type": "application/octet-stream"},
    )
    assert answer.json()["size"] == count << 20
    received = hashlib.sha256()
    with zone.person.client.stream("GET", f"{zone.url}/files/{answer.json()['id']}/content") as got:
        for piece in got.iter_raw():
            received.update(piece)
    assert received.digest() == sent.digest()
    assert memory_peak(service.ready["pid"]) - before < 40 << 20
