"""Web pages of entries for the members of a zone, at paths specific to the sandbox.

The pages accept the same credentials as the API, including HTTP Basic. A browser therefore asks
for the user's password.
"""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import share_page
from zonedrive.sandbox.errors import PAGES
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.routes.zones import attached, enter, refuse_read
from zonedrive.sandbox.zones import Level


async def page(request: Request, caller: Caller) -> Response:
    """Handle GET /api/sandbox/pages/<zone_id>/<entry_id>: return the page of a file or folder."""
    service = deployment(request)
    zone = service.zones.enter(request.path_params["zone_id"], caller.id, Level.ADD)
    row = service.entries.find(zone["id"], request.path_params["entry_id"])
    refuse_read(row)
    address = f"{PAGES}{quote(zone['id'], safe='')}"
    if row["folder"]:
        shown = [each for each in service.entries.children(row["id"]) if not each["read_protected"]]
    else:
        shown, address = [row], f"{address}/content"
    name = row["name"] if row["parent_id"] else zone["name"]
    return share_page.page(service.organization.name, name, shown, address)


async def content(request: Request, caller: Caller) -> Response:
    """Handle GET /api/sandbox/pages/<zone_id>/content/<file_id>: return a file's content.

    The response is an attachment, so that a browser saves the content instead of showing it.
    """
    zone_id = enter(request, caller, Level.ADD)
    row = deployment(request).entries.file(zone_id, request.path_params["entry_id"])
    refuse_read(row)
    return attached(request, row)
