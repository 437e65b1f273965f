"""Hostile requests get an error body; the sandbox keeps running and its data stay consistent."""

import json
import random
import socket
import sqlite3
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPException, HTTPResponse

import httpx
import pytest

from tests.sandbox import fuzzing
from tests.sandbox.running import (
    PASSWORDS,
    Person,
    Service,
    eventually,
    logon,
    receive_all,
    serving,
    world,
)
from zonedrive.sandbox.app import GUARDED
from zonedrive.sandbox.errors import NAMES

REQUESTS = 600  # in each round, with another seed
ROUNDS = 10
HEADS = 250
LIMITED = 500
ALICE = "alice@acme.example"
MANAGED = ("users", "groups")  # what SCIM is for
SIGN_ON = 'identity_providers = [{ name = "corp" }]\npersonal_id = [{ name = "eid" }]'
ENDLESS = "block_after = 1000000000"  # failures are not what is looked at here


class Talker:
    """Client that sends bytes over a connection that it keeps if possible."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connection: ssl.SSLSocket | None = None

    def ask(self, wire: fuzzing.Wire) -> tuple[int, str, bytes]:
        """Return status, Content-Type and body of the answer."""
        if self._connection is None:
            self._connection = self._service.connect()
        self._connection.sendall(wire.data)
        answer = HTTPResponse(self._connection, method=wire.method)
        answer.begin()
        body = answer.read()
        if answer.will_close:
            self.close()
        return answer.status, answer.getheader("content-type", ""), body

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest.fixture(scope="module")
def target() -> Iterator[Service]:
    """Yield a sandbox for hostile requests."""
    with serving(world(f"{SIGN_ON}\n{ENDLESS}\npage_listings = true")) as service:
        yield service


def known(service: Service, number: int) -> fuzzing.Known:
    """Return valid values: Alice's session, identifiers of everything, and fitting values."""
    alice = service.person()
    zone = alice.zone()
    folder = zone.folder(f"fuzz {number}")
    files = [zone.file(name, b"content", folder)["id"] for name in "abcdef"]
    gone = zone.file(f"gone {number}")["id"]
    alice.delete(f"{zone.own}/entries/{gone}")
    groups = [
        alice.post("/api/groups", json={"name": f"fuzz {number} {index}"}).json()
        for index in "abcd"
    ]
    group_ids = [group["properties"]["groupId"] for group in groups]
    people = ["bob@acme.example", "carol@acme.example", *group_ids]
    share = alice.post(f"{zone.own}/entries/{folder}/share").json()["sharekey"]
    wanted = {"tokenName": "fuzz", "validity": 600, "password": list(PASSWORDS[alice.id])}
    token = alice.post("/api/tokens", json=wanted).json()["id"]
    change = [{"memberId": people[1], "accessLevel": "Access"}]
    values = ["alice@acme.example", list(PASSWORDS[alice.id]), change, folder, files[0], zone.root]
    return fuzzing.Known(
        session=alice.session,
        ids={
            "zone_id": [zone.record["id"]],
            "folder_id": [zone.root, folder, files[0]],
            "file_id": [*files, folder, zone.root],
            "entry_id": [*files, folder, gone, zone.root],
            "group_id": group_ids,
            "member_id": people,
            "version": ["1", "2", "0"],
            "sharekey": [share],
            "token_id": [token],
            "id": [_visit(alice) for _ in range(10)],
        },
        values=[json.dumps(value) for value in values],
    )


def _visit(person: Person) -> str:
    """Return a visit to the provider's page."""
    query = {
        "fragmentResponse": "true",
        "idpName": "corp",
        "organization": "Acme",
        "redirectURI": "http://127.0.0.1:9/",
    }
    uri = person.get("/api/access/idpsignonuri", params=query).json()["uri"]
    return str(httpx.URL(uri).params["id"])


def check(wire: fuzzing.Wire, status: int, kind: str, body: bytes) -> None:
    """Check that the status is below 500, and that a refusal has the body of a listed error."""
    assert 200 <= status < 500, (wire.data[:2000], status, body[:500])
    if status < 400:
        return
    assert kind == "application/json" or wire.template == "/api/sandbox/signon", wire.data[:2000]
    if wire.method == "HEAD" or kind != "application/json":
        return
    error = json.loads(body)
    assert error["error"] in NAMES, error
    assert isinstance(error["message"], str), error
    assert error["message"], error
    assert isinstance(error.get("data", ""), str), error


def sound(service: Service) -> None:
    """Check that the database is intact, and that exactly the content of all versions exists."""
    incoming = service.data / "incoming"
    eventually(lambda: not list(incoming.iterdir()), "what was broken off is removed")
    with closing(sqlite3.connect(service.data / "sandbox.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        versions = dict(database.execute("SELECT id, size FROM versions").fetchall())
    there = {path.name: path.stat().st_size for path in (service.data / "content").glob("*/*")}
    assert there == versions
    assert "Traceback" not in service.log(), service.log()


def test_any_request_gets_an_answer_below_500(target: Service) -> None:
    """Thousands of requests with hostile paths, queries, headers and bodies for each endpoint."""
    talker, seen = Talker(target), Counter[tuple[str, int]]()
    for number in range(ROUNDS):
        _attack(talker, seen, fuzzing.Fuzzer(number, known(target, number)))
    talker.close()
    sound(target)
    assert target.person().zones()
    # The attack must not end at the first check.
    done = {place for place, status in seen if status < 300}
    missed = {path for _method, path in fuzzing.ENDPOINTS} - done - NEVER_DONE
    assert not missed, (missed, seen)


# Ended sessions and right passwords would end the attack; revalidation is never done.
NEVER_DONE = {
    "/api/access/logoff",
    "/api/access/revalidate",
    "/api/sandbox/password",
}


def _attack(talker: Talker, seen: Counter[tuple[str, int]], fuzzer: fuzzing.Fuzzer) -> None:
    for _ in range(REQUESTS):
        wire = fuzzer.request()
        try:
            answer = talker.ask(wire)
        except (OSError, HTTPException) as wrong:
            raise AssertionError(wire.data[:2000]) from wrong
        seen[wire.template, answer[0]] += 1
        check(wire, *answer)


JUNK = [
    b"GET", b"POST", b"BREW", b"get", b"\x00", b"\xff", b" ", b"  ", b"\t", b"\r", b"\n", b"\r\n",
    b"\r\n\r\n", b"/", b"/api/zones", b"/api/access/logon", b"/%", b"*", b"HTTP/1.1", b"HTTP/1.0",
    b"HTTP/2.0", b"HTTP/", b"Host: x", b"Content-Length: 5", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Content-Length: 5, 6",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"5\r\nabcde\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\n", b"-1\r\n", b"Connection: close", b"Connection: Upgrade", b": ", b":",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"Upgrade: websocket", b"\x16\x03\x01", b"{}", b"a" * 3000,
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"Expect: 100-continue", b" folded: y", b"\x80: z",
]  # fmt: skip


STARTS = [
    b"",
    b"POST /api/access/logon HTTP/1.1\r\n",
    b"GET /api/access/authorizationrequirements HTTP/1.1\r\nHost: x\r\n",
    b"GET /api/zones HTTP/1.1\r\nHost: x\r\n\r\n",
]


def _receive_head(connection: socket.socket) -> bytes:
    """Return the received bytes once the head of an answer is complete."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def test_any_bytes_on_the_connection_leave_it_standing(target: Service) -> None:
    """Invalid or contradictory HTTP is refused or disconnected; other clients do not notice."""
    statuses, chance = Counter[bytes](), random.Random(0)
    for _ in range(HEADS):
        pieces = [chance.choice(JUNK) for _ in range(chance.randint(1, chance.choice([2, 12])))]
        start = chance.choice(STARTS)
        with target.connect() as connection:
            connection.sendall(start)
            # A whole request is answered before the invalid bytes and the end can overtake it.
            answer = _receive_head(connection) if start.endswith(b"\r\n\r\n") else b""
            connection.sendall(b"\r\n".join(pieces) + b"\r\n\r\n")
            # The end of what is sent, below TLS, so that nobody waits for the rest.
            socket.socket.shutdown(connection, socket.SHUT_WR)
            answer += receive_all(connection)
        for part in answer.split(b"HTTP/1.1 ")[1:]:
            statuses[part[:3]] += 1
            assert part[:1] in b"124", (pieces, part)
            if part[:1] == b"4":
                assert json.loads(part.partition(b"\r\n\r\n")[2])["error"] in NAMES, pieces
    assert statuses[b"401"] >= HEADS * 0.1, statuses
    assert statuses[b"400"] >= HEADS * 0.2, statuses
    sound(target)
    assert target.person().zones()


def _scim(service: Service, _answers: fuzzing.Known) -> str:
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE], scope={"name": "SCIM"})
    return str(answer.json()["sessionId"])


def _guest(service: Service, answers: fuzzing.Known) -> str:
    answer = service.client().post(f"/share/{answers.ids['sharekey'][0]}/token")
    return str(answer.json()["token"])


def _reader(service: Service, answers: fuzzing.Known) -> str:
    scope = {"permissions": {"zones": {"list": True}}, "limitations": {"zones": []}}
    answer = logon(service.client(), ALICE, PASSWORDS[ALICE], scope=scope)
    return str(answer.json()["sessionId"])


READING = {("files", "list"), ("files", "get"), ("files", "access")}


@pytest.mark.parametrize(
    ("enter", "allowed"),
    [
        (_scim, {(resource, action) for *_, resource, action in GUARDED if resource in MANAGED}),
        (_guest, READING),
        (_reader, {("zones", "list")}),
    ],
    ids=["SCIM", "a share", "a list of zones"],
)
def test_no_request_takes_a_limited_caller_further(
    target: Service,
    enter: Callable[[Service, fuzzing.Known], str],
    allowed: set[tuple[str, str]],
) -> None:
    """No form of a request does what the scope forbids."""
    answers = known(target, 1000 + len(allowed))
    fuzzer = fuzzing.Fuzzer(3, replace(answers, session=enter(target, answers)))
    table = {(method, path): (resource, action) for method, path, _, resource, action in GUARDED}
    talker, done = Talker(target), Counter[tuple[str, str]]()
    for _ in range(LIMITED):
        wire = fuzzer.request()
        status, kind, body = talker.ask(wire)
        check(wire, status, kind, body)
        needed = table.get((wire.method, wire.template))
        if status < 400 and needed is not None:
            assert needed in allowed, (wire.data[:2000], status, body[:500])
            done[needed] += 1
    talker.close()
    assert done, "the caller was let in nowhere"
