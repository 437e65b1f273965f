"""Oracle of one client: a dictionary of the entries that programs made with calls that returned 0.

Knows nothing about the client. An entry has its content and its histories: the files of the service
that it may be. Most entries have one history. Some have several, where the documents leave open
which of two files continues the history of a third one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Histories = frozenset[int]
UNREADABLE = b"cannot be read without the service"


def is_local(path: str) -> bool:
    """Return True for a name that the service never gets."""
    return path.endswith("~")


def is_below(path: str, folder: str) -> bool:
    """Return True if the path is the folder or below it."""
    return path == folder or path.startswith(f"{folder}/")


@dataclass(frozen=True)
class Node:
    """File, or folder without content."""

    content: bytes | None
    histories: Histories = frozenset()
    origin: str = ""  # the place on the service, "" for a new entry


@dataclass(frozen=True)
class Oracle:
    """Entries by path. Each change returns another oracle."""

    tree: Mapping[str, Node]
    known: Histories = frozenset()  # histories that the service has
    former: Mapping[str, tuple[Histories, bool]] = field(default_factory=dict)
    """Histories of what left a place since the last synchronisation, and True if the next new file
    at this place must continue them."""
    kept: Histories = frozenset()  # histories that one of several entries must continue
    last: int = 0  # history
    is_late: bool = False  # some changes since the last synchronisation may have been sent

    # ---- changes ----

    def saved(self, path: str, content: bytes) -> "Oracle":
        """Return the oracle after a save."""
        if (node := self.tree.get(path)) is not None:
            return replace(self, tree={**self.tree, path: replace(node, content=content)})
        return self._added(path, content)

    def made(self, path: str) -> "Oracle":
        """Return the oracle after mkdir(2)."""
        return self._added(path, None)

    def _added(self, path: str, content: bytes | None) -> "Oracle":
        if is_local(path):
            return replace(self, tree={**self.tree, path: Node(content)})
        tree, kept, new = dict(self.tree), self.kept, frozenset({self.last + 1})
        histories, is_certain = self.former.get(path, (frozenset(), False))
        away = [each for each, node in tree.items() if node.origin == path and not is_local(each)]
        is_certain = is_certain and content is not None and not self.is_late and not away
        for each in away:
            left = tree[each].histories
            tree[each] = replace(tree[each], histories=left | {self.last + 2})
            histories |= left
            kept |= left if len(left) == 1 else frozenset()
        tree[path] = Node(content, histories if is_certain else histories | new)
        former = {place: each for place, each in self.former.items() if place != path}
        return replace(self, tree=tree, former=former, kept=kept, last=self.last + 2)

    def removed(self, path: str) -> "Oracle":
        """Return the oracle after unlink(2) or rmdir(2)."""
        node = self.tree[path]
        tree = {place: each for place, each in self.tree.items() if place != path}
        former = dict(self.former)
        if node.content is None:
            former = {place: each for place, each in former.items() if not is_below(place, path)}
        if node.origin and not is_local(path):
            former.setdefault(path, (node.histories, node.origin == path))
        old = node.histories & self.known
        if node.origin:
            is_certain = node.origin == path or is_local(path)
            if (successor := tree.get(node.origin)) is None:
                former[node.origin] = (node.histories, is_certain)
            elif successor.histories != node.histories:
                both = successor.histories | node.histories
                tree[node.origin] = replace(successor, histories=both)
        elif old or self.is_late:
            former[path] = (node.histories if self.is_late else old, False)
        if not (node.origin or is_local(path)):
            tree = _given_up(tree, path)
        return replace(self, tree=tree, former=former, kept=self.kept - node.histories)

    def renamed(self, path: str, other: str) -> "Oracle":
        """Return the oracle after rename(2)."""
        if self.tree[path].content is None:
            return self._folder_renamed(path, other)
        here = self
        if is_local(other) and not self.tree[path].origin and self._is_backup(other, path):
            return self._backed_up(path, other)
        if other in self.tree and (is_local(other) or self.tree[path].origin):
            here = self.removed(other)
        node, there = here.tree[path], here.tree.get(other)
        tree = {place: each for place, each in here.tree.items() if place not in (path, other)}
        former = dict(here.former)
        old = node.histories & self.known
        if node.origin:
            if (successor := tree.get(node.origin)) is not None and is_local(other):
                both = successor.histories | node.histories
                tree[node.origin] = replace(successor, histories=both)
            elif successor is None:
                former[node.origin] = (node.histories, is_local(other) and node.origin == path)
            if node.origin != path:  # it may have taken the history of the file that it replaced
                gone, _ = former.get(path, (frozenset(), False))
                former[path] = (gone | node.histories, False)
        elif old:  # it was to continue what left this place
            former[path] = (old, False)
            node = replace(node, histories=node.histories | {self.last + 1})
        if there is not None:  # and the renamed file is new
            is_next = there.origin and not self.is_late  # else the renamed file may have been sent
            histories = there.histories if is_next else there.histories | node.histories
            node = replace(node, histories=histories, origin=there.origin)
        elif is_local(other):
            node = node if node.origin else Node(node.content)
        else:
            gone, _ = former.pop(other, (frozenset(), False))
            if gone and here.is_late:  # the service may have deleted the file that left the place
                gone |= {self.last + 1}
            node = replace(node, histories=node.histories | gone)
        if not (here.tree[path].origin or is_local(path) or is_local(other)):
            tree = _given_up(tree, path)
        tree[other] = node
        return replace(here, tree=tree, former=former, last=self.last + 1)

    def _is_backup(self, path: str, place: str) -> bool:
        node = self.tree.get(path)
        return node is not None and node.origin == place

    def _backed_up(self, path: str, backup: str) -> "Oracle":
        """Return the oracle after the successor of a backup has replaced it: the entry stays."""
        former = self.tree[backup]
        tree = {place: node for place, node in self.tree.items() if place != path}
        tree[backup] = replace(former, content=self.tree[path].content)
        return replace(self, tree=tree, former={**self.former, path: (former.histories, True)})

    def _folder_renamed(self, path: str, other: str) -> "Oracle":
        replaced = self.tree.get(other)

        def moved(place: str) -> str:
            return other + place[len(path) :] if is_below(place, path) else place

        tree = {
            moved(place): replace(each, origin=moved(each.origin) if each.origin != path else path)
            for place, each in self.tree.items()
            if place != other
        }
        if replaced is not None:
            both = tree[other].histories | replaced.histories
            tree[other] = replace(tree[other], histories=both)
        former = {
            moved(place): each
            for place, each in self.former.items()
            if not (replaced and is_below(place, other))
        }
        return replace(self, tree=tree, former=former)

    def exchanged(self, path: str, other: str) -> "Oracle":
        """Return the oracle after an exchange of two files."""
        one, two, kept = self.tree[path], self.tree[other], self.kept
        if not (one.origin and two.origin):
            both = one.histories | two.histories
            kept |= both & self.known
            one = replace(one, histories=both | {self.last + 1})
            two = replace(two, histories=both | {self.last + 2})
        tree = {**self.tree, path: two, other: one}
        return replace(self, tree=tree, kept=kept, last=self.last + 2)

    def uncertain(self) -> "Oracle":
        """Return the oracle for which nobody knows which changes were sent."""
        return replace(self, is_late=True)

    def settled(self) -> "Oracle":
        """Return an oracle with the same names for which everything is sent."""
        tree = {
            path: node if is_local(path) else replace(node, origin=path)
            for path, node in self.tree.items()
        }
        return Oracle(tree, self.known, last=self.last)

    # ---- the service ----

    def findings(
        self, there: Mapping[str, tuple[str, bytes | None]], ids: Mapping[int, str]
    ) -> list[str]:
        """Return the differences from the service's entries after a synchronisation.

        `there` has id and content by path, and `ids` the ids of known histories.
        """
        found: list[str] = []
        expected = {path for path in self.tree if not is_local(path)}
        parked = {
            node.origin: path
            for path, node in self.tree.items()
            if is_local(path) and node.origin not in ("", *expected)
        }
        replaced = {  # files that another one replaced, before it became a backup
            path.removesuffix("~")
            for path, node in self.tree.items()
            if is_local(path) and len(node.histories) > 1
        }
        for path in sorted(there.keys() - expected - parked.keys() - replaced):
            found.append(f"the service has {path}, which nobody made")
        for path in sorted(expected):
            if path not in there:
                found.append(f"the service lacks {path}")
            elif there[path][1] != self.tree[path].content:
                found.append(f"{path}: the service has {there[path][1]!r}, "
                             f"not {self.tree[path].content!r}")  # fmt: skip
            else:
                found += self._identity_findings(path, there[path][0], ids)
        present = {each for each, _ in there.values()}
        for history in sorted(self.kept & ids.keys()):
            if ids[history] not in present:
                found.append(f"no file continues the history {ids[history]}")
        for path in sorted(parked.keys() - there.keys() if not self.is_late else ()):
            if parked[path] == f"{path}~":  # else the file was renamed, and then to a backup
                found.append(f"the service lacks {path}, whose file is a backup")
        return found

    def local_findings(self, here: Mapping[str, bytes | None]) -> list[str]:
        """Return the differences from the entries of the client.

        The content `UNREADABLE` agrees with the content of every file of the service.
        """
        return [
            f"{path} is {_short(here, path)} here, not {_short(self._contents(), path)}"
            for path in sorted(here.keys() | self.tree.keys())
            if here.get(path, b"-") != self._contents().get(path, b"-")
            and not (here.get(path) == UNREADABLE and path in self.tree)
        ]

    def _contents(self) -> dict[str, bytes | None]:
        return {path: node.content for path, node in self.tree.items()}

    def _identity_findings(self, path: str, found: str, ids: Mapping[int, str]) -> list[str]:
        histories = self.tree[path].histories
        if found in {ids[each] for each in histories if each in ids}:
            return []
        if found in ids.values():
            return [f"{path} has the history of another file"]
        if all(each in ids for each in histories):
            return [f"{path} is a new file of the service"]
        return []

    def synced(
        self, there: Mapping[str, tuple[str, bytes | None]], ids: dict[int, str]
    ) -> "Oracle":
        """Return the oracle after a synchronisation; add the ids of new histories to `ids`."""
        histories = {each: history for history, each in ids.items()}
        last, tree = self.last, dict[str, Node]()
        for path, node in self.tree.items():
            place = path if not is_local(path) else node.origin
            if place not in there or (is_local(path) and place in self.tree):
                tree[path] = Node(node.content)
                continue
            found = there[place][0]
            if found not in histories:
                last += 1
                histories[found], ids[last] = last, found
            tree[path] = Node(node.content, frozenset({histories[found]}), place)
        return Oracle(tree, frozenset(ids), last=last)


def _short(entries: Mapping[str, bytes | None], path: str) -> str:
    if path not in entries:
        return "absent"
    content = entries[path]
    return "a folder" if content is None else repr(content)


def _given_up(tree: Mapping[str, Node], path: str) -> dict[str, Node]:
    """Return the tree after a new file has left the place of a backup: its entry is deleted."""
    return {
        place: replace(node, origin="") if is_local(place) and node.origin == path else node
        for place, node in tree.items()
    }
