"""Deployment profiles: operations that the published interface does not show, as checked data.

Must not know connections; what it gives out is a request in parts.  The file's format is
explained in `profiles/published.toml`.

INVARIANT: a request made from a profile goes below `/api/` of the deployment's own host, or
below its root for a path without a leading slash, whatever the values put into it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from zonedrive.errors import NotSupported, ProfileError
from zonedrive.remote.address import PLACEHOLDER, fill_path

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_KEYS: Final = ("method", "path", "query", "body", "answer")
_ENTRY: Final = frozenset({"entry", "file"})
_PARENT: Final = frozenset({"parent", "folder"})


@dataclass(frozen=True)
class _Kind:
    """What an operation may and must say."""

    may: frozenset[str]  # placeholders
    must: tuple[frozenset[str], ...]  # of each set at least one, else the wrong thing is hit
    reads: bool = False  # changes nothing, so it may be asked again


def _kind(*must: frozenset[str] | str, reads: bool = False) -> _Kind:
    sets = tuple(frozenset({one}) if isinstance(one, str) else one for one in must)
    return _Kind(frozenset({"zone"}).union(*sets), sets, reads)


OPERATIONS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "make_folder": _kind(_PARENT, "name"),
        "move": _kind(_ENTRY, _PARENT, "name"),
        "delete": _kind(_ENTRY),
        "restore": _kind(_ENTRY),
        "purge": _kind(_ENTRY),
        "versions": _kind(_ENTRY, reads=True),
        "version_content": _kind(_ENTRY, "version", reads=True),
        "deleted": _kind("zone", reads=True),
    }
)


@dataclass(frozen=True)
class Request:
    """One request in parts: `path` is encoded, `body` is to be sent as JSON (None: nothing)."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object


@dataclass(frozen=True)
class Operation:
    """One table of a profile, checked."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object
    answer: str

    def request(self, values: Mapping[str, str]) -> Request:
        """The request for `values`, a text for each placeholder that the operation may use.

        Raises Rejected for a value that cannot be part of a path.
        """
        return Request(
            self.method,
            fill_path(self.path, values),
            {key: _fill(text, values) for key, text in self.query.items()},
            _fill_json(self.body, values),
        )

    def located(self, answer: object) -> object:
        """The part of a parsed answer that `answer` points at; None where it is not there."""
        if self.answer in ("entry", "none"):
            return answer
        for member in self.answer.split("."):
            answer = answer.get(member) if isinstance(answer, dict) else None
        return answer


@dataclass(frozen=True)
class Profile:
    """The operations that a deployment offers beyond the published ones."""

    name: str
    description: str
    operations: Mapping[str, Operation]

    def can(self, operation: str) -> bool:
        """Whether there is an endpoint for `operation`, one of OPERATIONS."""
        if operation not in OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}")
        return operation in self.operations

    def operation(self, name: str) -> Operation:
        """The operation.  Raises NotSupported where the profile has none of that name."""
        if found := self.operations.get(name):
            return found
        raise NotSupported(
            f"the profile {self.name!r} has no endpoint for {name}",
            remedy="log on with a --profile that has it",
        )


def load_profile(name_or_path: str) -> Profile:
    """The packaged profile of that name, or the one in a TOML file (a path with `/` or `.toml`).

    Raises ProfileError, naming file and line.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path).expanduser()
        try:
            return parse_profile(path.read_text("utf-8"), path.stem, str(path))
        except (OSError, UnicodeDecodeError) as wrong:
            reason = getattr(wrong, "strerror", None) or wrong
            raise ProfileError(f"the profile {path} cannot be read ({reason})") from wrong
    known = packaged()
    if name_or_path not in known:
        raise ProfileError(
            f"there is no profile {name_or_path!r}",
            remedy=f"use {' or '.join(known)}, or the path of a file (ending in .toml)",
        )
    source = resources.files(__package__) / "profiles" / f"{name_or_path}.toml"
    return parse_profile(source.read_text("utf-8"), name_or_path, f"{name_or_path}.toml")


def packaged() -> list[str]:
    """The names of the profiles that come with zonedrive."""
    folder = resources.files(__package__) / "profiles"
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def parse_profile(text: str, name: str, source: str) -> Profile:
    """The profile that `text` holds; `source` is the file's name for errors."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise ProfileError(f"{source} is not TOML: {wrong}", remedy="mend the file") from wrong
    check = _Check(source, text)
    description = document.pop("description", "")
    if not isinstance(description, str):
        raise check.error("description must be a text", "", "description")
    operations = {}
    for operation, table in document.items():
        if operation not in OPERATIONS:
            raise check.error(f"unknown operation {operation!r}", operation, operation,
                              remedy=f"the operations are {', '.join(OPERATIONS)}")  # fmt: skip
        operations[operation] = check.operation(operation, table)
    return Profile(name, description, MappingProxyType(operations))


class _Check:
    """Turns one file's tables into operations, or says in which line they are wrong."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._lines = text.splitlines()

    def operation(self, name: str, table: object) -> Operation:
        if not isinstance(table, dict):
            raise self.error(f"{name} must be a table such as [{name}]", name, name)
        for key in table:
            if key not in _KEYS:
                raise self.error(f"{name}: unknown key {key!r}", name, key,
                                 remedy=f"the keys are {', '.join(_KEYS)}")  # fmt: skip
        kind = OPERATIONS[name]
        method = table.get("method", "GET" if kind.reads else None)
        if method not in METHODS or (name == "version_content" and method != "GET"):
            allowed = "GET" if name == "version_content" else ", ".join(METHODS)
            raise self.error(f"{name}: method must be one of {allowed}", name, "method")
        query = table.get("query", {})
        if not isinstance(query, dict) or not all(isinstance(v, str) for v in query.values()):
            raise self.error(f"{name}: query must be a table of texts", name, "query")
        body = table.get("body")
        if body is not None and (not isinstance(body, dict | list) or method == "GET"):
            raise self.error(
                f"{name}: body must be a table or array, and GET takes none", name, "body"
            )
        answer = table.get("answer", "entry")
        if not isinstance(answer, str) or not all(answer.split(".")):
            raise self.error(
                f'{name}: answer must be "entry", "none" or a dotted path', name, "answer"
            )
        path = self._path(name, table.get("path"))
        found = Operation(method, path, MappingProxyType(dict(query)), body, answer)
        self._placeholders(name, kind, found)
        return found

    def _path(self, name: str, path: object) -> str:
        if not isinstance(path, str) or not path:
            raise self.error(f"{name}: path is missing", name, "path")
        bare = PLACEHOLDER.sub("x", path)
        if "://" in path or bare.startswith("//") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
            raise self.error(f"{name}: path leads to another host", name, "path",
                             remedy="give a path below /api/")  # fmt: skip
        segments = bare.removeprefix("/").split("/")
        if not re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]+", bare) or "%" in bare:
            raise self.error(f"{name}: path has characters that do not belong there", name, "path")
        if any(segment in ("", ".", "..") for segment in segments):
            raise self.error(f"{name}: path has an empty segment, . or ..", name, "path")
        if bare.startswith("/") and segments[0] != "api":
            raise self.error(f"{name}: path must begin with /api/", name, "path",
                             remedy="or have no slash before it, to begin at the host")  # fmt: skip
        return path if path.startswith("/") else f"/{path}"

    def _placeholders(self, name: str, kind: _Kind, found: Operation) -> None:
        used: set[str] = set()
        for key, text in (
            ("path", found.path),
            *(("query", text) for text in found.query.values()),
            *(("body", text) for text in _texts(found.body)),
        ):
            for placeholder in PLACEHOLDER.findall(text):
                if placeholder not in kind.may:
                    may = ", ".join(f"{{{one}}}" for one in sorted(kind.may))
                    raise self.error(f"{name}: unknown placeholder {{{placeholder}}}", name, key,
                                     remedy=f"{name} has {may}")  # fmt: skip
                used.add(placeholder)
            if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
                raise self.error(f"{name}: a brace without its other half", name, key)
        for needed in kind.must:
            if not used & needed:
                one = " or ".join(f"{{{placeholder}}}" for placeholder in sorted(needed))
                raise self.error(f"{name}: {one} is used nowhere", name, "path")

    def error(self, what: str, table: str, key: str, *, remedy: str = "") -> ProfileError:
        return ProfileError(
            f"{self._source}, line {self._line(table, key)}: {what}", remedy=remedy or "mend it"
        )

    def _line(self, table: str, key: str) -> int:
        """Where `key` of `table` stands, else where the table begins, else 1."""
        current, begin = "", 0
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*[\"']?([^\"'\].\s]+)(?:[\"']?\s*\.\s*(\w+))?", line):
                current = header[1]
                if current == table and (not begin or header[2] == key):
                    begin = number
                    if header[2] == key:
                        return number
                continue
            assigned = re.match(r"\s*[\"']?([^\"'=.\s]+)[\"']?\s*(?:\.\s*(\w+)\s*)?=", line)
            if assigned is None:
                continue
            if current == table and assigned[1] == key:
                return number
            if not current and assigned[1] == table and (not begin or assigned[2] == key):
                begin = number
        return begin or 1


def _texts(body: object) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for value in body.values():
            yield from _texts(value)
    elif isinstance(body, list):
        for value in body:
            yield from _texts(value)


def _fill(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _fill_json(body: Any, values: Mapping[str, str]) -> object:
    if isinstance(body, str):
        return _fill(body, values)
    if isinstance(body, dict):
        return {key: _fill_json(value, values) for key, value in body.items()}
    if isinstance(body, list):
        return [_fill_json(value, values) for value in body]
    return body
