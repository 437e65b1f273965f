"""Rate limit."""

from hypothesis import given
from hypothesis import strategies as st

from zonedrive.remote.transfer import TokenBucket


class Time:
    """Clock that advances by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds


@given(st.integers(1000, 10**9), st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_no_more_than_the_rate_passes(rate: int, amounts: list[int]) -> None:
    """Over any time span at most the rate passes, plus one second's worth at the start."""
    time = Time()
    bucket = TokenBucket(rate, clock=lambda: time.now, sleep=time.sleep)
    for amount in amounts:
        bucket.take(amount)
        assert 4096 <= bucket.piece <= 1 << 20
    assert sum(amounts) <= rate * (time.now + 1) * 1.000001


def test_zero_is_no_limit() -> None:
    TokenBucket(0, sleep=lambda seconds: (_ for _ in ()).throw(AssertionError)).take(1 << 40)


def test_a_cancelled_piece_takes_nothing_from_others() -> None:
    """Many uploads that are cancelled while they wait do not delay the next one."""
    time = Time()
    bucket = TokenBucket(10_000, clock=lambda: time.now, sleep=time.sleep)
    bucket.take(10_000)
    for _ in range(100):
        bucket.take(4096, is_over=lambda: True)
    bucket.take(5000)
    assert time.now <= 0.51
