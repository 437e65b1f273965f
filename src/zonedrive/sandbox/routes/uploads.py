"""Upload of a new file, or of a new version if the folder already has a file of that name.

INVARIANT: listings show only complete files. Received bytes are first written to `incoming/`, and
one transaction makes them a version.
"""

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import entries, intake
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.incoming import Incoming
from zonedrive.sandbox.multipart import UploadForm
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.routes.zones import enter
from zonedrive.sandbox.zones import Level


async def upload(request: Request, caller: Caller) -> Response:
    """Handle POST /api/zones/<zone_id>/files/<folder_id>: store a file; return its entry.

    The body is a form (parts `file` and `fileName`), or the raw content with the query parameter
    `fileName`, which is specific to the sandbox.
    """
    service, zone_id = deployment(request), enter(request, caller, Level.ADD)
    folder_id = service.entries.folder(zone_id, request.path_params["file_id"])["id"]
    try:
        entry_id = await _store(request, caller, zone_id, folder_id)
    except OSError as wrong:
        raise ApiError(500, "IO_EXCEPTION", f"It cannot be kept: {wrong.strerror}") from wrong
    return json_response(entries.wire(service.entries.find(zone_id, entry_id)))


async def _store(request: Request, caller: Caller, zone_id: str, folder_id: str) -> str:
    """Receive the body and publish its content; return the entry's id."""
    service = deployment(request)
    content_type = request.headers.get("content-type", "")
    kind = content_type.split(";")[0].strip().lower()
    incoming = Incoming(service.entries.blobs.incoming())
    try:
        if kind == "multipart/form-data":
            name = await _receive_form(request, UploadForm(content_type), incoming)
        elif kind == "application/octet-stream":
            name = intake.entry_name(intake.text(request, "fileName"))
            await _receive_bytes(request, incoming)
        else:
            raise ApiError(
                400,
                "ILLEGAL_ARGUMENT",
                "The Content-Type must be multipart/form-data or application/octet-stream",
            )
        await incoming.finish()
        # Permissions and names may have changed during the upload.
        enter(request, caller, Level.ADD)
        return _publish(service, caller, zone_id, folder_id, name, incoming)
    finally:
        await incoming.discard()


async def _receive_form(request: Request, form: UploadForm, incoming: Incoming) -> str:
    async for piece in request.stream():
        if piece:
            await incoming.feed(form.feed(piece))
    return intake.entry_name(form.finish())


async def _receive_bytes(request: Request, incoming: Incoming) -> None:
    async for piece in request.stream():
        if piece:
            await incoming.feed([piece])


def _publish(
    service: Deployment,
    caller: Caller,
    zone_id: str,
    folder_id: str,
    name: str,
    incoming: Incoming,
) -> str:
    """Publish the received content as a new file or version; return the entry's id."""
    folder = service.entries.folder(zone_id, folder_id)
    present = service.entries.child(folder_id, name)
    if present is None:
        refuse_write(folder["write_protected"], folder_id)
        return service.entries.add_file(zone_id, folder_id, name, caller.id, incoming.path)
    entry_id = str(present["id"])
    if present["folder"]:
        raise ApiError(409, "ALREADY_EXISTS", f"A folder has the name {name!r}", entry_id)
    service.zones.enter(zone_id, caller.id, Level.MODIFY)
    refuse_write(present["write_protected"], entry_id)
    service.entries.add_version(entry_id, caller.id, incoming.path)
    return entry_id


def refuse_write(protected: int, entry_id: str) -> None:
    """Raise ApiError 403 if `protected`, the write-protection flag of the entry, is set."""
    if protected:
        raise ApiError(403, "NOT_ALLOWED", "This is write-protected", entry_id)
