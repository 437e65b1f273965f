"""Names on the service, names that programs use, and names that a folder of the mount shows.

The service allows any text as a name. A name in a folder of the mount must not be empty, `.` or
`..`, or longer than 255 bytes. It must not contain `/`, a control character (such as NUL) or a
bidirectional control, which changes the text direction. The display name replaces each
forbidden character of a name by a similar one: `/` by U+FF0F, a control character by its control
picture, U+202E by `‹RLO›`. If a name is too long, or an earlier entry of the folder has the same
display name, the display name also gets a hash suffix before the extension: `~` and a hash of the
entry's id.

Names that local programs use get a display name, too, see `typed`. The original name and its
display name are two spellings of one name, as upper and lower case are on some other file systems.
A program that creates `a<tab>b` can open `a<tab>b` again, but listings and the service show `a␉b`.

Programs treat some names in the root folder of a mount specially: the desktop's trash, folders of
version control and build tools, and files that are started automatically. No zone is shown under
such a name, see `zone_name`.

The tree stores both the service's name and the display name of every entry. So if the service calls
an entry `a/b`, the entry keeps this name when it gets a new version or is moved.
"""

import fnmatch
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Container, Iterator

from zonedrive.config import LOCAL_ONLY

MAX_BYTES = 255

_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_BIDI = {
    0x202A: "LRE", 0x202B: "RLE", 0x202C: "PDF", 0x202D: "LRO", 0x202E: "RLO",
    0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI",
}  # fmt: skip
_SHOWN = _CONTROLS | {code: f"\u2039{name}\u203a" for code, name in _BIDI.items()}
# The rare C1 controls are shown as ESC and a letter, which is their 7-bit form in terminals.
_SHOWN |= {code: f"\u241b{chr(code - 0x40)}" for code in range(0x80, 0xA0)}
_FOREIGN = {**_SHOWN, ord("/"): "\uff0f"}
_FOREIGN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # lone surrogates: not valid UTF-8
_WHOLE = {"": "\u2205", ".": "\uff0e", "..": "\uff0e\uff0e"}
_SPELLED = re.compile(f"[\u2400-\u241f\u2421]|\u2039(?:{'|'.join(_BIDI.values())})\u203a")

_FORMER = {code: shown for code, shown in _FOREIGN.items() if code not in _BIDI}
_FORMER |= dict.fromkeys(range(0x80, 0xA0), "\u241b")
"""Character replacements of version 0.1.0, which did not replace bidirectional controls."""

_FULL_WIDTH = 0xFEE0  # offset from an ASCII character to its full-width form
_SPECIAL = frozenset(
    (
        "autoopen",  # media that open a file, by the specification of freedesktop.org
        "autorun",  # media that start a program; with any extension, see `zone_name`
        "autostart",
        "lost+found",
        "desktop.ini",
        "thumbs.db",
        "$recycle.bin",
        "recycler",
        "system volume information",
        "node_modules",  # Node.js loads modules from it, for scripts in all subfolders
        "cvs",
        "_darcs",
    )
)

_TEMPORARY = re.compile("|".join(map(fnmatch.translate, LOCAL_ONLY)))
BY_USER, TEMPORARY = 1, 2


def local_only_reason(name: str) -> int:
    """Return BY_USER or TEMPORARY, the reason why a file with this name is local-only.

    TEMPORARY means a program's temporary file, whose name matches a default pattern. BY_USER means
    a user's file, which is local-only because of its folder or another pattern in `local_only`.
    """
    return TEMPORARY if _TEMPORARY.match(name) else BY_USER


def safe(name: str) -> str:
    """Return the display name for the service's `name`; the result may exceed MAX_BYTES."""
    if name in _WHOLE:
        return _WHOLE[name]
    return name.translate(_FOREIGN) if "/" in name or not name.isprintable() else name


def typed(name: str) -> str:
    """Return the display name for a name that a program passed, for example to open(2).

    The result may exceed MAX_BYTES.
    """
    return name if name.isprintable() else name.translate(_SHOWN)


def is_respelled(name: str) -> bool:
    """Return True if programs can also use another spelling of the display name."""
    return _SPELLED.search(name) is not None


def zone_name(name: str) -> str:
    """Return the name that the mount's root folder shows for the zone `name`.

    Names that programs treat specially get a full-width first character. These are names with a
    leading dot (zones are never hidden), names with a leading `-` or `~` (a shell's `*` would pass
    them as an option or a home folder) and names such as `lost+found`.
    """
    shown = safe(name)
    lower = shown.lower()
    if lower.startswith((".", "-", "~", "autorun.")) or lower in _SPECIAL:
        return chr(ord(shown[0]) + _FULL_WIDTH) + shown[1:]
    return shown


def renewed(name: str, remote_name: str | None, *, zone: bool) -> str:
    """Return the current display name of an entry that version 0.1.0 showed as `name`.

    The result may be equal to `name`. The caller checks that no other entry of the folder has the
    resulting name, and that the name is short enough. `zone` tells whether the entry is a zone.
    """
    show = zone_name if zone else safe
    if remote_name is not None and name == remote_name.translate(_FORMER):
        return show(remote_name)
    return show(name)


def may_be_renewed(name: str) -> bool:
    """Return True if `renewed` may change the display name `name` of a file or folder.

    This fast test has false positives, but no false negatives.
    """
    return not name.isprintable() or "\u241b" in name


def fits(name: str) -> bool:
    """Return True if the local name is at most MAX_BYTES bytes long, the limit of the kernel."""
    return len(name) * 4 <= MAX_BYTES or len(name.encode()) <= MAX_BYTES


def shows(local: str, name: str, entry_id: str | None) -> bool:
    """Return True if `local` is a display name of `name`, by the current rules or those of 0.1.0.

    `name` is the service's name, `entry_id` the id of the entry. The display name may have the
    hash suffix of this id or, if the id is None, of any id.
    """
    shown = safe(name)
    if local == shown or (shown != name and local == name.translate(_FORMER)):
        return True
    marks = [found[0] for found in _MARK.finditer(local)]
    if marks and entry_id is not None:
        longest = f"~{_digest(entry_id)}"
        marks = [mark for mark in marks if longest.startswith(mark.partition("-")[0])]
    return any(local == with_mark(shown, mark) for mark in marks)


def may_show(name: str) -> Callable[[str], bool]:
    """Return a predicate that quickly tells whether a local name may be a display name for `name`.

    `name` is the service's name. The predicate has false positives, but no false negatives.
    """
    shown = safe(name)
    beginning = (shown.rpartition(".")[0] or shown)[: MAX_BYTES // 8]  # no suffix changes it
    return lambda local: local == shown or (local.startswith(beginning) and "~" in local)


def local_name(
    name: str, entry_id: str, taken: Container[str], *, show: Callable[[str], str] = safe
) -> str:
    """Return the name that a folder shows for an entry that the service calls `name`.

    The folder's other entries have the names `taken`. `show` is the function that returns the
    display name for a name: `zone_name` for zones in the root folder, else `safe`.
    """
    shown = show(name)
    if fits(shown) and shown not in taken:
        return shown
    marked = (with_mark(shown, mark) for mark in _marks(entry_id))
    return next(each for each in marked if each not in taken)


_MARK = re.compile(r"~(?:[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{64}(?:-[0-9]+)?)(?=\.|$)")


def _digest(entry_id: str) -> str:
    return hashlib.sha256(entry_id.encode("utf-8", "surrogatepass")).hexdigest()


def _marks(entry_id: str) -> Iterator[str]:
    """Yield infinitely many hash suffixes of an entry, the shortest first.

    More than three suffixes are needed, because coworkers can give other entries the names with the
    first three suffixes.
    """
    digest = _digest(entry_id)
    yield from (f"~{digest[:digits]}" for digits in (8, 16, 64))
    yield from (f"~{digest}-{number}" for number in itertools.count(2))


def with_mark(name: str, mark: str) -> str:
    """Return `name` with the suffix `mark` before the extension.

    The stem is shortened if the result would exceed MAX_BYTES.
    """
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > 20:
        stem, dot, extension = name, "", ""
    room = MAX_BYTES - len(f"{mark}{dot}{extension}".encode())
    return f"{cut(stem, room)}{mark}{dot}{extension}"


def cut(text: str, size: int) -> str:
    """Return the longest prefix of `text` that takes at most `size` bytes of UTF-8."""
    return text.encode()[:size].decode("utf-8", "ignore")


# A user name may contain parentheses.
CONFLICT_MARK = re.compile(r" \(conflict, (?:.*? \d{4}-\d\d-\d\d \d\d-\d\d-\d\d|.*?)\)(?: \d+)?")
_MOST_LOST = 3  # bytes; `cut` removes at most these more than necessary, the rest of a character


def name_of_original(name: str) -> str | None:
    """Return `name` without the marks of a conflict copy.

    Return None if the original name may have been shortened. `with_mark` shortens a name that would
    exceed MAX_BYTES, and the result then has at least MAX_BYTES - _MOST_LOST bytes.
    """
    original = CONFLICT_MARK.sub("", name)
    is_marked = original != name or _MARK.search(name)
    is_shortened = is_marked and len(name.encode()) >= MAX_BYTES - _MOST_LOST
    return None if is_shortened else original


def composed(name: str) -> str:
    """Return the form that names have in common if they differ only in Unicode normalization."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def folded(name: str) -> str:
    """Return a form that names have in common if they differ only in case or Unicode normalization.

    Some services treat such names as equal. A name of more than 4 * MAX_BYTES characters is
    returned unchanged: normalization could take minutes, and no name that fits is equal to it.
    """
    if len(name) > 4 * MAX_BYTES:
        return name
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


_ASIDE = re.compile(r"\.zonedrive-\d+-\d+")


def aside_name(ino: int, seq: int) -> str:
    """Return the temporary name on the service for an entry whose name another entry needs."""
    return f".zonedrive-{ino}-{seq}"


def is_aside(name: str | None) -> bool:
    """Return True if a remote name was made by `aside_name`, on this or another machine."""
    return bool(_ASIDE.fullmatch(name or ""))
