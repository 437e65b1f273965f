"""Listener for the browser's return: the requests that it accepts, and those that cannot end the
wait."""

import contextlib
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
import trio
import trio.testing

from tests.harness import intruder
from zonedrive.errors import ZonedriveError
from zonedrive.logon.browser import listener, request_check
from zonedrive.logon.browser.listener import LARGEST, Listener, listening
from zonedrive.logon.browser.page import Verdict

TOKEN = "secret-4711"
MANY = "&".join(f"field{number}=1" for number in range(99))
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Visitor:
    """Browser, or a program that pretends to be one."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.parts = urlsplit(listener.redirect)
        self.host = self.parts.netloc
        self.origin = f"http://{self.host}"
        self.path = f"{self.origin}{self.parts.path}"
        self.http = httpx.AsyncClient(timeout=60, trust_env=False)

    async def ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        """Send one request on a separate connection."""
        return await self.http.request(method, url, **more)

    async def page(self) -> str:
        """Return the secret word of our own page."""
        text = (await self.ask("GET", self.listener.redirect)).text
        found = re.search(r'data-page="([^"]+)"', text)
        assert found is not None
        return found[1]

    async def hand_over(self, content: str, **changes: str) -> int:
        """Send the fields as the script of our page does."""
        headers = {**FORM, "Origin": self.origin, "X-Page": await self.page(), **changes}
        said = await self.ask("POST", f"{self.path}/answer", content=content, headers=headers)
        return said.status_code

    async def is_waiting(self) -> bool:
        """Return True if no answer was accepted yet."""
        with trio.move_on_after(0):
            await self.listener.answer()
            return False
        return True


async def visited(
    script: Callable[[Visitor], Awaitable[None]], refused: Callable[[], None] = lambda: None
) -> None:
    """Run `script` against a listener."""
    async with listening(refused) as listener:
        visitor = Visitor(listener)
        async with visitor.http:
            await script(visitor)


async def test_a_fragment_comes_by_way_of_the_page() -> None:
    """Our page sends the fragment of its address to the listener; then the outcome is shown."""

    async def script(visitor: Visitor) -> None:
        assert await visitor.hand_over(f"token={TOKEN}&x=%C3%A9+1") == 204
        assert await visitor.listener.answer() == {"token": TOKEN, "x": "é 1"}
        visitor.listener.conclude(Verdict("good", "Signed on as <alice>", "Go on."))
        said = await visitor.ask("GET", f"{visitor.path}/outcome")
        assert "Signed on as &lt;alice&gt;" in said.text
        assert "<alice>" not in said.text
        assert TOKEN not in said.text

    await visited(script)


async def test_a_slow_browser_is_waited_for(mock_clock: trio.testing.MockClock) -> None:
    """On a busy machine a browser may request the outcome many seconds later."""

    async def script(visitor: Visitor) -> None:
        assert await visitor.hand_over(f"token={TOKEN}") == 204
        visitor.listener.conclude(Verdict("good", "Signed on as alice", "Go on."))
        gone = trio.Event()

        async def end() -> None:
            await visitor.listener.farewell()
            gone.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(15)
            await trio.testing.wait_all_tasks_blocked()
            assert not gone.is_set()
            said = await visitor.ask("GET", f"{visitor.path}/outcome")
            assert "Signed on as alice" in said.text
            await gone.wait()

    await visited(script)


async def test_a_form_post_leads_on_to_the_outcome() -> None:
    """A reload or a step back sends no data again."""

    async def script(visitor: Visitor) -> None:
        said = await visitor.ask(
            "POST", visitor.listener.redirect, data={"token": TOKEN},
            headers={"Origin": "https://idp.example", "Sec-Fetch-Site": "cross-site"},
        )  # fmt: skip
        assert said.status_code == 303
        assert said.headers["location"] == f"{visitor.parts.path}/outcome"
        assert await visitor.listener.answer() == {"token": TOKEN}

    await visited(script)


async def test_nothing_that_is_refused_ends_the_wait() -> None:
    """Other pages, other host names, guesses and invalid data are refused."""

    async def script(visitor: Visitor) -> None:
        there, path = visitor.listener.redirect, visitor.path
        form = {"content": f"token={TOKEN}", "headers": FORM}
        foreign = {"headers": FORM | {"Origin": "https://evil.example", "X-Page": "x"}}
        refused: list[tuple[int, str, str, dict[str, Any]]] = [
            (404, "GET", f"{visitor.origin}/", {}),
            (404, "GET", f"{visitor.origin}/favicon.ico", {}),
            (404, "POST", f"{visitor.origin}/guess?{visitor.parts.query}", form),
            (403, "GET", path, {}),
            (403, "GET", f"{path}?state=wrong", {}),
            (403, "POST", f"{path}?state=wrong", form),
            (403, "POST", path, form),
            (403, "POST", f"{path}/answer", form),
            (403, "POST", f"{path}/answer", {**form, **foreign}),
            (404, "GET", f"{path}/outcome", {}),
            (405, "PUT", there, form),
            (405, "OPTIONS", f"{path}/answer", {"headers": {"Origin": "https://evil.example"}}),
            (405, "HEAD", there, {}),
            (400, "POST", there, {"json": {"token": TOKEN}}),
            (400, "POST", there, {"content": "token=1", "headers": {"Content-Type": "text/plain"}}),
            (400, "POST", there, {"content": "", "headers": FORM}),
            (400, "POST", there, {"content": "token=a&token=b", "headers": FORM}),
            (400, "POST", there, {"content": MANY, "headers": FORM}),
            (413, "POST", there, {"content": "token=" + "x" * LARGEST, "headers": FORM}),
            (421, "GET", there, {"headers": {"Host": f"evil.example:{visitor.parts.port}"}}),
            (421, "POST", there, {**form, "headers": FORM | {"Host": "localhost"}}),
        ]
        for status, method, url, more in refused:
            said = await visitor.ask(method, url, **more)
            assert said.status_code == status, (method, url, said.status_code)
            assert "access-control-allow-origin" not in said.headers
            assert visitor.parts.path not in said.text
        for changes in (
            {"Origin": "https://evil.example"}, {"Origin": "null"}, {"X-Page": "guess"},
            {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        ):  # fmt: skip
            assert await visitor.hand_over(f"token={TOKEN}", **changes) == 403
        assert await visitor.is_waiting()
        assert await visitor.hand_over("token=right") == 204
        assert await visitor.listener.answer() == {"token": "right"}

    await visited(script)


async def test_invalid_http_is_no_answer() -> None:
    """Invalid or endless HTTP is disconnected, while real requests are answered."""

    async def script(visitor: Visitor) -> None:
        port = visitor.parts.port
        assert port is not None
        for junk in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x" * 70_000):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                with contextlib.suppress(trio.BrokenResourceError):
                    await stream.send_all(junk)
                    assert b"200" not in await stream.receive_some(100)
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        async with idle:
            assert await visitor.is_waiting()
            assert await visitor.hand_over("token=right") == 204

    await visited(script)


async def test_every_address_works_once() -> None:
    """A second answer is not accepted; addresses from a history or a process list are useless."""

    async def script(visitor: Visitor) -> None:
        listener = visitor.listener
        assert (await visitor.ask("GET", listener.start)).status_code == 410  # nowhere to go yet
        listener.lead_to("https://idp.example/x")
        first = await visitor.ask("GET", listener.start)
        assert (first.status_code, first.headers["location"]) == (303, "https://idp.example/x")
        again = await visitor.ask("GET", listener.start)
        assert (again.status_code, "idp.example" in again.text) == (410, False)
        assert await visitor.hand_over("token=1") == 204
        assert (await visitor.ask("GET", listener.redirect)).status_code == 410
        late = await visitor.ask("POST", listener.redirect, data={"token": "2"})
        assert late.status_code == 410
        assert await listener.answer() == {"token": "1"}

    await visited(script)


async def test_addresses_cannot_be_guessed() -> None:
    """Path, state and start address are long, and different for each listener."""
    async with listening() as one, listening() as two:
        ours, theirs = urlsplit(one.redirect), urlsplit(two.redirect)
        assert ours.hostname == "127.0.0.1"
        for a, b in ((ours.path, theirs.path), (ours.query, theirs.query), (one.start, two.start)):
            assert a != b
            assert len(a) > 32
        assert ours.path not in one.start


async def test_pages_hold_nothing_foreign_and_are_not_kept() -> None:
    """Each page allows only its own style and script, is not cached and sends no referrer."""

    async def script(visitor: Visitor) -> None:
        for url in (visitor.listener.redirect, f"{visitor.origin}/nothing"):
            said = await visitor.ask("GET", url)
            policy = said.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert said.headers["cache-control"] == "no-store"
            assert said.headers["referrer-policy"] == "no-referrer"
            assert said.headers["x-frame-options"] == "DENY"
            assert not re.search(r'(src|href)="(?!data:,")', said.text)

    await visited(script)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda there: "", "not the final address"),
        (lambda there: "what?", "not the final address"),
        (lambda there: "http://[", "not an address"),
        (
            lambda there: there.replace("127.0.0.1", "127.0.0.2") + "#token=1",
            "not the final address",
        ),
        (lambda there: there + "x#token=1", "another sign-on"),
        (lambda there: there, "incomplete"),
        (lambda there: there + "#token", "no answer"),
        (lambda there: there.partition("?")[0] + "#token=1", "another sign-on"),
    ],
)
async def test_a_wrong_pasted_address(change: Callable[[str], str], words: str) -> None:
    """The error has a reason, and the wait for the right address continues."""
    async with listening() as listener:
        assert words in listener.take_address(change(listener.redirect))
        assert listener.take_address(f"  {listener.redirect}#token={TOKEN}\n") == ""
        assert await listener.answer() == {"token": TOKEN}


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    """An error or interrupt is not wrapped in an exception group."""
    with pytest.raises(ValueError, match="mine"):
        async with listening():
            raise ValueError("mine")
    with pytest.raises(KeyboardInterrupt):
        async with listening():
            raise KeyboardInterrupt


async def test_connections_of_another_user_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user gets no answer whatever the request contains, and one warning is printed."""
    said_so: list[str] = []

    async def script(visitor: Visitor) -> None:
        monkeypatch.setattr(request_check, "is_this_user", lambda *_: False)
        stream = await trio.open_tcp_stream("127.0.0.1", visitor.parts.port or 0)
        said = b""
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                request = f"GET {visitor.parts.path} HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n"
                await stream.send_all(request.encode())
                said = await stream.receive_some(100)
        assert said == b""
        await (await trio.open_tcp_stream("127.0.0.1", visitor.parts.port or 0)).aclose()
        monkeypatch.setattr(request_check, "is_this_user", lambda *_: True)
        assert await visitor.is_waiting()

    await visited(script, lambda: said_so.append("refused"))
    assert said_so == ["refused"]


async def test_connections_of_another_user_are_refused_before_any_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another user's connections do not use up the number of connections for the browser."""
    told = trio.Event()
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 0)
    monkeypatch.setattr(request_check, "is_this_user", lambda *_: False)

    async def script(visitor: Visitor) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", visitor.parts.port or 0) as stream:
            assert await stream.receive_some(100) == b""

    await visited(script, told.set)
    assert told.is_set()


class Pair:
    """Real connection over IPv4, with the IPv4 or IPv6 socket of a browser."""

    def __init__(self, family: socket.AddressFamily) -> None:
        there = "127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1"
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.browser = socket.socket(family)
        self.browser.connect((there, self.listening.getsockname()[1]))
        self.server, self.peer = self.listening.accept()
        self.here = self.server.getsockname()

    def owner(self) -> int | None:
        """Return the owner of the browser's socket."""
        return request_check.owner(self.peer, self.here)

    def is_this_user(self) -> bool:
        """Return the result of the check."""
        return request_check.is_this_user(cast("trio.socket.SocketType", self.server))

    def close(self) -> None:
        """Close all sockets."""
        for each in (self.browser, self.server, self.listening):
            each.close()


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Yield a connection for each address family."""
    pair = Pair(request.param)
    yield pair
    pair.close()


def test_the_kernel_tells_whose_a_connection_is(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is found as ours until the browser closes it, and never as another user's."""
    assert pair.owner() == os.geteuid()
    assert pair.is_this_user()
    pair.browser.shutdown(socket.SHUT_WR)  # a program that has sent everything
    assert pair.is_this_user()
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 4711)
        assert not pair.is_this_user()
    pair.browser.close()
    assert pair.owner() is None
    assert not pair.is_this_user()


@pytest.mark.usefixtures("as_root")
def test_a_connection_of_another_user_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel names the user who opened the socket, over IPv4 and IPv6."""
    for family in (socket.AF_INET, socket.AF_INET6):
        os.seteuid(intruder.UID)
        try:
            pair = Pair(family)
        finally:
            os.seteuid(0)
        assert pair.owner() == intruder.UID
        assert not pair.is_this_user()
        monkeypatch.setattr("os.geteuid", lambda: intruder.UID)
        assert pair.is_this_user()
        monkeypatch.undo()
        pair.close()


def test_only_a_connected_socket_has_an_owner(pair: Pair) -> None:
    """The owner is unknown for a listening socket, an unfinished connection and other addresses."""
    (host, port), (_, browser) = pair.here, pair.peer
    assert request_check.owner((host, port), (host, 1)) is None
    assert request_check.owner((host, browser), (host, 1)) is None
    assert request_check.owner(("127.0.0.2", browser), pair.here) is None
    with contextlib.ExitStack() as waiting:
        for _ in range(4):  # more than the backlog
            late = waiting.enter_context(socket.socket())
            late.setblocking(False)
            late.connect_ex(pair.here)
        assert late.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 2  # SYN_SENT
        assert request_check.owner(late.getsockname(), pair.here) is None


def test_the_check_reads_no_table_of_all_sockets(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of another user's sockets do not delay the check of one."""
    reads: list[Path] = []
    text = Path.read_text

    def read(path: Path, encoding: str | None = None) -> str:
        reads.append(path)
        return text(path, encoding)

    monkeypatch.setattr(Path, "read_text", read)
    assert pair.is_this_user()
    assert {*reads} <= {request_check.USERS, request_check.NOBODY}


def test_a_kernel_without_the_query_knows_no_owner(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel, or a sandbox, that does not know the query makes every owner unknown."""
    with monkeypatch.context() as patch:
        patch.setattr(request_check, "NETLINK_SOCK_DIAG", 31)
        assert pair.owner() is None
    with monkeypatch.context() as patch:
        patch.setattr(request_check, "SOCK_DIAG_BY_FAMILY", 99)
        assert pair.owner() is None
        with pytest.raises(ZonedriveError, match="does not tell") as refused:
            request_check.require_owners(remedy="use another computer")
        assert refused.value.remedy == "use another computer"
    assert pair.owner() == os.geteuid()
    request_check.require_owners(remedy="")


def test_unmapped_users_of_a_namespace(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a user namespace one id stands for all unmapped users; elsewhere it is a real user's."""
    monkeypatch.setattr(request_check, "USERS", tmp_path / "uid_map")
    monkeypatch.setattr(request_check, "NOBODY", tmp_path / "overflowuid")
    (tmp_path / "overflowuid").write_text(f"{os.geteuid()}\n")
    (tmp_path / "uid_map").write_text("         0          0 4294967295\n")
    assert pair.owner() == os.geteuid()
    (tmp_path / "uid_map").write_text("         0       1000          1\n")
    assert pair.owner() is None
