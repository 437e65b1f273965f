"""Formatting of amounts, shared by commands, notifications, status lines and reports.

Knows nothing about the counted things.
"""

from collections.abc import Mapping


def amount(size: float) -> str:
    """Return a size in readable units: `5 bytes`, `3.4 MiB`, `12 GiB`."""
    if size < 1024:
        return count(round(size), "byte")
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"


def count(number: int, thing: str, things: str = "") -> str:
    """Return `1 file` or `2 files`; `things` is the plural if it does not end in s."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"


def unsent(left: Mapping[str, int]) -> str:
    """Return `2 files (5 bytes) and 1 change (new folders, renames, removals)` or a part of it.

    `left` has `files`, the number of all pending changes, `bytes`, and `changes`, the number of
    pending changes without content.
    """
    changes = left.get("changes", 0)
    said = []
    if files := left["files"] - changes:
        said.append(f"{count(files, 'file')} ({amount(left['bytes'])})")
    if changes:
        said.append(f"{count(changes, 'change')} (new folders, renames, removals)")
    return " and ".join(said)


def saved(number: int) -> str:
    """Return the number of recovered files in lost+found as a sentence.

    These files were in a damaged database, and exist only on this machine.
    """
    return f"{count(number, 'file')} in lost+found {verb(number)} only on this machine"


def verb(number: int) -> str:
    """Return "is" or "are" for a number."""
    return "is" if number == 1 else "are"
