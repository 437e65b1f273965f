"""How many requests are under way at once: as many as the service gets through without queueing.

Must not know requests; pure arithmetic on how long they took.

A request that is answered in the shortest time seen never waited in a queue.  Where many are under
way and each takes longer, the surplus is the part of them that waits: at the service, or for our
own processor.  While that part is small, more requests at once bring more; a long way to the
service so gets more of them, a short one does not.

At first their number is doubled with each round of answers, until requests wait.  A quarter of the
answers decides, the fastest: others may have waited for a new connection.

A service that becomes slower gets fewer, down to START; one that says that it has too much to do
gets half as many.

INVARIANT: at least one, and no more than `most`.
"""

START = 8
SHORT_QUEUE = 3.0  # requests that may wait before no more are added
LONG_QUEUE = 8.0  # from here on there are too many
LEFT = 2  # places that may be free while as many are under way as are allowed
FEW = 2  # requests under way that cannot be in each other's way
SETTLING = 8  # of so many of these the shortest time follows a way that became longer


class Pace:
    """A number that follows the service."""

    def __init__(self, most: int) -> None:
        """`most`: the setting `connections`."""
        self.most = most
        self.allowed = min(START, most)
        self._least = float("inf")  # seconds
        self._round: list[float] = []
        self._busiest = 0  # most under way at the end of an answer of the round
        self._is_new = True  # requests never had to wait so far
        self._spared = 0  # answers to come that say nothing more: they were asked for before

    def refused(self) -> None:
        """Note that the service had too much to do for a request (429, 503)."""
        self._is_new = False
        if not self._spared:
            self._spared = self.allowed
            self.allowed = max(1, self.allowed // 2)
            self._round.clear()
            self._busiest = 0

    def answered(self, seconds: float, underway: int) -> None:
        """A request was answered in that time, with so many under way, itself included."""
        self._spared = max(0, self._spared - 1)
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
            return  # nobody asks for more
        waiting = self.allowed * (1 - self._least / quick)
        self._is_new = self._is_new and waiting < SHORT_QUEUE
        if waiting < SHORT_QUEUE:
            more = self.allowed if self._is_new else max(1, self.allowed // 4)
            self.allowed = min(self.most, self.allowed + more)
        elif waiting > LONG_QUEUE:  # so there are more than START
            self.allowed = max(START, self.allowed - max(1, int(waiting) // SETTLING))
