"""Texts of the service lose their control characters; test_every_field.py tries each field."""

import ast
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.remote.test_every_field import (
    CALLS,
    ENTRY,
    HOSTILE,
    LOGON_ANSWERS,
    VERSION,
    without_control_characters,
)
from zonedrive.errors import RemoteError
from zonedrive.formatting import plain
from zonedrive.logon import wire as logon_wire
from zonedrive.remote import directory
from zonedrive.remote.profiles.operations import VERSION_FIELDS
from zonedrive.remote.urls import Request
from zonedrive.remote.wire import entries, error_mapping, fields


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
    assert asked_for(logon_wire) - {"uri"} <= tried


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
    for error in errors:
        without_control_characters(error)


def test_plain_text_is_unchanged() -> None:
    """Umlauts, other scripts, joiners and marks that scripts need are unchanged."""
    for text in ("Grüße aus Köln", "می\u200cخواهم", "👩\u200d👧", "a\u200eb", "❤\ufe0f", "e\u0301"):
        assert plain(text) == fields.text(text) == fields.identifier(text) == text
    assert plain("a\tb\r\nc\u2028d\x85e") == "a b  c d e"
    assert fields.identifier("a\x00b") == fields.identifier("\ud800") == ""
    assert fields.name("a\tb\ud800") == "a\tb\ufffd"
