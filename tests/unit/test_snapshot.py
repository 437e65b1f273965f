"""Snapshots: a decision is committed only if the value it is based on is unchanged."""

import pytest

from zonedrive.snapshot import Snapshot, Stale


def test_a_snapshot_is_current_until_the_value_changes() -> None:
    """A change back to an equal value makes it current again."""
    values = {"a": 1}
    snapshot = Snapshot(lambda: values["a"])
    assert (snapshot.value, snapshot.is_current) == (1, True)
    values["a"] = 2
    assert (snapshot.value, snapshot.is_current) == (1, False)
    values["a"] = 1
    assert snapshot.is_current


def test_a_snapshot_of_an_earlier_value_may_be_stale_from_the_start() -> None:
    """A plan is compared with the value that it was made from."""
    now = 2
    assert not Snapshot.of(1, lambda: now).is_current
    with pytest.raises(Stale):
        Snapshot.of(1, lambda: now).require()
    assert Snapshot.of(2, lambda: now).is_current
