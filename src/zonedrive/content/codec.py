"""Which codec a content file has: sealed where there is a key, plain where there is none."""

from pathlib import Path

from zonedrive.content.file import ContentFile
from zonedrive.content.plain import PlainFile
from zonedrive.content.sealed import SealedFile


def create_file(path: Path, key: bytes | None) -> ContentFile:
    """Make an empty content file, sealed under `key`, or plain where there is none.

    Raises OSError, FileExistsError among them.
    """
    return PlainFile.create(path) if key is None else SealedFile.create(path, key)


def open_file(path: Path, key: bytes | None, manifest: bytes = b"") -> ContentFile:
    """Open what `create_file` made with the same key.

    With the `manifest` of a sealed file, former bytes in place of the present ones are Damaged
    when they are read.  Raises Damaged where it is another file or its head fails its check,
    OSError where it cannot be opened.
    """
    return PlainFile.open(path) if key is None else SealedFile.open(path, key, manifest)
