"""The JSON of the access endpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.remote.test_wire import JSON
from zonedrive.errors import BadAnswer
from zonedrive.logon import wire

NOW = 1_800_000_000_000_000_000
DAY_S = 86_400
DAY_MS = DAY_S * 1000


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
    """The interface says milliseconds, not since when."""
    import msgspec

    body = msgspec.json.encode({"id": "i", "token": "t", "expiry": expiry})
    assert wire.new_token(body, "x", NOW, 90 * DAY_S).expires_ns == expires_ns


@pytest.mark.parametrize("wrong_by", [-1, 0, 1])
@pytest.mark.parametrize("days", [1, 90, 36500])
def test_a_clock_that_is_wrong_by_a_day_changes_no_reading(days: int, wrong_by: int) -> None:
    """A moment stays that moment, even one that seems to be over, and a duration a duration."""
    import msgspec

    here = NOW + wrong_by * DAY_S * 10**9
    for there in (0, NOW // 10**6):
        body = msgspec.json.encode({"token": "t", "expiry": there + days * DAY_MS})
        expires = wire.new_token(body, "x", here, days * DAY_S).expires_ns
        ends_in = (expires - (NOW if there else here)) / (DAY_S * 10**9)
        assert ends_in == pytest.approx(days) or (days > 11_000 and 0 < ends_in < days)


def test_requirements() -> None:
    """What is missing takes the usual case: a password, no code."""
    assert wire.requirements(b"{}", "x") == wire.Requirements(True, False, "", "")
    body = (
        b'{"passwordRequired":false,"otpRequired":true,"otpType":"TOTP","organizationName":"Acme"}'
    )
    assert wire.requirements(body, "x") == wire.Requirements(False, True, "TOTP", "Acme")
    assert wire.requirements(b'{"otpType":"None"}', "x").code_kind == ""


@given(JSON)
def test_no_answer_breaks_the_reader(value: object) -> None:
    """It is read, or it is a BadAnswer."""
    import json

    body = json.dumps(value).encode()
    for read in (wire.requirements, wire.outcome):
        try:
            read(body, "x")
        except BadAnswer:
            continue


@given(st.dictionaries(st.sampled_from(
    ["logonOK", "sessionId", "sessionID", "expiresInMillis", "idpURI", "state",
     "passwordChangeIsRequired", "userId"]), JSON))  # fmt: skip
def test_no_member_breaks_the_reader(members: dict[str, object]) -> None:
    """Every member may be missing, null or of another type."""
    import json

    try:
        found = wire.outcome(json.dumps(members).encode(), "x")
    except BadAnswer:
        return
    assert found.life_ns >= 0
    assert found.session == "" or found.session not in repr(found) or len(found.session) < 8
