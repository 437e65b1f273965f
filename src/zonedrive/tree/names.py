"""Names as the service has them, and as a Linux folder can show them.

A name from the service is data and may be anything.  In a folder it must not be empty, `.` or
`..`, hold `/`, NUL or a control character, or be longer than 255 bytes.  What cannot stand as it
is gets a look-alike: `/` becomes U+FF0F, a control character its control picture.  Over-long
names, and the second of two that would look the same, carry a mark made from the entry's id.

The way back is the tree, which keeps the service's name of every entry beside the shown one:
a version or a move of `a/b` never turns it into its look-alike.  A name that a person types is
sent as typed, so a look-alike that is really meant stays what it is.
"""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Container

from zonedrive.config import LOCAL_ONLY

MAX_BYTES = 255

_SHOWN = {code: chr(0x2400 + code) for code in range(0x20)}
_SHOWN |= {0x7F: "\u2421", ord("/"): "\uff0f"}
_SHOWN |= dict.fromkeys(range(0x80, 0xA0), "\u241b")  # the rare C1 controls
_SHOWN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # half of a pair: no valid UTF-8
_WHOLE = {"": "\u2205", ".": "\uff0e", "..": "\uff0e\uff0e"}

_BESIDE = re.compile("|".join(map(fnmatch.translate, LOCAL_ONLY)))
WANTED, BESIDE = 1, 2


def stays(name: str) -> int:
    """How a row marks what never leaves this machine.

    WANTED: a person's own file, by a name of theirs in `local_only`, or by its folder's.  BESIDE:
    what programs keep beside a file while they work on it, by any name of the defaults.
    """
    return BESIDE if _BESIDE.match(name) else WANTED


def safe(name: str) -> str:
    """How a folder shows the service's `name` (which may still be too long)."""
    if name in _WHOLE:
        return _WHOLE[name]
    return name.translate(_SHOWN)


def fits(name: str) -> bool:
    """Whether a local name is short enough for the kernel."""
    return len(name) * 4 <= MAX_BYTES or len(name.encode()) <= MAX_BYTES


def shows(local: str, name: str, entry_id: str) -> bool:
    """Whether `local` is how a folder shows the service's `name`."""
    shown = safe(name)
    return local == shown or local in _marked(shown, entry_id)


def may_show(name: str) -> Callable[[str], bool]:
    """Tells quickly of a local name whether it may be how a folder shows the service's `name`.

    True for some that are not; False for none that are.
    """
    shown = safe(name)
    beginning = (shown.rpartition(".")[0] or shown)[: MAX_BYTES // 8]  # of what a mark leaves
    return lambda local: local == shown or (local.startswith(beginning) and "~" in local)


def local_name(name: str, entry_id: str, taken: Container[str]) -> str:
    """The name under which a folder that already holds `taken` shows the entry."""
    shown = safe(name)
    if fits(shown) and shown not in taken:
        return shown
    for marked in _marked(shown, entry_id):
        if marked not in taken:
            return marked
    raise AssertionError("two entries of one id")


def _marked(shown: str, entry_id: str) -> list[str]:
    """The shown name with a mark for this entry, shortest first."""
    digest = hashlib.sha256(entry_id.encode("utf-8", "surrogatepass")).hexdigest()
    return [with_mark(shown, f"~{digest[:digits]}") for digits in (8, 16, 64)]


def with_mark(name: str, mark: str) -> str:
    """`name` with `mark` before its extension, cut so that it fits."""
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > 20:
        stem, dot, extension = name, "", ""
    room = MAX_BYTES - len(f"{mark}{dot}{extension}".encode())
    return f"{_cut(stem, room)}{mark}{dot}{extension}"


def _cut(text: str, size: int) -> str:
    """The longest beginning of `text` that takes at most `size` bytes of UTF-8."""
    return text.encode()[:size].decode("utf-8", "ignore")
