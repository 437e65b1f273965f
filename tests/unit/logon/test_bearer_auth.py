"""Bearer token or session in each request."""

import itertools
import threading
from collections.abc import Callable

import httpx
import pytest
from trio.testing import MockClock

from tests.harness.transports import BlockingHandler, LoopHandler
from zonedrive.errors import (
    CredentialsRefused,
    Forbidden,
    NotLoggedOn,
    StoreError,
    TimedOut,
)
from zonedrive.logon.bearer_auth import AGAIN_SECONDS, Bearer, BearerAuth, load_bearer, save_bearer
from zonedrive.logon.secrets import Kind, Secret
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.requests import Requests
from zonedrive.remote.transfer import Transfer
from zonedrive.remote.transport.exchange import SENT
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import LoopTransport
from zonedrive.remote.urls import Request


class Memory:
    """Store that counts its reads."""

    kind: Kind = "file"

    def __init__(self, **kept: str) -> None:
        self.kept = {name: Secret(text) for name, text in kept.items()}
        self.reads = 0
        self.fail: StoreError | None = None

    def get(self, name: str) -> Secret | None:
        """Return a secret."""
        self.reads += 1
        if self.fail:
            raise self.fail
        return self.kept.get(name)

    def set(self, name: str, value: Secret) -> None:
        """Store a secret."""
        self.kept[name] = value

    def delete(self, name: str) -> None:
        """Delete a secret."""
        self.kept.pop(name, None)


class PickyService(httpx.MockTransport):
    """Service that accepts only some bearers, and records all received ones."""

    def __init__(self, *good: str, on_refusal: Callable[[], None] = lambda: None) -> None:
        super().__init__(self._answer)
        self._good, self._on_refusal = good, on_refusal
        self.seen: list[str] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        word, _, bearer = request.headers["Authorization"].partition(" ")
        assert word == "Bearer"
        self.seen.append(bearer)
        if self.seen[-1] in self._good:
            return httpx.Response(200)
        self._on_refusal()
        return httpx.Response(401)


def get(store: Memory, transport: PickyService, times: int = 1) -> int:
    """Return the status for a client of the worker threads."""
    with httpx.Client(transport=transport, auth=BearerAuth(store)) as client:
        return [client.get("https://zones.example/").status_code for _ in range(times)][-1]


async def aget(store: Memory, transport: PickyService) -> int:
    """Return the status for a client on the loop."""
    async with httpx.AsyncClient(transport=transport, auth=BearerAuth(store)) as client:
        return (await client.get("https://zones.example/")).status_code


async def both(store: Memory, transport: PickyService) -> tuple[int, int]:
    """Return the statuses for one request of either kind of client."""
    return get(store, transport), await aget(store, transport)


async def test_the_stored_bearer_is_sent() -> None:
    """The header is `Authorization: Bearer`."""
    store = Memory()
    save_bearer(store, Bearer("good", "token", 5, "id"))
    assert await both(store, PickyService("good")) == (200, 200)
    assert load_bearer(store) == Bearer("good", "token", 5, "id")


def test_the_store_is_read_once() -> None:
    """The keyring is not read for every request."""
    store = Memory(bearer="good")
    assert get(store, PickyService("good"), times=5) == 200
    assert store.reads == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_logon_elsewhere_is_picked_up(asynchronous: bool) -> None:
    """After a 401 the store is read again, and the request is repeated once."""
    store = Memory(bearer="old")

    def log_on() -> None:
        store.set("bearer", Secret("new"))

    transport = PickyService("new", on_refusal=log_on)
    found = await aget(store, transport) if asynchronous else get(store, transport)
    assert found == 200
    assert transport.seen == ["old", "new"]


def test_a_body_that_is_gone_is_not_repeated() -> None:
    """A request without a repeatable body fails, but the next one has the new bearer."""
    store = Memory(bearer="old")
    transport = PickyService("new", on_refusal=lambda: store.set("bearer", Secret("new")))
    with httpx.Client(transport=transport, auth=BearerAuth(store)) as client:
        answer = client.post("https://zones.example/", extensions={"replayable": False})
        assert answer.status_code == 401
        assert client.post("https://zones.example/").status_code == 200


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_password_in_a_request_goes_out_once(asynchronous: bool) -> None:
    """A 401 then concerns the password: no other bearer is read, and this one stays in use."""
    store = Memory(bearer="good")
    transport = PickyService(on_refusal=lambda: store.set("bearer", Secret("new")))
    auth = BearerAuth(store, lambda _refused: pytest.fail("renewed"))
    request = httpx.Request("POST", "https://zones.example/", extensions={"password": True})
    for _ in range(2):
        if asynchronous:
            async with httpx.AsyncClient(transport=transport, auth=auth) as loop:
                assert (await loop.send(request)).status_code == 401
        else:
            with httpx.Client(transport=transport, auth=auth) as client:
                assert client.send(request).status_code == 401  # noqa: ASYNC212
    assert transport.seen == ["good", "good"]


@pytest.mark.parametrize(
    "store",
    [Memory(), Memory(bearer=""), Memory(bearer="{}"), Memory(bearer='{"secret":"a b","kind":1}'),
     Memory(bearer="hunter2\x00"), Memory(bearer='{"secret":"h\u00fcnter2","kind":"token"}')],
)  # fmt: skip
async def test_without_a_usable_bearer_nothing_is_sent(store: Memory) -> None:
    """The error message does not contain the bearer."""
    transport = PickyService("hunter2")
    with pytest.raises(NotLoggedOn) as refused:
        await both(store, transport)
    assert "unter2" not in refused.value.line()
    assert transport.seen == []


async def test_a_locked_keyring_is_a_logon_that_is_needed() -> None:
    """The mount continues offline until the keyring is unlocked."""
    store = Memory(bearer="good")
    store.fail = StoreError("the keyring does not answer", remedy="unlock it")
    with pytest.raises(NotLoggedOn, match="keyring"):
        await both(store, PickyService("good"))
    store.fail = None
    assert await both(store, PickyService("good")) == (200, 200)


def test_a_bearer_does_not_show_itself() -> None:
    """repr shows only kind and expiry."""
    assert "hunter2" not in repr(Bearer("hunter2", "token", 1, "id"))
    assert Bearer("x", "token", 0).until == ""
    assert Bearer("x", "token", 2**63 - 1).until == "2262-04-11 23:47 UTC"


class Times:
    """Clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ask(auth: BearerAuth, transport: PickyService) -> int:
    """Return the status for a client of the worker threads; 0: refused before it was sent."""
    with httpx.Client(transport=transport, auth=auth) as client:
        try:
            return client.get("https://zones.example/").status_code
        except NotLoggedOn:
            return 0


def test_a_refused_bearer_is_shown_ever_more_rarely() -> None:
    """Neither requests of programs nor status queries send a refused bearer each time."""
    times, transport = Times(), PickyService()
    auth = BearerAuth(Memory(bearer="old"), monotonic=times)
    shown = []
    for second in range(4000):
        if ask(auth, transport):
            shown.append(second)
        times.now += 1
    assert len(transport.seen) == len(shown)
    assert shown == [0, 5, 15, 35, 75, 155, 315, 635, 1275, 2175, 3075, 3975]


def test_a_temporary_rejection_of_a_bearer() -> None:
    """A bearer that is accepted again is used as before."""
    times, transport = Times(), PickyService()
    auth = BearerAuth(Memory(bearer="good"), monotonic=times)
    assert ask(auth, transport) == 401
    good = PickyService("good")
    assert ask(auth, good) == 0
    times.now += 6
    assert [ask(auth, good) for _ in range(3)] == [200] * 3
    assert ask(auth, transport) == 401
    times.now += 6
    assert ask(auth, good) == 200  # the wait has not grown


@pytest.mark.parametrize("reason", ["the password is wrong", "the keyring is locked"])
def test_a_temporary_rejection_of_a_bearer_that_cannot_be_replaced(reason: str) -> None:
    """Otherwise the mount stays offline, although its token is valid again."""
    times, store, good = Times(), Memory(bearer="good"), PickyService("good")

    def renew(_refused: Bearer | None) -> Bearer:
        raise CredentialsRefused(reason)

    auth = BearerAuth(store, renew, times)
    auth.find()
    if reason == "the keyring is locked":
        store.fail = StoreError(reason)
    assert ask(auth, PickyService()) == ask(auth, good) == 0
    times.now += 6
    assert ask(auth, PickyService()) == 0
    times.now += 6
    assert ask(auth, good) == 0  # the wait has grown
    times.now += 5
    assert ask(auth, good) == 200


def test_each_request_reports_a_locked_keyring() -> None:
    """The daemon does not prompt the user, who would see only that the logon has ended."""
    store = Memory(bearer="old")
    auth = BearerAuth(store)
    auth.find()
    store.fail = StoreError("the keyring is locked", remedy="unlock it and try again")
    for _ in range(3):
        with (
            httpx.Client(transport=PickyService(), auth=auth) as client,
            pytest.raises(NotLoggedOn, match="the keyring is locked"),
        ):
            client.get("https://zones.example/")


def test_a_logon_that_uses_another_store_is_picked_up() -> None:
    """A file with secrets was moved away, as its error says, and the next logon uses a keyring."""
    times, store, later = Times(), Memory(bearer="old"), Memory(bearer="new")
    auth, transport = BearerAuth(store, monotonic=times, reopen=lambda: later), PickyService("new")
    assert ask(auth, transport) == 401
    store.delete("bearer")
    auth.look_again()
    assert ask(auth, transport) == 200
    assert transport.seen == ["old", "new"]


def test_a_store_that_cannot_be_read_is_opened_again() -> None:
    """A keyring that did not answer when it was opened would be unusable until the next mount."""
    times, store, later = Times(), Memory(bearer="new"), Memory(bearer="new")
    store.fail = StoreError("the keyring does not answer")
    auth, transport = BearerAuth(store, monotonic=times, reopen=lambda: later), PickyService("new")
    assert ask(auth, transport) == 200


def test_a_logon_is_picked_up_at_once() -> None:
    """A new bearer is used at once, however long the refused one would still wait."""
    times, store = Times(), Memory(bearer="old")
    auth, transport = BearerAuth(store, monotonic=times), PickyService("new")
    assert [ask(auth, transport) for _ in range(3)] == [401, 0, 0]
    store.set("bearer", Secret("new"))
    auth.look_again()
    assert ask(auth, transport) == 200
    assert transport.seen == ["old", "new"]


def test_while_nothing_is_accepted_the_store_is_left_alone() -> None:
    """The keyring is not read for each request."""
    times, store = Times(), Memory(bearer="old")
    auth = BearerAuth(store, monotonic=times)
    for _ in range(50):
        ask(auth, PickyService())
    assert store.reads <= 3


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_refused_bearer_is_renewed_and_the_request_repeated_once(
    asynchronous: bool,
) -> None:
    """The request is repeated once, even if the new bearer is refused, too."""
    for accepted in ("new", "none"):
        asked: list[Bearer | None] = []

        def renew(refused: Bearer | None, asked: list[Bearer | None] = asked) -> Bearer:
            asked.append(refused)
            return Bearer("new", "session")

        transport = PickyService(accepted)
        auth = BearerAuth(Memory(bearer="old"), renew)
        if asynchronous:
            async with httpx.AsyncClient(transport=transport, auth=auth) as client:
                status = (await client.get("https://zones.example/")).status_code
        else:
            status = ask(auth, transport)
        assert status == (200 if accepted == "new" else 401)
        assert transport.seen == ["old", "new"]
        assert [each.secret for each in asked if each] == ["old"]


def test_many_requests_renew_once() -> None:
    """Requests that are refused at the same time share one renewal."""
    store, calls = Memory(bearer="old"), []
    barrier = threading.Barrier(8, timeout=60)

    def renew(refused: Bearer | None) -> Bearer:
        calls.append(refused)
        save_bearer(store, Bearer("new", "session"))
        return Bearer("new", "session")

    def together() -> None:
        barrier.wait()

    auth = BearerAuth(store, renew)
    transport = PickyService("new", on_refusal=together)
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(ask(auth, transport))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [200] * 8
    assert len(calls) <= 1  # one may be spared: it finds what was stored


def test_the_reason_of_a_refused_renewal() -> None:
    """The user gets the reason of the failed renewal, not that of the request."""

    def renew(refused: Bearer | None) -> Bearer:
        raise CredentialsRefused("the password is wrong", remedy="run zonedrive logon x")

    auth = BearerAuth(Memory(bearer="old"), renew)
    with (
        httpx.Client(transport=PickyService(), auth=auth) as client,
        pytest.raises(CredentialsRefused, match="password is wrong"),
    ):
        client.get("https://zones.example/")


def test_the_time_of_the_service_is_used() -> None:
    """Every answer updates the known time of the service."""
    auth = BearerAuth(Memory(bearer="good"))
    answer = httpx.Response(200, headers={"Date": "Wed, 21 Oct 2020 12:00:00 GMT"})
    with httpx.Client(transport=httpx.MockTransport(lambda _: answer), auth=auth) as client:
        client.get("https://zones.example/")
    assert abs(auth.clock.now_ns() - 1_603_281_600 * 10**9) < 60 * 10**9


def test_the_wait_is_short_again_after_an_accepted_request() -> None:
    """Several requests that are refused at the same moment count as one refusal."""
    now = 0.0
    auth = BearerAuth(Memory(bearer="good"), monotonic=lambda: now)

    def answer(status: int, number: int) -> None:
        flows = [auth.sync_auth_flow(httpx.Request("GET", "https://x")) for _ in range(number)]
        for flow in flows:
            next(flow)
        for flow in flows:
            with pytest.raises(StopIteration):
                flow.send(httpx.Response(status))

    for _ in range(3):
        answer(401, 2)
        now += AGAIN_SECONDS + 1
        answer(200, 1)


class ProfileService:
    """Service with the sandbox's profile.

    `good` are the bearers that it accepts. The endpoints whose path contains `closed` accept none.
    """

    def __init__(self, store: Memory, renew: Callable[[Bearer | None], Bearer | None]) -> None:
        self.now = 0.0  # monotonic seconds
        self.good = {"first"}
        self.closed = "/levels"
        self.zones = 0  # requests for the list of the zones
        client = LoopClient(
            "https://zones.example",
            LoopHandler(self._answer),
            BearerAuth(store, renew, lambda: self.now),
        )
        self.link = Connectivity()
        requests = Requests(client, self.link)
        profile = load_profile("sandbox")
        transfer = Transfer(
            BlockingClient("https://zones.example", BlockingHandler(self._answer), client.auth),
            self.link,
            profile,
        )
        self.service = HttpService(client, requests, transfer, self.link, profile)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.zones += request.url.path == "/api/zones"
        bearer = request.headers["Authorization"].removeprefix("Bearer ")
        is_accepted = bearer in self.good and self.closed not in request.url.path
        return httpx.Response(200 if is_accepted else 401, json=[])


@pytest.mark.parametrize("closed", ["/levels", "/versions/7/content"])
async def test_an_endpoint_that_accepts_no_bearer_leaves_the_bearer_in_use(closed: str) -> None:
    """Otherwise the logon would end, or be renewed, with each such request."""
    deployment = ProfileService(Memory(bearer="first"), lambda _refused: pytest.fail("renewed"))
    deployment.closed = closed
    for _ in range(3):
        with pytest.raises(Forbidden):
            if closed == "/levels":
                await deployment.service.levels()
            else:
                deployment.service.transfer.download("z", "f", version="7")
        assert await deployment.service.zones() == []
        assert deployment.link.state == "online"


@pytest.mark.parametrize("operation", ["versions", "content of a version"])
async def test_a_logon_that_has_ended_is_renewed_for_an_operation_of_the_profile(
    operation: str,
) -> None:
    """The operation succeeds with the new bearer, after one renewal."""
    renewed: list[str] = []

    def renew(_refused: Bearer | None) -> Bearer:
        renewed.append("second")
        return Bearer("second", "session")

    deployment = ProfileService(Memory(bearer="first"), renew)
    deployment.good = {"second"}
    if operation == "versions":
        assert await deployment.service.versions("z", "f") == []
    else:
        with deployment.service.transfer.download("z", "f", version="7") as download:
            assert b"".join(download) == b"[]"
    assert (renewed, deployment.link.state) == (["second"], "online")


async def test_an_ended_logon_is_checked_ever_more_rarely_for_operations() -> None:
    """A file manager may ask for the levels each second, and the logon may be accepted again."""
    deployment = ProfileService(Memory(bearer="first"), lambda _refused: None)
    deployment.good = set()
    checks = list[float]()
    for second in range(300):
        deployment.now, before = float(second), deployment.zones
        with pytest.raises(NotLoggedOn):
            await deployment.service.levels()
        checks += [deployment.now] * (deployment.zones - before)
    pauses = [after - before for before, after in itertools.pairwise(checks)]
    assert pauses == [5, 10, 20, 40, 80]
    deployment.good = {"first"}
    deployment.now += 300
    with pytest.raises(Forbidden):
        await deployment.service.levels()
    assert deployment.link.state == "online"


class RefusingTransport(LoopTransport):
    """Transport whose service rejects each request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions[SENT] = True
        return httpx.Response(401)


async def test_a_rejected_change_is_not_in_doubt_during_a_slow_renewal(
    autojump_clock: MockClock,
) -> None:
    """The service rejected the change, so it is certain that nothing was done."""
    end = threading.Event()

    def renew(_refused: Bearer | None) -> None:
        end.wait(60)

    auth = BearerAuth(Memory(bearer="old"), renew)
    auth.find()  # the clock does not wait for a thread
    client = LoopClient("https://zones.example", RefusingTransport(Trust(None)), auth)
    calls = Requests(client, Connectivity(), connections=1)
    try:
        with pytest.raises(TimedOut):
            await calls.change(Request("DELETE", "/api/groups/g"))
    finally:
        end.set()
