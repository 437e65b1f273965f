"""Operations of the service, with a function that answers the requests."""

import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.unit.remote.conftest import BASE, Piece, Stage
from zonedrive import errors
from zonedrive.remote.clients import MIB, LoopClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.requests import Requests
from zonedrive.remote.transport.exchange import SENT
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import LoopTransport
from zonedrive.remote.wire.pagination import Budget

ENTRY = {"id": "e", "name": "n", "zoneId": "z", "parentId": "p", "folder": False, "size": 3}
Verb = Callable[[HttpService], Awaitable[object]]
READS: dict[str, Verb] = {
    "zones": lambda service: service.zones(),
    "listing": lambda service: service.listing("z", "p"),
    "entry": lambda service: service.entry("z", "e"),
    "versions": lambda service: service.versions("z", "e"),
    "deleted": lambda service: service.deletions("z"),
}
CHANGES: dict[str, Verb] = {
    "make_folder": lambda service: service.make_folder("z", "p", "n"),
    "move": lambda service: service.move("z", "e", "q", "m"),
    "delete": lambda service: service.delete("z", "e"),
    "restore": lambda service: service.restore("z", "e"),
    "purge": lambda service: service.purge("z", "e"),
}
VERBS = READS | CHANGES
PUBLISHED = ("zones", "listing", "entry")
OF_PROFILE: dict[str, Verb] = {
    "versions": READS["versions"],
    "levels": lambda service: service.levels(),
    "share": lambda service: service.share("z", "e"),
    "delete": CHANGES["delete"],
}
WHAT_A_STATUS_MEANS = {
    400: errors.Rejected,
    401: errors.NotLoggedOn,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    413: errors.TooLarge,
    423: errors.Locked,
    429: errors.Unavailable,
    500: errors.Unavailable,
    502: errors.Unavailable,
    503: errors.Unavailable,
}


def said(status: int, value: object = None, **headers: str) -> httpx.Response:
    """Return an answer with JSON, or an empty one."""
    if value is None:
        return httpx.Response(status, headers=headers)
    return httpx.Response(status, json=value, headers=headers)


async def test_the_published_requests(stage: Stage) -> None:
    """Methods and paths are those of the API, with encoded ids."""
    service = stage.service(lambda request: said(200, []))
    await service.zones()
    await service.listing("z/1", "p")
    assert stage.asked() == ["GET /api/zones", "GET /api/zones/z%2F1/folder/p"]
    stage.requests.clear()
    service = stage.service(lambda request: said(200, ENTRY))
    assert (await service.entry("z", "e")).name == "n"
    assert stage.asked() == ["GET /api/zones/z/files/e"]


async def test_a_listing_leaves_out_deleted_entries(stage: Stage) -> None:
    listing = [ENTRY, ENTRY | {"id": "d", "deleted": True}]
    service = stage.service(lambda request: said(200, listing))
    assert [entry.id for entry in await service.listing("z", "p")] == ["e"]


async def test_the_requests_of_a_profile(stage: Stage) -> None:
    """Method, path and body come from the tables of the profile."""
    service = stage.service(lambda request: said(200, ENTRY))
    await service.make_folder("z", "p", "new")
    await service.move("z", "e", "q", "m")
    await service.restore("z", "e")
    await service.delete("z", "e")
    await service.purge("z", "e")
    assert stage.asked() == [
        "POST /api/sandbox/zones/z/folders",
        "PUT /api/sandbox/zones/z/entries/e",
        "POST /api/sandbox/zones/z/entries/e/restore",
        "DELETE /api/sandbox/zones/z/entries/e",
        "DELETE /api/sandbox/zones/z/entries/e/purge",
    ]
    assert json.loads(stage.requests[0].content) == {"parentId": "p", "name": "new"}
    assert json.loads(stage.requests[1].content) == {"parentId": "q", "name": "m"}
    assert stage.requests[0].headers["Content-Type"] == "application/json"
    assert stage.requests[3].content == b""


async def test_operations_without_a_table_send_no_request(stage: Stage) -> None:
    """With the published profile no request is guessed, because it could damage data."""
    service = stage.service(lambda request: said(500), profile="published")
    for name in (*CHANGES, "versions", "deleted"):
        assert not service.can(name)
        with pytest.raises(errors.NotSupported):
            await VERBS[name](service)
    assert stage.requests == []


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"not json", b'{"ok":true}'])
@pytest.mark.parametrize("verb", ["move", "restore"])
async def test_a_change_that_answers_nothing_of_use_is_looked_up(
    stage: Stage, verb: str, answer: bytes
) -> None:
    """If the answer does not contain the entry, a second request gets it."""

    def handle(request: httpx.Request) -> httpx.Response:
        return said(200, ENTRY) if request.method == "GET" else httpx.Response(200, content=answer)

    entry = await VERBS[verb](stage.service(handle))
    assert entry is not None
    assert stage.asked()[1:] == ["GET /api/zones/z/files/e"]


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_page_with_a_successful_status_leaves_the_effect_unknown(
    stage: Stage, verb: str
) -> None:
    """A gateway answers each change with a page, and has not passed it on."""

    def handle(request: httpx.Request) -> httpx.Response:
        return (
            said(200, ENTRY) if request.method == "GET" else httpx.Response(200, html="<p>No</p>")
        )

    with pytest.raises(errors.ReplyLost, match="proxy or firewall"):
        await CHANGES[verb](stage.service(handle))


async def test_a_new_folder_is_found_by_its_name(stage: Stage) -> None:
    """The folder is found in the parent's listing; files with that name are ignored."""
    listing = [ENTRY, ENTRY | {"id": "f", "folder": True}]

    def handle(request: httpx.Request) -> httpx.Response:
        return said(200, listing) if request.method == "GET" else said(201)

    service = stage.service(handle)
    assert (await service.make_folder("z", "p", "n")).id == "f"
    listing.pop()
    with pytest.raises(errors.BadAnswer):
        await service.make_folder("z", "p", "n")


@pytest.mark.parametrize("status", [401, 423, 429])
@pytest.mark.parametrize("verb", ["make_folder", "move", "restore"])
async def test_a_change_that_cannot_be_looked_up_has_an_effect(
    verb: str, status: int, autojump_clock: MockClock
) -> None:
    """The error tells that, also if its status alone means that nothing was changed."""

    def handle(request: httpx.Request) -> httpx.Response:
        return said(status) if request.method == "GET" else said(201)

    with pytest.raises(errors.RemoteError) as failed:
        await VERBS[verb](Stage().service(handle))
    assert failed.value.is_partial
    with pytest.raises(errors.RemoteError) as refused:
        await VERBS[verb](Stage().service(partial(_refusing, status)))
    assert not refused.value.is_partial


def _refusing(status: int, request: httpx.Request) -> httpx.Response:
    return said(status, {"message": "m"})


@pytest.mark.parametrize("verb", VERBS)
async def test_each_status_on_each_verb(verb: str, autojump_clock: MockClock) -> None:
    """Refusals keep their type; only reading is repeated, and only if that may help."""
    for status, usual in WHAT_A_STATUS_MEANS.items():
        stage = Stage()
        service = stage.service(partial(_refusing, status))
        kind: type[errors.RemoteError] = usual
        if verb in CHANGES and status == 502:
            kind = errors.ReplyLost
        with pytest.raises(errors.RemoteError) as refused:
            await VERBS[verb](service)
        assert type(refused.value) is kind
        assert refused.value.status == status
        assert "\n" not in refused.value.line()
        again = verb in READS and status in (429, 500, 502, 503)
        is_checked = status == 401 and verb not in PUBLISHED  # a second request checks the logon
        assert len(stage.requests) == (4 if again else 2 if is_checked else 1), status
        if status == 401:
            assert stage.link.state == "logon-required"


def refusing_profile(request: httpx.Request) -> httpx.Response:
    """Answer requests to the endpoints of the sandbox's profile with 401, and others with []."""
    return said(401 if "sandbox" in request.url.path else 200, [])


@pytest.mark.parametrize("verb", OF_PROFILE)
async def test_an_endpoint_that_accepts_no_logon_does_not_end_the_logon(
    stage: Stage, verb: str
) -> None:
    """Otherwise each such request would stop the uploads, and ask the user to log on again."""
    service = stage.service(refusing_profile)
    with pytest.raises(errors.Forbidden) as refused:
        await OF_PROFILE[verb](service)
    assert (refused.value.status, stage.link.state) == (401, "online")
    first, check, *others = stage.asked()
    assert (check, others) == ("GET /api/zones", [first])
    assert await service.zones() == []


@pytest.mark.parametrize("verb", OF_PROFILE)
async def test_a_logon_with_few_rights_is_valid(stage: Stage, verb: str) -> None:
    """A token that may not list the zones gets 403 from the request that checks the logon."""
    service = stage.service(lambda request: said(401 if "sandbox" in request.url.path else 403))
    with pytest.raises(errors.Forbidden) as refused:
        await OF_PROFILE[verb](service)
    assert (refused.value.status, len(stage.requests)) == (401, 3)


@pytest.mark.parametrize("verb", OF_PROFILE)
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (httpx.ConnectError("refused"), errors.Unreachable),
        (httpx.ReadTimeout("slow"), errors.TimedOut),
        (said(503), errors.Unavailable),
    ],
)
async def test_a_logon_that_cannot_be_checked_is_no_refusal(
    verb: str,
    trouble: Exception | httpx.Response,
    kind: type[errors.RemoteError],
    autojump_clock: MockClock,
) -> None:
    """A refused change would be undone; a change that could not be sent stays pending."""

    def handle(request: httpx.Request) -> httpx.Response:
        if "sandbox" in request.url.path:
            return said(401)
        if isinstance(trouble, Exception):
            raise trouble
        return httpx.Response(trouble.status_code)

    stage = Stage()
    with pytest.raises(errors.RemoteError) as failed:
        await OF_PROFILE[verb](stage.service(handle))
    assert type(failed.value) is kind
    assert stage.link.state != "logon-required"


@pytest.mark.parametrize(("status", "kind"), [(200, errors.Forbidden), (401, errors.NotLoggedOn)])
async def test_operations_at_the_same_time_check_the_logon_together(
    stage: Stage, status: int, kind: type[errors.RemoteError]
) -> None:
    """The removal of a large folder would send one more request for each file."""

    def handle(request: httpx.Request) -> httpx.Response:
        return said(401) if "sandbox" in request.url.path else said(status, [])

    async def delete(number: int) -> None:
        with pytest.raises(kind):
            await service.delete("z", f"e{number}")

    service = stage.service(handle, connections=8)
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(delete, number)
    # One check, and one for requests that were answered during the first.
    assert stage.asked().count("GET /api/zones") <= 2


@pytest.mark.parametrize("verb", [*READS, "content", "upload"])
async def test_a_page_of_a_gateway_is_no_missing_entry(
    verb: str, autojump_clock: MockClock
) -> None:
    """The endpoints of the published API exist; a profile may have a wrong path."""
    content: Verb = lambda service: service.content("z", "e", 9)  # noqa: E731
    upload: Verb = lambda service: service.upload("z", "p", "n", b"x")  # noqa: E731
    call = {**READS, "content": content, "upload": upload}[verb]
    stage = Stage()
    service = stage.service(lambda request: httpx.Response(404, text="<html>404</html>"))
    with pytest.raises(errors.RemoteError) as failed:
        await call(service)
    kinds: dict[str, type[errors.RemoteError]] = {
        "versions": errors.NotFound, "deleted": errors.NotFound, "zones": errors.Unreachable,
    }  # fmt: skip
    assert type(failed.value) is kinds.get(verb, errors.Unavailable)


async def test_a_gateway_that_does_not_find_page_2_does_not_end_the_listing(
    autojump_clock: MockClock,
) -> None:
    """The entries of the other pages would seem to be deleted."""

    def handle(request: httpx.Request) -> httpx.Response:
        if "page" in request.url.params:
            return httpx.Response(404, text="<html>404</html>")
        return said(200, [ENTRY | {"id": f"e{number}"} for number in range(100)])

    with pytest.raises(errors.Unavailable):
        await Stage().service(handle).listing("z", "p")


@pytest.mark.parametrize("last", [said(204), httpx.Response(200, text="null"), said(200, [])])
@pytest.mark.parametrize("count", [100, 200])
async def test_a_page_after_the_last_one_has_no_items(
    stage: Stage, last: httpx.Response, count: int
) -> None:
    """The service may send no array there; the first page must be an array."""
    ids = [f"e{number}" for number in range(count)]

    def handle(request: httpx.Request) -> httpx.Response:
        start = (int(request.url.params.get("page", 1)) - 1) * 100
        page = [ENTRY | {"id": each} for each in ids[start : start + 100]]
        return said(200, page) if page else httpx.Response(last.status_code, content=last.content)

    service = stage.service(handle)
    for _ in range(2):
        assert [entry.id for entry in await service.listing("z", "p")] == ids
    if last.content != b"[]":
        with pytest.raises(errors.BadAnswer):
            await stage.service(lambda request: last).listing("z", "p")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(stage: Stage, status: int) -> None:
    """The token is sent neither over plain HTTP nor to another host."""
    service = stage.service(lambda request: said(status, Location="http://evil.example/"))
    for verb in VERBS.values():
        with pytest.raises(errors.BadAnswer) as refused:
            await verb(service)
        assert "evil.example" in refused.value.line()
    assert {request.url.host for request in stage.requests} == {"zones.example"}
    assert len(stage.requests) == len(VERBS)


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b'[{"id":"a","na', b"<html></html>", b'"text"', b"null", b"\xff\xff"]
)
async def test_a_malformed_answer_to_a_question(stage: Stage, verb: str, body: bytes) -> None:
    """A malformed answer gives one clear error, neither an empty folder nor a crash."""
    service = stage.service(lambda request: httpx.Response(200, content=body))
    with pytest.raises(errors.BadAnswer):
        await VERBS[verb](service)


@pytest.mark.parametrize("verb", READS)
async def test_a_body_that_ends_early_is_asked_for_again(
    stage: Stage, verb: str, autojump_clock: MockClock
) -> None:
    """A listing is requested again if the connection breaks in the middle."""
    broken = [True, True]

    def handle(request: httpx.Request) -> httpx.Response:
        if broken:
            broken.pop()
            return httpx.Response(200, stream=Piece(b"[", httpx.RemoteProtocolError("cut")))
        return said(200, ENTRY if verb == "entry" else [])

    await VERBS[verb](stage.service(handle))
    assert len(stage.requests) == 3
    assert stage.link.state == "online"


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("wrong", [httpx.ReadError("x"), httpx.ReadTimeout("x"),
                                   httpx.RemoteProtocolError("x")])  # fmt: skip
async def test_a_change_whose_answer_is_lost_is_not_repeated(
    stage: Stage, verb: str, wrong: Exception
) -> None:
    """The error says that the change may have been made, so that the caller can check."""

    def handle(request: httpx.Request) -> httpx.Response:
        raise wrong

    with pytest.raises(errors.ReplyLost):
        await VERBS[verb](stage.service(handle))
    assert len(stage.requests) == 1


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_change_that_never_left_is_known_not_to_be_done(stage: Stage, verb: str) -> None:
    """After a refused connection the change is known not to be made."""

    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(errors.Unreachable) as failed:
        await VERBS[verb](stage.service(handle))
    assert type(failed.value) is errors.Unreachable
    assert stage.link.state == "offline"


async def test_a_change_whose_answer_breaks_is_lost(stage: Stage) -> None:
    """A connection that breaks after the status leaves the effect unknown."""
    stream = Piece(b'{"id":', httpx.ReadError("x"))
    service = stage.service(lambda request: httpx.Response(201, stream=stream))
    with pytest.raises(errors.ReplyLost):
        await service.make_folder("z", "p", "n")


@pytest.mark.parametrize("code", ["NOT_ALLOWED", "USER_INACTIVE", ""])
async def test_a_refused_list_of_zones(stage: Stage, code: str) -> None:
    """No manager of a zone can help."""
    service = stage.service(lambda request: said(403, {"error": code, "message": "no"}))
    with pytest.raises(errors.Forbidden) as refused:
        await service.zones()
    assert "administrator" in refused.value.remedy and "manager" not in refused.value.remedy


async def test_a_refusal_whose_body_breaks_is_a_refusal(stage: Stage) -> None:
    """The status alone determines the error."""
    stream = Piece(b'{"err', httpx.ReadError("x"))
    service = stage.service(lambda request: httpx.Response(403, stream=stream))
    with pytest.raises(errors.Forbidden):
        await service.delete("z", "e")


async def test_retry_after_is_honoured(stage: Stage, autojump_clock: MockClock) -> None:
    """No request is sent before the time that the service has named."""
    times: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        times.append(trio.current_time())
        return said(503, **{"Retry-After": "5"}) if len(times) < 3 else said(200, [])

    await stage.service(handle).zones()
    assert times[1] - times[0] == pytest.approx(5)
    assert times[2] - times[1] == pytest.approx(5)


async def test_a_retry_after_beyond_the_deadline_ends_the_call(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """The call fails instead of waiting an hour."""
    service = stage.service(lambda request: said(503, **{"Retry-After": "3600"}))
    with pytest.raises(errors.Unavailable):
        await service.zones()
    assert len(stage.requests) == 1
    assert trio.current_time() < 1


class SilentTransport(LoopTransport):
    """Transport that never answers requests and counts them."""

    def __init__(self) -> None:
        super().__init__(Trust(None))
        self.count = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.count += 1
        request.extensions[SENT] = True
        await trio.sleep_forever()
        raise AssertionError


class Drip(httpx.AsyncByteStream):
    """Body with one byte per second, which does not end."""

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        while True:
            await trio.sleep(1)
            yield b" "


def above(stage: Stage, transport: LoopTransport) -> HttpService:
    """Return a service on the given transport."""
    profile = load_profile("sandbox")
    client = LoopClient(BASE, transport, httpx.Auth())
    calls = Requests(client, stage.link, connections=2)
    transfer = stage.transfer(lambda request: said(500))
    return HttpService(client, calls, transfer, stage.link, profile)


async def test_a_service_that_never_answers_is_waited_for_15_seconds(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """Every request ends, and two timeouts mean offline."""
    service = above(stage, SilentTransport())
    for _ in range(2):
        began = trio.current_time()
        with pytest.raises(errors.TimedOut):
            await service.zones()
        assert trio.current_time() - began <= 15.1
    assert stage.link.state == "offline"


async def test_a_change_that_is_never_answered_is_in_doubt(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """The change was sent, so it may have been made."""
    service = above(stage, SilentTransport())
    began = trio.current_time()
    with pytest.raises(errors.ReplyLost):
        await service.delete("z", "e")
    assert trio.current_time() - began <= 30.1


async def test_a_dripping_answer_ends(stage: Stage, autojump_clock: MockClock) -> None:
    """One byte per second avoids the socket's timeout, but the call still ends."""
    service = stage.service(lambda request: httpx.Response(200, stream=Drip()))
    began = trio.current_time()
    with pytest.raises(errors.TimedOut):
        await service.zones()
    assert trio.current_time() - began < 80


async def test_waiting_for_a_turn_is_no_sign_of_a_bad_service(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A hundred simultaneous requests that queue do not look like a network fault."""
    transport = SilentTransport()
    service = above(stage, transport)
    failures: list[errors.TimedOut] = []

    async def ask() -> None:
        try:
            await service.entry("z", "e")
        except errors.TimedOut as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        for _ in range(98):
            nursery.start_soon(ask)
    assert len(failures) == 100
    assert transport.count <= 4


async def test_offline_questions_fail_at_once_while_it_is_probed(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A file manager without a network gets its error at once; one request at a time is enough."""
    up = False

    def handle(request: httpx.Request) -> httpx.Response:
        if not up:
            raise httpx.ConnectError("refused")
        return said(200, {} if "access" in request.url.path else [])

    service = stage.service(handle)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.link.run, service.probe)
        await wait_all_tasks_blocked()
        with pytest.raises(errors.Unreachable):
            await service.zones()
        assert len(stage.requests) == 1
        began = trio.current_time()
        for verb in VERBS.values():
            with pytest.raises(errors.Unreachable):
                await verb(service)
        assert trio.current_time() == began
        await trio.sleep(100)
        assert set(stage.asked()[1:]) == {"GET /api/access/authorizationrequirements"}
        assert "Authorization" not in stage.requests[-1].headers
        up = True
        await service.link.wait_online()
        assert await service.zones() == []
        nursery.cancel_scope.cancel()


async def test_a_logon_that_is_needed_is_noticed_and_its_end_too(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """After a logon elsewhere, requests succeed again."""
    let_in = False
    service = stage.service(lambda request: said(200, []) if let_in else said(401))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.link.run, service.probe)
        await wait_all_tasks_blocked()
        with pytest.raises(errors.NotLoggedOn):
            await service.zones()
        assert service.link.state == "logon-required"
        await trio.sleep(60)
        assert service.link.state == "logon-required"
        let_in = True
        await service.link.wait_online()
        nursery.cancel_scope.cancel()


async def test_a_small_file_that_does_not_end_takes_no_memory(stage: Stage) -> None:
    """If the service sends more than the listed size, only that size is kept in memory."""
    sent = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 100 << 20:
                await trio.lowlevel.checkpoint()
                sent += 1000
                yield bytes(1000)

    service = stage.service(lambda request: httpx.Response(200, stream=Endless()))
    with pytest.raises(errors.BadAnswer, match="more than 3000 bytes"):
        await service.content("z", "f", 3000)
    assert sent == 4000
    service = stage.service(lambda request: httpx.Response(200, content=bytes(3000)))
    assert await service.content("z", "f", 3000) == bytes(3000)


BAD_LISTINGS = {
    "cut": b"[" + b" " * (8 * MIB),
    "too long": b"[" + b" " * (32 * MIB),
    "no entry": b'[{"id":[[],[],[]]},' + b"1," * (4 * MIB) + b"1]",
}


@pytest.mark.parametrize("kind", BAD_LISTINGS)
async def test_the_error_of_a_listing_does_not_keep_the_answer(stage: Stage, kind: str) -> None:
    """Callers keep such errors, and an answer may be large."""

    def listing(_request: httpx.Request) -> httpx.Response:
        body = BAD_LISTINGS[kind]
        pieces = (body[at : at + MIB] for at in range(0, len(body), MIB))
        return httpx.Response(200, stream=Piece(*pieces))

    service = stage.service(listing, budget=partial(Budget, size=16 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(errors.BadAnswer) as caught:
            await service.listing("z", "p")
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < MIB, caught.value


@pytest.mark.parametrize("status", [429, 503])
async def test_rejected_uploads_do_not_take_the_link_offline(stage: Stage, status: int) -> None:
    """Rejected uploads report their pause; other requests are answered and not refused."""
    service = stage.service(lambda request: said(status, **{"Retry-After": "2"}))

    async def small() -> None:
        await service.upload("z", "p", "n", b"abc")

    async def large() -> None:
        service.transfer.upload("z", "p", "n", [b"abc"], 3)

    for upload in [small, large] * 5:
        with pytest.raises(errors.Unavailable) as failed:
            await upload()
        # A gateway answers 503 also for a service that had the request.
        assert (failed.value.retry_after, failed.value.unprocessed) == (2.0, status == 429)
    assert stage.link.state == "online"
    assert len(stage.requests) == 10


async def test_readers_of_one_busy_moment_get_their_answers(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A burst of 503 is repeated, and does not refuse the repetitions of other requests."""
    stage.link = Connectivity(chance=lambda: 0.5, clock=trio.current_time)
    busy = set[str]()

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path not in busy:
            busy.add(path)
            return said(503)
        return said(200, [])

    service = stage.service(handle, connections=32)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.link.run, service.probe)
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as readers:
            for number in range(32):
                readers.start_soon(service.listing, "z", f"p{number}")
        assert stage.link.state == "online"
        nursery.cancel_scope.cancel()
    assert len(stage.requests) == 64
