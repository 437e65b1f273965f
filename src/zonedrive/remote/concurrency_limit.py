"""Limit on concurrent requests, adapted to the number that the service handles without queueing.

This module sends no requests; it computes the limit from reported durations and overloads.

The shortest duration so far is taken as the duration without queueing. If many requests run at once
and each takes longer, the difference gives the number of requests that wait for the service or for
the local processor. While this number is small, more concurrent requests increase the throughput.
Therefore, a service with a long round trip gets a higher limit than a nearby service.

At first the limit doubles with each round of responses, until requests wait. The number of waiting
requests is computed from the first quartile of a round's durations, because slower requests may
have waited for a new connection.

If the service becomes slower, the limit is lowered, but not below START. If the service reports an
overload, the limit is halved.

INVARIANT: the limit is at least one, and at most `most`.
"""

START = 8
SHORT_QUEUE = 3.0  # from this number of waiting requests on, the limit is not raised
LONG_QUEUE = 8.0  # the limit is lowered if more requests than this wait
LEFT = 2  # the limit counts as reached if at most LEFT more requests were possible
FEW = 2  # up to this number, concurrent requests do not slow each other down
# While at most FEW requests run, each longer duration raises the recorded shortest duration by
# 1/SETTLING of the difference, so that the limit adapts to a longer round trip.
SETTLING = 8


class ConcurrencyLimit:
    """Adaptive limit on concurrent requests."""

    def __init__(self, most: int) -> None:
        """Start with a limit of START, or of `most` (setting `connections`) if `most` is lower."""
        self.most = most
        self.allowed = min(START, most)
        self._least = float("inf")  # seconds
        self._round: list[float] = []
        self._busiest = 0  # maximum number of requests in progress during the current round
        self._is_new = True  # no request has had to wait yet
        self._spared = 0  # responses to ignore, because their requests precede the last overload

    def refused(self) -> None:
        """Halve the limit, because a request was rejected with an overload status (429, 503).

        The other requests in progress may report the same overload. Therefore the next n - 1
        results are ignored, where n is the old limit.
        """
        self._is_new = False
        if self._spared:
            self._spared -= 1
            return
        self._spared = self.allowed - 1  # without this request
        self.allowed = max(1, self.allowed // 2)
        self._round.clear()
        self._busiest = 0

    def answered(self, seconds: float, underway: int) -> None:
        """Record that a request succeeded after `seconds`; adapt the limit after each round.

        `underway` is the number of requests in progress, including this request. A round ends when
        as many requests have succeeded as the limit allows at once.
        """
        if self._spared:
            self._spared -= 1
            return
        if seconds < self._least:
            self._least = seconds
        elif underway <= FEW:
            self._least += (seconds - self._least) / SETTLING
        self._round.append(seconds)
        self._busiest = max(self._busiest, underway)
        if len(self._round) < self.allowed:
            return
        quick, busiest = sorted(self._round)[len(self._round) // 4], self._busiest
        self._round.clear()
        self._busiest = 0
        if busiest + LEFT < self.allowed:
            return  # the limit was not used
        waiting = self.allowed * (1 - self._least / quick) if quick else 0.0
        self._is_new = self._is_new and waiting < SHORT_QUEUE
        if waiting < SHORT_QUEUE:
            more = self.allowed if self._is_new else max(1, self.allowed // 4)
            self.allowed = min(self.most, self.allowed + more)
        elif waiting > LONG_QUEUE:  # hence the limit is above START
            self.allowed = max(START, self.allowed - max(1, int(waiting) // SETTLING))
