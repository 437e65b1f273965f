"""A complete service in memory: zones, immutable versions, coworkers, rights and faults.

`World` is the deployment, `Coworker` another person who changes it, and `FakeService` one user's
connection, with the interface of `zonedrive.remote.service.Service`. A fault is described as for
the sandbox (`zonedrive sandbox`, command `fault`), and `tests/unit/remote/test_fake_service.py`
compares both. Knows nothing about sockets, threads, clocks or pytest: time passes on trio's clock
only, identifiers and times of versions are numbered, and nothing is random.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec
import trio

from zonedrive.errors import (
    FULL,
    BadAnswer,
    Interrupted,
    RemoteError,
    ReplyLost,
    StoreError,
    TimedOut,
    Unreachable,
)
from zonedrive.model import Entry, Version
from zonedrive.remote.connectivity import Connectivity, State
from zonedrive.remote.http_service import entry_with_parent, move_entry
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.requests import BODY_SECONDS, CHANGE_SECONDS, READ_SECONDS
from zonedrive.remote.retry import Backoff
from zonedrive.remote.service import Service, Transfers
from zonedrive.remote.transfer import (
    ANSWER_SECONDS,
    DIGESTED,
    Cancelled,
    Download,
    TokenBucket,
    uploaded,
)
from zonedrive.remote.transport.transports import BODY
from zonedrive.remote.urls import REQUIREMENTS, Origin, Request
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.pagination import Item, Page
from zonedrive.sandbox.clock import http_date, iso
from zonedrive.sandbox.errors import ApiError, error_body
from zonedrive.sandbox.faults import Fault, FaultOrder, Faults
from zonedrive.sandbox.zones import Level

DOMAIN = "acme.example"
EPOCH_US = 1_780_000_000_000_000
CHUNK = 512 * 1024
BUFFERED = 64 * 1024  # bytes of a request that count as sent although the service never read them
HOST = "service.example"
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Content:
    """One immutable version of a file."""

    number: int
    id: str
    data: bytes
    modified_us: int
    modified_by: str

    def wire(self, unit_us: int = 1) -> dict[str, Any]:
        """Return the item of a list of versions, with the time in units of `unit_us`."""
        modified = iso(self.modified_us // unit_us * unit_us)
        return {
            "version": self.number, "id": self.id, "size": len(self.data),
            "lastModified": modified, "lastModifiedBy": self.modified_by,
        }  # fmt: skip


@dataclass(eq=False)
class Node:
    """A file (with versions, the newest last) or a folder (without)."""

    id: str
    zone_id: str
    parent_id: str  # "" for the root of a zone
    name: str
    folder: bool
    modified_us: int
    modified_by: str
    versions: list[Content] = field(default_factory=list)
    trash_id: str = ""  # the deleted entry that this one was deleted with
    deleted_us: int = 0
    flags: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flags["hidden"] = self.name.startswith(".")

    def wire(self) -> dict[str, Any]:
        """Return the entry as the API describes it."""
        stem, _, extension = ("", "", "") if self.folder else self.name.rpartition(".")
        has_extension = bool(stem and extension)
        return {
            "id": self.id,
            "zoneId": self.zone_id,
            "parentId": self.parent_id,
            "name": self.name,
            "displayName": self.name,
            "properName": stem if has_extension else self.name,
            "folder": self.folder,
            "deleted": bool(self.trash_id),
            "size": len(self.versions[-1].data) if self.versions else 0,
            "type": "folder" if self.folder else extension.lower() if has_extension else "file",
            "lastModified": iso(self.modified_us),
            "lastModifiedBy": self.modified_by,
            "synchronizationStatus": "NotSynchronizing",
            "attributes": {
                "executable": False,
                "hidden": False,
                "readProtected": False,
                "synchronize": False,
                "writeProtected": False,
            }
            | self.flags,
        }


@dataclass(eq=False)
class FakeZone:
    """A zone, and each member's level."""

    id: str
    name: str
    root_id: str
    levels: dict[str, Level]
    accessible: bool = True

    def wire(self) -> dict[str, Any]:
        """Return the zone as the API describes it."""
        return {
            "id": self.id, "name": self.name, "description": "", "rootId": self.root_id,
            "createdAt": iso(EPOCH_US), "currentSize": -1, "numberOfUsers": len(self.levels),
            "ssiAccessible": self.accessible, "webAccessible": True,
        }  # fmt: skip


class World:
    """The deployment: zones, entries, and the faults in force.

    INVARIANT: a version never changes, and its time is later than that of the version before.
    """

    def __init__(self) -> None:
        self.zones: dict[str, FakeZone] = {}
        self.nodes: dict[str, Node] = {}  # in order of creation
        self.faults = Faults()
        self.key: Callable[[str], str] = str  # names with equal keys count as one name
        self.stored: Callable[[str], str] = str  # what a new name is stored as
        self.answer_unit_us = 1  # precision of the times in answers to uploads and moves
        self.listing_unit_us = 1  # in listings
        self.entry_unit_us = 1  # in the answer to a request for one entry
        self.unsaid: dict[str, set[str]] = {}  # missing members in "listing", "entry", "answer"
        self.step_us = 1000  # between two changes
        self.marks_content = True  # the content of a deleted folder is deleted as well
        self.is_full = False  # no content can be uploaded
        self.takes_folders = False  # the creation of a folder that exists succeeds
        self.is_unrouted = False  # a gateway answers each request with status 404 and a page
        self.requests: list[str] = []  # method and path of all requests so far
        self._held: list[trio.Event] = []  # of requests that a stall holds back
        self._number = 0
        self._now_us = EPOCH_US

    # ---- setting up ----

    def add_zone(self, name: str, levels: dict[str, Level], *, accessible: bool = True) -> str:
        """Create a zone; return its id."""
        zone_id = self._new_id()
        manager = next(iter(levels))
        root = Node(self._new_id(), zone_id, "", name, True, self.now_us(), manager)
        self.nodes[root.id] = root
        self.zones[zone_id] = FakeZone(zone_id, name, root.id, dict(levels), accessible)
        return zone_id

    def set_level(self, zone_id: str, user: str, level: Level) -> None:
        """Set the level of a user in a zone; NONE ends the membership."""
        self.zones[zone_id].levels[user] = level

    def plant(self, zone_id: str, name: str, data: bytes, *, user: str) -> str:
        """Add a file to a zone's root, even if the name is in use; return its id."""
        return self._add_file(zone_id, self.zones[zone_id].root_id, name, data, user).id

    def fault(self, **what: object) -> None:
        """Apply a fault from now on; `what` are the members of the sandbox's FaultOrder."""
        self.faults.order(msgspec.convert(what, FaultOrder))

    def heal(self) -> None:
        """End all faults, also for the requests that they hold back."""
        self.faults.order(None)
        self.is_unrouted = False
        for event in self._held:
            event.set()
        self._held.clear()

    async def hold(self, seconds: float) -> None:
        """Wait for `seconds`, or until the faults end."""
        event = trio.Event()
        self._held.append(event)
        with trio.move_on_after(seconds):
            await event.wait()

    def now_us(self) -> int:
        """Return the next moment; no two changes have the same."""
        self._now_us += self.step_us
        return self._now_us

    # ---- looking ----

    def answer(self, node: Node) -> dict[str, Any]:
        """Return an entry as the answer to an upload or a move describes it."""
        return self.described(node, "answer", self.answer_unit_us)

    def described(self, node: Node, where: str, unit_us: int) -> dict[str, Any]:
        """Return an entry as answers of the kind `where` describe it; see `unsaid`."""
        said = node.wire() | {"lastModified": iso(node.modified_us // unit_us * unit_us)}
        return {name: said[name] for name in said.keys() - self.unsaid.get(where, set())}

    def enter(self, zone_id: str, user: str, needed: Level) -> FakeZone:
        """Return the zone. Raises ApiError if `user` does not have the level `needed`."""
        zone = self.zones.get(zone_id)
        if zone is None:
            raise ApiError(404, "UNKNOWN_ZONE", "There is no such zone", zone_id)
        level = zone.levels.get(user, Level.NONE)
        if level == Level.NONE or not zone.accessible:
            raise ApiError(403, "INVALID_ACCESS", "You have no access to this zone", zone_id)
        if level < needed:
            raise ApiError(403, "NOT_ALLOWED", "Your level is too low", zone_id)
        return zone

    def find(self, zone_id: str, entry_id: str) -> Node:
        """Return a present entry. Raises ApiError."""
        node = self.nodes.get(entry_id)
        if node is None or node.zone_id != zone_id or node.trash_id:
            raise ApiError(404, "UNKNOWN_FILE", "There is no such file or folder", entry_id)
        return node

    def folder(self, zone_id: str, folder_id: str) -> Node:
        """Return a present folder. Raises ApiError."""
        node = self.find(zone_id, folder_id)
        if not node.folder:
            raise ApiError(400, "NOT_A_FOLDER", "This is a file", folder_id)
        return node

    def file(self, zone_id: str, file_id: str) -> Node:
        """Return a present file. Raises ApiError."""
        node = self.find(zone_id, file_id)
        if node.folder:
            raise ApiError(400, "NOT_A_FILE", "This is a folder", file_id)
        return node

    def readable(self, node: Node) -> Node:
        """Return the entry. Raises ApiError if it is read-protected."""
        if node.flags.get("readProtected"):
            raise ApiError(403, "NOT_ALLOWED", "This is read-protected", node.id)
        return node

    def version(self, node: Node, wanted: str | None) -> Content:
        """Return a version by number or id, by default the newest. Raises ApiError."""
        for version in reversed(node.versions):
            if wanted is None or wanted in (str(version.number), version.id):
                return version
        raise ApiError(404, "UNKNOWN_FILE_VERSION", "There is no such version", node.id)

    def children(self, folder_id: str) -> list[Node]:
        """Return the present entries of a folder in order of creation."""
        return [n for n in self.nodes.values() if n.parent_id == folder_id and not n.trash_id]

    def child(self, folder_id: str, name: str) -> Node | None:
        """Return the present entry of that name, the oldest if there are several."""
        key = self.key(name)
        return next((n for n in self.children(folder_id) if self.key(n.name) == key), None)

    def trash(self, zone_id: str) -> list[Node]:
        """Return the deleted entries, without those that were deleted with their folder."""
        every = self.nodes.values()
        return [node for node in every if node.zone_id == zone_id and node.trash_id == node.id]

    # ---- changing ----

    def upload(self, zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        """Add a file, or a version to the file of that name. Raises ApiError."""
        self.enter(zone_id, user, Level.ADD)
        folder = self.folder(zone_id, folder_id)
        _require_name(name)
        if self.is_full:
            raise no_space()
        present = self.child(folder_id, name)
        if present is None:
            _require_writable(folder)
            return self._add_file(zone_id, folder_id, name, data, user)
        if present.folder:
            raise ApiError(409, "ALREADY_EXISTS", "A folder has this name", present.id)
        self.enter(zone_id, user, Level.MODIFY)
        _require_writable(present)
        self._add_version(present, data, user)
        return present

    def make_folder(self, zone_id: str, parent_id: str, name: str, user: str) -> Node:
        """Add a folder. Raises ApiError."""
        self.enter(zone_id, user, Level.ADD)
        parent = self.folder(zone_id, parent_id)
        _require_name(name)
        _require_writable(parent)
        there = self.child(parent_id, name) if self.takes_folders else None
        if there is not None and there.folder:
            return there
        self._require_free(parent_id, name)
        name = self.stored(name)
        node = Node(self._new_id(), zone_id, parent_id, name, True, self.now_us(), user)
        self.nodes[node.id] = node
        return node

    def move(self, zone_id: str, entry_id: str, parent_id: str, name: str, user: str) -> Node:
        """Rename or move an entry. Raises ApiError."""
        self.enter(zone_id, user, Level.MODIFY)
        node = self._changeable(self.find(zone_id, entry_id))
        _require_name(name)
        parent = self.folder(zone_id, parent_id)
        if parent_id != node.parent_id:
            _require_writable(parent)
        above: Node | None = parent
        while above is not None:
            if above is node:
                raise ApiError(400, "ILLEGAL_ARGUMENT", "A folder cannot move into itself", node.id)
            above = self.nodes.get(above.parent_id)
        self._require_free(parent_id, name, but=node)
        if name.startswith(".") != node.name.startswith("."):
            node.flags["hidden"] = name.startswith(".")
        node.parent_id, node.name = parent_id, self.stored(name)
        if node.folder:
            node.modified_us, node.modified_by = self.now_us(), user
        return node

    def delete(self, zone_id: str, entry_id: str, user: str) -> None:
        """Move an entry and all below it to the trash. Raises ApiError."""
        self.enter(zone_id, user, Level.MODIFY)
        node = self._changeable(self.find(zone_id, entry_id))
        moment = self.now_us()
        for each in [node, *(self._below(node) if self.marks_content else ())]:
            if not each.trash_id:
                each.trash_id, each.deleted_us = node.id, moment

    def restore(self, zone_id: str, entry_id: str, user: str) -> Node:
        """Restore an entry, with what was deleted with it. Raises ApiError."""
        self.enter(zone_id, user, Level.MODIFY)
        node = self._changeable(self._deleted(zone_id, entry_id))
        parent = self.nodes.get(node.parent_id)
        if node.trash_id != node.id or parent is None or parent.trash_id:
            raise ApiError(409, "WRONG_STATE", "Its folder is deleted", entry_id)
        self._require_free(node.parent_id, node.name)
        for each in self.nodes.values():
            if each.trash_id == node.id:
                each.trash_id, each.deleted_us = "", 0
        return node

    def purge(self, zone_id: str, entry_id: str, user: str) -> None:
        """Remove a deleted entry and all below it permanently. Raises ApiError."""
        self.enter(zone_id, user, Level.MANAGE)
        node = self._deleted(zone_id, entry_id)
        for each in [node, *self._below(node)]:
            del self.nodes[each.id]

    def protect(self, zone_id: str, entry_id: str, **flags: bool) -> None:
        """Set attributes of an entry by their names in the API."""
        self.find(zone_id, entry_id).flags.update(flags)

    def _deleted(self, zone_id: str, entry_id: str) -> Node:
        node = self.nodes.get(entry_id)
        if node is None or node.zone_id != zone_id:
            raise ApiError(404, "UNKNOWN_FILE", "There is no such file or folder", entry_id)
        if not node.trash_id:
            raise ApiError(409, "WRONG_STATE", "This is not deleted", entry_id)
        return node

    def _changeable(self, node: Node) -> Node:
        if not node.parent_id:
            raise ApiError(403, "NOT_ALLOWED", "A zone's root folder stays", node.id)
        _require_writable(node)
        _require_writable(self.nodes[node.parent_id])
        return node

    def _below(self, node: Node) -> list[Node]:
        inside = defaultdict[str, list[Node]](list)
        for each in self.nodes.values():
            inside[each.parent_id].append(each)
        found = [*inside[node.id]]
        for each in found:  # which grows meanwhile
            found += inside[each.id]
        return found

    def _require_free(self, parent_id: str, name: str, *, but: Node | None = None) -> None:
        there = self.child(parent_id, name)
        if there is not None and there is not but:
            raise ApiError(409, "ALREADY_EXISTS", "The name is taken", there.id)

    def _add_file(self, zone_id: str, parent_id: str, name: str, data: bytes, user: str) -> Node:
        node = Node(self._new_id(), zone_id, parent_id, self.stored(name), False, 0, user)
        self.nodes[node.id] = node
        self._add_version(node, data, user)
        return node

    def _add_version(self, node: Node, data: bytes, user: str) -> None:
        node.modified_us, node.modified_by = self.now_us(), user
        number = len(node.versions) + 1
        node.versions.append(Content(number, self._new_id(), data, node.modified_us, user))

    def _new_id(self) -> str:
        self._number += 1
        return f"{self._number:016x}"


def no_space() -> ApiError:
    """Return the error of a service that is full."""
    return ApiError(FULL, "FAILED", "There is no space left")


def _require_name(name: str) -> None:
    if not name or "/" in name or "\0" in name:
        raise ApiError(400, "ILLEGAL_NAME", "A name must not be empty nor contain '/' or NUL")


def _require_writable(node: Node) -> None:
    if node.flags.get("writeProtected"):
        raise ApiError(403, "NOT_ALLOWED", "This is write-protected", node.id)


class Coworker:
    """One zone as another person sees and changes it; paths are relative to the zone's root."""

    def __init__(self, world: World, user: str, zone_id: str) -> None:
        self.world, self.user, self.id = world, user, zone_id
        self.root_id = world.zones[zone_id].root_id

    def node(self, path: str) -> Node | None:
        """Return the present entry at a path, or None."""
        here: Node | None = self.world.nodes[self.root_id]
        for name in path.split("/") if path else ():
            here = here and self.world.child(here.id, name)
        return here

    def _there(self, path: str) -> Node:
        node = self.node(path)
        assert node is not None, f"{path} is not on the service"
        return node

    def find(self, path: str) -> dict[str, Any] | None:
        """Return the entry at a path, or None."""
        node = self.node(path)
        return None if node is None else node.wire()

    def entry_id(self, path: str) -> str:
        """Return the id of the entry at a path."""
        return self._there(path).id

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the zone's root, also if several have one name."""
        return [node.wire() for node in self.world.children(self.root_id)]

    def listing(self, path: str = "") -> dict[str, dict[str, Any]]:
        """Return the present entries of a folder by name."""
        return {n.name: n.wire() for n in self.world.children(self._there(path).id)}

    def read(self, path: str) -> bytes:
        """Return the current content."""
        return self._there(path).versions[-1].data

    def read_id(self, entry_id: str) -> bytes:
        """Return the current content of the file with that id."""
        return self.world.find(self.id, entry_id).versions[-1].data

    def versions(self, path: str) -> list[dict[str, Any]]:
        """Return the versions of a file, newest first."""
        return [version.wire() for version in reversed(self._there(path).versions)]

    def trash(self) -> list[dict[str, Any]]:
        """Return the deleted entries."""
        return [node.wire() for node in self.world.trash(self.id)]

    def tree(self, path: str = "") -> dict[str, bytes | None]:
        """Return everything below a folder: content by path, None for folders."""
        found: dict[str, bytes | None] = {}
        for node in self.world.children(self._there(path).id):
            below = f"{path}/{node.name}" if path else node.name
            found[below] = None if node.folder else node.versions[-1].data
            if node.folder:
                found |= self.tree(below)
        return found

    def write(self, path: str, data: bytes) -> dict[str, Any]:
        """Upload a new file, or the next version of one."""
        folder, _, name = path.rpartition("/")
        folder_id = self.entry_id(folder)
        return self.world.upload(self.id, folder_id, name, data, self.user).wire()

    def make_folder(self, path: str) -> None:
        """Create a folder."""
        folder, _, name = path.rpartition("/")
        self.world.make_folder(self.id, self.entry_id(folder), name, self.user)

    def move(self, path: str, new: str) -> None:
        """Rename or move inside the zone."""
        folder, _, name = new.rpartition("/")
        self.world.move(self.id, self.entry_id(path), self.entry_id(folder), name, self.user)

    def delete(self, path: str) -> None:
        """Move to the trash."""
        self.world.delete(self.id, self.entry_id(path), self.user)

    def restore(self, entry_id: str) -> None:
        """Restore from the trash."""
        self.world.restore(self.id, entry_id, self.user)


@dataclass
class _Request:
    """One request on its way through the faults."""

    method: str
    path: str
    doing: str
    seconds: float
    effect: bool = False  # it changes something; a lost reply leaves its effect unknown
    content: int = 0  # bytes of its body
    paced: bool = True
    streamed: bool = False  # a rejection comes before the body was sent


_loaded = cache(load_profile)


class FakeService(Service):
    """The connection of one user to a World, with the operations of a profile."""

    def __init__(
        self, world: World, user: str = f"alice@{DOMAIN}", profile: str = "sandbox"
    ) -> None:
        self.world, self.user = world, user
        self.profile = _loaded(profile)
        self._underway = 0
        self.link = Connectivity(chance=lambda: 1.0, clock=trio.current_time)
        self.transfer = FakeTransfers(self)
        self._backoff = Backoff()

    async def aclose(self) -> None:
        self.transfer.hang_up()
        await trio.lowlevel.checkpoint()

    async def reconnect(self, *, dead: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.link.recheck()

    def member_link(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> str:
        operation = self.profile.operation("member_link", folder=folder)
        return operation.address({"zone": zone_id, "entry": entry_id}, "https://fake.example")

    @property
    def places(self) -> int:
        return 8

    @property
    def underway(self) -> int:
        return self._underway

    # ---- reading ----

    async def listed_zones(self) -> wire.ListedZones:
        doing = "listing the zones"

        def work() -> list[dict[str, Any]]:
            return [z.wire() for z in self.world.zones.values() if z.levels.get(self.user)]

        return wire.ListedZones(await self._read("/api/zones", doing, work), doing)

    async def listed(self, zone_id: str, folder_id: str) -> wire.Listed:
        doing = "listing a folder"

        def work() -> "Page[wire.Raw]":  # unquoted, the type would be made in each call
            self.world.enter(zone_id, self.user, Level.ADD)
            folder = self.world.readable(self.world.folder(zone_id, folder_id))
            nodes = self.world.children(folder.id)
            unit = self.world.listing_unit_us
            said = [self.world.described(node, "listing", unit) for node in nodes]
            return [Item(each["id"], msgspec.json.encode(each)) for each in said]

        found = await self._read(f"/api/zones/{zone_id}/folder/{folder_id}", doing, work)
        return wire.Listed(found, doing, zone_id=zone_id, parent_id=folder_id)

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        doing = "asking for an entry"

        def work() -> dict[str, Any]:
            self.world.enter(zone_id, self.user, Level.ADD)
            node = self.world.find(zone_id, file_id)
            return self.world.described(node, "entry", self.world.entry_unit_us)

        found = await self._read(f"/api/zones/{zone_id}/files/{file_id}", doing, work)
        return wire.one_entry(found, doing, zone_id=zone_id)

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        doing = "reading a small file"
        path = f"/api/zones/{zone_id}/files/{file_id}/content"
        data = await self._read(path, doing, lambda: self.stored(zone_id, file_id, None).data)
        if len(data) > size:
            raise BadAnswer(f"{doing}: the content has more than {size} bytes")
        return data

    def stored(self, zone_id: str, file_id: str, version: str | None) -> Content:
        """Return a version of a file. Raises ApiError."""
        self.world.enter(zone_id, self.user, Level.ADD)
        file = self.world.readable(self.world.file(zone_id, file_id))
        return self.world.version(file, version)

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        doing = "listing versions"
        fields = self.profile.operation("versions").fields

        def work() -> list[dict[str, Any]]:
            self.world.enter(zone_id, self.user, Level.ADD)
            found = reversed(self.world.file(zone_id, file_id).versions)
            return [each.wire(self.world.listing_unit_us) for each in found]

        path = f"/api/sandbox/zones/{zone_id}/files/{file_id}/versions"
        found = await self._read(path, doing, work)
        return wire.versions(found, fields, doing)

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        doing = "listing deleted entries"
        path = self.profile.operation("deleted").fields["deleted_at"]

        def work() -> list[dict[str, Any]]:
            self.world.enter(zone_id, self.user, Level.ADD)
            gone = self.world.trash(zone_id)
            return [node.wire() | {"deletedAt": iso(node.deleted_us)} for node in gone]

        found = await self._read(f"/api/sandbox/zones/{zone_id}/deleted", doing, work)
        return wire.deletions(found, path, doing, zone_id)

    async def levels(self) -> dict[str, str]:
        self.profile.operation("levels")

        def work() -> dict[str, str]:
            zones = self.world.zones.values()
            mine = {zone.id: zone.levels.get(self.user, Level.NONE) for zone in zones}
            return {zone_id: level.name.capitalize() for zone_id, level in mine.items() if level}

        return await self._read("/api/sandbox/levels", "reading the levels in zones", work)

    async def probe(self, state: State) -> None:
        path = REQUIREMENTS if state == "offline" else "/api/zones"
        request = _Request("GET", path, "", READ_SECONDS)
        try:
            await self.send(request, lambda: None)
        except RemoteError:
            return

    # ---- changing ----

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        return await self.store(zone_id, folder_id, name, data, ANSWER_SECONDS, False)

    async def store(
        self, zone_id: str, folder_id: str, name: str, data: bytes, seconds: float, streamed: bool
    ) -> Entry:
        """Upload content, and wait `seconds` for the answer."""
        self.link.check()
        path = f"/api/zones/{zone_id}/files/{folder_id}"
        request = _Request("POST", path, "uploading", seconds, effect=True, content=len(data))
        request.paced, request.streamed = False, streamed

        def work() -> bytes:
            node = self.world.upload(zone_id, folder_id, name, data, self.user)
            return msgspec.json.encode(self.world.answer(node))

        return uploaded(await self.send(request, work), zone_id, folder_id, name)

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        self.profile.operation("make_folder")
        return await self._change(
            "POST", f"/api/sandbox/zones/{zone_id}/folders", "making a folder",
            lambda: self.world.make_folder(zone_id, parent_id, name, self.user), zone_id,
        )  # fmt: skip

    async def move(
        self, zone_id: str, entry_id: str, parent_id: str, name: str, *, folder: bool | None = None
    ) -> Entry:
        move = self.profile.find("move", folder)
        is_one = move is not None and move.uses("name")

        def place(operation: str) -> Node:
            parent, new = parent_id, name
            if not is_one:
                node = self.world.find(zone_id, entry_id)
                parent = parent if operation == "move" else node.parent_id
                new = name if operation == "rename" else node.name
            return self.world.move(zone_id, entry_id, parent, new, self.user)

        async def change(operation: str) -> Entry:
            return await self._change(
                "PUT", f"/api/sandbox/zones/{zone_id}/entries/{entry_id}", "renaming or moving",
                lambda: place(operation), zone_id,
            )  # fmt: skip

        async def present() -> Entry:
            return await entry_with_parent(self, zone_id, entry_id, parent_id)

        return await move_entry(self.profile, change, present, parent_id, name, folder)

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        self.profile.operation("delete", folder=folder)
        await self._bare_change(
            "DELETE", f"/api/sandbox/zones/{zone_id}/entries/{entry_id}", "deleting",
            lambda: self.world.delete(zone_id, entry_id, self.user),
        )  # fmt: skip

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        self.profile.operation("restore", folder=folder)
        return await self._change(
            "POST", f"/api/sandbox/zones/{zone_id}/entries/{entry_id}/restore", "restoring",
            lambda: self.world.restore(zone_id, entry_id, self.user), zone_id,
        )  # fmt: skip

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        self.profile.operation("purge", folder=folder)
        await self._bare_change(
            "DELETE", f"/api/sandbox/zones/{zone_id}/entries/{entry_id}/purge",
            "removing permanently", lambda: self.world.purge(zone_id, entry_id, self.user),
        )  # fmt: skip

    # ---- requests ----

    async def _change(
        self, method: str, path: str, doing: str, work: Callable[[], Node], zone_id: str
    ) -> Entry:
        self.link.check()
        world, request = self.world, _Request(method, path, doing, CHANGE_SECONDS, effect=True)
        node = await self.send(request, lambda: world.answer(work()))
        return wire.one_entry(node, doing, zone_id=zone_id)

    async def _bare_change(
        self, method: str, path: str, doing: str, work: Callable[[], None]
    ) -> None:
        self.link.check()
        await self.send(_Request(method, path, doing, CHANGE_SECONDS, effect=True), work)

    async def _read(self, path: str, doing: str, work: Callable[[], ResultT]) -> ResultT:
        """Read with the repetitions that the HTTP implementation makes."""
        request = _Request("GET", path, doing, READ_SECONDS)
        return await self.repeated(lambda: self.send(request, work))

    async def repeated(self, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Attempt a harmless request until it succeeds or its time is over."""
        end = trio.current_time() + READ_SECONDS
        failures = 0
        while True:
            self.link.check()
            try:
                return await attempt()
            except RemoteError as error:
                failures += 1
                wait = self._backoff.delay(error, failures, 1.0, end - trio.current_time())
                if wait is None:
                    raise
            await trio.sleep(wait)

    async def send(self, request: _Request, work: Callable[[], ResultT]) -> ResultT:
        """Carry out a request as far as the faults allow it, and report its result to the link."""
        self._underway += request.paced
        try:
            with self.link.reported("metadata" if request.paced else "upload"):
                return await self._carried(request, work)
        finally:
            self._underway -= request.paced

    async def _carried(self, request: _Request, work: Callable[[], ResultT]) -> ResultT:
        world, doing = self.world, request.doing
        await trio.lowlevel.checkpoint()
        if self.transfer.is_ending:
            raise Interrupted(f"{doing}: zonedrive is ending")
        world.requests.append(f"{request.method} {request.path}")
        if world.faults.down:
            raise Unreachable(f"{doing}: {HOST} cannot be reached (Connection refused)")
        if world.is_unrouted:
            raise self._failed(request, 404, b"<html>default backend - 404</html>")
        met = world.faults.meeting(request.method, request.path)
        left = request.seconds
        delay = sum(fault.amount for fault in met if fault.kind == "latency" and fault.use()) / 1000
        left = await self._delayed(delay, left, request, done=False)
        for fault in met:
            if fault.kind == "status" and fault.use():
                text = "This answer was asked for over the control socket"
                raise self._refusal(request, ApiError(int(fault.amount), fault.error, text))
        for fault in met:
            if fault.kind == "cut" and request.content > fault.amount and fault.use():
                broken = f"{doing}: the connection to {HOST} broke (Connection reset)"
                raise ReplyLost(broken) if request.content <= BUFFERED else Interrupted(broken)
        is_dropped = any(fault.kind == "drop" and fault.use() for fault in met)
        stall = sum(fault.amount for fault in met if fault.kind == "stall" and fault.use())
        try:
            found = work()
        except ApiError as refused:
            error: RemoteError | None = self._refusal(request, refused)
        else:
            error = None
        await self._delayed(stall, left, request, done=True)
        if is_dropped and request.effect:
            raise ReplyLost(f"{doing}: the connection to {HOST} broke before the answer arrived")
        if is_dropped:
            raise Interrupted(f"{doing}: the connection to {HOST} broke (Connection reset)")
        if error is not None:
            raise error
        return found

    async def _delayed(self, delay: float, left: float, request: _Request, *, done: bool) -> float:
        """Hold a request back; return the seconds that are left for it."""
        if not delay:
            return left
        began = trio.current_time()
        await self.world.hold(min(delay, left))
        left -= trio.current_time() - began
        if left <= 1e-6:  # the difference of two times is rounded
            slow = f"{request.doing}: {HOST} did not answer in time"
            raise ReplyLost(slow) if request.effect else TimedOut(slow)
        return left

    @staticmethod
    def _refusal(request: _Request, refused: ApiError) -> RemoteError:
        body = error_body(refused.code, refused.message, refused.data)
        return FakeService._failed(request, refused.status, body)

    @staticmethod
    def _failed(request: _Request, status: int, body: bytes) -> RemoteError:
        early = request.streamed
        # The status 401 of a profile's endpoint would need a check of the logon.
        origin: Origin = "" if status == 401 else "profile"
        is_published = request.path.startswith(("/api/zones", "/api/access"))
        origin = "published" if is_published else origin
        sent = Request(request.method, request.path, doing=request.doing, origin=origin)
        return error_mapping.failed(
            status, {}, body, sent, f"https://{HOST}",
            sent=request.effect and not early, early=early,
        )  # fmt: skip


class FakeTransfers(Transfers):
    """Transfers of a FakeService; called in worker threads of its trio loop."""

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.link = service.link
        self.is_ending = False

    def prepare(self) -> None:
        """Do nothing, because there is no connection."""

    def hang_up(self) -> None:
        self.is_ending = True

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
        data = bytearray()
        for piece in body:
            if cancelled():
                raise Cancelled("uploading: it is not wanted any more")
            data += piece
        if len(data) != size:
            raise StoreError(f"uploading: {len(data)} of {size} bytes")
        seconds = ANSWER_SECONDS + size / DIGESTED
        store = self._service.store
        return trio.from_thread.run(store, zone_id, folder_id, name, bytes(data), seconds, True)

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        version: str | None = None,
    ) -> Download:
        service, doing = self._service, "reading a file"
        path = f"/api/zones/{zone_id}/files/{file_id}/content"
        if version is not None:
            service.profile.operation("version_content")
            path = f"/api/sandbox/zones/{zone_id}/files/{file_id}/versions/{version}/content"
        request = _Request("GET", path, doing, BODY_SECONDS)

        async def opened() -> Content:
            return await service.repeated(
                lambda: service.send(request, lambda: service.stored(zone_id, file_id, version))
            )

        found = trio.from_thread.run(opened)
        size = len(found.data)
        headers = {"ETag": f'"{found.id}"', "Last-Modified": http_date(found.modified_us)}
        status, data = 200, found.data
        if offset or end is not None:
            last = size if end is None else min(end, size)
            data = found.data[offset:last]
            status = 206 if data else 416
            span = f"{offset}-{last - 1}" if data else "*"
            headers["Content-Range"] = f"bytes {span}/{size}"
        headers["Content-Length"] = str(len(data))
        met = service.world.faults.meeting("GET", path)
        body = _Body(data, [fault for fault in met if fault.kind == "cut"])
        response = httpx.Response(status, headers=headers, extensions={BODY: body})
        return Download(
            response, offset, end, doing, host=HOST, link=self.link, limit=TokenBucket(0)
        )


class _Body:
    """The body of one download, as far as the faults let it pass."""

    def __init__(self, data: bytes, cuts: list[Fault]) -> None:
        self._limit = len(data)
        for fault in cuts:
            if fault.amount < self._limit and fault.use():
                self._limit = int(fault.amount)
        self._is_cut = self._limit < len(data)
        self._data = data
        self._position = 0
        self._is_aborted = False

    def read(self, most: int) -> bytes:
        """Return up to `most` bytes, b"" at the end. Raises httpx.ReadError."""
        if self._is_aborted:
            raise httpx.ReadError("it was aborted")
        part = self._data[self._position : min(self._position + most, self._limit)]
        if not part and self._is_cut:
            raise httpx.ReadError("Connection reset")
        self._position += len(part)
        return part

    def abort(self) -> None:
        """End the reading with an error."""
        self._is_aborted = True
