"""Answers meant to exhaust memory or time: every request ends with little cost."""

import gzip
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND
from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

MIB = 1 << 20
FLOOD = 600 * MIB  # bytes of an answer that does not end by itself; a bounded reader takes fewer
COMMAND_MIB = 200  # peak memory of a command; it needs about 60
DAEMON_MIB = 400  # peak memory of a daemon; it needs about 80


@cache
def bomb(size: int = FLOOD) -> bytes:
    """Return zeros, compressed twice: a few kilobytes.

    The pieces are independent, so that one is compressed and repeated: a client does not wait long.
    """
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(size // MIB):
        check = zlib.crc32(bytes(MIB), check)
    tail = struct.pack("<II", check, size % (1 << 32))
    head = gzip.compress(b"")[:10]
    once = head + piece * (size // MIB) + packer.flush() + tail
    return gzip.compress(once, 9)


def packed(answer: Answer) -> None:
    """Encode the answer twice."""
    answer.headers = {"Content-Encoding": "gzip, gzip", "Content-Type": "application/json"}
    answer.body = bomb()
    answer.length = len(answer.body)


def endless(answer: Answer) -> None:
    """Send an answer of 200 whose body does not end."""
    answer.raw, answer.cut = flood(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), True


def flood(head: bytes) -> Iterator[bytes]:
    """Yield `head`, then chunks of spaces."""
    yield head
    piece = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
    for _ in range(FLOOD // MIB):
        yield piece


# The peak of a process is at least that of the process which forked it: a small one has to.
MEASURE = """
import pathlib, resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
pathlib.Path(sys.argv[1]).write_text(str(usage.ru_maxrss))
sys.exit(code)
"""


def run(machine: Machine, *arguments: str | Path, text: str = "") -> tuple[int, str, float]:
    """Run a command; return exit code, standard error and peak memory in MiB."""
    measured = machine.folder / "peak"
    ended = subprocess.run(
        [sys.executable, "-ISc", MEASURE, measured, COMMAND, *arguments],
        input=text, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=machine.environment, cwd=machine.folder, encoding="utf-8", check=False,
    )  # fmt: skip
    return ended.returncode, ended.stderr, int(measured.read_text()) / 1024


def peak(pid: int) -> float:
    """Return the peak memory of a running process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def many_headers(answer: Answer) -> None:
    """Add more headers than any service sends."""
    answer.headers |= {f"X-{number}": "x" for number in range(2000)}


REFUSED_BEFORE_LOGON: dict[str, tuple[Callable[[Answer], None], str]] = {
    "encoded twice": (packed, "encoded"),
    "endless": (endless, "more than"),
    "headers": (many_headers, "headers"),
}


@pytest.mark.parametrize("name", REFUSED_BEFORE_LOGON)
def test_a_large_answer_before_a_logon_takes_no_memory(
    machine: Machine, proxy: FaultProxy, name: str
) -> None:
    """One line and exit code 1; an answer is rejected before it is decompressed or completely
    read."""
    proxy.about = lambda asked: asked.path.endswith("authorizationrequirements")
    proxy.alter, words = REFUSED_BEFORE_LOGON[name]
    code, said, mib = run(
        machine, "logon", proxy.base_url, "--username", f"alice@{world.DOMAIN}",
        "--password-stdin", "--ca-file", proxy.ca_file, text=f"{world.PASSWORDS['alice']}\n",
    )  # fmt: skip
    assert mib < COMMAND_MIB
    assert (code, said.count("\n")) == (1, 1)
    assert words in said
    assert not any(b"correct" in asked.body for asked in proxy.came)


def endless_zones(answer: Answer) -> None:
    """Send another full page of zones, whatever page is requested."""
    query = answer.asked.path.partition("?")[2]
    asked = dict(each.split("=") for each in query.split("&") if each)
    page, size = int(asked.get("page", 1)), int(asked.get("pageSize", 100))
    answer.say(
        [
            {"id": f"{page}-{size}-{number}", "name": "x", "rootId": "0", "description": "x" * 2000}
            for number in range(size)
        ]
    )


def test_an_endless_list_is_an_error(machine: Machine, proxy: FaultProxy) -> None:
    """An endless list of zones gives one line."""
    machine.log_on(proxy, profile="sandbox")
    proxy.about = lambda asked: asked.path.startswith("/api/zones")
    proxy.alter = endless_zones
    code, said, mib = run(machine, "zones")
    assert mib < DAEMON_MIB
    assert (code, said.count("\n")) == (1, 1)
    assert "does not end" in said


def is_upload(asked: Asked) -> bool:
    """Return True if the request uploads a file."""
    return asked.method == "POST" and "/files/" in asked.path


def items(piece: bytes) -> Callable[[Answer], None]:
    """Return a JSON array of very many short items."""
    body = b"[" + piece * (48 * MIB // len(piece)) + piece.rstrip(b",") + b"]"

    def alter(answer: Answer) -> None:
        answer.body, answer.length = body, len(body)

    return alter


def test_large_answers_take_little_memory(proxied: Mounted, proxy: FaultProxy) -> None:
    """Listings, content and uploads of any size cost little memory; written files arrive once."""
    proxied.allow("")
    os.listdir(proxied.root)
    listing = f"/api/zones/{proxied.zone.id}/folder/{proxied.zone.root_id}"
    docs = f"/api/zones/{proxied.zone.id}/folder/{proxied.zone.entry_id('docs')}"
    faults: list[tuple[Callable[[Asked], bool], Callable[[Answer], None]]] = [
        (lambda asked: asked.path == docs, packed),
        (lambda asked: asked.path == docs, endless),
        (lambda asked: asked.path == docs, items(b"{},")),
        (lambda asked: asked.path == docs, items(b"1,")),
        (lambda asked: asked.path == docs, items(b'{"id":[[],[],[],[]]},')),
        (lambda asked: asked.path.endswith("/content"), packed),
    ]
    for proxy.about, proxy.alter in faults:
        with pytest.raises(OSError, match="Input/output"):
            os.listdir(proxied.root / "docs")
            (proxied.root / "notes.txt").read_bytes()
        assert peak(proxied.pid) < DAEMON_MIB
    assert (proxied.root / "notes.txt").exists(), listing
    for number, size in enumerate((10, 3 * MIB)):
        for alter in (packed, endless):
            proxy.about, proxy.alter = is_upload, alter
            before = len(proxy.came)
            path = proxied.root / f"{number} {alter.__name__}.bin"
            path.write_bytes(os.urandom(size))
            eventually(lambda before=before: any(map(is_upload, proxy.came[before:])),  # type: ignore[misc]
                       what="it is sent")  # fmt: skip
            eventually(lambda path=path: _is_known(proxied, path.name), what="it is answered")  # type: ignore[misc]
            assert peak(proxied.pid) < DAEMON_MIB
            proxy.about = lambda asked: False
            proxied.sync()
            assert proxied.zone.read(path.name) == path.read_bytes()
            assert len(proxied.zone.versions(path.name)) == 1
    assert proxied.status()["state"] == "online"


def _is_known(proxied: Mounted, name: str) -> bool:
    """Return True if an upload has ended."""
    states = {each["path"]: each["state"] for each in proxied.status()["uploads"]}
    return not any(path.endswith(name) and state == "uploading" for path, state in states.items())


DATES = ["Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT"]
NUMBERS: list[object] = [2**63, 10**30, -5, 1e300, -0.5, "9" * 400, True, [], None]
MOMENTS: list[object] = ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+23:59", -1, 2**70, "1e9"]
ZONE_NUMBERS = ("currentSize", "numberOfUsers", "createdAt")


def test_unusual_times_and_numbers(proxied: Mounted, proxy: FaultProxy) -> None:
    """Mount, status, doctor and the lists work with any number or time in the answers."""
    proxied.allow("no valid id")
    names = set(os.listdir(proxied.root))
    odd: dict[str, object] = {}
    date = [DATES[0]]

    def alter(answer: Answer) -> None:
        answer.headers |= {"Date": date[0], "Retry-After": "9" * 400, "Set-Cookie": "a=b"}
        if answer.status == 200 and answer.body[:1] == b"[":
            answer.say([item | odd for item in json.loads(answer.body)])

    proxy.about, proxy.alter = (
        lambda asked: "/content" not in asked.path,
        alter,
    )
    for number, value in enumerate(NUMBERS):
        odd = {"size": value, "lastModified": MOMENTS[number % len(MOMENTS)]}
        odd |= dict.fromkeys(ZONE_NUMBERS, value)
        date[0] = DATES[number % len(DATES)]
        path = f"/folder/{proxied.zone.root_id}"
        asked = sum(path in each.path for each in proxy.came)

        def again(path: str = path, asked: int = asked) -> bool:
            os.listdir(proxied.root)
            return sum(path in each.path for each in proxy.came) >= asked + 2

        eventually(again, what="the folder is listed again")
        assert set(os.listdir(proxied.root)) == names
        assert all((proxied.root / name).stat().st_size >= 0 for name in names)
    proxied.machine.done("zones", "--json")
    assert proxied.status()["state"] == "online"
    for date[0] in DATES:
        said = json.loads(proxied.machine.run("doctor", "--json").stdout)
        assert {check["name"]: check["ok"] for check in said["checks"]}["service"]
        assert not [check for check in said["checks"] if check["name"] == "clock"]
    assert not any(name.lower() == "cookie" for each in proxy.came for name in each.headers)


@pytest.mark.parametrize("life", [10**40, -1, "9" * 19])
def test_a_session_of_any_lifetime_can_be_used(
    machine: Machine, proxy: FaultProxy, life: object
) -> None:
    """Logon stores a session of any lifetime, and status and the next command work."""

    def alter(answer: Answer) -> None:
        answer.headers["Date"] = "Fri, 31 Dec 9999 23:59:59 GMT"
        answer.say(json.loads(answer.body) | {"expiresInMillis": life})

    proxy.about, proxy.alter = (
        lambda asked: asked.path.endswith("/logon"),
        alter,
    )
    machine.log_on(proxy, profile="sandbox", options=["--session-only"])
    machine.done("zones")
    machine.done("status", "--json")
