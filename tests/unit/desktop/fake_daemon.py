"""Daemon and event loop in this process; a test controls both step by step."""

import contextlib
import json
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOUNT = "/home/me/My Zones"
SYNCED = {"state": "synced", "folder": False, "kept": False}


class StepLoop:
    """Event loop with a clock that the test controls."""

    def __init__(self) -> None:
        self.now = 0.0
        self._watched: dict[int, tuple[int, Callable[[], None]]] = {}
        self._timers: dict[object, tuple[float, Callable[[], None]]] = {}

    def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
        self._watched[fd] = (select.POLLPRI if urgent else select.POLLIN, callback)
        return lambda: self._watched.pop(fd, None) and None

    def later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._timers[key] = (self.now + seconds, callback)
        return lambda: self._timers.pop(key, None) and None

    def step(self) -> bool:
        """Call everything that is due; return True if there was something."""
        poll = select.poll()
        for fd, (events, _) in self._watched.items():
            poll.register(fd, events)
        called = False
        for fd, event in poll.poll(0):
            if fd in self._watched and event & ~select.POLLNVAL:
                self._watched[fd][1]()
                called = True
        for key, (due, callback) in list(self._timers.items()):
            if due <= self.now and key in self._timers:
                del self._timers[key]
                callback()
                called = True
        return called

    @property
    def is_idle(self) -> bool:
        """True if no timer waits."""
        return not self._timers


class FakeDaemon:
    """Daemon of one mount."""

    def __init__(self, path: Path, mount: str = MOUNT) -> None:
        self.mount = mount
        self.states: dict[str, dict[str, Any]] = {}
        self.requests: list[dict[str, Any]] = []
        self.answers = True
        self.answer: dict[str, Any] = {"done": True}  # to other commands
        self.dies_answering = False  # in the middle of the answer to another command
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(8)
        self._listening.setblocking(False)
        self._clients: list[socket.socket] = []
        self._watching: list[socket.socket] = []

    def step(self) -> bool:
        """Accept connections, and answer requests that have arrived; return True if there was
        any."""
        moved = False
        with contextlib.suppress(OSError):  # none now, or dead
            client, _ = self._listening.accept()
            client.setblocking(False)
            self._clients.append(client)
            moved = True
        for client in list(self._clients):
            try:
                data = client.recv(1 << 20)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            moved = True
            if not data:
                self._hang_up(client)
                continue
            for line in data.splitlines():
                self._handle(client, json.loads(line))
        return moved

    def _handle(self, client: socket.socket, request: dict[str, Any]) -> None:
        self.requests.append(request)
        if not self.answers:
            return
        if request["command"] == "watch":
            self._watching.append(client)
            first: dict[str, Any] = {
                "mountpoint": self.mount,
                "account": "default",
                "can": ["versions"],
            }
            first["title"] = "Acme"
            self._send(client, {**first, "link": "online", "counts": {}})
        elif request["command"] == "states":
            found = [self.states.get(path) for path in request["paths"]]
            self._send(client, {"states": found, "done": True})
        elif self.dies_answering:
            client.send(b'{"done"')
            self._hang_up(client)
        else:
            self._send(client, self.answer)

    def report(self, **line: object) -> None:
        """Report a change."""
        for client in self._watching:
            self._send(client, {"link": "online", "counts": {}, **line})

    @staticmethod
    def _send(client: socket.socket, message: dict[str, Any]) -> None:
        client.setblocking(True)
        client.sendall(json.dumps(message).encode() + b"\n")
        client.setblocking(False)

    def _hang_up(self, client: socket.socket) -> None:
        client.close()
        self._clients.remove(client)
        if client in self._watching:
            self._watching.remove(client)

    def die(self) -> None:
        """End as after SIGKILL: the file of the socket stays."""
        for client in list(self._clients):
            self._hang_up(client)
        self._listening.close()
