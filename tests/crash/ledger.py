"""Possible contents of a folder after the daemon died, from the confirmed calls.

Knows no daemon.  A call that has returned has taken effect.  A call that the death interrupted has
taken effect completely or not at all.  So there are at most two possible states at any time.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

_MARK = re.compile(r" \(conflict, [^)]*\)")


@dataclass(frozen=True)
class File:
    """File, or folder (no content), as it should be on the service in the end."""

    content: bytes | None
    id: str | None = None  # the service's, where the file must keep it
    versions: int = 1


State = Mapping[str, File]
"""Files by path, below the folder of the test."""


class Ledger:
    """Possible states of one folder."""

    def __init__(self, state: State) -> None:
        self.possible: list[State] = [dict(state)]

    @property
    def now(self) -> State:
        """Return the newest state."""
        return self.possible[-1]

    @contextmanager
    def change(self, new: State) -> Iterator[None]:
        """Record a block that leads to `new`, or raises OSError because the daemon died."""
        self.possible.append(dict(new))
        yield
        self.possible = [dict(new)]

    def saved(self, name: str, content: bytes, *, again: bool = False) -> State:
        """Return the state after `name` gets that content; `again`: in the version not sent yet."""
        before = self.now.get(name)
        if before is None:
            return {**self.now, name: File(content)}
        versions = before.versions + (not again)
        return {**self.now, name: replace(before, content=content, versions=versions)}

    def without(self, name: str) -> State:
        """Return the state without `name`."""
        return {path: file for path, file in self.now.items() if path != name}

    def moved(self, old: str, new: str) -> State:
        """Return the state after a rename; a file that has the name `new` gets the content."""
        file, there = self.now[old], self.now.get(new)
        if there is not None:
            file = replace(there, content=file.content, versions=there.versions + 1)
        return {**self.without(old), new: file}

    def allows(self, tree: Mapping[str, bytes | None]) -> list[State]:
        """Return the possible states that agree with these contents of a folder."""
        found = {plain(path): content for path, content in tree.items()}
        return [
            state
            for state in self.possible
            if {path: file.content for path, file in state.items()} == found
        ]


def plain(path: str) -> str:
    """Return the path with a plain conflict mark, without user and time."""
    return _MARK.sub(" (conflict)", path)
