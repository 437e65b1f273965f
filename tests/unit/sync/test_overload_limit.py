"""Limit on concurrent steps while the service reports an overload."""

from hypothesis import given
from hypothesis import strategies as st

from zonedrive.remote.retry import LONGEST_RETRY_AFTER
from zonedrive.sync.overload_limit import PAUSE, OverloadLimit


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(most: int = 32, chance: float = 1.0) -> tuple[OverloadLimit, Clock]:
    """Return a limit and its clock."""
    clock = Clock()
    return OverloadLimit(most, clock=clock, chance=lambda: chance), clock


def test_without_a_rejection_nothing_is_limited() -> None:
    """Successes do not raise the limit above its maximum."""
    limit, _ = made()
    for _ in range(5):
        limit.succeeded(limit.now())
    assert (limit.allowed, limit.time_left()) == (32, 0.0)


def test_concurrent_rejections_halve_the_limit_once() -> None:
    """Steps of one burst began before its first rejection; their successes do not raise the
    limit."""
    limit, clock = made()
    began = limit.now()
    clock.now += 1
    for _ in range(20):
        limit.rejected(began, 32, None)
    limit.succeeded(began)
    assert (limit.allowed, limit.rejections) == (16, 1)


def test_the_limit_is_half_of_what_ran() -> None:
    """A service that is too busy for three steps gets one."""
    limit, _ = made()
    limit.rejected(limit.now(), 3, None)
    assert limit.allowed == 1
    limit.rejected(limit.now(), 1, None)
    assert limit.allowed == 1


def test_each_round_of_successes_adds_one_step() -> None:
    """The limit grows again up to its maximum."""
    limit, clock = made(8)
    limit.rejected(limit.now(), 8, None)
    clock.now += 1
    for allowed in (4, 5, 6, 7, 8, 8):
        assert limit.allowed == allowed
        for _ in range(allowed + 1):  # a round, and one for what rounding leaves
            limit.succeeded(limit.now())


def test_pauses_grow_and_begin_again_after_a_success() -> None:
    """Each rejection in a row doubles the pause up to a maximum."""
    limit, clock = made()

    def pause() -> float:
        limit.rejected(limit.now(), 1, None)
        left = limit.time_left()
        clock.now += left
        assert limit.time_left() == 0.0
        return left

    assert [pause() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    limit.succeeded(limit.now())
    assert pause() == 0.5


def test_a_late_answer_of_the_same_burst_can_prolong_the_pause() -> None:
    """The service asks for more time in one of its answers."""
    limit, clock = made()
    began = limit.now()
    clock.now += 1
    limit.rejected(began, 2, None)
    limit.rejected(began, 2, 7.0)
    assert limit.time_left() == 7.0
    limit.rejected(began, 2, 3.0)
    assert limit.time_left() == 7.0


@given(st.floats(0, 1), st.none() | st.floats(0, 1e9), st.integers(1, 20), st.integers(1, 64))
def test_pauses_are_bounded(
    chance: float, retry_after: float | None, times: int, running: int
) -> None:
    """A pause is as long as the service requests, up to LONGEST_RETRY_AFTER."""
    limit, clock = made(chance=chance)
    for _ in range(times):
        limit.rejected(limit.now(), running, retry_after)
        clock.now += 0.001
    assert limit.allowed >= 1
    assert limit.time_left() <= max(LONGEST_RETRY_AFTER, PAUSE.cap)
    assert limit.time_left() >= min(retry_after or 0.0, LONGEST_RETRY_AFTER) - 0.01
