"""What programs on two machines were told, and what the service must hold in the end because of it.

Knows no daemon and no mount.  Every save ends its content with a line of its own: its token, and
the token of what its program had read of the file before.  So each version on the service says who
made it, and on what.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NOT_READ = "-"  # the program has not looked at what it replaced
NOTHING = "0"  # it has, and there was nothing

SAME_MOMENT_S = 3.0
"""Two machines that look within such a time may both send: that is said in the documents."""

LINE = re.compile(rb"^(?P<token>[A-Z]\d+) after (?P<saw>[A-Z]\d+|[-0]) x*$")


@dataclass(frozen=True)
class Save:
    """One save by a program, or by a coworker in a browser."""

    token: str
    who: str
    saw: str
    number: int  # in the order in which they began


@dataclass(frozen=True)
class History:
    """A file of the service: the tokens of its versions, the oldest first."""

    id: str
    path: str
    tokens: tuple[str | None, ...]  # None: content of no save
    made: tuple[float, ...] = ()  # when the service took each, in seconds


def head(content: bytes) -> str | None:
    """The token of the save that made this content."""
    lines = content.splitlines()
    found = LINE.match(lines[-1]) if lines else None
    return found["token"].decode() if found else None


def _is_in(path: str, place: str) -> bool:
    """Whether the path is that place, or below it."""
    return path == place or path.startswith(place + "/")


@dataclass
class Claims:
    """The ledger of one round."""

    saves: dict[str, Save] = field(default_factory=dict)
    due: set[str] = field(default_factory=set)  # tokens that the service must have
    copied: set[str] = field(default_factory=set)  # that may be there more than once
    moved: set[str] = field(default_factory=set)  # ids of files whose versions may be, too
    _here: dict[str, dict[str, str]] = field(default_factory=dict)  # who: path: token, unsent
    _inodes: dict[str, int] = field(default_factory=dict)  # by token
    _seen: dict[str, dict[str, int]] = field(default_factory=dict)  # who: token: number of the save
    _number: int = 0

    # ---- what programs do ----

    def begin(self, who: str, saw: str, padding: int = 0) -> tuple[str, bytes]:
        """A save begins: its token, and its line."""
        self._number += 1
        token = f"{who}{self._number}"
        self.saves[token] = Save(token, who, saw, self._number)
        return token, f"{token} after {saw} {'x' * padding}\n".encode()

    def read(self, who: str, path: str, content: bytes) -> str:
        """A program read a file: the token of what it saw."""
        token = head(content)
        if token is None:
            return NOTHING
        self._seen.setdefault(who, {}).setdefault(token, self._number)
        return token

    def saved(self, who: str, path: str, token: str, number: int = 0) -> None:
        """close(2) returned 0; `number` is that of the inode, by which it is known wherever it is.

        A mount moves a file that a coworker moves, before its content is sent, too.
        """
        self.removed(who, path, number)
        self._mine(who)[path] = token
        self._inodes[token] = number
        self._seen.setdefault(who, {})[token] = self._number

    def removed(self, who: str, path: str, number: int = 0) -> None:
        """The file is gone, or may be: what was not sent of it need not be."""
        mine = self._mine(who)
        for each, token in list(mine.items()):
            if _is_in(each, path) or (number and self._inodes.get(token) == number):
                del mine[each]

    def renamed(
        self, who: str, old: str, new: str, replaced: int = 0, *, certain: bool = True
    ) -> None:
        """The file or folder has another name, or may have; what was there is replaced."""
        mine = self._mine(who)
        moved = {path: mine[path] for path in mine if _is_in(path, old)}
        self._copy(old, new)
        self.removed(who, old)
        self.removed(who, new, replaced)
        if certain:
            mine |= {new + path[len(old) :]: token for path, token in moved.items()}

    def swapped(self, who: str, one: str, other: str) -> None:
        """Two files have exchanged their names, or may have."""
        self._copy(one, other)
        self.removed(who, one)
        self.removed(who, other)

    def _copy(self, *paths: str) -> None:
        """What any machine has there may be sent once more, as the content of another file."""
        for every in self._here.values():
            self.copied |= {
                token for path, token in every.items() if any(_is_in(path, it) for it in paths)
            }

    def here(self, who: str) -> Mapping[str, str]:
        """What a machine has saved last, by path."""
        return dict(self._mine(who))

    def sent(self, these: Mapping[str, str]) -> None:
        """`sync` exited with 0: what was here before is on the service, whatever becomes of it."""
        self.due |= set(these.values())

    def _mine(self, who: str) -> dict[str, str]:
        return self._here.setdefault(who, {})

    # ---- what the service has ----

    def findings(self, histories: Iterable[History]) -> list[str]:
        """What is missing, doubled, or was overwritten unseen."""
        histories = list(histories)
        found: list[str] = []
        places: dict[str, list[History]] = {}
        for history in histories:
            for token in history.tokens:
                if token is not None:
                    places.setdefault(token, []).append(history)
        found += [f"{token} is not on the service" for token in sorted(self.due - places.keys())]
        for token, files in sorted(places.items()):
            may_be_copied = token in self.copied or self.moved & {file.id for file in files}
            if len(files) > 1 and not may_be_copied:
                paths = [file.path for file in files]
                found.append(f"{token} is on the service {len(files)} times: {paths}")
        for history in histories:
            found += self._unseen(history, places)
        return found

    def _unseen(self, history: History, places: Mapping[str, object]) -> list[str]:
        """The versions on top of one that their program has not seen, though it looked."""
        found = []
        made = history.made or (0.0,) * len(history.tokens)
        pairs = zip(history.tokens, history.tokens[1:], made, made[1:], strict=False)
        for below, token, before, after in pairs:
            if 0 < after - before < SAME_MOMENT_S:
                continue
            save = self.saves.get(token or "")
            under = self.saves.get(below or "")
            if save is None or under is None or save.saw == NOT_READ or under.who == save.who:
                continue
            if save.token in self.copied or history.id in self.moved:
                continue  # renamed over another file, which need not have been read
            known = self._ancestors(save, places)
            if under.token in known or self._has_seen(save, under):
                continue
            found.append(f"{history.path}: {token} (read {save.saw}) overwrote {below} unseen")
        return found

    def _ancestors(self, save: Save, places: Mapping[str, object]) -> set[str]:
        """What the save was made on: through saves of the same machine that were never sent."""
        known: set[str] = set()
        while save.saw in self.saves and save.saw not in known:
            known.add(save.saw)
            save = self.saves[save.saw]
            if save.saw == NOT_READ:
                known |= self.saves.keys()  # it replaced what it had not looked at
        return known

    def _has_seen(self, save: Save, under: Save) -> bool:
        return self._seen.get(save.who, {}).get(under.token, save.number) < save.number
