"""How many and how much, in words: the same in commands, notifications, status lines and reports.

Knows nothing of what is counted.
"""


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
