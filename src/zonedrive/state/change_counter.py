"""Change counters of folders, used by caches of folder listings.

Knows nothing about the kind of a change.  A greater number is later; the numbers have no other
meaning.
"""

FOLDERS = 20_000  # most folders with a counter of their own


class ChangeCounter:
    """Change counters by folder."""

    def __init__(self) -> None:
        self._latest = 0
        self._floor = 0  # of all folders that have no number of their own
        self._numbers: dict[int, int] = {}

    def of(self, folder: int) -> int:
        """Return the folder's current change counter."""
        return self._numbers.get(folder, self._floor)

    def count(self, folder: int) -> None:
        """Increment the folder's change counter."""
        self._latest += 1
        if len(self._numbers) >= FOLDERS and folder not in self._numbers:
            self._numbers.clear()
            self._floor = self._latest
        self._numbers[folder] = self._latest
