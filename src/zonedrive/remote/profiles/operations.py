"""Deployment profiles: validated definitions of operations that the published API lacks.

`load` reads and checks profile files; `docs/PROFILES.md` explains how to write one.

INVARIANT: a request made from a profile goes to a path below `/api/` on the deployment's own host,
or to a path below `/` if the profile's path has no leading slash.
INVARIANT: a value that replaces a placeholder stays inside its segment of the path, its parameter
of the query, or its string in the body.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from zonedrive.config import unless_policy
from zonedrive.errors import NotSupported, ProfileError
from zonedrive.remote.urls import PLACEHOLDER, Origin, Request, fill_path
from zonedrive.remote.wire.fields import member

CHARACTERS: Final = ":characters"
"""Suffix of a placeholder that expands to an array of characters; passwords are sent this way."""

KINDS: Final = ("file", "folder")
"""Kinds of entries for which an operation may have a separate table."""


class Kind:
    """Flags of one operation, and the placeholders that its TOML table must or may contain."""

    def __init__(
        self,
        *must: str,
        may: str = "zone",
        reads: bool = False,
        split: bool = False,
        hidden: str = "",
        shown: bool = False,
    ) -> None:
        """Define an operation.

        Each string in `must` is one required placeholder, or several alternatives separated by `|`.
        `may` lists further allowed placeholders, and `hidden` lists placeholders that are allowed
        in the body only; both are separated by spaces. `reads`: the operation changes nothing, so
        its request may be repeated. `split`: files and folders may have separate tables. `shown`:
        the operation is a URL for users, which zonedrive never requests.
        """
        # Without at least one placeholder of each set, a request would affect the wrong object.
        self.must = tuple(frozenset(each.split("|")) for each in must)
        self.may = frozenset(may.split()).union(*self.must)
        self.reads = reads  # the operation changes nothing, so its request may be repeated
        self.split = split  # files and folders may have separate tables
        self.secret = frozenset(hidden.split())  # placeholders allowed in the body only
        self.shown = shown  # a URL for users, which zonedrive itself never requests


OPERATIONS: Final[Mapping[str, Kind]] = {
    "make_folder": Kind("parent|folder", "name"),
    "rename": Kind("entry|file", "name", may="zone parent folder", split=True),
    "move": Kind("entry|file", "parent|folder", may="zone name", split=True),
    "delete": Kind("entry|file", split=True),
    "restore": Kind("entry|file", split=True),
    "purge": Kind("entry|file", split=True),
    "versions": Kind("entry|file", reads=True),
    "version_content": Kind("entry|file", "version", reads=True),
    "deleted": Kind("zone", reads=True),
    "zone_log": Kind("zone", may="since", reads=True),
    "levels": Kind(may="", reads=True),
    "members": Kind("zone", reads=True),
    "set_member": Kind("zone", "member", "level"),
    "remove_member": Kind("zone", "member"),
    "share": Kind("entry|file", split=True),
    "unshare": Kind("entry|file", split=True),
    "member_link": Kind("entry|file", split=True, shown=True),
    "change_password": Kind(
        "password", "new_password", may="username", hidden="password new_password"
    ),
    "revoke_token": Kind("token", may=""),
}

VERSION_FIELDS: Final[Mapping[str, str]] = {
    "version": "version",
    "id": "id",
    "size": "size",
    "modified": "lastModified",
    "modified_by": "lastModifiedBy",
}
"""Fields of a version, each with its default JSON key."""

FIELDS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "versions": VERSION_FIELDS,
    "levels": {"zone": "zoneId", "level": "level"},
    # A group uses the same keys.
    "members": {
        "id": "memberId",
        "name": "displayName",
        "type": "memberType",
        "level": "accessLevel",
    },
    "share": {"link": None, "key": None},
    "deleted": {"deleted_at": None},
    # The keys of a message are not published.
    "zone_log": dict.fromkeys(("time", "user", "event", "entry", "path", "message")),
}
"""Configurable fields per operation, with the default path of each (None: no default)."""


@dataclass(frozen=True)
class Operation:
    """Operation of a profile, parsed and validated from one TOML table."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object
    answer: str
    fields: Mapping[str, str] = field(default_factory=dict)
    # Link template of `share`, with {key} ("": the response has the link), or of `member_link`.
    link: str = ""

    def request(
        self, values: Mapping[str, str], doing: str = "", origin: Origin = "profile"
    ) -> Request:
        """Return the request with each placeholder replaced by its text in `values`.

        Raises Rejected for a value that cannot be part of a path.
        """
        return Request(
            self.method,
            fill_path(self.path, values),
            {key: _fill(text, values) for key, text in self.query.items()},
            _fill_json(self.body, values),
            doing,
            origin,
        )

    def address(self, values: Mapping[str, str], base: str) -> str:
        """Return the link with each placeholder replaced by its text in `values`.

        A link that is a path is completed with `base`, the base URL of the service. Raises Rejected
        for a value that cannot be part of a URL.
        """
        return on_host(fill_path(self.link, values), base)

    def uses(self, placeholder: str) -> bool:
        """Return True if `placeholder` occurs in the path, query or body."""
        return placeholder in used(self.path, self.query, self.body)

    def located(self, answer: object) -> object:
        """Return the part of the parsed response at the dotted path `self.answer`, None if missing.

        If `self.answer` is "entry" or "none", return the whole parsed response.
        """
        return answer if self.answer in ("entry", "none") else member(answer, self.answer)


KEY: Final = "key"
"""Placeholder for the key in the link template of `share`."""
ANSWER: Final = "answer."
ORGANIZATION: Final = "organization"
"""Placeholder for the organization in a sign-on template.

Every other placeholder in a sign-on template is ANSWER, followed by the name of a field of the
answer.
"""


@dataclass(frozen=True)
class SignOn:
    """Template of a logon request after a browser sign-on.

    The fields of the request are made from the fields of the identity provider's answer. The
    published interface does not name the fields of the answer, so the profile names them. A value
    of the answer is put into the logon request as text, and nowhere else.
    """

    body: Mapping[str, str | bool]  # fields of the logon request, as templates
    error: str = ""  # the answer's field with the reason of a failed sign-on
    # True to request the answer in the URL fragment, which stays in the browser's history; False
    # for a form post, which leaves no trace of the answer in the history and sessions.
    fragment: bool = False
    redirect: str = ""  # query parameter of the idpURI that sets the return URL

    def missing(self, answer: Mapping[str, str]) -> list[str]:
        """Return the names of required fields that are missing or empty in `answer`."""
        wanted = [
            name.removeprefix(ANSWER)
            for text in self.body.values()
            if isinstance(text, str)
            for name in PLACEHOLDER.findall(text)
            if name.startswith(ANSWER)
        ]
        return [name for name in dict.fromkeys(wanted) if not answer.get(name)]

    def logon(self, answer: Mapping[str, str], organization: str) -> dict[str, str | bool]:
        """Return the filled-in fields of the logon request. `missing(answer)` must be empty."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return organization if name == ORGANIZATION else answer[name.removeprefix(ANSWER)]

        return {
            key: PLACEHOLDER.sub(value, text) if isinstance(text, str) else text
            for key, text in self.body.items()
        }


@dataclass(frozen=True)
class Profile:
    """Operations that a deployment offers beyond the published ones.

    `operations` maps names to operations. For example, `delete.folder` is the variant of `delete`
    for folders only.
    """

    name: str
    operations: Mapping[str, Operation]
    sign_on: SignOn | None = None
    wrong: ProfileError | None = None  # error of the profile file that this profile replaces

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        """Return True if the profile supports `operation`, one of OPERATIONS.

        "rename" is also supported if the operation "move" can set a new name. If `folder` is None,
        support for only files or only folders is enough.
        """
        if operation == "rename":
            return any(self.can_place(each, renamed=True) for each in _kinds(folder))
        return self.find(operation, folder) is not None

    def can_place(self, folder: bool, *, renamed: bool = False, moved: bool = False) -> bool:
        """Return True if `Service.move` can make the requested change to an entry.

        `renamed` requests a new name, `moved` a new parent folder. `folder` is True for a folder,
        False for a file.
        """
        move, rename = self.find("move", folder), self.find("rename", folder)
        if move is not None and move.uses("name"):
            return True
        return not (renamed and rename is None) and not (moved and move is None)

    def find(self, operation: str, folder: bool | None = None) -> Operation | None:
        """Return an operation of the profile, or None if the profile does not define the operation.

        If `folder` is given, a variant for this kind of entry has priority over the general one.
        Raises ValueError if `operation` is not in OPERATIONS.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}")
        special = (f"{operation}.{KINDS[each]}" for each in _kinds(folder))
        names = (operation, *special) if folder is None else (*special, operation)
        return next((self.operations[name] for name in names if name in self.operations), None)

    def operation(self, name: str, *, folder: bool | None = None) -> Operation:
        """Return the operation `name`; with `folder`, prefer the variant for this kind of entry.

        Raises NotSupported if the profile lacks the operation, and ProfileError if the profile file
        of the account could not be loaded.
        """
        if found := self.find(name, folder):
            return found
        if self.wrong is not None:  # NotSupported would roll back pending changes
            # A copy, because callers add to the message.
            raise ProfileError(self.wrong.message, remedy=self.wrong.remedy) from self.wrong
        other = self.find(name) is not None
        of = f" of a {KINDS[bool(folder)]}" if other else ""
        raise NotSupported(
            f"the profile {self.name!r} has no endpoint for {name}{of}",
            remedy=unless_policy("profile", "log on with a --profile that has it"),
        )

    def require_log(self) -> None:
        """Raise NotSupported unless the profile defines `zone_log` with sufficient fields.

        The field `time` is required, and also at least one of the fields `event` and `message`.
        """
        fields = self.operation("zone_log").fields
        if "time" not in fields or not {"event", "message"} & fields.keys():
            raise NotSupported(
                f"the profile {self.name!r} does not name the fields of a zone log",
                remedy="add 'time' and 'message' to the fields of its table zone_log",
            )


def _kinds(folder: bool | None) -> tuple[bool, ...]:
    return (False, True) if folder is None else (folder,)


def on_host(link: str, base: str) -> str:
    """Return `link` if it is a URL, else the URL of the path `link` below `base`."""
    return link if "://" in link else f"{base}/{link.removeprefix('/')}"


def used(path: str, query: Mapping[str, str], body: object) -> set[str]:
    """Return the names of all placeholders in a path, query and body."""
    found = {name for text in (path, *query.values()) for name in PLACEHOLDER.findall(text)}
    inside = {name for text in texts(body) for name in PLACEHOLDER.findall(text)}
    return found | {name.removesuffix(CHARACTERS) for name in inside}


def texts(body: object) -> list[str]:
    """Return all string values in a body, at any depth."""
    if isinstance(body, str):
        return [body]
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return [text for value in inner for text in texts(value)]


def _fill(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _fill_json(body: Any, values: Mapping[str, str]) -> object:
    if isinstance(body, str):
        if body.endswith(f"{CHARACTERS}}}"):
            return list(values[body[1 : -len(CHARACTERS) - 1]])
        return _fill(body, values)
    if isinstance(body, dict):
        return {key: _fill_json(value, values) for key, value in body.items()}
    if isinstance(body, list):
        return [_fill_json(value, values) for value in body]
    return body
