"""Control characters in all texts of a service do not affect terminals, logs or service
managers."""

import contextlib
import json
import os
import re
import socket
import subprocess
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import world
from tests.harness.bus import Bus, Screen
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Machine, Mounted
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

STEERING = (
    "\x1b]0;pwned\x07\x1b[2J\x9b31m\x00\x7f\r\nREADY=1\nSTATUS=forged\u202e\u2066\u2028\u2029\x85"
)
KEPT = {
    "id", "zoneId", "parentId", "rootId", "sessionId", "token", "groupId", "memberId", "uri",
    "lastModified", "createdAt", "state", "organizationName", "error",
}  # fmt: skip
"""Keys whose values must be correct for logon and listings; other tests change them."""

NAMED = {"userId"}
"""Objects whose `name` is not the name of an entry or a zone, which is data."""


def steers(text: str) -> list[str]:
    """Return the control characters in some lines."""
    return [
        char
        for char in text.replace("\n", "")
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
    ]  # fmt: skip


def poisoned(value: Any, key: str = "", above: str = "") -> Any:
    """Return an answer with control characters in all texts."""
    if isinstance(value, dict):
        return {name: poisoned(inner, name, key) for name, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, key, above) for inner in value]
    kept = key in KEPT or (key == "name" and above not in NAMED)
    return value + STEERING if isinstance(value, str) and not kept else value


def spoil(answer: Answer) -> None:
    """Change every JSON answer."""
    if answer.headers.get("content-type", "").startswith("application/json") and answer.body:
        answer.say(poisoned(json.loads(answer.body)))


@pytest.fixture
def manager(machine: Machine) -> Iterator[socket.socket]:
    """Yield a service manager that receives the daemon's messages."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(machine.folder / "notify"))
        line.settimeout(60)
        yield line


@pytest.fixture
def screen(machine: Machine) -> Iterator[Screen]:
    """Yield a desktop that shows notifications."""
    folder = machine.folder / "bus"
    folder.mkdir()
    bus = Bus(folder)
    machine.environment["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    running = Screen(bus)
    yield running
    running.close()
    bus.close()


def test_no_text_of_the_service_steers_anything(
    proxy: FaultProxy,
    machine: Machine,
    deployment: Deployment,
    zone: str,
    manager: socket.socket,
    screen: Screen,
) -> None:
    """No text of the service affects terminal, log, notifications, service manager or
    attributes."""
    proxy.about, proxy.alter = lambda _asked: True, spoil
    terminal = Terminal(
        machine, "logon", proxy.base_url, "--username", f"alice@{world.DOMAIN}",
        "--ca-file", str(proxy.ca_file), "--profile", "sandbox", "--session-only",
    )  # fmt: skip
    terminal.until("assword")
    terminal.type(world.PASSWORDS["alice"])
    assert terminal.end() == 0, terminal.shown
    texts = {"terminal": terminal.shown.replace("\r\n", "\n")}
    mount = Mounted(machine, deployment, zone, [])
    mount.path.mkdir()
    with (machine.folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [COMMAND, "mount", "--foreground", "-osettle=0.1,refresh=0.2", mount.path],
            env=machine.environment | {"NOTIFY_SOCKET": manager.getsockname()},
            stdin=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
    try:
        told = [manager.recv(65536).decode()]
        while not told[-1].startswith("READY=1"):
            told.append(manager.recv(65536).decode())
        notes = mount.root / "notes.txt"
        mount.zone.write("notes.txt", b"by bob\n")
        eventually(lambda: notes.read_bytes() == b"by bob\n", what="bob's version is here")
        for path in (mount.root, notes):
            for name in os.listxattr(path):
                texts[f"{path} {name}"] = os.getxattr(path, name).decode()
        assert os.getxattr(notes, "user.zonedrive.modified_by").startswith(b"bob@")
        versions = os.listdir(mount.root / ".versions" / "notes.txt")
        texts["versions"] = "\n".join(versions)
        assert len(versions) == 2
        with deployment.faulty(status=403, method="POST", path="^/api/zones/"):
            (mount.root / "new.txt").write_bytes(b"x")
            eventually(lambda: screen.shown, what="the refusal is told")
            for command in ("status", "zones", "conflicts", "doctor"):
                texts[command] = machine.run(command).stdout
            assert "new.txt" in texts["status"]
        for words in (("versions", str(notes)), ("trash",), ("users", "list")):
            said = machine.run(*words)
            texts[" ".join(words)] = said.stdout + said.stderr
            assert "\ufffd" in said.stdout or "trash" in words, said
        deployment.tell({"expire_sessions": True})
        manager.setblocking(False)

        def noticed() -> bool:
            os.listdir(mount.root)
            with contextlib.suppress(BlockingIOError):
                while True:
                    told.append(manager.recv(65536).decode())
            return "logon required" in told[-1]

        eventually(noticed, what="the service manager hears that a logon is required")
    finally:
        deployment.forget_people()
        daemon.terminate()
        daemon.wait(60)
        mount.tear_down()
    texts["log"] = (machine.folder / "log").read_text("utf-8")
    texts |= {f"notification {number}": "\n".join(each) for number, each in enumerate(screen.shown)}
    for number, text in enumerate(told):
        first, _, rest = text.rpartition("STATUS=")
        start = r"READY=1\n|EXTEND_TIMEOUT_USEC=[0-9]+\n"
        assert re.fullmatch(rf"{start}|STOPPING=1\n|WATCHDOG=1|", first), text
        texts[f"manager {number}"] = rest
        assert "\n" not in rest
    assert {where: found for where, text in texts.items() if (found := steers(text))} == {}
