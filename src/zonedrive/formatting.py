"""Formatting of sizes, counts and times for people, and replacement of control characters."""

from collections.abc import Mapping
from datetime import UTC, datetime

from zonedrive.translation import marked

_BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_PLAIN = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), _REPLACED)
_PLAIN |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _REPLACED)
_PLAIN |= dict.fromkeys(range(0xD800, 0xE000), _REPLACED)  # surrogates: not valid UTF-8
_PLAIN |= {ord(char): " " for char in _BREAKS}


def amount(size: float) -> str:
    """Return a size in bytes with a readable unit: `5 bytes`, `3.4 MiB`, `12 GiB`."""
    if size < 1024:
        return count(round(size), "byte")
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"


def count(number: int, thing: str, things: str = "") -> str:
    """Return a string such as `2 files`; `things` is the plural, by default `thing` with an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"


def unsent(left: Mapping[str, int]) -> str:
    """Return a string such as `2 files (5 bytes) and 1 change (new folders, renames, removals)`.

    A part with the number 0 is omitted. The keys of `left` are `files` (number of all pending
    changes), `bytes` (size of the content to send) and, optionally, `changes` (number of pending
    changes without content).
    """
    changes = left.get("changes", 0)
    others = marked(f"{count(changes, 'change')} (new folders, renames, removals)")
    if not (files := left["files"] - changes):
        return others if changes else ""
    said = f"{count(files, 'file')} ({amount(left['bytes'])})"
    if not changes:
        return said
    return marked(f"{said} and {count(changes, 'change')} (new folders, renames, removals)")


def not_sent(left: Mapping[str, int]) -> str:
    """Return a string such as `2 files (5 bytes) are not on the service yet`; see `unsent`."""
    return f"{unsent(left)} {verb(left['files'])} not on the service yet"


def saved(number: int) -> str:
    """Return a string such as `2 files in lost+found are only on this machine`.

    The names of such files were lost when the database was damaged.
    """
    return marked(f"{count(number, 'file')} in lost+found {verb(number)} only on this machine")


def verb(number: int) -> str:
    """Return "is" if `number` is 1, else "are"."""
    return "is" if number == 1 else "are"


def timestamp(ns: int) -> str:
    """Return a time in nanoseconds since the epoch as ISO 8601 in UTC, in whole seconds."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds")


def local_time(seconds: float) -> str:
    """Return a time in seconds since the epoch as `YYYY-MM-DD HH:MM:SS` in the local time zone."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def plain(text: str) -> str:
    """Return `text` on one line, with control characters and text direction overrides replaced.

    The result cannot control a terminal, a log, a bus or a service manager. This function does not
    define how file names are shown; see `state.names`.
    """
    return text if text.isprintable() else text.translate(_PLAIN)


def plain_text(text: str, limit: int = 200) -> str:
    """Return `text` on one line, shortened to `limit` characters.

    Control characters are replaced, and other characters that cannot be printed are removed.
    """
    clean = "".join(char for char in plain(text[: limit * 8]) if char.isprintable())
    clean = " ".join(clean.split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
