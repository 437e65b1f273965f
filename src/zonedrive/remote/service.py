"""The service as typed verbs: what zones, folders and files there are, and changes to them.

Must not know inodes, the kernel, caches or the outbox.  No message holds a name: errors are kept
and logged where names are not.  Published endpoints stand here, all others in the profile.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import httpx
import trio

from zonedrive.config import Settings
from zonedrive.errors import BadAnswer
from zonedrive.model import Entry, Version, Zone
from zonedrive.remote.address import Deployment, base_url, fill_path
from zonedrive.remote.calls import Calls
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.directory import Directory
from zonedrive.remote.link import Link, State
from zonedrive.remote.passwords import change_with_password
from zonedrive.remote.profiles.deletions import DOING, Deletions
from zonedrive.remote.profiles.moving import Mover
from zonedrive.remote.profiles.reading import OPERATIONS, Profile
from zonedrive.remote.transfer import (
    ANSWER_SECONDS,
    CONTENT,
    UPLOAD,
    Transfer,
    uploaded,
)
from zonedrive.remote.transport import tls
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire import listing
from zonedrive.remote.wire.folder import Listed, RawEntry, raw_items
from zonedrive.remote.wire.listing import Bounds, Budget, Item, Pagination, Reader, Whole, whole
from zonedrive.remote.wire.multipart import MultipartBody

ZONES = "/api/zones"
FOLDER = "/api/zones/{zone}/folder/{folder}"
FILE = "/api/zones/{zone}/files/{file}"
REQUIREMENTS = "/api/access/authorizationrequirements"
AS_IT_IS = {"Accept": "*/*"}
LARGE = 1_000_000  # bytes of an answer that would keep the loop for too long
ItemT = TypeVar("ItemT", bound=Item)
ShapeT = TypeVar("ShapeT", wire.WireEntry, wire.WireZone, wire.WireVersion)


class Service:
    """One deployment, as one user.  All verbs may be called concurrently, on one trio loop.

    Every verb raises subclasses of errors.RemoteError; verbs without an endpoint in the profile
    raise NotSupported at once.  Reading verbs repeat themselves a little, others never do.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        requests: Calls,
        transfer: Transfer,
        link: Link,
        profile: Profile,
        bounds: Bounds = listing.BOUNDS,
    ) -> None:
        """Takes over `client` and `transfer`: aclose closes them.  `bounds`: of each listing."""
        self._client = client
        self._calls = requests
        self._profile = profile
        self._pagination = {kind: Pagination() for kind in ("zones", "folder", *OPERATIONS)}
        self._bounds = bounds
        self.directory = Directory(requests, bounds)
        self.transfer = transfer
        self.link = link

    async def aclose(self) -> None:
        """Close all connections; transfers that are underway end in Interrupted."""
        self.transfer.close()
        await self._client.aclose()

    async def reconnect(self, *, dead: bool) -> None:
        """After a sleep, or in another network: use no connection of before, and look at once.

        `dead`: those in use are cut as well, since nothing would come on them any more.
        """
        self._calls.drop_idle()
        await trio.to_thread.run_sync(partial(self.transfer.reconnect, dead=dead))
        self.link.recheck()

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        """Whether the profile knows how to do `operation`, one of profile.OPERATIONS.

        For a file or a folder; None: for one of them at least.
        """
        return self._profile.can(operation, folder=folder)

    def can_place(self, *, folder: bool, renamed: bool, moved: bool) -> bool:
        """Whether `move` can give an entry another name, another parent, or both."""
        return self._profile.can_place(folder, renamed=renamed, moved=moved)

    @property
    def places(self) -> int:
        """How many requests for metadata may be under way at once."""
        return self._calls.places

    @property
    def underway(self) -> int:
        """How many there are."""
        return self._calls.underway

    async def zones(self) -> list[Zone]:
        """All zones of the user, the ones not accessible through the API included."""
        return (await self.listed_zones()).zones

    async def listed_zones(self) -> wire.ListedZones:
        """As `zones`, with word of what the service does not really say."""
        doing = "listing the zones"
        return wire.ListedZones(await self._all("zones", ZONES, wire.WireZone, doing), doing)

    async def listing(self, zone_id: str, folder_id: str) -> list[Entry]:
        """The present entries of a folder, on however many pages they come; order is the service's.

        Deleted ones are left out, and each id comes once.
        """
        return (await self.listed(zone_id, folder_id)).entries()

    async def listed(self, zone_id: str, folder_id: str) -> Listed:
        """As `listing`, with entries that are only read when they are asked for."""
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
        """One file or folder; it may be a deleted one, see Entry.deleted."""
        doing = "asking for an entry"
        path = fill_path(FILE, {"zone": zone_id, "file": file_id})
        body = await self._calls.read(path, doing=doing)
        return wire.one_entry(wire.parse(body, doing), doing, zone_id=zone_id)

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        """Store a small file, as `Transfer.upload` does, without a thread and without its limit."""
        form = MultipartBody(name, [data], len(data))
        path = fill_path(UPLOAD, {"zone": zone_id, "folder": folder_id})
        body = await self._calls.post(
            path, b"".join(form), form.content_type, doing="uploading", seconds=ANSWER_SECONDS
        )
        return uploaded(body, zone_id, folder_id, name)

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        """All of a small file; what is bigger goes through `transfer`.

        Raises BadAnswer for more than `size` bytes, of which it holds no more than that.
        """
        path = fill_path(CONTENT, {"zone": zone_id, "file": file_id})
        doing = "reading a small file"
        return await self._calls.read(path, doing=doing, headers=AS_IT_IS, most=size)

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        """A new folder.  Raises AlreadyExists where the name is taken."""
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
        """Rename, move, or both, inside one zone: `parent_id` and `name` are the new ones.

        Here and below, `folder` tells whether the entry is one, for profiles that distinguish.
        """
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
        """Into the service's trash; a folder takes what is in it along."""
        await self._change("delete", _of_entry(zone_id, entry_id), "deleting", folder)

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        """Out of the trash."""
        values = _of_entry(zone_id, entry_id)
        return await self._changed_entry("restore", values, "restoring", folder)

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Remove for good."""
        await self._change("purge", _of_entry(zone_id, entry_id), "removing for good", folder)

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        """All versions of a file, the newest first."""
        doing = "listing versions"
        fields = self._profile.operation("versions").fields

        def items(value: object) -> list[wire.WireVersion]:
            return wire.version_items(value, fields, doing)

        return wire.versions(
            await self._known("versions", _of_entry(zone_id, file_id), items, doing), doing
        )

    async def deleted(self, zone_id: str) -> list[Entry]:
        """What is in a zone's trash."""
        return [entry for entry, _ in await self.deletions(zone_id)]

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        """What is in a zone's trash, and when each was deleted: nanoseconds, 0 for unknown."""
        reading = Deletions(self._profile.operation("deleted"))
        found = await self._known("deleted", {"zone": zone_id}, reading.items, DOING)
        return reading.told(found, zone_id)

    async def zone_log(self, zone_id: str) -> list[dict[str, object]]:
        """The messages of a zone's log as they come: their fields are not published."""
        doing = "reading the zone log"

        def items(value: object) -> list[wire.WireMessage]:
            return wire.message_items(value, doing)

        found = await self._known("zone_log", {"zone": zone_id}, items, doing)
        return [message.said for message in found]

    async def levels(self) -> dict[str, str]:
        """The user's access level by id of the zone, in the service's words: Add, Modify, …"""
        doing = "reading the levels in zones"
        operation = self._profile.operation("levels")
        request = operation.request({})
        body = await self._calls.read(
            request.path, request.query, doing=doing, method=request.method, body=request.body
        )
        return wire.levels(operation.located(wire.parse(body, doing)), operation.fields, doing)

    async def change_password(self, username: str, password: str, new_password: str) -> None:
        """Give the user another password.  Raises CredentialsRefused for a wrong one."""
        doing = "changing the password"
        values = {"username": username, "password": password, "new_password": new_password}
        request = self._profile.operation("change_password").request(values)
        await change_with_password(
            self._calls, request.method, request.path, request.query, request.body, doing=doing
        )

    async def revoke_token(self, token_id: str) -> None:
        """End a token of the user before its time."""
        await self._change("revoke_token", {"token": token_id}, "revoking a token")

    async def probe(self, state: State) -> None:
        """Ask something harmless, to see whether `state` has ended.  See Link.run."""
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
        """The items of a listing that the profile describes."""
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
        """Do an operation of the profile: what the answer says of the entry, None for nothing."""
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
            # It is done; what the service said about it can be looked up.
            return None

    async def _changed_entry(
        self, name: str, values: Mapping[str, str], doing: str, folder: bool | None
    ) -> Entry:
        """As `_change`, and the entry afterwards, asked for where the answer does not tell it."""
        answer = await self._change(name, values, doing, folder)
        try:
            return wire.one_entry(answer, doing, zone_id=values["zone"])
        except BadAnswer:
            return await self.entry(values["zone"], values["entry"])


def _of_entry(zone_id: str, entry_id: str) -> dict[str, str]:
    return {"zone": zone_id, "entry": entry_id, "file": entry_id}


def open_service(
    deployment: Deployment, auth: httpx.Auth, profile: Profile, settings: Settings
) -> Service:
    """The service at `deployment`; connects at the first request.

    Raises ConfigError for a base URL that is not https or a certificate file that cannot be used.
    """
    base = base_url(deployment.base_url)
    trust = tls.trust(deployment.ca_file)
    link = Link()
    client = LoopClient(trust, auth)
    return Service(
        client,
        Calls(client, base, link, connections=settings.connections),
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
