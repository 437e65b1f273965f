"""Renewal with the stored password, and the cases in which it is never sent again."""

import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from trio.testing import MockClock

from tests.unit.logon.conftest import BASE, GOOD, PASSWORD, SESSION, TOKEN, Desk, refuse, say
from tests.unit.logon.test_bearer_auth import Memory
from zonedrive.errors import StoreError
from zonedrive.logon import account_data, renewal_worker
from zonedrive.logon.account import Account
from zonedrive.logon.account_lock import locked
from zonedrive.logon.api import LogonApi
from zonedrive.logon.bearer_auth import Bearer, load_bearer, save_bearer
from zonedrive.logon.renewal import SECONDS, Outcome, RenewalRequest, digest
from zonedrive.logon.renewal_worker import Renewer
from zonedrive.logon.secrets import Secret
from zonedrive.paths import AccountPaths

LOGON = "POST /api/access/logon"
TOKENS = "POST /api/tokens"
REVOKE = "DELETE /api/sandbox/tokens/t1"
REVOKE_FORMER = "DELETE /api/sandbox/tokens/t0"
DAY = 86_400 * 10**9
KEPT = {
    "token": Bearer("old", "token", 30 * DAY, "t0", began_ns=DAY),
    "session": Bearer("old", "session"),
}


class Counter:
    """Account with a stored password at a simulated service; each `renew` is a new process."""

    def __init__(self, desk: Desk, paths: AccountPaths) -> None:
        self.desk, self.paths = desk, paths
        self.store = Memory(password=PASSWORD)
        account = Account(
            name="work", base_url=BASE, username="alice", profile="sandbox", keeps_password=True
        )
        account.save(paths)
        desk.answer(REVOKE, say(204))
        desk.answer(REVOKE_FORMER, say(204))

    def keep(self, kind: str) -> None:
        """Store a bearer."""
        save_bearer(self.store, KEPT[kind])

    @asynccontextmanager
    async def _access(self, base: str, ca_file: str | None) -> AsyncIterator[LogonApi]:
        yield self.desk.access()

    async def renew(self, *, ended: bool = True, waited: float = 0.0) -> Outcome:
        """Try one renewal, after a wait of `waited` seconds for another one."""
        order = RenewalRequest(digest(load_bearer(self.store)), ended)
        return await Renewer(self.paths, self.store, self._access).run(order, waited)

    def bearer(self) -> Bearer:
        """Return the stored bearer."""
        found = load_bearer(self.store)
        assert found is not None
        return found

    def logons(self) -> int:
        """Return the number of logon requests with the password."""
        return self.desk.routes().count(LOGON)


@pytest.fixture
def counter(desk: Desk, paths: AccountPaths, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Return an account without a logon, whose digests are quickly made."""
    monkeypatch.setattr(renewal_worker, "COST", 2)
    return Counter(desk, paths)


async def test_a_token_makes_the_next_one(counter: Counter) -> None:
    """The new token needs no session, and has the same lifetime."""
    counter.keep("token")
    assert await counter.renew(ended=False) == Outcome("renewed")
    assert counter.desk.routes() == ["GET /api/zones", TOKENS, "GET /api/zones", REVOKE_FORMER]
    assert [bearer for *_, bearer in counter.desk.asked] == [
        "Bearer old", "Bearer old", f"Bearer {TOKEN}", "Bearer old",
    ]  # fmt: skip
    assert counter.desk.bodies("/api/tokens")[0]["validity"] == 29 * 86400
    assert counter.desk.bodies("/api/tokens")[0]["password"] == list(PASSWORD)
    assert (counter.bearer().secret, counter.bearer().kind) == (TOKEN, "token")


async def test_an_ended_token_takes_a_logon(counter: Counter) -> None:
    """The new session is ended after it created a token, as at a user's logon."""
    counter.keep("token")
    assert await counter.renew() == Outcome("renewed")
    assert counter.logons() == 1
    assert counter.desk.routes()[-3:-1] == ["GET /api/access/logoff", "GET /api/zones"]
    assert counter.bearer().secret == TOKEN


async def test_a_session_follows_a_session(counter: Counter) -> None:
    """The former session is ended if it still exists."""
    counter.keep("session")
    assert await counter.renew(ended=False) == Outcome("renewed")
    ended = [bearer for _, path, _, bearer in counter.desk.asked if path.endswith("/logoff")]
    assert ended == ["Bearer old"]
    assert (counter.bearer().secret, counter.bearer().kind) == (SESSION, "session")
    assert TOKENS not in counter.desk.routes()


async def test_a_bearer_that_was_renewed_meanwhile_is_used(counter: Counter) -> None:
    counter.keep("token")
    order = RenewalRequest(digest(Bearer("older", "token")), True)
    outcome = await Renewer(counter.paths, counter.store, counter._access).run(order)
    assert outcome == Outcome("renewed")
    assert counter.desk.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        refuse(401, "AUTHORIZATION_FAILED"),
        refuse(401, "PASSWORD_FAILURE"),
        refuse(403, "PASSWORD_FAILURE"),
        refuse(401, "SOMETHING_NEW"),
        say(200, GOOD | {"passwordChangeIsRequired": True}),
        say(202, {"state": "VERIFICATIONCODEPENDING", "sessionId": "x"}),
    ],
)
async def test_a_refused_password_is_never_sent_again(
    counter: Counter, answer: httpx.Response
) -> None:
    """A later process does not send it either; the user gets the reason and the command."""
    counter.keep("session")
    counter.desk.answer(LOGON, answer)
    first = await counter.renew()
    assert first.result == "refused"
    assert first.remedy == f"run zonedrive logon {BASE} --username alice --account work" + (
        " --save-password"
    )
    for _ in range(3):
        assert (await counter.renew()).result == "refused"
    counter.store.set("password", Secret(PASSWORD))  # put back by somebody
    assert await counter.renew() == first
    assert counter.logons() == 1
    assert all(PASSWORD not in kept.reveal() for n, kept in counter.store.kept.items()
               if n != "password")  # fmt: skip


@pytest.mark.parametrize("answer", [refuse(403, "WRONG_PASSWORD"), refuse(401, "x")])
async def test_a_password_refused_for_a_token_is_not_tried_for_a_logon(
    counter: Counter, answer: httpx.Response
) -> None:
    """The token is used until it ends."""
    counter.keep("token")
    counter.desk.answer(TOKENS, answer)
    assert (await counter.renew(ended=False)).result == "refused"
    assert (await counter.renew()).result == "refused"
    assert counter.logons() == 0
    assert counter.desk.routes().count(TOKENS) == 1
    assert counter.bearer() == KEPT["token"]


REQUIREMENTS = "GET /api/access/authorizationrequirements"
ODD = [httpx.Response(200, html="<p>hotel"), refuse(404, "NOT_FOUND"), refuse(403, "NOT_ALLOWED"),
       httpx.Response(302, headers={"Location": "https://portal.example/"}), say(401)]  # fmt: skip


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize(("route", "ended"), [(REQUIREMENTS, True), ("GET /api/zones", False)])
async def test_other_errors_are_no_refusal_of_the_password(
    counter: Counter, route: str, ended: bool, answer: httpx.Response
) -> None:
    """After an error of a portal or gateway, or a temporary one, the logon is renewed later."""
    counter.keep("token")
    counter.desk.answer(route, answer, say(200, {} if ended else []))
    first = await counter.renew(ended=ended)
    if (route, answer.status_code) != ("GET /api/zones", 401):  # that one was of the token
        assert first.result == "later" or answer.status_code == 200
    assert "refused" not in counter.store.kept
    assert counter.store.get("password") == Secret(PASSWORD)
    if first.result != "renewed":
        assert await counter.renew(ended=ended) == Outcome("renewed")


@pytest.mark.parametrize(
    "answer",
    [refuse(403, "NOT_ALLOWED"), refuse(403, "UNSUPPORTED_VERSION"), say(200, []),
     refuse(400, "ILLEGAL_ARGUMENT"), refuse(403, "ALREADY_LOGGED_ON")],
)  # fmt: skip
async def test_another_no_to_a_logon_is_left_alone_like_a_block(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, answer: httpx.Response
) -> None:
    """The password is kept, and is not tried again at once, nor after a restart."""
    now = [1_800_000_000.0]
    monkeypatch.setattr("zonedrive.logon.renewal_worker.time.time", lambda: now[0])
    counter.keep("session")
    counter.desk.answer(LOGON, answer, say(200, GOOD))
    for _ in range(3):
        outcome = await counter.renew()
        assert outcome.result == "blocked" and "the next attempt is not before" in outcome.message
    assert counter.logons() == 1
    now[0] += renewal_worker.BLOCK_SECONDS
    assert await counter.renew() == Outcome("renewed")


@pytest.mark.parametrize("over", [True, False])
async def test_a_session_that_is_not_accepted_is_left_alone_like_a_block(
    counter: Counter, autojump_clock: MockClock, over: bool
) -> None:
    """Otherwise each request of a program would be a logon with the password."""
    counter.keep("session")
    refused = refuse(401, "AUTHORIZATION_FAILED")
    counter.desk.answer("GET /api/zones", *([] if over else [say(200, [])]), refused)
    for _ in range(3):
        assert (await counter.renew(ended=over)).result == "blocked"
    assert counter.logons() == 1
    assert ended(counter) == {SESSION}
    assert counter.bearer() == KEPT["session"]
    assert counter.store.get("password") == Secret(PASSWORD)


@pytest.mark.parametrize(
    "answers",
    [
        [refuse(401, "AUTHORIZATION_FAILED"), say(200, [])],
        [refuse(401, "AUTHORIZATION_FAILED"), refuse(401, "AUTHORIZATION_FAILED"), say(200, [])],
        [say(500)],
    ],
)
async def test_a_session_that_is_accepted_later_is_kept(
    counter: Counter, autojump_clock: MockClock, answers: list[httpx.Response]
) -> None:
    """Another server of the service may not know the session yet, or be unavailable."""
    counter.keep("session")
    counter.desk.answer("GET /api/zones", *answers)
    assert await counter.renew() == Outcome("renewed")
    assert counter.bearer().secret == SESSION
    assert ended(counter) == set()


@pytest.mark.parametrize("answer", [refuse(400, ""), refuse(403, "NOT_ALLOWED"), say(200, [])])
async def test_a_refused_token_request_keeps_the_password(
    counter: Counter, answer: httpx.Response
) -> None:
    """The former token is used; after its end a session replaces it."""
    counter.keep("token")
    counter.desk.answer(TOKENS, answer)
    outcome = await counter.renew(ended=False)
    assert (outcome.result, outcome.seconds) == ("later", renewal_worker.BLOCK_SECONDS)
    assert counter.bearer() == KEPT["token"]
    assert await counter.renew() == Outcome("renewed")
    assert counter.bearer().kind == "session"


async def test_a_token_that_ends_with_its_session_is_replaced_by_a_session(
    counter: Counter,
) -> None:
    """The service has accepted the password, which is kept."""
    counter.keep("token")
    counter.desk.answer("GET /api/zones", say(200, []), refuse(401, "AUTHORIZATION_FAILED"))
    assert await counter.renew() == Outcome("renewed")
    assert counter.bearer().kind == "session"
    assert counter.store.get("password") == Secret(PASSWORD)
    assert counter.desk.routes()[-1] == LOGON


async def test_a_new_token_is_kept_if_the_service_is_lost_after_it_was_tested(
    counter: Counter,
) -> None:
    """Another renewal would leave this token valid at the service, unknown to the user."""
    counter.keep("token")
    counter.desk.answer("GET /api/zones", say(200, []), httpx.ConnectError("x"))
    assert await counter.renew() == Outcome("renewed")
    assert counter.bearer().secret == TOKEN


async def test_a_new_token_that_does_not_work_is_no_refusal_of_the_password(
    counter: Counter,
) -> None:
    """The request that tests the token has no password."""
    counter.keep("token")
    counter.desk.answer("GET /api/zones", say(200, []), refuse(401, "AUTHORIZATION_FAILED"))
    outcome = await counter.renew(ended=False)
    assert (outcome.result, outcome.seconds) == ("later", renewal_worker.BLOCK_SECONDS)
    assert counter.store.get("password") == Secret(PASSWORD)
    assert counter.bearer() == KEPT["token"]


LATER = Bearer("later", "token")
LATER_PASSWORD = "another"


def log_on_elsewhere(counter: Counter) -> None:
    """Replace the stored logon, as a logon of another user in another process does."""
    with locked(counter.paths):
        Account(name="work", base_url=BASE, username="bob").save(counter.paths)
        save_bearer(counter.store, LATER)
        counter.store.set("password", Secret(LATER_PASSWORD))


def log_off_elsewhere(counter: Counter) -> None:
    """Delete the stored logon, as a logoff in another process does."""
    with locked(counter.paths):
        account_data.destroy(counter.paths, counter.store)


def ended(counter: Counter) -> set[str]:
    """Return the bearers with which a session was ended or a token revoked."""
    return {
        (bearer or "").removeprefix("Bearer ")
        for method, path, _, bearer in counter.desk.asked
        if method == "DELETE" or path.endswith("/logoff")
    }


@pytest.mark.parametrize("meanwhile", [log_on_elsewhere, log_off_elsewhere])
@pytest.mark.parametrize("over", [True, False])
async def test_a_logon_or_logoff_during_a_renewal_stays(
    counter: Counter, meanwhile: Callable[[Counter], None], over: bool
) -> None:
    """The renewal stores nothing, and ends the session that it made."""
    counter.keep("session")

    def answer() -> httpx.Response:
        meanwhile(counter)
        return say(200, GOOD)

    counter.desk.answer(LOGON, answer)
    assert await counter.renew(ended=over) == Outcome("renewed")
    assert ended(counter) == {SESSION}
    if meanwhile is log_off_elsewhere:
        assert counter.store.kept == {}
        assert not counter.paths.state.exists()
    else:
        assert counter.bearer() == LATER
        assert counter.store.get("password") == Secret(LATER_PASSWORD)


async def test_a_token_is_not_stored_over_that_of_a_later_logon(counter: Counter) -> None:
    """The former token is not revoked either: it is no concern of this renewal any more."""
    counter.keep("token")

    def answer() -> httpx.Response:
        log_on_elsewhere(counter)
        return say(201, {"id": "t1", "token": TOKEN, "expiry": 1893456000000})

    counter.desk.answer(TOKENS, answer)
    assert await counter.renew(ended=False) == Outcome("renewed")
    assert counter.bearer() == LATER
    assert ended(counter) == {TOKEN}


class Full(Memory):
    """Store that has no room for another bearer."""

    full = False

    def set(self, name: str, value: Secret) -> None:
        """Store a secret if there is room."""
        if self.full:
            raise StoreError("it is full")
        super().set(name, value)


@pytest.mark.parametrize(
    ("kind", "over", "made"),
    [
        ("token", False, {TOKEN}),
        ("token", True, {SESSION, TOKEN}),
        ("session", False, {SESSION}),
        ("session", True, {SESSION}),
    ],
)
async def test_a_bearer_that_cannot_be_stored_is_ended_and_the_former_one_is_not(
    counter: Counter, kind: str, over: bool, made: set[str]
) -> None:
    """The next attempt is later, because each one creates a bearer."""
    counter.store = store = Full(password=PASSWORD)
    counter.keep(kind)
    store.full = True
    outcome = await counter.renew(ended=over)
    assert (outcome.result, outcome.message) == ("blocked", "it is full")
    assert outcome.seconds == renewal_worker.BLOCK_SECONDS
    assert ended(counter) == made
    assert load_bearer(store) == KEPT[kind]


async def test_a_refusal_that_cannot_be_recorded_is_left_alone_like_a_block(
    counter: Counter,
) -> None:
    """Otherwise the refused password would be sent every few seconds."""
    counter.store = store = Full(password=PASSWORD)
    counter.keep("session")
    store.full = True
    counter.desk.answer(LOGON, refuse(401, "PASSWORD_FAILURE"))
    outcome = await counter.renew()
    assert (outcome.result, outcome.seconds) == ("blocked", renewal_worker.BLOCK_SECONDS)


@pytest.mark.parametrize(("over", "made"), [(False, {TOKEN}), (True, {SESSION, TOKEN})])
async def test_a_token_that_the_service_is_too_slow_to_test_is_ended(
    counter: Counter, mock_clock: MockClock, over: bool, made: set[str]
) -> None:
    """The process has no time left to store it."""
    counter.keep("token")

    def answer() -> httpx.Response:
        mock_clock.jump(SECONDS + 1)
        return say(201, {"id": "t1", "token": TOKEN, "expiry": 1893456000000})

    counter.desk.answer(TOKENS, answer)
    assert (await counter.renew(ended=over)).result == "later"
    assert ended(counter) == made
    assert counter.bearer() == KEPT["token"]


async def test_a_token_that_could_not_be_tested_is_ended(counter: Counter) -> None:
    """The session is kept instead."""
    counter.keep("token")
    counter.desk.answer("GET /api/zones", httpx.ConnectError("x"))
    assert await counter.renew() == Outcome("renewed")
    assert ended(counter) == {TOKEN}
    assert counter.bearer().secret == SESSION


async def test_without_room_on_the_disk_nothing_is_requested(counter: Counter) -> None:
    """The new bearer could not be stored."""
    counter.keep("token")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        outcome = await counter.renew()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (outcome.result, counter.desk.asked) == ("later", [])
    assert str(counter.paths.state) in outcome.message


@pytest.mark.parametrize("code", ["PASSWORD_FAILURE", "TEMPORARY_BLOCKED"])
async def test_a_refusal_says_nothing_about_the_password_of_a_later_logon(
    counter: Counter, code: str
) -> None:
    """The password that the user has just given is kept, and no refusal is recorded."""
    counter.keep("session")

    def answer() -> httpx.Response:
        log_on_elsewhere(counter)
        return refuse(401, code)

    counter.desk.answer(LOGON, answer)
    assert await counter.renew() == Outcome("renewed")
    assert counter.store.get("password") == Secret(LATER_PASSWORD)
    assert "refused" not in counter.store.kept


async def test_another_password_is_tried(counter: Counter) -> None:
    """A different password, for example from systemd's credentials, is tried."""
    counter.keep("session")
    counter.desk.answer(LOGON, refuse(401, "AUTHORIZATION_FAILED"), say(200, GOOD))
    await counter.renew()
    counter.store.set("password", Secret("another"))
    assert await counter.renew() == Outcome("renewed")
    assert counter.desk.bodies("/api/access/logon")[1]["password"] == list("another")
    assert "refused" not in counter.store.kept


async def test_a_blocked_user_is_left_alone_ever_longer(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause is a quarter of an hour and doubles, is reported, and holds for later processes."""
    counter.keep("session")
    now, began = [1_800_000_000.0], 1_800_000_000.0
    monkeypatch.setattr("zonedrive.logon.renewal_worker.time.time", lambda: now[0])
    counter.desk.answer(LOGON, refuse(401, "TEMPORARY_BLOCKED"))
    tries = []
    for minute in (0, 1, 14, 15, 44, 45, 104, 105, 224, 225, 464, 465, 704, 705):
        now[0] = began + minute * 60
        before = counter.logons()
        outcome = await counter.renew()
        assert outcome.result == "blocked"
        assert "the next attempt is not before" in outcome.message
        if counter.logons() > before:
            tries.append(minute)
    assert tries == [0, 15, 45, 105, 225, 465, 705]
    assert outcome.seconds == renewal_worker.LONGEST_BLOCK_SECONDS
    counter.desk.answer(LOGON, say(200, GOOD))
    now[0] += 4 * 3600
    assert await counter.renew() == Outcome("renewed")


async def test_a_block_ends_if_the_clock_was_set_back(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that began while the clock was a month ahead does not last a month."""
    counter.keep("session")
    now = [1_800_000_000.0 + 30 * 86_400]
    monkeypatch.setattr("zonedrive.logon.renewal_worker.time.time", lambda: now[0])
    counter.desk.answer(LOGON, refuse(401, "TEMPORARY_BLOCKED"))
    assert (await counter.renew()).result == "blocked"
    now[0] -= 3600
    assert (await counter.renew()).result == "blocked"
    assert counter.logons() == 1
    now[0] = 1_800_000_000.0
    counter.desk.answer(LOGON, say(200, GOOD))
    assert await counter.renew() == Outcome("renewed")


@pytest.mark.parametrize(
    "answer", [httpx.ConnectError("x"), say(503), refuse(500, "FAILED"), httpx.ReadError("x")]
)
async def test_a_service_that_is_away_has_refused_nothing(
    counter: Counter, answer: httpx.Response | Exception
) -> None:
    """The renewal is tried again later."""
    counter.keep("session")
    counter.desk.answer(LOGON, answer, say(200, GOOD))
    assert (await counter.renew()).result == "later"
    assert await counter.renew() == Outcome("renewed")


async def test_a_renewal_that_waited_too_long_sends_no_password(counter: Counter) -> None:
    """The daemon would kill it before it could store the new token."""
    counter.keep("token")
    assert (await counter.renew(waited=SECONDS + 1)).result == "later"
    assert counter.desk.asked == []


async def test_a_one_time_code_takes_a_person(counter: Counter) -> None:
    """If a code is known to be required, no request is sent."""
    counter.keep("session")
    counter.desk.answer(
        "GET /api/access/authorizationrequirements",
        say(200, {"otpRequired": True, "otpType": "TOTP"}),
    )
    outcome = await counter.renew()
    assert outcome.result == "refused"
    assert "one-time code" in outcome.message
    assert counter.logons() == 0


async def test_without_a_password_a_person_is_asked(counter: Counter) -> None:
    """The user gets the command to log on."""
    counter.keep("session")
    counter.store.delete("password")
    outcome = await counter.renew()
    assert (outcome.result, counter.desk.asked) == ("refused", [])
    assert "zonedrive logon" in outcome.remedy


async def test_a_gateways_page_does_not_refuse_the_password(counter: Counter) -> None:
    """A firewall may ask for a logon of its own; the password is kept for the next attempt."""
    counter.keep("session")
    counter.desk.answer(LOGON, httpx.Response(401, html="<h1>Sign on to the network</h1>"))
    outcome = await counter.renew()
    assert outcome.result == "blocked"
    assert counter.store.get("password") is not None
