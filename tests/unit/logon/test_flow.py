"""Logon as a state machine: the order of requests, and its end after a refusal."""

import httpx
import pytest

from tests.unit.logon.conftest import GOOD, PASSWORD, SESSION, TOKEN, Desk, Person, refuse, say
from zonedrive import errors
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.flow import (
    Flow,
    LoggedOn,
    end_session,
    leave_session,
    obtain_token,
)
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Requirements

LOGON = "/api/access/logon"
ROUTE = f"POST {LOGON}"


def pending(state: object, session: object = "flow-1") -> httpx.Response:
    """Return a 202 answer."""
    return say(202, {"state": state, "sessionId": session, "userId": {"name": "Alice@acme"}})


async def run(desk: Desk, person: Person, **needs: object) -> LoggedOn:
    """Run one flow of alice."""
    return await Flow(desk.access(), "alice", Requirements(**needs), person).run()  # type: ignore[arg-type]


async def test_a_password_alone(desk: Desk) -> None:
    """The password is sent once, as an array of its characters, and never as a string."""
    done = await run(desk, Person())
    assert done.bearer.secret == SESSION
    assert done.bearer.kind == "session"
    assert done.user_id == "alice@acme.example"
    (body,) = desk.bodies(LOGON)
    assert body == {"username": "alice", "acceptSessions": True, "password": list(PASSWORD)}


@pytest.mark.parametrize("name", ["sessionId", "sessionID"])
async def test_both_spellings_of_the_session_id(desk: Desk, name: str) -> None:
    """The API has two names for the session id."""
    desk.answer(ROUTE, say(200, {"logonOK": True, name: SESSION}))
    assert (await run(desk, Person())).bearer.secret == SESSION


async def test_a_code_that_is_always_required_is_asked_for_first(desk: Desk) -> None:
    """If a code is always required, password and code are sent together."""
    person = Person(code="123456")
    await run(desk, person, code=True, code_kind="TOTP")
    assert person.wanted == ["password", "code TOTP"]
    assert desk.bodies(LOGON)[0]["verificationCode"] == "123456"


async def test_a_given_code_is_used_without_a_question(desk: Desk) -> None:
    person = Person(given="123456")
    await run(desk, person, code=True, code_kind="ServiceMail")
    assert person.wanted == ["password"]
    assert desk.bodies(LOGON)[0]["verificationCode"] == "123456"


async def test_a_given_code_is_sent_only_where_codes_are_used(desk: Desk) -> None:
    """If the service announces none, a code is sent only when the service asks for one."""
    desk.answer(ROUTE, say(200, GOOD))
    await run(desk, Person(given="123456"), has_codes=False)
    desk.answer(ROUTE, pending("VERIFICATIONCODEPENDING"), say(200, GOOD))
    await run(desk, Person(given="123456"), has_codes=False)
    codes = [body.get("verificationCode") for body in desk.bodies(LOGON)]
    assert codes == [None, None, "123456"]


async def test_a_mailed_code_is_asked_for_after_the_mail(desk: Desk) -> None:
    """The service mails the code after it has accepted the password."""
    desk.answer(ROUTE, pending("VERIFICATIONCODEPENDING"), say(200, GOOD))
    person = Person(code="123456")
    await run(desk, person, code=True, code_kind="ServiceMail")
    first, second = desk.bodies(LOGON)
    assert "verificationCode" not in first
    assert second == {
        "username": "Alice@acme",
        "acceptSessions": True,
        "logonSessionId": "flow-1",
        "verificationCode": "123456",
    }
    assert person.wanted == ["password", "code ServiceMail"]


async def test_a_refused_code_beside_a_password_is_named(desk: Desk) -> None:
    """The service does not say which of the two is wrong, so the message names both."""
    desk.answer(ROUTE, refuse(401, "AUTHORIZATION_FAILED"))
    with pytest.raises(errors.CredentialsRefused, match="wrong password or wrong one-time code"):
        await run(desk, Person(code="1"), code=True, code_kind="TOTP")


@pytest.mark.parametrize("first", ["PASSWORDPENDING", "VERIFICATIONCODEPENDING"])
async def test_the_service_chooses_the_order(desk: Desk, first: str) -> None:
    """The order of the states is not published, so both orders work."""
    other = {"PASSWORDPENDING", "VERIFICATIONCODEPENDING"} - {first}
    desk.answer(ROUTE, pending(first), pending(other.pop(), "flow-2"), say(200, GOOD))
    await run(desk, Person(code="1"), password=False)
    bodies = desk.bodies(LOGON)
    assert [body.get("logonSessionId") for body in bodies] == [None, "flow-1", "flow-2"]
    assert sum("password" in body for body in bodies) == 1
    assert sum("verificationCode" in body for body in bodies) == 1


@pytest.mark.parametrize("given", [True, False])
async def test_a_flow_may_ask_for_what_the_first_request_had(desk: Desk, given: bool) -> None:
    """The user is not asked a second time."""
    states = ["PASSWORDPENDING", "VERIFICATIONCODEPENDING"]
    desk.answer(ROUTE, *map(pending, states), say(200, GOOD))
    person = Person(given="1") if given else Person(code="1")
    done = await run(desk, person, code=True, code_kind="TOTP")
    first, second, third = desk.bodies(LOGON)
    assert (first["password"], first["verificationCode"]) == (list(PASSWORD), "1")
    assert second["password"] == list(PASSWORD) and "verificationCode" not in second
    assert third["verificationCode"] == "1" and "password" not in third
    assert person.wanted == ["password"] + ["code TOTP"] * (not given)
    assert done.password == Secret(PASSWORD)


@pytest.mark.parametrize("again", ["PASSWORDPENDING", "VERIFICATIONCODEPENDING"])
async def test_no_state_is_answered_twice(desk: Desk, again: str) -> None:
    """A service that repeats its question ends the flow."""
    desk.answer(ROUTE, pending(again))
    with pytest.raises(errors.CredentialsRefused, match="asks again"):
        await run(desk, Person(code="1"))
    assert len(desk.bodies(LOGON)) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (refuse(401, "AUTHORIZATION_FAILED"), errors.CredentialsRefused, "wrong password"),
        (refuse(401, "PASSWORD_FAILURE"), errors.CredentialsRefused, "password is wrong"),
        (refuse(401, "VERIFICATIONCODE_FAILURE"), errors.CredentialsRefused, "code is wrong"),
        (refuse(401, "TEMPORARY_BLOCKED"), errors.CredentialsRefused, "blocked"),
        (refuse(401, "SOMETHING_NEW"), errors.CredentialsRefused, "logging on"),
        (say(401), errors.CredentialsRefused, "logging on"),
        (refuse(403, "NOT_ALLOWED"), errors.CredentialsRefused, "may not"),
        (refuse(403, "ALREADY_LOGGED_ON"), errors.CredentialsRefused, "already"),
        (refuse(403, "UNSUPPORTED_VERSION"), errors.Rejected, "version"),
        (refuse(400, "INVALID_DATA"), errors.Rejected, "INVALID_DATA"),
        (refuse(404, ""), errors.NotFound, "logging on"),
        (refuse(408, "FAILED"), errors.ReplyLost, "FAILED"),
        (refuse(500, "LOAD_ERROR"), errors.Unavailable, "LOAD_ERROR"),
        (refuse(502, "COMMUNICATION_ERROR"), errors.ReplyLost, "COMMUNICATION_ERROR"),
        (say(302, Location="http://x.example/"), errors.BadAnswer, "redirects"),
        (say(200, {"logonOK": False}), errors.CredentialsRefused, "refuses"),
        (say(200, {"logonOK": False, "idpURI": "https://x"}), errors.CredentialsRefused, "browser"),
        (say(200, {"logonOK": True}), errors.BadAnswer, "session"),
        (say(200, {"logonOK": True, "sessionId": "a b"}), errors.BadAnswer, "session"),
        (say(200, {"logonOK": True, "sessionId": None}), errors.BadAnswer, "session"),
        (say(200, {}), errors.BadAnswer, "neither"),
        (say(200, []), errors.BadAnswer, "object"),
        (httpx.Response(200, content=b'{"logonOK":tr'), errors.BadAnswer, "JSON"),
        (pending("COFFEEPENDING"), errors.BadAnswer, "unknown"),
        (pending("PASSWORDPENDING", None), errors.BadAnswer, "unknown"),
        (httpx.ConnectError("refused"), errors.Unreachable, "reached"),
        (httpx.ReadError("reset"), errors.ReplyLost, "broke"),
    ],
)  # fmt: skip
async def test_an_end_is_an_end(
    desk: Desk,
    answer: httpx.Response | Exception,
    kind: type[errors.RemoteError],
    word: str,
) -> None:
    """A failure means one request, one line, and a flow that cannot be run again."""
    desk.answer(ROUTE, answer)
    flow = Flow(desk.access(), "alice", Requirements(), Person())
    with pytest.raises(errors.RemoteError, match=word) as failed:
        await flow.run()
    assert type(failed.value) is kind
    assert PASSWORD not in repr(failed.value)
    assert len(desk.asked) == 1
    with pytest.raises(RuntimeError):
        await flow.run()
    assert len(desk.asked) == 1


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (refuse(403, "ALREADY_LOGGED_ON"), "log off where this user is logged on, or try"),
        (refuse(408, "FAILED"), "try again later"),
        (refuse(502, "COMMUNICATION_ERROR"), "try again later"),
        (refuse(401, "AUTHORIZATION_FAILED"), "check user name, password and code"),
        (refuse(401, "USER_INACTIVE"), "ask the administrator of the service"),
        (refuse(403, "USER_INACTIVE"), "ask the administrator of the service"),
        (refuse(401, "USER_REMOVED"), "ask the administrator of the service"),
    ],
)
async def test_a_refused_logon_has_a_remedy(
    desk: Desk, answer: httpx.Response, remedy: str
) -> None:
    """The remedy is about the reason: a right password needs no check."""
    desk.answer(ROUTE, answer)
    with pytest.raises(errors.RemoteError) as refused:
        await run(desk, Person())
    assert refused.value.remedy.startswith(remedy)


async def test_a_refusal_in_the_second_step_ends_the_flow(desk: Desk) -> None:
    """The service has ended the flow, so no more requests are sent."""
    desk.answer(ROUTE, pending("VERIFICATIONCODEPENDING"), refuse(401, "VERIFICATIONCODE_FAILURE"))
    with pytest.raises(errors.CredentialsRefused, match="code is wrong"):
        await run(desk, Person(code="1"))
    assert len(desk.asked) == 2


async def test_without_a_user_to_ask_the_flow_stops(desk: Desk) -> None:
    """A script without --code stops when the code is requested."""
    desk.answer(ROUTE, pending("VERIFICATIONCODEPENDING"))
    with pytest.raises(errors.CredentialsRefused, match="nobody"):
        await run(desk, Person())
    assert len(desk.asked) == 1


async def test_a_password_that_must_be_changed(desk: Desk) -> None:
    """The error has the remedy; the session can do nothing else, so it cannot be ended."""
    desk.answer(ROUTE, say(200, GOOD | {"passwordChangeIsRequired": True}))
    with pytest.raises(errors.PasswordChangeRequired, match="changed"):
        await run(desk, Person())
    assert desk.routes() == [ROUTE]


def session() -> LoggedOn:
    """Return the result of a successful logon."""
    return LoggedOn(Bearer(SESSION, "session"), "alice", Secret(PASSWORD))


async def test_a_token_is_seen_to_work_before_the_session_ends(desk: Desk) -> None:
    """The token is also checked after the end of the session, which it must survive."""
    access = desk.access()
    access.carry(Secret(SESSION))
    token = await obtain_token(access, session(), "zonedrive on host", 90)
    await leave_session(access, token)
    assert (token.secret, token.kind, token.id) == (TOKEN, "token", "t1")
    assert token.expires_ns == 1893456000000 * 10**6
    assert [(path, bearer) for _, path, _, bearer in desk.asked] == [
        ("/api/tokens", f"Bearer {SESSION}"),
        ("/api/zones", f"Bearer {TOKEN}"),
        ("/api/access/logoff", f"Bearer {SESSION}"),
        ("/api/zones", f"Bearer {TOKEN}"),
    ]
    assert desk.bodies("/api/tokens") == [
        {"tokenName": "zonedrive on host", "validity": 7776000, "password": list(PASSWORD)}
    ]


async def test_a_token_that_ends_with_the_session_is_an_error(desk: Desk) -> None:
    """The error has the remedy."""
    desk.answer("GET /api/zones", refuse(401, ""))
    with pytest.raises(errors.CredentialsRefused, match="together") as failed:
        await leave_session(desk.access(), Bearer(TOKEN, "token"))
    assert "--session-only" in failed.value.line()


async def test_the_end_of_a_session_is_never_an_obstacle(desk: Desk) -> None:
    """Errors of the logoff request are returned; 404 means that the session was gone.

    A gateway's 404 has no error object, and does not show that.
    """
    desk.answer(
        "GET /api/access/logoff", refuse(404, "NOT_FOUND"), say(404), httpx.ConnectError("x")
    )
    assert await end_session(desk.access()) is None
    assert isinstance(await end_session(desk.access()), errors.Unavailable)
    assert isinstance(await end_session(desk.access()), errors.Unreachable)
