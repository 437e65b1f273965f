"""Endpoints that read zones, folders, entries and content."""

import os
import re
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import entries, intake, limits
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.clock import http_date
from zonedrive.sandbox.content import FileContent
from zonedrive.sandbox.database import Row
from zonedrive.sandbox.entries import Version
from zonedrive.sandbox.errors import ApiError, error_response
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.zones import Level

RANGE = re.compile(r"bytes=(\d{0,1000})-(\d{0,1000})")  # int() refuses more than 4300 digits


def enter(request: Request, caller: Caller, needed: Level) -> str:
    """Return the id of the zone in the path; raise ApiError as `Zones.enter` does."""
    zone_id = request.path_params["zone_id"]
    return str(deployment(request).zones.enter(zone_id, caller.id, needed)["id"])


async def listed(request: Request, caller: Caller) -> Response:
    """Handle GET /api/zones: return the zones of which the caller is a member."""
    service = deployment(request)
    zones = service.zones.visible(caller.id)
    only = limits.zones(caller.scope)
    if only is not None:
        zones = [zone for zone in zones if zone["id"] in only]
    if service.organization.page_listings:
        limit, offset = intake.page(request)
        zones = zones[offset : offset + limit]
    return json_response(zones)


async def folder(request: Request, caller: Caller) -> Response:
    """Handle GET /api/zones/<zone_id>/folder/<folder_id>: return the folder's entries."""
    service, zone_id = deployment(request), enter(request, caller, Level.ADD)
    row = service.entries.folder(zone_id, request.path_params["folder_id"])
    refuse_read(row)
    limit, offset = -1, 0
    if service.organization.page_listings:
        limit, offset = intake.page(request)
    children = service.entries.children(row["id"], limit, offset)
    return json_response([entries.wire(child) for child in children])


async def entry(request: Request, caller: Caller) -> Response:
    """Handle GET /api/zones/<zone_id>/files/<file_id>: return the entry of a file or folder."""
    zone_id = enter(request, caller, Level.ADD)
    return json_response(
        entries.wire(deployment(request).entries.find(zone_id, request.path_params["file_id"]))
    )


async def content(request: Request, caller: Caller) -> Response:
    """Handle GET /api/zones/<zone_id>/files/<file_id>/content: return the file's newest content."""
    service, zone_id = deployment(request), enter(request, caller, Level.ADD)
    row = service.entries.file(zone_id, request.path_params["file_id"])
    refuse_read(row)
    return content_of(request, service.entries.version(row["id"], None))


def refuse_read(row: Row) -> None:
    """Raise ApiError 403 if an entry is read-protected."""
    if row["read_protected"]:
        raise ApiError(403, "NOT_ALLOWED", "This is read-protected", row["id"])


def content_of(request: Request, version: Version) -> Response:
    """Return a response with a version's content (200), or with the requested range of it (206).

    The status is 416 if the requested range is outside the content. The ETag identifies the
    version, so that a client never joins bytes of two versions.
    """
    service = deployment(request)
    headers: dict[str, Any] = {
        "ETag": f'"{version.id}"',
        "Last-Modified": http_date(version.modified_us),
    }
    first, length, status = 0, version.size, 200
    if service.organization.ranges:
        headers["Accept-Ranges"] = "bytes"
        wanted = _range(request, version, headers)
        if wanted is not None:
            first, length, status = wanted[0], wanted[1], 206
            if length == 0:
                text = "This range is not in the content"
                unsatisfied = {**headers, "Content-Range": f"bytes */{version.size}"}
                return error_response(416, "ILLEGAL_ARGUMENT", text, headers=unsatisfied)
            headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{version.size}"
    fd = os.open(service.entries.blobs.path(version.id), os.O_RDONLY)
    return FileContent(fd, first, length, status, headers)


def attached(request: Request, row: Row) -> Response:
    """Return a file's newest content as an attachment with the file's name."""
    answer = content_of(request, deployment(request).entries.version(row["id"], None))
    name = quote(row["name"], safe="", errors="replace")
    answer.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def _range(
    request: Request, version: Version, validators: dict[str, str]
) -> tuple[int, int] | None:
    """Return (first, length) of the requested range; None means the complete content.

    Length 0 means that the range is outside the content. Multiple ranges, other units and malformed
    ranges are ignored. A range is also ignored if the request has an If-Range header that is not
    the version's ETag. A date in If-Range is never accepted, because two versions may have been
    saved in the same second.
    """
    wanted = RANGE.fullmatch(request.headers.get("range", "").strip().lower().replace(" ", ""))
    if wanted is None:
        return None
    condition = request.headers.get("if-range")
    if condition is not None and condition != validators["ETag"]:
        return None
    start, end = wanted.groups()
    if not start:
        if not end:
            return None
        length = min(int(end), version.size)
        return version.size - length, length
    if end and int(end) < int(start):
        return None
    last = min(int(end), version.size - 1) if end else version.size - 1
    return int(start), max(0, last - int(start) + 1)
