"""Player that repeats the recorded operations of a program on a folder.

Knows only the folder.  Calls that were refused are repeated and must be refused again, because the
later calls depend on that; a folder that refuses nothing, such as a temporary one, does not get
these calls.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.traces.trace import Step, Trace, expand


def prepare(folder: Path, trace: Trace) -> None:
    """Create the folder's content at the start of the program."""
    for name, kept in sorted(trace.before.items()):
        path = folder / name
        if kept is None:
            path.mkdir(parents=True)
        else:
            path.write_bytes(expand(kept))


class Player:
    """Open files of a program whose calls are repeated in `folder`."""

    def __init__(self, folder: Path, *, refuses: bool, system: Any = os) -> None:
        """Set the folder; `refuses`: the folder must refuse the same calls as the recorded one.

        `system` has the functions of `os` for this folder.
        """
        self._folder, self._system = folder, system
        self._refuses = refuses
        self._files: dict[int, int] = {}

    def play(self, trace: Trace) -> Iterator[Step]:
        """Repeat the steps one after the other; yield each one after it is done."""
        try:
            for step in trace.steps:
                if not step.error:
                    self._call(step)
                elif self._refuses:
                    self._refused(step)
                yield step
        finally:
            for descriptor in self._files.values():
                self._system.close(descriptor)
            self._files.clear()

    def _refused(self, step: Step) -> None:
        try:
            self._call(step)
        except OSError as refusal:
            found = errno.errorcode[refusal.errno or 0]
            same = {found, step.error} == {"ENOTSUP", "EOPNOTSUPP"}
            assert found == step.error or same, f"{step.call}: {found} instead of {step.error}"
        else:
            raise AssertionError(f"{step.call} was {step.error} and is not refused any more")

    def _call(self, step: Step) -> None:
        name, *arguments = step.call
        action: Callable[..., object] = getattr(self, f"_{name}")
        action(*arguments)

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _open(self, name: str, flags: str, mode: int, file: int) -> None:
        wanted = 0
        for flag in flags.split("|"):
            wanted |= getattr(os, flag)
        descriptor = self._system.open(self._path(name), wanted, mode or 0o644)
        if file:
            self._files[file] = descriptor
        else:
            self._system.close(descriptor)

    def _close(self, file: int) -> None:
        self._system.close(self._files.pop(file))

    def _read(self, file: int, offset: int, length: int) -> None:
        self._system.pread(self._files[file], length, offset)

    def _write(self, file: int, offset: int, kept: Any) -> None:
        data = expand(kept)
        assert self._system.pwrite(self._files[file], data, offset) == len(data)

    def _append(self, file: int, kept: Any) -> None:
        data = expand(kept)
        assert self._system.write(self._files[file], data) == len(data)

    def _ftruncate(self, file: int, size: int) -> None:
        self._system.ftruncate(self._files[file], size)

    def _fsync(self, file: int) -> None:
        self._system.fsync(self._files[file])

    def _truncate(self, name: str, size: int) -> None:
        self._system.truncate(self._path(name), size)

    def _rename(self, old: str, new: str, flags: str) -> None:
        if flags == "RENAME_NOREPLACE" and self._path(new).exists():
            raise FileExistsError(errno.EEXIST, new)
        assert flags in ("", "RENAME_NOREPLACE"), flags
        self._system.rename(self._path(old), self._path(new))

    def _unlink(self, name: str) -> None:
        self._system.unlink(self._path(name))

    def _rmdir(self, name: str) -> None:
        self._system.rmdir(self._path(name))

    def _mkdir(self, name: str, mode: int) -> None:
        self._system.mkdir(self._path(name), mode)

    def _stat(self, name: str) -> None:
        self._system.lstat(self._path(name))

    def _link(self, old: str, new: str) -> None:
        self._system.link(self._path(old), self._path(new))

    def _symlink(self, target: str, name: str) -> None:
        self._system.symlink(target, self._path(name))

    def _chmod(self, name: str, mode: int) -> None:
        self._system.chmod(self._path(name), mode)

    def _fchmod(self, file: int, mode: int) -> None:
        self._system.fchmod(self._files[file], mode)

    def _utime(self, name: str, atime: int | None, mtime: int | None) -> None:
        self._set_times(self._path(name), atime, mtime)

    def _futime(self, file: int, atime: int | None, mtime: int | None) -> None:
        self._set_times(self._files[file], atime, mtime)

    def _setxattr(self, name: str, attribute: str, kept: Any) -> None:
        self._system.setxattr(self._path(name), attribute, expand(kept))

    def _set_times(self, where: Path | int, atime: int | None, mtime: int | None) -> None:
        if mtime is None:
            self._system.utime(where)
        else:
            self._system.utime(where, ns=(mtime if atime is None else atime, mtime))
