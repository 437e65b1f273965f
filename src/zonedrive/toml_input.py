"""TOML written by hand: parsing with limits, and line numbers of keys.

Knows nothing about the purpose of a document.

INVARIANT: every text is either parsed or rejected with WrongDocument, in about the time that a few
runs of the parser take.  Recursion through a parsed document is safe.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

Where = tuple[str, ...]
"""Path of table names and keys in a document."""

WIDEST: Final = 2000  # characters of a line: the parser's time grows with the square of it
DEEPEST: Final = 32  # tables and arrays in each other
LONGEST_WORDS: Final = 300  # characters of a message about a document, which may quote it

_LEXEME = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|(?P<opens>[\[{])|(?P<closes>[\]}])|(?P<ends>\n)",
    re.DOTALL,
)
"""Strings and comments, to skip brackets and line ends in them, and all other brackets and ends."""


class WrongDocument(ValueError):
    """Text that is not TOML or exceeds a limit.

    `line` counts from 1; 0 means that the message names the line.
    """

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(brief(words))
        self.line = line


def parse(text: str) -> dict[str, Any]:
    """Return the parsed document.  Raises WrongDocument."""
    for number, each in enumerate(text.split("\n"), 1):
        if len(each) > WIDEST:
            raise WrongDocument(f"a line of more than {WIDEST} characters", number)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise WrongDocument(f"not TOML: {wrong}") from wrong
    except (ValueError, RecursionError) as wrong:  # a number too long, arrays too deep
        line = _first(text, _beyond_the_parser) + 1
        raise WrongDocument("a number that is too long, or too much nesting", line) from wrong
    where = _too_deep(document)
    if where is not None:
        line = line_of(text, where)
        raise WrongDocument(f"more than {DEEPEST} tables or arrays in each other", line)
    return document


def brief(words: str) -> str:
    """Return `words` in a readable length; the end, which may name the line, is kept."""
    if len(words) <= LONGEST_WORDS:
        return words
    half = LONGEST_WORDS // 2
    return f"{words[:half]} … {words[-half:]}"


def line_of(text: str, where: Where, needle: str = "") -> int:
    """Return the line (from 1) that defines `where` in a TOML text, else the line of its table.

    With a `needle`: return the first line from there on that contains it.

    The TOML parser finds the line, so that every TOML syntax works: the definition is the statement
    after which a truncated document contains `where`.
    """
    document = tomllib.loads(text)
    while where and not _has(document, where):
        where = where[:-1]
    low = _first(text, lambda begin: _has(tomllib.loads(begin), where))
    if not needle:
        return low + 1
    below = enumerate(text.split("\n")[low:], low)
    return next((number for number, line in below if needle in line), low) + 1


def _first(text: str, found: Callable[[str], bool]) -> int:
    """Return the number of lines before the first statement for which `found` becomes true."""
    lines = text.split("\n")
    ends = _ends(text)
    # Nothing is before the first statement; the last one is where it is if nowhere else.
    number = bisect_left(ends[:-1], True, key=lambda end: found("\n".join(lines[:end])))
    return ends[number - 1] if number else 0


def _ends(text: str) -> list[int]:
    """Return the last line number of each statement and of each line without a statement."""
    ends, line, depth, at = [], 0, 0, 0
    for lexeme in _LEXEME.finditer(text):
        line += text.count("\n", at, lexeme.end())
        at = lexeme.end()
        if lexeme["opens"]:
            depth += 1
        elif lexeme["closes"]:
            depth -= 1
        elif lexeme["ends"] and depth <= 0:
            ends.append(line)
    return [*ends, line + 1]


def _beyond_the_parser(begin: str) -> bool:
    try:
        tomllib.loads(begin)
    except (ValueError, RecursionError):
        return True
    return False


def _too_deep(document: dict[str, Any]) -> Where | None:
    """Return the path of a part that is nested too deeply, or None."""
    ahead: list[tuple[Where, int, object]] = [((), 0, document)]
    while ahead:
        where, depth, value = ahead.pop()
        if depth > DEEPEST:
            return where
        if isinstance(value, dict):
            ahead += [((*where, name), depth + 1, inner) for name, inner in value.items()]
        elif isinstance(value, list):
            ahead += [(where, depth + 1, inner) for inner in value]
    return None


def _has(document: object, where: Where) -> bool:
    for name in where:
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
    return True
