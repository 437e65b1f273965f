"""What a check says.

Must not know any check.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zonedrive.daemon.checkup.patient import Patient


@dataclass(frozen=True)
class Finding:
    """One result: a sentence on what is, and, where something is wrong, what to do."""

    ok: bool
    detail: str
    remedy: str = ""


Check = Callable[[Patient], Finding | None]


def size(amount: float) -> str:
    """Bytes as a person reads them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
