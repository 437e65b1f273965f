"""Uploads and downloads, with a function that answers the requests."""

from collections.abc import Callable, Generator, Iterable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.remote.conftest import Piece, Stage
from zonedrive import errors
from zonedrive.remote.transfer import Cancelled, TokenBucket, Transfer
from zonedrive.remote.transport.tls import Trust
from zonedrive.remote.transport.transports import BlockingTransport
from zonedrive.remote.wire.multipart import MultipartBody

WHEN = {"lastModified": "2026-11-21T12:00:00+00:00", "lastModifiedBy": "alice@acme.example"}
ENTRY = {"id": "e", "name": "n", "size": 3} | WHEN


class Time:
    """Clock that advances by sleeping; each sleep calls `slept`."""

    def __init__(self, slept: Callable[[], None] = lambda: None) -> None:
        self.now = 0.0
        self.slept = slept
        self.options: dict[str, Any] = {"clock": lambda: self.now, "sleep": self.sleep}

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds
        self.slept()


def content(*pieces: bytes | Exception, status: int = 200, **headers: str) -> httpx.Response:
    """Return a streaming answer; header names have _ for -."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, stream=Piece(*pieces), headers=names)


def read(transfer: Transfer, **options: object) -> bytes:
    """Return all bytes of a download."""
    with transfer.download("z", "f", **options) as download:  # type: ignore[arg-type]
        return b"".join(download)


def test_a_download_is_whole(stage: Stage) -> None:
    """A download has the bytes, their number and the tag of the version."""
    transfer = stage.transfer(
        lambda request: content(b"ab", b"c", Content_Length="3", ETag='"1"', Last_Modified="x")
    )
    with transfer.download("z/1", "f") as download:
        assert (download.offset, download.total, download.validator) == (0, 3, '"1"')
        assert b"".join(download) == b"abc"
    assert stage.asked() == ["GET /api/zones/z%2F1/files/f/content"]
    assert stage.requests[0].headers["Accept-Encoding"] == "identity"
    assert "Range" not in stage.requests[0].headers


@pytest.mark.parametrize(
    ("length", "pieces"), [("4", [b"abc"]), ("2", [b"abc"]), ("2", [b"a", b"b", b"c"])]
)
def test_a_body_of_another_length_is_an_error(
    stage: Stage, length: str, pieces: list[bytes]
) -> None:
    """A body that is too short or too long is an error."""
    transfer = stage.transfer(lambda request: content(*pieces, Content_Length=length))
    with pytest.raises(errors.BadAnswer):
        read(transfer)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (httpx.RemoteProtocolError("peer closed"), errors.Interrupted),
        (httpx.ReadError("reset"), errors.Interrupted),
        (httpx.ReadTimeout("stalled"), errors.TimedOut),
    ],
)
def test_a_body_that_breaks_ends_in_an_error(
    stage: Stage, wrong: Exception, kind: type[errors.RemoteError]
) -> None:
    """Bytes before the break are returned first, so that a reader can continue there."""
    transfer = stage.transfer(
        lambda request: content(b"x" * 600_000, wrong, Content_Length="9999999")
    )
    got = 0
    with transfer.download("z", "f") as download, pytest.raises(errors.Unreachable) as failed:
        for chunk in download:
            got += len(chunk)
    assert type(failed.value) is kind
    assert got == 600_000


def test_a_range_is_asked_for_and_understood(stage: Stage) -> None:
    """The range begins at the wanted byte; the answer has the total size."""
    transfer = stage.transfer(
        lambda request: content(b"cd", status=206, Content_Range="bytes 2-3/4", ETag='"1"')
    )
    with transfer.download("z", "f", offset=2) as download:
        assert (download.offset, download.total) == (2, 4)
        assert b"".join(download) == b"cd"
    assert stage.requests[0].headers["Range"] == "bytes=2-"


@pytest.mark.parametrize(("offset", "end", "last"), [(0, 2, 1), (2, 4, 3), (2, 900, 8)])
def test_a_part_is_asked_for(stage: Stage, offset: int, end: int, last: int) -> None:
    """A range with an end stops there, or at the end of the content."""
    whole = b"123456789"
    transfer = stage.transfer(
        lambda request: content(
            whole[offset : last + 1], status=206, Content_Range=f"bytes {offset}-{last}/9"
        )
    )
    assert read(transfer, offset=offset, end=end) == whole[offset:end]
    assert stage.requests[0].headers["Range"] == f"bytes={offset}-{end - 1}"


def test_a_service_without_ranges_sends_everything(stage: Stage) -> None:
    """The download reports that it begins at 0."""
    transfer = stage.transfer(lambda request: content(b"abcd", Content_Length="4"))
    with transfer.download("z", "f", offset=2) as download:
        assert download.offset == 0
        assert b"".join(download) == b"abcd"


@pytest.mark.parametrize(
    "found",
    ["", "bytes 1-3/4", "bytes 3-2/4", "bytes 2-9/4", "items 2-3/4", "bytes */4", "bytes 2-3"],
)
def test_another_range_than_asked_for_is_an_error(stage: Stage, found: str) -> None:
    """Bytes of an unknown offset are never returned."""
    transfer = stage.transfer(lambda request: content(b"cd", status=206, Content_Range=found))
    with pytest.raises(errors.BadAnswer):
        transfer.download("z", "f", offset=2)


def test_a_range_that_ends_early_is_an_error(stage: Stage) -> None:
    """A short range is an error even if its header announces it, because bytes are missing."""
    transfer = stage.transfer(
        lambda request: content(b"cd", status=206, Content_Range="bytes 2-3/9")
    )
    with pytest.raises(errors.BadAnswer):
        read(transfer, offset=2)


@pytest.mark.parametrize(("size", "offset"), [(4, 4), (4, 9), (0, 1)])
def test_a_range_behind_the_end_is_empty(stage: Stage, size: int, offset: int) -> None:
    """The download is empty and has the size of the content."""
    transfer = stage.transfer(
        lambda request: content(b"no", status=416, Content_Range=f"bytes */{size}")
    )
    with transfer.download("z", "f", offset=offset) as download:
        assert (download.offset, download.total) == (offset, size)
        assert list(download) == []


@pytest.mark.parametrize("status", [400, 405, 416, 501])
def test_a_service_that_refuses_ranges_is_asked_for_everything(stage: Stage, status: int) -> None:
    """The second request has no range, is sent at once, and may be repeated like any other."""
    trouble: list[Exception] = [httpx.ReadError("reset")]

    def handle(request: httpx.Request) -> httpx.Response:
        if "Range" in request.headers:
            return content(b'{"message":"no ranges"}', status=status)
        if trouble:
            raise trouble.pop()
        return content(b"abcd", Content_Length="4")

    with stage.transfer(handle).download("z", "f", offset=2, end=3) as download:
        assert (download.offset, download.total) == (0, 4)
        assert b"".join(download) == b"abcd"
    assert ["Range" in request.headers for request in stage.requests] == [True, False, False]
    assert len(stage.slept) == 1


def test_a_refusal_without_a_range_is_the_error(stage: Stage) -> None:
    """A file that the service refuses is refused, whether or not a range was requested."""
    transfer = stage.transfer(lambda request: content(b'{"message":"why"}', status=400))
    with pytest.raises(errors.Rejected) as failed:
        transfer.download("z", "f", offset=2)
    assert "why" in failed.value.message
    assert len(stage.requests) == 2


def test_an_unknown_length_is_reported(stage: Stage) -> None:
    """The caller can compare with the entry's size."""
    with stage.transfer(lambda request: content(b"abc")).download("z", "f") as download:
        assert download.total is None
        assert b"".join(download) == b"abc"


@pytest.mark.parametrize(
    ("status", "kind", "attempts"),
    [
        (401, errors.NotLoggedOn, 1),
        (403, errors.Forbidden, 1),
        (404, errors.NotFound, 1),
        (502, errors.Unavailable, 3),
        (503, errors.Unavailable, 3),
    ],
)
def test_refusals_of_a_download(
    stage: Stage, status: int, kind: type[errors.RemoteError], attempts: int
) -> None:
    """Each refusal has its type, and is repeated only if that may help."""
    transfer = stage.transfer(
        lambda request: content(b'{"message":"why"}', status=status, Retry_After="2")
    )
    with pytest.raises(errors.RemoteError) as failed:
        transfer.download("z", "f")
    assert type(failed.value) is kind
    assert "why" in failed.value.message
    assert len(stage.requests) == attempts
    assert stage.slept == [2.0] * (attempts - 1)


@pytest.mark.parametrize(("version", "kind"), [(None, errors.Unavailable), ("7", errors.NotFound)])
def test_a_page_of_a_gateway_is_no_missing_content(
    stage: Stage, version: str | None, kind: type[errors.RemoteError]
) -> None:
    """The published endpoint exists; that of the profile may be wrong."""
    transfer = stage.transfer(lambda request: content(b"<html>404</html>", status=404))
    with pytest.raises(errors.RemoteError) as failed:
        transfer.download("z", "f", version=version)
    assert type(failed.value) is kind


def test_a_download_comes_up_after_a_moment_of_trouble(stage: Stage) -> None:
    """One reset connection does not fail a read."""
    trouble: list[Exception] = [httpx.ReadError("reset"), httpx.ConnectError("refused")]

    def handle(request: httpx.Request) -> httpx.Response:
        if trouble:
            raise trouble.pop(0)
        return content(b"abc", Content_Length="3")

    assert read(stage.transfer(handle)) == b"abc"
    assert stage.link.state == "online"


def test_a_redirected_download_is_refused(stage: Stage) -> None:
    """Content from another host is not accepted."""
    transfer = stage.transfer(lambda request: content(status=302, Location="https://evil.example"))
    with pytest.raises(errors.BadAnswer) as refused:
        transfer.download("z", "f")
    assert "evil.example" in refused.value.line()
    assert len(stage.requests) == 1


def test_an_old_version_is_requested_as_the_profile_says(stage: Stage) -> None:
    """Without an operation in the profile the download fails."""
    read(stage.transfer(lambda request: content(b"abc", Content_Length="3")), version="7")
    assert stage.asked() == ["GET /api/sandbox/zones/z/files/f/versions/7/content"]
    with pytest.raises(errors.NotSupported):
        stage.transfer(lambda request: content(), "published").download("z", "f", version="7")


@pytest.mark.parametrize(
    ("status", "kind", "state", "requests"),
    [
        (200, errors.Forbidden, "online", 3),
        (403, errors.Forbidden, "online", 3),
        (401, errors.NotLoggedOn, "logon-required", 2),
    ],
)
def test_a_version_that_is_refused_does_not_end_the_logon(
    stage: Stage, status: int, kind: type[errors.RemoteError], state: str, requests: int
) -> None:
    """The list of the zones shows whether the logon has ended, or only this request is refused."""
    transfer = stage.transfer(
        lambda request: content(status=401 if "versions" in request.url.path else status)
    )
    with pytest.raises(kind) as failed:
        transfer.download("z", "f", version="7")
    assert (failed.value.status, stage.link.state) == (401, state)
    assert stage.asked()[1] == "GET /api/zones"
    assert len(stage.requests) == requests


@pytest.mark.parametrize("trouble", [1, 3])
def test_a_check_of_the_logon_is_repeated_after_trouble(stage: Stage, trouble: int) -> None:
    """One reset connection does not fail the read of a version; without an answer it fails."""

    def handle(request: httpx.Request) -> httpx.Response:
        if "versions" in request.url.path:
            return content(status=401)
        if len(stage.requests) < 2 + trouble:
            raise httpx.ReadError("reset")
        return content(b"[]")

    with pytest.raises(errors.Forbidden if trouble == 1 else errors.Interrupted):
        stage.transfer(handle).download("z", "f", version="7")


def test_the_download_limit_is_kept(stage: Stage) -> None:
    """With a low limit the bytes arrive in small pieces."""
    time = Time()
    transfer = stage.transfer(
        lambda request: content(b"x" * 100_000), download_limit=10_000, **time.options
    )
    with transfer.download("z", "f") as download:
        assert max(map(len, download)) <= 10_000
    assert time.now == pytest.approx(9)


@pytest.mark.parametrize("end", ["abort", "hang_up"])
def test_a_download_that_waits_for_the_limit_ends_at_once(stage: Stage, end: str) -> None:
    """The bytes of a download that was aborted are not waited for."""
    time = Time(lambda: (download.abort if end == "abort" else transfer.hang_up)())
    transfer = stage.transfer(
        lambda request: content(b"x" * 4096), download_limit=1, **time.options
    )
    with transfer.download("z", "f") as download:
        list(download)
    assert time.now < 1


def upload(transfer: Transfer, body: Iterable[bytes] = (b"abc",), size: int = 3) -> object:
    """Upload three bytes."""
    return transfer.upload("z", "p", "n", body, size, cancelled=lambda: False)


def test_an_upload_gives_the_entry_it_became(stage: Stage) -> None:
    """The length is sent, and members that the answer lacks are completed."""
    said = {"id": "e", "size": 3} | WHEN
    transfer = stage.transfer(lambda request: httpx.Response(200, json=said))
    entry = transfer.upload("z/1", "p", "näme", [b"abc"], 3)
    assert (entry.id, entry.zone_id, entry.parent_id, entry.name) == ("e", "z/1", "p", "näme")
    assert stage.asked() == ["POST /api/zones/z%2F1/files/p"]
    (request,) = stage.requests
    assert int(request.headers["Content-Length"]) == len(request.content)
    assert "Transfer-Encoding" not in request.headers
    assert "näme".encode() in request.content


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.NotLoggedOn),
        (404, errors.NotFound),
        (413, errors.TooLarge),
        (502, errors.ReplyLost),
        (503, errors.Unavailable),
        (504, errors.ReplyLost),
        (302, errors.BadAnswer),
    ],
)
def test_refusals_of_an_upload(stage: Stage, status: int, kind: type[errors.RemoteError]) -> None:
    """An upload is never repeated; after a gateway error the file may be stored."""
    transfer = stage.transfer(lambda request: httpx.Response(status, json={"message": "why"}))
    with pytest.raises(errors.RemoteError) as failed:
        upload(transfer)
    assert type(failed.value) is kind
    assert len(stage.requests) == 1
    assert stage.slept == []


def test_a_page_of_a_gateway_is_no_missing_folder(stage: Stage) -> None:
    """An upload to a missing folder would be refused."""
    transfer = stage.transfer(lambda request: content(b"<html>404</html>", status=404))
    with pytest.raises(errors.Unavailable):
        upload(transfer)


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b'{"id":"e', b"<html>"])
def test_an_upload_whose_answer_cannot_be_read_is_in_doubt(stage: Stage, answer: bytes) -> None:
    """The file was accepted, so it must not simply be sent again."""
    transfer = stage.transfer(lambda request: httpx.Response(200, content=answer))
    with pytest.raises(errors.ReplyLost):
        upload(transfer)


def test_an_upload_whose_answer_breaks_is_in_doubt(stage: Stage) -> None:
    """The body was sent completely."""
    transfer = stage.transfer(lambda request: content(b'{"id":', httpx.ReadError("x")))
    with pytest.raises(errors.ReplyLost):
        upload(transfer)


class Cut(BlockingTransport):
    """Transport that accepts `pieces` of a request's body, then fails."""

    def __init__(self, pieces: int, wrong: Exception) -> None:
        super().__init__(Trust(None))
        self._pieces, self._wrong = pieces, wrong

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        taken = iter(request.stream)
        for _ in range(self._pieces):
            next(taken)
        raise self._wrong


@pytest.mark.parametrize(
    ("pieces", "wrong", "kind"),
    [
        (0, httpx.ConnectError("x"), errors.Unreachable),
        (0, httpx.ConnectTimeout("x"), errors.TimedOut),
        (0, httpx.WriteError("x"), errors.Interrupted),
        (2, httpx.WriteError("x"), errors.Interrupted),
        (2, httpx.WriteTimeout("x"), errors.TimedOut),
        (2, httpx.ReadError("x"), errors.Interrupted),
        (4, httpx.ReadError("x"), errors.ReplyLost),
        (4, httpx.ReadTimeout("x"), errors.ReplyLost),
        (4, httpx.RemoteProtocolError("x"), errors.ReplyLost),
        (4, httpx.WriteError("x"), errors.ReplyLost),
    ],
)
def test_doubt_begins_with_the_last_piece(
    stage: Stage, pieces: int, wrong: Exception, kind: type[errors.RemoteError]
) -> None:
    """Before the last piece the service cannot have the whole body, so it may be sent again."""
    transfer = stage.transfer(lambda request: httpx.Response(500))
    transfer._client.transport = Cut(pieces, wrong)
    with pytest.raises(errors.Unreachable) as failed:
        upload(transfer, [b"ab", b"c"])
    assert type(failed.value) is kind


@pytest.mark.parametrize("body", [[b"ab"], [b"abcd"]])
def test_a_body_that_is_not_of_its_size_is_not_stored(stage: Stage, body: list[bytes]) -> None:
    """The error does not blame the service."""
    transfer = stage.transfer(lambda request: httpx.Response(200, json=ENTRY))
    with pytest.raises(errors.StoreError):
        upload(transfer, body)
    assert stage.link.state == "online"


def test_a_body_that_cannot_be_read_is_an_error(stage: Stage) -> None:
    """A local disk error is not reported as a network error."""
    transfer = stage.transfer(lambda request: httpx.Response(200, json=ENTRY))
    with pytest.raises(OSError, match="disk"):
        upload(transfer, Piece(b"a", OSError(5, "disk")))


def test_an_upload_stops_when_it_shall(stage: Stage) -> None:
    """An upload is cancelled between two pieces, and not reported as a failure of the service."""
    transfer = stage.transfer(lambda request: httpx.Response(200, json=ENTRY))
    with pytest.raises(Cancelled):
        transfer.upload("z", "p", "n", [b"abc"], 3, cancelled=lambda: True)
    assert stage.link.state == "online"


def test_the_upload_limit_is_kept(stage: Stage) -> None:
    """Large pieces are split, so that a low limit gives a steady flow."""
    time = Time()
    transfer = stage.transfer(
        lambda request: httpx.Response(200, json=ENTRY), upload_limit=10_000, **time.options
    )
    upload(transfer, [b"x" * 100_000], 100_000)
    assert time.now == pytest.approx(9)


def test_an_upload_that_waits_for_the_limit_stops_at_once(stage: Stage) -> None:
    """A pause or the end of the mount does not wait for a piece, and the piece is not sent."""
    time = Time()
    transfer = stage.transfer(
        lambda request: httpx.Response(200, json=ENTRY), upload_limit=1, **time.options
    )
    with pytest.raises(Cancelled):
        transfer.upload("z", "p", "n", [b"x" * 4096], 4096, cancelled=lambda: time.now > 0)
    assert time.now < 1
    time.slept = transfer.hang_up
    body = iter(MultipartBody("n", [b"x" * 4096], 4096, passing=transfer._up.take))
    assert len(list(body)) == 3 and time.now < 2


@given(st.integers(1000, 10**9), st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_no_more_than_the_rate_passes(rate: int, amounts: list[int]) -> None:
    """Over any time span at most the rate passes, plus one second's worth at the start."""
    time = Time()
    bucket = TokenBucket(rate, **time.options)
    for amount in amounts:
        bucket.take(amount)
        assert 4096 <= bucket.piece <= 1 << 20
    assert sum(amounts) <= rate * (time.now + 1) * 1.000001


def test_zero_is_no_limit() -> None:
    TokenBucket(0, sleep=lambda seconds: (_ for _ in ()).throw(AssertionError)).take(1 << 40)


def test_a_cancelled_piece_takes_nothing_from_others() -> None:
    """Many uploads that are cancelled while they wait do not delay the next one."""
    time = Time()
    bucket = TokenBucket(10_000, **time.options)
    bucket.take(10_000)
    for _ in range(100):
        bucket.take(4096, is_over=lambda: True)
    bucket.take(5000)
    assert time.now <= 0.51


class Renewed(httpx.Auth):
    """Authentication that answers a 401 with another bearer, as after a logon elsewhere."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield request
        if response.status_code == 401 and request.extensions.get("replayable", True):
            request.headers["Authorization"] = "Bearer new"
            yield request


@pytest.mark.parametrize("again", [True, False])
def test_a_renewed_logon_sends_the_body_again(stage: Stage, again: bool) -> None:
    """A repeatable body is sent again; otherwise the caller must repeat the upload."""

    def handle(request: httpx.Request) -> httpx.Response:
        if "Authorization" not in request.headers:
            return httpx.Response(401)
        assert b"abc" in request.content
        return httpx.Response(200, json=ENTRY)

    transfer = stage.transfer(handle)
    transfer._client.auth = Renewed()
    body: Iterable[bytes] = Piece(b"abc") if again else iter([b"abc"])
    if again:
        upload(transfer, body)
        assert len(stage.requests) == 2
    else:
        with pytest.raises(errors.NotLoggedOn):
            upload(transfer, body)
