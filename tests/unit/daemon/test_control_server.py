"""The control socket, with real connections."""

import errno
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from zonedrive.daemon import protocol
from zonedrive.daemon.control_server import Say, Server
from zonedrive.daemon.protocol import Message
from zonedrive.errors import NotLoggedOn
from zonedrive.supervisor import Supervisor


class Handlers:
    """Command handlers for the tests."""

    def __init__(self) -> None:
        self.waiting = 0
        self.seen = trio.Event()
        self.go = trio.Event()
        self.cancelled = trio.Event()
        self.dozing = trio.Event()

    async def doze(self, request: Message, say: Say) -> Message:
        self.dozing.set()
        return await trio.sleep_forever()

    async def echo(self, request: Message, say: Say) -> Message:
        return {"said": request.get("text")}

    async def count(self, request: Message, say: Say) -> Message:
        for number in range(3):
            await say({"number": number})
        return {"end": 3}

    async def refuse(self, request: Message, say: Say) -> Message:
        raise NotLoggedOn("no", remedy="log on")

    async def fail(self, request: Message, say: Say) -> Message:
        raise KeyError("a secret")

    async def wait(self, request: Message, say: Say) -> Message:
        self.waiting += 1
        self.seen.set()
        try:
            await self.go.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return {}


class Client:
    """One connection to the server."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._rest = b""

    async def send(self, **request: object) -> None:
        await self.stream.send_all(protocol.encode(request))

    async def receive(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            chunk = await self.stream.receive_some(4096)
            assert chunk, "hung up"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def ask(self, **request: object) -> dict[str, Any]:
        await self.send(**request)
        return await self.receive()


class Served:
    """Server under test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handlers = Handlers()
        self.streams: list[trio.SocketStream] = []
        names = ("echo", "count", "refuse", "fail", "wait", "doze")
        handlers = {name: getattr(self.handlers, name) for name in names}
        self.server = Server(path, handlers, Supervisor())

    async def client(self) -> Client:
        stream = await trio.open_unix_socket(os.fspath(self.path))
        self.streams.append(stream)
        return Client(stream)


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Served]:
    served = Served(path)
    served.server.listen()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.server.serve)
            yield served
            for stream in served.streams:
                await stream.aclose()
            nursery.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the socket."""
    return tmp_path / "run" / "a.sock"


async def test_socket_permissions(path: Path) -> None:
    """The socket has mode 0600, its folder 0700."""
    async with serving(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_other_users_get_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of another user's process is closed."""
    async with serving(path) as served:
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "is_trusted", lambda uid: False)
            client = await served.client()
            with pytest.raises((AssertionError, trio.BrokenResourceError)):
                await client.ask(command="echo")
        assert (await (await served.client()).ask(command="echo", text="x"))["said"] == "x"


async def test_several_requests_are_answered_in_order(path: Path) -> None:
    """One connection can send any number of requests, also at once."""
    async with serving(path) as served:
        client = await served.client()
        for number in range(40):
            await client.send(command="echo", text=number)
        answers = [await client.receive() for _ in range(40)]
        assert [answer["said"] for answer in answers] == list(range(40))
        assert all(answer["done"] for answer in answers)


async def test_progress_comes_before_the_answer(path: Path) -> None:
    """A waiting client gets progress lines; the last line has `done`."""
    async with serving(path) as served:
        client = await served.client()
        await client.send(command="count")
        lines = [await client.receive() for _ in range(4)]
        assert lines == [{"number": 0}, {"number": 1}, {"number": 2}, {"end": 3, "done": True}]


async def test_an_error_is_an_answer(path: Path) -> None:
    """The answer has the kind of the error, and the connection stays open."""
    async with serving(path) as served:
        client = await served.client()
        refused = await client.ask(command="refuse")
        assert (refused["error"], refused["remedy"], refused["kind"]) == (
            "no",
            "log on",
            "NotLoggedOn",
        )
        assert (await client.ask(command="echo", text=1))["said"] == 1


async def test_an_unexpected_error_is_logged_and_answered(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server continues. The answer has only the type, as the text may contain a secret."""
    async with serving(path) as served:
        client = await served.client()
        refused = await client.ask(command="fail")
        assert "KeyError" in refused["error"] and "a secret" not in str(refused)
        assert (await client.ask(command="echo", text=1))["said"] == 1
    assert len(caplog.records) == 1


async def test_malformed_requests_get_an_error(path: Path) -> None:
    """Malformed requests end neither the server nor the connection."""
    async with serving(path) as served:
        client = await served.client()
        for line in (b"\n", b"{\n", b"[]\n", b"\xff\xff\n", b'{"command": []}\n', b"{}\n"):
            await client.stream.send_all(line)
            assert "error" in await client.receive()
        assert (await client.ask(command="echo", text=1))["said"] == 1


async def test_the_paths_of_a_large_folder_fit_into_a_request(path: Path) -> None:
    """A shell passes up to 2 MiB of paths, in which a letter has two bytes, and here six."""
    text = "ж" * 300_000
    async with serving(path) as served:
        client = await served.client()
        for _ in range(2):
            assert (await client.ask(command="echo", text=text))["said"] == text


async def test_an_endless_line_is_refused(path: Path) -> None:
    """A client cannot fill the daemon's memory."""
    async with serving(path) as served:
        client = await served.client()
        await client.stream.send_all(b"x" * (protocol.MAX_LINE + 1))
        assert "too long" in (await client.receive())["error"]


async def test_many_clients_are_served_at_once(path: Path) -> None:
    """A waiting client does not block the others."""
    async with serving(path) as served:
        waiting = [await served.client() for _ in range(50)]
        for client in waiting:
            await client.send(command="wait")
        assert (await (await served.client()).ask(command="echo", text=1))["said"] == 1
        served.handlers.go.set()
        for client in waiting:
            assert (await client.receive())["done"]
        assert served.handlers.waiting == 50


async def test_a_disconnect_cancels_the_request(path: Path) -> None:
    """Ctrl-C in `zonedrive sync` also ends the wait in the daemon."""
    async with serving(path) as served:
        client = await served.client()
        await client.send(command="wait")
        await served.handlers.seen.wait()
        await client.stream.aclose()
        await served.handlers.cancelled.wait()


async def test_requests_at_the_end_of_the_mount(path: Path) -> None:
    """Running and new requests fail with MountEnded; spared commands finish."""
    async with serving(path) as served:
        spared, other, later = [await served.client() for _ in range(3)]
        await spared.send(command="wait")
        await served.handlers.seen.wait()
        await other.send(command="doze")
        await served.handlers.dozing.wait()
        served.server.end(frozenset({"wait"}))
        assert "has ended" in (await other.receive())["error"]
        assert "has ended" in (await later.ask(command="echo", text=1))["error"]
        assert await later.ask(command="pulse") == {"done": True}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.server.finish)
            served.handlers.go.set()
        assert await spared.receive() == {"done": True}


async def test_the_socket_of_a_killed_daemon_is_replaced(path: Path) -> None:
    """A socket file that nobody listens on is removed."""
    path.parent.mkdir(parents=True)
    path.touch()
    async with serving(path) as served:
        assert (await (await served.client()).ask(command="echo", text=1))["said"] == 1
        served.server.hide()
        assert not path.exists()


async def test_a_socket_on_a_disk_that_became_read_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a runtime folder, the socket is in the state folder; the end of a mount goes on."""
    async with serving(path) as served:
        with monkeypatch.context() as disk:

            def refuse(_path: Path, *, missing_ok: bool = False) -> None:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

            disk.setattr(Path, "unlink", refuse)
            served.server.hide()


async def test_a_removed_socket_is_created_again(path: Path) -> None:
    """The socket may have the same path or another one; existing connections continue."""
    async with serving(path) as served:
        first = await served.client()
        served.server.listen_again(path)
        assert await first.ask(command="pulse") == {"done": True}
        path.unlink()
        path.parent.rmdir()
        served.server.listen_again(path)
        second = await served.client()
        assert (await second.ask(command="echo", text="2"))["said"] == "2"
        served.path = path.parent.with_name("other") / path.name
        served.server.listen_again(served.path)
        assert not path.exists()
        third = await served.client()
        for number, client in enumerate((first, second, third)):
            assert (await client.ask(command="echo", text=number))["said"] == number


@pytest.mark.parametrize("hidden", [True, False])
async def test_a_socket_that_fails_is_created_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock, hidden: bool
) -> None:
    """After `hide`, the path belongs to the next daemon."""
    broken = trio.Event()

    async def accept(_: trio.SocketListener) -> trio.SocketStream:
        await broken.wait()
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(trio.SocketListener, "accept", accept)
    async with serving(path) as served:
        if hidden:
            served.server.hide()
        else:
            path.unlink()
        path.touch()
        broken.set()
        await trio.sleep(10)
        assert path.is_socket() != hidden


async def test_the_socket_of_a_running_daemon_is_kept(path: Path) -> None:
    """The second daemon creates its socket under another name."""
    async with serving(path) as first, serving(path) as second:
        assert first.server.path == path != second.server.path
        second.path = second.server.path
        for served in (first, second):
            assert await (await served.client()).ask(command="pulse") == {"done": True}
        first.server.hide()
        assert not path.exists() and second.path.exists()
        first.server.listen_again(path)
        assert not path.exists()
        second.server.listen_again(path)
        assert second.server.path == second.path
        second.server.hide()
        second.server.hide()
        assert not second.path.exists()


@pytest.mark.timeout(20)
async def test_a_hung_daemon_does_not_delay_the_start_of_another_daemon(path: Path) -> None:
    """The socket gets another name at once, although the hung daemon accepts no connection."""
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as hung, socket.socket(socket.AF_UNIX) as queued:
        hung.bind(os.fspath(path))
        hung.listen(0)
        queued.connect(os.fspath(path))  # now the queue is full
        async with serving(path) as served:
            assert served.server.path != path
