"""Tokens and scopes."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sandbox.running import PASSWORDS, Person, Service, eventually, logon, refusal

SCIM = {"name": "SCIM"}


def create(person: Person, **more: Any) -> Any:
    """Request a token."""
    body = {"tokenName": "laptop", "validity": 60, "password": list(PASSWORDS[person.id]), **more}
    return person.post("/api/tokens", json=body)


def bearer(service: Service, token: str) -> Person:
    """Return a user with a token."""
    return Person(service, service.client(Authorization=f"Bearer {token}"), "")


def test_a_token_is_shown_once_and_works_like_a_session(service: Service, alice: Person) -> None:
    """The secret is only in the answer to the creation, and gives access to the same zones."""
    before = time.time() * 1000
    answer = create(alice)
    assert answer.status_code == 201
    made = answer.json()
    assert set(made) == {"id", "token", "expiry"}
    assert before + 60_000 - 1 <= made["expiry"] <= time.time() * 1000 + 60_000
    assert bearer(service, made["token"]).zones() == alice.zones()
    bare = service.client(Authorization=made["token"])
    assert bare.get("/api/zones").status_code == 200
    listed = [token for token in alice.get("/api/tokens").json() if token["id"] == made["id"]]
    assert listed == [
        {
            "id": made["id"],
            "tokenName": "laptop",
            "expiry": made["expiry"],
            "validity": 60,
            "valid": True,
        }
    ]
    assert made["token"] not in alice.get("/api/tokens").text


def test_an_expired_token_stays_listed(service: Service, alice: Person) -> None:
    """After its lifetime a token is refused, but stays in the list."""
    made = create(alice, validity=1).json()
    holder = bearer(service, made["token"])
    eventually(lambda: holder.get("/api/zones").status_code == 401, "the token expires")
    found = [token for token in alice.get("/api/tokens").json() if token["id"] == made["id"]]
    assert [token["valid"] for token in found] == [False]


def test_a_token_needs_the_password(alice: Person) -> None:
    """A stolen session is not enough to create a long-lived token."""
    assert refusal(create(alice, password=list("wrong"))) == (403, "WRONG_PASSWORD")


@pytest.mark.parametrize(
    "more",
    [
        {"validity": 0}, {"validity": -1}, {"validity": "60"}, {"validity": 10**12},
        {"tokenName": ""}, {"tokenName": None}, {"password": "correct horse"}, {"password": None},
        {"password": ["cor", "rect"]}, {"scope": "SCIM"}, {"scope": {"permissions": []}},
        {"scope": {"permissions": {"files": {"list": True, "fly": True}}}},
    ],
)  # fmt: skip
def test_a_malformed_request_for_a_token_is_refused(alice: Person, more: dict[str, Any]) -> None:
    """Name, lifetime and password must exist and be valid."""
    assert refusal(create(alice, **more)) == (400, "ILLEGAL_ARGUMENT")


def test_tokens_are_ones_own(alice: Person, bob: Person) -> None:
    """No user can list another user's tokens."""
    made = create(bob).json()
    assert made["id"] not in [token["id"] for token in alice.get("/api/tokens").json()]


def test_a_scim_token_manages_users_and_sees_no_zone(service: Service, alice: Person) -> None:
    """The predefined scope allows only users and groups."""
    scim = bearer(service, create(alice, scope=SCIM).json()["token"])
    assert scim.get("/api/users").status_code == 200
    assert refusal(scim.get("/api/zones")) == (403, "NOT_ALLOWED")
    group = scim.post("/api/groups", json={"name": "Made by SCIM", "description": ""})
    assert group.status_code == 201
    assert group.json()["properties"]["administratorManaged"] is True
    assert group.json()["members"] == []
    path = f"/api/groups/{group.json()['properties']['groupId']}"
    assert scim.delete(path).status_code == 204


@pytest.mark.parametrize("made_by_scim", [True, False])
def test_groups_changed_through_scim_belong_to_administrators(
    service: Service, alice: Person, bob: Person, made_by_scim: bool
) -> None:
    """A group that is created or changed through SCIM has no manager of its own any more."""
    scim = bearer(service, create(alice, scope=SCIM).json()["token"])
    wanted = {
        "name": f"Managed {made_by_scim}",
        "members": [{"memberId": bob.id, "accessLevel": "Manage"}],
    }
    made = (scim if made_by_scim else bob).post("/api/groups", json=wanted).json()
    path = f"/api/groups/{made['properties']['groupId']}"
    if not made_by_scim:
        assert bob.put(path, json={"members": []}).status_code == 200
        assert scim.put(path, json={"members": []}).status_code == 200
    seen = alice.put(path, json={"members": []}).json()
    assert seen["properties"]["administratorManaged"] is True
    assert refusal(bob.put(path, json={"members": []})) == (403, "NOT_ALLOWED")


def test_scim_is_for_administrators(service: Service, bob: Person) -> None:
    """Other users get no token and no session with that scope."""
    assert refusal(create(bob, scope=SCIM)) == (403, "NOT_ALLOWED")
    answer = logon(service.client(), bob.id, PASSWORDS[bob.id], scope=SCIM)
    assert refusal(answer) == (403, "NOT_ALLOWED")


def test_a_scope_limits_a_session(service: Service, alice: Person) -> None:
    """A limited session cannot create an unlimited token."""
    scope = {
        "name": "reader",
        "permissions": {
            "zones": {"list": True},
            "files": {"list": True, "get": True},
            "tokens": {"all": True},
        },
    }
    answer = logon(service.client(), alice.id, PASSWORDS[alice.id], scope=scope)
    reader = bearer(service, answer.json()["sessionId"])
    reader.id = alice.id
    zone = reader.zone()
    assert isinstance(zone.listing(), list)
    assert refusal(zone.upload("no.txt")) == (403, "NOT_ALLOWED")
    assert refusal(zone.content("x")) == (403, "NOT_ALLOWED")
    assert refusal(reader.get("/api/users")) == (403, "NOT_ALLOWED")
    assert refusal(create(reader, scope={"name": "all"})) == (403, "NOT_ALLOWED")
    token = bearer(service, create(reader).json()["token"])
    assert refusal(token.get("/api/users")) == (403, "NOT_ALLOWED")
    assert reader.get("/api/tokens").json()[-1]["scope"]["name"] == "reader"


def test_a_token_ends_with_the_password_it_was_made_with(service: Service) -> None:
    """After a change of password, older tokens are not accepted any more."""
    erin = service.person("erin")
    made = create(erin).json()
    holder = bearer(service, made["token"])
    assert holder.get("/api/zones").status_code == 200
    old, new = PASSWORDS[erin.id], "blue ledger"
    body = {"password": list(old), "newPassword": list(new)}
    assert erin.post("/api/sandbox/password", json=body).status_code == 204
    assert refusal(holder.get("/api/zones")) == (401, "AUTHORIZATION_FAILED")
    assert [token["valid"] for token in erin.get("/api/tokens").json()] == [False]
    back = {"password": list(new), "newPassword": list(old)}
    assert erin.post("/api/sandbox/password", json=back).status_code == 204


def test_no_token_outlives_a_change_of_the_password(service: Service) -> None:
    """A token that is requested during the change with the old password ends with the change."""
    people = [service.person("erin") for _ in range(8)]
    old, new = PASSWORDS[people[0].id], "blue ledger"
    ways = [(old, new), (new, old)] * 3
    for before, after in ways:
        body = {"password": list(before), "newPassword": list(after)}
        with ThreadPoolExecutor(len(people)) as pool:
            change = pool.submit(people[0].post, "/api/sandbox/password", json=body)
            asked = list(pool.map(lambda one, p=before: create(one, password=list(p)), people[1:]))
        assert change.result().status_code == 204
        made = [answer.json()["token"] for answer in asked if answer.status_code == 201]
        used = [bearer(service, token).get("/api/zones") for token in made]
        assert {answer.status_code for answer in used} <= {401}


def test_two_changes_of_a_password_at_once_are_one(service: Service) -> None:
    """The later change is refused, because the old password is not valid any more."""
    people = [service.person("erin") for _ in range(2)]
    old = PASSWORDS[people[0].id]

    def change(person: Person, before: str, after: str) -> Any:
        body = {"password": list(before), "newPassword": list(after)}
        return person.post("/api/sandbox/password", json=body)

    for _ in range(3):
        wanted = ["blue ledger", "red ledger"]
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(change, people, [old, old], wanted))
        assert sorted(answer.status_code for answer in answers) == [204, 403]
        (new,) = [after for after, one in zip(wanted, answers, strict=True) if one.is_success]
        assert change(people[0], new, old).status_code == 204


def test_a_revoked_token_has_expired(service: Service, alice: Person, bob: Person) -> None:
    """A token can be revoked by its own user; it ends at once and stays in the list as expired."""
    made = create(alice, tokenName="to be revoked").json()
    holder = bearer(service, made["token"])
    path = f"/api/sandbox/tokens/{made['id']}"
    assert refusal(bob.delete(path)) == (404, "ID_NOT_FOUND")
    assert holder.get("/api/zones").status_code == 200
    assert holder.delete(path).status_code == 204
    assert refusal(holder.get("/api/zones")) == (401, "AUTHORIZATION_FAILED")
    (listed,) = [one for one in alice.get("/api/tokens").json() if one["id"] == made["id"]]
    assert not listed["valid"]
    assert alice.delete(path).status_code == 204
    assert refusal(alice.delete("/api/sandbox/tokens/none")) == (404, "ID_NOT_FOUND")
