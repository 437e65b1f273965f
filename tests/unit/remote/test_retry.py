"""Retries of requests without effect."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive import errors
from zonedrive.remote.retry import Backoff
from zonedrive.remote.wire.error_mapping import retry_after


def unavailable(retry_after: float | None) -> errors.RemoteError:
    """Return the error of a service that requests a pause of `retry_after` seconds."""
    error = errors.Unavailable("x")
    error.retry_after = retry_after
    return error


@given(st.integers(1, 1000), st.floats(0, 1), st.floats(0, 100), st.none() | st.floats(0, 1e9))
def test_a_wait_is_within_all_limits(
    failures: int, chance: float, remaining: float, retry_after: float | None
) -> None:
    """A pause ends before the deadline, and is not shorter than the service requested."""
    wait = Backoff().delay(unavailable(retry_after), failures, chance, remaining)
    if wait is not None:
        assert 0 <= wait < remaining
        assert failures < Backoff().attempts
        assert retry_after is None or wait >= retry_after


def test_waits_grow_up_to_a_cap() -> None:
    backoff = Backoff(first=1, cap=30, attempts=100)
    assert [backoff.ceiling(n) for n in (1, 2, 3, 6, 50)] == [1, 2, 4, 30, 30]


def test_a_long_wish_is_handed_on() -> None:
    """A long requested pause becomes an error instead of a wait in a system call."""
    assert Backoff().delay(unavailable(3600), 1, 0.5, 10_000) is None


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (errors.Unavailable("x"), True),
        (errors.Interrupted("x"), True),
        (errors.TimedOut("x"), True),
        (errors.Unreachable("x"), True),
        (errors.Untrusted("x"), False),
        (errors.Forbidden("x"), False),
        (errors.NotLoggedOn("x"), False),
        (errors.BadAnswer("x"), False),
    ],
)
def test_errors_that_are_retried(error: errors.RemoteError, again: bool) -> None:
    """A refused request is not repeated."""
    assert (Backoff().delay(error, 1, 0.5, 100) is not None) is again


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("9" * 500, 999999999.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    """Numbers and dates are parsed, an invalid value is ignored."""
    assert retry_after(value, now=10.0) == seconds


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old form of a date in HTTP names no zone; the zone of this computer does not count."""
    monkeypatch.setenv("TZ", "XST-5")
    time.tzset()
    try:
        assert retry_after("Fri Jan  2 00:00:00 1970", now=0.0) == 86_400
    finally:
        monkeypatch.undo()
        time.tzset()
