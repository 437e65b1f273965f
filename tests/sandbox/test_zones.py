"""Zones, listings, entries, and the permissions of each level."""

import re
import uuid
from collections.abc import Callable

import pytest

from tests.sandbox.running import Person, Service, Zone, refusal, world

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


def test_a_zone_has_every_field(alice: Person) -> None:
    """All fields of the API exist with their types and realistic values."""
    record = alice.zones()["Project X"]
    assert str(uuid.UUID(record["id"])) == record["id"]
    assert str(uuid.UUID(record["type"])) == record["type"]
    assert re.fullmatch("[0-9a-f]+", record["rootId"])
    assert ISO.fullmatch(record["createdAt"])
    assert {
        name: record[name]
        for name in record
        if name not in ("id", "type", "rootId", "createdAt", "currentSize")
    } == {
        "name": "Project X",
        "description": "The main one",
        "typeName": "Project zone",
        "createdBy": "alice@acme.example",
        "numberOfUsers": 4,
        "allowExternalSharing": True,
        "ssiAccessible": True,
        "webAccessible": True,
        "useECM": False,
    }


def test_the_size_of_a_zone_is_real(alice: Person, zone: Zone, folder: str) -> None:
    """The size is the total of all current versions, without old versions and deleted files."""
    before = alice.zones()["Project X"]["currentSize"]
    zone.file("a", b"x" * 100, folder)
    entry = zone.file("a", b"x" * 250, folder)
    assert alice.zones()["Project X"]["currentSize"] == before + 250
    alice.delete(f"{zone.own}/entries/{entry['id']}")
    assert alice.zones()["Project X"]["currentSize"] == before


def test_only_the_users_zones_are_listed(service: Service, alice: Person, bob: Person) -> None:
    """Other zones are not listed, even for administrators; closed zones are, as closed."""
    assert alice.zones().keys() == {"Project X", "Closed", "Alice alone"}
    assert bob.zones().keys() == {"Project X", "Closed"}
    assert service.person("erin").zones() == {}
    assert bob.zones()["Closed"]["ssiAccessible"] is False


def test_a_closed_zone_is_not_accessible(alice: Person) -> None:
    """The manager of a closed zone gets no listing, metadata or upload over this API, either."""
    closed = alice.zone("Closed")
    for path in (f"/folder/{closed.root}", f"/files/{closed.root}"):
        assert refusal(alice.get(closed.url + path)) == (403, "INVALID_ACCESS")
    assert refusal(closed.upload("x")) == (403, "INVALID_ACCESS")


def test_a_strangers_zone_is_refused(service: Service, zone: Zone, alice: Person) -> None:
    """A zone without access gives 403, an unknown zone 404."""
    erin = zone.by(service.person("erin"))
    answer = erin.person.get(f"{zone.url}/folder/{zone.root}")
    assert refusal(answer) == (403, "INVALID_ACCESS")
    answer = alice.get(f"/api/zones/{uuid.uuid4()}/folder/{zone.root}")
    assert refusal(answer) == (404, "UNKNOWN_ZONE")


def test_an_entry_has_every_field(zone: Zone, folder: str) -> None:
    """Upload, metadata and listing return the same complete entry."""
    entry = zone.file("report.final.PDF", b"12345", folder)
    assert re.fullmatch("[0-9a-f]+", entry["id"])
    assert ISO.fullmatch(entry["lastModified"])
    assert {key: entry[key] for key in entry if key not in ("id", "lastModified")} == {
        "zoneId": zone.record["id"],
        "parentId": folder,
        "name": "report.final.PDF",
        "displayName": "report.final.PDF",
        "properName": "report.final",
        "folder": False,
        "deleted": False,
        "size": 5,
        "type": "pdf",
        "lastModifiedBy": "alice@acme.example",
        "synchronizationStatus": "NotSynchronizing",
        "attributes": {
            "executable": False,
            "hidden": False,
            "readProtected": False,
            "synchronize": False,
            "writeProtected": False,
        },
    }
    assert zone.listing(folder) == [entry]
    assert zone.person.get(f"{zone.url}/files/{entry['id']}").json() == entry


@pytest.mark.parametrize(
    ("name", "proper", "kind", "hidden"),
    [
        ("a.txt", "a", "txt", False), (".profile", ".profile", "file", True),
        ("Makefile", "Makefile", "file", False), ("end.", "end.", "file", False),
        ("..", "..", "file", True),
    ],
)  # fmt: skip
def test_names_have_a_proper_name_and_a_type(
    zone: Zone, folder: str, name: str, proper: str, kind: str, hidden: bool
) -> None:
    """The extension follows the last dot, if there are characters on both sides of it."""
    entry = zone.file(name, b"", folder)
    assert (entry["properName"], entry["type"]) == (proper, kind)
    assert entry["attributes"]["hidden"] is hidden


def test_a_folder_is_an_entry_too(zone: Zone, folder: str) -> None:
    """The root and every folder have metadata; the root has no parent."""
    root = zone.person.get(f"{zone.url}/files/{zone.root}").json()
    assert (root["folder"], root["parentId"], root["name"]) == (True, "", "Project X")
    inner = zone.person.get(f"{zone.url}/files/{folder}").json()
    assert (inner["folder"], inner["parentId"], inner["size"]) == (True, zone.root, 0)


def test_unknown_ids_are_404(alice: Person, zone: Zone, folder: str) -> None:
    """Unknown ids, and ids of another zone, give 404."""
    entry = zone.file("a", b"", folder)
    other = alice.zone("Alice alone")
    for file_id in ("0" * 32, "x", other.root):
        for path in (f"/folder/{file_id}", f"/files/{file_id}", f"/files/{file_id}/content"):
            assert refusal(alice.get(zone.url + path)) == (404, "UNKNOWN_FILE")
    assert refusal(alice.get(f"{other.url}/files/{entry['id']}")) == (404, "UNKNOWN_FILE")


def test_files_and_folders_are_not_mixed_up(zone: Zone, folder: str) -> None:
    """A file has no listing, a folder no content."""
    entry = zone.file("a", b"", folder)
    answer = zone.person.get(f"{zone.url}/folder/{entry['id']}")
    assert refusal(answer) == (400, "NOT_A_FOLDER")
    assert refusal(zone.content(folder)) == (400, "NOT_A_FILE")
    assert refusal(zone.upload("b", b"", entry["id"])) == (400, "NOT_A_FOLDER")


def test_the_level_add_adds_and_reads(zone: Zone, folder: str, carol: Person) -> None:
    """Add allows listing, reading and new names, and no change of existing entries."""
    entry = zone.file("a", b"old", folder)
    theirs = zone.by(carol)
    assert theirs.names(folder) == ["a"]
    assert theirs.content(entry["id"]).content == b"old"
    assert theirs.file("new", b"", folder)["lastModifiedBy"] == "carol@acme.example"
    assert theirs.folder("inner", folder)
    assert refusal(theirs.upload("a", b"new", folder)) == (403, "NOT_ALLOWED")
    own = f"{zone.own}/entries/{entry['id']}"
    assert refusal(carol.put(own, json={"name": "b"})) == (403, "NOT_ALLOWED")
    assert refusal(carol.delete(own)) == (403, "NOT_ALLOWED")
    zone.person.delete(own)
    assert refusal(carol.post(own + "/restore")) == (403, "NOT_ALLOWED")
    assert refusal(carol.delete(own + "/purge")) == (403, "NOT_ALLOWED")


def test_the_level_modify_does_all_but_purge(zone: Zone, folder: str, bob: Person) -> None:
    """Modify allows new versions, renames, moves, deletions and restores."""
    theirs = zone.by(bob)
    entry = theirs.file("a", b"1", folder)
    assert theirs.file("a", b"2", folder)["id"] == entry["id"]
    own = f"{zone.own}/entries/{entry['id']}"
    assert bob.put(own, json={"name": "b"}).status_code == 200
    assert bob.delete(own).status_code == 204
    assert refusal(bob.delete(own + "/purge")) == (403, "NOT_ALLOWED")
    assert bob.post(own + "/restore").status_code == 200


def test_protection_is_enforced(service: Service, zone: Zone, folder: str) -> None:
    """Read-protected content is not sent; write-protected entries are not changed."""
    name = zone.person.get(f"{zone.url}/files/{folder}").json()["name"]
    entry = zone.file("a", b"1", folder)

    def protect(path: str, **attributes: bool) -> dict[str, bool]:
        answer = service.tell({"protect": {"zone": "Project X", "path": path, **attributes}})
        shown: dict[str, bool] = answer["attributes"]
        return shown

    shown = protect(f"{name}/a", readProtected=True)
    assert (shown["readProtected"], shown["writeProtected"]) == (True, False)
    assert refusal(zone.content(entry["id"])) == (403, "NOT_ALLOWED")
    assert zone.file("a", b"2", folder)["size"] == 1
    protect(f"{name}/a", readProtected=False, writeProtected=True)
    assert zone.content(entry["id"]).content == b"2"
    assert refusal(zone.upload("a", b"3", folder)) == (403, "NOT_ALLOWED")
    own = f"{zone.own}/entries/{entry['id']}"
    assert refusal(zone.person.put(own, json={"name": "b"})) == (403, "NOT_ALLOWED")
    assert refusal(zone.person.delete(own)) == (403, "NOT_ALLOWED")


def test_listings_are_whole_where_they_are_not_paginated(zone: Zone, folder: str) -> None:
    """Without the switch, page and pageSize change nothing."""
    for number in range(3):
        zone.file(str(number), b"", folder)
    path = f"{zone.url}/folder/{folder}"
    for query in ({}, {"page": "2", "pageSize": "1"}, {"page": "x"}):
        assert len(zone.person.get(path, params=query).json()) == 3


def test_listings_come_in_pages_where_the_switch_is_on(start: Callable[..., Service]) -> None:
    """The default is the first hundred; all pages together are complete, without overlap."""
    service = start(world("page_listings = true"))
    zone = service.person().zone()
    names = [f"{number:03}" for number in range(130)]
    for name in names:
        service.tell({"plant": {"zone": "Project X", "name": name}})
    path = f"{zone.url}/folder/{zone.root}"

    def page(**query: int) -> list[str]:
        return [entry["name"] for entry in zone.person.get(path, params=query).json()]

    assert page() == names[:100]
    assert page(page=2) == names[100:]
    assert page(page=3) == []
    assert page(page=4, pageSize=40) == names[120:]
    assert page(pageSize=1000) == names
    assert page(pageSize=10**30) == names
    assert page(page=10**30) == page(page=10**30, pageSize=10**30) == []
    zones = zone.person.get("/api/zones", params={"page": 2, "pageSize": 2}).json()
    assert [each["name"] for each in zones] == ["Alice alone"]
    for query in ({"page": "0"}, {"page": "-1"}, {"pageSize": "0"}, {"pageSize": "x"}):
        answer = zone.person.get(path, params=query)
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


HOSTILE = ["a/b", "..", ".", "", "tab\there", "line\nbreak", "\x00", "\x7f", "n" * 5000, "é", "💼"]


def test_hostile_names_can_be_planted(service: Service, zone: Zone, folder: str) -> None:
    """The control socket can create any name, even twice, which is served unchanged."""
    name = zone.person.get(f"{zone.url}/files/{folder}").json()["name"]
    plant = {"zone": "Project X", "parent": name}
    for odd in HOSTILE:
        made = service.tell({"plant": {**plant, "name": odd, "content": "text"}})
        assert zone.content(made["id"]).content == b"text"
    twice = [service.tell({"plant": {**plant, "name": "twice"}})["id"] for _ in range(2)]
    inner = service.tell({"plant": {**plant, "name": "dir", "folder": True}})
    assert len(set(twice)) == 2
    assert inner["folder"] is True
    assert zone.names(folder) == [*HOSTILE, "twice", "twice", "dir"]
    for wrong in ({"zone": "No"}, {"parent": "no/such"}, {"colour": "red"}):
        assert "error" in service.tell({"plant": {**plant, "name": "x", **wrong}})
