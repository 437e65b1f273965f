"""Texts in the tables of the outbox: what names people is encrypted.

Must not know what they say.
"""

from zonedrive.cipher import Box
from zonedrive.errors import Damaged


def sealed(box: Box, text: str | None, use: bytes) -> bytes | str | None:
    """A text as its column keeps it: what names people is encrypted."""
    return box.seal(text.encode(), use) if text else text


def opened(box: Box, kept: object, use: bytes) -> object:
    """The text again; rows of former times hold it as it is.  Raises Damaged."""
    if not isinstance(kept, bytes):
        return kept
    try:
        return box.open(kept, use).decode()
    except UnicodeDecodeError as wrong:  # encrypted once, and not any more
        raise Damaged("stored bytes fail their check") from wrong
