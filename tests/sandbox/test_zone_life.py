"""Operations of zones on the sandbox's own paths: their log, attributes, and shares."""

import re
from typing import Any

from tests.sandbox.running import PASSWORDS, Person, Service, Zone, refusal
from tests.sandbox.test_own_paths import entry_url


def log(zone: Zone, **query: Any) -> list[dict[str, Any]]:
    """Return messages of the zone, newest first."""
    answer = zone.person.get(f"{zone.own}/log", params=query)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()
    return messages


def test_every_change_is_in_the_log(zone: Zone, folder: str) -> None:
    """Each change gives one message with user, time, kind, entry and a sentence."""
    file = zone.file("a.txt", b"1", folder)
    zone.file("a.txt", b"2", folder)
    url = entry_url(zone, file["id"])
    inner = zone.folder("inner", folder)
    zone.person.put(url, json={"name": "b.txt", "parentId": inner})
    zone.person.put(url + "/attributes", json={"executable": True})
    zone.person.delete(url)
    zone.person.post(url + "/restore")
    zone.person.delete(url)
    zone.person.delete(url + "/purge")
    zone.person.put(f"{zone.own}/members/erin@acme.example", params={"accesslevel": "Add"})
    zone.person.put(f"{zone.own}/members/erin@acme.example", params={"accesslevel": "None"})
    newest = log(zone, pageSize=13)
    assert [message["event"] for message in reversed(newest)] == [
        "FolderAdded", "FileAdded", "FileModified", "FolderAdded", "Renamed", "Moved",
        "AttributesChanged", "Deleted", "Restored", "Deleted", "Removed", "MemberChanged",
        "MemberChanged",
    ]  # fmt: skip
    modified = newest[10]
    assert modified["entryId"] == file["id"]
    assert modified["zoneId"] == zone.record["id"]
    assert modified["userId"] == zone.person.id
    assert modified["message"] == "a.txt has the version 2"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", modified["timestamp"])
    assert log(zone, page=2, pageSize=2) == newest[2:4]
    assert log(zone, page=999_999) == []
    assert log(zone.by(zone.person), pageSize=1)[0] == newest[0]


def test_a_message_has_the_path_of_its_time(zone: Zone, folder: str) -> None:
    """The path is the one after the event, without the zone; the log of before stays as it was."""
    name = next(one["name"] for one in zone.listing() if one["id"] == folder)
    file = zone.file("a.txt", b"1", folder)
    url = entry_url(zone, file["id"])
    inner = zone.folder("inner", folder)
    zone.person.put(url, json={"name": "b.txt", "parentId": inner})
    zone.person.delete(url)
    zone.person.delete(url + "/purge")
    for level in ("Add", "None"):
        zone.person.put(f"{zone.own}/members/erin@acme.example", params={"accesslevel": level})
    newest = log(zone, pageSize=8)
    assert [message.get("path") for message in reversed(newest)] == [
        f"{name}/a.txt", f"{name}/inner", *[f"{name}/inner/b.txt"] * 4, None, None,
    ]  # fmt: skip


def test_the_log_since_a_time(zone: Zone, folder: str) -> None:
    """`since` leaves out older messages; the time itself is included, and it must be a time."""
    zone.file("a.txt", b"1", folder)
    zone.file("b.txt", b"1", folder)
    newest, before = log(zone, pageSize=2)
    assert log(zone, since=newest["timestamp"]) == [newest]
    assert log(zone, since=before["timestamp"], pageSize=9) == [newest, before]
    assert log(zone, since="9999-01-01") == []
    for wrong in ("", "yesterday", "5"):
        answer = zone.person.get(f"{zone.own}/log", params={"since": wrong})
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


def test_a_refused_change_is_not_in_the_log(zone: Zone, folder: str) -> None:
    before = log(zone, pageSize=1)
    body = {"parentId": zone.root, "name": zone.names()[0]}
    refusal(zone.person.post(f"{zone.own}/folders", json=body))
    refusal(zone.upload("a/b", b"", folder))
    zone.person.put(entry_url(zone, folder), json={})
    assert log(zone, pageSize=1) == before


def test_the_log_is_for_members(service: Service, alice: Person) -> None:
    private = alice.zone("Alice alone")
    assert refusal(service.person("erin").get(f"{private.own}/log")) == (403, "INVALID_ACCESS")
    assert log(private)[-1]["event"] == "ZoneCreated"


def test_attributes_are_set_and_enforced(zone: Zone, folder: str, bob: Person) -> None:
    """Protection refuses changes of content, versions and names, also in a protected folder."""
    file = zone.file("a", b"1", folder)
    url = entry_url(zone, file["id"])

    def set_(entry: str, **attributes: bool) -> dict[str, bool]:
        answer = zone.person.put(entry_url(zone, entry) + "/attributes", json=attributes)
        assert answer.status_code == 200, answer.text
        shown: dict[str, bool] = answer.json()["attributes"]
        return shown

    assert set_(file["id"], hidden=True, executable=True) == {
        "executable": True,
        "hidden": True,
        "readProtected": False,
        "synchronize": False,
        "writeProtected": False,
    }
    set_(file["id"], readProtected=True)
    assert refusal(zone.content(file["id"])) == (403, "NOT_ALLOWED")
    first = zone.person.get(f"{zone.own}/files/{file['id']}/versions/1/content")
    assert refusal(first) == (403, "NOT_ALLOWED")
    shared = zone.person.post(url + "/share")
    assert refusal(shared) == (403, "NOT_ALLOWED")
    set_(file["id"], readProtected=False, writeProtected=True)
    assert refusal(zone.upload("a", b"2", folder)) == (403, "NOT_ALLOWED")
    by_bob = bob.put(url + "/attributes", json={"hidden": False})
    assert refusal(by_bob) == (403, "NOT_ALLOWED")
    by_bob = bob.put(url + "/attributes", json={"writeProtected": False})
    assert refusal(by_bob) == (403, "NOT_ALLOWED")
    set_(file["id"], writeProtected=False)

    gone = zone.file("gone", b"", folder)
    zone.person.delete(entry_url(zone, gone["id"]))
    set_(folder, writeProtected=True)
    inside = [
        zone.person.delete(url),
        zone.person.put(url, json={"name": "b"}),
        zone.person.put(url, json={"parentId": zone.root}),
        zone.person.post(entry_url(zone, gone["id"]) + "/restore"),
        zone.person.post(f"{zone.own}/folders", json={"parentId": folder, "name": "new"}),
        zone.upload("new", b"", folder),
    ]
    assert [refusal(answer) for answer in inside] == [(403, "NOT_ALLOWED")] * 6
    assert zone.upload("a", b"2", folder).status_code == 200
    set_(folder, writeProtected=False, readProtected=True)
    answer = zone.person.get(f"{zone.url}/folder/{folder}")
    assert refusal(answer) == (403, "NOT_ALLOWED")
    wrong = zone.person.put(url + "/attributes", json={"hidden": "yes"})
    assert refusal(wrong) == (400, "ILLEGAL_ARGUMENT")


def test_a_share_key_gives_access_to_the_shared_entry(
    service: Service, zone: Zone, folder: str
) -> None:
    """A user without an account can read the shared folder and its content, and nothing else."""
    file, other = zone.file("in", b"shared", folder), zone.file("secret", b"")
    made = zone.person.post(entry_url(zone, folder) + "/share")
    assert made.status_code == 201
    nobody, path = service.client(), f"/share/{made.json()['sharekey']}/token"
    answers = [nobody.get(path), nobody.post(path)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert 0 < answers[0].json()["expiresInMillis"] <= 300_000
    guest = Person(service, service.client(), "guest")
    guest.client.headers["Authorization"] = f"Bearer {answers[0].json()['token']}"
    seen = zone.by(guest)
    assert seen.names(folder) == ["in"]
    assert seen.content(file["id"]).content == b"shared"
    assert refusal(seen.content(other["id"])) == (403, "NOT_ALLOWED")
    assert refusal(seen.upload("mine", b"", folder)) == (403, "NOT_ALLOWED")
    for elsewhere in ("/api/zones", "/api/users", "/api/tokens", f"{zone.own}/log"):
        assert refusal(guest.get(elsewhere)) == (403, "NOT_ALLOWED")
    assert zone.person.delete(entry_url(zone, folder)).status_code == 204
    assert refusal(nobody.get(path)) == (404, "NOT_FOUND")
    assert refusal(seen.content(file["id"])) == (404, "UNKNOWN_FILE")


def test_the_end_of_a_share(service: Service, zone: Zone, folder: str, carol: Person) -> None:
    """All keys of the entry end at once, with the tokens from them; a second end is 404."""
    url = entry_url(zone, folder) + "/share"
    keys = [zone.person.post(url).json()["sharekey"] for _ in range(2)]
    token = service.client().get(f"/share/{keys[0]}/token").json()["token"]
    guest = service.client(Authorization=f"Bearer {token}")
    listing = f"{zone.url}/folder/{folder}"
    assert guest.get(listing).status_code == 200
    assert refusal(carol.delete(url)) == (403, "NOT_ALLOWED")
    assert guest.get(listing).status_code == 200
    assert zone.person.delete(url).status_code == 204
    assert refusal(guest.get(listing)) == (401, "AUTHORIZATION_FAILED")
    for key in keys:
        for path in (f"/share/{key}/token", f"/api/sandbox/shares/{key}"):
            assert refusal(service.client().get(path)) == (404, "NOT_FOUND")
    assert refusal(zone.person.delete(url)) == (404, "NOT_FOUND")
    assert [one["event"] for one in log(zone, pageSize=3)] == ["Unshared", "Shared", "Shared"]


def test_a_link_leads_to_the_shared_entry(service: Service, zone: Zone, folder: str) -> None:
    """Without a logon the page leads to every file below, and to nothing beside."""
    name = "<b>Grüße<b> & co.txt"
    file, outside = zone.file(name, b"shared", folder), zone.file("secret", b"")
    inner = zone.folder("inner", folder)
    deep = zone.file("deep", b"deep", inner)
    link = zone.person.post(entry_url(zone, folder) + "/share").json()["link"]
    nobody = service.client()
    page = nobody.get(link)
    assert page.status_code == 200 and "&lt;b&gt;Grüße" in page.text and "<b>" not in page.text
    assert "script-src" not in page.headers["Content-Security-Policy"]
    found = nobody.get(f"{link}/{file['id']}")
    assert found.content == b"shared"
    assert found.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''%3Cb%3E")
    assert f"/{inner}" in page.text and "deep" in nobody.get(f"{link}/{inner}").text
    assert nobody.get(f"{link}/{deep['id']}").content == b"deep"
    assert refusal(nobody.get(f"{link}/{outside['id']}")) == (404, "UNKNOWN_FILE")
    assert refusal(nobody.get(f"{link}/{zone.root}")) == (404, "UNKNOWN_FILE")
    only = zone.person.post(entry_url(zone, file["id"]) + "/share").json()["link"]
    assert f"/{file['id']}" in nobody.get(only).text
    zone.person.put(entry_url(zone, file["id"]) + "/attributes", json={"readProtected": True})
    assert refusal(nobody.get(only)) == (403, "NOT_ALLOWED")
    assert refusal(nobody.get(f"{link}/{file['id']}")) == (403, "NOT_ALLOWED")
    assert "Grüße" not in nobody.get(link).text


def test_a_page_for_members_asks_for_the_password(
    service: Service, alice: Person, zone: Zone, folder: str, carol: Person
) -> None:
    """A browser is told to ask; a member sees the folder and the file, and nobody else does."""
    file, secret = zone.file("<b>.txt", b"for members", folder), zone.file("secret", b"", folder)
    zone.person.put(entry_url(zone, secret["id"]) + "/attributes", json={"readProtected": True})
    pages = f"/api/sandbox/pages/{zone.record['id']}"
    browser = service.client()
    asked = browser.get(f"{pages}/{folder}")
    assert refusal(asked) == (401, "AUTHORIZATION_FAILED")
    assert asked.headers["WWW-Authenticate"].startswith("Basic ")
    browser.auth = (zone.person.id, PASSWORDS[zone.person.id])
    page = browser.get(f"{pages}/{folder}")
    assert f'href="{pages}/{file["id"]}"' in page.text and "secret" not in page.text
    assert "&lt;b&gt;.txt" in page.text and "<b>" not in page.text
    assert f'href="{pages}/content/{file["id"]}"' in browser.get(f"{pages}/{file['id']}").text
    found = browser.get(f"{pages}/content/{file['id']}")
    assert found.content == b"for members"
    assert found.headers["Content-Disposition"].startswith("attachment; ")
    assert refusal(browser.get(f"{pages}/{secret['id']}")) == (403, "NOT_ALLOWED")
    assert refusal(browser.get(f"{pages}/content/{secret['id']}")) == (403, "NOT_ALLOWED")
    closed = alice.zone("Alice alone")
    answer = carol.get(f"/api/sandbox/pages/{closed.record['id']}/{closed.root}")
    assert refusal(answer) == (403, "INVALID_ACCESS")


def test_sharing_needs_the_zones_leave(alice: Person, carol: Person, zone: Zone) -> None:
    """A zone that forbids sharing, a level that is too low, and unknown keys are refused."""
    closed = alice.zone("Alice alone")
    answer = alice.post(entry_url(closed, closed.root) + "/share")
    assert refusal(answer) == (403, "NOT_ALLOWED")
    assert refusal(carol.post(entry_url(zone, zone.root) + "/share")) == (403, "NOT_ALLOWED")
    assert refusal(alice.post("/share/made-up/token")) == (404, "NOT_FOUND")


def test_a_share_has_the_rights_of_its_creator(
    service: Service, alice: Person, zone: Zone, folder: str
) -> None:
    """If the sharing user loses the zone, the holder of the key loses access, too."""
    erin_in = f"{zone.own}/members/erin@acme.example"
    alice.put(erin_in, params={"accesslevel": "Modify"})
    erin = service.person("erin")
    key = erin.post(entry_url(zone, folder) + "/share").json()["sharekey"]
    token = service.client().post(f"/share/{key}/token").json()["token"]
    guest = service.client(Authorization=f"Bearer {token}")
    listing = f"{zone.url}/folder/{folder}"
    assert guest.get(listing).status_code == 200
    alice.put(erin_in, params={"accesslevel": "None"})
    assert refusal(guest.get(listing)) == (403, "INVALID_ACCESS")
