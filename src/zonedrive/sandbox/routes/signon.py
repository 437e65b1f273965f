"""The page behind a sign-on address: stands for an identity provider or an electronic id.

It asks who one is, without proof, and sends the browser back to the client's redirect address with
a token that logs on once (the field `token` of a logon).
"""

from html import escape
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from zonedrive.sandbox import intake
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.routes.access import deployment

PAGE = """<!doctype html><meta charset="utf-8"><title>Sandbox sign-on</title>
<h1>{title}</h1><p>This sandbox believes whoever you say you are.</p>
<form method="post"><label>User <input name="username" autofocus></label> <button>Sign on</button>
</form>"""
# A form post to the client, for clients that asked for no fragment.
FORWARD = """<!doctype html><meta charset="utf-8"><title>Signed on</title>
<form method="post" action="{target}"><input type="hidden" name="token" value="{token}">
<button>Back to the program</button></form><script>document.forms[0].submit()</script>"""
LARGEST_FORM = 4096


async def page(request: Request) -> Response:
    """GET /api/sandbox/signon: the form."""
    _redirect(request)
    title = f"{deployment(request).organization.name}: {request.query_params.get('name', '')}"
    return HTMLResponse(PAGE.format(title=escape(title)))


async def sign_on(request: Request) -> Response:
    """POST /api/sandbox/signon: back to the client with a token."""
    target = _redirect(request)
    form = bytearray()
    async for chunk in request.stream():
        form += chunk
        if len(form) > LARGEST_FORM:
            raise bad_argument("The form is too large")
    username = parse_qs(form.decode("utf-8", "replace")).get("username", [""])[0]
    service = deployment(request)
    user = service.users.find(username)
    if user is None:
        raise ApiError(401, "AUTHORIZATION_FAILED", "There is no such user")
    token = service.signons.issue(user.id)
    if intake.boolean(request, "fragment", default=True):
        return RedirectResponse(f"{target}#{urlencode({'token': token})}", status_code=303)
    return HTMLResponse(FORWARD.format(target=escape(target), token=escape(token)))


def _redirect(request: Request) -> str:
    """Where the browser goes afterwards; raises ApiError where no such sign-on is set up."""
    organization = deployment(request).organization
    kinds = {"idp": organization.identity_providers, "personal-id": organization.personal_id}
    known = kinds.get(intake.text(request, "kind"), [])
    if intake.text(request, "name") not in [one.name for one in known]:
        raise ApiError(404, "NOT_FOUND", "This organization has no such sign-on")
    target = intake.text(request, "redirect")
    if urlsplit(target).scheme not in ("http", "https"):
        raise bad_argument("The redirect address must be http or https")
    return target
