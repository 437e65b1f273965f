"""Malformed answers, redirects or a wrong clock of the service cause one line, and no data loss."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import world
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually


def seen(root: Path) -> dict[str, tuple[int, bool, bytes]]:
    """Return inode, kind and content of everything below a folder."""
    found: dict[str, tuple[int, bool, bytes]] = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            data = b"" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(root))] = (path.stat().st_ino, path.is_dir(), data)
    return found


def listed_again(proxied: Mounted, proxy: FaultProxy, path: str) -> None:
    """Wait until a listing that is requested from now on has arrived and been merged."""
    asked = len([each for each in proxy.came if each.path == path])

    def again() -> bool:
        os.listdir(proxied.root)
        return len([each for each in proxy.came if each.path == path]) >= asked + 2

    eventually(again, what="the folder is listed again")


HALF: dict[str, Any] = {
    "name": [None, {}],
    "folder": [None, "false"],
    "size": [-1, "large"],
    "deleted": ["no"],
    "id": [None, ""],
}


def test_an_incomplete_listing_removes_no_entry(proxied: Mounted, proxy: FaultProxy) -> None:
    """If attributes of entries are missing or malformed, files and folders stay, with their
    bytes."""
    proxied.allow("have no id", "no valid id")
    before = seen(proxied.root)
    path = f"/api/zones/{proxied.zone.id}/folder/{proxied.zone.root_id}"
    change: list[Any] = []

    def alter(answer: Answer) -> None:
        items = json.loads(answer.body)
        answer.say([change[0](item) for item in items])

    change.append(lambda item: item)
    proxy.about, proxy.alter = lambda asked: asked.path == path, alter
    for member, values in HALF.items():
        for value in values:
            change[0] = lambda item, odd={member: value}: item | odd
            listed_again(proxied, proxy, path)
            assert seen(proxied.root) == before, (member, value)
        change[0] = lambda item, gone=member: {k: v for k, v in item.items() if k != gone}
        listed_again(proxied, proxy, path)
        assert seen(proxied.root) == before, member
    change[0] = lambda item: None
    listed_again(proxied, proxy, path)
    assert seen(proxied.root) == before


def test_a_malformed_listing_changes_nothing(proxied: Mounted, proxy: FaultProxy) -> None:
    """After a malformed listing, known zones and folders are unchanged; unknown ones give an
    error."""
    proxied.zone.make_folder("new")
    new = proxied.root / "new"
    eventually(new.exists, what="it shows here")
    odd = (b"", b'{"message":"x"}')
    bodies = [b""]
    proxy.about = lambda asked: asked.path.endswith(proxied.zone.entry_id("new"))
    proxy.alter = lambda answer: _say(answer, bodies[-1])
    for body in odd:
        bodies.append(body)
        with pytest.raises(OSError, match="Input/output"):
            os.listdir(new)
    proxy.about = lambda asked: False
    before = seen(proxied.root)
    proxy.about = lambda asked: "/folder/" in asked.path or asked.path == "/api/zones"
    for body in odd:
        bodies.append(body)
        path = f"/api/zones/{proxied.zone.id}/folder/{proxied.zone.root_id}"
        listed_again(proxied, proxy, path)
        assert seen(proxied.root) == before, body


def _say(answer: Answer, body: bytes) -> None:
    answer.body, answer.length = body, len(body)


UPLOADED: dict[str, Callable[[Any], object]] = {
    "nothing": lambda said: None,
    "an array": lambda said: [said],
    "no id": lambda said: {k: v for k, v in said.items() if k != "id"},
    "only an id": lambda said: {"id": said["id"]},
    "no size": lambda said: said | {"size": None},
    "no time": lambda said: said | {"lastModified": 5},
    "a folder": lambda said: said | {"folder": True},
    "a message": lambda said: {"message": "stored"},
}


def test_a_malformed_answer_to_an_upload(proxied: Mounted, proxy: FaultProxy) -> None:
    """After a malformed answer to an upload, the service has one version and there is no
    conflict."""
    proxied.allow("unknown", "is looked for")
    current = [UPLOADED["nothing"]]
    proxy.about = lambda asked: asked.method == "POST" and "/files/" in asked.path
    proxy.alter = lambda answer: answer.say(current[0](json.loads(answer.body)))
    for number, current[0] in enumerate(UPLOADED.values(), 1):
        (proxied.root / f"{number}.txt").write_bytes(b"new\n")
        (proxied.root / "notes.txt").write_bytes(f"version {number}\n".encode())
        proxied.sync()
        assert proxied.zone.read(f"{number}.txt") == b"new\n"
        assert len(proxied.zone.versions(f"{number}.txt")) == 1
        assert proxied.zone.read("notes.txt") == f"version {number}\n".encode()
        assert len(proxied.zone.versions("notes.txt")) == 1 + number
    assert len(proxied.zone.listing()) == 4 + len(UPLOADED)
    assert proxied.status()["outbox"]["conflicts"] == 0


FOREIGN: dict[str, dict[str, str]] = {
    "an id that nothing has": {"id": "ffff"},
    "something in another folder": {"id": "ffff", "parentId": "eeee", "name": "other.txt"},
    "something in another zone": {"id": "ffff", "zoneId": "dddd"},
}


def test_a_foreign_id_in_the_answer_to_an_upload_is_no_conflict(
    proxied: Mounted, proxy: FaultProxy
) -> None:
    """The next save becomes the next version, because the file is looked up by its name."""
    proxied.allow("unknown", "the id in the listing", "another folder")
    proxy.about = lambda asked: asked.method == "POST" and "/files/" in asked.path
    lies: list[dict[str, str]] = []
    proxy.alter = lambda answer: answer.say(json.loads(answer.body) | lies[-1])
    for number, lie in enumerate(FOREIGN.values(), 1):
        lies.append(lie)
        path = proxied.root / f"{number}.txt"
        path.write_bytes(b"first\n")
        proxied.sync()
        lies.append({})
        path.write_bytes(b"second one\n")
        proxied.sync()
        assert path.read_bytes() == b"second one\n"
        assert proxied.zone.read(path.name) == b"second one\n"
        assert len(proxied.zone.versions(path.name)) == 2
    assert proxied.status()["outbox"]["conflicts"] == 0
    assert len(proxied.zone.listing()) == 4 + len(FOREIGN)


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """Yield another host, to which no request must be sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    yield listening
    listening.close()


def send_elsewhere(proxy: FaultProxy, trap: socket.socket, status: int, scheme: str) -> None:
    """Redirect all answers from now on."""

    def alter(answer: Answer) -> None:
        host, port = trap.getsockname()
        answer.status = status
        answer.headers = {"Location": f"{scheme}://{host}:{port}{answer.asked.path}"}
        _say(answer, b"")

    proxy.about, proxy.alter = lambda asked: True, alter


def assert_untouched(trap: socket.socket) -> None:
    """Check that no connection was made."""
    with pytest.raises(BlockingIOError):
        trap.accept()


def test_a_redirect_is_never_followed(
    machine: Machine, proxy: FaultProxy, trap: socket.socket
) -> None:
    """Neither a password nor a token is sent to another host, or over plain HTTP."""
    machine.log_on(proxy, profile="sandbox")
    password = ("--username", "alice@acme.example", "--password-stdin", "--ca-file")
    for status, scheme in ((302, "https"), (307, "https"), (308, "http")):
        send_elsewhere(proxy, trap, status, scheme)
        proxy.came.clear()
        for ended in (
            machine.run("zones"),
            machine.run("logon", proxy.base_url, *password, proxy.ca_file,
                        text=f"{world.PASSWORDS['alice']}\n"),
        ):  # fmt: skip
            assert (ended.returncode, ended.stdout) == (1, "")
            assert ended.stderr.count("\n") == 1
            assert f"{scheme}://127.0.0.1" in ended.stderr
            assert "not followed" in ended.stderr
            assert "check the base URL" in ended.stderr
        assert proxy.came
        assert not any(b"correct" in asked.body for asked in proxy.came)
    assert_untouched(trap)


def test_redirects_in_the_middle_of_work(
    proxied: Mounted, proxy: FaultProxy, trap: socket.socket
) -> None:
    """Listings, content and uploads fail with an errno; written files wait and are uploaded
    later."""
    proxied.allow("redirects", "elsewhere", "is looked for", "unknown")
    os.listdir(proxied.root)
    send_elsewhere(proxy, trap, 307, "http")
    with pytest.raises(OSError, match="Input/output"):
        (proxied.root / "big.bin").read_bytes()
    with pytest.raises(OSError, match="Input/output"):
        os.listdir(proxied.root / "docs")
    (proxied.root / "new.txt").write_bytes(b"new\n")
    ended = proxied.machine.run("sync", "--timeout", "2")
    assert ended.returncode == 1
    assert (proxied.root / "new.txt").read_bytes() == b"new\n"
    proxy.alter = lambda answer: None
    proxied.sync()
    assert proxied.zone.read("new.txt") == b"new\n"
    assert len(proxied.zone.versions("new.txt")) == 1
    assert_untouched(trap)


CODES = [
    (403, "UNSUPPORTED_VERSION", "does not support this version of zonedrive"),
    (418, "SOMETHING_NEW", "HTTP 418 SOMETHING_NEW: sorry"),
]


def test_codes_of_any_kind_are_one_line(machine: Machine, proxy: FaultProxy) -> None:
    """An unknown or known error status, at logon and later, is named in one line with exit code
    1."""
    machine.log_on(proxy, profile="sandbox")
    current = [CODES[0]]

    def alter(answer: Answer) -> None:
        answer.status, error, _words = current[0]
        answer.say({"error": error, "message": "sorry"})

    proxy.about = lambda asked: not asked.path.endswith("requirements")
    proxy.alter = alter
    password = ("--username", "alice@acme.example", "--password-stdin", "--ca-file")
    for current[0] in CODES:
        for ended in (
            machine.run("zones"),
            machine.run("logon", proxy.base_url, *password, proxy.ca_file, text="x\n"),
        ):
            assert (ended.returncode, ended.stdout) == (1, "")
            assert ended.stderr.count("\n") == 1
            assert current[0][2] in ended.stderr
