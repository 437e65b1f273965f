"""Reader of world files, which describe the initial users, groups, zones and content of a sandbox.

This module does not use the database. Every mistake in a world file raises a WorldError with a
message of one line, which names the file and the place of the mistake.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Never

import msgspec

from zonedrive.sandbox.codes import hotp
from zonedrive.sandbox.errors import WorldError
from zonedrive.sandbox.settings import Named, Organization

LONGEST_BLOCK_SECONDS = 86_400
LONGEST_SESSION_SECONDS = 100 * 365 * 86_400


class WorldOrganization(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Table [organization] of a world file."""

    name: str
    domain: str
    otp: Literal["None", "TOTP", "HOTP", "ServiceMail"] = "None"
    session_seconds: int = 3600
    page_listings: bool = False
    ranges: bool = True
    block_after: int = 10  # failures in a row
    block_seconds: float = 60
    identity_providers: list[Named] = []
    personal_id: list[Named] = []
    idp_required: bool = False
    idp_users: list[str] = []


class WorldUser(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One [[users]] table of a world file."""

    id: str
    name: str
    password: str | None = None  # None: a random password is created, see seed
    administrator: bool = False
    otp_secret: str | None = None
    password_change_required: bool = False


class GroupMember(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Member of a group: the user with the id `id`, or the group with the name `group`."""

    access: Literal["Manage", "Access", "None"]
    id: str | None = None
    group: str | None = None


class ZoneMember(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Member of a zone: the user with the id `id`, or the group with the name `group`."""

    access: Literal["Manage", "Modify", "Add", "None"]
    id: str | None = None
    group: str | None = None


class WorldGroup(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One [[groups]] table of a world file."""

    name: str
    description: str = ""
    members: list[GroupMember] = []


class WorldZone(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One [[zones]] table of a world file; `content` is a path relative to the file's folder."""

    name: str
    manager: str
    description: str = ""
    members: list[ZoneMember] = []
    allow_external_sharing: bool = False
    accessible: bool = True
    content: str | None = None


class World(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Content of a world file; `folder` is the folder that contains the file."""

    organization: WorldOrganization
    users: list[WorldUser]
    groups: list[WorldGroup] = []
    zones: list[WorldZone] = []
    folder: str = "."


# Tables of a world file, with their TOML headers.
TABLES = {
    "organization": "[organization]",
    "users": "[[users]]",
    "groups": "[[groups]]",
    "zones": "[[zones]]",
}


def load(path: Path) -> World:
    """Read and check a world file; raise WorldError if it is invalid."""
    try:
        text = path.read_text("utf-8")
    except OSError as wrong:
        raise WorldError(f"the world file {path} cannot be read ({wrong.strerror})") from wrong
    except UnicodeDecodeError as wrong:
        raise WorldError(f"{path} is not a world file: byte {wrong.start} is not UTF-8") from wrong
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise WorldError(
            f"{path} is not a world file, as it is not TOML ({wrong}); see the sandbox's README"
        ) from wrong
    except (ValueError, RecursionError) as wrong:
        raise WorldError(
            f"{path} is not a world file: it has a number that is too long, or too much nesting"
        ) from wrong
    _check_tables(path, text, tables)
    try:
        world = msgspec.convert(tables, World)
    except msgspec.ValidationError as wrong:
        sentence, _, place = str(wrong).partition(" - at `$")
        unknown = re.search(r"unknown field `(\w+)`", sentence)
        where = _line(text, place.strip("`."), unknown[1] if unknown else "")
        raise WorldError(f"{path}{where}: {_plain(sentence)}") from wrong
    world = msgspec.structs.replace(world, folder=str(path.absolute().parent))
    _Check(path, text, world).all()
    return world


def _check_tables(path: Path, text: str, tables: dict[str, Any]) -> None:
    """Raise WorldError if a top-level table is unknown or a required table is missing."""
    for name in tables:
        if name not in TABLES:
            known = ", ".join(TABLES.values())
            place = _first_line(text, name)
            raise WorldError(f"{path}{place}: {name!r} is not known here; there are {known}")
    for name in ("organization", "users"):
        if name not in tables:
            raise WorldError(f"{path}: {TABLES[name]} is missing")


def _first_line(text: str, name: str) -> str:
    """Return a string such as ', line 12' for the first line with the key or table `name`.

    Return "" if there is no such line.
    """
    quoted = rf"""["']?{re.escape(name)}["']?"""
    head = re.search(rf"^[ \t]*\[*[ \t]*{quoted}[ \t]*[].=]", text, re.MULTILINE)
    return "" if head is None else f", line {text.count(chr(10), 0, head.start()) + 1}"


def _plain(sentence: str) -> str:
    """Reword a msgspec message about a missing or unknown field."""
    sentence = re.sub(r"^Object missing required field `(.*)`$", r"'\1' is missing", sentence)
    return re.sub(r"^Object contains unknown field `(.*)`$", r"'\1' is not known here", sentence)


def _line(text: str, place: str, key: str = "") -> str:
    """Return a string such as ', line 12, users[1].id' for the place 'users[1].id'.

    The line is the one that sets the first key after the table in `place` (here `id`). If `place`
    is only a table, the line is the one that sets `key` in this table. If there is no such line,
    the line is the header of the table. If the header is not found either, the line number is
    omitted. Returns "" for the place "".
    """
    found = re.match(r"(\w*)(?:\[(\d+)\])?(?:\.(\w+))?", place)
    table, number, inner = found.groups()  # type: ignore[union-attr]
    heads = re.finditer(rf"^[ \t]*\[+[ \t]*{re.escape(table)}[ \t]*\]+", text, re.MULTILINE)
    ends = [head.end() for head in heads] if table else []
    where, index = "", int(number or 0)
    if index < len(ends):
        body = re.split(r"^[ \t]*\[", text[ends[index] :], maxsplit=1, flags=re.MULTILINE)[0]
        line = re.search(rf"^[ \t]*{inner or key}[ \t]*=", body, re.MULTILINE)
        end = ends[index] + (line.start() if line else 0)
        where = f", line {text.count(chr(10), 0, end) + 1}"
    return f"{where}, {place}" if place else where


class _Check:
    """Checks of a world file beyond the types of its fields, such as references to users."""

    def __init__(self, path: Path, text: str, world: World) -> None:
        self._path, self._text, self._world = path, text, world
        self._users = {user.id.lower() for user in world.users}
        self._groups = {group.name for group in world.groups}

    def all(self) -> None:
        """Run all checks; raise WorldError at the first mistake."""
        organization = self._world.organization
        if not 0 < organization.session_seconds <= LONGEST_SESSION_SECONDS:
            self._wrong(
                "organization.session_seconds",
                f"must be from 1 to {LONGEST_SESSION_SECONDS} (100 years)",
            )
        if organization.block_after <= 0:
            self._wrong("organization.block_after", "must be more than 0")
        if not 0 <= organization.block_seconds <= LONGEST_BLOCK_SECONDS:
            self._wrong("organization.block_seconds", "must be from 0 to a day (86400)")
        if not organization.name or not organization.domain:
            self._wrong("organization", "name and domain must not be empty")
        self._sign_on(organization)
        self._unique("users", (user.id.lower() for user in self._world.users))
        self._unique("groups", (group.name for group in self._world.groups))
        self._unique("zones", (zone.name for zone in self._world.zones))
        for number, user in enumerate(self._world.users):
            self._user(f"users[{number}]", user)
        for number, group in enumerate(self._world.groups):
            for index, member in enumerate(group.members):
                self._member(f"groups[{number}].members[{index}]", member.id, member.group)
            self._once(f"groups[{number}].members", group.members)
        self._cycles()
        for number, zone in enumerate(self._world.zones):
            self._zone(f"zones[{number}]", zone)

    def _sign_on(self, organization: WorldOrganization) -> None:
        for table in ("identity_providers", "personal_id"):
            names = (each.name for each in getattr(organization, table))
            self._unique(f"organization.{table}", names)
        wanted = organization.idp_required or organization.idp_users
        if wanted and not organization.identity_providers:
            self._wrong("organization", "idp_required and idp_users need identity_providers")
        for user in organization.idp_users:
            if user.lower() not in self._users:
                self._wrong("organization.idp_users", f"there is no user {user!r}")

    def _wrong(self, place: str, why: str) -> Never:
        raise WorldError(f"{self._path}{_line(self._text, place)}: {why}")

    def _unique(self, table: str, keys: Iterable[str]) -> None:
        listed = list(keys)
        for number, key in enumerate(listed):
            if not key:
                self._wrong(f"{table}[{number}]", "an empty name")
            if Counter(listed[: number + 1])[key] > 1:
                self._wrong(f"{table}[{number}]", f"{key!r} is there twice")

    def _user(self, place: str, user: WorldUser) -> None:
        if user.id.startswith("group."):
            self._wrong(f"{place}.id", "a user's id does not begin with 'group.'")
        if user.otp_secret is not None:
            try:
                hotp(user.otp_secret, 0)
            except ValueError:
                self._wrong(f"{place}.otp_secret", "this is not base32")

    def _member(self, place: str, user: str | None, group: str | None) -> None:
        if (user is None) == (group is None):
            self._wrong(place, "a member has either an id or a group")
        if user is not None and user.lower() not in self._users:
            self._wrong(place, f"there is no user {user!r}")
        if group is not None and group not in self._groups:
            self._wrong(place, f"there is no group {group!r}")

    def _once(self, place: str, members: Sequence[GroupMember | ZoneMember]) -> None:
        names = (
            f"the group {one.group}" if one.group else (one.id or "").lower() for one in members
        )
        self._unique(place, names)

    def _cycles(self) -> None:
        inside = {
            group.name: {member.group for member in group.members if member.group}
            for group in self._world.groups
        }
        for number, group in enumerate(self._world.groups):
            seen: set[str] = set()
            ahead = set(inside[group.name])
            while ahead:
                name = ahead.pop()
                seen.add(name)
                ahead |= inside[name] - seen
            if group.name in seen:
                self._wrong(f"groups[{number}].members", f"{group.name!r} contains itself")

    def _zone(self, place: str, zone: WorldZone) -> None:
        if zone.manager.lower() not in self._users:
            self._wrong(f"{place}.manager", f"there is no user {zone.manager!r}")
        for index, member in enumerate(zone.members):
            where = f"{place}.members[{index}]"
            self._member(where, member.id, member.group)
            if member.group is not None and member.access == "Manage":
                self._wrong(where, "a group cannot manage a zone")
        self._once(f"{place}.members", zone.members)
        if zone.content is not None:
            folder = Path(self._world.folder) / zone.content
            if not folder.is_dir():
                self._wrong(f"{place}.content", f"{folder} is not a folder")


def organization(world: World) -> Organization:
    """Return the organization's settings from a world."""
    return msgspec.convert(msgspec.to_builtins(world.organization), Organization)
