"""The bearer in each request."""

from collections.abc import Callable

import httpx
import pytest

from zonedrive.errors import NotLoggedOn, StoreError
from zonedrive.logon.secrets import Kind, Secret
from zonedrive.logon.session import Bearer, BearerAuth, load_bearer, save_bearer


class Memory:
    """A store that counts how often it is read."""

    kind: Kind = "file"

    def __init__(self, **kept: str) -> None:
        self.kept = {name: Secret(text) for name, text in kept.items()}
        self.reads = 0
        self.fail: StoreError | None = None

    def get(self, name: str) -> Secret | None:
        """Look."""
        self.reads += 1
        if self.fail:
            raise self.fail
        return self.kept.get(name)

    def set(self, name: str, value: Secret) -> None:
        """Keep."""
        self.kept[name] = value

    def delete(self, name: str) -> None:
        """Forget."""
        self.kept.pop(name, None)


class Door(httpx.MockTransport):
    """Lets only some bearers in, and keeps all it has seen."""

    def __init__(self, *good: str, on_refusal: Callable[[], None] = lambda: None) -> None:
        super().__init__(self._answer)
        self._good, self._on_refusal = good, on_refusal
        self.seen: list[str] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        if self.seen[-1] in self._good:
            return httpx.Response(200)
        self._on_refusal()
        return httpx.Response(401)


def get(store: Memory, transport: Door, times: int = 1) -> int:
    """The status that a client of the worker threads gets."""
    with httpx.Client(transport=transport, auth=BearerAuth(store)) as client:
        return [client.get("https://zones.example/").status_code for _ in range(times)][-1]


async def aget(store: Memory, transport: Door) -> int:
    """The status that a client on the loop gets."""
    async with httpx.AsyncClient(transport=transport, auth=BearerAuth(store)) as client:
        return (await client.get("https://zones.example/")).status_code


async def both(store: Memory, transport: Door) -> tuple[int, int]:
    """One request of either kind of client."""
    return get(store, transport), await aget(store, transport)


async def test_the_stored_bearer_is_sent() -> None:
    """As `Authorization: Bearer`."""
    store = Memory()
    save_bearer(store, Bearer("good", "token", 5, "id"))
    assert await both(store, Door("good")) == (200, 200)
    assert load_bearer(store) == Bearer("good", "token", 5, "id")


def test_the_store_is_read_once() -> None:
    """A keyring is not asked at every request."""
    store = Memory(bearer="good")
    assert get(store, Door("good"), times=5) == 200
    assert store.reads == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_logon_elsewhere_is_picked_up(asynchronous: bool) -> None:
    """After a 401 the store is read again, and the request repeated once."""
    store = Memory(bearer="old")

    def log_on() -> None:
        store.set("bearer", Secret("new"))

    transport = Door("new", on_refusal=log_on)
    found = await aget(store, transport) if asynchronous else get(store, transport)
    assert found == 200
    assert transport.seen == ["old", "new"]


async def test_a_refused_bearer_is_not_sent_again_and_again() -> None:
    """One refusal is one request; the 401 goes through."""
    transport = Door()
    assert await both(Memory(bearer="old"), transport) == (401, 401)
    assert transport.seen == ["old", "old"]


def test_a_body_that_is_gone_is_not_repeated() -> None:
    """But the next request has the new bearer."""
    store = Memory(bearer="old")
    transport = Door("new", on_refusal=lambda: store.set("bearer", Secret("new")))
    with httpx.Client(transport=transport, auth=BearerAuth(store)) as client:
        answer = client.post("https://zones.example/", extensions={"replayable": False})
        assert answer.status_code == 401
        assert client.post("https://zones.example/").status_code == 200


@pytest.mark.parametrize(
    "store",
    [Memory(), Memory(bearer=""), Memory(bearer="{}"), Memory(bearer='{"secret":"a b","kind":1}'),
     Memory(bearer="hunter2\x00"), Memory(bearer='{"secret":"h\u00fcnter2","kind":"token"}')],
)  # fmt: skip
async def test_without_a_usable_bearer_nothing_is_sent(store: Memory) -> None:
    """And nothing of it is in the message."""
    transport = Door("hunter2")
    with pytest.raises(NotLoggedOn) as refused:
        await both(store, transport)
    assert "unter2" not in refused.value.line()
    assert transport.seen == []


async def test_a_locked_keyring_is_a_logon_that_is_needed() -> None:
    """A mount goes on offline until it opens."""
    store = Memory(bearer="good")
    store.fail = StoreError("the keyring does not answer", remedy="unlock it")
    with pytest.raises(NotLoggedOn, match="keyring"):
        await both(store, Door("good"))
    store.fail = None
    assert await both(store, Door("good")) == (200, 200)


def test_a_bearer_does_not_show_itself() -> None:
    """Kind and expiry are enough for a log."""
    assert "hunter2" not in repr(Bearer("hunter2", "token", 1, "id"))
    assert Bearer("x", "token", 0).until == ""
    assert Bearer("x", "token", 2**63 - 1).until == "2262-04-11 23:47 UTC"
