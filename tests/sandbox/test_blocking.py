"""A user with too many failures is blocked for a while, whatever credentials follow."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.sandbox.running import PASSWORDS, SECRET, Service, eventually, logon, refusal, world
from zonedrive.sandbox.codes import hotp

ALICE, BOB = "alice@acme.example", "bob@acme.example"
THREE = "block_after = 3\nblock_seconds = 3600"


def fail(service: Service, user: str, times: int) -> list[tuple[int, str]]:
    """Send wrong passwords; return the refusals."""
    return [refusal(logon(service.client(), user, "wrong")) for _ in range(times)]


def right(service: Service, user: str = ALICE) -> httpx.Response:
    """Log on with the right password."""
    return logon(service.client(), user, PASSWORDS[user])


def test_too_many_failures_block_a_user(start: Callable[..., Service]) -> None:
    """The right password is refused, too, until the block ends; other users are not affected."""
    service = start(world(THREE))
    holder, known = service.person(), service.client()
    known.auth = httpx.BasicAuth(ALICE, PASSWORDS[ALICE])
    assert known.get("/api/zones").status_code == 200
    assert fail(service, ALICE.upper(), 3) == [(401, "AUTHORIZATION_FAILED")] * 3
    assert refusal(right(service)) == (401, "TEMPORARY_BLOCKED")
    steps = logon(service.client(), ALICE, PASSWORDS[ALICE], acceptSessions=True)
    assert refusal(steps) == (401, "TEMPORARY_BLOCKED")
    assert right(service, BOB).status_code == 200
    assert holder.get("/api/zones").status_code == 200

    asked = {"tokenName": "t", "validity": 60, "password": list(PASSWORDS[ALICE])}
    assert refusal(holder.post("/api/tokens", json=asked)) == (403, "TEMPORARILY_BLOCKED")
    basic = service.client()
    for user in (ALICE, ""):
        basic.auth = httpx.BasicAuth(user, PASSWORDS[ALICE])
        assert basic.get("/api/zones").status_code == 401
    assert refusal(known.get("/api/zones")) == (401, "TEMPORARILY_BLOCKED")

    assert service.tell({"unblock": ALICE}) == {"ok": True}
    assert right(service).status_code == 200
    assert "error" in service.tell({"unblock": ALICE})


def test_a_success_resets_the_count(start: Callable[..., Service]) -> None:
    """Only consecutive failures count."""
    service = start(world(THREE))
    for _ in range(3):
        fail(service, ALICE, 2)
        assert right(service).status_code == 200


def test_guesses_without_a_name_are_not_forgiven(start: Callable[..., Service]) -> None:
    """A valid password does not reset the count, which is that of the machine, not of a user."""
    service = start(world(THREE))
    guess = service.client()
    seen = []
    for password in ("no", "nor this", PASSWORDS[ALICE], "neither", PASSWORDS[BOB]):
        guess.auth = httpx.BasicAuth("", password)
        seen.append(guess.get("/api/zones").status_code)
    assert seen == [401, 401, 200, 401, 401]
    assert refusal(guess.get("/api/zones")) == (401, "TEMPORARILY_BLOCKED")
    assert right(service).status_code == 200


def test_a_block_ends_by_time(start: Callable[..., Service]) -> None:
    """After `block_seconds` the user can log on again."""
    service = start(world("block_after = 1\nblock_seconds = 2"))

    def blocked() -> bool:
        fail(service, ALICE, 1)
        answer = right(service)  # which may come after the end of the block
        return answer.status_code == 401 and refusal(answer) == (401, "TEMPORARY_BLOCKED")

    eventually(blocked, "the block has begun")
    eventually(lambda: right(service).status_code == 200, "the block ends")


def test_guesses_at_the_same_time_count_each(start: Callable[..., Service]) -> None:
    """Twenty simultaneous guesses are counted one by one."""
    service = start(world(THREE))
    guesses = ["wrong"] * 20
    with ThreadPoolExecutor(len(guesses)) as pool:
        answers = pool.map(lambda guess: logon(service.client(), ALICE, guess), guesses)
        outcomes = Counter(refusal(answer)[1] for answer in answers)
    assert outcomes == {"AUTHORIZATION_FAILED": 3, "TEMPORARY_BLOCKED": 17}
    assert refusal(right(service)) == (401, "TEMPORARY_BLOCKED")


def test_a_block_does_not_reveal_users(start: Callable[..., Service]) -> None:
    """An unknown name is blocked like a known one."""
    service = start(world(THREE))
    expected = [(401, "AUTHORIZATION_FAILED")] * 3 + [(401, "TEMPORARY_BLOCKED")]
    assert fail(service, "nobody@acme.example", 4) == expected
    assert fail(service, BOB, 4) == expected


def test_wrong_codes_block_too(start: Callable[..., Service]) -> None:
    """Otherwise a stolen password would allow a million guesses."""
    service = start(world(THREE + '\notp = "HOTP"'))

    def attempt(code: str) -> tuple[int, str]:
        client = service.client()
        first = logon(client, ALICE, PASSWORDS[ALICE], acceptSessions=True)
        if first.status_code != 202:
            return refusal(first)
        body = {"logonSessionId": first.json()["sessionId"], "verificationCode": code}
        return refusal(client.post("/api/access/logon", json=body))

    assert [attempt("x") for _ in range(3)] == [(401, "VERIFICATIONCODE_FAILURE")] * 3
    assert attempt(hotp(SECRET, 0)) == (401, "TEMPORARY_BLOCKED")


def test_attempts_are_kept_with_where_they_came_from(start: Callable[..., Service]) -> None:
    """The control socket reports user, outcome and address, and X-Real-Ip behind a proxy."""
    service = start(world(THREE))
    fail(service, ALICE, 1)
    proxied = service.client(**{"X-Real-Ip": "203.0.113.7"})
    assert logon(proxied, ALICE, PASSWORDS[ALICE]).status_code == 200
    assert logon(proxied, BOB, None, acceptSessions=True).status_code == 202
    answer = service.tell({"attempts": ALICE})
    assert answer["blocked"] is False
    kept = [(one["user"], one["address"], one["outcome"]) for one in answer["attempts"]]
    assert kept == [
        (ALICE, "127.0.0.1", "AUTHORIZATION_FAILED"),
        (ALICE, "203.0.113.7", "OK"),
    ]
    everybody = service.tell({"attempts": True})["attempts"]
    assert [one["outcome"] for one in everybody] == ["AUTHORIZATION_FAILED", "OK", "PENDING"]
    for path in ("newcredentials", "revalidate"):
        assert proxied.post(f"/api/access/{path}", json={"name": BOB}).status_code in (200, 400)


@pytest.mark.parametrize("value", [5, None, False, {"user": ALICE}])
def test_wrong_values_of_commands_are_errors(service: Service, value: object) -> None:
    assert "error" in service.tell({"attempts": value})
    assert "error" in service.tell({"unblock": value})
