"""Users, groups and tokens: the requests, and tolerant parsing of the answers."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest

from tests.unit.remote.conftest import Stage, on_pages
from tests.unit.remote.test_every_field import ODD, mutations
from zonedrive import errors
from zonedrive.model import Group, Member, Scope
from zonedrive.remote import Directory, directory
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.wire import fields
from zonedrive.remote.wire.pagination import Budget

GROUP_ID = "group.0c8a4b52-7f9e-4a3b-8d1e-5f6a7b8c9d0e@acme.example"
AT_GROUP = "/api/groups/group.0c8a4b52-7f9e-4a3b-8d1e-5f6a7b8c9d0e%40acme.example"
GROUP: dict[str, Any] = {
    "members": [
        {
            "memberId": "bob@acme.example",
            "memberType": "User",
            "displayName": "Bob",
            "accessLevel": "Manage",
            "authorization": "Internal",
        },
        {"memberId": "group.x@acme.example", "memberType": "Group", "displayName": "Night"},
    ],
    "properties": {
        "groupId": GROUP_ID,
        "name": "Day",
        "description": "d",
        "createdAt": "2026-11-21T14:03:07+01:00",
        "createdBy": "alice@acme.example",
        "administratorManaged": True,
        "open": True,
        "zoneActions": {"assignAccessRights": True},
    },
}
NOW_MS = 1_800_000_000_000
NOW = NOW_MS * 10**6
DAY_S = 86_400
DAY_MS = DAY_S * 1000

Verb = Callable[[Directory], Awaitable[object]]
CHANGES: dict[str, Verb] = {
    "create_token": lambda of: of.create_token("n", 60, "pw"),
    "create_group": lambda of: of.create_group("Day"),
    "update_group": lambda of: of.update_group(GROUP_ID, {}),
    "set_member": lambda of: of.set_member(GROUP_ID, "bob", "Access"),
    "delete_group": lambda of: of.delete_group(GROUP_ID),
}
VERBS = CHANGES | {"users": lambda of: of.users(), "tokens": lambda of: of.tokens()}


def answering(value: object, status: int = 200) -> Callable[[httpx.Request], httpx.Response]:
    """Return a handler that always sends the same JSON; its logon is valid."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/zones":
            return httpx.Response(200, json=[])
        return httpx.Response(status, content=json.dumps(value))

    return answer


def changes(stage: Stage) -> list[httpx.Request]:
    """Return all requests except the check of the logon."""
    return [request for request in stage.requests if request.url.path != "/api/zones"]


async def test_a_token_request_has_the_published_form(stage: Stage) -> None:
    """The password is an array of characters, and a scope has the published names."""
    answer = {"id": "t", "token": "s3cret", "expiry": NOW_MS}
    of = stage.service(answering(answer, 201)).directory
    made = await of.create_token("ci", 3600, "pä \U0001f600")
    assert (made.id, made.secret, made.expires_ns) == ("t", "s3cret", NOW_MS * 10**6)
    assert "s3cret" not in repr(made)
    scope = Scope(
        name="mine", clients=("ServiceSSI",), permissions={"zones": {"list": True}},
        limitations={"a": 1}, extensions={"b": []}, description="d",
    )  # fmt: skip
    await of.create_token("ci", 3600, "p", scope)
    bare, scoped = (json.loads(request.content) for request in changes(stage))
    assert bare == {"tokenName": "ci", "validity": 3600, "password": ["p", "ä", " ", "\U0001f600"]}
    assert scoped["scope"] == {
        "name": "mine",
        "description": "d",
        "clients": ["ServiceSSI"],
        "permissions": {"zones": {"list": True}},
        "limitations": {"a": 1},
        "extensions": {"b": []},
    }
    await of.create_token("ci", 3600, "p", Scope(name="SCIM"))
    assert json.loads(stage.requests[-1].content)["scope"] == {"name": "SCIM"}
    assert stage.asked() == ["GET /api/zones", "POST /api/tokens"] * 3


async def test_groups_are_changed_as_published(stage: Stage) -> None:
    """Paths hold ids as one segment each; relative and accesslevel are in the query."""
    of = stage.service(answering(GROUP)).directory
    group = await of.create_group("Day", "d", {"bob@acme.example": "Manage"})
    assert group == Group(
        GROUP_ID, "Day", "d",
        (
            Member("bob@acme.example", "User", "Bob", "Manage", "Internal"),
            Member("group.x@acme.example", "Group", "Night"),
        ),
        1795266187 * 10**9, "alice@acme.example", True, True, True,
    )  # fmt: skip
    await of.update_group(GROUP_ID, {"c": "None", "d": "Access"})
    await of.update_group(GROUP_ID, {"c": "Manage"}, relative=False)
    await of.set_member(GROUP_ID, "../b?x", "Access")
    await of.delete_group(GROUP_ID)
    assert stage.asked() == [
        "POST /api/groups",
        f"PUT {AT_GROUP}?relative=true",
        f"PUT {AT_GROUP}?relative=false",
        f"PUT {AT_GROUP}/members/..%2Fb%3Fx?accesslevel=Access",
        f"DELETE {AT_GROUP}",
    ]
    bodies = [json.loads(request.content) for request in stage.requests[:3]]
    assert bodies[0] == {
        "name": "Day",
        "description": "d",
        "members": [{"accessLevel": "Manage", "memberId": "bob@acme.example"}],
    }
    assert bodies[1]["members"] == [
        {"accessLevel": "None", "memberId": "c"},
        {"accessLevel": "Access", "memberId": "d"},
    ]
    assert set(bodies[1]) == {"members"}


@pytest.mark.parametrize("body", [b"", b"null", b"done", b"[1]", b'{"message": "ok"}'])
@pytest.mark.parametrize("status", [200, 201, 204])
async def test_answers_that_are_not_published_may_be_anything(
    stage: Stage, status: int, body: bytes
) -> None:
    """Changing a member and deleting a group succeed with every 2xx."""
    of = stage.service(lambda _: httpx.Response(status, content=body)).directory
    await of.set_member(GROUP_ID, "bob", "None")
    await of.delete_group(GROUP_ID)


async def test_a_list_that_is_too_long_is_an_error(stage: Stage) -> None:
    """The limit in bytes ends the listing."""
    service = stage.service(answering([{"id": "x" * 2000}]), budget=partial(Budget, size=1000))
    of = service.directory
    with pytest.raises(errors.BadAnswer, match="does not end after 1000 bytes"):
        await of.users()


@pytest.mark.parametrize("name", VERBS)
async def test_the_error_for_missing_rights(stage: Stage, name: str) -> None:
    """The remedy does not mention zones."""
    of = stage.service(answering({"error": "NOT_ALLOWED", "message": "no"}, 403)).directory
    with pytest.raises(errors.Forbidden) as refused:
        await VERBS[name](of)
    assert refused.value.remedy and "zone" not in refused.value.remedy


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("UNSUPPORTED_VERSION", "update zonedrive"),
        ("TEMPORARILY_BLOCKED", "wait some minutes"),
        ("TEMPORARY_BLOCKED", "wait some minutes"),
    ],
)
@pytest.mark.parametrize("name", VERBS)
async def test_other_errors_with_status_403(stage: Stage, name: str, code: str, word: str) -> None:
    """The code of a 403 determines the remedy."""
    of = stage.service(answering({"error": code}, 403)).directory
    with pytest.raises(errors.RemoteError) as refused:
        await VERBS[name](of)
    said = refused.value.line()
    assert "rights" not in said and "manager" not in said and "SCIM" not in said
    assert word in said or (name == "create_token" and "wait" in said)


async def test_a_list_too_long_to_be_one_is_not_taken_apart(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed items of three bytes would take a hundred times as much memory."""
    monkeypatch.setattr(fields, "MOST_VALUES", 1000)
    with pytest.raises(errors.BadAnswer, match="more than 1000 values"):
        await stage.service(answering([{}] * 1002)).directory.users()


@pytest.mark.parametrize("name", CHANGES)
async def test_a_lost_answer_to_a_change(stage: Stage, name: str) -> None:
    """The remedy warns against a repetition."""
    of = stage.service(answering({"message": "no"}, 504)).directory
    with pytest.raises(errors.ReplyLost, match="may or may not have taken effect") as lost:
        await CHANGES[name](of)
    assert "before you repeat it" in lost.value.line()
    assert len(changes(stage)) == 1


PASSWORDS: dict[str, Callable[[HttpService], Awaitable[object]]] = {
    "create_token": lambda of: of.directory.create_token("n", 60, "pw"),
    "change_password": lambda of: of.change_password("alice", "pw", "new"),
}


@pytest.mark.parametrize("name", PASSWORDS)
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "WRONG_PASSWORD", "password is wrong"),
        (403, "PASSWORD_FAILURE", "password is wrong"),
        (401, "AUTHORIZATION_FAILED", "password is wrong"),
        (401, "WRONG_PASSWORD", "password is wrong"),
        (401, "", "refuses the password"),
        (401, "TEMPORARY_BLOCKED", "blocked for a while"),
        (403, "TEMPORARILY_BLOCKED", "blocked for a while"),
    ],
)
async def test_a_wrong_password_is_called_one(
    stage: Stage, name: str, status: int, code: str, said: str
) -> None:
    """The error counts as refused credentials; it was sent once, and the logon stays valid."""
    of = stage.service(answering({"error": code, "message": "no"}, status))
    with pytest.raises(errors.CredentialsRefused, match=said) as refused:
        await PASSWORDS[name](of)
    assert "zonedrive logon" not in refused.value.line()
    assert len(changes(stage)) == 1
    assert stage.link.state == "online"


@pytest.mark.parametrize("name", PASSWORDS)
async def test_a_password_is_not_sent_with_a_logon_that_has_ended(stage: Stage, name: str) -> None:
    """An ended logon must not be reported as a wrong password that was never checked."""
    of = stage.service(lambda _request: httpx.Response(401))
    with pytest.raises(errors.NotLoggedOn) as refused:
        await PASSWORDS[name](of)
    assert not isinstance(refused.value, errors.CredentialsRefused)
    assert "zonedrive logon" in refused.value.line()
    assert changes(stage) == []


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"total": 2, "page": None, "any": v}])
async def test_lists_are_found_in_an_object(stage: Stage, wrap: Callable[[object], object]) -> None:
    """A list may be an array, or the only array in an object; items are returned unchanged."""
    users = [{"uid": 1, "mail": None}, {"uid": 2, "deep": {"a": [1]}}, "carol", 7, None]
    of = stage.service(answering(wrap(users))).directory
    found = await of.users()
    assert found == [*users[:2], {"value": "carol"}, {"value": 7}, {"value": None}]


@pytest.mark.parametrize("answer", [{}, None, 7, "x", {"a": [], "b": []}, {"a": {"b": []}}])
async def test_an_answer_without_a_list_is_an_error(stage: Stage, answer: object) -> None:
    """The error is one line."""
    body = json.dumps(answer).encode()
    of = stage.service(lambda _: httpx.Response(200, content=body)).directory
    for verb in (of.users, of.tokens):
        with pytest.raises(errors.BadAnswer, match="no list"):
            await verb()


async def test_a_list_on_pages_is_read_to_its_end(stage: Stage) -> None:
    everybody = [{"id": f"u{number}"} for number in range(250)]
    assert await stage.service(on_pages(everybody)).directory.users() == everybody


@pytest.mark.parametrize(
    "users",
    [
        [{"id": 7, "name": "A"}, {"id": 7, "name": "A"}],
        [{"id": "acme", "name": "A"}, {"id": "acme", "name": "B"}],
        ["bob", "bob"],
        [{}, {}],
    ],
)
async def test_users_with_equal_fields_are_all_listed(stage: Stage, users: list[Any]) -> None:
    """The API does not say which field of a user is unique, so duplicates are not detected."""
    expected = [user if isinstance(user, dict) else {"value": user} for user in users]
    assert await stage.service(answering(users)).directory.users() == expected


BAD_TEXT = "n\udcff"
UNSENDABLE: dict[str, Verb] = {
    "the name of a group": lambda of: of.create_group(BAD_TEXT),
    "a member": lambda of: of.create_group("n", members={BAD_TEXT: "Access"}),
    "the name of a token": lambda of: of.create_token(BAD_TEXT, 60, "hidden"),
    "a password": lambda of: of.create_token("n", 60, f"hidden{BAD_TEXT}"),
    "a scope": lambda of: of.create_token("n", 60, "hidden", Scope(limitations={"x": object()})),
    "a level": lambda of: of.set_member("g", "m", BAD_TEXT),  # type: ignore[arg-type]
    "an id": lambda of: of.set_member("g", BAD_TEXT, "Access"),
    "no id": lambda of: of.delete_group(""),
}


@pytest.mark.parametrize("what", UNSENDABLE)
async def test_values_that_cannot_be_sent_are_refused(stage: Stage, what: str) -> None:
    """The error has a remedy and no password, and nothing is changed."""
    with pytest.raises(errors.Rejected) as refused:
        await UNSENDABLE[what](stage.service(answering({})).directory)
    assert refused.value.remedy
    wrong: BaseException | None = refused.value
    while wrong is not None:
        assert "hidden" not in f"{wrong!r}{getattr(wrong, 'object', '')}"
        wrong = wrong.__cause__ or wrong.__context__
    assert changes(stage) == []


@pytest.mark.parametrize("identity", ["id", "uid"])
async def test_a_service_that_ignores_pages_gives_each_user_once(
    stage: Stage, identity: str
) -> None:
    """No user appears twice, even if there is exactly one page of users."""
    everybody = [{identity: f"u{number}"} for number in range(100)]
    of = stage.service(answering(everybody)).directory
    for _ in range(2):
        assert await of.users() == everybody
    assert len(stage.requests) == 4  # page 2 is requested each time


ENDLESS = {
    "pages": partial(Budget, pages=20),
    "items": partial(Budget, items=1999),
    "bytes": partial(Budget, size=20_000),
    "seconds": partial(Budget, seconds=-1.0),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_list_without_an_end_ends(stage: Stage, what: str) -> None:
    """A service that always has another page causes an error."""

    def endless(_request: httpx.Request) -> httpx.Response:
        first = len(stage.requests) * 100
        return httpx.Response(200, json=[{"id": str(first + each)} for each in range(100)])

    with pytest.raises(errors.BadAnswer, match=f"does not end after [0-9.-]+ {what}"):
        await stage.service(endless, budget=ENDLESS[what]).directory.users()
    assert len(stage.requests) <= 20


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"id": "a", "tokenName": "n", "expiry": NOW_MS}, ("a", "n", NOW_MS * 10**6)),
        ({"id": 7, "tokenName": None}, ("7", "", 0)),
        ({"expiry": 3_600_000}, ("", "", 0)),  # from when on is unknown
        ({"expiry": str(NOW_MS)}, ("", "", NOW_MS * 10**6)),
        ({"expiry": 10**30}, ("", "", (1 << 63) - 1)),
        ("odd", ("", "", 0)),
    ],
)
async def test_tokens_are_read_by_the_published_names(
    stage: Stage, item: object, expected: tuple[str, str, int]
) -> None:
    """Missing and malformed members count as unknown."""
    (token,) = await stage.service(answering([item])).directory.tokens()
    assert (token.id, token.name, token.expires_ns) == expected


async def test_lists_contain_no_secrets(stage: Stage) -> None:
    listed = [{"id": "a", "token": "s3cret", "password": ["p"], "in": [{"b": {"token": "s3cret"}}]}]
    of = stage.service(answering(listed)).directory
    (token,), (user,) = await of.tokens(), await of.users()
    assert token.record == user == {"id": "a", "in": [{"b": {}}]}


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", "1e999", "-1e999"])
async def test_nan_and_infinity_become_none(stage: Stage, odd: str) -> None:
    """NaN and infinity become None, so that a list can be printed as JSON."""
    body = f'[{{"id": "a", "x": {odd}, "y": [{{"z": {odd}}}], "n": 1.5}}]'.encode()
    of = stage.service(lambda _request: httpx.Response(200, content=body)).directory
    assert await of.users() == [{"id": "a", "x": None, "y": [{"z": None}], "n": 1.5}]


async def test_a_list_that_is_nested_without_end_is_no_list(stage: Stage) -> None:
    """A list that is nested too deep raises BadAnswer."""
    body = b'[{"a": ' + b"[" * 500 + b"]" * 500 + b"}]"
    with pytest.raises(errors.BadAnswer, match="nested"):
        await stage.service(lambda _: httpx.Response(200, content=body)).directory.users()


@pytest.mark.parametrize(
    ("expiry", "expires_ns"),
    [
        (1_807_776_000_000, 1_807_776_000_000 * 10**6),
        (90 * DAY_MS, NOW + 90 * DAY_MS * 10**6),
        (3650 * DAY_MS, NOW + 3650 * DAY_MS * 10**6),
        (0, 0),
        (None, 0),
        (-1, 0),
        ("soon", 0),
        (2**62, 2**63 - 1),
    ],
)
def test_an_expiry_may_be_a_moment_or_a_duration(expiry: object, expires_ns: int) -> None:
    """The interface does not say whether an expiry is a time or a duration."""
    body = json.dumps({"id": "i", "token": "t", "expiry": expiry}).encode()
    assert directory.new_token(body, "x", NOW, 90 * DAY_S).expires_ns == expires_ns


@pytest.mark.parametrize("wrong_by", [-1, 0, 1])
@pytest.mark.parametrize("days", [1, 90, 36500])
def test_a_clock_that_is_wrong_by_a_day_changes_no_reading(days: int, wrong_by: int) -> None:
    """Points in time and durations are recognised as such, even if a time seems to be over."""
    here = NOW + wrong_by * DAY_S * 10**9
    for there in (0, NOW // 10**6):
        body = json.dumps({"token": "t", "expiry": there + days * DAY_MS}).encode()
        expires = directory.new_token(body, "x", here, days * DAY_S).expires_ns
        ends_in = (expires - (NOW if there else here)) / (DAY_S * 10**9)
        assert ends_in == pytest.approx(days) or (days > 11_000 and 0 < ends_in < days)


@pytest.mark.parametrize("secret", [None, "", "a b", "a\nb", "\x1b[31m", "ä", [], {}])
async def test_a_token_that_cannot_be_sent_is_rejected(stage: Stage, secret: object) -> None:
    """The error shows no part of the token on the terminal."""
    of = stage.service(answering({"id": "t", "token": secret}, 201)).directory
    with pytest.raises(errors.BadAnswer) as wrong:
        await of.create_token("n", 60, "pw")
    assert "\x1b" not in wrong.value.line() and "list of tokens" in wrong.value.line()


async def test_every_field_of_a_group_may_be_malformed(stage: Stage) -> None:
    """The result is a group, or one clear error if its id is missing."""
    for answer in (*ODD[1:], *mutations(GROUP)):
        of = stage.service(answering(answer)).directory
        try:
            group = await of.update_group(GROUP_ID, {})
        except errors.BadAnswer as wrong:
            assert "before you repeat it" in wrong.line()
        else:
            assert group.id and all(member.id for member in group.members)
