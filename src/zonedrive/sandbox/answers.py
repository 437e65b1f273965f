"""JSON responses of the API."""

from typing import Any

import msgspec
from starlette.responses import Response


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with `body` encoded as JSON."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
