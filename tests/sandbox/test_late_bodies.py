"""Changes to an object while the body of a request for it is being sent."""

import json
from http.client import HTTPResponse

import pytest

from tests.sandbox.running import Person, Service, Zone

GROUP = {"members": [{"memberId": "carol@acme.example", "accessLevel": "Access"}]}


class Late:
    """Request whose endpoint waits for the body."""

    def __init__(self, person: Person, method: str, path: str, kind: str, body: bytes) -> None:
        self._connection = person.service.connect()
        self._body = body
        self._connection.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {person.session}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        # The flag is set when the endpoint asks for the body.
        assert self._connection.recv(1000).startswith(b"HTTP/1.1 100 ")

    def finish(self) -> tuple[int, str]:
        """Send the body; return status and error of the answer."""
        with self._connection:
            self._connection.sendall(self._body)
            answer = HTTPResponse(self._connection)
            answer.begin()
            body = json.loads(answer.read())
        return answer.status, body.get("error", "")


def late_json(person: Person, method: str, path: str, body: object) -> Late:
    """Return a request with a JSON body."""
    return Late(person, method, path, "application/json", json.dumps(body).encode())


def test_a_group_that_goes(alice: Person) -> None:
    """A change of a group that was deleted meanwhile is refused as for an unknown group."""
    group = alice.post("/api/groups", json={"name": "Short-lived"}).json()["properties"]["groupId"]
    late = late_json(alice, "PUT", f"/api/groups/{group}", GROUP)
    assert alice.delete(f"/api/groups/{group}").status_code == 204
    assert late.finish() == (404, "ID_NOT_FOUND")


def test_a_former_manager(service: Service, alice: Person) -> None:
    """Permissions are checked when the change is made, not when the request begins."""
    erin = service.person("erin")
    group = erin.post("/api/groups", json={"name": "Handed over"}).json()["properties"]["groupId"]
    late = late_json(erin, "PUT", f"/api/groups/{group}", GROUP)
    path = f"/api/groups/{group}/members/{erin.id}"
    assert alice.put(path, params={"accesslevel": "None"}).status_code == 200
    assert late.finish() == (403, "NOT_ALLOWED")
    alice.delete(f"/api/groups/{group}")


def test_a_former_member(alice: Person, carol: Person) -> None:
    """An upload is discarded if the access ends meanwhile."""
    zone = alice.zone("Alice alone")
    level = f"{zone.own}/members/{carol.id}"
    assert alice.put(level, params={"accesslevel": "Add"}).status_code == 204
    path = f"{zone.url}/files/{zone.root}?fileName=too-late"
    late = Late(carol, "POST", path, "application/octet-stream", b"content")
    assert alice.put(level, params={"accesslevel": "None"}).status_code == 204
    assert late.finish() == (403, "INVALID_ACCESS")
    assert "too-late" not in zone.names()


@pytest.mark.parametrize("kind", ["new", "version", "folder", "rename", "attributes"])
@pytest.mark.parametrize("purged", [False, True])
def test_an_entry_that_goes(zone: Zone, folder: str, kind: str, purged: bool) -> None:
    """Every operation on or in a deleted entry is refused, and leaves no data."""
    alice = zone.person
    file = zone.file("a", b"1", folder)
    own = f"{zone.own}/entries"
    upload = f"{zone.url}/files/{folder}?fileName="
    bare = "application/octet-stream"
    if kind == "new":
        late = Late(alice, "POST", upload + "new", bare, b"content")
    elif kind == "version":
        late = Late(alice, "POST", upload + "a", bare, b"content")
    elif kind == "folder":
        body = {"parentId": folder, "name": "inner"}
        late = late_json(alice, "POST", f"{zone.own}/folders", body)
    elif kind == "rename":
        late = late_json(alice, "PUT", f"{own}/{file['id']}", {"name": "b"})
    else:
        late = late_json(alice, "PUT", f"{own}/{file['id']}/attributes", {"hidden": True})
    assert alice.delete(f"{own}/{folder}").status_code == 204
    if purged:
        assert alice.delete(f"{own}/{folder}/purge").status_code == 204
    assert late.finish() == (404, "UNKNOWN_FILE")
    assert list((alice.service.data / "incoming").iterdir()) == []
    if not purged:
        assert alice.post(f"{own}/{folder}/restore").status_code == 200
        assert zone.listing(folder) == [file]
