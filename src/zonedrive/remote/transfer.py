"""Download and upload of file content in worker threads, on connections of their own.

This module does not depend on caches, the upload queue or local storage. All methods block.

INVARIANT: a download ends after its last byte or with an exception. A download that stalls ends
with an exception; the time that the consumer spends between two chunks does not count.
INVARIANT: an upload that was sent completely and got no response ends with ReplyLost.
"""

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

import httpx

from zonedrive.errors import (
    BadAnswer,
    EndpointRefused,
    Forbidden,
    Interrupted,
    RemoteError,
    Unreachable,
    UnusableReply,
)
from zonedrive.model import Entry
from zonedrive.remote.clients import BlockingClient, read_body_blocking
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.profiles.operations import Profile
from zonedrive.remote.request_times import Kind
from zonedrive.remote.retry import Backoff
from zonedrive.remote.service import Transfers
from zonedrive.remote.transport.exchange import EARLY, WHOLE
from zonedrive.remote.transport.transports import BODY, Body
from zonedrive.remote.urls import REQUIREMENTS, ZONES, Request, fill_path
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.entries import one_entry
from zonedrive.remote.wire.fields import parse
from zonedrive.remote.wire.multipart import Cancelled as Cancelled
from zonedrive.remote.wire.multipart import MultipartBody

CONTENT: Final = "/api/zones/{zone}/files/{file}/content"
UPLOAD: Final = "/api/zones/{zone}/files/{folder}"
CHUNK: Final = 512 * 1024
OPEN_SECONDS: Final = 20.0  # for opening a download, including all retries
CONNECT_SECONDS: Final = 10.0
HEAD_SECONDS: Final = 15.0  # for the headers of one response to a download
WRITE_SECONDS: Final = 30.0
# The response to an upload may take long, because the service checks or copies the content.
ANSWER_SECONDS: Final = 30.0
DIGESTED: Final = 10e6  # bytes per second that the service is assumed to process at least
BACKOFF: Final = Backoff(attempts=3)
# Statuses of services that refuse every request with a Range header.
RANGE_REFUSED: Final = frozenset({400, 405, 416, 501})
SLICE_SECONDS: Final = 0.2  # longest sleep before the next test whether a transfer has ended

_RANGE: Final = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


class TokenBucket:
    """Rate limiter for several threads; `rate` is in bytes per second, 0 for no limit.

    INVARIANT: over a long time, at most `rate` bytes per second pass. A burst has at most `rate`
    bytes.
    """

    def __init__(
        self,
        rate: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(rate)
        self._filled = clock()
        self._is_open = False

    @property
    def piece(self) -> int:
        """Number of bytes for one call to `take`; small if the rate is low, for a steady flow."""
        return max(4096, min(1 << 20, self.rate // 8)) if self.rate else 1 << 20

    def open(self) -> None:
        """Make all current and later calls to `take` return without further delay.

        Call this when all transfers are to end; `take` then no longer limits the rate.
        """
        self._is_open = True

    def take(self, amount: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Block until `amount` bytes may pass at the configured rate.

        While the method blocks, `is_over` is called several times per second. If it returns True,
        the transfer has ended; the method then returns early, and does not count the bytes.
        """
        if not self.rate:
            return
        with self._lock:
            now = self._clock()
            self._tokens = min(self.rate, self._tokens + (now - self._filled) * self.rate)
            self._filled = now
            self._tokens -= amount
            end = now - self._tokens / self.rate
        while (left := end - self._clock()) > 0 and not self._is_open:
            if is_over():
                with self._lock:
                    self._tokens += amount
                return
            self._sleep(min(left, SLICE_SECONDS))


class Transfer(Transfers):
    """Client for downloads from and uploads to one service. Thread-safe; every method blocks."""

    def __init__(
        self,
        client: BlockingClient,
        link: Connectivity,
        profile: Profile,
        *,
        upload_limit: int = 0,
        download_limit: int = 0,
        open_seconds: float = OPEN_SECONDS,
        head_seconds: float = HEAD_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Take ownership of `client`.

        `upload_limit` and `download_limit` are in bytes per second, 0 for no limit. `open_seconds`
        limits the opening of a download with all retries, `head_seconds` the wait for the headers
        of each response. `answer_seconds` limits the wait for the whole response to an upload; it
        is extended by one second for every `DIGESTED` bytes of the request.
        """
        self.link = link
        self._client = client
        self._connections = client.transport.connections
        self._profile = profile
        self._up = TokenBucket(upload_limit, clock=clock, sleep=sleep)
        self._down = TokenBucket(download_limit, clock=clock, sleep=sleep)
        self._open_seconds, self._head_seconds = open_seconds, head_seconds
        self._answer_seconds = answer_seconds
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._ending = False

    def hang_up(self) -> None:
        self._ending = True
        self._connections.hang_up()
        self._up.open()
        self._down.open()

    def reconnect(self, *, dead: bool) -> None:
        """Close idle connections; if `dead`, also abort the transfers in progress."""
        if dead:
            self._connections.cut()
        self._connections.drop_idle()

    def prepare(self) -> None:
        if self._ending or self.link.state != "online" or self._connections.has_idle():
            return
        # libcurl keeps a connection only after a request. This one needs no token.
        timeout, extensions = httpx.Timeout(CONNECT_SECONDS), {WHOLE: True}
        request = Request("GET", REQUIREMENTS)
        made = self._client.request(request, timeout=timeout, extensions=extensions)
        with contextlib.suppress(httpx.HTTPError):
            response = self._client.transport.handle_request(made)
            try:
                read_body_blocking(response)
            finally:
                response.close()

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        version: str | None = None,
    ) -> "Download":
        doing = "reading a file"
        if version is None:
            path = fill_path(CONTENT, {"zone": zone_id, "file": file_id})
            request = Request("GET", path, doing=doing, origin="published")
        else:
            values = {"zone": zone_id, "file": file_id, "entry": file_id, "version": version}
            request = self._profile.operation("version_content").request(values, doing)
        headers = {"Accept": "*/*"}
        if offset or end is not None:
            headers["Range"] = f"bytes={offset}-{'' if end is None else end - 1}"
        timeout = httpx.Timeout(
            connect=CONNECT_SECONDS, read=self._head_seconds, write=WRITE_SECONDS, pool=None
        )
        deadline = self._clock() + self._open_seconds
        failures = 0
        is_refused = is_logon_valid = False
        while True:
            self.link.check()
            made = self._client.request(request, headers=headers, timeout=timeout)
            try:
                if is_refused and not is_logon_valid:
                    self._check_logon(doing)
                    is_logon_valid = True
                with self._reported("download"):
                    response, _ = self._send(request, made)
                    return Download(
                        response, offset, end, doing,
                        host=self._client.host, link=self.link, limit=self._down,
                    )  # fmt: skip
            except EndpointRefused:
                if is_logon_valid:
                    raise
                is_refused = True
                continue
            except RemoteError as error:
                if error.status in RANGE_REFUSED and "Range" in headers:
                    del headers["Range"]
                    continue  # the service may have no ranges: request the whole content
                failures += 1
                remaining = deadline - self._clock()
                wait = BACKOFF.delay(error, failures, self._chance(), remaining)
                if wait is None:
                    raise
            self._sleep(wait)

    def upload(
        self,
        zone_id: str,
        folder_id: str,
        name: str,
        body: Iterable[bytes],
        size: int,
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Entry:
        path = fill_path(UPLOAD, {"zone": zone_id, "folder": folder_id})
        request = Request("POST", path, doing="uploading", origin="published")
        form = MultipartBody(
            name,
            body,
            size,
            cancelled=cancelled,
            passing=lambda amount: self._up.take(amount, cancelled),
            piece=min(CHUNK, self._up.piece),
        )
        self.link.check()
        answer_seconds = self._answer_seconds + len(form) / DIGESTED
        made = self._client.request(
            request,
            headers={"Content-Type": form.content_type},
            content=form,
            timeout=httpx.Timeout(
                connect=CONNECT_SECONDS, read=answer_seconds, write=WRITE_SECONDS, pool=None
            ),
            extensions={"replayable": form.replayable, WHOLE: True},
        )
        with self._reported("upload"):
            _, answer = self._send(request, made, form)
        return uploaded(answer, zone_id, folder_id, name)

    def _check_logon(self, doing: str) -> None:
        """Raise NotLoggedOn if the logon has ended and cannot be renewed."""
        timeout = httpx.Timeout(
            connect=CONNECT_SECONDS, read=self._head_seconds, write=WRITE_SECONDS, pool=None
        )
        request = Request("GET", ZONES, doing=doing, origin="published")
        made = self._client.request(request, timeout=timeout)
        # A limited but valid logon gets Forbidden.
        with contextlib.suppress(Forbidden), self._reported("metadata"):
            response, _ = self._send(request, made)
            response.close()

    @contextlib.contextmanager
    def _reported(self, kind: Kind) -> Iterator[None]:
        try:
            with self.link.reported(kind):
                yield
        except Unreachable:
            self._connections.drop_idle()
            raise

    def _send(
        self, request: Request, made: httpx.Request, form: MultipartBody | None = None
    ) -> tuple[httpx.Response, bytes]:
        """Send `made`, the httpx form of `request`; return the response and its body.

        `form` is the body of an upload. Without `form`, the response stays open, even with status
        416 (no bytes in the range), and the returned body is b"". Raises RemoteError for any other
        unsuccessful response, or if the request fails.
        """
        client, doing = self._client, request.doing
        if self._ending:
            raise Interrupted(f"{doing}: zonedrive is ending")
        status, headers, body = 0, httpx.Headers(), b""
        try:
            response = client.send(made)
            status, headers = response.status_code, response.headers
            if form is None and (response.is_success or status == 416):
                return response, b""
            with contextlib.closing(response):
                body = read_body_blocking(response)
        except httpx.HTTPError as wrong:
            if status < 300:  # else the status alone shows that the request had no effect
                sent = form is not None and form.complete
                raise error_mapping.broken(wrong, client.host, doing, sent=sent) from wrong
        else:
            if response.is_success:
                if not (form and form.complete) or response.extensions.get(EARLY):
                    raise Interrupted(f"{doing}: {client.host} answered before it had all")
                return response, body
        raise error_mapping.failed(
            status, headers, body, request, client.base_url,
            sent=form is not None and form.complete,
            early=form is not None and not form.complete,
        )  # fmt: skip


class Download:
    """Download in progress; a context manager that closes the download at the end.

    offset: position of the first byte; 0 if the service ignored the range.
    total: size of the whole content in bytes, None if the service does not state it.
    validator: the ETag, else Last-Modified, else None; a different value means different content.
    """

    def __init__(
        self,
        response: httpx.Response,
        offset: int,
        wanted: int | None,
        doing: str,
        *,
        host: str,
        link: Connectivity,
        limit: TokenBucket,
    ) -> None:
        """Take ownership of `response`, the response to a request for content.

        The request asked for the bytes from `offset` up to, but not including, `wanted` (None: the
        end of the content). Raises BadAnswer as `extent` does.
        """
        self._response = response
        try:
            self.offset, self._end, self.total = extent(response, offset, doing)
        except BadAnswer:
            response.close()
            raise
        if response.status_code == 416:  # the content ends before `offset`
            response.close()
        headers = response.headers
        self.validator: str | None = headers.get("ETag") or headers.get("Last-Modified")
        self._body: Body = response.extensions[BODY]
        self._wanted = wanted
        self._doing, self._host, self._link, self._limit = doing, host, link, limit
        self._is_aborted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection, or return it to the pool if everything was read."""
        self.close()

    def close(self) -> None:
        """Stop the download. Call this from the thread that iterates over the download."""
        self._response.close()

    def abort(self) -> None:
        """Make the iteration in another thread end soon, with an error if bytes are missing.

        A call has no effect after `close`, or if all bytes have arrived. In the latter case, the
        connection is back in the pool and may already carry an upload, which must not be aborted.
        """
        self._is_aborted = True
        self._body.abort()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes from `offset` in chunks of up to a few hundred KiB. Iterate only once.

        Raises BadAnswer if the number of bytes differs from the announced one, Interrupted or
        TimedOut if the connection breaks or stalls.
        """
        if self._response.status_code == 416:
            return
        position = self.offset
        try:
            for chunk in self._chunks():
                self._limit.take(len(chunk), lambda: self._is_aborted)
                position += len(chunk)
                if self._end is not None and position > self._end:
                    raise self._wrong(f"more than the announced {self._end} bytes arrived")
                yield chunk
        except httpx.HTTPError as wrong:
            raise self._noted(error_mapping.broken(wrong, self._host, self._doing)) from wrong
        if self._end is not None and position < self._end:
            raise self._wrong(f"only {position} of {self._end} bytes arrived")
        if self.total is not None and position < min(self.total, self._wanted or self.total):
            raise self._wrong(f"the service ends the range at {position} of {self.total} bytes")

    def _chunks(self) -> Iterator[bytes]:
        """Yield the body in chunks.

        If the network is fast enough, chunks end at offsets that are multiples of the chunk size.
        """
        size = min(CHUNK, self._limit.piece)
        position = self.offset
        while chunk := self._body.read(size - position % size):
            position += len(chunk)
            yield chunk

    def _wrong(self, what: str) -> RemoteError:
        return self._noted(BadAnswer(f"{self._doing}: {what}"))

    def _noted(self, error: RemoteError) -> RemoteError:
        """Report `error` to `Connectivity` unless the download was aborted; return `error`."""
        if not self._is_aborted:
            self._link.note_failure(error)
        return error


def extent(response: httpx.Response, offset: int, doing: str) -> tuple[int, int | None, int | None]:
    """Return the start and the end of the bytes in `response`, and the size of the whole content.

    The end is exclusive. The end and the size are None if the service does not state them. A
    response with status 200 contains the whole content. Raises BadAnswer for any other response
    whose range is missing or malformed, or does not start at `offset`.
    """
    length = response.headers.get("Content-Length", "")
    size = int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None
    status = response.status_code
    if status == 200:
        return 0, size, size
    match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match and status == 206 and match[1]:
        start, last = int(match[1]), int(match[2])
        total = None if match[3] == "*" else int(match[3])
        if start == offset and last >= start and (total is None or last < total):
            return start, last + 1, total
    if match and status == 416 and match[3] != "*" and int(match[3]) <= offset:
        return offset, offset, int(match[3])
    raise BadAnswer(f"{doing}: the answer has no usable range (HTTP {status})", status=status)


def uploaded(body: bytes, zone_id: str, folder_id: str, name: str) -> Entry:
    """Return the entry in the response to an upload.

    `zone_id`, `folder_id` and `name` replace missing members. The entry may lack its time or
    author. Raises UnusableReply if the entry is unusable or in another folder.
    """
    doing = "uploading"
    try:
        entry = one_entry(
            parse(body, doing),
            doing,
            zone_id=zone_id,
            parent_id=folder_id,
            name=name,
            is_file=True,
        )
        if (entry.zone_id, entry.parent_id) != (zone_id, folder_id):  # a wrong id
            raise BadAnswer(f"{doing}: the answer is about something in another folder")
        return entry
    except BadAnswer as wrong:
        raise UnusableReply(f"{wrong.message}, so its effect is unknown") from wrong
