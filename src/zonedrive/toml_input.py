"""Parsing of TOML written by users, with limits, and line numbers for error messages.

INVARIANT: `parse` takes about as long as one run of the TOML parser, even for a text that is
rejected. The first call of `line_of` for a text takes about as long, too. The nesting of a parsed
document is limited, so recursive functions can process the document.
"""

import functools
import re
import tomllib
from typing import Any, Final

WIDEST: Final = 2000  # characters of a line: the parser's time grows with their square
DEEPEST: Final = 32  # nested tables and arrays
LONGEST_WORDS: Final = 300  # characters of a message about a document, which may quote it

# Multi-line strings, and lines that are comments.
_PROSE = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r"|^[ \t]*#[^\n]*", re.DOTALL | re.M
)


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
    """Return `words`, shortened in the middle to about LONGEST_WORDS characters if necessary.

    The end is kept, because it may contain a line number.
    """
    if len(words) <= LONGEST_WORDS:
        return words
    half = LONGEST_WORDS // 2
    return f"{words[:half]} … {words[-half:]}"


def line_of(text: str, where: tuple[str, ...], needle: str = "") -> int:
    """Return the line (from 1) with the key `where`, else the line of the key's table, else 1.

    `text` must be a valid document. `where` consists of the names of the tables, and the key. If
    that line or a later line contains `needle`, return the first such line instead.
    """
    document, code = _analysed(text)
    for depth, name in enumerate(where):
        if not isinstance(document, dict) or name not in document:
            where = where[:depth]
            break
        document = document[name]
    at = 0
    for depth in range(len(where), 0, -1):
        header = r"\s*\.\s*".join(map(_key, where[:depth]))
        if found := re.search(rf"^[ \t]*\[+\s*{header}\s*\]", code, re.M):
            at, where = found.end(), where[depth:]
            break
    for name in where:
        key = re.compile(rf"(?:^|[{{,.])[ \t]*{_key(name)}(?=\s*[.=])", re.M)
        if found := key.search(code, at):
            at = found.end()
    line = code.count("\n", 0, at)
    below = enumerate(text.split("\n")[line:], line) if needle else ()
    return next((number for number, each in below if needle in each), line) + 1


@functools.lru_cache(maxsize=1)  # one file can have many errors
def _analysed(text: str) -> tuple[object, str]:
    """Return the document in `text`, and `text` with its comments and long strings blanked."""
    code = _PROSE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return tomllib.loads(text), code


def _key(name: str) -> str:
    return rf"[\"']?{re.escape(name)}[\"']?"
