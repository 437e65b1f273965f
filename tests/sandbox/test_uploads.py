"""Uploads: forms, plain bytes, names, versions."""

import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.sandbox.running import PASSWORDS, Person, Service, Zone, logon, refusal, world

BOUNDARY = "next-part"


def form(*parts: tuple[str, bytes], end: bool = True, headers: str = "") -> bytes:
    """Return a multipart body of parts in this order."""
    lines = b""
    for name, content in parts:
        lines += f"--{BOUNDARY}\r\n".encode()
        lines += f'Content-Disposition: form-data; name="{name}"{headers}\r\n\r\n'.encode()
        lines += content + b"\r\n"
    return lines + (f"--{BOUNDARY}--\r\n".encode() if end else b"")


def send(
    zone: Zone, folder: str, body: bytes, kind: str = f"multipart/form-data; boundary={BOUNDARY}"
) -> httpx.Response:
    """Send exactly these bytes in a POST."""
    path = f"{zone.url}/files/{folder}"
    return zone.person.post(path, content=body, headers={"Content-Type": kind})


@pytest.mark.parametrize("turned", [False, True])
def test_the_parts_come_in_any_order(zone: Zone, folder: str, turned: bool) -> None:
    """The name may follow the content; other parts are ignored."""
    parts = [
        ("file", b"bytes\r\n--next"),
        ("comment", b"hi"),
        ("fileName", "Übersicht.txt".encode()),
    ]
    answer = send(zone, folder, form(*(parts[::-1] if turned else parts)))
    assert answer.status_code == 200
    assert answer.json()["name"] == "Übersicht.txt"
    assert zone.content(answer.json()["id"]).content == b"bytes\r\n--next"


def test_content_that_looks_like_a_boundary_stays_whole(zone: Zone, folder: str) -> None:
    """Bytes similar to the boundary are content, however the body is split."""
    tricky = (f"\r\n--{BOUNDARY[:-1]}\r\n\r--{BOUNDARY}\n--" * 4000).encode() + b"\r\n"
    answer = send(zone, folder, form(("file", tricky), ("fileName", b"t")))
    assert zone.content(answer.json()["id"]).content == tricky


def test_the_name_of_the_file_part_does_not_count(zone: Zone, folder: str) -> None:
    """fileName is required: the part's own filename is not used instead."""
    body = form(("file", b"x"), headers='; filename="here.txt"')
    assert refusal(send(zone, folder, body)) == (400, "ILLEGAL_ARGUMENT")
    assert zone.names(folder) == []


BROKEN = {
    "no file": form(("fileName", b"a")),
    "two files": form(("file", b"1"), ("file", b"2"), ("fileName", b"a")),
    "two names": form(("file", b"1"), ("fileName", b"a"), ("fileName", b"b")),
    "cut short": form(("file", b"1"), ("fileName", b"a"), end=False),
    "no form": b"just text",
    "nothing": b"",
    "endless header": form(("file", b"1"), headers="; x=" + "y" * 20_000),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_form_leaves_nothing(zone: Zone, folder: str, case: str) -> None:
    """An incomplete form gives 400 and creates no entry."""
    assert refusal(send(zone, folder, BROKEN[case])) == (400, "MULTIPARTUPLOAD_FAILED")
    assert zone.names(folder) == []


def test_other_kinds_of_body_are_refused(zone: Zone, folder: str) -> None:
    """A form without a boundary and other content types are refused."""
    answer = send(zone, folder, b"x", "multipart/form-data")
    assert refusal(answer) == (400, "MULTIPARTUPLOAD_FAILED")
    assert refusal(send(zone, folder, b"{}", "application/json")) == (400, "ILLEGAL_ARGUMENT")


@pytest.mark.parametrize("name", [b"", b"a/b", b"/", b"nul\0", b"\xff\xfe", b"n" * 70_000])
def test_impossible_names_are_refused(zone: Zone, folder: str, name: bytes) -> None:
    """Empty names and names with a slash, with NUL, not in UTF-8 or too long are refused."""
    body = form(("file", b"x"), ("fileName", name))
    assert refusal(send(zone, folder, body)) == (400, "ILLEGAL_NAME")
    assert zone.names(folder) == []


@pytest.mark.parametrize("name", ["..", ".", "bell\x07", "line\nbreak", "n" * 3000, " ", "a\\b"])
def test_unusual_names_are_accepted(zone: Zone, folder: str, name: str) -> None:
    """Unusual names are accepted, because clients must handle them."""
    assert send(zone, folder, form(("file", b""), ("fileName", name.encode()))).status_code == 200
    assert zone.names(folder) == [name]


def test_bare_bytes_have_their_name_in_the_query(zone: Zone, folder: str) -> None:
    """This form of an upload is the sandbox's choice."""
    path = f"{zone.url}/files/{folder}"
    kind = {"Content-Type": "application/octet-stream"}
    query = {"fileName": "a & b?.bin"}
    answer = zone.person.post(path, params=query, content=b"\0\1", headers=kind)
    assert answer.json()["name"] == "a & b?.bin"
    assert zone.content(answer.json()["id"]).content == b"\0\1"
    answer = zone.person.post(path, content=b"", headers=kind)
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


@pytest.mark.parametrize("name", ["%FF", "a%FE", "%ED%A0%80"])
def test_a_name_in_the_query_is_utf8(zone: Zone, folder: str, name: str) -> None:
    """Other bytes are refused, because their replacement would be the same for different names."""
    path = f"{zone.url}/files/{folder}?fileName={name}"
    kind = {"Content-Type": "application/octet-stream"}
    assert refusal(zone.person.post(path, content=b"", headers=kind)) == (400, "ILLEGAL_ARGUMENT")
    assert zone.names(folder) == []


def test_a_known_name_gets_a_new_version(zone: Zone, folder: str, bob: Person) -> None:
    """The file keeps its id; the old versions never change."""
    first = zone.file("plan", b"one", folder)
    second = zone.by(bob).file("plan", b"three", folder)
    assert second["id"] == first["id"]
    assert (second["size"], second["lastModifiedBy"]) == (5, "bob@acme.example")
    assert zone.listing(folder) == [second]
    versions = zone.versions(first["id"])
    assert [(v["version"], v["size"], v["lastModifiedBy"]) for v in versions] == [
        (2, 5, "bob@acme.example"),
        (1, 3, "alice@acme.example"),
    ]
    assert versions[0]["lastModified"] == second["lastModified"]
    assert versions[1]["lastModified"] == first["lastModified"]
    for version, content in [("1", b"one"), (versions[1]["id"], b"one"), ("2", b"three")]:
        path = f"{zone.own}/files/{first['id']}/versions/{version}/content"
        assert zone.person.get(path).content == content
    missing = zone.person.get(f"{zone.own}/files/{first['id']}/versions/3/content")
    assert refusal(missing) == (404, "UNKNOWN_FILE_VERSION")


def test_each_version_is_later_than_the_one_before(zone: Zone, folder: str) -> None:
    """lastModified strictly increases, however fast versions come; every upload is one version."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: zone.upload("busy", b"x" * n, folder), range(24)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    versions = zone.versions(answers[0].json()["id"])
    assert sorted(version["size"] for version in versions) == list(range(24))
    times = [version["lastModified"] for version in versions]
    assert times == sorted(set(times), reverse=True)


def test_a_folders_name_is_taken(zone: Zone, folder: str) -> None:
    inner = zone.folder("inner", folder)
    answer = zone.upload("inner", b"", folder)
    assert refusal(answer) == (409, "ALREADY_EXISTS")
    assert answer.json()["data"] == inner


def test_a_deleted_files_name_is_free(zone: Zone, folder: str) -> None:
    """An upload after a deletion creates a new file, not a version of the old one."""
    old = zone.file("a", b"", folder)
    zone.person.delete(f"{zone.own}/entries/{old['id']}")
    assert zone.file("a", b"", folder)["id"] != old["id"]


def test_an_upload_into_nowhere_is_refused(zone: Zone) -> None:
    """An unknown folder gives 404, and the connection stays usable after a large body."""
    answer = zone.upload("a", b"x" * (3 << 20), "0" * 32)
    assert refusal(answer) == (404, "UNKNOWN_FILE")
    assert zone.person.get("/api/zones").status_code == 200


def test_a_full_disk_is_reported(start: Callable[..., Service]) -> None:
    """An upload that does not fit is refused with IO_EXCEPTION, and leaves no data."""
    service = start(world())
    zone = service.person().zone()
    size = 4 << 20
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, size))
    answer = zone.upload("big", bytes(size + 1))
    assert refusal(answer) == (500, "IO_EXCEPTION")
    assert zone.names() == []
    assert list((service.data / "incoming").iterdir()) == []
    assert zone.upload("small", bytes(1000)).status_code == 200


def test_a_file_that_cannot_be_created_is_reported(start: Callable[..., Service]) -> None:
    """An upload whose file cannot be created is refused with IO_EXCEPTION; the next one works."""
    service = start(world())
    zone = service.person().zone()
    incoming = service.data / "incoming"
    incoming.rmdir()
    assert refusal(zone.upload("a")) == (500, "IO_EXCEPTION")
    incoming.mkdir()
    assert zone.upload("a").status_code == 200
    assert zone.names() == ["a"]


def test_a_full_disk_fails_a_logon_and_a_command(start: Callable[..., Service]) -> None:
    """The database says why it cannot store anything, and works again afterwards."""
    service = start(world())
    alice = service.person()
    zone = alice.zone()
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    answer = logon(service.client(), alice.id, PASSWORDS[alice.id])
    assert refusal(answer) == (500, "IO_EXCEPTION")
    body = {"parentId": zone.root, "name": "f"}
    assert refusal(alice.post(f"{zone.own}/folders", json=body)) == (500, "IO_EXCEPTION")
    assert "error" in service.tell({"plant": {"zone": "Project X", "name": "p"}})
    assert zone.names() == []
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert alice.post(f"{zone.own}/folders", json=body).status_code == 201
    assert logon(service.client(), alice.id, PASSWORDS[alice.id]).status_code == 200
