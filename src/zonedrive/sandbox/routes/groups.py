"""Endpoints that create, change and delete groups."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.groups import LEVELS, Change
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment


class Member(msgspec.Struct, eq=False, rename="camel"):
    """Element of the array `members` in a request: a member and its new access level."""

    access_level: str
    member_id: str


class NewGroup(msgspec.Struct, eq=False):
    """Body of a request that creates a group."""

    name: str
    description: str = ""
    members: list[Member] = []


class Members(msgspec.Struct, eq=False):
    """Body of a request that changes a group."""

    members: list[Member]


async def create(request: Request, caller: Caller) -> Response:
    """Handle POST /api/groups: create a group; respond 201 with the group."""
    body = await intake.json_body(request, NewGroup)
    if not body.name.strip():
        raise bad_argument("name is empty")
    groups = deployment(request).groups
    group_id = groups.create(
        body.name,
        body.description,
        caller.id,
        _changes(body.members),
        scim=_by_scim(caller),
    )
    return json_response(groups.wire(group_id, caller.user), 201)


async def change(request: Request, caller: Caller) -> Response:
    """Handle PUT /api/groups/<group_id>: change or replace the members; return the group.

    With `relative=false`, users and groups that are not in the request cease to be members.
    """
    _managed(request, caller)
    relative = intake.boolean(request, "relative", default=True)
    body = await intake.json_body(request, Members)
    # The group or the caller's permission may have been removed while the body arrived.
    group_id, groups = _managed(request, caller), deployment(request).groups
    groups.change(group_id, _changes(body.members), relative=relative, scim=_by_scim(caller))
    return json_response(groups.wire(group_id, caller.user))


async def change_member(request: Request, caller: Caller) -> Response:
    """Handle PUT /api/groups/<group_id>/members/<member_id>?accesslevel=…: set a member's level.

    Returns the group.
    """
    await intake.no_body(request)
    group_id = _managed(request, caller)
    level = intake.choice(request.query_params.get("accesslevel"), "accesslevel", LEVELS)
    member_id = request.path_params["member_id"]
    service = deployment(request)
    if service.users.find(member_id) is None and not service.groups.exists(member_id):
        raise ApiError(404, "USER_UNKNOWN", f"There is no member {member_id!r}", member_id)
    changes = [Change(member_id, level)]
    service.groups.change(group_id, changes, relative=True, scim=_by_scim(caller))
    return json_response(service.groups.wire(group_id, caller.user))


async def delete(request: Request, caller: Caller) -> Response:
    """Handle DELETE /api/groups/<group_id>: delete the group; respond 204."""
    deployment(request).groups.delete(_managed(request, caller))
    return Response(status_code=204)


def _by_scim(caller: Caller) -> bool:
    return caller.scope is not None and caller.scope.name == "SCIM"


def _managed(request: Request, caller: Caller) -> str:
    """Return the id of the group in the path; raise ApiError if the caller may not manage it."""
    groups, group_id = deployment(request).groups, request.path_params["group_id"]
    if not groups.exists(group_id):
        raise ApiError(404, "ID_NOT_FOUND", "There is no such group", group_id)
    if not groups.may_manage(group_id, caller.user):
        raise ApiError(403, "NOT_ALLOWED", "Only its managers change a group", group_id)
    return str(group_id)


def _changes(members: list[Member]) -> list[Change]:
    return [
        Change(member.member_id, intake.choice(member.access_level, "accessLevel", LEVELS))
        for member in members
    ]
