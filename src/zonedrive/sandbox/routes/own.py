"""Endpoints below /api/sandbox, for operations that the published API does not describe.

The operations are creating, renaming, moving, deleting, restoring and permanently deleting entries,
setting attributes, listing versions and deleted entries, managing the members of zones, reading the
zone log, changing a password, and revoking a token. In the docstrings, `…` at the start of a path
means /api/sandbox/zones/<zone_id>.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import entries, intake, limits
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.clock import iso
from zonedrive.sandbox.database import Row
from zonedrive.sandbox.entries import Entries
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment, own_password
from zonedrive.sandbox.routes.uploads import refuse_write
from zonedrive.sandbox.routes.zones import content_of, enter, refuse_read
from zonedrive.sandbox.zones import Level


class NewFolder(msgspec.Struct, eq=False, rename="camel"):
    """Body of a request that creates a folder."""

    parent_id: str
    name: str


class Place(msgspec.Struct, eq=False, rename="camel"):
    """Body of a request that renames or moves an entry; None leaves the name or folder as it is."""

    name: str | None = None
    parent_id: str | None = None


class Attributes(msgspec.Struct, eq=False, rename="camel"):
    """Body of a request that sets attributes; a missing attribute remains unchanged."""

    executable: bool | None = None
    hidden: bool | None = None
    read_protected: bool | None = None
    write_protected: bool | None = None


class NewPassword(msgspec.Struct, eq=False, rename="camel"):
    """Body of a request that changes the caller's password."""

    password: list[str]
    new_password: list[str]


async def make_folder(request: Request, caller: Caller) -> Response:
    """Handle POST …/folders: create a folder; respond 201, or 409 if the name is taken."""
    body = await intake.json_body(request, NewFolder)
    zone_id = enter(request, caller, Level.ADD)
    store = deployment(request).entries
    parent = store.folder(zone_id, body.parent_id)
    name = intake.entry_name(body.name)
    refuse_write(parent["write_protected"], parent["id"])
    store.refuse_taken(parent["id"], name)
    folder_id = store.add_folder(zone_id, parent["id"], name, caller.id)
    return json_response(entries.wire(store.find(zone_id, folder_id)), 201)


async def move(request: Request, caller: Caller) -> Response:
    """Handle PUT …/entries/<id>: rename an entry, move it inside the zone, or both.

    The response is the entry, or 409 if the name is taken.
    """
    body = await intake.json_body(request, Place)
    zone_id = enter(request, caller, Level.MODIFY)
    store = deployment(request).entries
    row = store.find(zone_id, request.path_params["entry_id"])
    if row["parent_id"] is None:
        raise ApiError(403, "NOT_ALLOWED", "A zone's root folder stays where it is", row["id"])
    refuse_change(store, row)
    name = row["name"] if body.name is None else intake.entry_name(body.name)
    parent_id = row["parent_id"]
    if body.parent_id is not None:
        parent = store.folder(zone_id, body.parent_id)
        parent_id = parent["id"]
        if parent_id != row["parent_id"]:
            refuse_write(parent["write_protected"], parent_id)
    store.move(row, parent_id, name, caller.id)
    return json_response(entries.wire(store.find(zone_id, row["id"])))


async def delete(request: Request, caller: Caller) -> Response:
    """Handle DELETE …/entries/<id>: move the entry to the trash; respond 204."""
    zone_id = enter(request, caller, Level.MODIFY)
    store = deployment(request).entries
    row = store.find(zone_id, request.path_params["entry_id"])
    if row["parent_id"] is None:
        raise ApiError(403, "NOT_ALLOWED", "A zone's root folder cannot be deleted", row["id"])
    refuse_change(store, row)
    store.delete(row, caller.id)
    return Response(status_code=204)


async def restore(request: Request, caller: Caller) -> Response:
    """Handle POST …/entries/<id>/restore: restore an entry from the trash; return the entry.

    The response is 409 if the entry cannot be restored.
    """
    await intake.no_body(request)
    zone_id = enter(request, caller, Level.MODIFY)
    store = deployment(request).entries
    row = store.find_in_trash(zone_id, request.path_params["entry_id"])
    refuse_change(store, row)
    store.restore(row, caller.id)
    return json_response(entries.wire(store.find(zone_id, row["id"])))


async def purge(request: Request, caller: Caller) -> Response:
    """Handle DELETE …/entries/<id>/purge: permanently delete an entry in the trash; respond 204."""
    zone_id = enter(request, caller, Level.MANAGE)
    store = deployment(request).entries
    entry_id = request.path_params["entry_id"]
    store.purge(store.find_in_trash(zone_id, entry_id), caller.id)
    return Response(status_code=204)


async def set_attributes(request: Request, caller: Caller) -> Response:
    """Handle PUT …/entries/<id>/attributes: set attributes; return the entry.

    Setting a protection requires the level Manage. Setting other attributes requires Modify.
    """
    body = await intake.json_body(request, Attributes)
    chosen = {name: value for name, value in msgspec.to_builtins(body).items() if value is not None}
    guarding = "readProtected" in chosen or "writeProtected" in chosen
    zone_id = enter(request, caller, Level.MANAGE if guarding else Level.MODIFY)
    store = deployment(request).entries
    row = store.find(zone_id, request.path_params["entry_id"])
    if not guarding:
        refuse_write(row["write_protected"], row["id"])
    if chosen:
        store.set_attributes(row, chosen, caller.id)
    return json_response(entries.wire(store.find(zone_id, row["id"])))


async def zone_log(request: Request, caller: Caller) -> Response:
    """Handle GET …/log: return a page of the zone's messages, newest first.

    Messages older than the query parameter `since` are omitted.
    """
    zone_id = enter(request, caller, Level.ADD)
    limit, offset = intake.page(request)
    return json_response(
        deployment(request).log.messages(zone_id, limit, offset, intake.since(request))
    )


async def levels(request: Request, caller: Caller) -> Response:
    """Handle GET /api/sandbox/levels: return the caller's level in each zone.

    The response omits zones of which the caller is not a member, and zones that the caller's scope
    excludes. If no level is set for the caller directly, the highest level of the caller's groups
    counts.
    """
    zones, only = deployment(request).zones, limits.zones(caller.scope)
    return json_response(
        [
            {"zoneId": zone["id"], "level": zones.level(zone["id"], caller.id).name.capitalize()}
            for zone in zones.visible(caller.id)
            if only is None or zone["id"] in only
        ]
    )


async def versions(request: Request, caller: Caller) -> Response:
    """Handle GET …/files/<id>/versions: return the versions of a file, newest first."""
    zone_id = enter(request, caller, Level.ADD)
    store = deployment(request).entries
    row = store.file(zone_id, request.path_params["file_id"])
    return json_response([version.wire() for version in store.versions(row["id"])])


async def version_content(request: Request, caller: Caller) -> Response:
    """Handle GET …/files/<id>/versions/<number or id>/content: return a version's content."""
    zone_id = enter(request, caller, Level.ADD)
    store = deployment(request).entries
    row = store.file(zone_id, request.path_params["file_id"])
    refuse_read(row)
    return content_of(request, store.version(row["id"], request.path_params["version"]))


async def deleted(request: Request, caller: Caller) -> Response:
    """Handle GET …/deleted: return the deleted entries of the zone.

    Entries that were deleted as part of a folder are not in the list.
    """
    zone_id = enter(request, caller, Level.ADD)
    rows = deployment(request).entries.trash(zone_id)
    return json_response(
        [
            entries.wire(row) | {"deletedAt": row["deleted_us"] and iso(row["deleted_us"])}
            for row in rows
        ]
    )


async def members(request: Request, caller: Caller) -> Response:
    """Handle GET …/members: return the direct members (users and groups) with their levels."""
    zone_id = enter(request, caller, Level.ADD)
    service = deployment(request)
    return json_response(
        [
            {
                "memberId": row["member_id"],
                "accessLevel": Level(row["level"]).name.capitalize(),
                **service.groups.described(row["member_id"], is_group=bool(row["is_group"])),
            }
            for row in service.zones.members(zone_id)
        ]
    )


async def set_member(request: Request, caller: Caller) -> Response:
    """Handle PUT …/members/<id>?accesslevel=…: set a user's or group's level; respond 204."""
    await intake.no_body(request)
    zone_id = enter(request, caller, Level.MANAGE)
    service, member_id = deployment(request), request.path_params["member_id"]
    level = Level.parse(request.query_params.get("accesslevel", ""))
    if level is None:
        raise bad_argument("accesslevel must be one of None, Add, Modify, Manage")
    user = service.users.find(member_id)
    if user is None and not service.groups.exists(member_id):
        raise ApiError(404, "USER_UNKNOWN", f"There is no member {member_id!r}", member_id)
    member_id = member_id if user is None else user.id
    with service.database.transaction():
        service.zones.set_member(zone_id, member_id, level, is_group=user is None)
        said = f"{member_id} has the level {level.name.capitalize()}"
        service.log.add(zone_id, caller.id, "MemberChanged", said)
    return Response(status_code=204)


def refuse_change(store: Entries, row: Row) -> None:
    """Raise ApiError 403 if an entry or the folder that contains it is write-protected."""
    refuse_write(row["write_protected"], row["id"])
    refuse_write(store.write_protected(row["parent_id"]), row["parent_id"])


async def change_password(request: Request, caller: Caller) -> Response:
    """Handle POST /api/sandbox/password: change the caller's password; respond 204.

    Tokens that were created with the old password become invalid.
    """
    body = await intake.json_body(request, NewPassword)
    old, new = intake.characters(body.password), intake.characters(body.new_password)
    await own_password(request, caller, old or "")
    if not new or new == old:
        raise ApiError(400, "ILLEGAL_PASSWORD", "The new password is empty or the old one")
    deployment(request).users.change_password(caller.id, new)
    return Response(status_code=204)


async def revoke_token(request: Request, caller: Caller) -> Response:
    """Handle DELETE /api/sandbox/tokens/<id>: make a token expire now; respond 204.

    The token remains in the list of tokens.
    """
    if not deployment(request).sessions.revoke(caller.id, request.path_params["token_id"]):
        raise ApiError(404, "ID_NOT_FOUND", "There is no such token")
    return Response(status_code=204)
