"""Random steps of logon flows and groups, compared with a model of their rules.

The same seeds make the same steps each time.
"""

import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.sandbox.running import PASSWORDS, SECRET, Person, Service, world
from zonedrive.sandbox.codes import hotp

ALICE = "alice@acme.example"
USERS = ["bob@acme.example", "carol@acme.example", "dave@acme.example", "erin@acme.example"]
LEVELS = ["None", "Add", "Modify", "Manage"]


class LogonModel:
    """State of Alice's logons if HOTP codes are required."""

    def __init__(self) -> None:
        self.counter = 0  # the next code that is right
        self.flows: dict[str, str] = {}  # session id of a flow -> its state, done or dead
        self.early: dict[str, str] = {}  # codes that came before the password

    def code_is_right(self, code: str) -> bool:
        """Return True if the code is one of the next ten; it is used up."""
        for ahead in range(10):
            if hotp(SECRET, self.counter + ahead) == code:
                self.counter += ahead + 1
                return True
        return False

    def first(self, body: dict[str, Any]) -> tuple[int, str]:
        """Return status, and state or error, of a request that begins a flow."""
        if body.get("password") is None:
            steps = bool(body.get("acceptSessions"))
            return (202, "PASSWORDPENDING") if steps else (401, "AUTHORIZATION_FAILED")
        if body["password"] != list(PASSWORDS[ALICE]):
            return 401, "AUTHORIZATION_FAILED"
        if body.get("verificationCode"):
            right = self.code_is_right(body["verificationCode"])
            return (200, "") if right else (401, "AUTHORIZATION_FAILED")
        if body.get("acceptSessions"):
            return 202, "VERIFICATIONCODEPENDING"
        return 401, "AUTHORIZATION_FAILED"

    def further(self, flow: str, body: dict[str, Any]) -> tuple[int, str]:
        """Return status, and state or error, of a request that continues a flow."""
        state = self.flows.get(flow, "dead")
        if state == "done":
            return 403, "ALREADY_LOGGED_ON"
        if state == "dead":
            return 400, "INVALID_SESSIONID"
        code = body.get("verificationCode")
        outcome = (200, "")
        if state == "PASSWORDPENDING":
            if body.get("password") != list(PASSWORDS[ALICE]):
                outcome = (401, "PASSWORD_FAILURE")
            elif not (code := code or self.early.get(flow)):
                outcome = (202, "VERIFICATIONCODEPENDING")
            elif not self.code_is_right(code):
                outcome = (401, "VERIFICATIONCODE_FAILURE")
        elif not code or not self.code_is_right(code):
            outcome = (401, "VERIFICATIONCODE_FAILURE")
        self.flows[flow] = {200: "done", 202: outcome[1], 401: "dead"}[outcome[0]]
        return outcome


def outcome_of(answer: httpx.Response) -> tuple[int, str]:
    """Return status, and state or error."""
    body = answer.json()
    return answer.status_code, body.get("state") or body.get("error") or ""


def test_flows_keep_to_their_states(start: Callable[..., Service]) -> None:
    """Right, wrong, used and missing credentials in any order, in several flows at a time."""
    client = start(world('otp = "HOTP"\nblock_after = 1000000')).client()
    model, chance, seen = LogonModel(), random.Random(5), set()
    for step in range(600):
        body: dict[str, Any] = {}
        if chance.random() < 0.6:
            password = PASSWORDS[ALICE] if chance.random() < 0.8 else "wrong"
            body["password"] = list(password)
        if chance.random() < 0.5:
            # Sometimes one that was used, sometimes one that is too far ahead.
            offset = chance.choice([-1, 0, 0, 0, 1, 3, 9, 10, 50])
            body["verificationCode"] = hotp(SECRET, max(0, model.counter + offset))
        flows = [*model.flows, "made up"]
        if chance.random() < 0.6:
            # Rather a young flow, but each stays possible.
            flow = chance.choice(flows[-4:] if chance.random() < 0.8 else flows)
            body["logonSessionId"] = flow
            expected = model.further(flow, body)
        else:
            body |= {"username": ALICE, "acceptSessions": chance.random() < 0.8}
            expected = model.first(body)
        answer = client.post("/api/access/logon", json=body)
        assert outcome_of(answer) == expected, (step, body)
        if expected[0] == 202:
            flow = answer.json()["sessionId"]
            model.flows[flow] = expected[1]
            if expected[1] == "PASSWORDPENDING" and "verificationCode" in body:
                model.early[flow] = body["verificationCode"]
        seen.add(expected)
    assert seen == {
        (200, ""),
        (202, "PASSWORDPENDING"),
        (202, "VERIFICATIONCODEPENDING"),
        (400, "INVALID_SESSIONID"),
        (401, "AUTHORIZATION_FAILED"),
        (401, "PASSWORD_FAILURE"),
        (401, "VERIFICATIONCODE_FAILURE"),
        (403, "ALREADY_LOGGED_ON"),
    }


class GroupModel:
    """Model of nested groups, and levels in one zone."""

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.levels: dict[str, int] = {}

    def inside(self, group: str) -> set[str]:
        """Return all members of a group, direct and indirect."""
        found: set[str] = set()
        ahead = [group]
        while ahead:
            for member in self.members.get(ahead.pop(), set()) - found:
                found.add(member)
                ahead.append(member)
        return found

    def level(self, user: str) -> int:
        """Return the user's own level, else the highest level of the user's groups."""
        if user in self.levels:
            return self.levels[user]
        groups = [group for group in self.members if user in self.inside(group)]
        return max((self.levels.get(group, 0) for group in groups), default=0)

    def people(self) -> int:
        """Return the number of users with access."""
        return 1 + sum(self.level(user) > 0 for user in USERS)


class Organization:
    """Executor of steps on the sandbox and on the model, which compares the answers."""

    def __init__(self, alice: Person) -> None:
        self.alice = alice
        self.zone = alice.zone("Alice alone")
        self.model = GroupModel()
        self.made = 0

    def step(self, chance: random.Random) -> None:
        """Make one random change."""
        groups = list(self.model.members)
        kinds = ["make", "member", "member", "member", "replace", "level", "level", "delete"]
        kind = chance.choice(kinds) if len(groups) > 3 else "make"
        if kind == "make":
            self.make([chance.choice(USERS)])
        elif kind in ("member", "replace"):
            wanted = chance.sample([*USERS, *groups], 2)
            self.change(chance.choice(groups), wanted, chance.random() < 0.7, kind == "member")
        elif kind == "level":
            self.set_level(chance.choice([*USERS, *groups]), chance.randrange(3))
        else:
            self.delete(chance.choice(groups))

    def make(self, users: list[str]) -> None:
        """Create a group."""
        self.made += 1
        name = f"random {self.made}"
        members = [{"memberId": user, "accessLevel": "Access"} for user in users]
        answer = self.alice.post("/api/groups", json={"name": name, "members": members})
        assert answer.status_code == 201, answer.text
        # No manager was given, so the creator manages the group.
        self.model.members[answer.json()["properties"]["groupId"]] = {*users, ALICE}

    def change(self, group: str, wanted: list[str], into: bool, relative: bool) -> None:
        """Add, remove or replace members; a cycle is refused completely."""
        level = "Access" if into or not relative else "None"
        answer = self.alice.put(
            f"/api/groups/{group}",
            params={} if relative else {"relative": "false"},
            json={"members": [{"memberId": one, "accessLevel": level} for one in wanted]},
        )
        circle = any(one == group or group in self.model.inside(one) for one in wanted)
        if level == "Access" and circle:
            assert answer.status_code == 400, answer.text
            return
        assert answer.status_code == 200, answer.text
        before = self.model.members[group] if relative else set()
        after = before | set(wanted) if level == "Access" else before - set(wanted)
        self.model.members[group] = after
        assert {member["memberId"] for member in answer.json()["members"]} == after

    def set_level(self, member: str, level: int) -> None:
        """Set a member's own level in the zone."""
        path = f"{self.zone.own}/members/{member}"
        answer = self.alice.put(path, params={"accesslevel": LEVELS[level]})
        assert answer.status_code == 204, answer.text
        self.model.levels.pop(member, None)
        if level:
            self.model.levels[member] = level

    def delete(self, group: str) -> None:
        """Delete a group, which removes it from its groups and from the zone."""
        assert self.alice.delete(f"/api/groups/{group}").status_code == 204
        del self.model.members[group]
        self.model.levels.pop(group, None)
        for members in self.model.members.values():
            members.discard(group)

    def compare(self, person: Person) -> None:
        """Compare a user's permissions with the model."""
        theirs, level = self.zone.by(person), self.model.level(person.id)
        listing = person.get(f"{theirs.url}/folder/{theirs.root}")
        assert (listing.status_code == 200) is (level > 0)
        # A name that is there needs Modify; the answer to a folder's name tells without a version.
        changed = person.put(f"{theirs.own}/entries/{theirs.root}", json={"name": "x"})
        assert changed.status_code == 403
        told = "root" in changed.json()["message"]
        assert told is (level >= 2)


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_give_the_access_that_the_rules_say(
    start: Callable[..., Service], seed: int
) -> None:
    """Nested groups, own levels, deletions and cycles in any order obey all six rules."""
    service = start(world())
    organization, chance = Organization(service.person()), random.Random(seed)
    people = [service.person(user.partition("@")[0]) for user in USERS]
    for _ in range(80):
        organization.step(chance)
        for person in people:
            organization.compare(person)
        zones = organization.alice.zones()
        assert zones["Alice alone"]["numberOfUsers"] == organization.model.people()
