"""Translation of texts in the window, menus and notifications to the language of the session.

The window is the web page that `zonedrive ui` opens. The catalogues are in the folder `locale` of
this package. Commands print their texts untranslated; `translated_line` translates such a line for
the window and the notifications.
"""

import gettext
import operator
import re
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO

LOCALE = Path(__file__).parent / "locale"
LONGEST = 600  # characters; the patterns would take too much time for a longer line
DEEPEST = 6  # texts within texts
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_VALUES = {"n": "[0-9]+", "verb": "is|are"}
"""Patterns of placeholder values, by placeholder name; other placeholders accept any value."""

_QUOTED = r"(?:[^']|(?<= )'[^']*'(?![^ ']))*?"
"""Pattern of a command in single quotes, in which words may be quoted."""

_JOINED = (
    (re.compile(r"(?P<one>.+?); (?P<two>.+)"), "{one}; {two}"),
    (re.compile(r"(?P<one>.+) \((?P<two>.+)\)"), "{one} ({two})"),
    (re.compile(r"(?P<one>.+?): (?P<two>.+)"), "{one}: {two}"),
    (re.compile(r"(?P<one>\d.*?), (?P<two>\d.+)"), "{one}, {two}"),
    (re.compile(r"(?P<one>\d+|\S*[/:]\S*) (?P<two>.+)"), "{one} {two}"),
)
"""Pairs of a pattern for a line that joins two texts, and the format of the translated line."""


def marked(text: str) -> str:
    """Mark a command's text for translation in the window; return the text unchanged."""
    return text


_WORDS = frozenset(
    (marked("token"), marked("session"), marked("online"), marked("offline"), marked("failed"),
     marked("is"), marked("are"))
)  # fmt: skip
"""One-word values that are translated; any other word may be the name of a file."""


class _Catalogue(gettext.GNUTranslations):
    """Catalogue that also translates system errors, and texts with filled-in placeholders."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.add_fallback(gettext.translation("libc", fallback=True))

    @cached_property
    def _forms(self) -> list[tuple[re.Pattern[str], str]]:
        """Patterns and translations of texts with placeholders, the most specific first."""
        texts = [text for text in self._catalog if isinstance(text, str)]  # type: ignore[attr-defined]
        found = sorted(
            filter(_PLACEHOLDER.search, texts),
            key=lambda text: len(_PLACEHOLDER.sub("", text)),
            reverse=True,
        )
        return [*((_pattern(text), self.gettext(text)) for text in found), *_JOINED]

    def line(self, line: str, depth: int = DEEPEST) -> str:
        """Translate a line that a command prints; parts that have no translation stay unchanged.

        The parts of the line are themselves translated as lines, down to `depth` levels.
        """
        if not line:
            return ""  # the catalogue has its header under ""
        whole = self.gettext(line)
        if whole != line or not depth or len(line) > LONGEST:
            return whole
        # First, because the value of a placeholder could match a separator and the texts around it.
        clauses = line.split("; ")
        if len(clauses) > 1:
            shown = [self.line(each, depth - 1) for each in clauses]
            if all(map(operator.ne, shown, clauses)):
                return "; ".join(shown)
        first, _, rest = line.partition(": ")
        if rest and (context := self.line(first, 0)) != first:
            return f"{context}: {self.line(rest, depth - 1)}"
        for pattern, text in self._forms:
            if found := pattern.fullmatch(line):
                values = found.groupdict().items()
                return text.format_map({name: self._value(each, depth) for name, each in values})
        return line

    def _value(self, text: str, depth: int) -> str:
        return self.line(text, depth - 1) if " " in text or text in _WORDS else text


def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that matches the text with any values in its placeholders.

    A value between single quotes may itself contain single quotes only around whole words.
    Otherwise, the value could extend from one quoted command to the next.
    """
    parts = _PLACEHOLDER.split(text)
    found = re.escape(parts[0])
    for before, name, after in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        is_quoted = before.endswith("'") and after.startswith("'")
        value = _VALUES.get(name, _QUOTED if is_quoted else ".*?")
        found += f"(?P<{name}>{value}){re.escape(after)}"
    return re.compile(found)


@cache
def _catalogue() -> gettext.NullTranslations:
    """Return the catalogue for LANGUAGE, LC_ALL, LC_MESSAGES or LANG, or an empty catalogue."""
    return gettext.translation("zonedrive", LOCALE, class_=_Catalogue, fallback=True)


def translated(text: str) -> str:
    """Return the translation of a text into the language of the session."""
    return _catalogue().gettext(text)


def translated_count(one: str, many: str, number: int) -> str:
    """Return the translation of the singular `one` or the plural `many`, as `number` requires."""
    return _catalogue().ngettext(one, many, number)


def translated_line(line: str) -> str:
    """Return the translation of a line that a command prints."""
    catalogue = _catalogue()
    return catalogue.line(line) if isinstance(catalogue, _Catalogue) else line
