"""Web server (nginx) in front of a sandbox, as in deployments, with optional HTTP/2.

Knows nothing of zonedrive.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually

_CONFIGURATION = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
  log_format said '$connection $server_protocol $status $request_method $uri';
  access_log {folder}/access.log said;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  upstream sandbox {{ server {upstream}; keepalive 32; }}
  server {{
    listen 127.0.0.1:{port} ssl{http2};
    ssl_certificate {folder}/chain.pem;
    ssl_certificate_key {folder}/key.pem;
    keepalive_requests {requests};
    {locations}
    location / {{
      proxy_pass https://sandbox;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_request_buffering off;
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Request:
    """Request in the web server's log."""

    connection: int
    protocol: str  # HTTP/2.0, HTTP/1.1
    status: int
    method: str
    path: str


class Front:
    """Running nginx, which forwards everything to a sandbox."""

    def __init__(
        self,
        upstream: str,
        folder: Path,
        *,
        http2: bool = True,
        requests: int = 1000,
        locations: str = "",
    ) -> None:
        """Serve below `folder`.

        `requests`: number of requests after which the server closes a connection.  `locations`:
        answers of the server itself, in nginx's syntax.
        """
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
        assert program, "nginx is missing: run packaging/setup --tests"
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        self.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(folder / "chain.pem", append=True)
        # nginx takes over a socket that listens already, as when its program is replaced: no other
        # process can get the port in between.
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(listener.getsockname()[1])
        self.base_url = f"https://127.0.0.1:{self.port}"
        self._folder = folder
        self._values = {
            "folder": folder,
            "upstream": upstream.removeprefix("https://"),
            "port": self.port,
            "requests": requests,
            "http2": " http2" if http2 else "",
        }
        self.configure(locations)
        with (folder / "stderr.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-p", folder, "-c", folder / "nginx.conf"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                pass_fds=[listener.fileno()],
                env=os.environ | {"NGINX": f"{listener.fileno()};"},
            )
        eventually(self._is_up, what="nginx has a worker")
        listener.close()

    def configure(self, locations: str = "") -> None:
        """Write the settings; `reload` applies them in a running server."""
        text = _CONFIGURATION.format(**self._values, locations=locations)
        (self._folder / "nginx.conf").write_text(text)

    def reload(self, locations: str = "") -> None:
        """Replace the worker: connections end (GOAWAY) as soon as their requests are answered."""
        before = self._workers()
        self.configure(locations)
        self._process.send_signal(signal.SIGHUP)
        eventually(lambda: self._workers() - before, what="nginx has a new worker")

    def requests(self) -> list[Request]:
        """Return all answered requests."""
        found = []
        for line in (self._folder / "access.log").read_text().splitlines():
            connection, protocol, status, method, path = line.split(" ", 4)
            found.append(Request(int(connection), protocol, int(status), method, path))
        return found

    def kill(self) -> None:
        """Kill the worker: its connections break in the middle of a transfer."""
        before = self._workers()
        for pid in before:
            os.kill(int(pid), signal.SIGKILL)
        eventually(lambda: self._workers() - before, what="nginx has a new worker")

    def close(self) -> None:
        """Stop the server with all its connections."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)

    def _workers(self) -> set[str]:
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return set(path.read_text().split())

    def _is_up(self) -> bool:
        assert self._process.poll() is None, (self._folder / "stderr.log").read_text()
        return bool(self._workers())


@contextmanager
def front(
    upstream: Deployment | None = None,
    *,
    http2: bool = True,
    requests: int = 1000,
    locations: str = "",
) -> Iterator[Front]:
    """Run a server inside the block; without `upstream` it forwards nothing."""
    folder = Path(tempfile.mkdtemp(prefix="zdfront"))
    try:
        address = "127.0.0.1:9" if upstream is None else upstream.base_url
        serving = Front(address, folder, http2=http2, requests=requests, locations=locations)
        try:
            yield serving
        finally:
            serving.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
