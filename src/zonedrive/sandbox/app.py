"""ASGI application of the sandbox, built from tables of endpoints and required permissions.

This module does not depend on what an endpoint does. INVARIANT: an endpoint in `GUARDED` runs only
for an authenticated caller whose scope allows the endpoint's action. For a caller who must change
their password, the only endpoint in `GUARDED` that runs is the one with the resource `password`.
"""

import sqlite3
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from zonedrive.sandbox import limits
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import (
    ApiError,
    answer_api_error,
    answer_crash,
    answer_database_error,
    answer_http_exception,
    must_change_password,
)
from zonedrive.sandbox.identity import Authenticator, Caller
from zonedrive.sandbox.routes import (
    access,
    groups,
    logon,
    own,
    pages,
    shares,
    signon,
    tokens,
    uploads,
    users,
)
from zonedrive.sandbox.routes import zones as zone_routes

Open = Callable[[Request], Awaitable[Response]]
Guarded = Callable[[Request, Caller], Awaitable[Response]]

OPEN: list[tuple[str, str, Open]] = [
    ("GET", "/api/access/authorizationrequirements", access.requirements),
    ("GET", "/api/access/idpsignonuri", access.idp_sign_on),
    ("GET", "/api/access/personalid-signonuri", access.personal_id_sign_on),
    ("GET", "/api/access/logoff", access.logoff),
    ("POST", "/api/access/logon", logon.logon),
    ("POST", "/api/access/newcredentials", access.new_credentials),
    ("POST", "/api/access/revalidate", access.revalidate),
    ("GET", "/share/{sharekey}/token", shares.token),
    ("POST", "/share/{sharekey}/token", shares.token),
    ("GET", "/api/sandbox/shares/{sharekey}", shares.page),
    ("GET", "/api/sandbox/shares/{sharekey}/{entry_id}", shares.content),
    ("GET", "/api/sandbox/signon", signon.page),
    ("POST", "/api/sandbox/signon", signon.sign_on),
]

_ZONE = "/api/zones/{zone_id}"
_OWN = "/api/sandbox/zones/{zone_id}"

# Method, path, endpoint, and the resource and action that a scope must allow.
GUARDED: list[tuple[str, str, Guarded, str, str]] = [
    ("POST", "/api/tokens", tokens.create, "tokens", "create"),
    ("GET", "/api/tokens", tokens.listed, "tokens", "list"),
    ("GET", "/api/users", users.listed, "users", "list"),
    ("POST", "/api/groups", groups.create, "groups", "create"),
    ("PUT", "/api/groups/{group_id}", groups.change, "groups", "modify"),
    ("DELETE", "/api/groups/{group_id}", groups.delete, "groups", "delete"),
    ("PUT", "/api/groups/{group_id}/members/{member_id}", groups.change_member, "groups", "modify"),
    ("GET", "/api/zones", zone_routes.listed, "zones", "list"),
    ("GET", _ZONE + "/folder/{folder_id}", zone_routes.folder, "files", "list"),
    ("GET", _ZONE + "/files/{file_id}", zone_routes.entry, "files", "get"),
    ("GET", _ZONE + "/files/{file_id}/content", zone_routes.content, "files", "access"),
    ("POST", _ZONE + "/files/{file_id}", uploads.upload, "files", "create"),
    ("POST", _OWN + "/folders", own.make_folder, "files", "create"),
    ("PUT", _OWN + "/entries/{entry_id}", own.move, "files", "modify"),
    ("DELETE", _OWN + "/entries/{entry_id}", own.delete, "files", "delete"),
    ("POST", _OWN + "/entries/{entry_id}/restore", own.restore, "files", "modify"),
    ("DELETE", _OWN + "/entries/{entry_id}/purge", own.purge, "files", "delete"),
    ("PUT", _OWN + "/entries/{entry_id}/attributes", own.set_attributes, "files", "modify"),
    ("POST", _OWN + "/entries/{entry_id}/share", shares.share, "files", "access"),
    ("DELETE", _OWN + "/entries/{entry_id}/share", shares.unshare, "files", "access"),
    ("GET", _OWN + "/files/{file_id}/versions", own.versions, "files", "list"),
    (
        "GET",
        _OWN + "/files/{file_id}/versions/{version}/content",
        own.version_content,
        "files",
        "access",
    ),
    ("GET", _OWN + "/deleted", own.deleted, "files", "list"),
    ("GET", _OWN + "/log", own.zone_log, "log", "list"),
    ("GET", "/api/sandbox/pages/{zone_id}/{entry_id}", pages.page, "files", "get"),
    ("GET", "/api/sandbox/pages/{zone_id}/content/{entry_id}", pages.content, "files", "access"),
    ("GET", "/api/sandbox/levels", own.levels, "zones", "list"),
    ("GET", _OWN + "/members", own.members, "zones", "list"),
    ("PUT", _OWN + "/members/{member_id}", own.set_member, "zones", "modify"),
    ("POST", "/api/sandbox/password", own.change_password, "password", "modify"),
    ("DELETE", "/api/sandbox/tokens/{token_id}", own.revoke_token, "tokens", "delete"),
]


def build(deployment: Deployment) -> Starlette:
    """Return the ASGI application that serves a deployment."""
    authenticator = Authenticator(deployment)
    endpoints: dict[str, dict[str, Open]] = {}
    for method, path, endpoint in OPEN:
        endpoints.setdefault(path, {})[method] = endpoint
    for method, path, guarded, resource, action in GUARDED:
        endpoints.setdefault(path, {})[method] = _guard(
            deployment, authenticator, guarded, resource, action
        )
    app = Starlette(
        routes=[_route(path, by_method) for path, by_method in endpoints.items()],
        exception_handlers={
            ApiError: answer_api_error,
            HTTPException: answer_http_exception,
            sqlite3.OperationalError: answer_database_error,
            Exception: answer_crash,
        },
    )
    app.router.redirect_slashes = False
    app.state.deployment = deployment
    return app


class _Route(Route):
    """Route that checks the constant beginning of the path before its regular expression.

    The check saves time, because each request is compared with most of the routes.
    """

    def __init__(self, path: str, endpoint: Open, *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._beginning = path.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the kind of match between route and request, and additions to the ASGI scope."""
        if not scope["path"].startswith(self._beginning):
            return Match.NONE, {}
        return super().matches(scope)


def _route(path: str, by_method: dict[str, Open]) -> Route:
    async def dispatch(request: Request) -> Response:
        return await by_method[request.method](request)

    route = _Route(path, dispatch, methods=list(by_method))
    # Starlette offers HEAD wherever there is GET; the service does not.
    route.methods = set(by_method)
    return route


def _guard(
    deployment: Deployment,
    authenticator: Authenticator,
    endpoint: Guarded,
    resource: str,
    action: str,
) -> Open:
    async def guarded(request: Request) -> Response:
        caller = await authenticator.identify(request)
        if caller.user.change_required and resource != "password":
            raise must_change_password()
        if caller.scope is not None:
            limits.refuse_beyond(
                caller.scope, resource, action, request.path_params, deployment.entries
            )
        return await endpoint(request, caller)

    return guarded
