"""How many and how much, in words: the same in commands, notifications, status lines and reports.

Knows nothing of what is counted.
"""

from collections.abc import Mapping


def amount(size: float) -> str:
    """Bytes as a person reads them: `5 bytes`, `3.4 MiB`, `12 GiB`."""
    if size < 1024:
        return count(round(size), "byte")
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"


def count(number: int, thing: str, things: str = "") -> str:
    """`1 file`, `2 files`; `things` where the plural is not made with an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"


def unsent(left: Mapping[str, int]) -> str:
    """What waits to be sent: `2 files (5 bytes) and 1 change (new folders, renames, removals)`.

    `left` has `files`, how many wait at all, `bytes`, and `changes`, how many of them are no bytes
    that are only here.
    """
    changes = left.get("changes", 0)
    said = []
    if files := left["files"] - changes:
        said.append(f"{count(files, 'file')} ({amount(left['bytes'])})")
    if changes:
        said.append(f"{count(changes, 'change')} (new folders, renames, removals)")
    return " and ".join(said)


def saved(number: int) -> str:
    """What a damaged database left behind without a name: only this machine has it."""
    return f"{count(number, 'file')} in lost+found {verb(number)} only on this machine"


def verb(number: int) -> str:
    """What comes after so many."""
    return "is" if number == 1 else "are"
