"""Sharing with external parties: creating a share (own path), and tokens for share keys.

The published path shows neither method nor body.  Therefore GET and POST get the same answer here,
and the answer's fields are the sandbox's own.
"""

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake, shares
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.routes.zones import enter, refuse_read
from zonedrive.sandbox.zones import Level


async def share(request: Request, caller: Caller) -> Response:
    """POST …/entries/<id>/share: 201 with the share key, if the zone allows sharing."""
    await intake.no_body(request)
    zone_id = enter(request, caller, Level.MODIFY)
    service = deployment(request)
    if caller.scope is not None:
        raise ApiError(403, "NOT_ALLOWED", "A limited session or token does not share")
    if not service.zones.shares_outside(zone_id):
        raise ApiError(403, "NOT_ALLOWED", "This zone does not allow sharing outside", zone_id)
    row = service.entries.find(zone_id, request.path_params["entry_id"])
    refuse_read(row)
    key = service.shares.make(zone_id, row["id"], caller.id)
    return json_response({"sharekey": key, "entryId": row["id"]}, 201)


async def token(request: Request) -> Response:
    """GET or POST /share/<sharekey>/token: a token for five minutes; 404 for an unknown key."""
    await intake.no_body(request)
    service = deployment(request)
    found = service.shares.find(request.path_params["sharekey"])
    if found is None:
        raise ApiError(404, "NOT_FOUND", "There is no such share")
    secret = service.sessions.begin(found["user_id"], shares.LIFE_MS, shares.scope_of(found))
    return json_response({"token": secret, "expiresInMillis": shares.LIFE_MS})
