"""Local content: content files, the outgoing spool and the cache with its downloads.

Knows no remote, no tree and no outbox; the caller passes a `Source` for missing bytes.
"""

from zonedrive.content.cache import Cache
from zonedrive.content.codec import create_file, open_file
from zonedrive.content.file import ContentFile
from zonedrive.content.reader import Reader
from zonedrive.content.source import Abortable, Changed, RangeSource, Source, Stream
from zonedrive.content.spool import Spool

__all__ = [
    "Abortable",
    "Cache",
    "Changed",
    "ContentFile",
    "RangeSource",
    "Reader",
    "Source",
    "Spool",
    "Stream",
    "create_file",
    "open_file",
]
