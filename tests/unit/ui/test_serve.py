"""Socket on which the process of the window gives start addresses to later commands."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from zonedrive.daemon import protocol
from zonedrive.desktop import mounts
from zonedrive.errors import ZonedriveError
from zonedrive.logon.browser import request_check
from zonedrive.paths import AccountPaths, lock_file, private_dir, runtime_dir
from zonedrive.ui import serve
from zonedrive.ui.access import START, Keys


class Server:
    """Server that has ended as soon as a function is done."""

    should_exit = False

    def __init__(self, talk: Callable[[], Awaitable[None]]) -> None:
        self._talk = talk

    async def serve(self, _sockets: list[Any]) -> None:
        """Run the function."""
        await self._talk()


class CountingPresence(serve.Presence):
    """Presence that counts the pages that were expected."""

    expected = 0

    def expect(self) -> None:
        """Count a page."""
        self.expected += 1
        super().expect()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the socket, in a runtime folder of the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    private_dir(runtime_dir())
    return runtime_dir() / serve.SOCKET


def test_only_a_page_gets_an_address(path: Path) -> None:
    """A request for a daemon gets no address, and does not keep the window open."""
    presence, answers = CountingPresence(), dict[bytes, bytes]()

    async def ask() -> None:
        for line in (b'{"command": "watch"}', b"", b"http://evil.example/", b"/a/work/trash"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(line + b"\n")
            answers[line] = await reader.read()
            writer.close()
        assert mounts.sockets() == []

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = cast(uvicorn.Server, Server(ask))
        until = serve._until_closed(server, listening, path, Keys(), "host", presence)
        asyncio.run(asyncio.wait_for(until, 60))
    address = answers.pop(b"/a/work/trash")
    assert address.startswith(f"http://host{START}".encode())
    assert {*answers.values()} == {b""}
    assert presence.expected == 1


def test_the_runtime_folder_may_have_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a Unix socket is limited, also that of a long home folder."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * protocol.LONGEST_ADDRESS)))
    path, found = private_dir(runtime_dir()) / serve.SOCKET, list[str]()

    async def ask() -> None:
        found.append(await asyncio.to_thread(serve._asked, path, "/logon"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = cast(uvicorn.Server, Server(ask))
        until = serve._until_closed(server, listening, path, Keys(), "host", serve.Presence())
        asyncio.run(asyncio.wait_for(until, 60))
    assert found[0].startswith(f"http://host{START}")


def test_the_socket_is_no_daemons_socket(path: Path) -> None:
    """No account has the path of the window's socket; file managers connect to daemons only."""
    daemon = AccountPaths("ui").control
    for each in (path, daemon):
        each.touch()
    assert daemon != path and mounts.sockets() == [daemon]


def test_without_owners_of_connections_no_window_opens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every connection would be aborted, the command and a notification say why."""
    notified: list[str] = []
    monkeypatch.setattr(request_check, "SOCK_DIAG_BY_FAMILY", 99)
    monkeypatch.setattr(serve, "_notify", notified.append)
    monkeypatch.setattr(serve, "_serve", lambda *_: pytest.fail("the window opened"))
    for browser in (True, False):
        with pytest.raises(ZonedriveError, match="does not tell which user") as refused:
            serve.run("/", browser=browser)
        assert "restart the computer" in refused.value.remedy
    assert notified == [f"T{refused.value.line()[1:]}."]


def test_a_window_that_is_being_closed_is_not_silent(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click on the entry of the menu, which shows no output, has a notification."""
    notified: list[str] = []
    monkeypatch.setattr(serve, "_notify", notified.append)
    monkeypatch.setattr(serve, "START_SECONDS", 0.0)
    with lock_file(path.with_name("ui.lock"), wait=False):
        for browser in (True, False):
            with pytest.raises(ZonedriveError, match="does not answer"):
                serve.run("/", browser=browser)
    assert len(notified) == 1
    assert notified[0].endswith("; close it, wait some seconds and try again.")


def test_a_window_that_is_being_opened_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clicks on the entry of the menu open two pages of one window, without an error."""
    address, threads = "http://127.0.0.1:1/start/x", list[threading.Thread]()
    other = socket.socket(socket.AF_UNIX)

    def answer() -> None:
        connection, _ = other.accept()
        with connection:
            connection.recv(100)
            connection.sendall(f"{address}\n".encode())

    def open_other(_seconds: float) -> None:
        other.bind(str(path))
        other.listen()
        threads.append(threading.Thread(target=answer, daemon=True))
        threads[0].start()

    monkeypatch.setattr("zonedrive.ui.serve.time.sleep", open_other)
    with other, lock_file(path.with_name("ui.lock"), wait=False):
        assert "open already" in serve.run("/", browser=False)
        threads[0].join(60)
    assert address in capsys.readouterr().out


def test_a_window_that_is_being_closed_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click soon after the last page was closed opens another window."""
    served = list[str]()
    monkeypatch.setattr(serve, "_serve", lambda path, page, browser: served.append(page))
    with ExitStack() as closing:
        monkeypatch.setattr("zonedrive.ui.serve.time.sleep", lambda _seconds: closing.close())
        closing.enter_context(lock_file(path.with_name("ui.lock"), wait=False))
        assert serve.run("/a/work/trash", browser=False) == ""
    assert served == ["/a/work/trash"]


def test_a_notification_shows_markup_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error may name a file whose name contains markup."""
    command = tmp_path / "notify-send"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.given"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    serve._notify("/home/me/<b>R&D cannot be read.")
    given = (tmp_path / "notify-send.given").read_text().splitlines()
    assert given[-2:] == ["Zones", "/home/me/&lt;b&gt;R&amp;D cannot be read."]
