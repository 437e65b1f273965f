"""Sandbox in a separate process, its faults, and coworkers who use it.

Knows nothing of zonedrive's own client: a test sees the service itself through `Person`.
"""

import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Self

import httpx

from tests.harness import starter, world
from tests.harness.plain_client import Answer, Client, form
from tests.harness.waiting import eventually

COMMAND = Path(sys.executable).with_name("zonedrive")
START_SECONDS = 60.0


class Deployment:
    """Running sandbox below `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        zones: int = world.ZONES,
        organization: str = "",
        world_file: Path | None = None,
        seconds: float = START_SECONDS,
    ) -> None:
        self.folder = folder
        self._world = world_file or world.write(folder, zones=zones, organization=organization)
        self._fresh = [f"Zone {number:02}" for number in range(zones, 0, -1)]
        self._people: dict[str, Person] = {}
        # Bound, but not listening, until the end: no other program gets it between stop and start.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self._port = self._reserved.getsockname()[1]
        try:
            self.start(seconds)
        except BaseException:
            self._reserved.close()
            raise

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start the sandbox at its former address; return when it answers."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with (self.folder / "sandbox.log").open("ab") as log:
            words: list[str | Path] = [
                "sandbox", "--data", self.folder / "data", "--world", self._world,
                "--port", str(self._port), "--ready-file", ready,
            ]  # fmt: skip
            self.process = starter.start_logged("zonedrive.__main__", words, log.fileno())

        def answers() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise RuntimeError(f"the sandbox ended: {self.log()[-2000:]}")
            return json.loads(ready.read_bytes()) if ready.exists() else None

        said = eventually(answers, seconds, what="the sandbox answers")
        assert said is not None
        self.base_url: str = said["base_url"]
        self.ca_file = Path(said["ca_file"])
        self._control = Path(said["control"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the sandbox; its data stay."""
        self.process.send_signal(number)
        self.process.wait(60)

    def close(self) -> None:
        """Stop the sandbox and close all connections."""
        self.forget_people()
        if self.process.poll() is None:
            self.stop()
        self._reserved.close()

    def forget_people(self) -> None:
        """Log all users on again when they are next needed."""
        for person in self._people.values():
            person.close()
        self._people.clear()

    def log(self) -> str:
        """Return the output of its standard streams."""
        return (self.folder / "sandbox.log").read_text("utf-8", "replace")

    def tell(self, request: object) -> dict[str, Any]:
        """Send one object to its control socket; return the answer."""
        folder = os.open(self._control.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(f"/proc/self/fd/{folder}/{self._control.name}")
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    answer: dict[str, Any] = json.loads(lines.readline())
        finally:
            os.close(folder)
        assert "error" not in answer, answer
        if isinstance(request, dict) and request.get("expire_sessions"):
            self.forget_people()  # their sessions are among them
        return answer

    def fault(self, **what: object) -> None:
        """Set a fault, as in the sandbox's documentation."""
        self.tell({"fault": what})

    def heal(self) -> None:
        """End all faults."""
        self.tell({"fault": None})

    @contextmanager
    def faulty(self, **what: object) -> Iterator[None]:
        """Set a fault for the block."""
        self.fault(**what)
        try:
            yield
        finally:
            self.heal()

    def fresh_person(self, name: str) -> "Person":
        """Return the user, logged on again."""
        if name in self._people:
            self._people.pop(name).close()
        return self.person(name)

    def plant(self, zone: str, name: str, content: str, *, parent: str = "") -> None:
        """Add a file without the API, with any name, even one that is taken."""
        self.tell({"plant": {"zone": zone, "name": name, "content": content, "parent": parent}})

    def stats(self) -> dict[str, Any]:
        """Return requests by method and route, and bytes."""
        return self.tell({"stats": True})

    def uploads(self) -> int:
        """Return the number of uploads that reached the service, answered or not."""
        requests = self.stats()["requests"]
        return sum(n for route, n in requests.items() if route.startswith("POST /api/zones/"))

    def downloads(self) -> int:
        """Return the number of requests for content."""
        requests = self.stats()["requests"]
        return sum(n for route, n in requests.items() if route.endswith("/content"))

    def person(self, name: str) -> "Person":
        """Return a user who is logged on without zonedrive."""
        if name not in self._people:
            self._people[name] = Person(self, name)
        return self._people[name]

    def is_usable(self) -> bool:
        """Return True if the sandbox runs and has an unused zone left."""
        return self.process.poll() is None and bool(self._fresh)

    def fresh_zone(self) -> str:
        """Return a zone that no test has used."""
        return self._fresh.pop()


class Person:
    """User of the service with a client of his own; paths are relative to a zone's root."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.id = f"{name}@{world.DOMAIN}"
        self._base_url = deployment.base_url
        self._context = ssl.create_default_context(cafile=deployment.ca_file)
        self.client = Client(deployment.base_url, self._context)
        said = self.request(
            "POST",
            "/api/access/logon",
            {"username": self.id, "password": list(world.PASSWORDS[name])},
        )
        self.authorization = f"Bearer {said['sessionId']}"
        self.client.headers["Authorization"] = self.authorization

    @cached_property
    def http(self) -> httpx.Client:
        """Return a client for requests of any kind."""
        headers = {"Authorization": self.authorization}
        return httpx.Client(
            base_url=self._base_url, verify=self._context, timeout=60, headers=headers
        )

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        if "http" in self.__dict__:
            self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def zone(self, name: str) -> "RemoteZone":
        """Return the zone with that name."""
        found = {zone["name"]: zone for zone in self.request("GET", "/api/zones")}
        return RemoteZone(self, found[name]["id"], found[name]["rootId"])

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request with a JSON body, which must succeed; return the answer's JSON."""
        sent = b"" if body is None else json.dumps(body).encode()
        return said(method, path, self.client.send(method, path, sent))


def said(method: str, path: str, answer: Answer) -> Any:
    """Return the JSON of the answer to a request that must have succeeded."""
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


class RemoteZone:
    """Zone on the service, and changes by a coworker."""

    def __init__(self, person: Person, zone_id: str, root_id: str) -> None:
        self._person = person
        self.id = zone_id
        self.root_id = root_id

    def listing(self, path: str = "") -> dict[str, dict[str, Any]]:
        """Return the entries of a folder by name."""
        return self.listing_id(self.entry_id(path))

    def listing_id(self, folder_id: str) -> dict[str, dict[str, Any]]:
        """Return the entries of the folder with that id, by name."""
        entries = self._request("GET", f"/api/zones/{self.id}/folder/{folder_id}")
        return {entry["name"]: entry for entry in entries if not entry["deleted"]}

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the zone's root, even if several have one name."""
        found: list[dict[str, Any]] = self._request(
            "GET", f"/api/zones/{self.id}/folder/{self.root_id}"
        )
        return found

    def find(self, path: str) -> dict[str, Any] | None:
        """Return the entry at a path, or None."""
        found, entry_id = None, self.root_id
        for name in PurePosixPath(path).parts:
            found = self.listing_id(entry_id).get(name)
            if found is None:
                return None
            entry_id = found["id"]
        return found

    def entry_id(self, path: str) -> str:
        """Return the id of the entry at a path, the root's for an empty path."""
        if not path:
            return self.root_id
        entry = self.find(path)
        assert entry is not None, f"{path} is not on the service"
        return str(entry["id"])

    def read(self, path: str) -> bytes:
        """Return the current content."""
        return self.read_id(self.entry_id(path))

    def read_id(self, entry_id: str) -> bytes:
        """Return the content of the file with that id."""
        return self._read(f"/api/zones/{self.id}/files/{entry_id}/content")

    def read_version(self, entry_id: str, version: str) -> bytes:
        """Return the content of a version."""
        return self._read(
            f"/api/sandbox/zones/{self.id}/files/{entry_id}/versions/{version}/content"
        )

    def _read(self, path: str) -> bytes:
        answer = self._person.client.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.content

    def write(self, path: str, data: bytes) -> dict[str, Any]:
        """Upload a new file, or the next version of one."""
        folder, _, name = path.rpartition("/")
        where = f"/api/zones/{self.id}/files/{self.entry_id(folder)}"
        body, content_type = form({"fileName": name}, "file", name, data)
        answer = self._person.client.send("POST", where, body, content_type)
        entry: dict[str, Any] = said("POST", where, answer)
        return entry

    def make_folder(self, path: str) -> None:
        """Create a folder."""
        folder, _, name = path.rpartition("/")
        body = {"parentId": self.entry_id(folder), "name": name}
        self._request("POST", f"/api/sandbox/zones/{self.id}/folders", body)

    def move(self, path: str, new: str) -> None:
        """Rename or move an entry inside the zone."""
        folder, _, name = new.rpartition("/")
        body = {"parentId": self.entry_id(folder), "name": name}
        self._request("PUT", self._entry(path), body)

    def delete(self, path: str) -> None:
        """Move an entry to the trash."""
        self._request("DELETE", self._entry(path))

    def restore(self, entry_id: str) -> None:
        """Restore an entry from the trash."""
        self._request("POST", f"/api/sandbox/zones/{self.id}/entries/{entry_id}/restore")

    def trash(self) -> list[dict[str, Any]]:
        """Return the deleted entries, the oldest first."""
        found: list[dict[str, Any]] = self._request("GET", f"/api/sandbox/zones/{self.id}/deleted")
        return found

    def versions(self, path: str) -> list[dict[str, Any]]:
        """Return the versions of a file, newest first."""
        return self.versions_id(self.entry_id(path))

    def versions_id(self, entry_id: str) -> list[dict[str, Any]]:
        """Return the versions of the file with that id, newest first."""
        where = f"/api/sandbox/zones/{self.id}/files/{entry_id}/versions"
        found: list[dict[str, Any]] = self._request("GET", where)
        return found

    def tree(self, path: str = "") -> dict[str, bytes | None]:
        """Return everything below a folder: content by path, None for folders."""
        return self._tree(path, self.entry_id(path))

    def _tree(self, path: str, folder_id: str) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name, entry in self.listing_id(folder_id).items():
            below = f"{path}/{name}" if path else name
            if entry["folder"]:
                found[below] = None
                found |= self._tree(below, entry["id"])
            else:
                found[below] = self.read_id(entry["id"])
        return found

    def _entry(self, path: str) -> str:
        return f"/api/sandbox/zones/{self.id}/entries/{self.entry_id(path)}"

    def _request(self, method: str, path: str, body: object = None) -> Any:
        return self._person.request(method, path, body)
