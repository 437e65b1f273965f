"""Choice of the content file format: encrypted if there is a key, else plain."""

from pathlib import Path

from zonedrive.content.content_file import ContentFile
from zonedrive.content.encrypted_file import EncryptedFile
from zonedrive.content.plain_file import PlainFile


def create_file(path: Path, key: bytes | None) -> ContentFile:
    """Create an empty content file, encrypted under `key`, or plain if `key` is None.

    Raises OSError, including FileExistsError.
    """
    return PlainFile.create(path) if key is None else EncryptedFile.create(path, key)


def open_file(path: Path, key: bytes | None, manifest: bytes = b"") -> ContentFile:
    """Open a file that `create_file` made with the same key.

    With the `manifest` of an encrypted file, old bytes in place of the current ones raise Damaged
    when they are read.  Raises Damaged if the file is not the recorded one or its head fails its
    check, and OSError if it cannot be opened.
    """
    return PlainFile.open(path) if key is None else EncryptedFile.open(path, key, manifest)
