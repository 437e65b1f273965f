"""How often the kernel holds each inode, counted one by one and many at once."""

import random
from collections import Counter

from zonedrive.state.lookup_counts import LookupCounts

FOLDER = list(range(1000, 3100))  # several pages of counts


def test_many_at_once_count_as_one_by_one() -> None:
    """In the order of their numbers or another one, with gaps, and from any number on."""
    chance, lookups, expected = random.Random(3), LookupCounts(), Counter[int]()
    lookups.add_all([])
    for _ in range(200):
        first = chance.randrange(len(FOLDER))
        inos = FOLDER[first : first + chance.randrange(1500)]
        if chance.random() < 0.3:
            inos = chance.sample(inos, len(inos) // 2)
        lookups.add_all(inos)
        expected.update(inos)
        for ino in chance.sample(FOLDER, 50):
            if expected[ino]:
                taken = chance.randint(1, expected[ino])
                expected[ino] -= taken
                assert lookups.take(ino, taken) == (expected[ino] == 0)
    assert {ino for ino in range(4200) if ino in lookups} == set(+expected)
    for ino, count in expected.items():
        assert ino not in lookups or not lookups.take(ino, count - 1) or count == 1
        assert lookups.take(ino, 1)
        assert ino not in lookups
    assert not lookups._pages
    assert not lookups._held
