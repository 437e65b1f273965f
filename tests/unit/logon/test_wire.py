"""JSON of the access endpoints."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.remote.wire.test_entries import JSON
from zonedrive.errors import BadAnswer
from zonedrive.logon import wire


def test_requirements() -> None:
    """Missing members have the usual values: a password, no code."""
    assert wire.requirements(b"{}", "x") == wire.Requirements()
    body = (
        b'{"passwordRequired":false,"otpRequired":true,"otpType":"TOTP","organizationName":"Acme"}'
    )
    assert wire.requirements(body, "x") == wire.Requirements(
        password=False, code=True, code_kind="TOTP", organization="Acme"
    )
    none = wire.requirements(b'{"otpType":"None"}', "x")
    assert (none.code_kind, none.has_codes) == ("", False)


def test_words_for_a_person_are_one_line() -> None:
    """Messages of the service are reduced to one line."""
    said = b'{"message": "Look\\n at\\u001b[31m your mail"}'
    assert wire.message(said) == "Look at\ufffd[31m your mail"
    for nothing in (b"", b"[]", b'{"message": null}', b"<html>"):
        assert wire.message(nothing) == ""


@given(st.dictionaries(st.sampled_from(
    ["logonOK", "sessionId", "sessionID", "expiresInMillis", "idpURI", "state",
     "passwordChangeIsRequired", "userId"]), JSON))  # fmt: skip
def test_no_member_breaks_the_reader(members: dict[str, object]) -> None:
    """Every member may be missing, null or of another type."""
    import json

    try:
        found = wire.outcome(json.dumps(members).encode(), "x")
    except BadAnswer:
        return
    assert found.life_ns >= 0
    if len(found.session) >= 8:
        shown = msgspec.structs.replace(found, pending="")  # where the same text may stand
        assert found.session not in repr(shown)
