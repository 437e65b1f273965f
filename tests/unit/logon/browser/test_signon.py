"""Sign-on in a browser as a step of a logon: the choice, the requests, and all failures."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trio

from tests.unit.logon.conftest import GOOD, PASSWORD, SESSION, Desk, refuse, say
from tests.unit.logon.conftest import Person as Credentials
from zonedrive import errors
from zonedrive.logon import wire
from zonedrive.logon.browser import request_check, signon
from zonedrive.logon.browser.signon import Browser
from zonedrive.logon.flow import Flow, LoggedOn
from zonedrive.logon.wire import Offer, Requirements
from zonedrive.remote.profiles.operations import SignOn

LOGON = "/api/access/logon"
IDP = "/api/access/idpsignonuri"
PERSONAL = "/api/access/personalid-signonuri"
AT = "https://idp.example/sign-on?x=1"
CORP, OTHER = Offer("idp", "corp", "Corporate sign-on"), Offer("idp", "other")
EID = Offer("personal-id", "eid")
WAY = SignOn({"token": "{answer.token}"}, error="error", redirect="back")
SECRET = "secret-4711"
TO_PROVIDER = {"logonOK": False, "idpURI": AT}


class BrowserPrompt:
    """User who pastes the browser's final address, which contains `answer`."""

    def __init__(self, requested: Offer | None = None, answer: str = f"token={SECRET}") -> None:
        self.requested, self.seconds, self.here = requested, 60.0, False
        self.can_confirm, self.confirms = True, True
        self.asked: list[tuple[str, str]] = []
        self.answers = [answer] if answer else []
        self.shown: list[tuple[str, str]] = []
        self.chosen: list[Offer] = []
        self.complaints: list[str] = []
        self.redirect, self.name = "", "alice"

    def username(self) -> str:
        """Return the typed name."""
        return self.name

    def choose(self, offers: Sequence[Offer]) -> Offer:
        """Choose the last offer."""
        self.chosen = list(offers)
        return offers[-1]

    def prefers(self, offers: Sequence[Offer]) -> Offer | None:
        """Choose the last offer, too."""
        self.chosen = list(offers)
        return offers[-1]

    async def confirm(self, user: str, expected: str) -> bool:
        """Return the prepared answer."""
        self.asked.append((user, expected))
        return self.confirms

    def warn(self, text: str) -> None:
        """Record the warning."""
        self.complaints.append(text)

    async def show(self, name: str, start: str, led: Callable[[], Awaitable[None]]) -> None:
        """Record the address, without an effect."""
        self.shown.append((name, start))

    async def guide(self, name: str, address: str, back: str, take: Callable[[str], str]) -> None:
        """Record the address, and paste the browser's final address."""
        self.shown.append((name, address))
        assert self.redirect.startswith(back)
        for answer in self.answers:
            if wrong := take(f"{self.redirect}#{answer}" if answer else "my shopping list"):
                self.complaints.append(wrong)


def prepared(desk: Desk, prompt: BrowserPrompt, uri: object = AT) -> None:
    """Prepare a service that returns addresses, and tell the prompt its final address."""

    def give(request: httpx.Request) -> None:
        prompt.redirect = request.url.params["redirectURI"]
        asked.append(dict(request.url.params))

    asked: list[dict[str, str]] = []
    desk.queries = asked  # type: ignore[attr-defined]
    handle = desk.handle

    def watched(request: httpx.Request) -> httpx.Response:
        if request.url.path in (IDP, PERSONAL):
            give(request)
        return handle(request)

    desk.handle = watched  # type: ignore[method-assign]
    desk.answer(f"GET {IDP}", say(200, {"uri": uri}))
    desk.answer(f"GET {PERSONAL}", say(200, {"uri": uri}))


async def run(
    desk: Desk, prompt: BrowserPrompt, way: SignOn | None = WAY, username: str = "", **needs: object
) -> LoggedOn:
    """Run one logon."""
    found = {"organization": "Acme", "offers": (CORP, OTHER, EID), **needs}
    browser = Browser("mine", way, prompt)
    wanted = Requirements(**found)  # type: ignore[arg-type]
    return await Flow(desk.access(), username, wanted, Credentials(), browser).run()


@pytest.mark.parametrize("requested", [CORP, EID])
async def test_a_requested_sign_on(desk: Desk, requested: Offer) -> None:
    """The service returns the address, the answer logs on, and no password is requested."""
    prompt = BrowserPrompt(Offer(requested.kind, requested.name))
    prepared(desk, prompt)
    done = await run(desk, prompt)
    assert (done.bearer.secret, done.user_id) == (SESSION, "alice@acme.example")
    assert done.password is None
    assert done.way == (f"--{requested.kind}", requested.name)
    assert desk.bodies(LOGON) == [{"token": SECRET, "acceptSessions": True}]
    assert prompt.shown == [(requested.name, AT)]
    (query,) = desk.queries  # type: ignore[attr-defined]
    assert query.pop("redirectURI").startswith("http://127.0.0.1:")
    assert query == {
        "idp": {"idpName": "corp", "fragmentResponse": "true", "organization": "Acme"},
        "personal-id": {"authentication-type": "eid", "organization": "Acme"},
    }[requested.kind]  # fmt: skip


@pytest.mark.parametrize(("here", "fragment"), [(True, "false"), (False, "true")])
async def test_the_form_of_the_answer(desk: Desk, here: bool, fragment: str) -> None:
    """The form is that of the profile, unless the browser of another device cannot return it."""
    prompt = BrowserPrompt(CORP, answer="")
    prompt.here, prompt.seconds = here, 0.01
    prepared(desk, prompt)
    with pytest.raises(errors.CredentialsRefused):
        await run(desk, prompt, SignOn({"token": "{answer.token}"}))
    assert desk.queries[0]["fragmentResponse"] == fragment  # type: ignore[attr-defined]


async def test_without_owners_of_connections_no_browser_opens(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the browser's connections would be refused, the error names --no-browser, which works.

    A browser on this machine then ends at an address that does not answer, and a line says so.
    """
    monkeypatch.setattr(request_check, "SOCK_DIAG_BY_FAMILY", 99)
    prompt = BrowserPrompt(CORP)
    prepared(desk, prompt)
    prompt.here = True
    with pytest.raises(errors.ZonedriveError, match="does not tell which user") as refused:
        await run(desk, prompt)
    assert "--no-browser" in refused.value.remedy
    assert not prompt.shown
    prompt.here = False
    guide = prompt.guide

    async def guided(name: str, address: str, back: str, take: Callable[[str], str]) -> None:
        port = urlsplit(prompt.redirect).port or 0
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            assert await stream.receive_some() == b""
        await guide(name, address, back, take)

    monkeypatch.setattr(prompt, "guide", guided)
    await run(desk, prompt)
    assert prompt.complaints == [signon.STRANGER_ELSEWHERE]


async def test_where_it_is_required(desk: Desk) -> None:
    """A single provider is used, one of several is chosen, and no password is needed."""
    prompt = BrowserPrompt()
    prepared(desk, prompt)
    await run(desk, prompt, idp=True, password=False)
    assert prompt.chosen == [CORP, OTHER]
    assert prompt.shown[0][0] == "other"
    prompt = BrowserPrompt()
    prepared(desk, prompt)
    await run(desk, prompt, idp=True, offers=(EID, CORP))
    assert prompt.chosen == []
    assert prompt.shown[0][0] == "corp"
    prompt = BrowserPrompt()
    await run(desk, prompt)
    assert desk.bodies(LOGON)[-1]["password"] == list(PASSWORD)
    assert not prompt.shown


async def test_where_a_password_is_not_always_required(desk: Desk) -> None:
    """Without a user name the user may choose; with one, the password is used."""
    prompt = BrowserPrompt()
    prepared(desk, prompt)
    await run(desk, prompt, password=False)
    assert prompt.chosen == [CORP, OTHER, EID]
    assert prompt.shown[0][0] == "eid"
    for prompt, way, username in ((BrowserPrompt(), WAY, "alice"), (BrowserPrompt(), None, "")):
        await run(desk, prompt, way, username, password=False)
        assert (prompt.chosen, prompt.shown) == ([], [])
        assert desk.bodies(LOGON)[-1] == {"username": "alice", "acceptSessions": True}


async def test_a_logon_may_be_answered_with_an_address(desk: Desk) -> None:
    """The return address is sent in the parameter that the profile names, with all other parts."""
    prompt = BrowserPrompt()
    uri = "https://idp.example/p?a=%26&empty=#top"
    desk.answer(f"POST {LOGON}", say(200, {"logonOK": False, "idpURI": uri}), say(200, GOOD))
    guide = prompt.guide

    async def guided(name: str, address: str, back: str, take: Callable[[str], str]) -> None:
        found = httpx.URL(address)
        prompt.redirect = found.params["back"]
        assert dict(found.params) == {"a": "&", "empty": "", "back": prompt.redirect}
        assert found.fragment == "top"
        await guide(name, address, back, take)

    prompt.guide = guided  # type: ignore[method-assign]
    done = await run(desk, prompt, username="alice")
    assert done.bearer.secret == SESSION
    assert done.password is None
    assert prompt.shown[0][0] == "idp.example"
    assert [("token" in body, "password" in body) for body in desk.bodies(LOGON)] == [
        (False, True), (True, False),
    ]  # fmt: skip


async def test_a_sign_on_after_the_logon_was_cancelled(desk: Desk) -> None:
    """A sign-on that is completed in the browser after "Cancel" logs nobody on."""
    prompt, person = BrowserPrompt(CORP), Credentials()
    prepared(desk, prompt)
    person.has_cancelled = True
    needs = Requirements(organization="Acme", offers=(CORP,))
    browser = Browser("mine", WAY, prompt)
    with pytest.raises(errors.CredentialsRefused, match="cancelled"):
        await Flow(desk.access(), "", needs, person, browser).run()
    assert f"POST {LOGON}" not in desk.routes()


async def test_a_code_may_follow(desk: Desk) -> None:
    """The service may request a code after the sign-on."""
    prompt = BrowserPrompt(CORP)
    prepared(desk, prompt)
    pending = {"state": "VERIFICATIONCODEPENDING", "sessionId": "f", "userId": {"name": "a"}}
    desk.answer(f"POST {LOGON}", say(202, pending), say(200, GOOD))
    browser = Browser("mine", WAY, prompt)
    needs = Requirements(organization="Acme", offers=(CORP,))
    person = Credentials(given="1")
    await Flow(desk.access(), "", needs, person, browser).run()
    second = desk.bodies(LOGON)[1]
    assert (second["logonSessionId"], second["verificationCode"]) == ("f", "1")
    assert person.wanted == []


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"way": None}, errors.NotSupported, "does not define the answer"),
        ({"requested": Offer("idp", "x")}, errors.SignOnNotOffered, "'x'; there is corp, other"),
        ({"requested": Offer("personal-id", "corp")}, errors.SignOnNotOffered, "there is eid"),
        ({"offers": ()}, errors.SignOnNotOffered, "user name and password"),
        ({"organization": ""}, errors.BadAnswer, "does not name its organization"),
        ({"answer": "error=CANCELLED"}, errors.CredentialsRefused, "without success (CANCELLED)"),
        ({"answer": "error=%1b%5b2J%0a" + "x" * 999}, errors.CredentialsRefused, "(?[2J?xxx"),
        ({"answer": f"code={SECRET}&z=1"}, errors.BadAnswer, "lacks token (it has code, z)"),
        ({"answer": "token=&x=1"}, errors.BadAnswer, "lacks token"),
        ({"answer": "%1b%5b=1"}, errors.BadAnswer, "(it has nothing known)"),
        ({"answer": "", "seconds": 0.01}, errors.CredentialsRefused, "within 0.01 seconds"),
        ({"username": "bob"}, errors.CredentialsRefused, "as alice@acme.example, not as bob"),
        ({"uri": "http://idp.example/"}, errors.BadAnswer, "no https:// address"),
        ({"uri": "file:///etc/passwd"}, errors.BadAnswer, "no https:// address"),
        ({"uri": "javascript:alert(1)"}, errors.BadAnswer, "no https:// address"),
        ({"uri": "https://u:p@idp.example/"}, errors.BadAnswer, "no https:// address"),
        ({"uri": "https:///x"}, errors.BadAnswer, "no https:// address"),
        ({"uri": "https://["}, errors.BadAnswer, "no https:// address"),
        ({"uri": "https://idp.example/\x1b[2J"}, errors.BadAnswer, "characters"),
        ({"uri": "https://idp.example/ü"}, errors.BadAnswer, "characters"),
        ({"uri": "https://idp.example/" + "x" * 20_000}, errors.BadAnswer, "no https:// address"),
        ({"uri": None}, errors.BadAnswer, "no https:// address"),
        ({"uri": ["https://x"]}, errors.BadAnswer, "no https:// address"),
        ({"logon": refuse(401, "X")}, errors.CredentialsRefused, "; sign on again"),
        ({"logon": refuse(400, "INVALID_DATA")}, errors.Rejected, "INVALID_DATA"),
        ({"logon": refuse(503, "NOT_AVAILABLE")}, errors.Unavailable, "NOT_AVAILABLE"),
        ({"logon": httpx.ReadError("reset")}, errors.ReplyLost, "broke"),
        ({"logon": say(200, {"logonOK": False})}, errors.CredentialsRefused, "without a reason"),
        ({"logon": say(200, TO_PROVIDER)}, errors.CredentialsRefused, "asks again"),
    ],
)  # fmt: skip
async def test_each_failure_is_one_line(
    desk: Desk, change: dict[str, object], kind: type[errors.ZonedriveError], words: str
) -> None:
    """One line names cause and remedy without secrets, and nothing is tried again."""
    offer: Any = change.pop("requested", CORP)
    prompt = BrowserPrompt(offer, str(change.pop("answer", f"token={SECRET}")))
    prompt.seconds = float(str(change.pop("seconds", 60)))
    prompt.can_confirm = False
    prepared(desk, prompt, change.pop("uri", AT))
    if "logon" in change:
        desk.answer(f"POST {LOGON}", change.pop("logon"))  # type: ignore[arg-type]
    with pytest.raises(errors.ZonedriveError) as failed:
        await run(desk, prompt, **change)  # type: ignore[arg-type]
    assert type(failed.value) is kind, failed.value
    line = failed.value.line()
    assert words in line
    assert line.isprintable()
    assert SECRET not in repr(failed.value) + line
    assert len(line) < 400
    assert len(desk.bodies(LOGON)) <= 1


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(
    ("username", "known", "found", "asked"),
    [
        ("", "", "alice@acme.example", None),
        ("", "alice@acme.example", "Alice@Acme.example", None),
        ("", "bob@acme.example", "alice@acme.example", ("alice@acme.example", "bob@acme.example")),
        ("alice@acme.example", "", "alice@acme.example", None),
        ("alice", "alice@acme.example", "alice@acme.example", None),
        ("alice", "", "alice@acme.example", ("alice@acme.example", "alice")),
        ("alice", "", "alice@evil.example", ("alice@evil.example", "alice")),
        ("bob", "", "alice@acme.example", ("alice@acme.example", "bob")),
        ("alice", "", "", ("", "alice")),
        ("", "", "", None),
    ],
)
async def test_an_unexpected_user_is_confirmed(
    desk: Desk, username: str, known: str, found: str, asked: tuple[str, str] | None, pending: bool
) -> None:
    """Without a yes, or without a terminal, the session is ended at the service."""
    good = {**GOOD, "userId": {"name": found}}
    answers = [say(202, {"state": "VERIFICATIONCODEPENDING", "sessionId": "f"})] if pending else []
    needs = Requirements(organization="Acme", offers=(CORP,))
    for there, confirms in ((True, True), (True, False), (False, True)):
        prompt = BrowserPrompt(CORP)
        prompt.can_confirm, prompt.confirms = there, confirms
        prepared(desk, prompt)
        desk.answer(f"POST {LOGON}", *answers, say(200, good))
        browser = Browser("mine", WAY, prompt)
        person = Credentials(given="1")
        flow = Flow(desk.access(), username, needs, person, browser, known_as=lambda _: known)
        desk.asked.clear()
        if asked is None or (there and confirms):
            assert (await flow.run()).bearer.secret == SESSION
            assert "GET /api/access/logoff" not in desk.routes()
        else:
            with pytest.raises(errors.CredentialsRefused, match="the browser signed on as"):
                await flow.run()
            assert ("GET", "/api/access/logoff", None, f"Bearer {SESSION}") in desk.asked
        assert prompt.asked == ([asked] if asked and there else [])


async def test_an_address_in_an_answer_needs_a_profile_too(desk: Desk) -> None:
    """Without a return address in the profile, the error names the remedy."""
    answer = {"logonOK": False, "idpURI": AT}
    desk.answer(f"POST {LOGON}", say(200, answer))
    with pytest.raises(errors.NotSupported, match="how the browser returns") as failed:
        await run(desk, BrowserPrompt(), SignOn({"token": "{answer.token}"}), "alice")
    assert "--idp" in failed.value.remedy
    flow = Flow(desk.access(), "alice", Requirements(offers=(CORP, EID)), Credentials())
    with pytest.raises(errors.CredentialsRefused, match="in a browser") as failed_alone:
        await flow.run()
    assert failed_alone.value.remedy == "use --idp corp or --personal-id eid"


async def test_a_wrong_pasted_address_is_asked_for_again(desk: Desk) -> None:
    """The question is repeated until the address is right."""
    prompt = BrowserPrompt(CORP)
    prepared(desk, prompt)
    prompt.answers = ["", f"token={SECRET}"]
    await run(desk, prompt)
    assert len(prompt.complaints) == 1


def test_offers_are_read_tolerantly() -> None:
    """Invalid items are ignored, and a name alone is an offer."""
    import json

    def offers(**found: object) -> tuple[Offer, ...]:
        return wire.requirements(json.dumps(found).encode(), "x").offers

    items = [{"name": "a", "description": "A"}, {"name": "a"}, {"name": ""}, 1, None]
    assert offers(idpData=items) == (Offer("idp", "a", "A"),)
    assert offers(idpName="a", idpData=[]) == (Offer("idp", "a"),)
    assert offers(idpName="a", idpData=[{"name": "b"}]) == (Offer("idp", "b"),)
    kinds = [{"name": "e", "icon": 1}]
    assert offers(idpData={"name": "a"}, personalIdentificationTypes=kinds) == (
        Offer("personal-id", "e"),
    )
    assert offers(idpData="a", idpName=["a"], personalIdentificationTypes=None) == ()
