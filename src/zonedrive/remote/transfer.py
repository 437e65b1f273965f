"""Download and upload of content: streams in worker threads, on separate connections.

Knows nothing about caches, the outbox or the location of the bytes. All methods block.

INVARIANT: a download that stops flowing ends with an error. Time that the consumer takes between
chunks is not counted.
INVARIANT: an upload that was sent completely and got no answer ends with ReplyLost.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator

import httpx

from zonedrive.errors import (
    BadAnswer,
    Interrupted,
    RemoteError,
    ReplyLost,
    Unavailable,
    Unreachable,
)
from zonedrive.model import Entry
from zonedrive.remote.clients import BlockingClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.download import Buffer, Download, extent, pieces
from zonedrive.remote.profiles.load import Profile
from zonedrive.remote.rate_limit import TokenBucket
from zonedrive.remote.response_limits import CONTENT as BOUNDLESS
from zonedrive.remote.response_limits import EXTENSION as LIMITS
from zonedrive.remote.response_limits import Limits, restrict
from zonedrive.remote.retry import Backoff, retry_after, worth_another
from zonedrive.remote.transport.exchange import EARLY, WHOLE
from zonedrive.remote.urls import fill_path, host_of
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.multipart import Cancelled, MultipartBody

CONTENT = "/api/zones/{zone}/files/{file}/content"
UPLOAD = "/api/zones/{zone}/files/{folder}"
CHUNK = 512 * 1024
OPEN_SECONDS = 20.0  # for the first byte of a download, with all its repetitions
CONNECT_SECONDS = 10.0
HEAD_SECONDS = 15.0  # for the head of one answer to a download
WRITE_SECONDS = 30.0
# The answer to an upload may take long, because the service checks or copies the content.
ANSWER_SECONDS = 30.0
DIGESTED = 10e6  # bytes per second that the service processes, at least
BACKOFF = Backoff(attempts=3)

__all__ = ["Cancelled", "Download", "Transfer"]


class Transfer:
    """Downloads and uploads of one service. Thread-safe; every method blocks."""

    def __init__(
        self,
        client: httpx.Client,
        base_url: str,
        link: Connectivity,
        profile: Profile,
        *,
        upload_limit: int = 0,
        download_limit: int = 0,
        backoff: Backoff = BACKOFF,
        open_seconds: float = OPEN_SECONDS,
        head_seconds: float = HEAD_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Take ownership of `client`: close closes it. Limits are in bytes per second, 0 for none.

        `head_seconds` limits the wait for the head of an answer to a download, `answer_seconds` for
        the whole answer to an upload, which is extended according to DIGESTED.
        """
        restrict(client)
        self.link = link
        self._client = client
        self._connections = (
            client.transport.connections if isinstance(client, BlockingClient) else None
        )
        self._base_url = base_url
        self._host = host_of(base_url)
        self._profile = profile
        self._up = TokenBucket(upload_limit, clock=clock, sleep=sleep)
        self._down = TokenBucket(download_limit, clock=clock, sleep=sleep)
        self._backoff = backoff
        self._open_seconds, self._head_seconds = open_seconds, head_seconds
        self._answer_seconds = answer_seconds
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._ending = False

    def hang_up(self) -> None:
        """Abort all current and future transfers at once; they end with Interrupted."""
        self._ending = True
        if self._connections is not None:
            self._connections.hang_up()

    def reconnect(self, *, dead: bool) -> None:
        """Close idle connections; `dead`: also abort transfers in progress."""
        if self._connections is not None:
            if dead:
                self._connections.cut()
            self._connections.drop_idle()

    def prepare(self) -> None:
        """Open a connection, because a download is likely to follow. Errors are ignored.

        libcurl keeps a connection only after a request, so a request without logon is sent that has
        no effect.
        """
        if self._ending or self.link.state != "online" or self._connections is None:
            return
        if not self._connections.has_idle():
            timeout = httpx.Timeout(CONNECT_SECONDS)
            with contextlib.suppress(httpx.HTTPError):
                self._client.request(
                    "OPTIONS", self._base_url, auth=None, timeout=timeout, extensions={WHOLE: True}
                )

    def close(self) -> None:
        """Close all connections; transfers in progress end with an error."""
        self.hang_up()
        self._client.close()

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        validator: str | None = None,
        version: str | None = None,
    ) -> Download:
        """Return the content of a file from `offset` up to `end`, as a context manager.

        A service that ignores ranges sends everything: see `Download.offset`.

        With `validator` (of an earlier Download), a service that supports ranges sends everything
        from 0 if the content has changed. `version` names an old version, which needs
        version_content in the profile (else NotSupported). Opening is retried a few times if that
        may help.
        """
        doing = "reading a file"
        if version is None:
            path = fill_path(CONTENT, {"zone": zone_id, "file": file_id})
            query: dict[str, str] = {}
        else:
            values = {"zone": zone_id, "file": file_id, "entry": file_id, "version": version}
            request = self._profile.operation("version_content").request(values)
            path, query = request.path, dict(request.query)
        headers = {"Accept": "*/*"}
        if offset or end is not None:
            headers["Range"] = f"bytes={offset}-{'' if end is None else end - 1}"
            # A weak tag may not stand in If-Range, a date may.
            if validator and not validator.startswith("W/"):
                headers["If-Range"] = validator
        deadline = self._clock() + self._open_seconds
        failures = 0
        while True:
            self.link.check()
            exchange = _Exchange("GET", path, doing, headers, query=query)
            try:
                return self._download(self._send(exchange), offset, end, doing)
            except RemoteError as error:
                failures += 1
                wait = None
                if worth_another(error):
                    remaining = deadline - self._clock()
                    wait = self._backoff.delay(failures, self._chance(), remaining, exchange.wish)
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
        """Upload `size` bytes of `body` as `name` into a folder; return the resulting entry.

        `body` should be repeatable, so that the upload can continue after a renewal of the logon.
        The request is sent once and never retried. Raises ReplyLost if everything was sent but the
        result is unknown (also if the answer cannot be read), Interrupted or another Unreachable if
        the upload certainly had no effect, Cancelled once `cancelled()` is true, StoreError if
        `body` does not have `size` bytes, and the error of a rejection.
        """
        doing = "uploading"
        path = fill_path(UPLOAD, {"zone": zone_id, "folder": folder_id})
        form = MultipartBody(
            name,
            body,
            size,
            cancelled=cancelled,
            passing=self._up.take,
            piece=min(CHUNK, self._up.piece),
        )
        self.link.check()
        headers = {
            "Accept": "application/json",
            "Content-Type": form.content_type,
            "Content-Length": str(form.length),
        }
        response = self._send(_Exchange("POST", path, doing, headers, form=form))
        return uploaded(response.content, zone_id, folder_id, name)

    def chunks(self, response: httpx.Response, download: Download) -> Iterator[Buffer]:
        """Yield the body of a download, with stall detection and rate limit."""
        limit = min(CHUNK, self._down.piece)
        source = pieces(response, limit, download.offset, download.spare)
        while True:
            try:
                chunk = next(source, None)
            except (httpx.HTTPError, httpx.StreamError) as wrong:
                error = error_mapping.broken(wrong, self._host, download.doing)
                if not download.aborted:
                    self.link.note_failure(error)
                raise error from wrong
            if chunk is None:
                return
            self._down.take(len(chunk))
            yield chunk

    def _download(
        self, response: httpx.Response, offset: int, wanted: int | None, doing: str
    ) -> Download:
        """Return the Download for an opened response, after a check of its announced range."""
        try:
            start, end, total = extent(response, offset, doing)
        except BadAnswer as error:
            response.close()
            self.link.note_failure(error)
            raise
        if response.status_code == 416:
            response.close()
        return Download(response, start, total, end, self, doing, wanted)

    def _send(self, exchange: "_Exchange") -> httpx.Response:
        """Send a request: return an open response for a download, a complete one for an upload.

        Raises RemoteError for any other answer.
        """
        began = self.link.now()
        try:
            response = self._exchanged(exchange)
        except RemoteError as error:
            if not (exchange.form and isinstance(error, Unavailable) and error.is_overload):
                self.link.note_failure(error, began)
            if isinstance(error, Unreachable) and self._connections is not None:
                self._connections.drop_idle()
            raise
        self.link.note_answer()
        return response

    def _exchanged(self, exchange: "_Exchange") -> httpx.Response:
        if self._ending:
            raise Interrupted(f"{exchange.doing}: zonedrive is ending")
        form = exchange.form
        seconds = self._head_seconds
        if form is not None:
            seconds = self._answer_seconds + form.length / DIGESTED
        request = self._client.build_request(
            exchange.method,
            self._base_url + exchange.path,
            params=exchange.query or None,
            headers=exchange.headers,
            content=form,
            timeout=httpx.Timeout(
                connect=CONNECT_SECONDS, read=seconds, write=WRITE_SECONDS, pool=None
            ),
            extensions={
                "replayable": form is None or form.replayable,
                LIMITS: BOUNDLESS if form is None else Limits(),
            }
            | ({} if form is None else {WHOLE: True}),
        )
        status, body, location = 0, b"", ""
        try:
            response = self._client.send(request, stream=True)
            status, location = response.status_code, response.headers.get("Location", "")
            exchange.wish = retry_after(response.headers.get("Retry-After"), time.time())
            if exchange.keeps(response):
                return response
            try:
                body = response.read()
            finally:
                response.close()
            if response.is_success:
                if exchange.is_early(response):
                    raise Interrupted(f"{exchange.doing}: {self._host} answered before it had all")
                return response
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as wrong:
            if status < 300:  # else the status alone shows that the request had no effect
                raise error_mapping.broken(
                    wrong, self._host, exchange.doing, sent=exchange.handed_over
                ) from wrong
        if 300 <= status < 400:
            raise error_mapping.redirected(status, location, exchange.doing, self._base_url)
        early = exchange.form is not None and not exchange.handed_over
        error = error_mapping.refusal(
            status, body, exchange.doing, retry_after=exchange.wish, early=early
        )
        if exchange.handed_over and status in error_mapping.LOST:
            raise error_mapping.lost(error)
        raise error


def uploaded(body: bytes, zone_id: str, folder_id: str, name: str) -> Entry:
    """Return the entry in the answer to an upload. Raises ReplyLost if it cannot be read."""
    doing = "uploading"
    try:
        answer = wire.parse(body, doing)
        entry = wire.one_entry(
            answer, doing, zone_id=zone_id, parent_id=folder_id, name=name, is_file=True
        )
        if not (entry.modified_ns and entry.modified_by):  # listings would differ
            raise BadAnswer(f"{doing}: the answer does not say when or by whom")
        if (entry.zone_id, entry.parent_id) != (zone_id, folder_id):  # a wrong id
            raise BadAnswer(f"{doing}: the answer is about something in another folder")
        return entry
    except BadAnswer as wrong:
        raise ReplyLost(f"{wrong.message}, so what became of it is unknown") from wrong


class _Exchange:
    """One request, and the retry delay that the service asks for."""

    def __init__(
        self,
        method: str,
        path: str,
        doing: str,
        headers: dict[str, str],
        *,
        query: dict[str, str] | None = None,
        form: MultipartBody | None = None,
    ) -> None:
        self.method, self.path, self.doing, self.headers = method, path, doing, headers
        self.query, self.form = query, form
        self.wish: float | None = None

    @property
    def handed_over(self) -> bool:
        """True if the service may have received the whole upload."""
        return self.form is not None and self.form.complete

    def is_early(self, response: httpx.Response) -> bool:
        """Return True if the answer began before the upload was sent completely."""
        return self.form is not None and (
            not self.form.complete or response.extensions.get(EARLY, False)
        )

    def keeps(self, response: httpx.Response) -> bool:
        """Return True if the caller reads the body of this answer."""
        return self.form is None and (response.is_success or response.status_code == 416)
