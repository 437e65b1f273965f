"""Server of the control socket.

This module does not depend on the commands, which are in `handlers`. The format of the lines is in
`protocol`.

INVARIANT: only processes of this user and of root get answers.
INVARIANT: when a client disconnects, only the requests of this client are cancelled.
INVARIANT: a socket file that a later daemon has created is not removed.
"""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from zonedrive.daemon import protocol
from zonedrive.daemon.protocol import Message
from zonedrive.errors import MountEnded, ZonedriveError, first_of
from zonedrive.paths import private_dir
from zonedrive.remedies import in_window, message_in_window
from zonedrive.supervisor import Supervisor, Task

log = logging.getLogger(__name__)

Say = Callable[[Message], Awaitable[None]]
Handler = Callable[[Message, Say], Awaitable[Message]]

WAITING = 16  # maximum number of queued requests of one connection


class Server:
    """Server of the control socket, which passes each request to its command's handler."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler], supervisor: Supervisor) -> None:
        """Prepare the server; `listen` creates the socket at `path`.

        `handlers` maps command names to handlers.
        """
        self.path = path
        self._supervisor = supervisor
        self._handlers = handlers
        self._socket: socket.socket | None = None
        self._name: tuple[int, ...] | None = None  # identity of the socket file while it exists
        self._accepting = trio.CancelScope()
        self._running: dict[trio.CancelScope, str] = {}  # requests under way, with their command
        self._one_done = trio.Event()
        self._is_over = False

    def listen(self) -> None:
        """Create the socket, and replace a socket that a killed daemon left behind.

        If another daemon is listening at `path`, the socket gets another name in the same folder.
        Raises ZonedriveError if the folder belongs to another user, who could replace the socket,
        and OSError if the socket cannot be created.
        """
        self._open(_free(self.path))

    def listen_again(self, path: Path) -> None:
        """Create the socket at `path`, unless the current socket file still exists in that folder.

        Existing connections stay open. After `hide`, this method does nothing. Raises the same
        errors as `listen`.
        """
        here = path.parent == self.path.parent and _identity(self.path) == self._name
        if here or self._name is None:
            return
        self._open(_free(path))
        self._accepting.cancel()

    def _open(self, path: Path) -> None:
        folder = path.parent
        if folder.exists() and folder.stat().st_uid != os.getuid():
            raise ZonedriveError(
                f"{folder} belongs to another user",
                remedy="set XDG_RUNTIME_DIR to a folder of your own",
            )
        private_dir(folder)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            with protocol.address(path) as name:
                listening.bind(name)
        except OSError as wrong:  # the error of bind(2) has no path
            listening.close()
            raise OSError(wrong.errno, wrong.strerror, str(path)) from wrong
        finally:
            os.umask(before)
        listening.listen(64)
        listening.setblocking(False)
        if path != self.path:
            self.hide()
        self.path, self._socket, self._name = path, listening, _identity(path)

    def hide(self) -> None:
        """Remove the socket file permanently; existing connections stay open."""
        if self._name is not None and _identity(self.path) == self._name:
            with suppress(OSError):  # for example on a disk that became read-only
                self.path.unlink()
        self._name = None

    async def serve(self) -> None:
        async with trio.open_nursery() as connections:
            accept = partial(self._accept, connections)
            await self._supervisor.keep(Task.CONTROL_SOCKET, accept)

    async def _accept(self, connections: trio.Nursery) -> None:
        """Accept connections until cancelled; `listen_again` may replace the socket meanwhile.

        After an error, the supervisor calls this method again, and a closed socket is recreated.
        After `hide`, the socket is not recreated, because another daemon may use the path.
        """
        while True:
            assert self._socket is not None, "listen first"
            if self._socket.fileno() < 0:  # a failed accept has closed it
                if self._name is None:
                    return
                self._open(self.path)
            with trio.CancelScope() as self._accepting:
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
                await trio.serve_listeners(self._request, [listener], handler_nursery=connections)

    def end(self, spared: frozenset[str]) -> None:
        """Cancel the running requests, except those for the commands `spared`; refuse new ones.

        Call this method after the end of the mount, before the stores are closed.
        """
        self._is_over = True
        for scope, command in self._running.items():
            if command not in spared:
                scope.cancel()

    async def finish(self) -> None:
        while self._running:
            await self._one_done.wait()

    async def _request(self, stream: trio.SocketStream) -> None:
        await self._supervisor.job(Task.REQUEST, self._connection, stream)

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                _, user = protocol.peer(stream.socket)
            except OSError:  # the client has gone
                return
            if not protocol.is_trusted(user):
                return
            try:
                await self._requests(stream)
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client has gone

    async def _requests(self, stream: trio.SocketStream) -> None:
        """Answer the requests of a connection in order, until the client disconnects."""
        send, receive = trio.open_memory_channel[bytes](WAITING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_lines, stream, send, nursery.cancel_scope)
            async for line in receive:
                await self._answer(line, stream)
            nursery.cancel_scope.cancel()

    async def _answer(self, line: bytes, stream: trio.SocketStream) -> None:
        async def say(progress: Message) -> None:
            await stream.send_all(protocol.encode(progress))

        request: Message = {}
        try:
            if len(line) > protocol.MAX_LINE:
                raise ZonedriveError("the request is too long")
            request = protocol.decode(line)
            answer = {**await self._handle(request, say), "done": True}
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise
        except Exception as raised:
            error = first_of(raised)
            if not isinstance(error, ZonedriveError | OSError):
                log.error("a control request failed", exc_info=raised)
            answer = {**protocol.refusal(error), "done": True}
        await say(for_notification(answer) if request.get("translated") else answer)

    async def _handle(self, request: Message, say: Say) -> Message:
        command = str(request.get("command"))
        if command == protocol.PULSE:
            return {}
        if self._is_over:
            raise MountEnded("the mount has ended")
        handler = self._handlers.get(command)
        if handler is None:
            raise ZonedriveError(protocol.UNKNOWN.format(command))
        with trio.CancelScope() as scope:
            self._running[scope] = command
            try:
                return await handler(request, say)
            finally:
                del self._running[scope]
                self._one_done.set()
                self._one_done = trio.Event()
        raise MountEnded("the mount has ended")


def for_notification(answer: Message) -> Message:
    """Return a copy of `answer` whose texts are translated and contain no command names."""
    shown = dict(answer)
    for name in ("error", "reason"):
        if answer.get(name):
            text, _ = in_window(answer[name], answer.get("remedy") or "")
            shown |= {name: text, "remedy": ""}
    if failed := answer.get("failed"):
        shown["failed"] = [{**one, "error": message_in_window(one["error"])} for one in failed]
    return shown


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return the device, inode number and ctime (ns) of the file at `path`, None if it is missing.

    The ctime is included because inode numbers are reused.
    """
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _free(path: Path) -> Path:
    """Return `path`, or another path in the same folder if a daemon is listening at `path`.

    The other daemon serves an account with the same name from another state folder. The clients of
    that daemon must not reach this daemon.
    """
    try:
        protocol.connect(path, 0.0).close()
    except BlockingIOError:  # the daemon hangs
        pass
    except (OSError, ZonedriveError):
        return path
    return path.with_name(f"{path.stem}-{os.getpid()}{path.suffix}")


async def _read_lines(
    stream: trio.SocketStream, send: trio.MemorySendChannel[bytes], gone: trio.CancelScope
) -> None:
    """Send each input line to the channel `send`; cancel `gone` when the client disconnects.

    A line longer than MAX_LINE bytes is truncated, and the rest of the input is not read.
    """
    buffer = bytearray()
    async with send:
        while True:
            chunk = await stream.receive_some(65536)
            if not chunk:
                gone.cancel()
                return
            for number, part in enumerate(chunk.split(b"\n")):
                if number:
                    await send.send(bytes(buffer))
                    buffer.clear()
                buffer += part
            if len(buffer) > protocol.MAX_LINE:
                await send.send(bytes(buffer))  # will be refused
                return
