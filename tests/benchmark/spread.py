"""Median of repeated measurements, with the lowest and highest value."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest value of a number of values."""

    median: float
    low: float
    high: float
    times: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of at least one value."""
        return cls(median(values), min(values), max(values), len(values))

    def is_apart(self, other: "Spread") -> bool:
        """Return True if no value of one lies within the values of the other."""
        return self.high < other.low or other.high < self.low

    def shown(self, digits: int, unit: str = "", *, usual: int = 5) -> str:
        """Return the median with its unit, the range, and the number of values if it differs."""
        text = f"{self.median:,.{digits}f} {unit}".strip()
        if self.times == 1:
            return text if usual == 1 else f"{text} (once)"
        between = f"{self.low:,.{digits}f}–{self.high:,.{digits}f}"
        return (
            f"{text} ({between})" if self.times == usual else f"{text} ({between}, {self.times}x)"
        )
