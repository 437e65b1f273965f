"""Operations on the sandbox's own paths: folders, moving, deleting, restoring, purging."""

import pytest

from tests.sandbox.running import Person, Zone, refusal


def entry_url(zone: Zone, entry_id: str) -> str:
    """Return the address of an entry on the sandbox's own paths."""
    return f"{zone.own}/entries/{entry_id}"


def test_a_folder_is_made_once(zone: Zone, folder: str) -> None:
    """The answer is 201 with the entry; 409 if a file or folder has the name."""
    body = {"parentId": folder, "name": "inner"}
    answer = zone.person.post(f"{zone.own}/folders", json=body)
    assert answer.status_code == 201
    assert zone.listing(folder) == [answer.json()]
    again = zone.person.post(f"{zone.own}/folders", json=body)
    assert refusal(again) == (409, "ALREADY_EXISTS")
    assert again.json()["data"] == answer.json()["id"]
    zone.file("file", b"", folder)
    taken = zone.person.post(f"{zone.own}/folders", json={**body, "name": "file"})
    assert refusal(taken) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("name", ["", "a/b", "nul\0", "n" * 65_537, "ü" * 32_769])
def test_a_folder_needs_a_possible_name(zone: Zone, folder: str, name: str) -> None:
    """The names of new and renamed folders are checked like those of files."""
    answer = zone.person.post(f"{zone.own}/folders", json={"parentId": folder, "name": name})
    assert refusal(answer) == (400, "ILLEGAL_NAME")
    renamed = zone.person.put(entry_url(zone, folder), json={"name": name})
    assert refusal(renamed) == (400, "ILLEGAL_NAME")


def test_a_file_is_renamed_and_moved(zone: Zone, folder: str) -> None:
    """Only the place changes; id, versions, content and lastModified stay."""
    file = zone.file("a.txt", b"one", folder)
    inner = zone.folder("inner", folder)
    url = entry_url(zone, file["id"])
    renamed = zone.person.put(url, json={"name": "b.md"}).json()
    assert renamed == {
        **file,
        "name": "b.md",
        "displayName": "b.md",
        "properName": "b",
        "type": "md",
    }
    moved = zone.person.put(url, json={"parentId": inner}).json()
    assert moved == {**renamed, "parentId": inner}
    back = zone.person.put(url, json={"parentId": folder, "name": "a.txt"}).json()
    assert back == file
    assert zone.content(file["id"]).content == b"one"
    assert zone.person.put(url, json={"name": "a.txt"}).json() == file


def test_a_leading_dot_hides_an_entry(zone: Zone, folder: str) -> None:
    """A renaming that adds or removes the dot changes `hidden`; others keep what a user has set."""
    url = entry_url(zone, zone.file("a", b"", folder)["id"])

    def hidden_as(name: str) -> bool:
        answer = zone.person.put(url, json={"name": name})
        return bool(answer.json()["attributes"]["hidden"])

    assert [hidden_as(name) for name in (".a", ".b", "b", "c")] == [True, True, False, False]
    zone.person.put(url + "/attributes", json={"hidden": True})
    assert hidden_as("d")


def test_a_taken_name_stops_a_move(zone: Zone, folder: str) -> None:
    """Renaming replaces no other entry."""
    first, second = zone.file("1", b"", folder), zone.file("2", b"", folder)
    inner = zone.folder("inner", folder)
    zone.file("1", b"", inner)
    answer = zone.person.put(entry_url(zone, second["id"]), json={"name": "1"})
    assert refusal(answer) == (409, "ALREADY_EXISTS")
    answer = zone.person.put(entry_url(zone, first["id"]), json={"parentId": inner})
    assert refusal(answer) == (409, "ALREADY_EXISTS")
    assert zone.names(folder) == ["1", "2", "inner"]


def test_a_folder_does_not_move_into_itself(zone: Zone, folder: str) -> None:
    """A folder cannot be moved into itself, below itself, or into a file."""
    inner = zone.folder("inner", folder)
    file = zone.file("file", b"", inner)
    for target in (folder, inner):
        answer = zone.person.put(entry_url(zone, folder), json={"parentId": target})
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")
    answer = zone.person.put(entry_url(zone, inner), json={"parentId": file["id"]})
    assert refusal(answer) == (400, "NOT_A_FOLDER")


def test_nothing_moves_to_another_zone(alice: Person, zone: Zone, folder: str) -> None:
    """A folder of another zone is not accepted as target."""
    other = alice.zone("Alice alone")
    answer = alice.put(entry_url(zone, folder), json={"parentId": other.root})
    assert refusal(answer) == (404, "UNKNOWN_FILE")


def test_the_root_stays(zone: Zone) -> None:
    """A zone's root folder can be neither moved nor deleted."""
    url = entry_url(zone, zone.root)
    assert refusal(zone.person.put(url, json={"name": "x"})) == (403, "NOT_ALLOWED")
    assert refusal(zone.person.delete(url)) == (403, "NOT_ALLOWED")


def test_a_deleted_file_is_gone_and_comes_back(zone: Zone, folder: str) -> None:
    """The file is only in the list of deleted entries; after a restore it is the same as before."""
    file = zone.file("a", b"one", folder)
    url = entry_url(zone, file["id"])
    assert zone.person.delete(url).status_code == 204
    assert zone.names(folder) == []
    assert refusal(zone.person.get(f"{zone.url}/files/{file['id']}")) == (404, "UNKNOWN_FILE")
    assert refusal(zone.content(file["id"])) == (404, "UNKNOWN_FILE")
    assert refusal(zone.person.delete(url)) == (404, "UNKNOWN_FILE")
    deleted = zone.person.get(f"{zone.own}/deleted").json()
    assert [entry for entry in deleted if entry["id"] == file["id"]] == [
        {**file, "deleted": True, "deletedAt": deleted[-1]["deletedAt"]}
    ]
    restored = zone.person.post(url + "/restore")
    assert (restored.status_code, restored.json()) == (200, file)
    assert zone.content(file["id"]).content == b"one"
    assert refusal(zone.person.post(url + "/restore")) == (409, "WRONG_STATE")


def test_a_folder_takes_its_content_along(zone: Zone, folder: str) -> None:
    """A folder is deleted and restored with its content; entries deleted earlier stay deleted."""
    inner = zone.folder("inner", folder)
    deep = zone.folder("deep", inner)
    kept, gone = zone.file("kept", b"", deep), zone.file("gone", b"", deep)
    zone.person.delete(entry_url(zone, gone["id"]))
    zone.person.delete(entry_url(zone, inner))
    for path in (f"/files/{kept['id']}", f"/folder/{deep}", f"/folder/{inner}"):
        assert refusal(zone.person.get(zone.url + path)) == (404, "UNKNOWN_FILE")
    assert refusal(zone.upload("new", b"", deep)) == (404, "UNKNOWN_FILE")
    ids = [entry["id"] for entry in zone.person.get(f"{zone.own}/deleted").json()]
    assert inner in ids
    assert gone["id"] in ids
    assert kept["id"] not in ids

    for entry_id in (kept["id"], gone["id"]):
        answer = zone.person.post(entry_url(zone, entry_id) + "/restore")
        assert refusal(answer) == (409, "WRONG_STATE")
    assert zone.person.post(entry_url(zone, inner) + "/restore").status_code == 200
    assert zone.names(deep) == ["kept"]
    assert zone.person.post(entry_url(zone, gone["id"]) + "/restore").status_code == 200
    assert zone.names(deep) == ["kept", "gone"]


def test_a_taken_name_stops_a_restore(zone: Zone, folder: str) -> None:
    """A restore does not replace a new entry; after that one is renamed, it works."""
    old = zone.file("a", b"old", folder)
    zone.person.delete(entry_url(zone, old["id"]))
    new = zone.file("a", b"new", folder)
    restore = entry_url(zone, old["id"]) + "/restore"
    assert refusal(zone.person.post(restore)) == (409, "ALREADY_EXISTS")
    zone.person.put(entry_url(zone, new["id"]), json={"name": "b"})
    assert zone.person.post(restore).status_code == 200
    assert sorted(zone.names(folder)) == ["a", "b"]


def test_purging_needs_a_deletion_first(zone: Zone, folder: str) -> None:
    """An entry that is not deleted gives 409; a deleted one is purged with versions and content."""
    inner = zone.folder("inner", folder)
    file = zone.file("a", b"content", inner)
    data = zone.person.service.data / "content"
    blob = zone.versions(file["id"])[0]["id"]
    assert len(list(data.rglob(blob))) == 1
    url = entry_url(zone, inner)
    assert refusal(zone.person.delete(url + "/purge")) == (409, "WRONG_STATE")
    zone.person.delete(url)
    assert zone.person.delete(url + "/purge").status_code == 204
    assert refusal(zone.person.delete(url + "/purge")) == (404, "UNKNOWN_FILE")
    assert refusal(zone.person.post(url + "/restore")) == (404, "UNKNOWN_FILE")
    assert inner not in [e["id"] for e in zone.person.get(f"{zone.own}/deleted").json()]
    assert list(data.rglob(blob)) == []


def test_users_see_their_own_levels(zone: Zone, alice: Person, bob: Person) -> None:
    """The levels are those in each zone that the user sees, also through a group."""

    def levels(person: Person) -> dict[str, str]:
        answer = person.get("/api/sandbox/levels")
        assert answer.status_code == 200
        found = {each["zoneId"]: each["level"] for each in answer.json()}
        assert found.keys() == {each["id"] for each in person.zones().values()}
        return found

    zone_id = zone.record["id"]
    assert levels(alice)[zone_id] == "Manage"
    answer = alice.put(f"{zone.own}/members/{bob.id}", params={"accesslevel": "Add"})
    assert answer.status_code == 204
    assert levels(bob)[zone_id] == "Add"
    alice.put(f"{zone.own}/members/{bob.id}", params={"accesslevel": "Modify"})
    assert levels(bob)[zone_id] == "Modify"
