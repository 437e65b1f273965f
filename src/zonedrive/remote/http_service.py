"""Implementation of `Service` over HTTPS, with endpoints of the published API and of a profile.

Published endpoints are defined here, all other endpoints in the profile.
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import httpx
import msgspec
import trio

from zonedrive.config import Settings
from zonedrive.errors import AlreadyExists, BadAnswer, NotFound, RemoteError
from zonedrive.formatting import timestamp
from zonedrive.model import Entry, LogMessage, Member, Version
from zonedrive.remote.clients import BlockingClient, LoopClient
from zonedrive.remote.connectivity import Connectivity, State
from zonedrive.remote.directory import Directory
from zonedrive.remote.profiles.operations import Operation, Profile, on_host
from zonedrive.remote.requests import Requests
from zonedrive.remote.service import Service
from zonedrive.remote.transfer import ANSWER_SECONDS, CONTENT, UPLOAD, Transfer, uploaded
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.transports import BlockingTransport, LoopTransport
from zonedrive.remote.urls import REQUIREMENTS, ZONES, Deployment, Request, fill_path
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire.error_mapping import not_about_a_zone
from zonedrive.remote.wire.fields import identifier, member, parse, plain_value
from zonedrive.remote.wire.multipart import MultipartBody
from zonedrive.remote.wire.pagination import Page, identified
from zonedrive.service_address import base_url
from zonedrive.translation import marked

FOLDER = "/api/zones/{zone}/folder/{folder}"
FILE = "/api/zones/{zone}/files/{file}"
LOG = "reading the zone log"
STEPS = 3  # maximum steps of one move; the third is needed if another user moves the entry
Objects = list[dict[str, Any]]


class HttpService(Service):
    """Service over HTTPS, with the endpoints of the published API and of a profile."""

    transfer: Transfer

    def __init__(
        self,
        client: LoopClient,
        requests: Requests,
        transfer: Transfer,
        link: Connectivity,
        profile: Profile,
    ) -> None:
        """Take ownership of `client` and `transfer`; `aclose` closes both."""
        self._client = client
        self._requests = requests
        self.profile = profile
        self.directory = Directory(requests)
        self.transfer = transfer
        self.link = link

    async def aclose(self) -> None:
        self.transfer.hang_up()
        await self._client.transport.aclose()

    async def reconnect(self, *, dead: bool) -> None:
        self._client.transport.drop_idle()
        await trio.to_thread.run_sync(partial(self.transfer.reconnect, dead=dead))
        self.link.recheck()

    @property
    def places(self) -> int:
        return self._requests.places

    @property
    def underway(self) -> int:
        return self._requests.underway

    async def listed_zones(self) -> wire.ListedZones:
        doing = "listing the zones"

        def items(body: bytes) -> Page[dict[str, Any]]:
            return identified(wire.objects(parse(body, doing), doing), "id")

        with not_about_a_zone():
            request = Request("GET", ZONES, doing=doing, origin="published")
            found = await self._requests.listing(request, items, kind=ZONES)
        return wire.ListedZones([item.value for item in found], doing)

    async def listed(self, zone_id: str, folder_id: str) -> wire.Listed:
        doing = "listing a folder"
        path = fill_path(FOLDER, {"zone": zone_id, "folder": folder_id})
        request = Request("GET", path, doing=doing, origin="published")
        raw_items = partial(wire.raw_items, doing=doing)
        found = await self._requests.listing(request, raw_items, kind=FOLDER)
        return wire.Listed(found, doing, zone_id=zone_id, parent_id=folder_id)

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        doing = "asking for an entry"
        path = fill_path(FILE, {"zone": zone_id, "file": file_id})
        body = await self._requests.read(Request("GET", path, doing=doing, origin="published"))
        return wire.one_entry(parse(body, doing), doing, zone_id=zone_id)

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        form = MultipartBody(name, [data], len(data))
        path = fill_path(UPLOAD, {"zone": zone_id, "folder": folder_id})
        request = Request("POST", path, doing="uploading", origin="published")
        body = await self._requests.upload(
            request, b"".join(form), form.content_type, seconds=ANSWER_SECONDS
        )
        return uploaded(body, zone_id, folder_id, name)

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        path = fill_path(CONTENT, {"zone": zone_id, "file": file_id})
        request = Request("GET", path, doing="reading a small file", origin="published")
        return await self._requests.read(request, accept="*/*", most=size)

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        doing = "making a folder"
        values = {"zone": zone_id, "parent": parent_id, "folder": parent_id, "name": name}
        answer = await self._change("make_folder", values, doing)
        try:
            return wire.one_entry(answer, doing, zone_id=zone_id, parent_id=parent_id, name=name)
        except BadAnswer:
            with _after_effect():
                entries = await self.listing(zone_id, parent_id)
            for entry in entries:
                if entry.folder and entry.name == name:
                    return entry
            raise BadAnswer(f"{doing}: the service accepted it, but does not list it") from None

    async def move(
        self, zone_id: str, entry_id: str, parent_id: str, name: str, *, folder: bool | None = None
    ) -> Entry:
        doing = "renaming or moving"
        values = _of_entry(zone_id, entry_id) | {
            "parent": parent_id, "folder": parent_id, "name": name,
        }  # fmt: skip

        async def change(operation: str) -> Entry:
            return await self._changed_entry(operation, values, doing, folder)

        async def present() -> Entry:
            return await entry_with_parent(self, zone_id, entry_id, parent_id)

        return await move_entry(self.profile, change, present, parent_id, name, folder)

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        await self._change("delete", _of_entry(zone_id, entry_id), marked("deleting"), folder)

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        values = _of_entry(zone_id, entry_id)
        return await self._changed_entry("restore", values, "restoring", folder)

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        await self._change(
            "purge", _of_entry(zone_id, entry_id), marked("removing permanently"), folder
        )

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        doing = "listing versions"
        fields = self.profile.operation("versions").fields
        found = await self._profile_list("versions", _of_entry(zone_id, file_id), doing)
        return wire.versions(found, fields, doing)

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        doing = "listing deleted entries"
        path = self.profile.operation("deleted").fields.get("deleted_at", "")
        found = await self._profile_list("deleted", {"zone": zone_id}, doing)
        return wire.deletions(found, path, doing, zone_id)

    async def zone_log(self, zone_id: str) -> list[dict[str, object]]:
        """Return the messages of a zone's log, each with all fields that the service sent."""
        return [plain_value(item, LOG) for item in await self._log(zone_id, 0) if item]

    async def log_messages(self, zone_id: str, since_ns: int = 0) -> list[LogMessage]:
        """Return the messages of a zone's log since `since_ns` (nanoseconds since the epoch).

        The result may contain older messages, because not every service filters by time. Raises
        NotSupported if the profile does not name the fields of a message.
        """
        self.profile.require_log()
        fields = self.profile.operation("zone_log").fields
        return wire.log_messages(await self._log(zone_id, since_ns), fields)

    async def _log(self, zone_id: str, since_ns: int) -> Objects:
        values = {"zone": zone_id, "since": timestamp(since_ns)}
        return await self._profile_list("zone_log", values, LOG)

    async def levels(self) -> dict[str, str]:
        doing = "reading the levels in zones"
        fields = self.profile.operation("levels").fields
        return wire.levels(await self._profile_list("levels", {}, doing), fields, doing)

    async def members(self, zone_id: str) -> list[Member]:
        """Return the members of a zone: users and groups with their access levels."""
        doing = "listing the members of a zone"
        fields = self.profile.operation("members").fields
        found = await self._profile_list("members", {"zone": zone_id}, doing)
        return wire.members(found, fields, doing)

    async def set_member(self, zone_id: str, member_id: str, level: str) -> None:
        """Set the access level of a user or group in a zone; add a new member if necessary."""
        values = {"zone": zone_id, "member": member_id, "level": level}
        await self._change("set_member", values, marked("setting a level"))

    async def remove_member(self, zone_id: str, member_id: str) -> None:
        """Remove a user or group from a zone."""
        values = {"zone": zone_id, "member": member_id}
        await self._change("remove_member", values, marked("removing a member"))

    async def share(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> str:
        """Create and return a link to an entry. Anyone who has the link can read the entry."""
        doing = "sharing"
        operation = self.profile.operation("share", folder=folder)
        request = operation.request(_of_entry(zone_id, entry_id), doing)
        body = await self._requests.change(request)
        try:
            return self._link_in(operation.located(parse(body, doing)), operation, doing)
        except BadAnswer as wrong:
            wrong.remedy = "the service may share it anyway: end that, and try again"
            raise

    def _link_in(self, answer: object, operation: Operation, doing: str) -> str:
        ((field, path),) = operation.fields.items()
        value, base = identifier(member(answer, path)), self._client.base_url
        if value in ("", ".", ".."):
            raise BadAnswer(f"{doing}: the answer has no link")
        link = operation.address({field: value}, base) if operation.link else on_host(value, base)
        if not re.fullmatch(r"https://[!-~]+", link):
            raise BadAnswer(f"{doing}: the link in the answer is not an https:// address")
        return link

    async def unshare(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Revoke the link that `share` created for an entry."""
        await self._change(
            "unshare", _of_entry(zone_id, entry_id), marked("ending the sharing"), folder
        )

    def member_link(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> str:
        operation = self.profile.operation("member_link", folder=folder)
        return operation.address(_of_entry(zone_id, entry_id), self._client.base_url)

    async def change_password(self, username: str, password: str, new_password: str) -> None:
        """Change the user's password. Raises CredentialsRefused if `password` is wrong."""
        values = {"username": username, "password": password, "new_password": new_password}
        operation = self.profile.operation("change_password")
        request = operation.request(values, "changing the password", origin="")
        await self._requests.change_with_password(request)

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token of the user before it expires."""
        await self._change("revoke_token", {"token": token_id}, marked("revoking a token"))

    async def probe(self, state: State) -> None:
        is_offline = state == "offline"
        await self._requests.try_once(REQUIREMENTS if is_offline else ZONES, bare=is_offline)

    async def _profile_list(self, name: str, values: Mapping[str, str], doing: str) -> Objects:
        operation = self.profile.operation(name)
        request = operation.request(values, doing)

        def items(body: bytes) -> Page[dict[str, Any]]:
            found = wire.objects(operation.located(parse(body, doing)), doing)
            return identified(found, "id" if name == "deleted" else "")  # ids of entries

        found = await self._requests.listing(request, items, kind=name)
        return [item.value for item in found]

    async def _change(
        self, name: str, values: Mapping[str, str], doing: str, folder: bool | None = None
    ) -> object:
        """Run the profile's operation `name`; return the entry's parsed JSON from the response.

        Return None if the response has no entry or cannot be parsed.
        """
        operation = self.profile.operation(name, folder=folder)
        body = await self._requests.change(operation.request(values, doing))
        if operation.answer == "none" or not body.strip():
            return None
        try:
            return operation.located(parse(body, doing))
        except BadAnswer:
            # The change is done; its result can be requested separately.
            return None

    async def _changed_entry(
        self, name: str, values: Mapping[str, str], doing: str, folder: bool | None
    ) -> Entry:
        """Run the profile's operation `name`, and return the changed entry.

        If the response contains no usable entry, request the entry separately.
        """
        answer = await self._change(name, values, doing, folder)
        try:
            return wire.one_entry(answer, doing, zone_id=values["zone"])
        except BadAnswer:
            with _after_effect():
                return await self.entry(values["zone"], values["entry"])


@contextlib.contextmanager
def _after_effect() -> Iterator[None]:
    """Set `is_partial` on errors of the `with` block, because an earlier request had an effect."""
    try:
        yield
    except RemoteError as wrong:
        wrong.is_partial = True
        raise


async def entry_with_parent(service: Service, zone_id: str, entry_id: str, parent_id: str) -> Entry:
    """Request and return an entry.

    If the service does not state the entry's parent, set the entry's `parent_id` to the argument
    `parent_id` if that folder contains the entry, else to "".
    """
    entry = await service.entry(zone_id, entry_id)
    if not entry.parent_id:
        listed = await service.listing(zone_id, parent_id)
        if any(each.id == entry_id for each in listed):
            return msgspec.structs.replace(entry, parent_id=parent_id)
    return entry


async def move_entry(
    profile: Profile,
    change: Callable[[str], Awaitable[Entry]],
    present: Callable[[], Awaitable[Entry]],
    parent_id: str,
    name: str,
    folder: bool | None,
) -> Entry:
    """Rename or move an entry, or both; return the entry.

    If the profile's operation `move` also sets the name, one request is enough. Otherwise, renaming
    and moving are separate requests. After a failure between the two requests, the entry has its
    old name in the new folder, or its new name in the old folder.
    `change` runs the operation `move` or `rename`, and returns the changed entry. `present`
    requests and returns the entry, see `entry_with_parent`.
    Raises NotSupported if the profile lacks a needed operation, and BadAnswer if the entry has not
    reached its target after STEPS steps.
    """
    move = profile.find("move", folder)
    if move is None and profile.find("rename", folder) is None:
        profile.operation("move", folder=folder)  # raises NotSupported
    if move is not None and move.uses("name"):
        return await change("move")
    entry = await present()  # an earlier attempt or another user may have done one of the steps
    is_partial = False
    stored = name  # the name as the service stores it
    try:
        for _ in range(STEPS):
            is_renamed, is_moved = entry.name in (name, stored), entry.parent_id == parent_id
            if is_renamed and is_moved:
                return entry
            if is_renamed or is_moved:
                entry = await change("move" if is_renamed else "rename")
                stored = stored if is_renamed else entry.name or name
            else:
                for needed in ("rename", "move"):
                    profile.operation(needed, folder=entry.folder)  # raise before the first step
                try:
                    entry = await change("rename")
                    stored = entry.name or name
                except (AlreadyExists, NotFound):
                    # The new name is taken in the old folder, or the old folder is deleted.
                    entry = await change("move")
            is_partial = True
            if not entry.parent_id:  # the answer does not state it
                entry = await present()
    except RemoteError as wrong:
        wrong.is_partial |= is_partial
        raise
    raise BadAnswer("renaming or moving: the service accepted it, but the entry is elsewhere")


def _of_entry(zone_id: str, entry_id: str) -> dict[str, str]:
    return {"zone": zone_id, "entry": entry_id, "file": entry_id}


def open_service(
    deployment: Deployment, auth: httpx.Auth, profile: Profile, settings: Settings
) -> HttpService:
    """Return the service at `deployment`; the first request opens a connection.

    Raises ConfigError if the base URL is not https or the certificate file cannot be used.
    """
    base = base_url(deployment.base_url)
    trust = tls.trust(deployment.ca_file)
    link = Connectivity()
    client = LoopClient(base, LoopTransport(trust), auth)
    requests = Requests(client, link, connections=settings.connections)
    transfer = Transfer(
        BlockingClient(base, BlockingTransport(trust), auth),
        link,
        profile,
        upload_limit=settings.upload_limit,
        download_limit=settings.download_limit,
    )
    return HttpService(client, requests, transfer, link, profile)
