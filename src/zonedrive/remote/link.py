"""Whether the service can be reached: online, offline or in want of a logon, and who waits for it.

Must not know requests; it is told about answers and failures, also from worker threads.

How failures weigh, until any answer sets the scale back: one that never got a connection, or an
untrusted certificate, is enough for `offline`; of timeouts it takes two in a row; of connections
that broke underway and of 502, 503 and 504 (the service's front is there, the service is not) it
takes five, because one busy moment makes several.  Every other answer, an error or not, shows a
service that is there.  Only a request that was let in ends `logon-required`.

INVARIANT: requests are refused while offline only as long as `run` is probing, so that no
program is locked out for ever.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol

import trio

from zonedrive.errors import (
    Interrupted,
    NotLoggedOn,
    RemoteError,
    ReplyLost,
    TimedOut,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.remote.retry import Backoff

logger = logging.getLogger(__name__)

State = Literal["online", "offline", "logon-required"]
PROBING = Backoff(first=1.0, cap=10.0)
OFFLINE = "look at the network, or run 'zonedrive doctor'; what you write waits here"
ASKED_SECONDS = 2.0  # between two probes at least, when programs ask for what is not there


class Probe(Protocol):
    """Somebody who can ask the service a harmless question."""

    async def probe(self, state: State) -> None:
        """Ask once.  Whatever comes of it goes to the link; nothing is raised."""


class Link:
    """The state of the way to one service; starts hopeful, as `online`."""

    def __init__(
        self,
        *,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`chance` gives the random numbers (0 to 1) of the jitter, `clock` seconds."""
        self._chance = chance
        self._clock = clock
        self._probed = float("-inf")
        self._lock = threading.Lock()
        self._state: State = "online"
        self._strain = 0.0
        self._waiting: list[tuple[trio.lowlevel.TrioToken, trio.Event]] = []
        self._probing = False
        self.last_error: ZonedriveError | None = None
        self.answers = 0  # of the service so far, refusals included

    @property
    def state(self) -> State:
        """What is known now."""
        return self._state

    def note_answer(self) -> None:
        """The service served us.  From any thread."""
        with self._lock:
            self.answers += 1
            self._strain = 0.0
            self._become("online")

    def note_failure(self, error: ZonedriveError) -> None:
        """A request ended in `error`.  From any thread."""
        with self._lock:
            self.answers += isinstance(error, RemoteError) and not isinstance(error, Unreachable)
            if isinstance(error, NotLoggedOn):
                self._strain = 0.0
                self.last_error = error
                self._become("logon-required")
                return
            weight = _weight(error)
            if weight == 0.0:
                self._strain = 0.0
                # A service that cannot serve now may not even have looked at the logon.
                if self._state == "offline" or not isinstance(error, Unavailable):
                    self._become("online")
                return
            self.last_error = error
            self._strain += weight
            if self._strain >= 0.999 and self._state != "offline":
                self._become("offline")

    def check(self) -> None:
        """Raise Unreachable at once where the service is known to be away and is probed for.

        As somebody is asking, the next probe comes soon.
        """
        if self._probing and self._state == "offline":
            if self._clock() - self._probed >= ASKED_SECONDS:
                self.recheck()
            raise Unreachable(self.offline(), remedy=OFFLINE)

    def offline(self) -> str:
        """That it is, and why."""
        wrong = self.last_error
        why = wrong.bare if isinstance(wrong, RemoteError) else wrong
        return f"the service is offline: {why}" if why else "the service is offline"

    async def wait_change(self) -> State:
        """Wait for the next change of the state, or the next `recheck`, and give the state."""
        event = trio.Event()
        with self._lock:
            self._waiting.append((trio.lowlevel.current_trio_token(), event))
        try:
            await event.wait()
        finally:
            with self._lock:
                self._waiting = [pair for pair in self._waiting if pair[1] is not event]
        return self._state

    async def wait_other(self, state: State) -> State:
        """Return as soon as the state is another one than `state`, and give it."""
        while True:
            event = trio.Event()
            with self._lock:
                if self._state != state:
                    break
                pair = (trio.lowlevel.current_trio_token(), event)
                self._waiting.append(pair)
            try:
                await event.wait()
            finally:
                with self._lock:
                    self._waiting = [each for each in self._waiting if each is not pair]
        await trio.lowlevel.checkpoint()
        return self._state

    async def wait_online(self) -> None:
        """Return as soon as the state is `online`."""
        while self._state != "online":
            await self.wait_change()
        await trio.lowlevel.checkpoint()

    def recheck(self) -> None:
        """Probe now rather than at the next turn: the network changed, a person logged on."""
        with self._lock:
            self._wake()

    async def run(self, service: Probe) -> None:
        """Probe while not online, with waits growing from 1 s to 10 s (2 s while programs ask).

        Ends by cancellation.
        """
        self._probing = True
        try:
            failures = 0
            while True:
                if await self._is_online():
                    failures = 0
                    await self.wait_change()
                    continue
                failures += 1
                with trio.move_on_after(PROBING.ceiling(failures) * self._chance()):
                    await self.wait_change()
                if not await self._is_online():
                    self._probed = self._clock()
                    await service.probe(self._state)
                    self._probed = self._clock()
        finally:
            self._probing = False

    async def _is_online(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self._state == "online"

    def _become(self, state: State) -> None:
        if state == self._state:
            return
        reason = self.last_error if state != "online" else "it answers"
        logger.info("the service is %s, was %s: %s", state, self._state, reason)
        self._state = state
        if state == "online":
            self.last_error = None
        self._wake()

    def _wake(self) -> None:
        for token, event in self._waiting:
            try:
                token.run_sync_soon(event.set)
            except trio.RunFinishedError:
                continue
        self._waiting.clear()


def _weight(error: ZonedriveError) -> float:
    """How much of an `offline` one failure is."""
    if isinstance(error, Interrupted | ReplyLost):
        return 0.2
    if isinstance(error, Unavailable):
        return 0.2 if error.status in (502, 503, 504) else 0.0
    if isinstance(error, TimedOut):
        return 0.5
    if isinstance(error, Unreachable):
        return 1.0
    return 0.0 if isinstance(error, RemoteError) else 0.2
