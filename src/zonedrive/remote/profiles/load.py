"""Parsing and validation of profile files; errors name the line.

Knows nothing about the credentials of a request or the callers of an operation.

INVARIANT: a parsed profile contains only known operations, keys and placeholders, and no path that
leads to another host or out of its folder.
"""

import math
import re
import unicodedata
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from zonedrive.errors import ProfileError
from zonedrive.paths import expanded, require_file
from zonedrive.remote.profiles import sign_on
from zonedrive.remote.profiles.operations import (
    CHARACTERS,
    FIELDS,
    KINDS,
    OPERATIONS,
    Kind,
    Operation,
    Profile,
    texts,
    used,
)
from zonedrive.remote.profiles.sign_on import SignOn
from zonedrive.remote.urls import PLACEHOLDER
from zonedrive.toml_input import Where, WrongDocument, brief, line_of, parse

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
LONGEST: Final = 65_536  # bytes; a profile is a page of text
LARGEST: Final = 1 << 63  # integers from here on are not sent as JSON
_KEYS: Final = ("method", "path", "query", "body", "answer")
_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]+", re.ASCII)

__all__ = ["OPERATIONS", "Operation", "Profile", "load_profile", "packaged", "parse_profile"]


def load_profile(name_or_path: str) -> Profile:
    """Return the packaged profile of that name, or the one in a TOML file.

    A value with `/` or ending in `.toml` is a path. Raises ProfileError, which names file and line.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = expanded(name_or_path)
        return parse_profile(_read(path), path.stem, str(path))
    known = packaged()
    if name_or_path not in known:
        raise ProfileError(
            f"there is no profile {name_or_path!r}",
            remedy=f"use {' or '.join(known)}, or the path of a file (ending in .toml)",
        )
    source = resources.files(__package__) / f"{name_or_path}.toml"
    return parse_profile(source.read_text("utf-8"), name_or_path, f"{name_or_path}.toml")


def packaged() -> list[str]:
    """Return the names of the profiles that ship with zonedrive, sorted."""
    folder = resources.files(__package__)
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def _read(path: Path) -> str:
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
        reason = getattr(wrong, "strerror", None) or wrong
        raise ProfileError(f"the profile {path} cannot be read ({reason})") from wrong


def parse_profile(text: str, name: str, source: str) -> Profile:
    """Return the profile in `text`; `source` is the file name for errors.

    Raises ProfileError, which names file and line.
    """
    try:
        document = parse(text)
    except WrongDocument as wrong:
        at = f", line {wrong.line}: " if wrong.line else ": "
        raise ProfileError(f"{source}{at}{wrong}", remedy="mend the file") from wrong
    check = _Check(source, text)
    description = document.pop("description", "")
    if not isinstance(description, str):
        raise check.error("description must be a text", ("description",))
    table = document.pop("sign_on", None)
    way = None if table is None else check.sign_on(table)
    operations: dict[str, Operation] = {}
    for operation, table in document.items():
        if operation not in OPERATIONS:
            raise check.error(f"unknown operation {operation!r}", (operation,),
                              remedy=f"the operations are {', '.join(OPERATIONS)}")  # fmt: skip
        operations |= check.operation(operation, table)
    return Profile(name, description, MappingProxyType(operations), way)


class _Check:
    """Converter from one file's tables to operations, with errors that name the line."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._text = text

    def sign_on(self, table: object) -> SignOn:
        """Return the parsed table of a browser sign-on."""
        if not isinstance(table, dict):
            raise self.error("sign_on must be a table such as [sign_on]", ("sign_on",))
        try:
            return sign_on.parse(table)
        except sign_on.WrongTable as wrong:
            where = ("sign_on", *wrong.where)
            raise self.error(f"sign_on: {wrong.message}", where) from wrong

    def operation(self, name: str, table: object) -> dict[str, Operation]:
        """Return the operations in a table: the general one and those for files or folders only."""
        if not isinstance(table, dict):
            raise self.error(f"{name} must be a table such as [{name}]", (name,))
        special = {}
        if OPERATIONS[name].split:
            special = {kind: table.pop(kind) for kind in KINDS if kind in table}
        found = {}
        if table or not special:
            found[name] = self._table((name,), table)
        for kind, inner in special.items():
            where = (name, kind)
            if not isinstance(inner, dict):
                raise self.error(f"{name}.{kind} must be a table", where)
            found[f"{name}.{kind}"] = self._table(where, inner)
        return found

    def _table(self, where: Where, table: dict[str, Any]) -> Operation:
        name, kind = ".".join(where), OPERATIONS[where[0]]
        keys = (*_KEYS, "fields") if where[0] in FIELDS else _KEYS
        for key in table:
            if key not in keys:
                raise self.error(f"{name}: unknown key {key!r}", (*where, key),
                                 remedy=f"the keys are {', '.join(keys)}")  # fmt: skip
        method = table.get("method", "GET" if kind.reads else None)
        if method not in METHODS or (name == "version_content" and method != "GET"):
            allowed = "GET" if name == "version_content" else ", ".join(METHODS)
            raise self.error(f"{name}: method must be one of {allowed}", (*where, "method"))
        found = Operation(
            method,
            self._path(where, table.get("path")),
            MappingProxyType(self._query(where, table.get("query", {}))),
            self._body(where, table.get("body"), method),
            self._dotted((*where, "answer"), table.get("answer", "entry")),
            MappingProxyType(self._fields(where, table.get("fields", {}))),
        )
        self._placeholders(where, kind, found)
        return found

    def _path(self, where: Where, path: object) -> str:
        name, there = ".".join(where), (*where, "path")
        if not isinstance(path, str) or not path:
            raise self.error(f"{name}: path is missing", there)
        bare = PLACEHOLDER.sub("x", path)
        if "://" in path or bare.startswith("//") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
            raise self.error(f"{name}: path leads to another host", there,
                             remedy="give a path below /api/")  # fmt: skip
        if not _PATH.fullmatch(bare):
            raise self.error(
                f"{name}: path has characters that do not belong there",
                there,
                remedy="what follows a ? goes into query",
            )
        segments = bare.removeprefix("/").split("/")
        if any(segment in ("", ".", "..") for segment in segments):
            raise self.error(f"{name}: path has an empty segment, . or ..", there)
        if bare.startswith("/") and segments[0] != "api":
            raise self.error(f"{name}: path must begin with /api/", there,
                             remedy="or have no slash before it, to begin at the host")  # fmt: skip
        if "@" in segments[0]:
            raise self.error(f"{name}: path begins as an address of a user", there)
        return path if path.startswith("/") else f"/{path}"

    def _query(self, where: Where, query: object) -> dict[str, str]:
        name, there = ".".join(where), (*where, "query")
        if not isinstance(query, dict):
            raise self.error(f"{name}: query must be a table of texts", there)
        for key, value in query.items():
            if not isinstance(value, str):
                raise self.error(f"{name}: query must be a table of texts", (*there, key),
                                 remedy=f'write {key} = "…"')  # fmt: skip
            self._plain((*there, key), key, value)
        return query

    def _body(self, where: Where, body: object, method: str) -> object:
        there = (*where, "body")
        if body is not None and (not isinstance(body, dict | list) or method == "GET"):
            name = ".".join(where)
            raise self.error(f"{name}: body must be a table or array, and GET takes none", there)
        self._json(there, body)
        return body

    def _json(self, there: Where, value: object) -> None:
        """Raise ProfileError if `value` contains something that JSON cannot express."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self._plain((*there, key), key)
                self._json((*there, key), inner)
        elif isinstance(value, list):
            for inner in value:
                self._json(there, inner)
        elif isinstance(value, int) and abs(value) >= LARGEST:
            raise self.error(f"{there[0]}: body holds a number of more than 64 bits", there)
        elif not (value is None or isinstance(value, str | int)) and not (
            isinstance(value, float) and math.isfinite(value)
        ):
            raise self.error(f"{there[0]}: body holds what JSON cannot hold ({value})", there)

    def _plain(self, there: Where, key: str, value: str = "") -> None:
        if set(key) & set("{}"):
            raise self.error(f"{there[0]}: a placeholder stands in a value, not in a name", there)
        if any(unicodedata.category(char) in ("Cc", "Cs") for char in key + value):
            raise self.error(f"{there[0]}: line breaks and control characters have no place", there)

    def _dotted(self, there: Where, path: object) -> str:
        if isinstance(path, str) and all(path.split(".")):
            return path
        right = '"entry", "none" or a dotted path' if there[-1] == "answer" else "a dotted path"
        raise self.error(f"{'.'.join(there[:-1])}: {there[-1]} must be {right}", there)

    def _fields(self, where: Where, fields: object) -> dict[str, str]:
        there = (*where, "fields")
        if not isinstance(fields, dict):
            raise self.error(f"{where[0]}: fields must be a table of texts", there)
        known = FIELDS.get(where[0], {})
        for key, value in fields.items():
            if key not in known:
                raise self.error(f"{where[0]}: unknown field {key!r}", (*there, key),
                                 remedy=f"the fields are {', '.join(known)}")  # fmt: skip
            self._dotted((*there, key), value)
        return {**{key: path for key, path in known.items() if path is not None}, **fields}

    def _placeholders(self, where: Where, kind: Kind, found: Operation) -> None:
        self._known(where, kind, "path", [found.path])
        self._known(where, kind, "query", list(found.query.values()))
        self._known(where, kind, "body", texts(found.body))
        for needed in kind.must:
            if not used(found.path, found.query, found.body) & needed:
                one = " or ".join(f"{{{placeholder}}}" for placeholder in sorted(needed))
                raise self.error(f"{'.'.join(where)}: {one} is used nowhere", (*where, "path"))

    def _known(self, where: Where, kind: Kind, key: str, values: list[str]) -> None:
        name = ".".join(where)
        for text in values:
            if key == "body" and text.endswith(f"{CHARACTERS}}}"):
                text = text.removesuffix(f"{CHARACTERS}}}") + "}"
                if not PLACEHOLDER.fullmatch(text):
                    raise self.error(f"{name}: {CHARACTERS} has nothing beside it", (*where, key))
            for placeholder in PLACEHOLDER.findall(text):
                there = f"{{{placeholder}"
                if placeholder not in kind.may:
                    may = ", ".join(f"{{{one}}}" for one in sorted(kind.may))
                    raise self.error(f"{name}: unknown placeholder {{{placeholder}}}",
                                     (*where, key), there, remedy=f"{name} has {may}")  # fmt: skip
                if placeholder in kind.secret and key != "body":
                    raise self.error(f"{name}: {{{placeholder}}} belongs into the body alone",
                                     (*where, key), there)  # fmt: skip
            if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
                raise self.error(f"{name}: a brace without its other half", (*where, key))

    def error(self, what: str, where: Where, needle: str = "", *, remedy: str = "") -> ProfileError:
        """Return an error with the line that defines `where`.

        If the definition spans several lines, `needle` selects the line.
        """
        line = line_of(self._text, where, needle)
        said = f"{self._source}, line {line}: {brief(what)}"
        return ProfileError(said, remedy=remedy or "mend it")
