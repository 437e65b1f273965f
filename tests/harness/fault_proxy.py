"""TLS proxy for a sandbox that answers as a faulty service would, or under other addresses.

Knows nothing of zonedrive.  Requests that `about` does not select (by default: all but content)
pass unchanged.
"""

import json
import shutil
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import trustme

from tests.harness.deployment import Deployment

_OWN = {"connection", "transfer-encoding", "content-length", "date", "server"}


@dataclass
class Asked:
    """Received request; `alter_request` may change what the service gets of it."""

    method: str
    path: str  # with its query
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """Service's answer to a request; `alter` may change any part of it."""

    asked: Asked  # as it came
    status: int
    headers: dict[str, str]
    body: bytes
    length: int  # what Content-Length is to say
    pause: float = 0.0  # seconds before each byte, 0: all at once
    cut: bool = field(default=False)  # hang up after the body
    raw: Iterable[bytes] | None = None  # sent as it is instead of all that, head included

    def say(self, value: object) -> None:
        """Answer with JSON."""
        self.body = json.dumps(value).encode()
        self.length = len(self.body)


AlterAnswer = Callable[[Answer], None]
AlterRequest = Callable[[Asked], None]


def content(asked: Asked) -> bool:
    """Return True if a request asks for the content of a file."""
    return asked.method == "GET" and asked.path.endswith("/content")


class FaultProxy:
    """Proxy with configurable faults.

    Set `alter` and `about` at any time.  `asked` has the received Range headers, `came` all
    received requests.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zdme"))
        self.alter: AlterAnswer = lambda _answer: None
        self.about: Callable[[Asked], bool] = content
        self.alter_request: AlterRequest = lambda _asked: None
        self.came: list[Asked] = []
        self.ranges = True  # whether a Range is passed on
        self.asked: list[str] = []
        self.over = threading.Event()
        authority = trustme.CA()
        self.ca_file = self.folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        trust = ssl.create_default_context(cafile=deployment.ca_file)
        self.service = httpx.Client(base_url=deployment.base_url, verify=trust, timeout=60)
        self._server = _Server(self, context)
        self.base_url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Stop the proxy and all of its connections."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)
        self.service.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: FaultProxy, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that the client aborted."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _pass_on(self) -> None:
        proxy = self.server.proxy
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {*_OWN, "host"}}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        came = Asked(self.command, self.path, dict(headers), body)
        asked = Asked(self.command, self.path, headers, body)
        proxy.came.append(came)
        if content(came):
            proxy.asked.append(self.headers.get("Range", ""))
            if not proxy.ranges:
                headers.pop("Range", None)
        proxy.alter_request(asked)
        found = proxy.service.request(
            asked.method, asked.path, headers=asked.headers, content=asked.body
        )
        kept = {k: v for k, v in found.headers.items() if k.lower() not in _OWN}
        answer = Answer(came, found.status_code, kept, found.content, len(found.content))
        if proxy.about(came):
            proxy.alter(answer)
        self._say(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _pass_on  # noqa: N815

    def _say(self, answer: Answer) -> None:
        if answer.raw is not None:
            for piece in answer.raw:
                if self.server.proxy.over.is_set():
                    break
                self.wfile.write(piece)
            self.close_connection = answer.cut
            return
        self.send_response_only(answer.status)
        self.send_header("Date", answer.headers.pop("Date", self.date_time_string()))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(answer.length))
        self.end_headers()
        if answer.pause:
            for byte in answer.body:
                if self.server.proxy.over.wait(answer.pause):
                    break
                self.wfile.write(bytes([byte]))
        else:
            self.wfile.write(answer.body)
        self.close_connection = answer.cut
