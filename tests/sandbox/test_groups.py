"""Groups, and the rules by which they give access to zones."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.sandbox.running import Person, Service, Zone, refusal

ALICE, BOB, CAROL = "alice@acme.example", "bob@acme.example", "carol@acme.example"
DAVE, ERIN = "dave@acme.example", "erin@acme.example"
_numbers = itertools.count()


def member(member_id: str, level: str = "Access") -> dict[str, str]:
    """Return a member entry of a request."""
    return {"memberId": member_id, "accessLevel": level}


def levels(group: dict[str, Any]) -> dict[str, str]:
    """Return the level of each member id of a group."""
    return {each["memberId"]: each["accessLevel"] for each in group["members"]}


class Group:
    """Group that a user has created."""

    def __init__(self, maker: Person, *members: dict[str, str]) -> None:
        self.maker = maker
        body = {"name": f"Group {next(_numbers)}", "description": "d", "members": list(members)}
        answer = maker.post("/api/groups", json=body)
        assert answer.status_code == 201, answer.text
        self.body: dict[str, Any] = answer.json()
        self.id: str = self.body["properties"]["groupId"]
        self.url = f"/api/groups/{self.id}"

    def change(self, *members: dict[str, str], **query: str) -> dict[str, Any]:
        """Change members; return the changed group."""
        answer = self.maker.put(self.url, params=query, json={"members": list(members)})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@pytest.fixture
def private(alice: Person) -> Iterator[Zone]:
    """Yield a zone whose only member is Alice, also at the end."""
    zone = alice.zone("Alice alone")
    yield zone
    for user in (BOB, CAROL, DAVE, ERIN):
        give(zone, user, "None")


def give(zone: Zone, member_id: str, level: str) -> None:
    """Set a member's own level in a zone."""
    path = f"{zone.own}/members/{member_id}"
    answer = zone.person.put(path, params={"accesslevel": level})
    assert answer.status_code == 204, answer.text


def can(zone: Zone, person: Person) -> str:
    """Return the operations that a user can really do in a zone."""
    theirs = zone.by(person)
    if theirs.person.get(f"{theirs.url}/folder/{theirs.root}").status_code == 403:
        assert zone.record["name"] not in person.zones()
        return "None"
    assert zone.record["name"] in person.zones()
    name = f"try {next(_numbers)}"
    entry = theirs.file(name)
    again = theirs.upload(name)
    if again.status_code == 403:
        return "Add"
    deleted = person.delete(f"{theirs.own}/entries/{entry['id']}")
    assert deleted.status_code == 204
    purged = person.delete(f"{theirs.own}/entries/{entry['id']}/purge")
    return "Manage" if purged.status_code == 204 else "Modify"


def test_a_group_is_answered_with_members_and_properties(alice: Person) -> None:
    """All fields exist; users have an authorization, groups have none."""
    inner = Group(alice)
    group = Group(alice, member(ALICE, "Manage"), member(BOB), member(inner.id))
    properties = group.body["properties"]
    assert properties["groupId"].startswith("group.")
    assert properties["groupId"].endswith("@acme.example")
    assert properties["description"] == "d"
    assert properties["createdBy"] == ALICE
    assert properties["createdAt"].endswith("+00:00")
    assert properties["administratorManaged"] is False
    assert properties["open"] is True
    assert properties["zoneActions"] == {"assignAccessRights": True}
    assert group.body["members"] == [
        {
            "memberId": ALICE,
            "accessLevel": "Manage",
            "memberType": "User",
            "displayName": "Alice",
            "authorization": "Administrator",
        },
        {
            "memberId": BOB,
            "accessLevel": "Access",
            "memberType": "User",
            "displayName": "Bob",
            "authorization": "Internal",
        },
        {
            "memberId": inner.id,
            "accessLevel": "Access",
            "memberType": "Group",
            "displayName": inner.body["properties"]["name"],
        },
    ]


def test_a_group_has_a_manager_from_the_start(bob: Person) -> None:
    """The creator manages the group, unless another member is given as manager."""
    assert levels(Group(bob, member(CAROL)).body) == {CAROL: "Access", BOB: "Manage"}
    others = Group(bob, member(CAROL, "Manage")).body
    assert levels(others) == {CAROL: "Manage"}
    assert others["properties"]["zoneActions"] == {"assignAccessRights": False}


def test_changes_are_relative_by_default(alice: Person) -> None:
    """Other members keep their access; with relative=false they lose it."""
    group = Group(alice, member(ALICE, "Manage"), member(BOB), member(CAROL))
    after = group.change(member(BOB, "Manage"), member(CAROL, "None"), member(DAVE))
    assert levels(after) == {ALICE: "Manage", BOB: "Manage", DAVE: "Access"}
    assert levels(group.change(member(ERIN), relative="true")).keys() == {ALICE, BOB, DAVE, ERIN}
    after = group.change(member(CAROL), member(DAVE, "None"), relative="false")
    assert levels(after) == {CAROL: "Access"}
    # Only the administrators manage the group now.
    assert after["properties"]["administratorManaged"] is True
    assert levels(group.change(relative="false")) == {}


def test_one_member_is_changed_by_its_address(alice: Person) -> None:
    """The level is in the query; None removes the member."""
    group = Group(alice, member(ALICE, "Manage"))
    for level, expected in [("Access", "Access"), ("Manage", "Manage"), ("None", None)]:
        answer = alice.put(f"{group.url}/members/{BOB}", params={"accesslevel": level})
        assert answer.status_code == 200
        assert levels(answer.json()).get(BOB) == expected
    wrong = alice.put(f"{group.url}/members/{BOB}", params={"accesslevel": "Own"})
    assert refusal(wrong) == (400, "ILLEGAL_ARGUMENT")
    assert refusal(alice.put(f"{group.url}/members/{BOB}")) == (400, "ILLEGAL_ARGUMENT")
    unknown = alice.put(f"{group.url}/members/x", params={"accesslevel": "Access"})
    assert refusal(unknown) == (404, "USER_UNKNOWN")


def test_a_cycle_of_groups_is_refused(alice: Person) -> None:
    """A group cannot contain itself, directly or indirectly; the refusal changes nothing."""
    first, second, third = Group(alice), Group(alice), Group(alice)
    first.change(member(second.id))
    second.change(member(third.id))
    for group_id in (first.id, third.id):
        answer = alice.put(third.url, json={"members": [member(BOB), member(first.id)]})
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT"), group_id
    itself = alice.put(first.url, json={"members": [member(first.id)]})
    assert refusal(itself) == (400, "ILLEGAL_ARGUMENT")
    assert levels(third.change()) == {ALICE: "Manage"}


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": 5}, {"name": "n", "members": [{"memberId": "x"}]},
        {"name": "n", "members": [{"memberId": BOB, "accessLevel": "Modify"}]},
        {"name": "n", "members": [member("nobody@acme.example")]},
    ],
)  # fmt: skip
def test_a_malformed_group_is_refused(alice: Person, body: dict[str, Any]) -> None:
    """A malformed request creates no group."""
    status, code = refusal(alice.post("/api/groups", json=body))
    assert (status, code in ("ILLEGAL_ARGUMENT", "USER_UNKNOWN")) == (400, True)


def test_a_taken_name_is_refused(alice: Person) -> None:
    assert refusal(alice.post("/api/groups", json={"name": "Engineering"})) == (
        409,
        "ALREADY_EXISTS",
    )


def test_only_managers_change_a_group(service: Service, alice: Person, carol: Person) -> None:
    """Members and others are refused; managers through a group and administrators are not."""
    inner = Group(alice, member(ALICE, "Manage"), member(DAVE))
    group = Group(service.person("bob"), member(inner.id, "Manage"), member(CAROL))
    change = {"members": [member(ERIN)]}
    assert refusal(carol.put(group.url, json=change)) == (403, "NOT_ALLOWED")
    assert refusal(carol.delete(group.url)) == (403, "NOT_ALLOWED")
    assert service.person("dave").put(group.url, json=change).status_code == 200
    assert alice.delete(group.url).status_code == 204
    assert refusal(alice.delete(group.url)) == (404, "ID_NOT_FOUND")
    assert refusal(alice.put(group.url, json=change)) == (404, "ID_NOT_FOUND")


def test_members_of_a_group_get_its_access(service: Service, private: Zone, alice: Person) -> None:
    """Rule 1 also holds for a group in the group, and in the number of users."""
    dave, erin = service.person("dave"), service.person("erin")
    inner = Group(alice, member(DAVE))
    group = Group(alice, member(ERIN), member(inner.id))
    assert (can(private, dave), can(private, erin)) == ("None", "None")
    give(private, group.id, "Modify")
    assert (can(private, dave), can(private, erin)) == ("Modify", "Modify")
    assert alice.zones()["Alice alone"]["numberOfUsers"] == 3
    alice.delete(inner.url)
    assert (can(private, dave), can(private, erin)) == ("None", "Modify")
    alice.delete(group.url)


def test_a_group_never_manages_a_zone(private: Zone, alice: Person) -> None:
    """Rule 2: a group cannot have the level Manage in a zone."""
    group = Group(alice)
    path = f"{private.own}/members/{group.id}"
    answer = alice.put(path, params={"accesslevel": "Manage"})
    assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


def test_the_highest_of_several_groups_counts(
    service: Service, private: Zone, alice: Person
) -> None:
    """Rule 3: among several groups of a user, the highest level counts."""
    low, high = Group(alice, member(ERIN)), Group(alice, member(ERIN))
    give(private, low.id, "Add")
    give(private, high.id, "Modify")
    erin = service.person("erin")
    assert can(private, erin) == "Modify"
    alice.delete(high.url)
    assert can(private, erin) == "Add"
    alice.delete(low.url)


def test_a_users_own_level_counts_first(service: Service, private: Zone, alice: Person) -> None:
    """Rules 4 and 5: own Add and a group's Modify give Add, which stays without the group."""
    group = Group(alice, member(ERIN))
    give(private, group.id, "Modify")
    give(private, ERIN, "Add")
    erin = service.person("erin")
    assert can(private, erin) == "Add"
    give(private, group.id, "None")
    assert can(private, erin) == "Add"
    give(private, group.id, "Modify")
    give(private, ERIN, "None")
    assert can(private, erin) == "Modify"
    give(private, ERIN, "Manage")
    assert can(private, erin) == "Manage"
    alice.delete(group.url)


def test_a_deleted_group_takes_its_access_along(
    service: Service, private: Zone, alice: Person
) -> None:
    """Rule 6: members lose the access that a deleted group gave them."""
    group = Group(alice, member(ERIN))
    give(private, group.id, "Add")
    erin = service.person("erin")
    assert can(private, erin) == "Add"
    alice.delete(group.url)
    assert can(private, erin) == "None"


def test_only_a_zones_manager_sets_levels(private: Zone, zone: Zone, bob: Person) -> None:
    """Other members of a zone cannot add members."""
    path = f"{zone.own}/members/{ERIN}"
    assert refusal(bob.put(path, params={"accesslevel": "Add"})) == (403, "NOT_ALLOWED")
    for query in ({}, {"accesslevel": "Own"}):
        answer = zone.person.put(f"{private.own}/members/{ERIN}", params=query)
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")
    answer = zone.person.put(f"{private.own}/members/x", params={"accesslevel": "Add"})
    assert refusal(answer) == (404, "USER_UNKNOWN")


def test_the_members_of_a_zone_are_listed(private: Zone, service: Service, alice: Person) -> None:
    """Members see each member with its own level, and no level that comes through a group."""
    group = Group(alice, member(ERIN))
    give(private, group.id, "Modify")
    give(private, BOB, "Add")
    for person in (alice, service.regular("bob"), service.person("erin")):
        answer = person.get(f"{private.own}/members")
        assert answer.status_code == 200, answer.text
        found = {one["memberId"]: one for one in answer.json()}
        assert {key: one["accessLevel"] for key, one in found.items()} == {
            ALICE: "Manage", group.id: "Modify", BOB: "Add",
        }  # fmt: skip
        assert found[group.id]["memberType"] == "Group"
        assert (found[BOB]["memberType"], found[BOB]["authorization"]) == ("User", "Internal")
    stranger = service.person("dave").get(f"{private.own}/members")
    assert refusal(stranger) == (403, "INVALID_ACCESS")
    alice.delete(group.url)


def test_everybody_may_list_users(carol: Person) -> None:
    """The list has all users and shows who is an administrator."""
    users = {user["id"]: user for user in carol.get("/api/users").json()}
    assert users[ALICE] == {
        "id": ALICE,
        "name": "Alice",
        "displayName": "Alice",
        "authorization": "Administrator",
    }
    assert users[BOB]["authorization"] == "Internal"


def test_a_zone_keeps_a_manager(alice: Person, service: Service) -> None:
    """The last manager cannot give up Manage; with a second one it is possible."""
    zone = alice.zone("Alice alone")

    def give(member: str, level: str, by: Person = alice) -> httpx.Response:
        return by.put(f"{zone.own}/members/{member}", params={"accesslevel": level})

    for level in ("None", "Add", "Modify"):
        assert refusal(give(ALICE.upper(), level)) == (409, "WRONG_STATE")
    assert give(ALICE, "Manage").status_code == 204
    assert give(BOB, "Manage").status_code == 204
    bob = service.regular("bob")
    assert give(ALICE, "Modify").status_code == 204
    assert refusal(give(BOB, "None", bob)) == (409, "WRONG_STATE")
    assert give(ALICE, "Manage", bob).status_code == 204
    assert give(BOB, "None").status_code == 204
