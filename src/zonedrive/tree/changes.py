"""How often what is in a folder has changed, for those who keep what they made of it.

Must not know what changed.  The numbers mean nothing but that a greater one is later.
"""

FOLDERS = 20_000  # so many have a number of their own


class Changes:
    """A number by folder that only grows."""

    def __init__(self) -> None:
        self._latest = 0
        self._floor = 0  # of all folders that have no number of their own
        self._numbers: dict[int, int] = {}

    def of(self, folder: int) -> int:
        """The number of now."""
        return self._numbers.get(folder, self._floor)

    def count(self, folder: int) -> None:
        """Something changed there."""
        self._latest += 1
        if len(self._numbers) >= FOLDERS and folder not in self._numbers:
            self._numbers.clear()
            self._floor = self._latest
        self._numbers[folder] = self._latest
