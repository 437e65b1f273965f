"""Each field of each answer, missing or malformed: a valid value, or a one-line error."""

import json
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import product
from typing import Any

import httpx
import msgspec
import pytest
from trio.testing import MockClock

from tests.unit.logon.conftest import GOOD, Desk, Person, say
from tests.unit.remote.conftest import Stage
from zonedrive.errors import ZonedriveError
from zonedrive.logon import wire
from zonedrive.logon.flow import Flow, obtain_token
from zonedrive.model import Entry, LogMessage, Zone
from zonedrive.remote.http_service import HttpService

ENTRY = {
    "id": "e",
    "zoneId": "z",
    "parentId": "p",
    "name": "n",
    "displayName": "n",
    "properName": "n",
    "folder": False,
    "deleted": False,
    "size": 3,
    "type": "TXT",
    "lastModified": "2026-01-02T03:04:05+0100",
    "lastModifiedBy": "bob@acme.example",
    "synchronizationStatus": "NotSynchronizing",
    "attributes": {"executable": False, "hidden": True},
}
ZONE = {
    "id": "z",
    "name": "Zone",
    "description": "",
    "rootId": "r",
    "type": "t",
    "typeName": "",
    "createdAt": "2026-01-02T03:04:05Z",
    "createdBy": "bob@acme.example",
    "currentSize": -1,
    "numberOfUsers": 3,
    "allowExternalSharing": False,
    "ssiAccessible": True,
    "webAccessible": True,
    "useECM": False,
}
VERSION = {"id": "v", "version": 2, "size": 3, "lastModified": "2026-01-02", "lastModifiedBy": "b"}
MEMBER = {
    "memberId": "b",
    "memberType": "User",
    "displayName": "B",
    "accessLevel": "Manage",
    "authorization": "Internal",
}
GROUP = {
    "members": [MEMBER],
    "properties": {
        "groupId": "group.1@acme.example",
        "name": "G",
        "description": "",
        "createdAt": "2026-01-02T03:04:05Z",
        "createdBy": "bob@acme.example",
        "administratorManaged": False,
        "open": True,
        "zoneActions": {"assignAccessRights": False},
    },
}
MESSAGE = {
    "timestamp": "2026-01-02T03:04:05Z", "userId": "bob@acme.example", "event": "Deleted",
    "entryId": "e", "path": "docs/n", "message": "n was deleted",
}  # fmt: skip
SHARED = {"sharekey": "k", "entryId": "e", "link": "https://zones.example/s/k"}
TOKEN = {"id": "t", "token": "secret", "expiry": 1893456000000, "tokenName": "mine"}

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
STEERING = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + BIDI + "\u2028\u2029\ud800"
HOSTILE = f"ev\x1b]0;title\x07il\nSTATUS=forged{STEERING}"
NAMES = {(Entry, "name"), (Zone, "name"), (LogMessage, "path")}
"""Names, which `state.names` makes safe for display."""

Verb = Callable[[HttpService], Awaitable[object]]
# Each call with an answer as it should be.
CALLS: Mapping[str, tuple[Verb, object]] = {
    "zones": (lambda service: service.zones(), [ZONE, ZONE | {"id": "y"}]),
    "listing": (lambda service: service.listing("z", "p"), [ENTRY, ENTRY | {"id": "f"}]),
    "entry": (lambda service: service.entry("z", "e"), ENTRY),
    "upload": (lambda service: service.upload("z", "p", "n", b"abc"), ENTRY),
    "make_folder": (lambda service: service.make_folder("z", "p", "n"), ENTRY | {"folder": True}),
    "move": (lambda service: service.move("z", "e", "p", "n"), ENTRY),
    "restore": (lambda service: service.restore("z", "e"), ENTRY),
    "versions": (lambda service: service.versions("z", "e"), [VERSION, VERSION | {"id": "w"}]),
    "deleted": (lambda service: service.deletions("z"), [ENTRY]),
    "zone_log": (lambda service: service.zone_log("z"), [{"id": "m", "message": "x"}]),
    "share": (lambda service: service.share("z", "e"), SHARED),
    "log_messages": (lambda service: service.log_messages("z"), [MESSAGE, MESSAGE]),
    "members": (lambda service: service.members("z"), [MEMBER, MEMBER]),
    "levels": (lambda service: service.levels(), [{"zoneId": "z", "level": "Add"}]),
    "tokens": (lambda service: service.directory.tokens(), [TOKEN]),
    "create_token": (lambda service: service.directory.create_token("n", 60, "pw"), TOKEN),
    "users": (lambda service: service.directory.users(), [{"id": "u", "name": "U"}]),
    "create_group": (lambda service: service.directory.create_group("G"), GROUP),
    "update_group": (lambda service: service.directory.update_group("g", {}), GROUP),
}
MISSING = object()
ODD: tuple[object, ...] = (
    MISSING,
    None,
    True,
    -1,
    2**63,
    10**400,
    1.5,
    1e308,
    "",
    HOSTILE,
    "../../etc",
    "2026-13-45T99:99:99Z",
    "x" * 100_000,
    [],
    {},
    [[[]]],
    {"a": {"b": None}},
)
WHOLE = (
    b"",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    b"{}",
    b"[null]",
    b"[[]]",
    b"[{}]",
    b"<html>",
    b'{"message":"only"}',
    b'{"error":"SOMETHING_NEW","message":"m"}',
    b'{"id":',
    b"\xff\xfe",
    b"\xef\xbb\xbf[]",
    b"NaN",
    b"[" * 100_000,
    b'{"id":"\\ud800","name":"\\udfff"}',
    b'{"id":' + b"9" * 10_000 + b"}",
)


def mutations(good: object) -> Iterator[object]:
    """Yield variants of `good` with one malformed member each, on every level."""
    if isinstance(good, list):
        for number, item in enumerate(good):
            for odd in (*mutations(item), *ODD[1:]):
                yield [*good[:number], odd, *good[number + 1 :]]
    elif isinstance(good, dict):
        for name, value in good.items():
            yield {key: each for key, each in good.items() if key != name}
            for odd in (*ODD[1:], *mutations(value)):
                yield good | {name: odd}
        yield good | {HOSTILE: HOSTILE}


def bodies(good: object) -> Iterator[bytes]:
    """Yield malformed answers."""
    yield from WHOLE
    for value in mutations(good):
        yield json.dumps(value).encode()


def steers(text: str) -> bool:
    """Return True if a text contains control characters."""
    return any(
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in BIDI for char in text
    )


def texts(value: object) -> Iterator[str]:
    """Yield every text in a result, except names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts(key)
            yield from texts(inner)
    elif isinstance(value, list | tuple | frozenset):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if (type(value), field) not in NAMES:
                yield from texts(getattr(value, field))
    elif isinstance(value, BaseException):
        yield str(value)
        yield from texts(vars(value))


def without_control_characters(found: object) -> None:
    """Check that a result or an error has no control characters, except in names."""
    wrong = [text for text in texts(found) if steers(text)]
    assert not wrong, wrong


def one_clear_line(error: ZonedriveError) -> None:
    """Check that an error is one printable line."""
    line = error.line()
    assert line
    assert len(line) < 600, line[:700]
    assert all(char.isprintable() for char in line), line
    without_control_characters(error)


@pytest.mark.parametrize("call", CALLS)
async def test_a_malformed_field_is_at_most_one_line(
    stage: Stage, call: str, autojump_clock: MockClock
) -> None:
    """No answer causes a traceback, an unusable value, or a text with control characters."""
    verb, good = CALLS[call]
    answers: list[bytes] = []
    service = stage.service(lambda request: httpx.Response(200, content=answers[-1]))
    tried = failed = 0
    for body in bodies(good):
        answers.append(body)
        tried += 1
        try:
            found = await verb(service)
            usable(found)
            without_control_characters(found)
        except ZonedriveError as error:
            failed += 1
            one_clear_line(error)
    assert tried > 60
    assert failed < tried


def usable(value: object) -> None:
    """Check that integers fit the database and that texts can be encoded in UTF-8."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, int):
        assert -(2**63) <= value < 2**63
    elif isinstance(value, list | tuple):
        for each in value:
            usable(each)
    elif hasattr(value, "__struct_fields__"):
        for name in value.__struct_fields__:
            usable(getattr(value, name))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 503, 599, 299, 199, 304, 418])
async def test_a_refusal_in_any_form_is_one_line(
    stage: Stage, status: int, autojump_clock: MockClock
) -> None:
    """The status decides, whatever the body contains."""
    bodies = [*WHOLE, json.dumps({"error": "X" * 9999, "message": 5}).encode()]
    answers: list[bytes] = []
    service = stage.service(lambda request: httpx.Response(status, content=answers[-1]))
    for body, (verb, _) in product(bodies, CALLS.values()):
        answers.append(body)
        try:
            await verb(service)
        except ZonedriveError as error:
            one_clear_line(error)
        else:
            assert status == 299


LOGON_ANSWERS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "logged on": (
        "POST /api/access/logon",
        200,
        GOOD
        | {"passwordChangeIsRequired": False, "idpURI": "https://idp.example", "sessionID": "s"},
    ),
    "more is needed": (
        "POST /api/access/logon",
        202,
        {
            "state": "VERIFICATIONCODEPENDING",
            "sessionId": "f",
            "userId": {"name": "a"},
            "message": "m",
        },
    ),
    "a token": ("POST /api/tokens", 201, {"id": "t", "token": "secret", "expiry": 1893456000000}),
    "requirements": (
        "GET /api/access/authorizationrequirements",
        200,
        {
            "passwordRequired": True,
            "canSavePassword": True,
            "otpRequired": False,
            "otpType": "TOTP",
            "organizationName": "Acme",
            "idpRequired": False,
            "idpData": [{"name": "corp", "description": "C"}],
            "idpName": "corp",
            "personalIdentificationTypes": [{"name": "eid", "description": "E", "icon": ""}],
        },
    ),
}


@pytest.mark.parametrize("answer", LOGON_ANSWERS)
async def test_malformed_answers_to_a_logon(answer: str) -> None:
    """All answers of a logon cause no traceback, and no secret that breaks a header."""
    desk, (route, status, good) = Desk(), LOGON_ANSWERS[answer]
    for body in bodies(good):
        desk.answer("POST /api/access/logon", say(200, GOOD))
        desk.answer(route, httpx.Response(status, content=body))
        person = Person(code="123456")
        without_control_characters(wire.message(body))
        try:
            asked = desk.handle(
                httpx.Request("GET", "https://zones.example/api/access/authorizationrequirements")
            )
            needs = wire.requirements(asked.content, "asking")
            done = await Flow(desk.access(), "alice", needs, person).run()
            sendable(done.bearer.secret)
            token = await obtain_token(desk.access(), done, "mine", 90)
            sendable(token.secret)
            for found in (needs, done, token):
                without_control_characters(found)
        except ZonedriveError as error:
            one_clear_line(error)


def sendable(secret: str) -> None:
    """Check that a text is a valid header value."""
    assert secret
    assert secret.isascii()
    assert secret.isprintable()
    assert len(secret) <= 16_384
