"""Data types of the service."""

import pytest

from zonedrive.model import Revision, differ_in_precision

FINE = 1_780_000_000_123_456_789


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (f"{FINE}|3|alice", f"{FINE}|3|alice", False),  # equal
        (f"{FINE}|3|alice", "1780000000123456000|3|alice", True),
        (f"{FINE}|3|alice", "1780000000123457000|3|alice", True),  # rounded
        (f"{FINE}|3|alice", "1780000000123000000|3|alice", True),
        (f"{FINE}|3|alice", "1780000000000000000|3|alice", True),
        (f"{FINE}|3|a|b", "1780000000000000000|3|a|b", True),
        (f"{FINE}|3|alice", "1780000001000000000|3|alice", True),
        (f"{FINE}|3|alice", "1780000002000000000|3|alice", False),
        (f"{FINE}|3|alice", f"{FINE + 1}|3|alice", False),  # the same precision
        ("1780000000000000000|3|alice", "1780000001000000000|3|alice", False),
        (f"{FINE}|3|alice", "1780000000000000000|4|alice", False),
        (f"{FINE}|3|alice", "1780000000000000000|3|bob", False),
        (f"{FINE}|3|alice", "0|3|alice", False),
        (f"{FINE}|3|alice", "yesterday|3|alice", False),
        (f"{FINE}|3|alice", "", False),
    ],
)
def test_revisions_that_differ_only_in_the_precision_of_the_time(
    one: str, other: str, expected: bool
) -> None:
    """The times are the same in the coarser unit, rounded up or down; nothing else differs."""
    assert differ_in_precision(Revision(one), Revision(other)) is expected
    assert differ_in_precision(Revision(other), Revision(one)) is expected
