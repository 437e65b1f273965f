"""The records in SERVICE.md have exactly the fields that the sandbox sends and accepts."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tests.sandbox.running import PASSWORDS, Service, logon, world
from tests.unit.test_service_page import rows
from zonedrive.sandbox.routes.access import UserId
from zonedrive.sandbox.routes.logon import LogonRequest
from zonedrive.sandbox.routes.tokens import TokenRequest
from zonedrive.sandbox.sessions import Scope

PROVIDERS = 'identity_providers = [{ name = "corp" }]\npersonal_id = [{ name = "eid" }]'
ERIN = 'idp_users = ["erin@acme.example"]'
PARTS = {
    "attributes": {"executable", "hidden", "readProtected", "synchronize", "writeProtected"},
    "zoneActions": {"assignAccessRights"},
    "userId": {"name"},
}


def told(record: str) -> set[str]:
    """Return the fields of a record on the page."""
    (row,) = [row for row in rows() if re.match(rf"{re.escape(record)}: `", row.subject)]
    return set(re.findall(r"`(\w+)`", row.subject.partition(": ")[2]))


def check(record: str, *answers: dict[str, Any]) -> None:
    """Check that the answers together have the fields of the record, and their parts those of
    the parts."""
    assert {name for answer in answers for name in answer} == told(record), record
    for answer in answers:
        for name, fields in PARTS.items():
            if name in answer:
                assert set(answer[name]) == fields, (record, name)


def test_sent_records_have_the_fields_of_the_page(start: Callable[..., Service]) -> None:
    """The page has the fields of each record that a running sandbox sends."""
    service = start(world(f"{PROVIDERS}\n{ERIN}"))
    alice, nobody = service.person(), service.client()
    zone = alice.zone()
    check("Zone", zone.record)
    file = zone.file("a", b"1")
    check("Entry", file)
    members = [{"memberId": "bob@acme.example", "accessLevel": "Manage"}]
    group = alice.post("/api/groups", json={"name": "Fields", "members": members}).json()
    check("Group", group)
    check("Group member", *group["members"])
    check("Group properties", group["properties"])
    password = PASSWORDS[alice.id]
    wanted = {"tokenName": "t", "validity": 60, "password": list(password)}
    check("Token", alice.post("/api/tokens", json=wanted).json())
    by_password = logon(nobody, alice.id, password).json()
    check("Logged on (200)", by_password, logon(nobody, "erin@acme.example", None).json())
    check("More is needed (202)", logon(nobody, alice.id, None, acceptSessions=True).json())
    check("Requirements", nobody.get("/api/access/authorizationrequirements").json())
    asked = nobody.post("/api/access/newcredentials", json={"name": alice.id})
    check("New credentials", asked.json())
    query = {
        "authentication-type": "eid",
        "organization": "Acme",
        "redirectURI": "http://127.0.0.1:9/",
    }
    check("Sign-on address", nobody.get("/api/access/personalid-signonuri", params=query).json())
    check("Error", alice.get(f"{zone.url}/files/none").json())


def test_accepted_bodies_have_the_fields_of_the_page() -> None:
    kinds: dict[str, type[msgspec.Struct]] = {
        "Logon wanted": LogonRequest,
        "Token wanted": TokenRequest,
        "Scope": Scope,
        "User asked for": UserId,
    }
    for record, kind in kinds.items():
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields == told(record), record
