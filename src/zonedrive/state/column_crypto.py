"""Encryption of texts in the tables of the outbox that may name people.

Knows nothing of what the texts say.
"""

from zonedrive.cipher import Box
from zonedrive.errors import Damaged


def sealed(box: Box, text: str | None, use: bytes) -> bytes | str | None:
    """Return a text in the form of its column: encrypted, or unchanged if empty or None."""
    return box.seal(text.encode(), use) if text else text


def opened(box: Box, kept: object, use: bytes) -> object:
    """Return the decrypted text; rows of earlier versions are not encrypted.  Raises Damaged."""
    if not isinstance(kept, bytes):
        return kept
    try:
        return box.open(kept, use).decode()
    except UnicodeDecodeError as wrong:  # encrypted once, and not any more
        raise Damaged("stored bytes fail their check") from wrong
