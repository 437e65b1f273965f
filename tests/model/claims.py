"""Ledger of the results that programs on two machines got, and its demands on the service.

Knows no daemon and no mount.  Every save ends its content with its own line: its token, and the
token of the content that its program had read before.  So each version on the service shows its
author and its base.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase

NOT_READ = "-"  # the program has not looked at what it replaced
NOTHING = "0"  # it has, and there was nothing

SAME_MOMENT_S = 3.0
"""Time within which two machines may both send a version, as the documents say."""

COPY = re.compile(r"( \(conflict, [^)]*\)(?: \d+)?)+")  # in the name of a conflict copy
LINE = re.compile(rb"^(?P<token>[A-Z]\d+) after (?P<saw>[A-Z]\d+|[-0]) [a-z]*$")


@dataclass(frozen=True)
class Save:
    """Save by a program, or by a coworker in a browser."""

    token: str
    who: str
    saw: str
    number: int  # in the order in which they began


@dataclass(frozen=True)
class History:
    """File of the service: the tokens of its versions, the oldest first."""

    id: str
    path: str
    tokens: tuple[str | None, ...]  # None: content of no save
    made: tuple[float, ...] = ()  # when the service took each, in seconds
    # when the service told the machine of each the version before, in seconds; None: unknown
    checked: tuple[float | None, ...] = ()
    modified_ns: tuple[int, ...] = ()  # time that the service gives for each
    senders: tuple[str | None, ...] = ()  # machine that sent each
    # when another machine gave the file its name, before each version, in seconds
    named: tuple[float, ...] = ()


def head(content: bytes) -> str | None:
    """Return the token of the save that made this content.

    A power cut may leave zeros in front of it, of a save that made the file longer at first.
    """
    lines = content.splitlines()
    found = LINE.match(lines[-1].lstrip(b"\0")) if lines else None
    return found["token"].decode() if found else None


def lines_in(content: bytes) -> set[str]:
    """Return the tokens of all saves whose lines are in a content."""
    found = map(LINE.match, content.replace(b"\0", b"").splitlines())
    return {each["token"].decode() for each in found if each}


def short(content: bytes | None) -> str:
    """Return a content in readable form."""
    if content is None:
        return "a folder"
    return f"{len(content)} bytes of {head(content)}" if head(content) else repr(content[:60])


def _is_in(path: str, place: str) -> bool:
    """Return True if the path is the place or below it."""
    return path == place or path.startswith(place + "/")


@dataclass
class Claims:
    """Ledger of one round."""

    saves: dict[str, Save] = field(default_factory=dict)
    synced: set[str] = field(default_factory=set)  # tokens that survive a power cut
    one_of: list[set[str]] = field(default_factory=list)  # of each, one must be on the service
    due: set[str] = field(default_factory=set)  # tokens that the service must have
    copied: set[str] = field(default_factory=set)  # that may be there more than once
    replacing: set[str] = field(default_factory=set)  # that a rename may have put over others
    moment_s: float = SAME_MOMENT_S  # between two saves that cannot know of each other
    stays: Callable[[str], bool] = lambda _path: False  # True for a path that may never be sent
    late: set[str] = field(default_factory=set)  # that arrived after others, which nobody could see
    # id of a file: the names that programs took from it, and may have given to another file
    moved: dict[str, set[str]] = field(default_factory=dict)
    # by machine and id of a file that it has removed or replaced: number of the last save before
    given_up: dict[tuple[str, str], int] = field(default_factory=dict)
    # by token of a save that took a file's place: modification time that the file showed before
    replaced_ns: dict[str, int] = field(default_factory=dict)
    # by token of a save without reading: modification time that the file showed before, in ns
    shown_ns: dict[str, int] = field(default_factory=dict)
    _here: dict[str, dict[str, str]] = field(default_factory=dict)  # who: path: token, unsent
    # who: path: a synced token and those saved there since
    _since: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    # who: path: the entry of `one_of` to which later saves there are added
    _after_cut: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    _inodes: dict[str, int] = field(default_factory=dict)  # by token
    # by token: where it was saved, and the later names of that file
    _places: dict[str, set[str]] = field(default_factory=dict)
    _seen: dict[str, dict[str, int]] = field(default_factory=dict)  # who: token: number of the save
    _number: int = 0

    # ---- what programs do ----

    def begin(self, who: str, saw: str, padding: int = 0) -> tuple[str, bytes]:
        """Record the begin of a save; return its token and its line.

        The padding is a letter that changes from save to save, so that a mixture shows.
        """
        self._number += 1
        token, letter = f"{who}{self._number}", ascii_lowercase[self._number % 26]
        self.saves[token] = Save(token, who, saw, self._number)
        return token, f"{token} after {saw} {letter * padding}\n".encode()

    def read(self, who: str, path: str, content: bytes) -> str:
        """Record that a program read a file; return the token of the content."""
        token = head(content)
        if token is None:
            return NOTHING
        self._seen.setdefault(who, {}).setdefault(token, self._number)
        return token

    def saved(self, who: str, path: str, token: str, number: int = 0) -> None:
        """Record a successful close(2); `number` is the inode, which identifies the file after
        moves.

        A mount moves a file that a coworker moves, before its content is sent, too.
        """
        self.replaced(who, path, number)
        if path in self._after_cut.get(who, {}):
            self._after_cut[who][path].add(token)
        if path in self._since.get(who, {}):
            self._since[who][path].append(token)
        self._mine(who)[path] = token
        self._inodes[token] = number
        self._places.setdefault(token, set()).add(path)
        self._seen.setdefault(who, {})[token] = self._number

    def replaced(self, who: str, path: str, number: int = 0) -> None:
        """Record that a save takes or may take the place of the file; what was synced stays due.

        A power cut may undo a save, but must not take what was synced before as well.
        """
        since = self._since.get(who, {}).get(path)
        after_cut = self._after_cut.get(who, {}).pop(path, None)
        self.removed(who, path, number)
        if after_cut is not None:
            self._after_cut[who][path] = after_cut
        if since is not None:
            self._since[who][path] = since

    def flushed(self, who: str, path: str, token: str) -> None:
        """Record that the save at a path was synced: it survives a power cut."""
        self.synced.add(token)
        self._since.setdefault(who, {})[path] = [token]

    def removed(self, who: str, path: str, number: int = 0) -> None:
        """Record that the file is or may be gone: its unsent content need not be sent."""
        since = self._since.get(who, {})
        for each in [each for each in since if _is_in(each, path)]:
            del since[each]
        after_cut = self._after_cut.get(who, {})
        for each in [each for each in after_cut if _is_in(each, path)]:
            self._drop(after_cut.pop(each))
        mine = self._mine(who)
        for each, token in list(mine.items()):
            if _is_in(each, path) or (number and self._inodes.get(token) == number):
                del mine[each]

    def renamed(
        self, who: str, old: str, new: str, replaced: int = 0, *, certain: bool = True
    ) -> None:
        """Record that the entry has or may have another name, and replaced the former one there."""
        mine = self._mine(who)
        moved = {path: mine[path] for path in mine if _is_in(path, old)}
        self._copy(old, new)
        for path, token in moved.items():
            self._places[token].add(new + path[len(old) :])
        if replaced or not certain:
            self.replacing |= set(moved.values())
        for paths in self.moved.values():  # of the files in a renamed folder
            paths |= {new + path[len(old) :] for path in paths if path != old and _is_in(path, old)}
        self.removed(who, old)
        self.removed(who, new, replaced)
        if certain:
            mine |= {new + path[len(old) :]: token for path, token in moved.items()}

    def swapped(self, who: str, one: str, other: str) -> None:
        """Record that two files have or may have exchanged their names."""
        self._copy(one, other)
        self.replacing |= {each for path, each in self._mine(who).items() if path in (one, other)}
        for paths in self.moved.values():  # of the files that new files at these paths continue
            paths |= {one, other} if paths & {one, other} else set()
        self.removed(who, one)
        self.removed(who, other)

    def _copy(self, *paths: str) -> None:
        """Allow another upload of the content of each machine, as the content of another file."""
        for every in self._here.values():
            self.copied |= {
                token for path, token in every.items() if any(_is_in(path, it) for it in paths)
            }

    def may_replace(self, tokens: Iterable[str]) -> None:
        """Record contents that may be in several files, and over others that nobody has read."""
        self.copied |= set(tokens)
        self.replacing |= set(tokens)

    def here(self, who: str) -> Mapping[str, str]:
        """Return the last save of a machine, by path."""
        return dict(self._mine(who))

    def took(self, entry_id: str, path: str) -> None:
        """Record that a program renames or removes a file.

        Its content may become that of another file, and a new file at its path the next version.
        """
        self.moved.setdefault(entry_id, set()).add(path)

    def gave_up(self, who: str, entry_id: str) -> None:
        """Record that a program removes a file, or renames another one over it."""
        self.given_up[who, entry_id] = self._number

    def forget(self, who: str) -> None:
        """Record a power cut: the machine may have lost what was neither sent nor synced.

        It may no longer know that it has sent a save, and send it as a conflict copy.
        """
        mine = self._mine(who)
        for path in [path for path, token in mine.items() if token not in self.synced]:
            self.may_replace({mine.pop(path)})
        begun = [save.token for save in self.saves.values() if save.who == who][-1:]
        synced = self._since.pop(who, {})
        groups = {
            path: {*tokens, *begun} for path, tokens in synced.items() if not self.stays(path)
        }
        after_cut = self._after_cut.setdefault(who, {})
        for path in groups.keys() & after_cut.keys():  # of an earlier power cut
            self._drop(after_cut[path])
        self.one_of += groups.values()
        after_cut.update(groups)

    def restored(self, who: str) -> None:
        """Record that a machine has its data of an earlier time: it may send saves once more."""
        for path in list(self._mine(who)):
            self.removed(who, path)
        for group in self._after_cut.pop(who, {}).values():
            self._drop(group)
        self._since.pop(who, None)
        self.may_replace({save.token for save in self.saves.values() if save.who == who})

    def damaged(self, who: str, path: str) -> None:
        """Record that a power cut damaged a file: no later save replaces what was synced."""
        self._after_cut.get(who, {}).pop(path, None)

    def _drop(self, group: set[str]) -> None:
        self.one_of = [each for each in self.one_of if each is not group]

    def was_left(self, path: str) -> bool:
        """Return True if a program has renamed or removed a file of that name."""
        return any(path in paths for paths in self.moved.values())

    def sent(self, these: Mapping[str, str]) -> None:
        """Record that `sync` exited with 0: the earlier saves are on the service."""
        self.due |= set(these.values())

    def inode(self, token: str) -> int:
        """Return the inode number of the file at the save, or 0 if it is not known."""
        return self._inodes.get(token, 0)

    def has_read(self, who: str, token: str) -> bool:
        """Return True if a machine's programs have read or written this content."""
        return self.saves[token].who == who or token in self._seen.get(who, {})

    def _mine(self, who: str) -> dict[str, str]:
        return self._here.setdefault(who, {})

    # ---- what the service has ----

    def findings(self, histories: Iterable[History], contained: Collection[str] = ()) -> list[str]:
        """Return missing and duplicate saves, and saves that were overwritten but never read.

        `contained` are the tokens of all lines in all versions.
        """
        histories = list(histories)
        found: list[str] = []
        places: dict[str, list[History]] = {}
        for history in histories:
            for token in history.tokens:
                if token is not None:
                    places.setdefault(token, []).append(history)
        found += [f"{token} is not on the service" for token in sorted(self.due - places.keys())]
        found += [
            f"none of {sorted(tokens)} is on the service, the first was synced"
            for tokens in self.one_of
            if tokens.isdisjoint([*places, *contained])
        ]
        for token, files in sorted(places.items()):
            may_be_copied = token in self.copied or self.moved.keys() & {file.id for file in files}
            if len(files) > 1 and not may_be_copied:
                paths = [file.path for file in files]
                found.append(f"{token} is on the service {len(files)} times: {paths}")
        for history in histories:
            found += self._unseen(history, places)
        return found

    def _unseen(self, history: History, places: Mapping[str, object]) -> list[str]:
        """Return the versions on top of a version that their program has not seen although it
        read the file."""
        found = []
        made = history.made or (0.0,) * len(history.tokens)
        modified_ns = history.modified_ns or (0,) * len(history.tokens)
        checked = history.checked or (None,) * len(history.tokens)
        senders = history.senders or (None,) * len(history.tokens)
        named = history.named or (0.0,) * len(history.tokens)
        pairs = zip(
            history.tokens, history.tokens[1:], made, made[1:], checked[1:], modified_ns, senders,
            named[1:], strict=False,
        )  # fmt: skip
        for below, token, made_s, after, checked_s, below_ns, sender, named_s in pairs:
            before = max(made_s, named_s)  # when the version could be found under the name
            if checked_s is None and 0 < after - before < self.moment_s:
                continue
            if checked_s is not None and checked_s <= before:
                continue
            save = self.saves.get(token or "")
            under = self.saves.get(below or "")
            if save is None or under is None or save.who in (under.who, sender):
                continue
            shown_ns = self.shown_ns.get(save.token, 0)
            if save.saw == NOT_READ and (shown_ns == below_ns or shown_ns not in modified_ns):
                continue
            if save.token in self.late:
                continue  # the request was on its way, and cannot say what it must not replace
            known = self._ancestors(save, places)
            if (known | {save.token}) & self.replacing:
                continue  # the file over which it was renamed need not have been read
            if known and known.isdisjoint(history.tokens):
                continue  # the same, and its id was not known
            if any(self.replaced_ns.get(each) == below_ns for each in known | {save.token}):
                continue  # the machine showed this version before the rename
            if self._places.get(save.token, set()) & self.moved.get(history.id, set()):
                continue  # continues the history of the file that had the name before
            if under.number <= self.given_up.get((save.who, history.id), 0):
                continue  # the program need not look at what it removes or replaces
            if under.token in known or self._has_seen(save, under):
                continue
            found.append(f"{history.path}: {token} (read {save.saw}) overwrote {below} unseen")
        return found

    def _ancestors(self, save: Save, places: Mapping[str, object]) -> set[str]:
        """Return the bases of the save, through saves of the same machine that were never sent."""
        known: set[str] = set()
        while save.saw in self.saves and save.saw not in known:
            known.add(save.saw)
            save = self.saves[save.saw]
            if save.token in places:
                break
            if save.saw == NOT_READ:
                known |= self.saves.keys()  # it replaced what it had not looked at
        return known

    def _has_seen(self, save: Save, under: Save) -> bool:
        return self._seen.get(save.who, {}).get(under.token, save.number) < save.number
