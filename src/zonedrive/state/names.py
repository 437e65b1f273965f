"""Names on the service, names that programs use, and names that a folder of the mount shows.

A name from the service is data and may be any text.  A name in a folder of the mount must not be
empty, `.` or `..`; must not contain `/`, a control character (such as NUL) or a bidirectional
control that changes the text direction; and must not be longer than 255 bytes.  A forbidden
character is shown as a similar one: `/` as U+FF0F, a control character as its control picture,
U+202E as `‹RLO›`.  An over-long name, and the second of two names that would look the same, gets a
mark, which is a hash of the entry's id.

The same rule applies to names that local programs use.  A name and its shown form are two spellings
of one name (`typed`), as upper and lower case are on some other file systems.  A program that
creates `a<tab>b` finds `a<tab>b` again, while listings, and the service, have `a␉b`.

Programs trust some names at the top of a mount: the desktop's trash, folders of version control and
build tools, and files that are started automatically.  No zone gets such a name (`zone_name`).

The tree keeps the service's name of every entry as well as the shown name.  A new version or a move
of `a/b` therefore never changes the service's name.
"""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Container

from zonedrive.config import LOCAL_ONLY

MAX_BYTES = 255

_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_BIDI = {
    0x202A: "LRE", 0x202B: "RLE", 0x202C: "PDF", 0x202D: "LRO", 0x202E: "RLO",
    0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI",
}  # fmt: skip
_SHOWN = _CONTROLS | {code: f"\u2039{name}\u203a" for code, name in _BIDI.items()}
# The rare C1 controls: as ESC and a letter, which is how terminals of seven bits spell them.
_SHOWN |= {code: f"\u241b{chr(code - 0x40)}" for code in range(0x80, 0xA0)}
_FOREIGN = {**_SHOWN, ord("/"): "\uff0f"}
_FOREIGN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # lone surrogates: not valid UTF-8
_WHOLE = {"": "\u2205", ".": "\uff0e", "..": "\uff0e\uff0e"}
_SPELLED = re.compile(f"[\u2400-\u241f\u2421]|\u2039(?:{'|'.join(_BIDI.values())})\u203a")

_FORMER = {code: shown for code, shown in _FOREIGN.items() if code not in _BIDI}
_FORMER |= dict.fromkeys(range(0x80, 0xA0), "\u241b")
"""Character replacements of 0.1.0, which did not replace text direction marks."""

_FULL_WIDTH = 0xFEE0  # from an ASCII character to the full-width form of it
_SPECIAL = frozenset(
    (
        "autoopen",  # media that open a file, by the specification of freedesktop.org
        "autorun",  # and that start a program; with any extension, see `zone_name`
        "autostart",
        "lost+found",
        "desktop.ini",
        "thumbs.db",
        "$recycle.bin",
        "recycler",
        "system volume information",
        "node_modules",  # modules for any script below
        "cvs",
        "_darcs",
    )
)

_BESIDE = re.compile("|".join(map(fnmatch.translate, LOCAL_ONLY)))
WANTED, BESIDE = 1, 2


def stays(name: str) -> int:
    """Return the value that marks a local-only name in a row.

    WANTED: a user's own file, because of a name in `local_only` or because of its folder.  BESIDE:
    a temporary file of a program, because its name matches a default pattern.
    """
    return BESIDE if _BESIDE.match(name) else WANTED


def safe(name: str) -> str:
    """Return the name that a folder shows for the service's `name`; it may be too long."""
    if name in _WHOLE:
        return _WHOLE[name]
    return name.translate(_FOREIGN) if "/" in name or not name.isprintable() else name


def typed(name: str) -> str:
    """Return the canonical spelling of a name that a program uses; it may be too long."""
    return name if name.isprintable() else name.translate(_SHOWN)


def is_respelled(name: str) -> bool:
    """Return True if a shown name has another spelling that programs can use for it."""
    return _SPELLED.search(name) is not None


def zone_name(name: str) -> str:
    """Return the name that the mount's root folder shows for the zone `name`.

    Names that programs treat specially get a full-width first character.  These are names with a
    leading dot (zones are never hidden), names with a leading `-` or `~` (a shell's `*` would pass
    them as an option or a home folder) and some others.
    """
    shown = safe(name)
    lower = shown.lower()
    if lower.startswith((".", "-", "~", "autorun.")) or lower in _SPECIAL:
        return chr(ord(shown[0]) + _FULL_WIDTH) + shown[1:]
    return shown


def renewed(name: str, remote_name: str | None, *, zone: bool) -> str:
    """Return the current form of a name that 0.1.0 showed as `name`; possibly `name` itself.

    The caller checks that the result is free and short enough.
    """
    show = zone_name if zone else safe
    if remote_name is not None and name == remote_name.translate(_FORMER):
        return show(remote_name)
    return show(name)


def may_be_renewed(name: str) -> bool:
    """Return True if `renewed` could change the shown name `name`.  This is a fast test."""
    return not name.isprintable() or "\u241b" in name


def fits(name: str) -> bool:
    """Return True if a local name is short enough for the kernel."""
    return len(name) * 4 <= MAX_BYTES or len(name.encode()) <= MAX_BYTES


def shows(local: str, name: str, entry_id: str) -> bool:
    """Return True if `local` is a shown form of the service's `name`, now or in 0.1.0."""
    shown = safe(name)
    return (
        local == shown
        or local in _marked(shown, entry_id)
        or (shown != name and local == name.translate(_FORMER))
    )


def may_show(name: str) -> Callable[[str], bool]:
    """Return a predicate that quickly tells whether a local name may be a shown form of `name`.

    `name` is the service's name.  The predicate has false positives, but no false negatives.
    """
    shown = safe(name)
    beginning = (shown.rpartition(".")[0] or shown)[: MAX_BYTES // 8]  # of what a mark leaves
    return lambda local: local == shown or (local.startswith(beginning) and "~" in local)


def local_name(
    name: str, entry_id: str, taken: Container[str], *, show: Callable[[str], str] = safe
) -> str:
    """Return the name that a folder with the names `taken` shows for the entry.

    `show` is `zone_name` for a zone at the top of the mount.
    """
    shown = show(name)
    if fits(shown) and shown not in taken:
        return shown
    for marked in _marked(shown, entry_id):
        if marked not in taken:
            return marked
    raise AssertionError("two entries of one id")


def _marked(shown: str, entry_id: str) -> list[str]:
    """Return the shown name with marks for this entry, shortest first."""
    digest = hashlib.sha256(entry_id.encode("utf-8", "surrogatepass")).hexdigest()
    return [with_mark(shown, f"~{digest[:digits]}") for digits in (8, 16, 64)]


def with_mark(name: str, mark: str) -> str:
    """Return `name` with `mark` before its extension, truncated to MAX_BYTES."""
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > 20:
        stem, dot, extension = name, "", ""
    room = MAX_BYTES - len(f"{mark}{dot}{extension}".encode())
    return f"{_cut(stem, room)}{mark}{dot}{extension}"


def _cut(text: str, size: int) -> str:
    """Return the longest prefix of `text` that takes at most `size` bytes of UTF-8."""
    return text.encode()[:size].decode("utf-8", "ignore")


_ASIDE = re.compile(r"\.zonedrive-\d+-\d+")


def aside_name(ino: int, seq: int) -> str:
    """Return the temporary remote name of an entry while another one takes its place."""
    return f".zonedrive-{ino}-{seq}"


def is_aside(name: str | None) -> bool:
    """Return True if a remote name is a temporary name that any machine has given."""
    return bool(_ASIDE.fullmatch(name or ""))
