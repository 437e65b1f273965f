"""Control characters in any field of an answer are removed or refused."""

import ast
import json
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from trio.testing import MockClock

from tests.unit.logon.conftest import GOOD, Desk, Person, say
from tests.unit.remote.conftest import Stage
from tests.unit.remote.test_every_field import CALLS, ENTRY, LOGON_ANSWERS, VERSION
from zonedrive.errors import RemoteError, ZonedriveError
from zonedrive.formatting import plain
from zonedrive.logon import wire as logon_wire
from zonedrive.logon.flow import Flow, obtain_token
from zonedrive.model import Entry, LogMessage, Zone
from zonedrive.remote import directory
from zonedrive.remote.profiles.operations import VERSION_FIELDS
from zonedrive.remote.urls import Request
from zonedrive.remote.wire import entries, error_mapping, fields

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
STEERING = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + BIDI + "\u2028\u2029\ud800"
HOSTILE = f"ev\x1b]0;title\x07il\nSTATUS=forged{STEERING}"
NAMES = {(Entry, "name"), (Zone, "name"), (LogMessage, "path")}
"""Names, which `state.names` makes safe for display."""


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


def poisoned(good: object) -> Iterator[object]:
    """Yield variants of `good` with one hostile value each, on every level, and one more member."""
    if isinstance(good, list):
        for number, item in enumerate(good):
            for bad in poisoned(item):
                yield [*good[:number], bad, *good[number + 1 :]]
    elif isinstance(good, dict):
        for name, value in good.items():
            for bad in poisoned(value):
                yield good | {name: bad}
        yield good | {HOSTILE: HOSTILE}
    else:
        yield HOSTILE


def keys(value: object) -> set[str]:
    """Return the names of all members at any level."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set()


def asked_for(module: Any) -> set[str]:
    """Return the members that a module reads by name."""
    calls = [each for each in ast.walk(ast.parse(Path(module.__file__).read_text())) if
             isinstance(each, ast.Call) and ast.unparse(each.func).endswith(".get")]  # fmt: skip
    return {str(each.args[0].value) for each in calls if isinstance(each.args[0], ast.Constant)}


def test_every_field_that_is_read_is_tried() -> None:
    """The sample answers contain every member that the code reads."""
    assert set(entries.WireEntry.__struct_encode_fields__) <= ENTRY.keys()
    assert set(VERSION_FIELDS.values()) <= VERSION.keys()
    tried = set().union(*(keys(good) for _, good in CALLS.values()))
    assert asked_for(directory) | asked_for(entries) <= tried
    tried = set().union(*(keys(good) for _, _, good in LOGON_ANSWERS.values()))
    assert asked_for(logon_wire) - {"idpName", "idpURI", "sessionID", "uri", "message"} <= tried


@pytest.mark.parametrize("call", CALLS)
async def test_no_field_of_an_answer_steers_anything(
    stage: Stage, call: str, autojump_clock: MockClock
) -> None:
    """Ids with control characters are refused, texts lose them, names are unchanged."""
    verb, good = CALLS[call]
    said: list[bytes] = []
    service = stage.service(lambda request: httpx.Response(200, content=said[-1]))
    for bad in poisoned(good):
        said.append(json.dumps(bad).encode())
        found: object
        try:
            found = await verb(service)
        except ZonedriveError as error:
            found = error
        wrong = [text for text in texts(found) if steers(text)]
        assert not wrong, (bad, wrong)


@pytest.mark.parametrize("answer", LOGON_ANSWERS)
async def test_no_field_of_a_logon_steers_anything(answer: str) -> None:
    """No field in the answers of a logon can bring in control characters."""
    desk, (route, status, good) = Desk(), LOGON_ANSWERS[answer]
    extended = {**good, "idpName": "corp", "idpURI": "https://idp.example", "sessionID": "s"}
    for bad in poisoned(extended):
        body = json.dumps(bad).encode()
        desk.answer("POST /api/access/logon", say(200, GOOD))
        desk.answer(route, httpx.Response(status, content=body))
        found: list[object] = []
        try:
            if status == 200:
                found += [logon_wire.requirements(body, "asking"), logon_wire.outcome(body, "x")]
            found.append(logon_wire.message(body))
            needs = logon_wire.requirements(b"{}", "asking")
            done = await Flow(desk.access(), "alice", needs, Person(code="123456")).run()
            found.append(done)
            found.append(await obtain_token(desk.access(), done, "mine", 90))
        except ZonedriveError as error:
            found.append(error)
        wrong = [text for each in found for text in texts(each) if steers(text)]
        assert not wrong, (bad, wrong)


@pytest.mark.parametrize("field", ["error", "message"])
def test_no_refusal_steers_anything(field: str) -> None:
    """The same holds for redirects and broken connections."""
    body = json.dumps({"error": "FAILED", "message": "m", field: HOSTILE}).encode()
    errors: list[RemoteError] = [
        error_mapping.refusal(status, body, "doing") for status in (400, 503)
    ]
    errors.append(
        error_mapping.failed(
            302, {"Location": HOSTILE}, b"", Request("GET", "/x"), "https://zones.example"
        )
    )
    errors.append(error_mapping.broken(httpx.ReadError(HOSTILE), "zones.example", "doing"))
    errors.append(
        error_mapping.broken(httpx.DecodingError(HOSTILE), "zones.example", "doing", sent=True)
    )
    assert not [text for error in errors for text in texts(error) if steers(text)]


def test_plain_text_is_unchanged() -> None:
    """Umlauts, other scripts, joiners and marks that scripts need are unchanged."""
    for text in ("Grüße aus Köln", "می\u200cخواهم", "👩\u200d👧", "a\u200eb", "❤\ufe0f", "e\u0301"):
        assert plain(text) == fields.text(text) == fields.identifier(text) == text
    assert plain("a\tb\r\nc\u2028d\x85e") == "a b  c d e"
    assert fields.identifier("a\x00b") == fields.identifier("\ud800") == ""
    assert fields.name("a\tb\ud800") == "a\tb\ufffd"
