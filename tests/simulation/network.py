"""Connections that delay, break, refuse and repeat what is sent over them, drawn from a seed.

`Line` is one client's line to the service, `SimulatedService` a client of the service in memory on
such a line. The fate of a request depends on the seed and the request alone, so a scenario with
fewer steps gives the other requests the same fates.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from tests.harness.fake_service import HOST, FakeService, _Request
from tests.simulation.checker import RecordedWorld
from zonedrive.errors import BadAnswer, Interrupted, RemoteError, ReplyLost, TimedOut, Unreachable
from zonedrive.remote.wire import error_mapping
from zonedrive.sandbox.errors import ApiError

ResultT = TypeVar("ResultT")
LATE_S = 0.5  # in which the service does the work of a request after its connection broke
RECORDING_S = 0.1  # in which a client records an answer


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
    paged: float = 0.0  # an HTML page of a gateway, with one of the statuses below
    page_statuses: tuple[int, ...] = (404,)
    down: bool = False
    is_logged_off: bool = False


PAGES = {
    "unrouted": Weather(paged=1.0),
    "misrouted": Weather(paged=0.6, page_statuses=(404, 404, 403, 200)),
    "blocked": Weather(paged=1.0, page_statuses=(403, 403, 405, 200)),
}
"""Weathers in which a gateway answers instead of the service."""
PAGE = b"<html><body>Down for maintenance</body></html>"
ORDINARY = {
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
WEATHERS = ORDINARY | PAGES


class Sending(Protocol):
    """A request, and the errors that its client gets, in the terms of that client."""

    what: str  # method and path
    effect: bool  # it changes something
    seconds: float  # for which the client waits for the answer

    def ended(self) -> Exception:
        """Return the error of a client that is ending."""

    def unreachable(self) -> Exception:
        """Return the error of a refused connection."""

    def unsent(self) -> Exception:
        """Return the error of a connection that broke before the service had the request."""

    def broken(self) -> Exception:
        """Return the error of a connection that broke before the answer arrived."""

    def slow(self) -> Exception:
        """Return the error of an answer that did not come in time."""

    def refused(self, error: ApiError) -> Exception:
        """Return the error of a request that the service or a gateway rejects."""

    def answered_by_page(self, status: int) -> Exception:
        """Return the error of a page with this status."""


@dataclass
class Passage:
    """Fate of a request that reaches the service."""

    weather: Weather
    numbers: random.Random
    left: float  # seconds until the client gives up
    late_s: float | None = None  # the client has given up, and the work is done after this time


class Line:
    """Line of one client to the service; draws the fate of each request, and spends its time."""

    def __init__(
        self,
        world: RecordedWorld,
        user: str,
        seed: str,
        weather: Callable[[], Weather],
        passed: Callable[[str], None],
        nursery: trio.Nursery,
    ) -> None:
        """Set the sources; `passed` is called at each step of a request, and may raise."""
        self.world, self.user, self.seed = world, user, seed
        self.weather, self._passed = weather, passed
        self._times: Counter[str] = Counter()  # by request
        self._beyond = nursery  # of requests that outlive their client
        self.is_dead = False
        self._made, self._answered_s = "", 0.0  # token of the version answered last, and when

    def die(self) -> None:
        """End with the machine, which may not have recorded the last answer yet."""
        self.is_dead = True
        if self._made and trio.current_time() < self._answered_s + RECORDING_S:
            self.world.unanswered.add(self._made)

    async def sent(self, request: Sending, *, is_ending: bool = False) -> Passage:
        """Carry a request to the service. Raises the errors of the request."""
        try:
            return await self._passage(request, is_ending=is_ending)
        except BaseException:
            if not self.weather().down:  # then the client knows that no version is unreadable
                self.world.note_failure(request.what)
            raise

    async def _passage(self, request: Sending, *, is_ending: bool) -> Passage:
        weather, what = self.weather(), request.what
        self._times[what] += 1
        numbers = random.Random(f"{self.seed} {what} {self._times[what]}")
        await trio.lowlevel.checkpoint()
        self._passed("request")
        if is_ending or self.is_dead:
            raise request.ended()
        self.world.requests.append(f"{self.user} {what}")
        if weather.down:
            raise request.unreachable()
        delay = numbers.uniform(0, weather.delay_s)
        left = await self._slept(delay, request.seconds, request)
        if weather.is_logged_off:
            raise request.refused(ApiError(401, "NOT_LOGGED_ON", "Log on first"))
        if weather.paged and numbers.random() < weather.paged:
            raise request.answered_by_page(numbers.choice(weather.page_statuses))
        if numbers.random() < weather.unsent:
            raise request.unsent()
        if numbers.random() < weather.refused:
            status = numbers.choice(weather.statuses)
            raise request.refused(ApiError(status, "NOT_AVAILABLE", "Not now"))
        is_late = request.effect and numbers.random() < weather.late
        late_s = numbers.uniform(0, LATE_S) if is_late else None
        return Passage(weather, numbers, left, late_s)

    def do_late(self, passage: Passage, work: Callable[[], object]) -> None:
        """Let the service do the work of a request whose client has given up."""
        assert passage.late_s is not None
        self._beyond.start_soon(self._later, passage.late_s, work)

    async def _later(self, seconds: float, work: Callable[[], object]) -> None:
        await trio.sleep(seconds)
        with self.world.late(), contextlib.suppress(ApiError):
            work()

    async def answered(self, passage: Passage, request: Sending, made: str) -> None:
        """Carry an answer to the client, or lose it; `made` is the token of the new version."""
        made_s = trio.current_time()
        try:
            await self._answer(passage, request)
        except BaseException:
            self.world.unanswered |= {made} - {""}
            self.world.note_failure(request.what)
            raise
        self.world.note_answer(request.what, made_s)
        if made:
            self._made = made
            self._answered_s = self.world.answered_s[made] = trio.current_time()

    async def _answer(self, passage: Passage, request: Sending) -> None:
        weather, numbers = passage.weather, passage.numbers
        self._passed("answer")
        delay = numbers.uniform(0, weather.delay_s)
        if numbers.random() < weather.stalled:
            delay += numbers.uniform(0, weather.stall_s)
        await self._slept(delay, passage.left, request)
        self._passed("reply")
        if numbers.random() < weather.lost:
            raise request.broken()

    @staticmethod
    async def _slept(delay: float, left: float, request: Sending) -> float:
        """Hold a request back; return the seconds that are left for it."""
        await trio.sleep(min(delay, left))
        if delay >= left:
            raise request.slow()
        return left - delay


class _Sent(Sending):
    """Request of a SimulatedService."""

    def __init__(self, request: _Request) -> None:
        self.what = f"{request.method} {request.path}"
        self.effect, self.seconds = request.effect, request.seconds
        self._request, self._doing = request, request.doing

    def ended(self) -> RemoteError:
        return Interrupted(f"{self._doing}: zonedrive is ending")

    def unreachable(self) -> RemoteError:
        return Unreachable(f"{self._doing}: {HOST} cannot be reached (Connection refused)")

    def unsent(self) -> RemoteError:
        if self._request.content:
            return self.broken()
        return Interrupted(f"{self._doing}: the connection to {HOST} broke (Connection reset)")

    def broken(self) -> RemoteError:
        broken = f"{self._doing}: the connection to {HOST} broke before the answer arrived"
        return ReplyLost(broken) if self.effect else Interrupted(broken)

    def slow(self) -> RemoteError:
        slow = f"{self._doing}: {HOST} did not answer in time"
        return ReplyLost(slow) if self.effect else TimedOut(slow)

    def refused(self, error: ApiError) -> RemoteError:
        return FakeService._refusal(self._request, error)

    def answered_by_page(self, status: int) -> RemoteError:
        if status == 200 and self.effect and not self._request.content:
            return error_mapping.page_for_change(status, self._doing)
        if status == 200:
            return BadAnswer(f"{self._doing}: the answer is no JSON")
        return FakeService._failed(self._request, status, PAGE)


class SimulatedService(FakeService):
    """Connection of one client to a service in memory."""

    def __init__(self, line: Line, profile: str) -> None:
        super().__init__(line.world, line.user, profile)
        self.line = line

    async def _carried(self, request: _Request, work: Callable[[], ResultT]) -> ResultT:
        line, world, sending = self.line, self.line.world, _Sent(request)
        passage = await line.sent(sending, is_ending=self.transfer.is_ending)
        if passage.late_s is not None:
            line.do_late(passage, work)
            raise sending.broken()
        world.newest = ""
        try:
            found = work()
        except ApiError as refused:
            error: RemoteError | None = sending.refused(refused)
        else:
            error = None
        await line.answered(passage, sending, world.newest)
        if error is not None:
            raise error
        return found
