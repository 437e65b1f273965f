"""The records in SERVICE.md have the fields that the sandbox really sends and takes."""

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
    """The fields of a record, as the page tells them."""
    (row,) = [row for row in rows() if re.match(rf"{re.escape(record)}: `", row.subject)]
    return set(re.findall(r"`(\w+)`", row.subject.partition(": ")[2]))


def check(record: str, *answers: dict[str, Any]) -> None:
    """Together the answers have the fields of the record, and their parts the parts' fields."""
    assert {name for answer in answers for name in answer} == told(record), record
    for answer in answers:
        for name, fields in PARTS.items():
            if name in answer:
                assert set(answer[name]) == fields, (record, name)


def test_what_is_sent_has_the_fields_of_the_page(start: Callable[..., Service]) -> None:
    """Each record once, from a running sandbox."""
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


def test_what_is_taken_has_the_fields_of_the_page() -> None:
    """Each body that the interface shows."""
    kinds: dict[str, type[msgspec.Struct]] = {
        "Logon wanted": LogonRequest,
        "Token wanted": TokenRequest,
        "Scope": Scope,
        "User asked for": UserId,
    }
    for record, kind in kinds.items():
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields == told(record), record
