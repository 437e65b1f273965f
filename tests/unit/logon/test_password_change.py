"""Logon that must change the password first."""

import pytest

from tests.unit.logon.conftest import GOOD, PASSWORD, SESSION, Answer, Desk, Person, refuse, say
from zonedrive import errors
from zonedrive.logon.bearer_auth import Clock
from zonedrive.logon.flow import Flow, LoggedOn, PasswordChange
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Requirements
from zonedrive.remote.profiles.load import load_profile

LOGON = "POST /api/access/logon"
CHANGE = "POST /api/sandbox/password"
LOGOFF = "GET /api/access/logoff"
NEW = "new ✓ horse"
OPERATION = load_profile("sandbox").operation("change_password")


async def run(desk: Desk, *answers: Answer, new: str | None = NEW) -> LoggedOn:
    """Run a logon that requires a new password; `answers` are those to the change."""
    desk.answer(LOGON, say(200, GOOD | {"passwordChangeIsRequired": True}))
    desk.answer(CHANGE, *(answers or (say(204),)))

    def ask() -> Secret:
        if new is None:
            raise errors.CredentialsRefused("nobody to ask")
        return Secret(new)

    change = PasswordChange(OPERATION, ask, lambda _line: None)
    return await Flow(desk.access(), "alice", Requirements(), Person(), change=change).run()


async def test_the_session_goes_on_with_the_new_password(desk: Desk) -> None:
    """Old and new password are sent once, as the profile says; then the user is logged on."""
    done = await run(desk)
    assert done.password == Secret(NEW) and done.bearer.secret == SESSION
    assert desk.routes() == [LOGON, CHANGE, "GET /api/zones"]
    assert desk.bodies("/api/sandbox/password") == [
        {"password": list(PASSWORD), "newPassword": list(NEW)}
    ]


async def test_the_life_of_a_session_begins_before_the_new_password_is_typed(desk: Desk) -> None:
    """The user may take some minutes for that."""
    now = 10**18
    access = desk.access()
    access.clock = Clock(lambda: now)

    def ask() -> Secret:
        nonlocal now
        now += 10**12
        return Secret(NEW)

    desk.answer(LOGON, say(200, GOOD | {"passwordChangeIsRequired": True}))
    desk.answer(CHANGE, say(204))
    change = PasswordChange(OPERATION, ask, lambda _line: None)
    done = await Flow(access, "alice", Requirements(), Person(), change=change).run()
    assert done.bearer.began_ns == 10**18
    assert done.bearer.expires_ns == 10**18 + 3600 * 10**9


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refuse(403, "WRONG_PASSWORD"), errors.CredentialsRefused, "password is wrong"),
        (refuse(400, "ILLEGAL_PASSWORD"), errors.Rejected, "ILLEGAL_PASSWORD"),
        (refuse(404, "NOT_FOUND"), errors.NotFound, "changing the password"),
        (refuse(504, "FAILED"), errors.ReplyLost, "may or may not have taken effect"),
    ],
)
async def test_a_refused_change(
    desk: Desk, answer: Answer, kind: type[errors.RemoteError], words: str
) -> None:
    """The change is not repeated, and the message contains no password."""
    with pytest.raises(kind, match=words) as refused:
        await run(desk, answer)
    assert desk.routes() == [LOGON, CHANGE]
    assert NEW not in refused.value.line() and PASSWORD not in refused.value.line()


async def test_without_a_new_password_nothing_is_sent(desk: Desk) -> None:
    """The session could do nothing else, so it cannot be ended."""
    with pytest.raises(errors.CredentialsRefused, match="nobody to ask"):
        await run(desk, new=None)
    assert desk.routes() == [LOGON]


@pytest.mark.parametrize(
    "answer", [refuse(401, "AUTHORIZATION_FAILED"), refuse(403, "NOT_ALLOWED")]
)
async def test_a_session_that_ends_with_the_old_password(desk: Desk, answer: Answer) -> None:
    """The user is told that the password was changed, and to log on again."""
    desk.answer("GET /api/zones", answer)
    with pytest.raises(errors.CredentialsRefused, match="the password is changed") as ended:
        await run(desk)
    assert "new password" in ended.value.remedy
    assert desk.routes() == [LOGON, CHANGE, "GET /api/zones", LOGOFF]
