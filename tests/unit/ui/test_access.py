"""Access to the window, and its addresses."""

import asyncio
import re

import httpx
import pytest
from cachetools import TTLCache
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from zonedrive.ui import access
from zonedrive.ui.access import Guard, Keys

HOST = "127.0.0.1:4711"
ORIGIN = {"Origin": f"http://{HOST}"}


async def page(request: Request) -> Response:
    """Answer any request."""
    return PlainTextResponse("the page")


@pytest.fixture
def keys() -> Keys:
    """Return the secrets of one window."""
    return Keys()


class Browser:
    """Browser that has opened nothing yet."""

    def __init__(self, keys: Keys) -> None:
        app = Starlette(routes=[Route("/", page, methods=["GET", "POST"])])
        self._guard = Guard(app, keys, HOST, lambda: None)
        self._cookies = httpx.Cookies()

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """Return the answer to a GET request."""
        return asyncio.run(self._request("GET", path, headers))

    def post(self, path: str, headers: dict[str, str]) -> httpx.Response:
        """Return the answer to a form."""
        return asyncio.run(self._request("POST", path, headers))

    async def _request(
        self, method: str, path: str, headers: dict[str, str] | None
    ) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._guard)
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://{HOST}", cookies=self._cookies
        ) as client:
            answer = await client.request(method, path, headers=headers)
            self._cookies = client.cookies
        return answer


@pytest.fixture
def browser(keys: Keys) -> Browser:
    """Return a browser that has opened nothing yet."""
    return Browser(keys)


def test_a_start_address_opens_the_window_once(browser: Browser, keys: Keys) -> None:
    """A start address sets the cookie and leads to the page; a second use gives an error."""
    start = keys.start("/a/default/trash")
    first = browser.get(start)
    assert first.status_code == 200 and 'url=/a/default/trash"' in first.text
    assert browser.get("/").text == "the page"
    assert browser.get(start).status_code == 410
    assert start.rpartition("/")[2] not in first.text


def test_the_cookie_is_for_this_window_alone(browser: Browser, keys: Keys) -> None:
    """Scripts cannot read the cookie, other sites do not send it, and its name has the port."""
    cookie = browser.get(keys.start("/")).headers["set-cookie"]
    assert cookie.startswith("zonedrive-4711=")
    assert {"HttpOnly", "SameSite=strict"} <= set(re.split("; ", cookie))


def test_a_late_start_address_is_refused(
    browser: Browser, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start address that a file or a history has kept does not work."""
    now = 1000.0
    monkeypatch.setattr(keys, "_starts", TTLCache(9, access.START_SECONDS, timer=lambda: now))
    start = keys.start("/")
    now += access.START_SECONDS
    assert browser.get(start).status_code == 410
    assert browser.get(keys.start("/")).status_code == 200


@pytest.mark.parametrize("cookie", ["", "zonedrive-4711=", "zonedrive-4711=guess", "x=\x01;;=="])
def test_without_the_secret_nothing_is_shown(browser: Browser, cookie: str) -> None:
    """A request needs the secret, also for files of the page."""
    for path in ("/", "/static/style.css"):
        assert browser.get(path, headers={"Cookie": cookie}).status_code == 403


def test_another_name_for_this_machine_is_refused(browser: Browser, keys: Keys) -> None:
    """Another site cannot open a page by a name that leads to this machine."""
    browser.get(keys.start("/"))
    for host in ("localhost:4711", "evil.example:4711", "127.0.0.1"):
        assert browser.get("/", headers={"Host": host}).status_code == 421
        assert browser.get(keys.start("/"), headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:4712"},
        {**ORIGIN, "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_only_pages_of_the_window_change_something(
    browser: Browser, keys: Keys, headers: dict[str, str]
) -> None:
    """A form of another site is refused, even with the cookie."""
    browser.get(keys.start("/"))
    assert browser.post("/", headers=headers).status_code == 403
    assert browser.post("/", headers=ORIGIN).text == "the page"


def test_every_answer_forbids_scripts_and_frames_of_others(browser: Browser, keys: Keys) -> None:
    """No page is kept by the browser, framed by another site, or loads anything from elsewhere."""
    for answer in (browser.get("/"), browser.get(keys.start("/")), browser.get("/")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
