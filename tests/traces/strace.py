"""Conversion of strace's log of a program to the steps of a trace.

Knows nothing of the recorded program or folder.  One file of the log for each thread (`-ff`), every
call with its time (`-ttt`), the paths of descriptors (`-y`), and texts in hexadecimal (`-xx`).

INVARIANT: calls on anything outside the folder leave no step.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.traces.trace import Step, content

OPTIONS = (
    "-f", "-ff", "-ttt", "-y", "-xx", "-s", "4000000", "--seccomp-bpf",
    "-e",
    "trace=open,openat,creat,close,close_range,dup,dup2,dup3,fcntl,clone,clone3,fork,vfork,execve,"
    "read,pread64,readv,write,pwrite64,writev,lseek,ftruncate,truncate,fsync,fdatasync,rename,"
    "renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,stat,lstat,newfstatat,statx,access,"
    "faccessat,faccessat2,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,utimensat,"
    "copy_file_range,sendfile,chdir,fchdir,setxattr,fsetxattr,lsetxattr,mmap",
)  # fmt: skip

_LINE = re.compile(r"^(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\d+|\?)(?:<[^>]*>)?(?: (E[A-Z]+) .*)?")
_ARGUMENT = re.compile(r'"((?:\\x..)*)"(?:\.\.\.)?|([^,\[{"]+)|(\[.*?\])|({.*?})')
_HEX = re.compile(r"\\x(..)")
_PIECE = re.compile(r'iov_base="((?:\\x..)*)"')
_TIME = re.compile(r"UTIME_NOW|UTIME_OMIT|tv_sec=(\d+)[^,]*, tv_nsec=(\d+)")
FLAGS = (
    "O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_NOFOLLOW",
    "O_TMPFILE",
)  # fmt: skip
MAY_WRITE = ("O_WRONLY", "O_RDWR")


def _unhex(text: str) -> bytes:
    return bytes.fromhex("".join(_HEX.findall(text)))


def _arguments(text: str) -> list[Any]:
    """Return the arguments: texts as bytes, everything else as strace wrote it."""
    found: list[Any] = []
    for match in _ARGUMENT.finditer(text):
        if match[1] is not None:
            found.append(_unhex(match[1]))
        elif (match[2] or "").strip() or match[2] is None:
            found.append(match[0].strip())
    return found


class File:
    """Open file description."""

    def __init__(self, number: int, path: str, flags: Sequence[str]) -> None:
        self.number = number
        self.path = path
        self.flags = flags
        self.offset = 0
        self.holders = 1  # descriptors of it in all processes


class Process:
    """State that threads share: descriptors and the working directory."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: dict[int, tuple[File, bool]] = {}  # with whether it ends at exec

    def forked(self) -> "Process":
        """Return the state of a child."""
        child = Process(self.folder)
        child.files = dict(self.files)
        for file, _ in child.files.values():
            file.holders += 1
        return child


class Reading:
    """State while a log is read."""

    def __init__(self, folder: Path) -> None:
        self._root = os.fspath(folder)
        self._processes: dict[int, Process] = {}
        self._numbers = 0
        self.steps: list[Step] = []
        self.lost: list[str] = []  # what no trace can hold

    def read(self, log: Path) -> None:
        """Read every line of the log's files, in the order of time."""
        lines: list[tuple[float, int, str]] = []
        for path in sorted(log.parent.glob(log.name + ".*")):
            pid = int(path.suffix[1:])
            for line in path.read_text("ascii", "replace").splitlines():
                lines.append((float(line.split(" ", 1)[0]), pid, line))
        lines.sort(key=lambda line: line[0])
        self._began = lines[0][0]
        for when, pid, line in lines:
            self._now = round((when - self._began) * 1000)
            process = self._processes.setdefault(pid, Process(self._root))
            if "+++ " in line:
                self._ended(pid)
            elif match := _LINE.match(line):
                _, call, arguments, result, error = match.groups()
                handler = getattr(self, f"_{call}", None)
                if handler is not None and result != "?":
                    handler(process, _arguments(arguments), int(result), error or "", arguments)

    # ---- what is noted ----

    def _note(self, error: str, *call: object) -> None:
        if call[0] == "stat" and self.steps and self.steps[-1].call == list(call):
            return
        self.steps.append(Step(list(call), self._now, error))

    def _inside(self, process: Process, where: Any, path: bytes) -> str | None:
        """Return the name relative to the folder; None if it is outside."""
        base = process.folder
        if isinstance(where, str) and (match := re.search(r"<(.*)>", where)):
            base = _unhex(match[1]).decode()
        full = os.path.normpath(f"{Path(base) / os.fsdecode(path)}")
        if full == self._root:
            return "."
        inside = full.startswith(self._root + "/")
        return full[len(self._root) + 1 :] if inside else None

    def _file(self, process: Process, descriptor: Any) -> File | None:
        number = int(str(descriptor).split("<", 1)[0])
        found = process.files.get(number)
        return found[0] if found else None

    # ---- descriptors ----

    def _openat(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        path = self._inside(process, a[0], a[1])
        if path is None or "O_DIRECTORY" in a[2] or "O_PATH" in a[2]:
            return
        flags = [flag for flag in a[2].split("|") if flag in FLAGS]
        mode = int(a[3], 8) if len(a) > 3 else 0
        if error:
            self._note(error, "open", path, "|".join(flags), mode, 0)
            return
        self._numbers += 1
        self._note("", "open", path, "|".join(flags), mode, self._numbers)
        process.files[result] = (File(self._numbers, path, flags), "O_CLOEXEC" in a[2])

    def _open(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._openat(process, ["", *a], *rest)

    def _creat(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._openat(process, ["", a[0], "O_WRONLY|O_CREAT|O_TRUNC", a[1]], *rest)

    def _close(self, process: Process, a: list[Any], *_: Any) -> None:
        self._let_go(process, int(a[0].split("<", 1)[0]))

    def _close_range(self, process: Process, a: list[Any], *_: Any) -> None:
        for number in [each for each in process.files if int(a[0]) <= each <= int(a[1])]:
            self._let_go(process, number)

    def _let_go(self, process: Process, number: int) -> None:
        file, _ = process.files.pop(number, (None, False))
        if file is not None:
            file.holders -= 1
            if not file.holders:
                self._note("", "close", file.number)

    def _dup(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if error or result == int(a[0].split("<", 1)[0]):
            return
        self._let_go(process, result)
        if file is not None:
            file.holders += 1
            process.files[result] = (file, "O_CLOEXEC" in a[-1] or "F_DUPFD_CLOEXEC" in a[-1])

    _dup2 = _dup3 = _dup

    def _fcntl(self, process: Process, a: list[Any], result: int, error: str, text: str) -> None:
        if "F_DUPFD" in text:
            self._dup(process, [a[0], a[1]], result, error, text)
        elif "F_SETFD" in text and (file := self._file(process, a[0])):
            process.files[int(a[0].split("<", 1)[0])] = (file, "FD_CLOEXEC" in text)

    def _clone(self, process: Process, a: list[Any], result: int, error: str, text: str) -> None:
        if not error:
            self._processes[result] = process if "CLONE_FILES" in text else process.forked()

    _clone3 = _fork = _vfork = _clone

    def _execve(self, process: Process, a: list[Any], result: int, *_: Any) -> None:
        for number in [each for each, (_, ends) in process.files.items() if ends and not result]:
            self._let_go(process, number)

    def _ended(self, pid: int) -> None:
        process = self._processes.pop(pid)
        if process not in self._processes.values():
            for number in list(process.files):
                self._let_go(process, number)

    def _chdir(self, process: Process, a: list[Any], result: int, *_: Any) -> None:
        if not result:
            process.folder = os.fspath(Path(process.folder) / os.fsdecode(a[0]))

    def _fchdir(self, process: Process, a: list[Any], result: int, *_: Any) -> None:
        if not result and (match := re.search(r"<(.*)>", a[0])):
            process.folder = _unhex(match[1]).decode()

    # ---- bytes ----

    def _read(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if file is None or error:
            return
        last = self.steps[-1] if self.steps else None
        if last and last.call[:2] == ["read", file.number] and sum(last.call[2:]) == file.offset:
            last.call[3] += result
        elif result:
            self._note("", "read", file.number, file.offset, result)
        file.offset += result

    _readv = _read

    def _pread64(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if file is not None and not error:
            self._note("", "read", file.number, int(a[-1]), result)

    def _put(self, file: File, data: bytes, error: str) -> None:
        if "O_APPEND" in file.flags:
            self._note(error, "append", file.number, content(data))
        else:
            self._note(error, "write", file.number, file.offset, content(data))
            file.offset += 0 if error else len(data)

    def _write(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if file is not None:
            self._put(file, a[1] if error else a[1][:result], error)

    def _writev(self, process: Process, a: list[Any], result: int, error: str, text: str) -> None:
        file = self._file(process, a[0])
        if file is not None:
            self._put(file, b"".join(_unhex(piece) for piece in _PIECE.findall(text)), error)

    def _pwrite64(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if file is not None:
            self._note(error, "write", file.number, int(a[3]), content(a[1]))

    def _copied(self, process: Process, target: Any, result: int, error: str) -> None:
        """Copy bytes that strace did not log."""
        file = self._file(process, target)
        if file is not None and not error and result:
            self.steps.append(Step(["write", file.number, file.offset, [result, 7]], self._now))
            file.offset += result

    def _copy_file_range(self, p: Process, a: list[Any], result: int, error: str, _: str) -> None:
        self._copied(p, a[2], result, error)

    def _sendfile(self, p: Process, a: list[Any], result: int, error: str, _: str) -> None:
        self._copied(p, a[0], result, error)

    def _lseek(self, process: Process, a: list[Any], result: int, error: str, _: str) -> None:
        file = self._file(process, a[0])
        if file is not None and not error:
            file.offset = result

    def _ftruncate(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if file := self._file(process, a[0]):
            self._note(error, "ftruncate", file.number, int(a[1]))

    def _fsync(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if file := self._file(process, a[0]):
            self._note(error, "fsync", file.number)

    _fdatasync = _fsync

    def _mmap(self, process: Process, a: list[Any], _r: int, error: str, text: str) -> None:
        if "PROT_WRITE" in text and "MAP_SHARED" in text and "<" in text:
            file = self._file(process, next(each for each in a if "<" in str(each)))
            if file is not None:
                self.lost.append(f"a shared mapping of {file.path}")

    # ---- names ----

    def _named(self, call: str, process: Process, where: Any, path: bytes, error: str) -> None:
        if (name := self._inside(process, where, path)) is not None and name != ".":
            self._note(error, call, name)

    def _stat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        self._named("stat", process, "", a[0], error)

    _lstat = _access = _stat

    def _newfstatat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if a[1]:
            self._named("stat", process, a[0], a[1], error)

    _statx = _faccessat = _faccessat2 = _newfstatat

    def _unlinkat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        call = "rmdir" if "AT_REMOVEDIR" in a[2] else "unlink"
        self._named(call, process, a[0], a[1], error)

    def _unlink(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        self._named("unlink", process, "", a[0], error)

    def _rmdir(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        self._named("rmdir", process, "", a[0], error)

    def _mkdirat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if (name := self._inside(process, a[0], a[1])) not in (None, "."):
            self._note(error, "mkdir", name, int(a[2], 8))

    def _mkdir(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._mkdirat(process, ["", *a], *rest)

    def _renameat2(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        old, new = self._inside(process, a[0], a[1]), self._inside(process, a[2], a[3])
        if old and new:
            flags = a[4] if len(a) > 4 and a[4] != "0" else ""
            self._note(error, "rename", old, new, flags)

    _renameat = _renameat2

    def _rename(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._renameat2(process, ["", a[0], "", a[1]], *rest)

    def _linkat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        old, new = self._inside(process, a[0], a[1]), self._inside(process, a[2], a[3])
        if old and new:
            self._note(error, "link", old, new)

    def _link(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._linkat(process, ["", a[0], "", a[1]], *rest)

    def _symlinkat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if name := self._inside(process, a[1], a[2]):
            self._note(error, "symlink", "elsewhere", name)

    def _symlink(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._symlinkat(process, [a[0], "", a[1]], *rest)

    # ---- attributes ----

    def _fchmodat(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if (name := self._inside(process, a[0], a[1])) not in (None, "."):
            self._note(error, "chmod", name, int(a[2], 8))

    def _chmod(self, process: Process, a: list[Any], *rest: Any) -> None:
        self._fchmodat(process, ["", *a], *rest)

    def _fchmod(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if file := self._file(process, a[0]):
            self._note(error, "fchmod", file.number, int(a[1], 8))

    def _utimensat(self, process: Process, a: list[Any], _r: int, error: str, text: str) -> None:
        times = [
            None if sec == "" else int(sec) * 10**9 + int(nsec)
            for sec, nsec in list(_TIME.findall(text))[:2]
        ] or [None, None]
        if isinstance(a[1], bytes):
            if (name := self._inside(process, a[0], a[1])) not in (None, "."):
                self._note(error, "utime", name, *times)
        elif file := self._file(process, a[0]):
            self._note(error, "futime", file.number, *times)

    def _setxattr(self, process: Process, a: list[Any], _r: int, error: str, _: str) -> None:
        if name := self._inside(process, "", a[0]):
            self._note(error, "setxattr", name, a[1].decode(), content(a[2]))

    _lsetxattr = _setxattr


def read(log: Path, folder: Path) -> tuple[list[Step], list[str]]:
    """Return the steps in a log that concern `folder`, and calls that do not fit a trace."""
    reading = Reading(folder)
    reading.read(log)
    return list(_without_idle(reading.steps)), reading.lost


def _without_idle(steps: list[Step]) -> Iterator[Step]:
    """Yield the steps without repeated stats, and without files opened for attributes only."""
    used = {step.call[1] for step in steps if isinstance(step.call[1], int)}
    worked = {
        step.call[1] for step in steps if step.call[0] != "close" and isinstance(step.call[1], int)
    }
    for step in steps:
        call = step.call
        idle = call[0] == "open" and not step.error and call[4] in used - worked
        if idle and not {"O_CREAT", "O_TRUNC", *MAY_WRITE} & set(call[2].split("|")):
            worked.discard(call[4])
            used.discard(call[4])
            continue
        if call[0] == "close" and call[1] not in used:
            continue
        yield step
