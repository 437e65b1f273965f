"""The service as typed methods (`Service`), and its implementation over HTTPS (`HttpService`).

Knows nothing about inodes, the kernel, caches or the outbox. No message contains a name, because
errors are stored and logged in places where names are not allowed. Published endpoints are defined
here, all other endpoints in the profile.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

import httpx
import trio

from zonedrive.config import Settings
from zonedrive.errors import BadAnswer
from zonedrive.model import Entry, Version, Zone
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.connectivity import Connectivity, State
from zonedrive.remote.directory import Directory
from zonedrive.remote.download import Download
from zonedrive.remote.passwords import change_with_password
from zonedrive.remote.profiles.load import OPERATIONS, Profile
from zonedrive.remote.profiles.move import Mover
from zonedrive.remote.profiles.trash import DOING, Deletions
from zonedrive.remote.requests import Requests
from zonedrive.remote.transfer import (
    ANSWER_SECONDS,
    CONTENT,
    UPLOAD,
    Transfer,
    uploaded,
)
from zonedrive.remote.transport import tls
from zonedrive.remote.urls import Deployment, base_url, fill_path
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire import pagination
from zonedrive.remote.wire.lazy_listing import Listed, RawEntry, raw_items
from zonedrive.remote.wire.multipart import MultipartBody
from zonedrive.remote.wire.pagination import Bounds, Budget, Item, Pagination, Reader, Whole, whole

ZONES = "/api/zones"
FOLDER = "/api/zones/{zone}/folder/{folder}"
FILE = "/api/zones/{zone}/files/{file}"
REQUIREMENTS = "/api/access/authorizationrequirements"
AS_IT_IS = {"Accept": "*/*"}
LARGE = 1_000_000  # bytes; parsing a longer answer would block the loop for too long
ItemT = TypeVar("ItemT", bound=Item)
ShapeT = TypeVar("ShapeT", wire.WireEntry, wire.WireZone, wire.WireVersion)


class Transfers(Protocol):
    """Streams of content. Every method blocks, so it is called in a worker thread."""

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        version: str | None = None,
    ) -> Download:
        """Return the content of a file from `offset` up to `end`, as a context manager.

        A service that ignores ranges sends everything: see `Download.offset`. `version` names an
        old version (NotSupported without version_content in the profile).
        """
        ...

    def upload(
        self,
        zone_id: str,
        folder_id: str,
        name: str,
        body: Iterable[bytes],
        size: int,
        *,
        cancelled: Callable[[], bool] = ...,
    ) -> Entry:
        """Upload `size` bytes of `body` as `name` into a folder; return the resulting entry.

        The request is sent once and never retried. Raises ReplyLost if everything was sent but the
        result is unknown (also if the answer cannot be read), Interrupted or another Unreachable if
        the upload certainly had no effect, Cancelled once `cancelled()` is true, StoreError if
        `body` does not have `size` bytes, and the error of a rejection.
        """
        ...

    def prepare(self) -> None:
        """Open a connection, because a download is likely to follow. Errors are ignored."""

    def hang_up(self) -> None:
        """Abort all current and future transfers at once; they end with Interrupted."""


class Service(Protocol):
    """One deployment, seen as one user. All methods may run concurrently on one trio loop.

    Every method raises subclasses of errors.RemoteError. A method without an endpoint in the
    profile raises NotSupported at once. Reading methods retry a few times, changing methods never
    do.
    """

    link: Connectivity
    transfer: Transfers

    async def aclose(self) -> None:
        """Close all connections; running transfers end with Interrupted."""

    async def reconnect(self, *, dead: bool) -> None:
        """Stop using the existing connections and probe the service at once.

        Call this after a suspend or a change of network. `dead`: also abort the connections in use,
        because no more data can arrive on them.
        """

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        """Return True if the profile defines `operation`, one of profile.OPERATIONS.

        `folder` selects the variant for folders or for files; None accepts either.
        """
        ...

    def can_place(self, *, folder: bool, renamed: bool, moved: bool) -> bool:
        """Return True if `move` can change the name, the parent, or both, as requested."""
        ...

    @property
    def places(self) -> int:
        """Maximum number of concurrent metadata requests."""
        ...

    @property
    def underway(self) -> int:
        """Number of metadata requests in progress."""
        ...

    async def zones(self) -> list[Zone]:
        """Return all zones of the user, including those not accessible through the API."""
        ...

    async def listed_zones(self) -> wire.ListedZones:
        """Return all zones, and which facts the service left out."""
        ...

    async def listing(self, zone_id: str, folder_id: str) -> list[Entry]:
        """Return the present entries of a folder, from all pages, in the service's order.

        Deleted entries are left out, and each id occurs once.
        """
        ...

    async def listed(self, zone_id: str, folder_id: str) -> Listed:
        """Return the listing of a folder; each entry is parsed on first access."""
        ...

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        """Return one file or folder; it may be a deleted one, see Entry.deleted."""
        ...

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        """Upload a small file without a thread and without the rate limit of `transfer.upload`."""
        ...

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        """Return the whole content of a small file; larger files need `transfer`.

        Raises BadAnswer if the content has more than `size` bytes. No more than `size` bytes are
        held in memory.
        """
        ...

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        """Create a folder and return its entry. Raises AlreadyExists if the name is taken."""
        ...

    async def move(
        self, zone_id: str, entry_id: str, parent_id: str, name: str, *, folder: bool | None = None
    ) -> Entry:
        """Rename an entry, move it within its zone, or both.

        `parent_id` and `name` are the new ones. Here and in the methods below, `folder` says
        whether the entry is a folder, for profiles that distinguish files from folders.
        """
        ...

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Move an entry to the service's trash; a folder is moved with all its content."""

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        """Restore an entry from the trash."""
        ...

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Delete an entry permanently."""

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        """Return all versions of a file, newest first."""
        ...

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        """Return the entries in a zone's trash with their deletion time in ns (0: unknown)."""
        ...

    async def levels(self) -> dict[str, str]:
        """Return the user's access level per zone id, in the service's words: Add, Modify, …"""
        ...

    async def probe(self, state: State) -> None:
        """Send a harmless request to find out whether `state` has ended. See Connectivity.run."""


class HttpService(Service):
    """Service over HTTPS, by the endpoints of the published API and of a profile."""

    transfer: Transfer

    def __init__(
        self,
        client: httpx.AsyncClient,
        requests: Requests,
        transfer: Transfer,
        link: Connectivity,
        profile: Profile,
        bounds: Bounds = pagination.BOUNDS,
    ) -> None:
        """Take ownership of `client` and `transfer`; aclose closes both.

        `bounds` limits each listing.
        """
        self._client = client
        self._calls = requests
        self._profile = profile
        self._pagination = {kind: Pagination() for kind in ("zones", "folder", *OPERATIONS)}
        self._bounds = bounds
        self.directory = Directory(requests, bounds)
        self.transfer = transfer
        self.link = link

    async def aclose(self) -> None:
        self.transfer.close()
        await self._client.aclose()

    async def reconnect(self, *, dead: bool) -> None:
        self._calls.drop_idle()
        await trio.to_thread.run_sync(partial(self.transfer.reconnect, dead=dead))
        self.link.recheck()

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        return self._profile.can(operation, folder=folder)

    def can_place(self, *, folder: bool, renamed: bool, moved: bool) -> bool:
        return self._profile.can_place(folder, renamed=renamed, moved=moved)

    @property
    def places(self) -> int:
        return self._calls.places

    @property
    def underway(self) -> int:
        return self._calls.underway

    async def zones(self) -> list[Zone]:
        return (await self.listed_zones()).zones

    async def listed_zones(self) -> wire.ListedZones:
        doing = "listing the zones"
        return wire.ListedZones(await self._all("zones", ZONES, wire.WireZone, doing), doing)

    async def listing(self, zone_id: str, folder_id: str) -> list[Entry]:
        return (await self.listed(zone_id, folder_id)).entries()

    async def listed(self, zone_id: str, folder_id: str) -> Listed:
        doing = "listing a folder"
        path = fill_path(FOLDER, {"zone": zone_id, "folder": folder_id})

        budget = Budget(doing, self._bounds)

        async def fetch(query: Mapping[str, str]) -> list[RawEntry]:
            body = await self._calls.page(budget, path, query, doing=doing)
            if len(body) < LARGE:
                return raw_items(body, doing)
            return await trio.to_thread.run_sync(raw_items, body, doing)

        found = await Reader(fetch, self._pagination["folder"], budget).read()
        return Listed(found, doing, zone_id=zone_id, parent_id=folder_id)

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        doing = "asking for an entry"
        path = fill_path(FILE, {"zone": zone_id, "file": file_id})
        body = await self._calls.read(path, doing=doing)
        return wire.one_entry(wire.parse(body, doing), doing, zone_id=zone_id)

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        form = MultipartBody(name, [data], len(data))
        path = fill_path(UPLOAD, {"zone": zone_id, "folder": folder_id})
        body = await self._calls.post(
            path, b"".join(form), form.content_type, doing="uploading", seconds=ANSWER_SECONDS
        )
        return uploaded(body, zone_id, folder_id, name)

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        path = fill_path(CONTENT, {"zone": zone_id, "file": file_id})
        doing = "reading a small file"
        return await self._calls.read(path, doing=doing, headers=AS_IT_IS, most=size)

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        doing = "making a folder"
        values = {"zone": zone_id, "parent": parent_id, "folder": parent_id, "name": name}
        answer = await self._change("make_folder", values, doing)
        try:
            return wire.one_entry(answer, doing, zone_id=zone_id, parent_id=parent_id, name=name)
        except BadAnswer:
            for entry in await self.listing(zone_id, parent_id):
                if entry.folder and entry.name == name:
                    return entry
            raise BadAnswer(f"{doing}: the service took it, but does not list it") from None

    async def move(
        self, zone_id: str, entry_id: str, parent_id: str, name: str, *, folder: bool | None = None
    ) -> Entry:
        values = _of_entry(zone_id, entry_id) | {
            "parent": parent_id, "folder": parent_id, "name": name,
        }  # fmt: skip

        async def change(operation: str) -> Entry:
            return await self._changed_entry(operation, values, "renaming or moving", folder)

        async def present() -> Entry:
            return await self.entry(zone_id, entry_id)

        mover = Mover(self._profile, change, present)
        return await mover.bring(parent_id, name, folder)

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        await self._change("delete", _of_entry(zone_id, entry_id), "deleting", folder)

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        values = _of_entry(zone_id, entry_id)
        return await self._changed_entry("restore", values, "restoring", folder)

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        await self._change("purge", _of_entry(zone_id, entry_id), "removing for good", folder)

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        doing = "listing versions"
        fields = self._profile.operation("versions").fields

        def items(value: object) -> list[wire.WireVersion]:
            return wire.version_items(value, fields, doing)

        return wire.versions(
            await self._known("versions", _of_entry(zone_id, file_id), items, doing), doing
        )

    async def deleted(self, zone_id: str) -> list[Entry]:
        """Return the entries in a zone's trash."""
        return [entry for entry, _ in await self.deletions(zone_id)]

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        reading = Deletions(self._profile.operation("deleted"))
        found = await self._known("deleted", {"zone": zone_id}, reading.items, DOING)
        return reading.told(found, zone_id)

    async def zone_log(self, zone_id: str) -> list[dict[str, object]]:
        """Return the messages of a zone's log unchanged, because their fields are not published."""
        doing = "reading the zone log"

        def items(value: object) -> list[wire.WireMessage]:
            return wire.message_items(value, doing)

        found = await self._known("zone_log", {"zone": zone_id}, items, doing)
        return [message.said for message in found]

    async def levels(self) -> dict[str, str]:
        doing = "reading the levels in zones"
        operation = self._profile.operation("levels")
        request = operation.request({})
        body = await self._calls.read(
            request.path, request.query, doing=doing, method=request.method, body=request.body
        )
        return wire.levels(operation.located(wire.parse(body, doing)), operation.fields, doing)

    async def change_password(self, username: str, password: str, new_password: str) -> None:
        """Change the user's password. Raises CredentialsRefused if `password` is wrong."""
        doing = "changing the password"
        values = {"username": username, "password": password, "new_password": new_password}
        request = self._profile.operation("change_password").request(values)
        await change_with_password(
            self._calls, request.method, request.path, request.query, request.body, doing=doing
        )

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token of the user before it expires."""
        await self._change("revoke_token", {"token": token_id}, "revoking a token")

    async def probe(self, state: State) -> None:
        if state == "offline":
            doing = "asking whether the service is there"
            await self._calls.try_once(REQUIREMENTS, doing=doing, bare=True)
        else:
            doing = "asking whether the logon holds"
            await self._calls.try_once(ZONES, doing=doing, bare=False)

    async def _all(self, kind: str, path: str, shape: type[ShapeT], doing: str) -> list[ShapeT]:
        budget = Budget(doing, self._bounds)

        async def fetch(query: Mapping[str, str]) -> list[ShapeT]:
            body = await self._calls.page(budget, path, query, doing=doing)
            return wire.items(body, shape, doing)

        return await Reader(fetch, self._pagination[kind], budget).read()

    async def _known(
        self,
        name: str,
        values: Mapping[str, str],
        items: Callable[[object], list[ItemT]],
        doing: str,
    ) -> list[ItemT]:
        """Return the items of a listing that the profile describes."""
        operation = self._profile.operation(name)
        request = operation.request(values)
        budget = Budget(doing, self._bounds)

        async def fetch(query: Mapping[str, str]) -> list[ItemT]:
            query = {**request.query, **query}
            body = await self._calls.page(
                budget, request.path, query, doing=doing, method=request.method, body=request.body
            )
            return items(operation.located(wire.parse(body, doing)))

        if name == "deleted":  # entries, whose ids are published
            return await Reader(fetch, self._pagination[name], budget).read()

        async def page(query: Mapping[str, str]) -> list[Whole[ItemT]]:
            return whole(await fetch(query))

        return [each.item for each in await Reader(page, self._pagination[name], budget).read()]

    async def _change(
        self, name: str, values: Mapping[str, str], doing: str, folder: bool | None = None
    ) -> object:
        """Run an operation of the profile; return the entry data in the answer, or None."""
        operation = self._profile.operation(name, folder=folder)
        request = operation.request(values)
        body = await self._calls.change(
            request.method, request.path, request.query, request.body, doing=doing
        )
        if operation.answer == "none" or not body.strip():
            return None
        try:
            return operation.located(wire.parse(body, doing))
        except BadAnswer:
            # The change is done; its result can be requested separately.
            return None

    async def _changed_entry(
        self, name: str, values: Mapping[str, str], doing: str, folder: bool | None
    ) -> Entry:
        """Run `_change` and return the entry; request it if the answer does not contain it."""
        answer = await self._change(name, values, doing, folder)
        try:
            return wire.one_entry(answer, doing, zone_id=values["zone"])
        except BadAnswer:
            return await self.entry(values["zone"], values["entry"])


def _of_entry(zone_id: str, entry_id: str) -> dict[str, str]:
    return {"zone": zone_id, "entry": entry_id, "file": entry_id}


def open_service(
    deployment: Deployment, auth: httpx.Auth, profile: Profile, settings: Settings
) -> HttpService:
    """Return the service at `deployment`; it connects with the first request.

    Raises ConfigError if the base URL is not https or the certificate file cannot be used.
    """
    base = base_url(deployment.base_url)
    trust = tls.trust(deployment.ca_file)
    link = Connectivity()
    client = LoopClient(trust, auth)
    return HttpService(
        client,
        Requests(client, base, link, connections=settings.connections),
        Transfer(
            BlockingClient(trust, auth),
            base,
            link,
            profile,
            upload_limit=settings.upload_limit,
            download_limit=settings.download_limit,
        ),
        link,
        profile,
    )
