"""Provider's page: its permitted users, its return addresses, and its tokens."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.sandbox.running import PASSWORDS, Service, logon, refusal, serving, world

ALICE, BOB = "alice@acme.example", "bob@acme.example"
BACK = "http://127.0.0.1:9/back?state=1"
IDENTITY = """
identity_providers = [
    { name = "corp", description = "Corporate sign-on" }, { name = "other" },
]
personal_id = [{ name = "eid", description = "Electronic id" }]
"""
IDP = "/api/access/idpsignonuri"
PERSONAL = "/api/access/personalid-signonuri"
QUERIES = {
    IDP: {"idpName": "corp", "fragmentResponse": "true"},
    PERSONAL: {"authentication-type": "eid"},
}
Start = Callable[..., Service]


@pytest.fixture(scope="module")
def provided() -> Iterator[Service]:
    """Yield a sandbox with two identity providers and an electronic id."""
    with serving(world(IDENTITY)) as service:
        yield service


def query(path: str, **changes: str) -> dict[str, str]:
    """Return a valid query with some changes."""
    return {**QUERIES[path], "organization": "Acme", "redirectURI": BACK, **changes}


def address(client: httpx.Client, path: str = IDP, **changes: str) -> str:
    """Return the address of a new sign-on."""
    answer = client.get(path, params=query(path, **changes))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["uri"])


def sign_on(
    client: httpx.Client, uri: str, user: str = ALICE, password: str = ""
) -> httpx.Response:
    """Submit the form as a user."""
    fields = {"username": user, "password": password or PASSWORDS[user], "do": "sign-on"}
    return client.post(uri, data=fields)


def brought_back(answer: httpx.Response) -> dict[str, str]:
    """Return the fields that the browser brings back, in either form."""
    if answer.status_code == 303:
        target, _, fragment = answer.headers["location"].partition("#")
        assert target == BACK
        return {name: values[0] for name, values in parse_qs(fragment).items()}
    action = re.search(r'<form method="post" action="([^"]*)"', answer.text)
    assert action is not None, answer.text
    assert unescape(action[1]) == BACK
    return {
        name: unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text)
    }


@pytest.mark.parametrize(
    ("path", "changes"), [(IDP, {}), (IDP, {"fragmentResponse": "false"}), (PERSONAL, {})]
)
def test_a_sign_on_leads_to_one_session(
    provided: Service, path: str, changes: dict[str, str]
) -> None:
    """The right password returns the browser with a token that logs on that user, once."""
    client = provided.client()
    uri = address(client, path, **changes)
    assert "Acme" in client.get(uri).text
    fields = brought_back(sign_on(client, uri))
    assert set(fields) == {"token"}
    answer = client.post("/api/access/logon", json={**fields, "organizationName": "Acme"})
    assert answer.json()["userId"] == {"name": ALICE}
    client.headers["Authorization"] = f"Bearer {answer.json()['sessionId']}"
    assert client.get("/api/zones").status_code == 200
    again = client.post("/api/access/logon", json=fields)
    assert refusal(again) == (401, "AUTHORIZATION_FAILED")


def test_a_token_of_another_organization_is_refused(provided: Service) -> None:
    """A token that is sent for another organization logs no user on."""
    client = provided.client()
    fields = brought_back(sign_on(client, address(client)))
    answer = client.post("/api/access/logon", json={**fields, "organizationName": "Other"})
    assert refusal(answer) == (401, "AUTHORIZATION_FAILED")


def test_the_page_asks_for_a_real_password(provided: Service) -> None:
    """After a wrong password the form is shown again; after five, the visit ends with an error."""
    client = provided.client()
    uri = address(client)
    for user, password in [(ALICE, "wrong"), ("<nobody>", "x"), (BOB, PASSWORDS[ALICE]), ("", "")]:
        answer = client.post(uri, data={"username": user, "password": password})
        assert answer.status_code == 401
        assert "Unknown user or wrong password" in answer.text
        assert "<nobody>" not in answer.text
    assert brought_back(sign_on(client, uri, ALICE, "wrong")) == {"error": "AUTHORIZATION_FAILED"}
    assert sign_on(client, uri).status_code == 404


def test_guessing_at_the_page_blocks_as_at_the_logon(start: Start) -> None:
    """Failures count across visits; a blocked user is sent back even with the right password."""
    service = start(world(IDENTITY + "block_after = 6\n"))
    client = service.client()
    uri = address(client)
    failures = [sign_on(client, uri, ALICE, "wrong") for _ in range(5)]
    assert brought_back(failures[-1]) == {"error": "AUTHORIZATION_FAILED"}
    uri = address(client)
    assert sign_on(client, uri, ALICE, "wrong").status_code == 401
    assert brought_back(sign_on(client, uri)) == {"error": "TEMPORARY_BLOCKED"}
    blocked = logon(client, ALICE, PASSWORDS[ALICE])
    assert refusal(blocked) == (401, "TEMPORARY_BLOCKED")
    assert set(brought_back(sign_on(client, address(client), BOB))) == {"token"}


def test_a_person_can_give_up(provided: Service) -> None:
    """Cancelling returns an error and no token."""
    client = provided.client()
    uri = address(client)
    assert brought_back(client.post(uri, data={"do": "cancel"})) == {"error": "CANCELLED"}
    assert client.get(uri).status_code == 404


def test_an_address_is_good_for_one_sign_on(provided: Service) -> None:
    """An address from the browser's history later shows that the visit is over."""
    client = provided.client()
    uri = address(client)
    sign_on(client, uri)
    assert client.get(uri).status_code == 404
    assert sign_on(client, uri).status_code == 404
    assert "over" in client.get("/api/sandbox/signon?id=guessed").text


def test_concurrent_sign_ons_at_an_address_give_one_token(provided: Service) -> None:
    """The visit is over for the other requests, although their passwords are right too."""
    uri = address(provided.client())
    clients = [provided.client() for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(lambda client: sign_on(client, uri), clients))
    assert sorted(answer.status_code for answer in answers) == [303] + [404] * 7


@pytest.mark.parametrize(
    "redirect",
    [
        "http://evil.example/", "http://127.0.0.1.evil.example/", "http://10.0.0.1/",
        "http://user@127.0.0.1/", "ftp://127.0.0.1/", "javascript:alert(1)", "data:text/html,x",
        "file:///etc/passwd", "//127.0.0.1/", "/back", "https://", "http://127.0.0.1/#x",
        "http://127.0.0.1/\r\nX: y", "http://[::1", "http://127.0.0.1:99999999/",
    ],
)  # fmt: skip
def test_invalid_return_addresses_are_refused(provided: Service, redirect: str) -> None:
    """Answers are sent only to the caller's own machine or over HTTPS."""
    client = provided.client()
    for path in QUERIES:
        answer = client.get(path, params=query(path, redirectURI=redirect))
        assert refusal(answer) == (400, "ILLEGAL_ARGUMENT")


@pytest.mark.parametrize(
    "redirect",
    [
        "http://127.0.0.1:8080/a?b=c",
        "http://localhost/x",
        "http://[::1]:5/",
        "https://app.example/",
    ],
)
def test_ways_back_that_are_allowed(provided: Service, redirect: str) -> None:
    """A program on the caller's machine or a site with a certificate is allowed."""
    assert address(provided.client(), redirectURI=redirect)


def test_parameters_of_a_sign_on_address(provided: Service) -> None:
    """Every parameter is required, and names an existing provider and this organization."""
    client = provided.client()
    for path in QUERIES:
        for missing in query(path):
            without = {name: value for name, value in query(path).items() if name != missing}
            assert refusal(client.get(path, params=without)) == (400, "ILLEGAL_ARGUMENT")
        other = client.get(path, params=query(path, organization="Other"))
        assert refusal(other) == (400, "ORGANIZATION_UNKNOWN")
        assert address(client, path, organization="acme.example")
    assert refusal(client.get(IDP, params=query(IDP, idpName="eid"))) == (400, "ILLEGAL_ARGUMENT")
    unknown = client.get(PERSONAL, params=query(PERSONAL, **{"authentication-type": "corp"}))
    assert refusal(unknown) == (400, "ILLEGAL_ARGUMENT")


def test_pages_load_and_run_nothing_foreign(provided: Service) -> None:
    """Each page forbids external resources, is not cached and sends no referrer."""
    client = provided.client()
    uri = address(client, fragmentResponse="false")
    for answer in (client.get(uri), sign_on(client, uri), client.get(uri)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not re.search(r'(src|href)="', answer.text)


def test_large_forms_are_refused(provided: Service) -> None:
    """Large forms cannot fill the sandbox's memory."""
    client = provided.client()
    uri = address(client)
    large = client.post(uri, data={"username": "x" * 10_000})
    assert refusal(large) == (400, "ILLEGAL_ARGUMENT")
    many = client.post(uri, data={str(number): "x" for number in range(500)})
    assert refusal(many) == (400, "ILLEGAL_ARGUMENT")


def test_without_a_provider_there_is_no_sign_on(service: Service) -> None:
    """Without a provider in the world file, a request for one is refused."""
    client = service.client()
    for path in QUERIES:
        assert refusal(client.get(path, params=query(path))) == (400, "ILLEGAL_ARGUMENT")


def test_some_users_sign_on_at_a_provider_only(start: Start) -> None:
    """The logon of such a user is answered with an address that accepts one return address."""
    service = start(world(IDENTITY + f'idp_users = ["{BOB}"]\n'))
    client = service.client()
    needs = client.get("/api/access/authorizationrequirements").json()
    assert (needs["idpRequired"], needs["passwordRequired"]) == (False, False)
    assert logon(client, ALICE, PASSWORDS[ALICE]).json()["logonOK"] is True
    answer = logon(client, BOB.upper(), PASSWORDS[BOB], acceptSessions=True)
    assert answer.status_code == 200
    assert answer.json()["logonOK"] is False
    assert "sessionId" not in answer.json()
    uri = answer.json()["idpURI"]
    assert BOB.upper() in client.get(uri).text
    astray = client.get(uri, params={"redirect": "http://evil.example/"})
    assert refusal(astray) == (400, "ILLEGAL_ARGUMENT")
    with_way = str(httpx.URL(uri).copy_merge_params({"redirect": BACK}))
    assert client.get(with_way).status_code == 200
    client.get(uri, params={"redirect": "https://later.example/"})
    fields = brought_back(sign_on(client, uri, BOB))
    assert client.post("/api/access/logon", json=fields).json()["userId"] == {"name": BOB}


def test_an_organization_can_require_a_provider(start: Start) -> None:
    """If the organization requires a provider, passwords are not requested and do not work."""
    service = start(world(IDENTITY + "idp_required = true\n"))
    client = service.client()
    needs = client.get("/api/access/authorizationrequirements").json()
    assert (needs["idpRequired"], needs["passwordRequired"]) == (True, False)
    assert needs["idpName"] == "corp"
    answer = logon(client, ALICE, PASSWORDS[ALICE]).json()
    assert (answer["logonOK"], urlsplit(answer["idpURI"]).scheme) == (False, "https")
    assert sign_on(client, answer["idpURI"]).status_code == 200  # no program waits for the change
    assert "Nobody waits" in sign_on(client, logon(client, ALICE, "x").json()["idpURI"]).text
