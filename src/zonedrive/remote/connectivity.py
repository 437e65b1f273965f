"""Reachability of the service (online, offline or logon-required), with methods to await changes.

This module sends no requests. Other modules report the results of their requests to `Connectivity`,
also from worker threads.

Each failure has a weight; when the sum of the weights reaches 1, the state becomes `offline`. Any
response from the service resets the sum. One failure to connect, one untrusted certificate, or two
timeouts in a row are enough. Broken connections and the statuses 502, 503 and 504 (the gateway
answers, the service does not) must occur five times in a row. Such a status counts only if its
request began SPACING seconds after the last counted status, because one short overload can make
many concurrent requests fail.
Uploads that are rejected because of overload are not reported, because a busy service still answers
other requests. EndpointRefused is not reported, but the following check of the logon is reported.
Every other response, even an error, shows that the service is reachable. The state `logon-required`
ends when the service accepts the bearer token of a request, or when the state becomes `offline`.

INVARIANT: requests are refused only while the service is offline and `run` is probing it. Without
probes, requests would be refused forever.
"""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

import trio

from zonedrive.errors import (
    EndpointRefused,
    Interrupted,
    NotLoggedOn,
    RemoteError,
    ReplyLost,
    TimedOut,
    Unavailable,
    Unreachable,
)
from zonedrive.remote.request_times import Kind, RequestTimes
from zonedrive.remote.retry import Backoff

logger = logging.getLogger(__name__)

State = Literal["online", "offline", "logon-required"]
PROBING = Backoff(first=1.0, cap=10.0)
OFFLINE = "check the network, or run 'zonedrive doctor'; your changes are kept on this computer"
SPACING = 0.2  # minimum number of seconds between two counted gateway statuses
ASKED_SECONDS = 2.0  # minimum interval of probes that refused requests trigger


class Connectivity:
    """State of the connection to one service; initially `online`."""

    def __init__(
        self,
        *,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start in the state `online`, with the given sources of random numbers and time.

        `chance` returns a random number from 0 to 1 for the pause between probes. `clock` returns
        the monotonic time in seconds.
        """
        self._chance = chance
        self._clock = clock
        self._probed = float("-inf")
        self._lock = threading.Lock()
        self._state: State = "online"
        self._strain = 0.0
        self._strained_at = float("-inf")  # time of the last gateway status that counted
        self._waiting: list[tuple[trio.lowlevel.TrioToken, trio.Event]] = []
        self._probing = False
        self.last_error: RemoteError | None = None
        self.answers = 0  # number of responses from the service so far, including rejections
        self.times = RequestTimes()

    @property
    def reason(self) -> str:
        """Cause of the last failure, without the operation and the remedy; "" if there is none."""
        return "" if self.last_error is None else self.last_error.bare

    @property
    def remedy(self) -> str:
        """Remedy for the last failure, "" if there is none."""
        return "" if self.last_error is None else self.last_error.remedy

    @property
    def state(self) -> State:
        """Current state: online, offline or logon-required."""
        return self._state

    def note_answer(self) -> None:
        """Record a successful response, and set the state to `online`. Thread-safe."""
        with self._lock:
            self.answers += 1
            self._strain = 0.0
            self._become("online")

    @contextlib.contextmanager
    def reported(self, kind: Kind, *, is_of_other_logon: bool = False) -> Iterator[None]:
        """Record the result and duration of the request in the `with` block. Thread-safe.

        Errors raised in the block are re-raised. `is_of_other_logon` means that the request has no
        bearer token or contains a password. NotLoggedOn then does not change the state, because it
        does not show that the token of the other requests is invalid.
        """
        began = self._clock()
        try:
            yield
        except RemoteError as error:
            is_overload = isinstance(error, Unavailable) and error.is_overload
            if not (
                isinstance(error, EndpointRefused)
                or (kind == "upload" and is_overload)
                or (is_of_other_logon and isinstance(error, NotLoggedOn))
            ):
                self.note_failure(error, began)
            self.times.add(kind, self._clock() - began, failed=True)
            raise
        self.note_answer()
        self.times.add(kind, self._clock() - began)

    def note_failure(self, error: RemoteError, began: float = float("inf")) -> None:
        """Record that a request failed with `error`, and update the state. Thread-safe.

        `began` is the time on `clock` when the request began. If `began` is omitted, a gateway
        status (502, 503 or 504) always counts.
        """
        with self._lock:
            self.answers += not isinstance(error, Unreachable)
            if isinstance(error, NotLoggedOn):
                self._strain = 0.0
                self.last_error = error
                self._become("logon-required")
                return
            if isinstance(error, Unavailable):
                weight = 0.2 if error.status in (502, 503, 504) else 0.0
            else:
                weight = next(each for kind, each in _WEIGHTS if isinstance(error, kind))
            if weight == 0.0:
                self._strain = 0.0
                # An unavailable service may not have checked the logon.
                if self._state == "offline" or not isinstance(error, Unavailable):
                    self._become("online")
                return
            self.last_error = error
            if error.status:
                if began < self._strained_at + SPACING:
                    return
                self._strained_at = self._clock()
            self._strain += weight
            if self._strain >= 0.999 and self._state != "offline":
                self._become("offline")

    def check(self) -> None:
        """Raise Unreachable at once if the service is offline and `run` is probing it.

        A call that raises also triggers a probe, unless the last probe was less than ASKED_SECONDS
        seconds ago.
        """
        if self._probing and self._state == "offline":
            if self._clock() - self._probed >= ASKED_SECONDS:
                self.recheck()
            why = f": {self.reason}" if self.reason else ""
            raise Unreachable(f"the service is offline{why}", remedy=OFFLINE)

    async def wait_change(self) -> State:
        """Wait for the next change of state or the next call to `recheck`; return the state."""
        await self._wait(lambda: False)
        return self._state

    async def wait_other(self, state: State) -> State:
        """Wait until the state differs from `state`, and return the new state."""
        while self._state == state:
            await self._wait(lambda: self._state != state)
        await trio.lowlevel.checkpoint()
        return self._state

    async def wait_online(self) -> None:
        """Wait until the state is `online`."""
        while self._state != "online":
            await self._wait(lambda: self._state == "online")
        await trio.lowlevel.checkpoint()

    async def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for the next change of state or call to `recheck`, unless `is_over()` is true."""
        waiting = trio.lowlevel.current_trio_token(), trio.Event()
        with self._lock:
            if is_over():
                return
            self._waiting.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._waiting.remove(waiting)

    def recheck(self) -> None:
        """Make `wait_change` return and, unless the state is `online`, make `run` probe at once.

        Call this after a change of network, a suspend or a logon.
        """
        with self._lock:
            self._wake()

    async def run(self, probe: Callable[[State], Awaitable[None]]) -> None:
        """Probe the service while it is not online, until cancelled.

        `probe` must send one harmless request, report the result to this object, and raise no
        error. The pause between two probes is random, and its upper bound grows from 1 s to 10 s.
        A request that `check` refuses ends the pause, unless the last probe was less than
        ASKED_SECONDS seconds ago.
        """
        self._probing = True
        try:
            failures = 0
            while True:
                if await self._is_online():
                    failures = 0
                    await self.wait_other("online")
                    continue
                failures += 1
                with trio.move_on_after(PROBING.ceiling(failures) * self._chance()):
                    await self.wait_change()
                if not await self._is_online():
                    self._probed = self._clock()
                    await probe(self._state)
                    self._probed = self._clock()
        finally:
            self._probing = False

    async def _is_online(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self._state == "online"

    def _become(self, state: State) -> None:
        if state == self._state:
            return
        wrong, reason = self.last_error, "it answers"
        if state != "online" and wrong is not None:
            reason = "; ".join(filter(None, (wrong.logged, wrong.remedy)))
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


_WEIGHTS: tuple[tuple[type[RemoteError], float], ...] = (
    (Interrupted, 0.2),
    (ReplyLost, 0.2),
    (TimedOut, 0.5),
    (Unreachable, 1.0),
    (RemoteError, 0.0),
)
"""Weight of a failure of each type; the first matching row counts. A sum of 1 means `offline`."""
