"""The sandbox's real application in this process, as the service of a run.

`SandboxWorld` opens a deployment on SQLite and blob files in a temporary folder. Requests pass
through the ASGI application, one at a time, while the trio loop waits. After each change, the
entries and versions are read from the database, so that the checker sees them as those of a
`RecordedWorld`. Identifiers are numbered, and times are virtual.
"""

import asyncio
import logging
import re
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from tests.harness.fake_service import DOMAIN, Content, FakeZone, Node, no_space
from tests.simulation.checker import RecordedWorld
from zonedrive.remote.wire import pagination
from zonedrive.sandbox import app, intake, seed
from zonedrive.sandbox import world as sandbox
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.deployment import assemble
from zonedrive.sandbox.entries import ATTRIBUTES
from zonedrive.sandbox.errors import ApiError, error_body
from zonedrive.sandbox.zones import Level

ResultT = TypeVar("ResultT")
logger = logging.getLogger("zonedrive.simulation")
YEAR_S = 365 * 86_400
PAGE, ALL = 2, 1_000_000  # items
UPLOADS = re.compile("/api/zones/[^/]+/files/")
CHANGING = ("POST", "PUT", "DELETE")


@dataclass
class Answer:
    """Answer of the application."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    is_early: bool = False  # it came before the whole request was read


class SandboxWorld(RecordedWorld):
    """Deployment of the sandbox, of one zone."""

    def __init__(self, folder: Path, *, is_paged: bool = False) -> None:
        """Create the deployment in `folder`.

        With `is_paged`, a page of a list has PAGE items, as long as `paginates` is set.
        """
        super().__init__()
        self.paginates = True
        self._patches = ExitStack()
        if is_paged:
            self.race_s *= 3  # a list takes several requests
            self._patches.enter_context(mock.patch.object(pagination, "PAGE", PAGE))
            self._patches.enter_context(mock.patch.object(intake, "page", self._page))
        self._numbers = count(1)
        self._contents: dict[str, Content] = {}  # by id of the version
        self._tokens: dict[str, str] = {}  # of people at a browser, by user
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_default_executor(_Inline(1))
        folder.mkdir()
        self._database = Database(folder / "sandbox.db")
        organization = sandbox.WorldOrganization("Acme", DOMAIN, page_listings=is_paged)
        self._empty = sandbox.World(organization, [])
        settings = sandbox.organization(self._empty)
        self.deployment = assemble(folder, self._database, settings)
        self._app = app.build(self.deployment)

    def close(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0))  # cancelled tasks end
        self._loop.close()
        self._database.close()
        self._patches.close()

    def add_zone(self, name: str, levels: dict[str, Level], *, accessible: bool = True) -> str:
        """Fill the empty deployment with a zone and its members; return the zone's id."""
        manager = next(iter(levels))
        members = [sandbox.ZoneMember(level.name.capitalize(), user)  # type: ignore[arg-type]
                   for user, level in levels.items()]  # fmt: skip
        users = [sandbox.WorldUser(user, user, "password") for user in levels]
        zone = sandbox.WorldZone(name, manager, members=members, accessible=accessible)
        world = msgspec.structs.replace(self._empty, users=users, zones=[zone])
        self._inside(seed.fill, self.deployment, world)
        row = self.deployment.zones.by_name(name)
        assert row is not None
        self.zones[row["id"]] = FakeZone(row["id"], name, row["root_id"], dict(levels), accessible)
        self._read()
        return str(row["id"])

    def set_level(self, zone_id: str, user: str, level: Level) -> None:
        set_member = partial(self.deployment.zones.set_member, is_group=False)
        self._inside(set_member, zone_id, user, level)

    def log_on(self, user: str, instead: str = "") -> str:
        """Return a new token of a user; the token `instead` is not valid any more."""
        sessions = self.deployment.sessions
        for token in sessions.tokens(user):
            if instead and token["tokenName"] == instead:
                self._inside(sessions.revoke, user, token["id"])
        name = f"logon-{next(self._numbers)}"
        with mock.patch.object(secrets, "token_urlsafe", lambda _size: name):
            self._inside(sessions.create_token, user, name, 100 * YEAR_S, None)
        return name

    # ---- requests ----

    def ask(
        self,
        user: str,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]],
        content: Iterable[bytes] = (),
        *,
        is_cut: bool = False,
    ) -> Answer:
        """Let the application answer a request; with `is_cut`, the connection ends after `content`.

        `user` is the one whose token is in the headers.
        """
        if self.is_full and method == "POST" and UPLOADS.match(target):
            full = no_space()
            body = error_body(full.code, full.message)
            return Answer(full.status, [(b"content-length", b"%d" % len(body))], body)
        present = self._present() if method == "DELETE" else []
        answering = self._answered(_scope(method, target, headers), list(content), is_cut)
        answer: Answer = self._inside(self._loop.run_until_complete, answering)
        if method in CHANGING:
            self._read()
        if method == "DELETE":
            self._note_deletion(present)
        return answer

    async def _answered(self, scope: dict[str, Any], left: list[bytes], is_cut: bool) -> Answer:
        answer = Answer()
        left.reverse()
        is_over = False

        async def receive() -> Message:
            nonlocal is_over
            if left:
                is_more = is_cut or len(left) > 1
                return {"type": "http.request", "body": left.pop(), "more_body": is_more}
            if is_cut:
                return {"type": "http.disconnect"}
            if is_over:
                await asyncio.Event().wait()  # for the end of the connection
            is_over = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
            else:
                answer.body += message.get("body", b"")

        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            assert is_cut
        except Exception:
            logger.exception("the sandbox crashed at %s %s", scope["method"], scope["path"])
        answer.is_early = any(left)
        return answer

    def _inside(self, work: Callable[..., ResultT], *args: Any) -> ResultT:
        """Work on the service's machine: its disk, its clock, and numbered identifiers."""
        with (
            mock.patch.object(secrets, "token_hex", self._hexadecimal),
            mock.patch.object(uuid, "uuid4", self._uuid),
        ):
            return Context().run(work, *args)  # that of no client

    def _page(self, request: Request) -> tuple[int, int]:
        """Return limit and offset of a request for a page, as `intake.page` does."""
        if not self.paginates:
            return ALL, 0
        size = min(PAGE, int(request.query_params.get("pageSize", PAGE)))
        return size, (int(request.query_params.get("page", 1)) - 1) * size

    def _hexadecimal(self, size: int) -> str:
        return f"{next(self._numbers):0{2 * size}x}"

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._numbers))

    # ---- looking ----

    def _read(self) -> None:
        """Read all entries and versions."""
        versions: dict[str, list[Content]] = {}
        new = []
        for row in self._database.all("SELECT * FROM versions ORDER BY rowid"):
            file = versions.setdefault(row["entry_id"], [])
            if row["id"] not in self._contents:
                self._contents[row["id"]] = self._content(row)
                new.append(file)
            file.append(self._contents[row["id"]])
        rows = self._database.all("SELECT * FROM entries ORDER BY serial")
        self.nodes = {row["id"]: _node(row, versions.get(row["id"], [])) for row in rows}
        for file in new:
            self._note_version("", file)

    def _content(self, row: Row) -> Content:
        data = self.deployment.entries.blobs.path(row["id"]).read_bytes()
        return Content(row["number"], row["id"], data, row["modified_us"], row["modified_by"])

    # ---- people at a browser ----

    def upload(self, zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        target = f"/api/zones/{zone_id}/files/{folder_id}?fileName={quote(name)}"
        return self._changed(user, "POST", target, data, "application/octet-stream")

    def make_folder(self, zone_id: str, parent_id: str, name: str, user: str) -> Node:
        body = {"parentId": parent_id, "name": name}
        return self._changed(user, "POST", f"/api/sandbox/zones/{zone_id}/folders", body)

    def move(self, zone_id: str, entry_id: str, parent_id: str, name: str, user: str) -> Node:
        body = {"parentId": parent_id, "name": name}
        return self._changed(user, "PUT", _entry(zone_id, entry_id), body)

    def delete(self, zone_id: str, entry_id: str, user: str) -> None:
        self._by(user, "DELETE", _entry(zone_id, entry_id))

    def restore(self, zone_id: str, entry_id: str, user: str) -> Node:
        return self._changed(user, "POST", f"{_entry(zone_id, entry_id)}/restore")

    def _changed(
        self,
        user: str,
        method: str,
        target: str,
        body: bytes | Mapping[str, str] = b"",
        kind: str = "application/json",
    ) -> Node:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        answer = self._by(user, method, target, content, kind)
        return self.nodes[msgspec.json.decode(answer.body)["id"]]

    def _by(
        self, user: str, method: str, target: str, content: bytes = b"", kind: str = ""
    ) -> Answer:
        """Ask as a person at a browser. Raises ApiError."""
        if user not in self._tokens:
            self._tokens[user] = self.log_on(user)
        headers = [(b"authorization", f"Bearer {self._tokens[user]}".encode()),
                   (b"content-type", kind.encode())]  # fmt: skip
        answer = self.ask(user, method, target, headers, [content])
        if answer.status >= 400:
            told = msgspec.json.decode(answer.body)
            raise ApiError(answer.status, told["error"], told["message"], told.get("data"))
        return answer


class _Inline(ThreadPoolExecutor):
    """Executor that works at once, in the calling thread."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        found: Future[Any] = Future()
        try:
            found.set_result(work(*args, **options))
        except BaseException as wrong:
            found.set_exception(wrong)
        return found


def _scope(method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "https",
        "method": method, "path": unquote(path), "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "headers": [(name.lower(), text) for name, text in headers],
        "client": ("127.0.0.1", 1), "server": ("service.example", 443),
    }  # fmt: skip


def _entry(zone_id: str, entry_id: str) -> str:
    return f"/api/sandbox/zones/{zone_id}/entries/{entry_id}"


def _node(row: Row, versions: list[Content]) -> Node:
    node = Node(
        row["id"], row["zone_id"], row["parent_id"] or "", row["name"], bool(row["folder"]),
        row["modified_us"], row["modified_by"], versions, row["trash_id"] or "",
    )  # fmt: skip
    node.flags |= {name: bool(row[column]) for name, column in ATTRIBUTES.items()}
    return node
