"""Anonymized log: each line is reproduced only with texts from zonedrive's own sources.

Knows nothing about the use of the log. The module reads zonedrive's sources for the sentences that
the program can print. If a line matches one of them, its fixed parts are returned. Of the variable
parts, only harmless ones are returned (numbers, error types, states, other sentences of the
sources).

INVARIANT: the output contains only text from the sources, words of `_plain`'s vocabulary, and
numbers where a sentence has %d. Text that is not recognized is left out, not cleaned.
"""

import ast
import builtins
import errno
import os
import re
import signal
import ssl
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import trio

import zonedrive
from zonedrive import errors
from zonedrive.errors import ZonedriveError

SOURCES = Path(zonedrive.__file__).parent
HIDDEN = "…"
DEPTH = 3  # sentences within sentences

_ENTRY = re.compile(
    r"(\d{4}-\d\d-\d\d [\d:]{8},\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)", re.S
)
_PLACE = re.compile(r'  (?:\| *|  )*File "(?P<file>[^"]+)", line (?P<line>[0-9]+), in .*')
_KIND = re.compile(r"[ |+-]*(?:\w+\.)*(?P<kind>[A-Za-z_]\w*)(?P<more>: .*)?")
_WORDS = frozenset({"online", "offline", "logon-required", "token", "session", "the service"})
_FIELD = re.compile(r"%(?:\.[0-9]+)?([sdrfx])")

Sentence = tuple[tuple[str, ...], tuple[str, ...]]
"""Fixed parts, one more than the number of fields; and the format of each field, as in %d."""


def lines(log: Iterable[str]) -> Iterator[str]:
    """Yield each recognized line of a log in anonymized form; count the others."""
    skipped = 0
    for line in log:
        told = _told(line.rstrip("\n"))
        if told is None:
            skipped += 1
            continue
        if skipped:
            yield f"    ({skipped} more)"
            skipped = 0
        yield told
    if skipped:
        yield f"    ({skipped} more)"


def _told(line: str) -> str | None:
    if entry := _ENTRY.fullmatch(line):
        when, level, name, text = entry.groups()
        shown = name if name in _modules() else HIDDEN
        return f"{when} {level} {shown}: {plain(text)}"
    if line.startswith("Traceback (most recent call last)"):
        return "Traceback"
    if place := _PLACE.fullmatch(line):
        return _place(Path(place["file"]), place["line"])
    if line.startswith(("fuse: ", "fusermount3: ")):  # messages of C code
        return f"    {line.partition(':')[0]}: {HIDDEN} {plain(line.rpartition(': ')[2])}"
    kind = _KIND.fullmatch(line)
    if kind is not None and kind["kind"] in _kinds() and not line.startswith("    "):
        more = plain(kind["more"][2:]) if kind["more"] else ""
        return f"    {kind['kind']}{': ' + more if more else ''}"
    return None


def _place(file: Path, line: str) -> str | None:
    """Return a position in a source file; its path includes no folders of this machine."""
    for root in (SOURCES.parent, Path(os.__file__).parent, Path(trio.__file__).parent.parent):
        if file.is_relative_to(root) and file.is_file():
            return f"    {file.relative_to(root)}:{line}"
    return None


def plain(text: str, depth: int = 0) -> str:
    """Return the anonymized form of a text."""
    text = text.strip()
    if text in _WORDS or text in _kinds() or text in _refusals():
        return text
    best: tuple[int, str] = (0, "")
    for parts, kinds in _sentences():
        fields = _fields(text, parts)
        fixed = sum(map(len, parts))
        if fields is not None and fixed > best[0]:
            told = [_field(*each, depth) for each in zip(kinds, fields, strict=True)]
            best = (fixed, "".join(a + b for a, b in zip(parts, [*told, ""], strict=True)))
    return best[1] or HIDDEN


def _field(kind: str, value: str, depth: int) -> str:
    if kind in "df" and re.fullmatch(r"-?[0-9.]+", value):
        return value
    return plain(value, depth + 1) if depth < DEPTH else HIDDEN


def _fields(text: str, parts: tuple[str, ...]) -> list[str] | None:
    """Return the variable parts of `text`, or None if it does not match the sentence."""
    if not text.startswith(parts[0]) or not text.endswith(parts[-1]):
        return None
    if len(parts) == 1:
        return [] if text == parts[0] else None
    at, found = len(parts[0]), []
    for part in parts[1:-1]:
        end = text.find(part, at)
        if end < 0 or not part:
            return None
        found.append(text[at:end])
        at = end + len(part)
    end = len(text) - len(parts[-1])
    return [*found, text[at:end]] if end >= at else None


# ---- the vocabulary ----


@cache
def _kinds() -> frozenset[str]:
    """Return the names of error types, signals and errno values."""
    found = set(errno.errorcode.values()) | {each.name for each in signal.Signals}
    found |= {"DatabaseError", "OperationalError", "IntegrityError"}  # SQLite's
    for module in (builtins, errors, ssl, trio):
        found |= {
            name
            for name, each in vars(module).items()
            if isinstance(each, type) and issubclass(each, BaseException)
        }
    return frozenset(found | {each.__name__ for each in _below(ZonedriveError)})


def _below(kind: type[ZonedriveError]) -> Iterator[type[ZonedriveError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


@cache
def _refusals() -> frozenset[str]:
    """Return the system's messages for errno values, with and without number; and HTTP statuses."""
    said = {os.strerror(number) for number in errno.errorcode}
    said |= {f"[Errno {number}] {os.strerror(number)}" for number in errno.errorcode}
    return frozenset(said | {f"HTTP {status}" for status in range(100, 600)})


@cache
def _modules() -> frozenset[str]:
    names = {
        ".".join(("zonedrive", *path.relative_to(SOURCES).with_suffix("").parts))
        for path in SOURCES.rglob("*.py")
    }
    return frozenset(names | {"zonedrive", "root", "py.warnings", "trio", "pyfuse3", "httpx"})


@cache
def _sentences() -> tuple[Sentence, ...]:
    """Return the sentences in the sources: format strings, and constants of several words."""
    found: set[Sentence] = set()
    for path in SOURCES.rglob("*.py"):
        if "sandbox" in path.relative_to(SOURCES).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            made = _sentence(node)
            if made is not None and " " in "".join(made[0]).strip():
                found.add(made)
    return tuple(found)


def _sentence(node: ast.AST) -> Sentence | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        pieces = _FIELD.split(node.value)
        return tuple(pieces[::2]), tuple(pieces[1::2])
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = [""]
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    return tuple(parts), ("s",) * (len(parts) - 1)
