"""Logon, logoff, and every form of authentication."""

import base64
import re
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

import pytest

from tests.sandbox.running import PASSWORDS, Person, Service, eventually, logon, refusal, world
from zonedrive.sandbox.app import GUARDED

ALICE = "alice@acme.example"


def test_requirements_tell_what_a_logon_needs(service: Service) -> None:
    """Without a logon, a client can query which credentials the organization requires."""
    answer = service.client().get("/api/access/authorizationrequirements")
    assert answer.status_code == 200
    assert answer.json() == {
        "passwordRequired": True,
        "canSavePassword": True,
        "otpRequired": False,
        "otpType": "None",
        "organizationName": "Acme",
        "worldName": "acme.example",
        "idpRequired": False,
        "personalIdentificationTypes": [],
    }


def test_a_logon_gives_a_session(service: Service) -> None:
    """The right password, as an array of characters, gives a session with its lifetime."""
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE])
    assert answer.status_code == 200
    body = answer.json()
    assert body["logonOK"] is True
    assert body["userId"] == {"name": ALICE}
    assert body["expiresInMillis"] == 3_600_000
    assert body["passwordChangeIsRequired"] is False
    assert body["sessionId"]
    assert "set-cookie" not in answer.headers


def test_zeros_at_the_end_of_a_password_count(service: Service) -> None:
    """The digest pads short passwords with zeros."""
    wrong = logon(service.client(), ALICE, PASSWORDS[ALICE] + "\0")
    assert wrong.status_code == 401


def test_a_password_as_a_string_is_taken_too(service: Service) -> None:
    """passwordAsString is the other form of a password."""
    answer = logon(service.client(), ALICE, None, passwordAsString=PASSWORDS[ALICE])
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("user", "password"),
    [(ALICE, "wrong"), ("nobody@acme.example", "x"), (ALICE, None), (ALICE, "")],
)
def test_bad_credentials_are_refused_alike(
    service: Service, user: str, password: str | None
) -> None:
    """The answers for a wrong password and for an unknown user are the same."""
    answer = logon(service.client(), user, password)
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")
    assert answer.json()["message"] == "Unknown user or wrong password"


@pytest.mark.parametrize(
    "body",
    [
        {"password": ["x"]},
        {"username": ALICE, "password": "correct horse"},
        {"username": ALICE, "password": ["co", "rrect horse"]},
        {"username": ALICE, "password": ["x"], "timeout": 0},
        {"username": ALICE, "password": ["x"], "timeoutInSeconds": -5},
        {"username": ALICE, "password": ["x"], "sameSitePolicy": "Sometimes"},
        {"username": ALICE, "password": ["x"], "passwordAsString": "y"},
        {"username": 5},
        [],
    ],
)
def test_a_malformed_logon_is_refused(service: Service, body: Any) -> None:
    """A malformed logon gives 400 before the password is checked."""
    status, code = refusal(service.client().post("/api/access/logon", json=body))
    assert (status, code in ("ILLEGAL_ARGUMENT", "INVALID_DATA")) == (400, True)


def test_another_organization_is_refused(service: Service) -> None:
    """The organization may be given by name or domain, and must be right."""
    for name in ("Acme", "acme.example"):
        answer = logon(service.client(), ALICE, PASSWORDS[ALICE], organizationName=name)
        assert answer.status_code == 200
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE], organizationName="Other")
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")


def test_a_cookie_is_set_on_request_and_works(service: Service) -> None:
    """setCookie puts the session id into an HttpOnly cookie, which authenticates later requests."""
    client = service.client()
    answer = logon(client, ALICE, PASSWORDS[ALICE], setCookie=True, sameSitePolicy="Strict")
    cookie = SimpleCookie(answer.headers["set-cookie"])["auth_token"]
    assert cookie.value == answer.json()["sessionId"]
    assert cookie["path"] == "/"
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert client.get("/api/zones").status_code == 200


@pytest.mark.parametrize(("life", "seconds"), [(1, "1"), (900, "1"), (1001, "2"), (5000, "5")])
def test_a_cookie_lives_as_long_as_its_session(service: Service, life: int, seconds: str) -> None:
    """The cookie's lifetime is the session's in whole seconds, rounded up: zero would delete it."""
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE], setCookie=True, timeout=life)
    cookie = SimpleCookie(answer.headers["set-cookie"])["auth_token"]
    assert cookie["max-age"] == seconds


def test_a_logoff_expires_the_cookie(service: Service) -> None:
    """After a logoff the cookie is deleted, and the session has ended."""
    client = service.client()
    logon(client, ALICE, PASSWORDS[ALICE], setCookie=True)
    session = client.cookies["auth_token"]
    answer = client.get("/api/access/logoff")
    assert (answer.status_code, answer.content) == (204, b"")
    assert SimpleCookie(answer.headers["set-cookie"])["auth_token"]["max-age"] == "0"
    assert "auth_token" not in client.cookies
    old = service.client(Authorization=f"Bearer {session}").get("/api/zones")
    assert refusal(old) == (401, "AUTHORIZATION_FAILED")


def test_a_logoff_without_a_session_is_404(service: Service) -> None:
    """A logoff without a session, or after its end, gives 404."""
    assert refusal(service.client().get("/api/access/logoff")) == (404, "NOT_FOUND")
    alice = service.person()
    assert alice.get("/api/access/logoff").status_code == 204
    assert refusal(alice.get("/api/access/logoff")) == (404, "NOT_FOUND")


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "{}"])
def test_a_session_id_is_shown_in_the_header(service: Service, alice: Person, form: str) -> None:
    """The header is accepted with the word Bearer and without it."""
    client = service.client(Authorization=form.format(alice.session))
    assert client.get("/api/zones").status_code == 200


@pytest.mark.parametrize("user", [ALICE, "", "anything"])
def test_basic_takes_a_password_with_any_user_part(service: Service, user: str) -> None:
    """The deprecated Basic scheme accepts the user's name, any text or nothing as user part."""
    text = base64.b64encode(f"{user}:correct horse".encode()).decode()
    client = service.client(Authorization=f"Basic {text}")
    for _ in range(2):
        assert [z["name"] for z in client.get("/api/zones").json()][-1] == "Alice alone"


@pytest.mark.parametrize("pair", [f"{ALICE}:battery staple", "x:wrong", "nothing"])
def test_basic_with_a_wrong_password_is_refused(service: Service, pair: str) -> None:
    """A known user's name matches only that user's password."""
    text = base64.b64encode(pair.encode()).decode()
    answer = service.client(Authorization=f"Basic {text}").get("/api/zones")
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")


def test_basic_does_not_replace_a_provider(start: Callable[..., Service]) -> None:
    """A user who must sign on at a provider cannot log on by password."""
    provider = 'identity_providers = [{ name = "corp" }]'
    service = start(world(f'{provider}\nidp_users = ["{ALICE}"]'))
    client = service.client()
    for user in (ALICE, ""):
        client.auth = (user, PASSWORDS[ALICE])
        assert refusal(client.get("/api/zones")) == (401, "AUTHORIZATION_FAILED")
    client.auth = ("bob@acme.example", PASSWORDS["bob@acme.example"])
    assert client.get("/api/zones").status_code == 200


@pytest.mark.parametrize("header", ["Bearer", "Bearer nonsense", "nonsense", "Basic %%%", "a b c"])
def test_without_valid_credentials_nothing_is_served(service: Service, header: str) -> None:
    """Every endpoint except those for logging on requires authentication."""
    answer = service.client(Authorization=header).get("/api/zones")
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")


# Every endpoint that needs a caller, with made-up identifiers.
ASKING = [(method, re.sub(r"\{\w+\}", "x", path)) for method, path, *_more in GUARDED]
PASSWORD = ("POST", "/api/sandbox/password")


@pytest.mark.parametrize(("method", "path"), ASKING)
def test_every_endpoint_refuses_unknown_callers(service: Service, method: str, path: str) -> None:
    """Every endpoint checks the caller, whatever is sent instead of credentials."""
    scheme = "Basic" if path.startswith("/api/sandbox/pages/") else "Bearer"
    for shown in ({}, {"Authorization": "Bearer x"}, {"Cookie": "auth_token=x"}):
        answer = service.client(**shown).request(method, path)
        assert refusal(answer) == (401, "AUTHORIZATION_FAILED")
        assert answer.headers["www-authenticate"].split()[0] == scheme


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"timeout": 60_000}, 60_000),
        ({"timeoutInSeconds": 90}, 90_000),
        ({"timeout": 10**12}, 3_600_000),
        ({"timeout": 60_000, "timeoutInSeconds": 90}, 60_000),
    ],
)
def test_the_lifetime_of_a_session_is_limited(
    service: Service, asked: dict[str, int], given: int
) -> None:
    """The requested lifetime is granted up to the organization's limit."""
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE], **asked)
    assert answer.json()["expiresInMillis"] == given


def test_a_session_ends_when_its_life_is_over(service: Service) -> None:
    client = service.client()
    session = logon(client, ALICE, PASSWORDS[ALICE], timeout=1).json()["sessionId"]
    client.headers["Authorization"] = f"Bearer {session}"
    answer = eventually(
        lambda: (a := client.get("/api/zones")).status_code == 401 and a, "the session is over"
    )
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")


def test_new_credentials_can_be_requested(service: Service) -> None:
    """A known user gets a message, an unknown one an error structure."""
    ask = service.client().post
    answer = ask("/api/access/newcredentials", json={"name": ALICE})
    assert answer.status_code == 200
    assert isinstance(answer.json()["message"], str)
    assert refusal(ask("/api/access/newcredentials", json={"name": "x"})) == (400, "USER_UNKNOWN")
    assert refusal(ask("/api/access/newcredentials", json={})) == (400, "ILLEGAL_ARGUMENT")


def test_only_the_password_can_be_changed_where_that_is_required(service: Service) -> None:
    """Before, nothing else can be used; afterwards, everything."""
    client = service.client()
    first = logon(client, "newbie@acme.example", "first day").json()
    assert first["passwordChangeIsRequired"] is True
    client.headers["Authorization"] = "Bearer " + first["sessionId"]
    others = [pair for pair in ASKING if pair != PASSWORD]
    assert len(others) == len(ASKING) - 1
    for method, path in [("GET", "/api/access/logoff"), *others]:
        assert refusal(client.request(method, path)) == (403, "NOT_ALLOWED")
    change = {"password": list("wrong"), "newPassword": list("second day")}
    assert refusal(client.post("/api/sandbox/password", json=change)) == (403, "WRONG_PASSWORD")
    change["password"] = change["newPassword"] = list("first day")
    assert refusal(client.post("/api/sandbox/password", json=change)) == (400, "ILLEGAL_PASSWORD")
    change["newPassword"] = list("second day")
    assert client.post("/api/sandbox/password", json=change).status_code == 204
    assert client.get("/api/zones").json() == []
    assert client.get("/api/access/logoff").status_code == 204
    again = logon(service.client(), "newbie@acme.example", "second day")
    assert again.json()["passwordChangeIsRequired"] is False
