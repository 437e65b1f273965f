"""Stand-in for a daemon: its lock, and its control socket with prepared answers.

It has no file system; if a path must be in a mount, the in-memory file system of the `fuse` tests
is mounted.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from tests.harness import starter
from zonedrive.daemon.control_server import Say, Server
from zonedrive.daemon.lock import Lock
from zonedrive.daemon.protocol import Message
from zonedrive.logon.account import Account
from zonedrive.paths import AccountPaths
from zonedrive.supervisor import Supervisor

URL = "https://127.0.0.1:1"
ZONES: list[dict[str, Any]] = [
    {"id": "z1", "name": "Project X", "path": "Project X", "accessible": True, "size": 2048,
     "users": 3},
    {"id": "z2", "name": "Tresor \x1b[31m", "path": None, "accessible": False, "size": None,
     "users": None},
]  # fmt: skip
STATUS: dict[str, Any] = {
    "account": "default",
    "base_url": URL,
    "mountpoint": "/proc",
    "pid": 1,
    "state": "online",
    "paused": False,
    "held": 0,
    "outbox": {"pending": 1, "uploading": 1, "failed": 0, "conflicts": 0, "bytes": 3_500_000},
    "uploads": [
        {"path": "Zone/a.txt", "state": "uploading", "size": 3_499_999, "sent": 7, "error": None},
        {"path": "Zone/Ünï/b.txt", "state": "pending", "size": 1, "sent": 0, "error": "later"},
    ],
    "cache": {"bytes": 1024, "limit": 10 << 30},
    "tree": {"entries": 12, "folders": 1},
}
DONE = {"exit": 0, "reason": "", "left": {"files": 0, "bytes": 0}, "failed": [], "conflicts": []}


def log_on(name: str = "default", url: str = URL) -> AccountPaths:
    """Create an account that was logged on once."""
    paths = AccountPaths(name)
    Account(name=name, base_url=url, username="alice@acme.example").save(paths)
    return paths


class StandIn:
    """Lock, prepared last line or exception for each command, and the received requests."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.answers: dict[str, Message | Exception] = {
            "status": STATUS,
            "zones": {"zones": ZONES},
            "sync": DONE,
        }
        self.asked: list[Message] = []
        self.waiting = threading.Event()

    async def handle(self, request: Message, say: Say) -> Message:
        self.asked.append(request)
        answer = self.answers.get(request["command"])
        if answer is None:
            if request["command"] != "unmount":
                await say({"left": {"files": 2, "bytes": 5}})
            self.waiting.set()
            await trio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer


@contextmanager
def daemon(paths: AccountPaths, folder: Path) -> Iterator[StandIn]:
    """Run a stand-in for the account's daemon, mounted at `folder`."""
    lock = Lock(paths.lock, paths.account)
    stand_in = StandIn(lock)
    names = (
        "status", "metrics", "sync", "send", "pause", "resume", "zones", "conflicts", "versions",
        "trash", "restore", "unmount",
    )  # fmt: skip
    server = Server(paths.control, dict.fromkeys(names, stand_in.handle), Supervisor())
    server.listen()
    lock.take(folder)
    scope = trio.CancelScope()
    token: list[trio.lowlevel.TrioToken] = []
    running = threading.Event()

    async def serve() -> None:
        token.append(trio.lowlevel.current_trio_token())
        running.set()
        with scope:
            await server.serve()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert running.wait(60)
    try:
        yield stand_in
    finally:
        token[0].run_sync_soon(scope.cancel)
        thread.join(60)
        server.hide()
        lock.release()


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of the program."""
    return [sys.executable, "-m", "zonedrive", *(os.fspath(one) for one in arguments)]


def run(*arguments: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; `starter` forks it from a process with the program."""
    whole = dict(os.environ, **environment)
    if starter.can_run(whole):
        words = [os.fspath(one) for one in arguments]
        return starter.run(words, "", whole, Path.cwd(), seconds=60)
    return subprocess.run(
        command(*arguments), env=whole,
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
