"""Durations of finished requests by kind, counted in buckets.

INVARIANT: the memory in use is constant, however many requests are counted.
"""

import threading
from bisect import bisect_left
from typing import Any, Final, Literal

Kind = Literal["metadata", "change", "upload", "download"]

KINDS: Final[tuple[Kind, ...]] = ("metadata", "change", "upload", "download")
BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Upper bounds of the buckets in seconds; one further bucket has no upper bound."""


class RequestTimes:
    """Histogram of the durations of each kind of request. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for three additions
        self._buckets = {kind: [0] * (len(BOUNDS) + 1) for kind in KINDS}
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._failed = dict.fromkeys(KINDS, 0)

    def add(self, kind: Kind, seconds: float, *, failed: bool = False) -> None:
        """Record the duration of a finished request; if `failed`, also count it as a failure."""
        bucket = bisect_left(BOUNDS, seconds)
        with self._lock:
            self._buckets[kind][bucket] += 1
            self._seconds[kind] += seconds
            self._failed[kind] += failed

    def json(self) -> dict[str, Any]:
        """Return the bounds of the buckets and the histogram of each kind as a JSON object.

        A histogram has the count of each bucket, the sum of the durations in seconds, and the
        number of failures.
        """
        with self._lock:
            return {
                "bounds": list(BOUNDS),
                "kinds": {
                    kind: {
                        "buckets": list(self._buckets[kind]),
                        "seconds": self._seconds[kind],
                        "failed": self._failed[kind],
                    }
                    for kind in KINDS
                },
            }
