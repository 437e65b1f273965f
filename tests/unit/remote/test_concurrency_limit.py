"""Limit of concurrent requests, which grows within its bounds while that increases the
throughput."""

import pytest

from zonedrive.remote.concurrency_limit import START, ConcurrencyLimit


def serve(pace: ConcurrencyLimit, seconds: float, at_once: int, requests: int = 2000) -> None:
    """Simulate a service with a latency of `seconds` and a capacity of `at_once` requests."""
    for _ in range(requests):
        underway = pace.allowed
        pace.answered(seconds * max(1.0, underway / at_once), underway)


def test_the_setting_is_never_exceeded() -> None:
    """A small setting is an upper limit from the start."""
    pace = ConcurrencyLimit(3)
    assert pace.allowed == 3
    serve(pace, 0.02, at_once=1000)
    assert pace.allowed == 3


def test_a_service_that_refuses_gets_half_as_much() -> None:
    """The limit is halved once per overload, then grows in steps."""
    pace = ConcurrencyLimit(32)
    serve(pace, 0.02, at_once=1000)
    for _ in range(10):
        pace.refused()
    assert pace.allowed == 16
    for _ in range(32):  # those that were under way
        pace.answered(0.02, 16)
    pace.refused()
    assert 8 <= pace.allowed <= 10
    for _ in range(20):
        serve(pace, 0.02, at_once=1000, requests=pace.allowed)
        pace.refused()
    assert pace.allowed <= 2
    serve(pace, 0.02, at_once=1000)
    assert pace.allowed == 32


def test_a_service_that_stays_overloaded_gets_ever_less() -> None:
    """Without any success, the limit is halved after each round of rejections, down to one."""
    pace = ConcurrencyLimit(32)
    serve(pace, 0.02, at_once=1000)
    limits = [pace.allowed]
    for _ in range(100):
        pace.refused()
        if pace.allowed != limits[-1]:
            limits.append(pace.allowed)
    assert limits == [32, 16, 8, 4, 2, 1]


def test_answers_to_requests_from_before_an_overload_are_ignored() -> None:
    """They waited in the queue of the overload, so they say nothing about the lower limit."""
    pace = ConcurrencyLimit(64)
    serve(pace, 0.02, at_once=1000)
    pace.refused()
    for _ in range(63):  # that were under way
        pace.answered(2.0, 64)
    assert pace.allowed == 32


def test_the_limit_is_found_within_a_few_rounds() -> None:
    """The limit doubles with each round of answers, even if half made a connection first."""
    pace = ConcurrencyLimit(64)
    answers = 0
    while pace.allowed < pace.most:
        for number in range(pace.allowed):
            pace.answered(0.08 if number % 2 else 0.02, pace.allowed - number % 7)
            answers += 1
    assert answers == 8 + 16 + 32


def test_an_overshoot_does_not_last() -> None:
    """After too much growth, the limit shrinks within a few rounds."""
    pace = ConcurrencyLimit(64)
    serve(pace, 0.02, at_once=1000, requests=8 + 16 + 32)
    serve(pace, 0.02, at_once=20, requests=1000)
    assert pace.allowed <= 40


def test_a_service_that_is_busy_gets_no_more() -> None:
    """If all requests queue, the limit stays at its initial value."""
    pace = ConcurrencyLimit(64)
    pace.answered(0.001, 1)
    serve(pace, 0.001, at_once=1)
    assert pace.allowed == START


@pytest.mark.parametrize("at_once", [12, 16, 20])
def test_a_queue_stays_short(at_once: int) -> None:
    """The limit stays near the number that the service handles at once."""
    pace = ConcurrencyLimit(64)
    pace.answered(0.02, 1)
    serve(pace, 0.02, at_once)
    assert at_once <= pace.allowed <= at_once + 10


def test_few_requests_do_not_change_the_limit() -> None:
    pace = ConcurrencyLimit(64)
    for number in range(1000):
        pace.answered(0.02, 2 + number % 4)
    assert pace.allowed == 8


def test_the_limit_shrinks_if_the_service_slows_down() -> None:
    """The limit shrinks to the service's capacity plus a short queue."""
    pace = ConcurrencyLimit(16)
    serve(pace, 0.02, at_once=1000)
    assert pace.allowed == 16
    serve(pace, 0.02, at_once=2)
    assert pace.allowed <= 10


def test_answers_without_any_delay_raise_the_limit() -> None:
    """A clock may be too coarse to measure the duration of a request."""
    pace = ConcurrencyLimit(16)
    serve(pace, 0.0, at_once=1000)
    assert pace.allowed == 16
