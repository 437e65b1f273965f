"""The instruments of the mounted tests measure right."""

import pytest

from tests.harness.machine import unexpected
from tests.harness.waiting import eventually

CALM = "2026-11-21 14:03:07,120 INFO zonedrive.daemon.serve: mounted\n"
WARNING = "2026-11-21 14:03:08,120 WARNING zonedrive.vfs.core: the service is offline\n"
TRACEBACK = (
    "2026-11-21 14:03:09,120 ERROR zonedrive.fuse.guard: unforeseen\n"
    "Traceback (most recent call last):\n  File ...\nKeyError: 'x'\n"
)


def test_a_log_without_complaints_passes() -> None:
    """Ordinary messages are no reason to fail."""
    assert unexpected(CALM * 3, []) == []
    assert unexpected("", []) == []


def test_warnings_tracebacks_and_foreign_words_are_found() -> None:
    """A warning, an error with its traceback, and what C code wrote before are all told."""
    log = "fuse: something\n" + CALM + WARNING + CALM + TRACEBACK + CALM
    assert unexpected(log, []) == ["fuse: something\n", WARNING, TRACEBACK]


def test_what_a_test_allows_is_left_out() -> None:
    """A test names the warnings that it provokes."""
    assert unexpected(WARNING + TRACEBACK, ["is offline", "KeyError"]) == []


def test_waiting_gives_the_first_true_value() -> None:
    """Looking again ends as soon as there is something to see."""
    values = iter([0, 0, 7])
    assert eventually(lambda: next(values), 5) == 7


def test_waiting_says_what_it_saw_last() -> None:
    """A deadline that passes names what was waited for."""
    with pytest.raises(AssertionError, match=r"the moon \(last seen: \[\]\)"):
        eventually(list, 0.05, what="the moon")
