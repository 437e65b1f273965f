"""Texts of the window, menus and notifications in the language of the session.

The catalogues are in the folder `locale` of this package. Commands print their texts untranslated.
"""

import gettext
from functools import cache
from pathlib import Path

LOCALE = Path(__file__).parent / "locale"


@cache
def _catalogue() -> gettext.NullTranslations:
    """Return the catalogue for LANGUAGE, LC_ALL, LC_MESSAGES or LANG, or an empty catalogue."""
    return gettext.translation("zonedrive", LOCALE, fallback=True)


def marked(text: str) -> str:
    """Mark a command's text for translation in the window; return the text unchanged."""
    return text


def translated(text: str) -> str:
    """Return the translation of a text into the language of the session."""
    return _catalogue().gettext(text)


def translated_count(one: str, many: str, number: int) -> str:
    """Return the translation of the singular `one` or the plural `many`, as `number` requires."""
    return _catalogue().ngettext(one, many, number)
