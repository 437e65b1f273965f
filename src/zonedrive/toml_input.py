"""Parsing of TOML written by users, with limits, and line numbers for error messages.

INVARIANT: a text is parsed, or rejected with WrongDocument, in about the time of one parser run.
The nesting of a parsed document is limited, so recursive functions can process the document.
"""

import re
import tomllib
from typing import Any, Final

WIDEST: Final = 2000  # characters of a line: the parser's time grows with their square
DEEPEST: Final = 32  # nested tables and arrays
LONGEST_WORDS: Final = 300  # characters of a message about a document, which may quote it

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\])*"'
    r"|'''.*?'{3,5}|'[^']*'"
    r"|#[^\n]*|[\n\[\]{}=,.]|[^\s\[\]{}=,.#\"']+",
    re.DOTALL,
)
_Where = tuple[str | int, ...]  # names of tables and keys, and indexes in arrays


class WrongDocument(ValueError):
    """Error for a string that is not TOML or exceeds a limit.

    `line` counts from 1; 0 means that the message names the line, or that the line is unknown.
    """

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(brief(words))
        self.line = line


def parse(text: str) -> dict[str, Any]:
    """Parse a TOML text and return the document.

    Raises WrongDocument if the text is not TOML or exceeds a limit.
    """
    for number, each in enumerate(text.split("\n"), 1):
        if len(each) > WIDEST:
            raise WrongDocument(f"a line of more than {WIDEST} characters", number)
    try:
        document = tomllib.loads(text)
        depth = _depth(document)
    except tomllib.TOMLDecodeError as wrong:
        raise WrongDocument(f"not TOML: {wrong}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise WrongDocument("a number that is too long, or too much nesting") from wrong
    if depth > DEEPEST:
        raise WrongDocument(f"more than {DEEPEST} nested tables or arrays")
    return document


def _depth(value: object) -> int:
    """Return the nesting depth of tables and arrays in a value.

    Raises RecursionError for a value that is nested too deeply for recursive functions.
    """
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0)


def brief(words: str) -> str:
    """Return a message; if too long, omit its middle, because the end may contain a line number."""
    if len(words) <= LONGEST_WORDS:
        return words
    half = LONGEST_WORDS // 2
    return f"{words[:half]} … {words[-half:]}"


def line_of(text: str, where: _Where, needle: str = "") -> int:
    """Return the line (from 1) of the value `where`, else of the innermost table around it, else 1.

    `text` must be a valid document. The line is that of the key, of the table's header or of the
    array's element; if the value contains `needle`, it is the line with `needle`.
    """
    found = _Scanner(text).places
    for depth in range(len(where), 0, -1):
        if place := found.get(where[:depth]):
            at, start, end = place
            inside = text.find(needle, start, end) if needle else -1
            return text.count("\n", 0, at if inside < 0 else inside) + 1
    return 1


class _Scanner:
    """Positions of all values in a valid document."""

    def __init__(self, text: str) -> None:
        self._tokens = [each for each in _TOKEN.finditer(text) if not each[0].startswith("#")]
        self._next = 0
        self._lengths: dict[_Where, int] = {}  # of the arrays of tables
        self.places: dict[_Where, tuple[int, int, int]] = {}
        """Position of each value's key, header or element, and start and end of the value."""
        table: _Where = ()
        while self._next < len(self._tokens):
            if self._skip("\n"):
                continue
            if self._is("["):
                table = self._header()
            else:
                self._pair(table)

    def _is(self, marks: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next][0] in tuple(marks)

    def _skip(self, marks: str) -> bool:
        is_there = self._is(marks)
        self._next += is_there
        return is_there

    def _names(self) -> list[str]:
        """Read a key, which may be dotted."""
        names = []
        while self._next < len(self._tokens):
            name = self._tokens[self._next][0]
            self._next += 1
            is_escaped = name.startswith('"') and "\\" in name
            bare = name[1:-1] if name[0] in "\"'" else name
            names.append(tomllib.loads(f"x = {name}")["x"] if is_escaped else bare)
            if not self._skip("."):
                break
        return names

    def _note(self, outer: _Where, names: list[str], at: int) -> _Where:
        """Note the tables on the way to a key, and return the path of the key."""
        for name in names:
            if outer in self._lengths:
                outer = (*outer, self._lengths[outer] - 1)
            outer = (*outer, name)
            self.places.setdefault(outer, (at, at, at))
        return outer

    def _header(self) -> _Where:
        at = self._tokens[self._next].start()
        self._skip("[")
        is_array = self._skip("[")
        path = self._note((), self._names(), at)
        if is_array:
            number = self._lengths[path] = self._lengths.get(path, 0) + 1
            path = (*path, number - 1)
        self.places[path] = at, at, at
        while self._skip("]"):
            pass
        return path

    def _pair(self, table: _Where) -> None:
        at = self._tokens[self._next].start()
        path = self._note(table, self._names(), at)
        self._skip("=")
        self._value(path, at)

    def _value(self, path: _Where, at: int) -> None:
        start = self._next
        self._next += 1
        if self._tokens[start][0] == "[":
            number = 0
            while not self._ends("]"):
                self._value((*path, number), self._tokens[self._next].start())
                number += 1
        elif self._tokens[start][0] == "{":
            while not self._ends("}"):
                self._pair(path)
        else:
            while self._next < len(self._tokens) and not self._is("\n,]}"):
                self._next += 1
        self.places[path] = at, self._tokens[start].start(), self._tokens[self._next - 1].end()

    def _ends(self, mark: str) -> bool:
        """Skip separators; return True, and skip `mark`, if it is next."""
        while self._skip("\n,"):
            pass
        return self._skip(mark)
