"""Connections that delay, break, refuse and repeat what is sent over them, drawn from a seed.

`SimulatedService` is one client's connection to a `World`. The fate of a request depends on the
seed and the request alone, so a scenario with fewer steps gives the other requests the same fates.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import trio

from tests.harness.fake_service import HOST, FakeService, _Request
from tests.simulation.checker import RecordedWorld
from zonedrive.errors import Interrupted, RemoteError, ReplyLost, TimedOut, Unreachable
from zonedrive.sandbox.errors import ApiError

ResultT = TypeVar("ResultT")
LATE_S = 0.5  # in which the service does the work of a request after its connection broke


@dataclass(frozen=True)
class Weather:
    """State of one connection: seconds of delay, and probabilities for one request."""

    delay_s: float = 0.02
    unsent: float = 0.0  # the connection breaks before the request
    lost: float = 0.0  # the service does the work, and the reply is lost
    late: float = 0.0  # the service does the work after the client has given up
    refused: float = 0.0  # an answer of the statuses below
    statuses: tuple[int, ...] = (500, 502, 503, 504, 429, 408)
    stalled: float = 0.0  # the answer comes after up to `stall_s`
    stall_s: float = 90.0
    down: bool = False
    is_logged_off: bool = False


WEATHERS = {
    "calm": Weather(),
    "slow": Weather(delay_s=3.0),
    "lossy": Weather(delay_s=0.3, unsent=0.1, lost=0.2),
    "losing-replies": Weather(lost=0.5),
    "late": Weather(delay_s=0.5, late=0.3),
    "refusing": Weather(refused=0.4),
    "busy": Weather(refused=0.5, statuses=(429, 503)),
    "stalling": Weather(stalled=0.2),
    "terrible": Weather(delay_s=5.0, unsent=0.2, lost=0.2, late=0.1, refused=0.2, stalled=0.1),
    "down": Weather(down=True),
    "logged-off": Weather(is_logged_off=True),
}


class SimulatedService(FakeService):
    """Connection of one client, whose requests are delayed or fail as the weather says."""

    world: RecordedWorld

    def __init__(
        self,
        world: RecordedWorld,
        user: str,
        profile: str,
        seed: str,
        weather: Callable[[], Weather],
        passed: Callable[[str], None],
        nursery: trio.Nursery,
    ) -> None:
        """Set the sources; `passed` is called at each step of a request, and may raise."""
        super().__init__(world, user, profile)
        self._seed, self._weather, self._passed = seed, weather, passed
        self._times: Counter[str] = Counter()  # by request
        self._beyond = nursery  # of requests that outlive their client
        self.is_dead = False

    async def _carried(self, request: _Request, work: Callable[[], ResultT]) -> ResultT:
        weather, doing = self._weather(), request.doing
        what = f"{request.method} {request.path}"
        self._times[what] += 1
        numbers = random.Random(f"{self._seed} {what} {self._times[what]}")
        await trio.lowlevel.checkpoint()
        self._passed("request")
        if self.transfer.is_ending or self.is_dead:
            raise Interrupted(f"{doing}: zonedrive is ending")
        self.world.requests.append(f"{self.user} {what}")
        if weather.down:
            raise Unreachable(f"{doing}: {HOST} cannot be reached (Connection refused)")
        left = request.seconds
        left = await self._slept(numbers.uniform(0, weather.delay_s), left, request, done=False)
        if weather.is_logged_off:
            raise self._refusal(request, ApiError(401, "NOT_LOGGED_ON", "Log on first"))
        if numbers.random() < weather.unsent:
            raise (
                self._broken(request)
                if request.content
                else Interrupted(f"{doing}: the connection to {HOST} broke (Connection reset)")
            )
        if numbers.random() < weather.refused:
            status = numbers.choice(weather.statuses)
            raise self._refusal(request, ApiError(status, "NOT_AVAILABLE", "Not now"))
        if request.effect and numbers.random() < weather.late:
            after = numbers.uniform(0, LATE_S)
            self._beyond.start_soon(self._later, after, work)
            raise self._broken(request)
        self.world.newest = ""
        try:
            found = work()
        except ApiError as refused:
            error: RemoteError | None = self._refusal(request, refused)
        else:
            error = None
        with self._answering(self.world.newest):
            await self._answer(weather, numbers, left, request)
        if error is not None:
            raise error
        return found

    @contextlib.contextmanager
    def _answering(self, made: str) -> Iterator[None]:
        """Note the token of the version that a request made if its answer is lost."""
        try:
            yield
        except BaseException:
            self.world.unanswered |= {made} - {""}
            raise

    async def _answer(
        self, weather: Weather, numbers: random.Random, left: float, request: _Request
    ) -> None:
        """Carry an answer to the client, or lose it."""
        self._passed("answer")
        delay = numbers.uniform(0, weather.delay_s)
        if numbers.random() < weather.stalled:
            delay += numbers.uniform(0, weather.stall_s)
        await self._slept(delay, left, request, done=True)
        self._passed("reply")
        if numbers.random() < weather.lost:
            raise self._broken(request)

    async def _later(self, seconds: float, work: Callable[[], object]) -> None:
        """Do the work of a request whose client has given up."""
        await trio.sleep(seconds)
        with self.world.late(), contextlib.suppress(ApiError):
            work()

    @staticmethod
    def _broken(request: _Request) -> RemoteError:
        broken = f"{request.doing}: the connection to {HOST} broke before the answer came"
        return ReplyLost(broken) if request.effect else Interrupted(broken)

    @staticmethod
    async def _slept(delay: float, left: float, request: _Request, *, done: bool) -> float:
        """Hold a request back; return the seconds that are left for it."""
        await trio.sleep(min(delay, left))
        if delay >= left:
            slow = f"{request.doing}: {HOST} did not answer in time"
            raise ReplyLost(slow) if request.effect else TimedOut(slow)
        return left - delay
