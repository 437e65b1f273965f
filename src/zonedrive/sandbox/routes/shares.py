"""Endpoints that create and revoke shares, and that let external parties read shared entries.

The API documentation gives the path of the `token` endpoint, but neither the method nor the body.
GET and POST therefore get the same response here. The fields of this response and all other paths
are specific to the sandbox. A share's link leads to a page with the shared file, or with the
entries of the shared folder.

In the docstrings, `…` at the start of a path means /api/sandbox/zones/<zone_id>.
"""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake, share_page, shares
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.database import Row
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.routes.zones import attached, enter, refuse_read
from zonedrive.sandbox.zones import Level


async def share(request: Request, caller: Caller) -> Response:
    """Handle POST …/entries/<id>/share: share an entry; respond 201 with the share key.

    The response is 403 if the zone does not allow sharing, or if the caller's session or token has
    a scope.
    """
    await intake.no_body(request)
    zone_id = enter(request, caller, Level.MODIFY)
    service = deployment(request)
    _refuse_scope(caller)
    if not service.zones.shares_outside(zone_id):
        raise ApiError(403, "NOT_ALLOWED", "This zone does not allow sharing outside", zone_id)
    row = service.entries.find(zone_id, request.path_params["entry_id"])
    refuse_read(row)
    with service.database.transaction():
        key = service.shares.make(zone_id, row["id"], caller.id)
        service.entries.tell(row, caller.id, "Shared", f"{row['name']} was shared outside")
    link = f"{request.base_url}api/sandbox/shares/{key}"
    return json_response({"sharekey": key, "entryId": row["id"], "link": link}, 201)


async def unshare(request: Request, caller: Caller) -> Response:
    """Handle DELETE …/entries/<id>/share: end all shares of an entry; respond 204.

    The response is 404 if the entry is not shared, and 403 if the caller's session or token has a
    scope.
    """
    await intake.no_body(request)
    zone_id = enter(request, caller, Level.MODIFY)
    service = deployment(request)
    _refuse_scope(caller)
    row = service.entries.find(zone_id, request.path_params["entry_id"])
    found = service.shares.of_entry(row["id"])
    if not found:
        raise ApiError(404, "NOT_FOUND", "This is not shared", row["id"])
    with service.database.transaction():
        for each in found:
            service.sessions.end_scoped(each["user_id"], shares.scope_of(each))
        service.shares.end(row["id"])
        service.entries.tell(row, caller.id, "Unshared", f"{row['name']} is not shared any more")
    return Response(status_code=204)


async def token(request: Request) -> Response:
    """Handle GET or POST /share/<sharekey>/token: return a token that expires after LIFE_MS.

    The response is 404 for an unknown key.
    """
    await intake.no_body(request)
    found = _share(request)
    service = deployment(request)
    secret = service.sessions.begin(found["user_id"], shares.LIFE_MS, shares.scope_of(found))
    return json_response({"token": secret, "expiresInMillis": shares.LIFE_MS})


async def page(request: Request) -> Response:
    """Handle GET /api/sandbox/shares/<sharekey>: return the page that a share's link opens."""
    found = _share(request)
    return _folder_page(request, found, _entry(request, found, found["entry_id"]))


async def content(request: Request) -> Response:
    """Handle GET /api/sandbox/shares/<sharekey>/<id>: return an entry of a share.

    The response is the content of a file, or the page of a folder.
    """
    found = _share(request)
    row = _entry(request, found, request.path_params["entry_id"])
    if row["folder"]:
        return _folder_page(request, found, row)
    return attached(request, row)


def _folder_page(request: Request, found: Row, row: Row) -> Response:
    rows = deployment(request).entries.children(row["id"]) if row["folder"] else [row]
    shown = [each for each in rows if not each["read_protected"]]
    address = f"/api/sandbox/shares/{quote(request.path_params['sharekey'], safe='')}"
    name = row["name"] if row["parent_id"] else "A zone"
    return share_page.page(deployment(request).organization.name, name, shown, address)


def _share(request: Request) -> Row:
    """Return the share for the key in the path; raise ApiError 404 if there is none."""
    found = deployment(request).shares.find(request.path_params["sharekey"])
    if found is None:
        raise ApiError(404, "NOT_FOUND", "There is no such share")
    return found


def _entry(request: Request, found: Row, entry_id: str) -> Row:
    """Return the shared entry or an entry below it; raise ApiError for any other entry.

    Also raises ApiError if the user who created the share may no longer read the entry.
    """
    service = deployment(request)
    service.zones.enter(found["zone_id"], found["user_id"], Level.ADD)
    row = service.entries.find(found["zone_id"], entry_id)
    if not service.entries.is_inside(row["id"], found["entry_id"]):
        raise ApiError(404, "UNKNOWN_FILE", "There is no such file or folder", entry_id)
    refuse_read(row)
    return row


def _refuse_scope(caller: Caller) -> None:
    if caller.scope is not None:
        raise ApiError(403, "NOT_ALLOWED", "A limited session or token does not share")
