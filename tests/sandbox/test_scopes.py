"""Scopes: each part restricts further, and none gives more than the user has."""

import json
import re
from typing import Any

import pytest

from tests.sandbox.running import PASSWORDS, Person, Service, Zone, logon, refusal
from zonedrive.sandbox.app import GUARDED
from zonedrive.sandbox.sessions import ACTIONS


def limited(service: Service, person: Person, **scope: Any) -> Person:
    """Log the same user on with a scope."""
    answer = logon(service.client(), person.id, PASSWORDS[person.id], scope=scope)
    assert answer.status_code == 200, answer.text
    client = service.client(Authorization=f"Bearer {answer.json()['sessionId']}")
    return Person(service, client, person.id)


def is_beyond_scope(person: Person, method: str, path: str) -> bool:
    """Return True if the scope forbids an endpoint, called with invalid identifiers."""
    answer = person.client.request(method, re.sub(r"\{\w+\}", "x", path))
    return answer.status_code == 403 and "scope" in answer.json()["message"]


def test_a_scope_without_content_is_the_user(service: Service, alice: Person) -> None:
    assert limited(service, alice).zones() == alice.zones()


def test_a_scope_for_another_client(service: Service, alice: Person) -> None:
    """A token whose scope is only for another client allows nothing but the logoff."""
    named = limited(service, alice, clients=["Desktop", "ServiceSSI"])
    assert named.get("/api/zones").status_code == 200
    other = limited(service, alice, clients=["Desktop"])
    for path in ("/api/zones", "/api/users", "/api/tokens"):
        assert refusal(other.get(path)) == (403, "NOT_ALLOWED")
    assert other.get("/api/access/logoff").status_code == 204


def test_permissions_restrict_scim_further(service: Service, alice: Person) -> None:
    """SCIM with permissions allows what both allow, and never zones."""
    scope = {"users": {"list": True}, "zones": {"all": True}, "files": {"all": True}}
    scim = limited(service, alice, name="SCIM", permissions=scope)
    assert scim.get("/api/users").status_code == 200
    assert refusal(scim.post("/api/groups", json={"name": "No"})) == (403, "NOT_ALLOWED")
    assert refusal(scim.get("/api/zones")) == (403, "NOT_ALLOWED")
    zone = alice.zone()
    assert refusal(scim.get(f"{zone.own}/log")) == (403, "NOT_ALLOWED")


def test_scim_reaches_users_and_groups_only(service: Service, alice: Person) -> None:
    """No endpoint of zones, files, logs, tokens or passwords, present or future, accepts SCIM."""
    scim = limited(service, alice, name="SCIM")
    for method, path, _endpoint, resource, _action in GUARDED:
        allowed = resource in ("users", "groups")
        assert is_beyond_scope(scim, method, path) is not allowed, (method, path)


def test_a_permission_opens_its_action_alone(service: Service, alice: Person) -> None:
    """The permission of an endpoint is sufficient, and all other permissions together are not."""
    for method, path, _endpoint, resource, action in GUARDED:
        others = {name: name != action for name in ACTIONS if name != "all"}
        for permissions, forbidden in [
            ({resource: others}, True),
            ({"elsewhere": {"all": True}}, True),
            ({resource: {action: True}}, False),
            ({resource: {"all": True}}, False),
        ]:
            person = limited(service, alice, permissions=permissions)
            assert is_beyond_scope(person, method, path) is forbidden, (method, path, permissions)


def test_permissions_never_exceed_the_user(service: Service, bob: Person, zone: Zone) -> None:
    """The user's own level also limits what a scope allows."""
    every = {name: {"all": True} for name in ("zones", "files", "groups", "users", "log")}
    mighty = limited(service, bob, permissions=every)
    path = f"{zone.own}/members/erin@acme.example"
    answer = mighty.put(path, params={"accesslevel": "Add"})
    assert refusal(answer) == (403, "NOT_ALLOWED")
    private = service.regular("alice").zone("Alice alone")
    answer = mighty.get(f"{private.url}/folder/{private.root}")
    assert refusal(answer) == (403, "INVALID_ACCESS")
    assert "Alice alone" not in mighty.zones()


def test_a_limitation_to_zones(service: Service, alice: Person, zone: Zone) -> None:
    """Other zones are neither listed nor accessible."""
    there = zone.record["id"]
    inside = limited(service, alice, limitations={"zones": [there]})
    assert list(inside.zones()) == ["Project X"]
    assert isinstance(zone.by(inside).listing(), list)
    other = alice.zone("Alice alone").by(inside)
    assert refusal(inside.get(f"{other.url}/folder/{other.root}")) == (403, "NOT_ALLOWED")
    assert refusal(other.upload("no.txt")) == (403, "NOT_ALLOWED")
    shared = inside.post(f"{zone.own}/entries/{zone.file('mine', b'')['id']}/share")
    assert refusal(shared) == (403, "NOT_ALLOWED"), "a share would outlive the limit"
    none = limited(service, alice, limitations={"zones": []})
    assert none.zones() == {}


def test_a_limitation_to_entries(service: Service, alice: Person, zone: Zone, folder: str) -> None:
    """The given entries and everything below them can be read; no change is possible."""
    file, outside = zone.file("in", b"1", folder), zone.file("out", b"2")
    reader = zone.by(limited(service, alice, limitations={"entries": [folder]}))
    assert reader.names(folder) == ["in"]
    assert reader.content(file["id"]).content == b"1"
    assert refusal(reader.content(outside["id"])) == (403, "NOT_ALLOWED")
    for path in (f"{zone.url}/folder/{zone.root}", f"{zone.own}/deleted"):
        assert refusal(reader.person.get(path)) == (403, "NOT_ALLOWED")
    assert refusal(reader.upload("new", b"", folder)) == (403, "NOT_ALLOWED")
    own = f"{zone.own}/entries/{file['id']}"
    assert refusal(reader.person.delete(own)) == (403, "NOT_ALLOWED")
    for path in (f"{zone.own}/log", f"{zone.own}/members", "/api/tokens", "/api/users"):
        assert refusal(reader.person.get(path)) == (403, "NOT_ALLOWED")
    member = f"{zone.own}/members/bob@acme.example"
    answer = reader.person.put(member, params={"accesslevel": "Manage"})
    assert refusal(answer) == (403, "NOT_ALLOWED")
    assert "Project X" in reader.person.zones()


@pytest.mark.parametrize(
    "limitations", [{"until": 5}, {"zones": "all"}, {"entries": [5]}, {"zones": None}]
)
def test_an_unknown_limitation_is_refused(
    service: Service, alice: Person, limitations: dict[str, Any]
) -> None:
    """An unknown limitation must not be accepted as if it were enforced."""
    scope = {"limitations": limitations}
    answer = logon(service.client(), alice.id, PASSWORDS[alice.id], scope=scope)
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


@pytest.mark.parametrize("scope", [{"foo": 1}, {"permission": {}}, {"name": "SCIM", "Clients": []}])
def test_an_unknown_field_is_refused(service: Service, alice: Person, scope: Any) -> None:
    """A misspelled limit does not give an unlimited token or session."""
    body = {"tokenName": "t", "validity": 60, "password": list(PASSWORDS[alice.id])}
    answer = alice.post("/api/tokens", json={**body, "scope": scope})
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")
    answer = logon(service.client(), alice.id, PASSWORDS[alice.id], scope=scope)
    assert refusal(answer) == (400, "INVALID_DATA")


@pytest.mark.parametrize("depth", [18, 19, 5000])
def test_a_deeply_nested_scope_is_refused(alice: Person, depth: int) -> None:
    """Every accepted scope can also be listed."""
    values = "[" * depth + "]" * depth
    scope = '{"extensions": {"a": ' + values + "}}"
    kind = {"Content-Type": "application/json"}
    bodies: dict[str, dict[str, Any]] = {
        "/api/access/logon": {"username": alice.id},
        "/api/tokens": {"tokenName": "deep", "validity": 60},
    }
    for path, more in bodies.items():
        body = json.dumps({**more, "password": list(PASSWORDS[alice.id])})
        answer = alice.post(path, content=f'{body[:-1]}, "scope": {scope}}}', headers=kind)
        assert answer.status_code == (400 if depth > 18 else 201 if "token" in path else 200)
    assert alice.get("/api/tokens").status_code == 200


def test_the_scope_of_the_first_step_holds_for_the_whole_flow(
    service: Service, alice: Person
) -> None:
    """A flow that begins with a scope keeps it; its requested lifetime and cookie hold, too."""
    options = {
        "scope": {"permissions": {"users": {"list": True}}},
        "timeout": 5000,
        "setCookie": True,
        "sameSitePolicy": "lax",
    }
    first = logon(service.client(), alice.id, None, acceptSessions=True, **options)
    body = {
        "logonSessionId": first.json()["sessionId"],
        "password": list(PASSWORDS[alice.id]),
        "scope": {"name": "everything"},
    }
    answer = service.client().post("/api/access/logon", json=body)
    assert answer.json()["expiresInMillis"] == 5000
    assert "SameSite=Lax" in answer.headers["set-cookie"]
    holder = service.client(Authorization=f"Bearer {answer.json()['sessionId']}")
    assert holder.get("/api/users").status_code == 200
    assert refusal(holder.get("/api/zones")) == (403, "NOT_ALLOWED")
