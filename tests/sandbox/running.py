"""Sandbox in a separate process, and users who call it over TLS.

Knows nothing of zonedrive's client, and of the sandbox only what is published and its paths.
"""

import contextlib
import json
import os
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.harness import starter

DEADLINE_SECONDS = 60.0
PASSWORDS = {
    "alice@acme.example": "correct horse",
    "bob@acme.example": "battery staple",
    "carol@acme.example": "paper clip",
    "dave@acme.example": "night train",
    "erin@acme.example": "green ledger",
    "newbie@acme.example": "first day",
}
SECRET = "JBSWY3DPEHPK3PXP"

# `more` is put into [organization]; one zone for each level and rule that tests look at.
WORLD = """
[organization]
name = "Acme"
domain = "acme.example"
{more}

[[users]]
id = "alice@acme.example"
name = "Alice"
password = "correct horse"
administrator = true
otp_secret = "JBSWY3DPEHPK3PXP"

[[users]]
id = "bob@acme.example"
name = "Bob"
password = "battery staple"
otp_secret = "JBSWY3DPEHPK3PXP"

[[users]]
id = "carol@acme.example"
name = "Carol"
password = "paper clip"

[[users]]
id = "dave@acme.example"
name = "Dave"
password = "night train"

[[users]]
id = "erin@acme.example"
name = "Erin"
password = "green ledger"

[[users]]
id = "newbie@acme.example"
name = "Newbie"
password = "first day"
password_change_required = true

[[groups]]
name = "Night shift"
members = [{{ id = "dave@acme.example", access = "Manage" }}]

[[groups]]
name = "Engineering"
members = [
    {{ id = "bob@acme.example", access = "Manage" }},
    {{ group = "Night shift", access = "Access" }},
]

[[zones]]
name = "Project X"
description = "The main one"
manager = "alice@acme.example"
members = [
    {{ id = "bob@acme.example", access = "Modify" }},
    {{ id = "carol@acme.example", access = "Add" }},
    {{ group = "Engineering", access = "Add" }},
]
allow_external_sharing = true

[[zones]]
name = "Closed"
manager = "alice@acme.example"
members = [{{ id = "bob@acme.example", access = "Modify" }}]
accessible = false

[[zones]]
name = "Alice alone"
manager = "alice@acme.example"
"""


def eventually(check: Callable[[], Any], what: str) -> Any:
    """Return the first true result of `check`, which is called until a deadline."""
    until = time.monotonic() + DEADLINE_SECONDS
    while not (answer := check()):
        assert time.monotonic() < until, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.01)
    return answer


def world(more: str = "") -> str:
    """Return the text of the world above with other settings."""
    return WORLD.format(more=more)


class Service:
    """Sandbox on a folder, which can be stopped, killed and started again."""

    def __init__(self, folder: Path, world_text: str | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._ready = folder / "ready.json"
        self._world = folder / "world.toml"
        self._filled_from_file = world_text is not None
        if world_text is not None:
            self._world.write_text(world_text)
        self._kept: socket.socket | None = None
        self._clients: list[httpx.Client] = []
        self._regulars: dict[str, Person] = {}
        self.start()

    def start(self) -> None:
        """Start the sandbox and wait until it is ready."""
        self._ready.unlink(missing_ok=True)
        chosen: list[str | Path] = ["--world", self._world] if self._filled_from_file else []
        words: list[str | Path] = ["--data", self.data, "--ready-file", self._ready, *chosen]
        with (self.folder / "log").open("ab") as log:
            self.process = starter.start_logged(starter.SANDBOX, words, log.fileno())

        def answers() -> bool:
            assert self.process.poll() is None, self.log()
            return self._ready.exists()

        eventually(answers, "the sandbox answers")
        self._give_port()
        self.ready: dict[str, Any] = json.loads(self._ready.read_bytes())
        self.base_url: str = self.ready["base_url"]
        self.host, self.port = "127.0.0.1", int(self.base_url.rpartition(":")[2])
        self.context = ssl.create_default_context(cafile=self.ready["ca_file"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the sandbox with a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_SECONDS)
        self._keep_port()
        return code

    def _keep_port(self) -> None:
        """Reserve the port until the next start."""
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            self._kept.bind((self.host, self.port))

    def _give_port(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def close(self) -> None:
        """Stop the sandbox and close all clients."""
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.stop()
        self._give_port()

    def log(self) -> str:
        """Return the output of its standard streams."""
        return (self.folder / "log").read_text()

    def tell(self, command: object) -> dict[str, Any]:
        """Send a command over the control socket; return the answer."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(DEADLINE_SECONDS)
            control.connect(self.ready["control"])
            control.sendall(json.dumps(command).encode() + b"\n")
            with control.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def fault(self, **order: Any) -> None:
        """Set a fault; without arguments, clear all faults."""
        assert self.tell({"fault": order or None}) == {"ok": True}

    def client(self, **headers: str) -> httpx.Client:
        """Return a client that is not logged on."""
        client = httpx.Client(
            base_url=self.base_url, verify=self.context, headers=headers, timeout=DEADLINE_SECONDS
        )
        self._clients.append(client)
        return client

    def person(self, user: str = "alice") -> "Person":
        """Return a user who is logged on by password."""
        user_id = f"{user}@acme.example"
        client = self.client()
        answer = logon(client, user_id, self.passwords()[user_id])
        assert answer.status_code == 200, answer.text
        client.headers["Authorization"] = "Bearer " + answer.json()["sessionId"]
        return Person(self, client, user_id)

    def passwords(self) -> dict[str, str]:
        """Return the passwords of the world above, or those that the sandbox created."""
        made = self.data / "passwords"
        if not made.exists():
            return PASSWORDS
        return dict(line.split(" ") for line in made.read_text().splitlines())

    def regular(self, user: str) -> "Person":
        """Return a user who is logged on once for all tests."""
        if user not in self._regulars:
            self._regulars[user] = self.person(user)
        return self._regulars[user]

    def expire_sessions(self) -> None:
        """End every session."""
        assert self.tell({"expire_sessions": True}) == {"ok": True}
        self._regulars.clear()

    def connect(self) -> ssl.SSLSocket:
        """Return a TLS connection."""
        raw = socket.create_connection((self.host, self.port), DEADLINE_SECONDS)
        return self.context.wrap_socket(raw, server_hostname=self.host)


@contextlib.contextmanager
def serving(world_text: str | None = None) -> Iterator[Service]:
    """Run a sandbox on a new folder; at the end, its log must have no traceback."""
    with tempfile.TemporaryDirectory(prefix="zdsx") as folder:
        service = Service(Path(folder), world_text)
        try:
            yield service
        finally:
            service.close()
            log = service.log()
        assert "Traceback" not in log, log


def logon(client: httpx.Client, user: str, password: str | None, **more: Any) -> httpx.Response:
    """Send a logon request with the password as an array of characters."""
    body: dict[str, Any] = {"username": user, **more}
    if password is not None:
        body["password"] = list(password)
    return client.post("/api/access/logon", json=body)


class Person:
    """User with a session, and operations in a zone."""

    def __init__(self, service: Service, client: httpx.Client, user_id: str) -> None:
        self.service = service
        self.client = client
        self.id = user_id
        self.get, self.post, self.put = client.get, client.post, client.put
        self.delete = client.delete

    @property
    def session(self) -> str:
        """Return the session id."""
        return str(self.client.headers["Authorization"]).removeprefix("Bearer ")

    def zones(self) -> dict[str, dict[str, Any]]:
        """Return the zones by name."""
        return {zone["name"]: zone for zone in self.get("/api/zones").json()}

    def zone(self, name: str = "Project X") -> "Zone":
        """Return one zone."""
        return Zone(self, self.zones()[name])


class Zone:
    """Zone as one user sees it."""

    def __init__(self, person: Person, record: dict[str, Any]) -> None:
        self.person = person
        self.record = record
        self.root: str = record["rootId"]
        self.url = f"/api/zones/{record['id']}"
        self.own = f"/api/sandbox/zones/{record['id']}"

    def by(self, person: Person) -> "Zone":
        """Return the same zone as another user sees it, who may not be a member."""
        return Zone(person, self.record)

    def upload(self, name: str, content: bytes = b"", folder: str | None = None) -> httpx.Response:
        """Upload a form to a folder (default: the root)."""
        return self.person.post(
            f"{self.url}/files/{folder or self.root}",
            files={"file": ("ignored.bin", content)},
            data={"fileName": name},
        )

    def begin_upload(
        self,
        name: str,
        folder: str | None = None,
        head: str = "Content-Length: 0",
        body: bytes = b"",
    ) -> ssl.SSLSocket:
        """Return a connection on which an upload has begun."""
        connection = self.person.service.connect()
        connection.sendall(
            f"POST {self.url}/files/{folder or self.root}?fileName={name} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self.person.session}\r\n{head}\r\n"
            "Content-Type: application/octet-stream\r\n\r\n".encode()
            + body
        )
        return connection

    def file(self, name: str, content: bytes = b"", folder: str | None = None) -> dict[str, Any]:
        """Upload a file; return its entry."""
        answer = self.upload(name, content, folder)
        assert answer.status_code == 200, answer.text
        entry: dict[str, Any] = answer.json()
        return entry

    def folder(self, name: str, parent: str | None = None) -> str:
        """Create a folder; return its id."""
        body = {"parentId": parent or self.root, "name": name}
        answer = self.person.post(f"{self.own}/folders", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def listing(self, folder: str | None = None) -> list[dict[str, Any]]:
        """Return the entries of a folder (default: the root)."""
        answer = self.person.get(f"{self.url}/folder/{folder or self.root}")
        assert answer.status_code == 200, answer.text
        entries: list[dict[str, Any]] = answer.json()
        return entries

    def names(self, folder: str | None = None) -> list[str]:
        """Return the names in a folder."""
        return [entry["name"] for entry in self.listing(folder)]

    def content(self, file_id: str, **headers: str) -> httpx.Response:
        """Return the answer with the content of a file."""
        return self.person.get(f"{self.url}/files/{file_id}/content", headers=headers)

    def versions(self, file_id: str) -> list[dict[str, Any]]:
        """Return the versions of a file, newest first."""
        answer = self.person.get(f"{self.own}/files/{file_id}/versions")
        assert answer.status_code == 200, answer.text
        versions: list[dict[str, Any]] = answer.json()
        return versions


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and APIError of a refusal, whose body must be the error structure."""
    body = answer.json()
    assert set(body) <= {"error", "message", "data"}, body
    assert isinstance(body["message"], str), body
    assert body["message"]
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, body["error"]


def receive_all(connection: socket.socket) -> bytes:
    """Return all bytes until the connection ends or is reset."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return received


def memory_peak(pid: int) -> int:
    """Return the peak memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError(os.fspath(f"/proc/{pid}/status"))
