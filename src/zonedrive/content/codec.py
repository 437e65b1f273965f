"""Which codec a content file has: sealed where there is a key, plain where there is none."""

from pathlib import Path

from zonedrive.content.file import ContentFile
from zonedrive.content.header import file_id_of
from zonedrive.content.plain import PlainFile
from zonedrive.content.sealed import SealedFile


def create_file(path: Path, key: bytes | None) -> ContentFile:
    """Make an empty content file, sealed under `key`, or plain where there is none.

    Raises OSError, FileExistsError among them.
    """
    return PlainFile.create(path) if key is None else SealedFile.create(path, key)


def open_file(path: Path, key: bytes | None) -> ContentFile:
    """Open what `create_file` made with the same key.

    Raises Damaged where the file's head fails its check, OSError where it cannot be opened.
    """
    return PlainFile.open(path) if key is None else SealedFile.open(path, key)


def identity_of(path: Path, key: bytes | None) -> bytes:
    """The `identity` of a file without opening it as such.  Raises OSError."""
    return b"" if key is None else file_id_of(path)
