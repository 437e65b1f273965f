"""Encryption of the texts in the outbox tables that may contain names of people.

Knows nothing about the meaning of the texts.
"""

from zonedrive.cipher import Box
from zonedrive.errors import Damaged


def sealed(box: Box, text: str | None, use: bytes) -> bytes | str | None:
    """Return the value to store for a text: encrypted, or unchanged if it is empty or None."""
    return box.seal(text.encode(), use) if text else text


def opened(box: Box, kept: object, use: bytes) -> object:
    """Return the decrypted text; rows of earlier versions are not encrypted.  Raises Damaged."""
    if not isinstance(kept, bytes):
        return kept
    try:
        return box.open(kept, use).decode()
    except UnicodeDecodeError as wrong:  # encrypted once, and not any more
        raise Damaged("stored bytes fail their check") from wrong
