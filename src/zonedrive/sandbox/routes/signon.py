"""Sign-on page that simulates identity providers and electronic identification.

A URL of the page is valid for one sign-on. After the right password, the browser is redirected to
the client with the parameter `token`, which is valid for one logon. After a cancellation or too
many wrong passwords, the redirect instead has the parameter `error`, whose value is an error name
of the API. These parameters and the page are specific to the sandbox, because the API documentation
does not describe them.
"""

from typing import Literal
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from zonedrive.sandbox import intake, signon_page
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import bad_argument
from zonedrive.sandbox.routes.access import deployment
from zonedrive.sandbox.signons import MOST_FAILURES, Visit, may_return_to, origin
from zonedrive.sandbox.verification import Blocked

LARGEST_FORM = 8192
WRONG = "Unknown user or wrong password."


async def page(request: Request) -> Response:
    """Handle GET /api/sandbox/signon: return the sign-on form.

    If the page's URL is the `idpURI` of a logon response, the client's URL is not known yet. The
    query parameter `redirect` then sets the client's URL; later requests cannot change it.
    """
    visit = deployment(request).signons.find(intake.text(request, "id"))
    if visit is None:
        return _over()
    redirect = request.query_params.get("redirect", "")
    if redirect and not visit.redirect:
        if not may_return_to(redirect):
            raise bad_argument("redirect must be https, or http to the caller's own machine")
        visit.redirect = redirect
    return _form(deployment(request), visit, visit.username, "")


async def sign_on(request: Request) -> Response:
    """Handle POST /api/sandbox/signon: check the password, and redirect to the client.

    If the password is wrong, the response is the form again. After MOST_FAILURES wrong passwords,
    the browser is redirected with an error instead.
    """
    visit_id = intake.text(request, "id")
    service = deployment(request)
    sent = await _fields(request)
    visit = service.signons.find(visit_id)
    if visit is None:
        return _over()
    if sent.get("do") == "cancel":
        service.signons.end(visit_id)
        return _back(visit, {"error": "CANCELLED"})
    username, password = sent.get("username", "").strip(), sent.get("password", "")
    try:
        user = await service.verification.password(username, password)
    except Blocked:
        service.signons.end(visit_id)
        return _back(visit, {"error": "TEMPORARY_BLOCKED"})
    if service.signons.find(visit_id) is None:  # another request has ended it meanwhile
        return _over()
    if user is None:
        visit.failures += 1
        if visit.failures < MOST_FAILURES:
            return _form(service, visit, username, WRONG)
        service.signons.end(visit_id)
        return _back(visit, {"error": "AUTHORIZATION_FAILED"})
    service.signons.end(visit_id)
    return _back(visit, {"token": service.signons.issue(user.id)})


def _form(service: Deployment, visit: Visit, username: str, wrong: str) -> Response:
    organization = service.organization
    kinds: dict[Literal["idp", "personal-id"], str] = {
        "idp": "Your password here is that of your sandbox account.",
        "personal-id": "In place of a card and its PIN: the password of your sandbox account.",
    }
    known = [*organization.identity_providers, *organization.personal_id]
    described = {one.name: one.description for one in known if one.description}
    return signon_page.form(
        organization=organization.name,
        title=described.get(visit.name, visit.name),
        hint=kinds[visit.kind],
        username=username,
        wrong=wrong,
        back=origin(visit.redirect) if visit.redirect else "",
    )


def _back(visit: Visit, fields: dict[str, str]) -> Response:
    """Return a response that sends `fields` to the client in the URL fragment or by form post.

    Return a final page instead if the client did not provide a URL to return to.
    """
    if not visit.redirect:
        return signon_page.end(
            "Nobody waits for this sign-on", "The program named no way back.", 200
        )
    if visit.fragment:
        return RedirectResponse(
            f"{visit.redirect}#{urlencode(fields)}",
            status_code=303,
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )
    return signon_page.forward(visit.redirect, fields, origin(visit.redirect))


def _over() -> Response:
    return signon_page.end(
        "This sign-on is over", "Begin again in the program that sent you here.", 404
    )


async def _fields(request: Request) -> dict[str, str]:
    form = bytearray()
    async for chunk in request.stream():
        form += chunk
        if len(form) > LARGEST_FORM:
            raise bad_argument("The form is too large")
    try:
        found = parse_qs(form.decode("utf-8", "replace"), max_num_fields=20)
    except ValueError:
        raise bad_argument("The form has too many fields") from None
    return {name: values[0] for name, values in found.items()}
