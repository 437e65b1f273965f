"""Parser and validator for profile files; error messages contain the line number.

INVARIANT: a parsed profile contains only known operations, keys and placeholders, and no path that
leads to another host or has a segment `.` or `..`.
"""

import errno
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from zonedrive.config import ADMINISTRATOR, unless_policy
from zonedrive.errors import ProfileError
from zonedrive.paths import SYSTEM_FOLDER, expanded, require_file
from zonedrive.remote.profiles.operations import (
    ANSWER,
    CHARACTERS,
    FIELDS,
    KEY,
    KINDS,
    OPERATIONS,
    ORGANIZATION,
    Kind,
    Operation,
    Profile,
    SignOn,
    texts,
    used,
)
from zonedrive.remote.urls import PLACEHOLDER
from zonedrive.toml_input import WrongDocument, brief, line_of, parse

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
LONGEST: Final = 65_536  # bytes; a profile is a page of text
LARGEST: Final = 1 << 63  # integers of this size or more cannot be sent as JSON
_KEYS: Final = ("method", "path", "query", "body", "answer")
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]+", re.ASCII)
_LINK: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?#-]+", re.ASCII)
_SIGN_ON_KEYS: Final = ("body", "error", "response", "redirect")
# Members of a logon request that zonedrive sets itself, or that are not text.
_SET_HERE: Final = frozenset({"acceptSessions", "logonSessionId", "password", "scope"})
_FIELD_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
Table = Mapping[str, Any]


class WrongTable(Exception):
    """Error for an invalid table of a profile.

    `where` is the path of keys to the faulty value. `needle` is a text in the line of this value,
    or "" if `where` is enough to find the line.
    """

    def __init__(self, message: str, *where: str, needle: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.needle = needle
        self.remedy = remedy or "correct it"


def load_profile(name_or_path: str) -> Profile:
    """Return the profile with the given name, or the profile in the TOML file at the given path.

    A string that contains `/` or ends in `.toml` is a path. Any other string is the name of a
    profile that is packaged or that the administrator installed. Raises ProfileError if the profile
    does not exist or is not valid; the message names the file and line.
    """
    if is_path(name_or_path):
        path = expanded(name_or_path)
        return parse_profile(_read(path), path.stem, str(path))
    known = packaged()
    if name_or_path not in known:
        if ours := _installed(name_or_path):
            return parse_profile(_read(ours, ADMINISTRATOR), ours.stem, str(ours))
        raise ProfileError(
            f"there is no profile {name_or_path!r}",
            remedy=unless_policy(
                "profile", f"use {' or '.join(known)}, or the path of a file (ending in .toml)"
            ),
        )
    source = resources.files(__package__) / f"{name_or_path}.toml"
    return parse_profile(source.read_text("utf-8"), name_or_path, f"{name_or_path}.toml")


def is_path(name_or_path: str) -> bool:
    """Return True if the string is the path of a profile, and not its name."""
    return "/" in name_or_path or name_or_path.endswith(".toml")


def require_profile(name_or_path: str) -> None:
    """Raise ProfileError if the profile does not exist, or a file given by path cannot be read."""
    if is_path(name_or_path):
        _read(expanded(name_or_path))
    elif not _installed(name_or_path):
        load_profile(name_or_path)


def is_installed(name_or_path: str) -> bool:
    """Return True if the profile, valid or not, is a file that the administrator installed."""
    if is_path(name_or_path):
        return Path(name_or_path).parent == SYSTEM_FOLDER / "profiles"
    return _installed(name_or_path) is not None


def hidden_file(name_or_path: str) -> Path | None:
    """Return the administrator's profile that a packaged profile of this name hides, or None."""
    return _installed(name_or_path) if name_or_path in packaged() else None


def _installed(name: str) -> Path | None:
    """Return the file of a profile that the administrator installed, or None.

    A file to which this user has no access is returned too; a later attempt to read the file
    raises the error.
    """
    file = SYSTEM_FOLDER / "profiles" / f"{name}.toml"
    try:
        file.stat()
    except PermissionError:
        return file
    except (OSError, ValueError):  # missing, or the name is too long for a file or has a null byte
        return None
    return file


def packaged() -> list[str]:
    """Return the names of the profiles that ship with zonedrive, sorted."""
    folder = resources.files(__package__)
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def _read(path: Path, remedy: str = "check the path, or the file") -> str:
    require_file(path)
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ProfileError(
                f"the profile {path} is longer than {LONGEST} bytes", remedy="is it the right file?"
            )
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as wrong:
        if getattr(wrong, "errno", 0) == errno.ENOENT:
            raise ProfileError(
                f"the profile {path} does not exist", remedy="check the path"
            ) from wrong
        reason = getattr(wrong, "strerror", None) or wrong
        raise ProfileError(
            f"the profile {path} cannot be read ({reason})", remedy=remedy
        ) from wrong


@lru_cache(16)
def parse_profile(text: str, name: str, source: str) -> Profile:
    """Return the profile in `text`; `source` is the file name in error messages.

    Raises ProfileError if the text is not a valid profile; the message names the file and line.
    """
    try:
        return _profile(parse(text), name)
    except WrongDocument as wrong:
        at = f", line {wrong.line}: " if wrong.line else ": "
        raise ProfileError(f"{source}{at}{wrong}", remedy="correct the file") from wrong
    except WrongTable as wrong:
        line = line_of(text, wrong.where, wrong.needle)
        message = f"{source}, line {line}: {brief(wrong.message)}"
        raise ProfileError(message, remedy=wrong.remedy) from wrong


def _profile(document: Table, name: str) -> Profile:
    way = None
    operations: dict[str, Operation] = {}
    for key, value in document.items():
        if key == "description":
            if not isinstance(value, str):
                raise WrongTable("description must be a text", key)
        elif key == "sign_on":
            way = _sign_on(value)
        elif key in OPERATIONS:
            operations |= _operations(key, value)
        else:
            remedy = f"the operations are {', '.join(OPERATIONS)}"
            raise WrongTable(f"unknown operation {key!r}", key, remedy=remedy)
    return Profile(name, operations, way)


def _sign_on(table: object) -> SignOn:
    if not isinstance(table, dict):
        raise WrongTable("sign_on must be a table such as [sign_on]", "sign_on")
    with _inside("sign_on"):
        _require_known(table, _SIGN_ON_KEYS)
        response = table.get("response", "form")
        if response not in ("form", "fragment"):
            raise WrongTable("response must be one of form, fragment", "response")
        return SignOn(
            _logon_body(table.get("body")),
            _name(table, "error"),
            response == "fragment",
            _name(table, "redirect"),
        )


def _require_known(table: Table, keys: Sequence[str]) -> None:
    for key in table:
        if key not in keys:
            raise WrongTable(f"unknown key {key!r}", key, remedy=f"the keys are {', '.join(keys)}")


def _name(table: Table, key: str) -> str:
    value = table.get(key, "")
    if key in table and not (isinstance(value, str) and _FIELD_NAME.fullmatch(value)):
        raise WrongTable(f"{key} must be the name of a field", key)
    return str(value)


def _logon_body(body: object) -> dict[str, str | bool]:
    if not isinstance(body, dict) or not body:
        raise WrongTable(
            "body must say which fields of a logon the answer goes into,"
            ' such as { token = "{answer.token}" }',
            "body",
        )
    names: list[str] = []
    for key, value in body.items():
        problem = ""
        found = PLACEHOLDER.findall(value) if isinstance(value, str) else []
        names += found
        unknown = [name for name in found if not _is_known(name)]
        if key in _SET_HERE or not _FIELD_NAME.fullmatch(key):
            problem = f"body cannot set {key!r}"
        elif not isinstance(value, str | bool):
            problem = f"body: {key} must be a text, or true or false"
        elif unknown:
            problem = (
                f"body: unknown placeholder {{{unknown[0]}}}, there are"
                f" {{{ANSWER}NAME}} and {{{ORGANIZATION}}}"
            )
        elif isinstance(value, str) and re.search(r"[{}]", PLACEHOLDER.sub("", value)):
            problem = f"body: {key} has an unmatched brace"
        if problem:
            raise WrongTable(problem, "body", key)
    if not any(name.startswith(ANSWER) for name in names):
        raise WrongTable(f"body uses nothing of the answer (no {{{ANSWER}NAME}})", "body")
    return body


def _is_known(name: str) -> bool:
    if name == ORGANIZATION:
        return True
    field = name.removeprefix(ANSWER)
    return field != name and _FIELD_NAME.fullmatch(field) is not None


def _operations(name: str, table: object) -> dict[str, Operation]:
    """Return the operations that the table `name` defines, each with its name as the key.

    The table `delete`, for example, may define the operation `delete`, and the variants
    `delete.file` and `delete.folder` for files and folders only.
    """
    if not isinstance(table, dict):
        raise WrongTable(f"{name} must be a table such as [{name}]", name)
    kinds = KINDS if OPERATIONS[name].split else ()
    special = {kind: table[kind] for kind in kinds if kind in table}
    general = {key: value for key, value in table.items() if key not in special}
    found = {}
    if general or not special:
        with _inside(name):
            found[name] = _operation(name, general)
    for kind, inner in special.items():
        if not isinstance(inner, dict):
            raise WrongTable(f"{name}.{kind} must be a table", name, kind)
        with _inside(name, kind):
            found[f"{name}.{kind}"] = _operation(name, inner)
    return found


@contextmanager
def _inside(*where: str) -> Iterator[None]:
    """Prepend `where` to the message and key path of a WrongTable raised in the `with` block."""
    try:
        yield
    except WrongTable as wrong:
        raise WrongTable(
            f"{'.'.join(where)}: {wrong.message}", *where, *wrong.where,
            needle=wrong.needle, remedy=wrong.remedy,
        ) from None  # fmt: skip


def _operation(name: str, table: Table) -> Operation:
    kind, reads = OPERATIONS[name], OPERATIONS[name].reads
    if kind.shown:
        return _shown(kind, table)
    keys = (*_KEYS, "fields") if name in FIELDS else _KEYS
    keys = (*keys, "link") if name == "share" else keys
    _require_known(table, keys)
    methods = ("GET",) if name == "version_content" else METHODS
    method = table.get("method", "GET" if reads else None)
    if method not in methods:
        raise WrongTable(f"method must be one of {', '.join(methods)}", "method")
    found = Operation(
        method,
        _path(table.get("path")),
        _query(table.get("query", {})),
        _body(table.get("body"), method),
        _dotted(table.get("answer", "entry"), "answer"),
        _fields(FIELDS.get(name, {}), table.get("fields", {})),
    )
    _check_placeholders(kind, found)
    return _with_link(found, table.get("link")) if name == "share" else found


def _with_link(found: Operation, link: object) -> Operation:
    """Check the link template `link`, and return the operation `share` with this template.

    If the response to `share` contains the link itself, no template is allowed. If the response
    contains a key, a template that turns the key into a link is required. Raises WrongTable.
    """
    if found.answer == "none":
        raise WrongTable("the answer must have the link, or a key that it is made of", "answer")
    if len(found.fields) != 1:
        raise WrongTable('fields must have either "link" or "key"', "fields")
    if "link" in found.fields:
        if link is not None:
            raise WrongTable("link is made of a key, and fields has none", "link")
        return found
    if not isinstance(link, str) or PLACEHOLDER.findall(link) != [KEY]:
        raise WrongTable(f"link must be a text with {{{KEY}}} once", "link")
    _check_link(link, example=f"share/{{{KEY}}}")
    return replace(found, link=link)


def _shown(kind: Kind, table: Table) -> Operation:
    _require_known(table, ("link",))
    link = table.get("link")
    if not isinstance(link, str):
        raise WrongTable("link must be a text", "link")
    _check_template(kind, "link", link)
    _check_used(kind, "link", set(PLACEHOLDER.findall(link)))
    _check_link(link, example="web/{zone}/{entry}")
    return Operation("GET", "", {}, None, "none", link=link)


def _check_link(link: str, *, example: str) -> None:
    bare = PLACEHOLDER.sub("x", link)
    host = re.match(r"https://[A-Za-z0-9.:-]+/", link)
    if not _LINK.fullmatch(bare) or ("://" in bare and not host) or bare.startswith("//"):
        remedy = f'write link = "{example}", for example'
        raise WrongTable("link must be a path, or an https:// address", "link", remedy=remedy)


def _path(path: object) -> str:
    if not isinstance(path, str) or not path:
        raise WrongTable("path is missing", "path")
    bare = PLACEHOLDER.sub("x", path)
    first = bare.removeprefix("/").split("/")[0]
    problem = remedy = ""
    if "://" in path or bare.startswith("//") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        problem, remedy = "leads to another host", "give a path below /api/"
    elif not _PATH.fullmatch(bare):
        problem, remedy = "has characters that do not belong there", "what follows a ? is the query"
    elif {"", ".", ".."}.intersection(bare.removeprefix("/").removesuffix("/").split("/")):
        problem = "has an empty segment, . or .."
    elif bare.startswith("/") and first != "api":
        problem = "must begin with /api/"
        remedy = "leave the first slash out for a path that begins at the host"
    elif "@" in first:
        problem = "begins as an address of a user"
    if problem:
        raise WrongTable(f"path {problem}", "path", remedy=remedy)
    return path if path.startswith("/") else f"/{path}"


def _query(query: object) -> dict[str, str]:
    if not isinstance(query, dict):
        raise WrongTable("query must be a table of texts", "query")
    for key, value in query.items():
        if not isinstance(value, str):
            raise WrongTable("query must be a table of texts", "query", key,
                             remedy=f'write {key} = "…"')  # fmt: skip
        _check_texts(("query", key), key, value)
    return query


def _body(body: object, method: str) -> object:
    if body is not None and (not isinstance(body, dict | list) or method == "GET"):
        raise WrongTable("body must be a table or array, and GET takes none", "body")
    _check_json(body, "body")
    return body


def _check_json(value: object, *where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_texts((*where, key), key)
            _check_json(inner, *where, key)
    elif isinstance(value, list):
        for inner in value:
            _check_json(inner, *where)
    elif isinstance(value, int) and abs(value) >= LARGEST:
        raise WrongTable("body holds a number of more than 64 bits", *where)
    elif isinstance(value, float) and math.isfinite(value):
        return
    elif not (value is None or isinstance(value, str | int)):
        raise WrongTable(f"body holds a value that JSON cannot hold ({value})", *where)


def _check_texts(where: tuple[str, ...], key: str, value: str = "") -> None:
    if set(key) & set("{}"):
        raise WrongTable("a placeholder stands in a value, not in a name", *where)
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in key + value):
        raise WrongTable("line breaks and control characters are not allowed", *where)


def _dotted(path: object, *where: str) -> str:
    if isinstance(path, str) and all(path.split(".")):
        return path
    form = '"entry", "none" or a dotted path' if where == ("answer",) else "a dotted path"
    raise WrongTable(f"{where[-1]} must be {form}", *where)


def _fields(known: Mapping[str, str | None], fields: object) -> dict[str, str]:
    if not isinstance(fields, dict):
        raise WrongTable("fields must be a table of texts", "fields")
    for key, value in fields.items():
        if key not in known:
            remedy = f"the fields are {', '.join(known)}"
            raise WrongTable(f"unknown field {key!r}", "fields", key, remedy=remedy)
        _dotted(value, "fields", key)
    return {**{key: path for key, path in known.items() if path is not None}, **fields}


def _check_placeholders(kind: Kind, found: Operation) -> None:
    for key, values in (
        ("path", [found.path]),
        ("query", list(found.query.values())),
        ("body", texts(found.body)),
    ):
        for value in values:
            _check_template(kind, key, value)
    _check_used(kind, "path", used(found.path, found.query, found.body))


def _check_used(kind: Kind, key: str, placeholders: set[str]) -> None:
    for needed in kind.must:
        if not placeholders & needed:
            names = " or ".join(f"{{{placeholder}}}" for placeholder in sorted(needed))
            raise WrongTable(f"{names} is not used", key)


def _check_template(kind: Kind, key: str, text: str) -> None:
    """Raise WrongTable if `text`, a value of `key`, has an unknown or misplaced placeholder."""
    end = "}"
    if key == "body" and text.endswith(f"{CHARACTERS}}}"):
        end = CHARACTERS
        text = text.removesuffix(f"{CHARACTERS}}}") + "}"
        if not PLACEHOLDER.fullmatch(text):
            raise WrongTable(f"{CHARACTERS} must have nothing beside it", key)
    for placeholder in PLACEHOLDER.findall(text):
        needle = f"{{{placeholder}{end}"
        if placeholder not in kind.may:
            known = ", ".join(f"{{{each}}}" for each in sorted(kind.may))
            raise WrongTable(f"unknown placeholder {{{placeholder}}}", key, needle=needle,
                             remedy=f"the placeholders are {known}")  # fmt: skip
        if placeholder in kind.secret and key != "body":
            raise WrongTable(f"{{{placeholder}}} belongs into the body alone", key, needle=needle)
    if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
        raise WrongTable("an unmatched brace", key)
