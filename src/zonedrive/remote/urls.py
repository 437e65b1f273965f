"""Requests to a deployment, and request paths with safely inserted names and ids.

Endpoints are defined in the modules that use them, except ZONES and REQUIREMENTS, which several
modules use.

INVARIANT: a value put into a path stays inside its own segment: all reserved characters, including
`/`, are percent-encoded, and `.` and `..` are rejected.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import quote

from zonedrive.errors import Rejected

ZONES = "/api/zones"
REQUIREMENTS = "/api/access/authorizationrequirements"
"""Path of the logon requirements; a GET request changes nothing and needs no logon."""

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


Origin = Literal["published", "profile", ""]
"""Source of an endpoint, which decides the meaning of some error responses.

`published` means that the published API has the endpoint. Its response with status 404 then has an
error object. Without this object, the response is from a gateway, and does not show that the entry
was deleted. A refusal with a page (HTML) is also from a gateway. `profile` means that the endpoint
is from a profile, and may reject a valid bearer token. The error for its status 401 is
EndpointRefused. With the empty string, none of these rules applies.
"""


@dataclass(frozen=True)
class Request:
    """Request to the service; `path` is percent-encoded, `body` is sent as JSON (None: no body)."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = field(default=None, repr=False)  # may hold a password
    doing: str = ""  # operation, for error messages
    origin: Origin = ""


class Deployment(Protocol):
    """Base URL and trusted CA file of a service, as in `logon.account.Account`."""

    @property
    def base_url(self) -> str:
        """Base URL in the form `https://host[:port]`."""

    @property
    def ca_file(self) -> str | None:
        """PEM file to trust instead of the system's authorities; None to trust the system's."""


def fill_path(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with each `{name}` replaced by its percent-encoded value.

    Raises Rejected for a value that could change the path (empty, `.` or `..`), or that cannot be
    encoded as UTF-8.
    """

    def encoded(match: re.Match[str]) -> str:
        value = values[match[1]]
        if value in ("", ".", ".."):
            raise Rejected(
                "an empty id, . or .. cannot be part of an address of the service",
                remedy="check the ids",
            )
        try:
            return quote(value, safe="")
        except UnicodeEncodeError:
            raise Rejected(
                "text that is not Unicode cannot be part of an address", remedy="check the ids"
            ) from None

    return PLACEHOLDER.sub(encoded, template)
