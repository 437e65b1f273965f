"""Clock that follows the service's time."""

import pytest

from zonedrive.logon.bearer_auth import Clock

NOON = 1_792_584_000 * 10**9  # Wed, 21 Oct 2026 12:00:00 GMT
DATE = "Wed, 21 Oct 2026 12:00:00 GMT"
DAY = 86_400 * 10**9


@pytest.mark.parametrize("wrong_by", [-DAY, 0, DAY, 4 * 10**9])
def test_a_wrong_clock_here_does_not_matter(wrong_by: int) -> None:
    """The dates in answers correct the clock; some seconds do not count."""
    clock = Clock(lambda: NOON + wrong_by)
    clock.heard(DATE)
    assert clock.now_ns() == NOON + (wrong_by if wrong_by == 4 * 10**9 else 0)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Wed, 99 Oct 2026 12:00:00 GMT", "\x00"])
def test_nonsense_tells_no_time(date: str | None) -> None:
    """After an invalid date the former correction stays."""
    clock = Clock(lambda: NOON + DAY)
    clock.heard(DATE)
    clock.heard(date)
    assert clock.now_ns() == NOON
    assert Clock(lambda: 5).now_ns() == 5
