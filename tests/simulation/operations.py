"""Operations of the exhaustive cases: system calls, and their effect on the oracle.

A save pattern is one operation. `PATTERNS` says which one repeats each recording in tests/traces.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tests.harness.in_process import EXCHANGE
from tests.simulation.oracle import Node, Oracle, is_below

FOLDERS = ("left", "right")
FILES = ("left/one.txt", "left/two.txt", "right/one.txt", "right/two.txt")
STARTS = {
    "both": ("left", "right", FILES[0], FILES[3]),  # a file in each of both folders
    "one": ("left", FILES[0], FILES[1]),  # two files in one folder
}
"""Entries of the service at the beginning."""
DRAFT = "draft.txt"
CREATED = os.O_WRONLY | os.O_CREAT
EMPTIED = CREATED | os.O_TRUNC

PATTERNS = {
    "create": "cp-new libreoffice-convert mv-new",
    "rewrite": "cp-over emacs-by-copying emacs-no-backup nano nano-backup python-write",
    "rewrite_in_place": "vim-backupcopy-yes vim-plain",
    "write": "dd-conv-notrunc rsync-inplace",
    "append": "echo-append python-append-fsync rsync-append",
    "save_over": "git keepassxc libreoffice-store mousepad perl-i rsync rsync-a rsync-big"
    " rsync-delay-updates sed-i",
    "save_aside": "vim vim-typed vim-writebackup-no",
    "save_backup": "emacs emacs-typed sed-i-backup vim-backupcopy-auto vim-backupcopy-no",
    "save_again": "git-work-tree install mv-over tar-x",
}
"""Recordings by the operation that repeats them."""


@dataclass(frozen=True)
class Operation:
    """One operation of a program."""

    verb: str
    path: str
    other: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.verb, self.path, self.other) if part)

    def mirrored(self, start: str) -> "Operation":
        """Return the operation as it is after the exchange that leaves the start unchanged."""
        swapped = _SWAPPED[start]
        path, other = (
            "/".join(swapped.get(part, part) for part in each.split("/"))
            for each in (self.path, self.other)
        )
        if self.verb == "exchange":
            path, other = sorted((path, other))
        return Operation(self.verb, path, other)


@dataclass(frozen=True)
class Call:
    """System call, and the oracle after its success."""

    name: str
    arguments: tuple[object, ...]
    after: Oracle
    is_refused: bool = False  # by the profile
    during: tuple[Oracle, ...] = ()  # which a death may leave, besides those before and after


FD = object()
"""Placeholder for the descriptor of the last open(2)."""
_NAMES = {"one.txt": "two.txt", "two.txt": "one.txt"}
_SWAPPED = {"both": {"left": "right", "right": "left"} | _NAMES, "one": _NAMES}


def planted(path: str) -> bytes | None:
    """Return the content of an entry at the beginning, None for a folder."""
    return f"planted at {path} with some more text\n".encode() if path in FILES else None


def beginning(start: str) -> Oracle:
    """Return the oracle of a start."""
    tree = {
        path: Node(planted(path), frozenset({number}), path)
        for number, path in enumerate(STARTS[start], 1)
    }
    return Oracle(tree, frozenset(range(1, len(tree) + 1)), last=len(tree))


def possible(oracle: Oracle) -> Iterator[Operation]:
    """Yield the operations that are possible: sources exist, and targets are free."""
    tree = oracle.tree
    files = [path for path in FILES if path in tree]
    free = [path for path in FILES if path not in tree and path.partition("/")[0] in tree]
    for path in free:
        yield Operation("create", path)
    for path in files:
        for verb in ("rewrite", "rewrite_in_place", "redirect", "write", "append", "truncate",
                     "save_over", "save_over_open", "save_aside", "save_backup", "save_again",
                     "unlink"):  # fmt: skip
            yield Operation(verb, path)
        for other in (*files, *free):
            if other != path:
                yield Operation("rename", path, other)
            if other in files and path < other:
                yield Operation("exchange", path, other)
    for folder, other in (FOLDERS, FOLDERS[::-1]):
        if folder not in tree:
            yield Operation("mkdir", folder)
            continue
        is_empty = not any(is_below(path, folder) and path != folder for path in tree)
        is_other_empty = not any(is_below(path, other) and path != other for path in tree)
        if is_empty:
            yield Operation("rmdir", folder)
        if is_other_empty:
            yield Operation("move_folder", folder, other)
        if other in tree and f"{other}/{folder}" not in tree:
            yield Operation("move_folder", folder, f"{other}/{folder}")


class Planned:
    """System calls of one operation, with the oracle after each."""

    def __init__(self, oracle: Oracle, profile: str) -> None:
        self.oracle = oracle
        self.calls: list[Call] = []
        self._is_published = profile == "published"

    def plan(self, operation: Operation, number: int) -> None:
        """Add the calls; `number` makes the content of each operation different."""
        path, other = operation.path, operation.other
        node = self.oracle.tree.get(path)
        old = (node.content if node else None) or b""
        new = f"{number} {operation.verb} {path} with some more text\n".encode()
        match operation.verb:
            case "mkdir":
                self._add("mkdir", path, after=self.oracle.made(path), is_refused=True)
            case "rmdir":
                self._add("rmdir", path, after=self.oracle.removed(path), is_refused=True)
            case "create":
                self._save(path, new, CREATED | os.O_EXCL)
            case "rewrite":
                self._save(path, new, EMPTIED, is_synced=True)
            case "rewrite_in_place":
                after = self.oracle.saved(path, new)
                self._add("open", path, CREATED)
                self._add("ftruncate", FD, 0)
                self._add("write", FD, new)
                self._add("fsync", FD, after=after)
                self._add("close", FD, after=after)
            case "redirect":
                self._add("open", path, EMPTIED)
                self._add("close_duplicate", FD)
                self._add("write", FD, new)
                self._add("close", FD, after=self.oracle.saved(path, new))
            case "write":
                piece = f"{number} write".encode()
                self._save(path, piece, os.O_RDWR, then=piece + old[len(piece) :])
            case "append":
                self._save(path, new, CREATED | os.O_APPEND, then=old + new)
            case "truncate":
                size = max(0, len(old) - 1 - number)
                self._add("truncate", path, size, after=self.oracle.saved(path, old[:size]))
            case "save_over":
                draft = f"{path.partition('/')[0]}/{DRAFT}"
                self._save(draft, new, EMPTIED)
                self._rename(draft, path)
            case "save_over_open":
                draft = f"{path.partition('/')[0]}/{DRAFT}"
                self._add("open", draft, EMPTIED)
                self._add("write", FD, new)
                saved = self.oracle.saved(draft, new)
                self._add("rename", draft, path, after=saved.renamed(draft, path), during=(saved,))
                self._add("close", FD)
            case "save_aside" | "save_backup":
                self._rename(path, f"{path}~")
                self._save(path, new, CREATED | os.O_EXCL, is_synced=True)
                if operation.verb == "save_aside":
                    self._unlink(f"{path}~")
            case "save_again":
                self._unlink(path)
                self._save(path, new, CREATED | os.O_EXCL)
            case "unlink":
                self._unlink(path)
            case "rename" | "move_folder":
                self._rename(path, other)
            case "exchange":
                self._add("rename", path, other, EXCHANGE,
                          after=self.oracle.exchanged(path, other),
                          is_refused=self._is_sent(path) or self._is_sent(other))  # fmt: skip

    def _add(
        self,
        name: str,
        *arguments: object,
        after: Oracle | None = None,
        is_refused: bool = False,
        during: tuple[Oracle, ...] = (),
    ) -> None:
        after = after or self.oracle
        call = Call(name, arguments, after, is_refused and self._is_published, during)
        if not (self.calls and self.calls[-1].is_refused):
            self.calls.append(call)
            self.oracle = self.oracle if call.is_refused else after

    def _save(
        self, path: str, data: bytes, flags: int, *, then: bytes = b"", is_synced: bool = False
    ) -> None:
        if self.calls and self.calls[-1].is_refused:
            return
        after = self.oracle.saved(path, then or data)
        self._add("open", path, flags)
        self._add("write", FD, data)
        if is_synced:
            self._add("fsync", FD, after=after)
        self._add("close", FD, after=after)

    def _rename(self, path: str, other: str) -> None:
        if path in self.oracle.tree:
            after = self.oracle.renamed(path, other)
            self._add("rename", path, other, after=after, is_refused=self._is_sent(path))

    def _unlink(self, path: str) -> None:
        if path in self.oracle.tree:
            after = self.oracle.removed(path)
            self._add("unlink", path, after=after, is_refused=self._is_sent(path))

    def _is_sent(self, path: str) -> bool:
        return bool(self.oracle.tree[path].origin)


def planned(oracle: Oracle, operation: Operation, number: int, profile: str) -> list[Call]:
    """Return the system calls of an operation."""
    plan = Planned(oracle, profile)
    plan.plan(operation, number)
    return plan.calls


def after(oracle: Oracle, operation: Operation, number: int, profile: str) -> Oracle:
    """Return the oracle after an operation."""
    plan = Planned(oracle, profile)
    plan.plan(operation, number)
    return plan.oracle
