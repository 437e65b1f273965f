"""Process of the sandbox: start, stop, restart, crash, mistakes in the world file."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.harness import starter
from tests.sandbox.running import (
    DEADLINE_SECONDS,
    PASSWORDS,
    Person,
    Service,
    eventually,
    logon,
    receive_all,
    world,
)
from zonedrive.sandbox.errors import unusable

Start = Callable[..., Service]


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="zdsx") as folder:
        yield Path(folder)


def attempt(data: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Start a sandbox that is expected to fail."""
    words = ["--data", str(data), *more]
    return starter.run(words, "", os.environ, data.parent, DEADLINE_SECONDS, starter.SANDBOX)


@contextlib.contextmanager
def running(place: Path, ready_file: Path, *more: str) -> Iterator[starter.Forked]:
    """Run a sandbox with this ready file; it must end cleanly."""
    words: list[str | Path] = ["--data", place / "data", "--ready-file", ready_file, *more]
    with (place / "log").open("wb") as log:
        process = starter.start_logged(starter.SANDBOX, words, log.fileno())
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0


def one_line(result: "subprocess.CompletedProcess[str]", code: int = 1) -> str:
    """Return the single line of a failed start, which must have this exit code."""
    assert result.returncode == code
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def coded(code: int) -> sqlite3.OperationalError:
    """Return an error of SQLite with this code."""
    wrong = sqlite3.OperationalError("why")
    wrong.sqlite_errorcode = code
    return wrong


def test_the_content_of_the_ready_file(service: Service) -> None:
    """Base URL, CA certificate, control socket and pid, once all of them work."""
    assert set(service.ready) == {"base_url", "ca_file", "control", "pid"}
    assert service.ready["pid"] == service.process.pid
    assert service.base_url.startswith("https://127.0.0.1:")
    assert Path(service.ready["control"]) == service.data / "control.sock"


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_as_the_ready_file_is_written_to(place: Path, link: bool) -> None:
    """The pipe, and a link to it, are still there after the end."""
    pipe, given = place / "pipe", place / ("link" if link else "pipe")
    os.mkfifo(pipe)
    (place / "link").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def said() -> bytes:
        assert pipe.is_fifo() and (place / "link").is_symlink()
        with contextlib.suppress(BlockingIOError):
            return os.read(reader, 4096)
        return b""

    with running(place, given) as process:
        try:
            assert json.loads(eventually(said, "the sandbox answers"))["pid"] == process.pid
        finally:
            os.close(reader)
    assert pipe.is_fifo() and (place / "link").is_symlink()


@pytest.mark.parametrize("stale", [False, True])
def test_a_link_as_the_ready_file_stays(place: Path, stale: bool) -> None:
    """Its target is the ready file, replaced as soon as the service answers."""
    link, target = place / "link", place / "target"
    link.symlink_to(target)
    if stale:
        target.write_text("{}")

    def said() -> dict[str, object]:
        return json.loads(target.read_bytes()) if target.exists() else {}

    with running(place, link) as process:
        assert eventually(said, "the sandbox answers")["pid"] == process.pid
    assert link.is_symlink() and not target.exists()


def test_the_ready_file_may_be_in_the_new_folder(place: Path) -> None:
    """The first start creates the folder of --data before it writes the ready file into it."""
    ready = place / "data" / "ready"
    with running(place, ready):
        eventually(ready.exists, "the sandbox answers")


def test_data_is_private(service: Service) -> None:
    """Other users cannot read the files below --data."""
    for path in (service.data, service.data / "sandbox.db", service.data / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_certificate_is_good(service: Service, host: str) -> None:
    """Valid for address and name, and signed only by the authority in the ready file."""
    url = f"https://{host}:{service.port}/api/access/authorizationrequirements"
    with httpx.Client(verify=service.context) as client:
        assert client.get(url).status_code == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(url, verify=ssl.create_default_context())


def test_plain_http_fails(service: Service) -> None:
    with socket.create_connection((service.host, service.port), DEADLINE_SECONDS) as plain:
        plain.sendall(b"GET /api/access/authorizationrequirements HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in receive_all(plain)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start: Start, number: int) -> None:
    """Exit code 0, no ready file, no control socket, no output."""
    service = start(world())
    idle = service.person()
    assert service.stop(number) == 0
    assert idle.service.log() == ""
    assert not (service.folder / "ready.json").exists()
    assert not (service.data / "control.sock").exists()


def test_a_stalled_answer_does_not_hold_a_stop_up(start: Start) -> None:
    """A client that waits for an hour does not keep the process alive."""
    service = start(world())
    service.fault(stall=3600, method="GET")
    with service.connect() as connection:
        connection.sendall(b"GET /api/access/authorizationrequirements HTTP/1.1\r\nHost: x\r\n\r\n")
        count = {"GET /api/access/authorizationrequirements": 1}
        eventually(lambda: service.tell({"stats": True})["requests"] == count, "it is waiting")
        assert service.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_everything(start: Start, number: int) -> None:
    """Address, authority, sessions, tokens, groups, files, versions and deleted entries stay."""
    service = start(world())
    alice = service.person()
    zone = alice.zone()
    body = {"tokenName": "t", "validity": 600, "password": list(PASSWORDS[alice.id])}
    token = alice.post("/api/tokens", json=body).json()["token"]
    group = alice.post("/api/groups", json={"name": "Kept"}).json()["properties"]["groupId"]
    inner = zone.folder("inner")
    file = zone.file("a", b"one", inner)
    zone.file("a", b"two", inner)
    gone = zone.file("gone", b"gone")
    alice.delete(f"{zone.own}/entries/{gone['id']}")
    before = [zone.listing(), zone.listing(inner), zone.versions(file["id"]), alice.zones()]
    deleted = alice.get(f"{zone.own}/deleted").json()

    service.stop(number)
    ready, port = dict(service.ready), service.port
    service.start()
    assert service.port == port
    assert {**ready, "pid": 0} == {**service.ready, "pid": 0}
    again = Person(service, service.client(**dict(alice.client.headers)), alice.id)
    zone = zone.by(again)
    after = [zone.listing(), zone.listing(inner), zone.versions(file["id"]), again.zones()]
    assert after == before
    assert again.get(f"{zone.own}/deleted").json() == deleted
    assert zone.content(file["id"]).content == b"two"
    first = again.get(f"{zone.own}/files/{file['id']}/versions/1/content")
    assert first.content == b"one"
    assert service.tell({"group": "Kept"}) == {"id": group}
    assert service.client(Authorization=f"Bearer {token}").get("/api/zones").status_code == 200


def test_a_folder_of_the_first_version_is_served(start: Start) -> None:
    """Data from before logs and shares existed are served, and get logs and shares from now on."""
    service = start(world())
    zone = service.person().zone()
    file = zone.file("a", b"one")
    service.stop()
    with contextlib.closing(sqlite3.connect(service.data / "sandbox.db")) as database:
        database.executescript(
            "DROP TABLE zone_log; DROP TABLE shares; ALTER TABLE users DROP COLUMN mail_used;"
            "PRAGMA user_version = 1;"
        )
    service.start()
    zone = zone.by(service.person())
    assert zone.content(file["id"]).content == b"one"
    zone.file("a", b"two")
    told = zone.person.get(f"{zone.own}/log").json()
    assert [message["event"] for message in told] == ["FileModified"]
    service.stop()
    service.start()


@pytest.mark.parametrize("then", ["broken", None])
def test_the_world_is_read_once(start: Start, then: str | None) -> None:
    """A restart does not read a world file that was changed, damaged or deleted."""
    service = start(world())
    service.stop()
    (service.folder / "world.toml").unlink()
    if then is not None:
        (service.folder / "world.toml").write_text(then)
    service.start()
    assert service.person().zones().keys() == {"Project X", "Closed", "Alice alone"}


def test_a_kill_in_an_upload_leaves_no_half_version(start: Start) -> None:
    """After SIGKILL the file has its old content, no new file exists, and no bytes are left."""
    service = start(world())
    zone = service.person().zone()
    file = zone.file("a", b"whole")
    connections = []
    for name in ("a", "new"):
        head = "Content-Length: 3000000"
        connections.append(zone.begin_upload(name, head=head, body=b"x" * 2_900_000))
    incoming = service.data / "incoming"

    def sizes() -> list[int]:
        return [path.stat().st_size for path in incoming.iterdir()]

    eventually(lambda: len(sizes()) == 2 and min(sizes()) > 0, "both are being received")
    service.stop(signal.SIGKILL)
    for connection in connections:
        connection.close()
    # As if the kill had come after the rename and before the commit:
    orphan = service.data / "content" / "ab" / ("ab" * 16)
    orphan.write_bytes(b"half")

    service.start()
    zone = zone.by(Person(service, service.client(**dict(zone.person.client.headers)), ""))
    assert zone.listing() == [file]
    assert zone.content(file["id"]).content == b"whole"
    assert len(zone.versions(file["id"])) == 1
    assert list(incoming.iterdir()) == []
    assert not orphan.exists()


def test_one_sandbox_for_one_folder(service: Service) -> None:
    """A second sandbox on the same folder is refused, and the first one keeps running."""
    line = one_line(attempt(service.data))
    assert "another sandbox is running" in line
    assert str(service.data) in line
    assert service.person().zones()


def test_a_port_in_use_is_reported(service: Service, place: Path) -> None:
    """If an explicitly given port is taken, the start fails instead of using another port."""
    line = one_line(attempt(place / "data", "--port", str(service.port)))
    assert f"port {service.port}" in line


def test_a_remembered_port_in_use_is_replaced(start: Start) -> None:
    """With port 0 a restart prefers its old port, but takes another one if necessary."""
    service = start(world())
    old = service.port
    service.stop()
    with socket.create_server(("127.0.0.1", old)):
        service.start()
        assert service.port != old
        assert service.person().zones()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--port", "70000"], "70000"),
        (["--host", "no such host"], "no such host"),
        (["--ready-file", "/no/such/folder/ready"], "/no/such/folder"),
        (["--ready-file", "/dev/full"], "/dev/full cannot be written: No space left"),
        (["--world", "/no/such/world.toml"], "/no/such/world.toml"),
    ],
)
def test_a_mistake_at_the_start_is_one_line(place: Path, more: list[str], said: str) -> None:
    """The line names the mistake; the exit code is 2 for the world file, else 1."""
    assert said in one_line(attempt(place / "data", *more), 2 if "--world" in more else 1)


def test_an_unusable_folder_is_one_line(place: Path) -> None:
    """A file, a path too long for its socket, and an invalid database give one line."""
    (place / "file").write_text("")
    assert "file" in one_line(attempt(place / "file"))
    assert "107 bytes" in one_line(attempt(place / ("long" * 30)))
    (place / "data").mkdir()
    (place / "data" / "sandbox.db").write_bytes(b"no database" * 100)
    assert "sandbox.db" in one_line(attempt(place / "data"))


def test_a_name_that_is_not_utf8_is_one_line(place: Path) -> None:
    """The ready file could not name the folder."""
    assert "use another folder" in one_line(attempt(Path(os.fsdecode(bytes(place) + b"/\xff"))))


@pytest.mark.parametrize("option", ["--data", "--ready-file", "--world"])
def test_an_empty_path_is_wrong_usage(place: Path, option: str) -> None:
    """An empty path is not the working directory."""
    result = attempt(place / "data", option, "")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{option}: it is empty" in result.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x"), "the disk of d is full: make room"),
        (coded(sqlite3.SQLITE_FULL), "the disk of d is full: make room"),
        (coded(sqlite3.SQLITE_NOTADB), "d is not a sandbox's database"),
        (coded(sqlite3.SQLITE_CANTOPEN), "d cannot be used: why"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "x cannot be used: Permission"),
    ],
)
def test_the_cause_of_a_failed_start_is_told(wrong: OSError | sqlite3.Error, said: str) -> None:
    """A full disk has its remedy, and does not make the database another program's."""
    assert str(unusable(Path("d"), wrong)).startswith(said)


def test_an_error_of_a_full_disk_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reports another error if a file that it maps into memory does not fit."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=0))
    assert "is full" in str(unusable(Path("d"), coded(sqlite3.SQLITE_IOERR_SHMSIZE)))


@pytest.mark.parametrize("kib", [4, 100])
def test_a_first_start_without_room_is_one_line(place: Path, kib: int) -> None:
    """A start whose files cannot grow fails with one line."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    line = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({kib << 10}, {limits[1]}))"
    code = f"{line}; import sys; from zonedrive.sandbox.__main__ import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "--data", str(place / "data")]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "cannot be used" in one_line(result)


HEAD = '[organization]\nname = "A"\ndomain = "a.example"\n'
USER = '[[users]]\nid = "u"\nname = "U"\npassword = "p"\n'
CORP = 'identity_providers = [{ name = "corp" }]\n'
GROUP = '[[groups]]\nname = "G"\n'
ACCESS = '{ id = "u", access = "Access" }'
ZONE = '[[zones]]\nname = "Z"\nmanager = "u"\n'
ADD = '{ id = "u", access = "Add" }'
MISTAKES = [
    ("organization =\n" + HEAD, "line 1"),
    (USER, "world.toml: [organization] is missing"),
    (HEAD, "world.toml: [[users]] is missing"),
    (HEAD + USER + "[[zone]]\n", "world.toml, line 8: 'zone' is not known here; there are [org"),
    ("\ncolour = 1\n" + HEAD + USER, "world.toml, line 2: 'colour' is not known here"),
    (HEAD + "[users.x]\n", "users"),
    (HEAD + USER.replace("password", "pass"), "line 7, users[0]: 'pass"),
    ("[organization]\n" + USER, "line 1, organization: 'name' is missing"),
    (HEAD + 'otp = "SMS"\n' + USER, "line 4, organization.otp"),
    (HEAD + "colour = 1\n" + USER, "line 4, organization: 'colour' is not known here"),
    (HEAD + "session_seconds = 0\n" + USER, "organization.session_seconds"),
    (HEAD + "session_seconds = 99999999999999\n" + USER, "organization.session_seconds"),
    (HEAD + 'personal_id = [{ name = "" }]\n' + USER, "line 4, organization.personal_id[0]: an em"),
    (HEAD + CORP.replace("]", ', { name = "corp" }]') + USER, "identity_providers[1]: 'corp' is"),
    (HEAD + CORP.replace("}", ", x = 1 }") + USER, "organization.identity_providers[0]: 'x'"),
    (HEAD + USER + "x = " + "[" * 5000 + "]" * 5000 + "\n", "too much nesting"),
    (HEAD + "block_after = 0\n" + USER, "organization.block_after"),
    (HEAD + "block_seconds = 1e9\n" + USER, "organization.block_seconds"),
    (HEAD + "idp_required = true\n" + USER, "idp_users need identity_providers"),
    (HEAD + CORP + 'idp_users = ["x"]\n' + USER, "organization.idp_users: there is no user 'x'"),
    (HEAD + USER + "administrator = 5\n", "line 8, users[0].administrator"),
    (HEAD + USER + USER, "line 8, users[1]: 'u' is there twice"),
    (HEAD + USER + 'otp_secret = "189"\n', "users[0].otp_secret"),
    (HEAD + USER + GROUP + 'members = [{ id = "x", access = "Access" }]', "'x'"),
    (HEAD + USER + GROUP + 'members = [{ group = "G", access = "Access" }]', "itself"),
    (HEAD + USER + GROUP + 'members = [{ access = "Access" }]', "either"),
    (HEAD + USER + GROUP + f"members = [{ACCESS}, {ACCESS}]", "members[1]: 'u' is there twice"),
    (HEAD + USER + ZONE + f"members = [{ADD}, {ADD.replace('Add', 'None')}]", "'u' is there twice"),
    (HEAD + USER + '[[zones]]\nname = "Z"\nmanager = "x"\n', "line 10, zones[0].manager"),
    (HEAD + USER + '[[zones]]\nname = "Z"\nmanager = "u"\ncontent = "none"\n', "zones[0].content"),
    (
        HEAD + USER + GROUP + '[[zones]]\nname = "Z"\nmanager = "u"\n'
        'members = [{ group = "G", access = "Manage" }]',
        "zones[0].members[0]: a group cannot manage a zone",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_in_the_world_is_one_line(place: Path, text: str, said: str) -> None:
    """The line names file and place; after a correction, the same folder works."""
    file = place / "world.toml"
    file.write_text(text)
    line = one_line(attempt(place / "data", "--world", str(file)), 2)
    assert str(file) in line
    assert said in line


def test_content_of_the_world_is_copied_in(start: Start, place: Path) -> None:
    """Files, folders, empty and executable ones are copied; afterwards the source is not needed."""
    source = place / "docs"
    (source / "a" / "empty").mkdir(parents=True)
    (source / "a" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (source / "a" / "run.sh").chmod(0o755)
    (source / ".hidden").write_bytes(b"")
    (source / "né\n").write_bytes(os.urandom(100_000))
    expected = (source / "né\n").read_bytes()
    zone_text = f'[[zones]]\nname = "Z"\nmanager = "u"\ncontent = "{source}"\n'
    service = start(HEAD + USER + zone_text)
    (source / "né\n").unlink()
    client = service.client()
    answer = client.post("/api/access/logon", json={"username": "u", "password": ["p"]})
    client.headers["Authorization"] = answer.json()["sessionId"]
    zone = Person(service, client, "u").zone("Z")
    entries = {entry["name"]: entry for entry in zone.listing()}
    assert entries.keys() == {".hidden", "a", "né\n"}
    assert zone.content(entries["né\n"]["id"]).content == expected
    assert entries[".hidden"]["attributes"]["hidden"] is True
    inner = {entry["name"]: entry for entry in zone.listing(entries["a"]["id"])}
    assert inner["empty"]["folder"] is True
    assert inner["run.sh"]["attributes"]["executable"] is True


@pytest.mark.parametrize(
    ("item", "said"),
    [("pipe", "neither a file nor a folder"), ("link", "a link to a folder"), ("lost", "no file")],
)
def test_content_that_cannot_be_copied_is_an_error(place: Path, item: str, said: str) -> None:
    """A pipe or a link in the folder prevents the start."""
    (place / "docs").mkdir()
    if item == "pipe":
        os.mkfifo(place / "docs" / item)
    else:
        (place / "docs" / item).symlink_to("/" if item == "link" else "/no/such/file")
    text = HEAD + USER + '[[zones]]\nname = "Z"\nmanager = "u"\ncontent = "docs"\n'
    (place / "world.toml").write_text(text)
    line = one_line(attempt(place / "data", "--world", str(place / "world.toml")), 2)
    assert f"{place / 'docs' / item} is " in line
    assert said in line


def test_the_packaged_world_is_a_working_firm(start: Start) -> None:
    """Without a world file there are zones with realistic documents in nested folders."""
    service = start()
    alice = service.person()
    zones = alice.zones()
    assert 4 <= len(zones) <= 6
    assert [name for name, zone in zones.items() if not zone["ssiAccessible"]] == ["Personnel"]
    kinds: set[str] = set()
    files = depth = 0
    for name, record in zones.items():
        if not record["ssiAccessible"]:
            continue
        zone = alice.zone(name)
        folders = [(zone.root, 1)]
        while folders:
            folder, level = folders.pop()
            for entry in zone.listing(folder):
                depth = max(depth, level)
                if entry["folder"]:
                    folders.append((entry["id"], level + 1))
                else:
                    files += 1
                    kinds.add(entry["type"])
                    assert len(zone.content(entry["id"]).content) == entry["size"] > 0
    assert 25 <= files <= 45
    assert depth >= 3
    assert kinds >= {"md", "txt", "csv", "pdf", "png", "html"}


def test_the_example_world_has_passwords_of_its_own(place: Path) -> None:
    """Random passwords, which only the owner of the folder can read, survive a restart."""
    users: list[dict[str, str]] = []
    for name in ("one", "two"):
        (place / name).mkdir()
        service = Service(place / name)
        try:
            file = service.data / "passwords"
            text = file.read_text()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            users.append(service.passwords())
            service.stop()
            service.start()
            assert file.read_text() == text
            for user, password in users[-1].items():
                assert logon(service.client(), user, password).status_code == 200
                assert logon(service.client(), user, "correct horse").status_code == 401
        finally:
            service.close()
    one, two = users
    assert one.keys() == two.keys() and "alice@acme.example" in one
    assert not set(one.values()) & set(two.values())
    assert min(map(len, one.values())) >= 20


def test_only_a_user_without_a_password_is_given_one(start: Start) -> None:
    """Passwords from the world file are kept, and no file of passwords is written."""
    assert not (start(world()).data / "passwords").exists()


@pytest.mark.parametrize(
    ("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)]
)
def test_a_sandbox_that_others_can_reach_warns(place: Path, host: str, warned: bool) -> None:
    """One line of warning is printed before the first connection from another machine."""
    ready = place / "ready.json"
    with running(place, ready, "--host", host):
        eventually(ready.exists, "the sandbox answers")
    lines = (place / "log").read_text().splitlines()
    assert len(lines) == warned
    assert not warned or "can be reached from other machines" in lines[0]
