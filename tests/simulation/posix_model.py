"""A file system in a dictionary: what a program must see if nobody else works on the same files.

`Model` follows the system calls of the only program in a zone, and says where an answer differs
from that of a local disk. Where a call fails because of the network, the disk or a death, its
effect is unknown, and so are the entries that it was about.
"""

import errno
import os
import stat
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from tests.harness.in_process import EXCHANGE
from tests.model.claims import head

REFUSALS = {
    errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL,
    errno.EPERM, errno.EXDEV,
}  # fmt: skip
"""Errnos of calls that had no effect."""

LOOKS = {"lstat", "fstat", "listdir"}
NAMING = {"rename", "unlink", "mkdir", "rmdir"}

ALONE = "alone: "  # beginning of each finding of the model
EITHER = "either"
"""Id of a file that may continue the history of one of two files."""

SENT, LOCAL, MAYBE = "sent", "local", "maybe"
"""Where a file is: on the service, on the machine alone, or on the service depending on when each
change was sent."""


@dataclass(eq=False)
class Node:
    """A file or a folder."""

    data: bytes | None  # None: a folder
    id: str = ""  # of an entry that was on the service at first
    mtime_ns: int = 0  # 0: not looked at since the last change
    mode: int = 0  # permission bits that a program has set
    is_known: bool = True  # False: its existence and content are unknown
    is_saved: bool = True  # False: changed since the last close or fsync
    made_s: float = field(default_factory=trio.current_time)
    stay: str = SENT
    origin: str = ""  # its path on the service at first


@dataclass(eq=False)
class Descriptor:
    """An open file."""

    node: Node
    flags: int
    position: int = 0


class Model:
    """The names below one folder."""

    def __init__(
        self,
        top: str,
        tree: Mapping[str, tuple[bytes | None, str]],
        settle_s: float = 0.0,
        strays: Container[str] = (),
        late: Container[str] = (),
        stays: Callable[[str], bool] = lambda _path: False,
        *,
        keeps_times: bool = True,
    ) -> None:
        """Begin with the content and service id of each path in `tree`.

        A new file may be on the service after `settle_s`, with a history of its own.  `strays` are
        names that may come back, because the profile cannot remove what has been sent.  `late` are
        the tokens of versions that the service made after the client had given up waiting. `stays`
        returns True for a name of `local_only`. Without `keeps_times`, a saved file may get the
        time of its version.
        """
        self._top, self._settle_s, self._strays = top, settle_s, strays
        self._late, self._stays, self._keeps_times = late, stays, keeps_times
        self._names = {path: Node(data, one, origin=path) for path, (data, one) in tree.items()}
        self._fds: dict[int, Descriptor] = {}
        self._left: dict[str, Node] = {}  # by path: the file that had it, and was moved away
        self._given_up: set[str] = set()  # files that may come back, as edits that were refused
        self._freed: set[str] = set()  # names of `local_only` that files of the service have left
        # By path: the file that was renamed to a name of `local_only`, while the service keeps the
        # file that it was. In `_kept`, the service may have it, in `_required` it must.
        self._kept: dict[str, Node] = {}
        self._required: dict[str, Node] = {}
        self.findings: list[str] = []
        self.is_off = False  # after a power cut

    def called(
        self, name: str, args: tuple[Any, ...], result: Any, *, is_ordered: bool = True
    ) -> None:
        """Compare the result of a system call; it is not ordered if another one ran meanwhile."""
        if self.is_off or (check := getattr(self, f"_{name}", None)) is None:
            return
        if is_ordered:
            check(result, *args)
        elif name not in LOOKS:
            before = len(self.findings)
            check(result, *args)
            del self.findings[before:]
            self._lose(name, args)

    def failed(
        self,
        name: str,
        args: tuple[Any, ...],
        number: int,
        *,
        is_calm: bool,
        is_ordered: bool = True,
    ) -> None:
        """Compare the errno of a system call; it is not ordered if another one ran meanwhile."""
        if self.is_off:
            return
        if not is_ordered:
            if number not in REFUSALS:
                self._lose(name, args)
            return
        paths = [self._inside(each) for each in args if isinstance(each, str)]
        if name not in ("rename", "open", "unlink", "mkdir", "rmdir", "lstat", "listdir"):
            paths = []
        nodes = [self._names.get(path) for path in paths]
        if number not in REFUSALS:
            if is_calm:
                self._differs(name, args, errno.errorcode.get(number, str(number)))
            self._unknown(paths)
            for each in args:
                if isinstance(each, int) and each in self._fds:
                    self._fds[each].node.is_known = False
            if name == "close":
                self._fds.pop(args[0], None)
            return
        if number == errno.ENOENT:
            self._missing(name, args, paths)
        elif number == errno.EEXIST and paths[0] and nodes[0] is None:
            self._differs(name, args, "EEXIST, but there is none")
        elif number == errno.ENOTEMPTY and name == "rmdir" and not self._children(paths[0]):
            self._differs(name, args, "ENOTEMPTY, but it is empty")

    def concerned(self, args: tuple[Any, ...]) -> frozenset[object]:
        """Return the paths and files that a system call with these arguments concerns.

        A folder concerns all that is below it.
        """
        paths = {self._inside(each) for each in args if isinstance(each, str)}
        found: set[object] = {self._fds[each].node for each in args[:1] if each in self._fds}
        for path in paths:
            found |= {path}
            for one, node in self._names.items():
                if one == path or one.startswith(f"{path}/"):
                    found |= {one, node}
        return frozenset(found)

    def ended(self) -> None:
        """Note that the client ended: what programs wrote since a close or fsync may be lost."""
        nodes = [file.node for file in self._fds.values() if not file.node.is_saved]
        self._fds.clear()
        for node in nodes:
            node.is_known = False
        self._unknown([path for path, node in self._names.items() if node in nodes])

    def final(self, there: Mapping[str, bytes | None], ids: Mapping[str, str]) -> list[str]:
        """Compare what the service has in the end; return all findings."""
        if self.is_off:
            return self.findings
        for path, node in sorted(self._names.items()):
            if not self._is_known(path):
                continue
            if node.stay != SENT:
                if node.stay == LOCAL and path in there:
                    self.findings.append(f"{ALONE}{path} is on the service, though it is local")
                continue
            if path not in there:
                self.findings.append(f"{ALONE}{path} is not on the service")
            elif there[path] != node.data:
                self.findings.append(f"{ALONE}{path} has another content on the service")
            elif node.id not in ("", EITHER) and node.data is not None and ids[path] != node.id:
                self.findings.append(f"{ALONE}{path} has lost its history")
        for path, node in sorted(self._required.items()):
            if node.is_known and (path not in there or node.id not in (EITHER, ids[path])):
                self.findings.append(f"{ALONE}{path} is gone, though its file is a backup")
        for path in sorted(there.keys() - self._names.keys()):
            if path in self._kept or self._is_stray(path):
                continue
            self.findings.append(f"{ALONE}{path} is on the service, but not here")
        return self.findings

    # ---- calls with a result ----

    def _open(self, fd: int, path: str, flags: int, _mode: int = 0) -> None:
        path = self._inside(path)
        node = self._found(path)
        if node is None:
            if not flags & os.O_CREAT:
                self._differs("open", (path,), "success, but there is none")
            node = self._names[path] = Node(b"", is_saved=False)
            self._required.pop(path, None)
            if self._stays(path):
                node.stay = MAYBE if path in self._freed else LOCAL
            self._taken_over(path)
        if flags & os.O_TRUNC and node.data is not None:
            node.data, node.mtime_ns, node.is_known, node.is_saved = b"", 0, True, False
        self._fds[fd] = Descriptor(node, flags)

    def _dup(self, other: int, fd: int) -> None:
        self._fds[other] = self._fds[fd]

    def _close(self, _none: None, fd: int) -> None:
        file = self._fds.pop(fd, None)
        if file is None or not file.flags & (os.O_WRONLY | os.O_RDWR):
            return
        # Another program may write after a truncation: the last close saves an empty file.
        is_last = all(other.node is not file.node for other in self._fds.values())
        file.node.is_saved |= bool(file.node.data) or is_last

    def _fsync(self, _none: None, fd: int) -> None:
        self._fds[fd].node.is_saved = True

    def _read(self, data: bytes, fd: int, size: int) -> None:
        file = self._fds[fd]
        wanted = (file.node.data or b"")[file.position : file.position + size]
        if file.node.is_known and data != wanted:
            path = next((one for one, node in self._names.items() if node is file.node), "?")
            self._differs("read", (path,), f"{data[-60:]!r} instead of {wanted[-60:]!r}")
        file.position += len(data)

    def _write(self, count: int, fd: int, data: bytes) -> None:
        file = self._fds[fd]
        before = file.node.data or b""
        at = len(before) if file.flags & os.O_APPEND else file.position
        before = before.ljust(at, b"\0")
        file.node.data = before[:at] + data[:count] + before[at + count :]
        file.node.mtime_ns, file.node.is_saved = 0, False
        file.position = at + count

    def _lseek(self, position: int, fd: int, *_args: int) -> None:
        self._fds[fd].position = position

    def _ftruncate(self, _none: None, fd: int, size: int) -> None:
        node = self._fds[fd].node
        if len(node.data or b"") != size:
            node.data = (node.data or b"")[:size].ljust(size, b"\0")
            node.mtime_ns, node.is_saved = 0, False

    def _fstat(self, found: os.stat_result, fd: int) -> None:
        self._compare_stat(self._fds[fd].node, found, f"descriptor {fd}")

    def _lstat(self, found: os.stat_result, path: str) -> None:
        path = self._inside(path)
        node = self._found(path)
        if node is None:
            self._differs("lstat", (path,), "success, but there is none")
        elif self._is_known(path) and stat.S_ISDIR(found.st_mode) != (node.data is None):
            self._differs("lstat", (path,), "another kind of entry")
        else:
            self._compare_stat(node, found, path)

    def _compare_stat(self, node: Node, found: os.stat_result, path: str) -> None:
        if node.data is None or not node.is_known:
            return
        if found.st_size != len(node.data):
            self._differs("stat", (path,), f"size {found.st_size}, not {len(node.data)}")
        if node.mode and stat.S_IMODE(found.st_mode) != node.mode:
            self._differs("stat", (path,), f"mode {found.st_mode:o}, not {node.mode:o}")
        if any(file.node is node for file in self._fds.values()):
            return
        # A save that the service stores late and after its repetition is a newer version there.
        is_late = head(node.data) in self._late
        if (
            self._keeps_times
            and node.mtime_ns
            and found.st_mtime_ns != node.mtime_ns
            and not is_late
        ):
            self._differs("stat", (path,), "another mtime, but nothing was written")
        node.mtime_ns = found.st_mtime_ns

    def _chmod(self, _none: None, path: str, mode: int) -> None:
        if (node := self._found(self._inside(path))) is not None:
            node.mode = mode

    def _utime(self, _none: None, path: str, ns: tuple[int, int]) -> None:
        if (node := self._found(self._inside(path))) is not None:
            node.mtime_ns = ns[1]

    def _listdir(self, names: list[str], path: str) -> None:
        path = self._inside(path)
        children = self._children(path)
        known = {one.rpartition("/")[2] for one in children if self._is_known(one)}
        every = {one.rpartition("/")[2] for one in children}
        if known - set(names):
            self._differs("listdir", (path,), f"{sorted(known - set(names))} are missing")
        strange = {one for one in names if one not in every}
        if strange := {one for one in strange if not self._is_stray(f"{path}/{one}".lstrip("/"))}:
            self._differs("listdir", (path,), f"{sorted(strange)} are strange")

    def _rename(self, _none: None, old: str, new: str, flags: int = 0) -> None:
        old, new = self._inside(old), self._inside(new)
        if old == new:
            return
        moved, replaced = self._taken(old), self._taken(new)
        self._names |= {new + path: node for path, node in moved.items()}
        self._note_stays(old, moved, new, replaced, is_exchange=flags == EXCHANGE)
        if flags == EXCHANGE:
            self._names |= {old + path: node for path, node in replaced.items()}
            for node in (*moved.values(), *replaced.values()):
                node.id = EITHER  # of which one it is, depends on when each was sent
            return
        file, former = moved.get(""), replaced.get("")
        if self._taken_over(new) and file is not None:
            file.id = EITHER  # it may continue the history of the file that left the place
        is_sent = file is not None and (
            file.id or trio.current_time() > file.made_s + self._settle_s
        )
        # An upload that had begun leaves the former name, which the client cannot remove.
        self._given_up |= {old} if self._strays and is_sent else set()
        if file is not None and former is not None:  # only one of two histories continues
            file.id = former.id if former.is_known and not is_sent else EITHER
            self._left |= {one: file for one, node in self._left.items() if node is former}
        if file is not None:
            self._left[old] = file

    def _unlink(self, _none: None, path: str) -> None:
        path = self._inside(path)
        removed = self._taken(path)
        self._given_up |= {path} if self._strays else set()
        self._left |= {path + rest: node for rest, node in removed.items()}
        for node in removed.values():
            self._leaves(path, node)

    def _rmdir(self, _none: None, path: str) -> None:
        self._taken(self._inside(path))
        self._touched(self._inside(path))

    def _mkdir(self, _none: None, path: str, _mode: int = 0) -> None:
        self._names[self._inside(path)] = Node(None)
        self._touched(self._inside(path))

    # ---- names of `local_only` ----

    def _note_stays(
        self,
        old: str,
        moved: Mapping[str, Node],
        new: str,
        replaced: Mapping[str, Node],
        *,
        is_exchange: bool,
    ) -> None:
        """Note where the files are after a rename."""
        file, former = moved.get(""), replaced.get("")
        if is_exchange or file is None or file.data is None:
            for path in (old, new):
                self._touched(path)
            for here, nodes in ((new, moved), (old, replaced)):
                for rest, node in nodes.items():
                    if is_exchange and (node.stay != SENT or self._stays(here + rest)):
                        node.stay = MAYBE
            self._freed |= {path for path in (old, new) if self._stays(path)}
            self._freed |= {_moved(path, old, new) for path in self._freed}
            self._kept |= {_moved(path, old, new): node for path, node in self._kept.items()}
            return
        was, is_old = file.stay, file.id not in ("", EITHER)
        self._required.pop(new, None)
        if not self._stays(new):
            self._leaves(old, file)
            file.stay = SENT
            return
        is_required = was == SENT and is_old and file.origin == old
        if former is None and new not in self._freed:
            file.stay = LOCAL
        elif former is not None and former.stay == LOCAL and was != MAYBE:
            file.stay = LOCAL
            for places in (self._kept, self._required):
                places |= {path: file for path, node in places.items() if node is former}
            if was == SENT:
                self._required = {
                    path: node for path, node in self._required.items() if node is not file
                }
        elif former is not None and former.stay == SENT:
            file.stay, is_required = SENT, False
        else:
            file.stay, is_required = MAYBE, False
        if was == LOCAL and former is not None:
            self._required = {
                path: node for path, node in self._required.items() if node is not file
            }
        if self._stays(old) and was != LOCAL:
            self._freed.add(old)
        if file.stay != SENT:
            self._kept[old] = file
        if is_required:
            self._required[old] = file

    def _leaves(self, path: str, node: Node) -> None:
        """Note that a file has left a name for an ordinary one, or was removed."""
        if self._stays(path) and node.stay != LOCAL:
            self._freed.add(path)
        self._kept = {one: each for one, each in self._kept.items() if each is not node}
        self._required = {one: each for one, each in self._required.items() if each is not node}

    def _touched(self, path: str) -> None:
        """Note that something else has the path, or that all below it is somewhere else."""
        self._required = {
            one: node
            for one, node in self._required.items()
            if one != path and not one.startswith(f"{path}/")
        }

    # ---- inside ----

    def _inside(self, path: str) -> str:
        return path.removeprefix(self._top).lstrip("/")

    def _taken(self, path: str) -> dict[str, Node]:
        """Remove an entry with all below it; return them by the rest of their paths."""
        below = [one for one in self._names if one == path or one.startswith(f"{path}/")]
        return {one[len(path) :]: self._names.pop(one) for one in below}

    def _taken_over(self, path: str) -> bool:
        """Note that a file may continue the history of the one that was moved away or removed."""
        if path not in self._left:
            return False
        self._left.pop(path).id = EITHER
        return True

    def _is_stray(self, path: str) -> bool:
        return path in self._given_up or path.rpartition("/")[2] in self._strays

    def _found(self, path: str) -> Node | None:
        """Return the entry; one that may have come back is unknown."""
        if path not in self._names and self._is_stray(path):
            stay = MAYBE if self._stays(path) else SENT
            self._names[path] = Node(b"", is_known=False, stay=stay)
        return self._names.get(path)

    def _children(self, path: str) -> list[str]:
        return [one for one in self._names if one and one.rpartition("/")[0] == path]

    def _is_known(self, path: str) -> bool:
        parts = path.split("/")
        above = (self._names.get("/".join(parts[: number + 1])) for number in range(len(parts)))
        return all(node is not None and node.is_known for node in above)

    def _unknown(self, paths: list[str]) -> None:
        for path in paths:
            for one in [*self._names]:
                if one == path or one.startswith(f"{path}/"):
                    self._names[one].is_known = False
                    self._kept[one] = self._names[one]
            self._taken_over(path)  # a call that failed may have made a file there
            node = self._names.setdefault(path, Node(b"", is_known=False))
            if self._stays(path):
                node.stay = MAYBE
                self._freed.add(path)
            self._touched(path)

    def _lose(self, name: str, args: tuple[Any, ...]) -> None:
        """Note that the order of a call and of another one is not known."""
        if name in NAMING:
            self.is_off = True
        elif name == "open" and args[1] & (os.O_CREAT | os.O_TRUNC):
            self._unknown([self._inside(args[0])])
        elif name in ("write", "ftruncate"):
            self._fds[args[0]].node.is_known = False

    def _missing(self, name: str, args: tuple[Any, ...], paths: list[str]) -> None:
        """Report an ENOENT although all entries that the call needs exist."""
        if not paths:
            return
        parents = [path.rpartition("/")[0] for path in paths[1:] or paths]
        needed = [paths[0]] if name != "mkdir" else []
        needed += [paths[1]] if name == "rename" and args[2:] == (EXCHANGE,) else []
        if name == "open" and args[1] & os.O_CREAT:
            needed = []
        if all(self._is_known(one) for one in (*needed, *(each for each in parents if each))):
            self._differs(name, args, "ENOENT, but it is there")
        elif len(paths) == 1 and paths[0] in self._names and not self._names[paths[0]].is_known:
            self._left[paths[0]] = self._names.pop(paths[0])  # if the name was left before

    def _differs(self, name: str, args: tuple[Any, ...], what: str) -> None:
        shown = " ".join(str(each) for each in args if isinstance(each, str))
        self.findings.append(f"{ALONE}{name} {shown}: {what}")


def _moved(path: str, old: str, new: str) -> str:
    """Return the path after a rename of a folder."""
    return new + path[len(old) :] if path.startswith(f"{old}/") else path
