"""One-time codes and the logon in several steps."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyotp
import pytest

from tests.sandbox.running import PASSWORDS, SECRET, Person, Service, logon, refusal, world
from zonedrive.sandbox.codes import hotp

ALICE, BOB, CAROL = "alice@acme.example", "bob@acme.example", "carol@acme.example"


def flow(service: Service, user: str, password: str | None = None, **more: Any) -> httpx.Response:
    """Send the first request of a logon in steps."""
    return logon(service.client(), user, password, acceptSessions=True, **more)


def go_on(service: Service, first: httpx.Response, **more: Any) -> httpx.Response:
    """Send the next request of the logon."""
    body = {"logonSessionId": first.json()["sessionId"], **more}
    return service.client().post("/api/access/logon", json=body)


def totp(step: int = 0) -> str:
    """Return the current code, or that of some steps later."""
    return hotp(SECRET, int(time.time()) // 30 + step)


def test_codes_are_those_of_rfc_4226() -> None:
    """The codes agree with the standard's appendix and with another implementation."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    expected = ["755224", "287082", "359152", "969429", "338314"]
    assert [hotp(secret, counter) for counter in range(5)] == expected
    other = pyotp.HOTP(secret)
    assert all(hotp(secret.lower(), n) == other.at(n) for n in (10, 10**6, 2**40))


def test_a_password_first_then_a_code(start: Callable[..., Service]) -> None:
    """With TOTP each step is answered with the pending state; a code works once."""
    service = start(world('otp = "TOTP"'))
    needs = service.client().get("/api/access/authorizationrequirements").json()
    assert (needs["otpRequired"], needs["otpType"]) == (True, "TOTP")

    first = flow(service, ALICE)
    assert first.status_code == 202
    assert first.json()["state"] == "PASSWORDPENDING"
    assert first.json()["userId"] == {"name": ALICE}
    second = go_on(service, first, password=list(PASSWORDS[ALICE]))
    assert second.status_code == 202
    assert second.json()["state"] == "VERIFICATIONCODEPENDING"
    code = totp()
    third = go_on(service, second, verificationCode=code)
    assert third.status_code == 200
    assert third.json()["logonOK"] is True

    again = flow(service, ALICE, PASSWORDS[ALICE], verificationCode=code)
    assert refusal(again) == (401, "AUTHORIZATION_FAILED")
    later = logon(service.client(), ALICE, PASSWORDS[ALICE], verificationCode=totp(1))
    assert later.status_code == 200

    # A flow may begin with the password, and a code may come before it.
    pending = flow(service, BOB, PASSWORDS[BOB])
    assert pending.json()["state"] == "VERIFICATIONCODEPENDING"
    early = flow(service, BOB, verificationCode=totp(1))
    assert early.json()["state"] == "PASSWORDPENDING"
    assert go_on(service, early, password=list(PASSWORDS[BOB])).status_code == 200
    ended = go_on(service, early, password=list(PASSWORDS[BOB]))
    assert refusal(ended) == (403, "ALREADY_LOGGED_ON")


def test_a_failed_step_ends_the_flow(start: Callable[..., Service]) -> None:
    """After a failure the flow cannot be continued, even with the right credentials."""
    service = start(world('otp = "TOTP"'))
    right = list(PASSWORDS[ALICE])
    for fields, error in (
        ({"password": PASSWORDS[ALICE]}, "INVALID_DATA"),
        ({"password": ["two"]}, "INVALID_DATA"),
        ({"password": right, "timeout": 0}, "ILLEGAL_ARGUMENT"),
    ):
        malformed = flow(service, ALICE)
        assert refusal(go_on(service, malformed, **fields)) == (400, error)
        assert refusal(go_on(service, malformed, password=right)) == (400, "INVALID_SESSIONID")
    wrong_password = flow(service, ALICE)
    assert refusal(go_on(service, wrong_password, password=["x"])) == (401, "PASSWORD_FAILURE")
    assert refusal(go_on(service, wrong_password, password=right)) == (400, "INVALID_SESSIONID")

    wrong_code = flow(service, ALICE, PASSWORDS[ALICE])
    answer = go_on(service, wrong_code, verificationCode="000")
    assert refusal(answer) == (401, "VERIFICATIONCODE_FAILURE")
    answer = go_on(service, wrong_code, verificationCode=totp())
    assert refusal(answer) == (400, "INVALID_SESSIONID")

    nothing = flow(service, ALICE)
    assert refusal(go_on(service, nothing)) == (401, "PASSWORD_FAILURE")
    other = flow(service, ALICE)
    answer = go_on(service, other, username=BOB, password=right)
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")
    elsewhere = flow(service, ALICE)
    answer = go_on(service, elsewhere, organizationName="Other", password=right)
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")
    assert refusal(go_on(service, elsewhere, password=right)) == (400, "INVALID_SESSIONID")
    unknown = flow(service, "nobody@acme.example")
    assert unknown.status_code == 202
    assert refusal(go_on(service, unknown, password=["x"])) == (401, "PASSWORD_FAILURE")
    made_up = service.client().post("/api/access/logon", json={"logonSessionId": "made up"})
    assert refusal(made_up) == (400, "INVALID_SESSIONID")
    assert refusal(flow(service, ALICE, "wrong")) == (401, "AUTHORIZATION_FAILED")


@pytest.mark.parametrize("length", [900, 1001])
@pytest.mark.parametrize("name", ["username", "verificationCode", "scope"])
def test_a_flow_keeps_no_long_text(service: Service, name: str, length: int) -> None:
    """A client without a password cannot fill the memory with unfinished logons."""
    text = "x" * length
    body = {"username": ALICE, name: {"description": text} if name == "scope" else text}
    answer = service.client().post("/api/access/logon", json={**body, "acceptSessions": True})
    assert answer.status_code == (202 if length <= 1000 else 400)


def test_a_flow_continues_once(start: Callable[..., Service]) -> None:
    """Of several simultaneous requests one succeeds, and the code counts once."""
    service = start(world('otp = "HOTP"'))
    pending = flow(service, ALICE, PASSWORDS[ALICE])
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: go_on(service, pending, verificationCode=hotp(SECRET, 0)), range(8))
        )
    assert sorted(answer.status_code for answer in answers) == [200] + [403] * 7


def test_without_a_code_there_is_no_logon(start: Callable[..., Service]) -> None:
    """A password alone is refused in every form, and so is a user without a secret."""
    service = start(world('otp = "TOTP"'))
    alone = logon(service.client(), ALICE, PASSWORDS[ALICE])
    assert refusal(alone) == (401, "AUTHORIZATION_FAILED")
    basic = service.client()
    basic.auth = httpx.BasicAuth(ALICE, PASSWORDS[ALICE])
    assert refusal(basic.get("/api/zones")) == (401, "AUTHORIZATION_FAILED")
    pending = flow(service, CAROL, PASSWORDS[CAROL])
    answer = go_on(service, pending, verificationCode=totp())
    assert refusal(answer) == (401, "VERIFICATIONCODE_FAILURE")


def test_hotp_counts_from_zero_and_forward_only(start: Callable[..., Service]) -> None:
    """Codes are accepted in order, some may be skipped, none works twice, even after a restart."""
    service = start(world('otp = "HOTP"'))

    def attempt(counter: int) -> int:
        code = hotp(SECRET, counter)
        answer = logon(service.client(), ALICE, PASSWORDS[ALICE], verificationCode=code)
        return answer.status_code

    assert [attempt(0), attempt(0), attempt(1), attempt(4), attempt(3)] == [200, 401, 200, 200, 401]
    service.stop()
    service.start()
    assert [attempt(4), attempt(5)] == [401, 200]


def test_a_code_comes_by_mail(start: Callable[..., Service]) -> None:
    """Each right password sends a new code, which works once and stays in the mailbox."""
    service = start(world('otp = "ServiceMail"'))
    assert "error" in service.tell({"mail": BOB})
    assert refusal(flow(service, BOB, "wrong")) == (401, "AUTHORIZATION_FAILED")
    assert "error" in service.tell({"mail": BOB})

    first = flow(service, BOB, PASSWORDS[BOB])
    old = service.tell({"mail": BOB})["code"]
    assert len(old) == 6
    assert old.isdecimal()
    second = flow(service, BOB, PASSWORDS[BOB])
    code = service.tell({"mail": BOB})["code"]
    assert code != old, "but for once in a million"
    answer = go_on(service, first, verificationCode=old)
    assert refusal(answer) == (401, "VERIFICATIONCODE_FAILURE")
    assert go_on(service, second, verificationCode=code).status_code == 200
    third = flow(service, BOB, PASSWORDS[BOB])
    new = service.tell({"mail": BOB})["code"]
    assert go_on(service, third, verificationCode=new).status_code == 200
    assert service.tell({"mail": BOB}) == {"code": new}
    again = logon(service.client(), BOB, PASSWORDS[BOB], verificationCode=new)
    assert refusal(again) == (401, "AUTHORIZATION_FAILED")
    service.stop()
    service.start()
    assert service.tell({"mail": BOB}) == {"code": new}
    again = logon(service.client(), BOB, PASSWORDS[BOB], verificationCode=new)
    assert refusal(again) == (401, "AUTHORIZATION_FAILED")


def test_a_user_without_a_secret_gets_no_code(start: Callable[..., Service]) -> None:
    """The answer is the same as for a wrong code."""
    service = start(world('otp = "ServiceMail"'))
    pending = flow(service, CAROL, PASSWORDS[CAROL])
    assert pending.json()["state"] == "VERIFICATIONCODEPENDING"
    assert "error" in service.tell({"mail": CAROL})
    answer = go_on(service, pending, verificationCode="000000")
    assert refusal(answer) == (401, "VERIFICATIONCODE_FAILURE")


def test_a_flow_without_codes_ends_with_the_password(service: Service) -> None:
    """If no code is required, a flow has one pending state."""
    first = flow(service, ALICE)
    assert first.json()["state"] == "PASSWORDPENDING"
    answer = go_on(service, first, password=list(PASSWORDS[ALICE]), setCookie=True, timeout=5000)
    assert answer.status_code == 200
    assert answer.json()["expiresInMillis"] == 5000
    assert "auth_token=" in answer.headers["set-cookie"]


def test_enough_credentials_need_no_flow(service: Service) -> None:
    """acceptSessions does not force a flow if all credentials are sent."""
    assert flow(service, ALICE, PASSWORDS[ALICE]).status_code == 200


def test_sessions_expire_on_command(service: Service, alice: Person) -> None:
    """expire_sessions ends every session, but no token."""
    body = {"tokenName": "t", "validity": 60, "password": list(PASSWORDS[ALICE])}
    token = alice.post("/api/tokens", json=body).json()["token"]
    service.expire_sessions()
    assert refusal(alice.get("/api/zones")) == (401, "AUTHORIZATION_FAILED")
    assert service.client(Authorization=f"Bearer {token}").get("/api/zones").status_code == 200
