"""Random programs on a desk: ways to save, mixed with any other operations.

    python -m tests.unit.sync.programs 100000 [SEED]     number of random operations

Knows nothing about the implementation of the desk.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from tests.unit.sync.desk import Desk
from tests.unit.sync.remote_side import TakenError
from tests.unit.sync.sending import NOWHERE, ZONE, Node
from zonedrive.sync.planner import Step

NAMES = ("a", "b", "c", "d", "a~")


def rename_over(desk: Desk, file: Node) -> Iterator[None]:
    """Rename a temporary file over the old one."""
    new = desk.create(ZONE, f"{file.name}.tmp")
    yield
    desk.write(new)
    yield
    desk.close(new)
    yield
    desk.rename(new, ZONE, file.name)


def rename_while_open(desk: Desk, file: Node) -> Iterator[None]:
    """Rename an open temporary file over the old one, and close it last."""
    new = desk.create(ZONE, f"{file.name}.tmp")
    yield
    desk.rename(new, ZONE, file.name)
    yield
    desk.close(desk.child(ZONE, file.name) or new)


def in_place(desk: Desk, file: Node) -> Iterator[None]:
    """Write several times, with an fsync after each."""
    for _ in range(3):
        desk.write(file)
        yield
    desk.close(file)


def rename_aside(desk: Desk, file: Node) -> Iterator[None]:
    """Rename the old file, write a new one, and remove the old one."""
    name = file.name
    desk.unhurried.add(file.ino)
    desk.rename(file, ZONE, f"{name}.old")
    yield
    new = desk.create(ZONE, name)
    yield
    desk.close(new)
    yield
    old = desk.child(ZONE, f"{name}.old")
    assert old is not None
    desk.remove(old)


def backup(desk: Desk, file: Node) -> Iterator[None]:
    """Rename the old file to a local-only name, which it keeps for any time."""
    name = file.name
    desk.rename(file, ZONE, f"{name}~")
    yield
    new = desk.create(ZONE, name)
    yield
    desk.close(new)


def unlink_and_create(desk: Desk, file: Node) -> Iterator[None]:
    """Remove the file, and write it again."""
    name = file.name
    desk.unhurried.add(file.ino)
    desk.remove(file)
    yield
    new = desk.create(ZONE, name)
    yield
    desk.write(new)
    yield
    desk.close(new)


def by_local_folder(desk: Desk, file: Node) -> Iterator[None]:
    """Save like rsync --delay-updates."""
    folder = desk.mkdir(ZONE, f"{file.name}.d~")
    yield
    new = desk.create(folder.ino, "x")
    yield
    desk.close(new)
    yield
    desk.rename(new, ZONE, file.name)
    desk.remove(folder)


WAYS: tuple[Callable[[Desk, Node], Iterator[None]], ...] = (
    rename_over, rename_while_open, in_place, rename_aside, backup, unlink_and_create,
    by_local_folder,
)  # fmt: skip
OPERATIONS = (
    "create", "create", "write", "close", "remove", "rename", "rename", "mkdir", "exchange",
    "outbox", "outbox", "outbox", "answer", "answer", "lose", "save", "save",
)  # fmt: skip


class Play:
    """Random operations on a desk, with saves in between."""

    def __init__(self) -> None:
        self.desk = Desk()
        self._files = {way.__name__: self.desk.seed(way.__name__) for way in WAYS}
        self._ids = {name: file.remote_id for name, file in self._files.items()}
        self._saves = {way.__name__: way(self.desk, self._files[way.__name__]) for way in WAYS}
        self._saving = list(self._saves)
        for name in NAMES[:3]:
            self.desk.seed(name)

    def do(self, operation: str, first: int, second: int) -> None:
        """Do one operation; it is refused if a kernel would refuse it."""
        desk = self.desk
        desk.done[operation] += 1
        noise = [
            node for node in desk.nodes.values()
            if node.parent != NOWHERE and self._is_noise(node)
        ]  # fmt: skip
        folders = [ZONE, *(node.ino for node in noise if node.folder)]
        node = noise[first % len(noise)] if noise else None
        place = folders[second % len(folders)], NAMES[second // 8 % len(NAMES)]
        try:
            match operation:
                case "create":
                    desk.create(*place)
                case "mkdir":
                    desk.mkdir(*place)
                case "save":
                    self._save(first)
                case "outbox":
                    steps = desk.steps()
                    if steps:
                        self._start(steps[first % len(steps)])
                case "answer" | "lose":
                    waiting = sorted(desk.under_way)
                    if waiting:
                        desk.answer(waiting[first % len(waiting)], lost=operation == "lose")
                case _ if node is None:
                    pass
                case "write":
                    desk.write(node)
                case "close":
                    desk.close(node)
                case "remove":
                    desk.remove(node)
                case "rename":
                    desk.rename(node, *place)
                case "exchange":
                    other = noise[second % len(noise)]
                    desk.exchange(node, other)
        except OSError:
            desk.done["refused"] += 1

    def _start(self, step: Step) -> None:
        try:
            self.desk.start(step)
        except TakenError:
            self.desk.done["tried again"] += 1
            self.desk.refresh()
            assert self.desk.under_way.pop(step.ino, None) is None

    def _is_noise(self, node: Node) -> bool:
        while node.parent not in (ZONE, NOWHERE):
            node = self.desk.nodes[node.parent]
        return node.name in NAMES

    def _save(self, number: int) -> None:
        if not self._saving:
            return
        name = self._saving[number % len(self._saving)]
        try:
            next(self._saves[name])
        except StopIteration:
            self._saving.remove(name)
            self.desk.unhurried.discard(self._files[name].ino)

    def end(self) -> None:
        """Finish every save, close everything, let the outbox work; then compare both sides."""
        desk = self.desk
        while self._saving:
            self._save(0)
        for node in list(desk.nodes.values()):
            if node.writing:
                desk.close(node)
        chance = random.Random(1)  # whatever the order, it comes to an end
        for _ in range(2000):
            for ino in sorted(desk.under_way):
                desk.answer(ino, lost=False)
            steps = desk.steps()
            if not steps:
                break
            self._start(chance.choice(steps))
        left = [intent for intent in desk.journal.all() if not intent.parked]
        assert not left, f"never sent: {left}"
        known = [node for node in desk.nodes.values() if not node.local]  # no step asks of others
        assert not [node for node in known if node.doubt is not None]
        self._compare()

    def _compare(self) -> None:
        desk, here = self.desk, {}
        parked = {node.remote_id for node in desk.nodes.values() if node.local}
        for node in desk.nodes.values():
            if node.parent != NOWHERE and not self._is_local(node):
                here[self._path(node)] = 0 if node.folder else node.content
        there = {
            path: content for path, content in desk.service.tree().items()
            if not self._below_parked(path, parked)
        }  # fmt: skip
        assert there == here, f"there {there}, here {here}"
        for name, entry_id in self._ids.items():
            entry = desk.service.entries[entry_id or ""]
            assert entry.name == name
            assert len(entry.versions) == 2, f"{name}: {entry.versions}"

    def _below_parked(self, path: str, parked: set[str | None]) -> bool:
        """Return True if the service keeps the file because it has a local-only name here."""
        service = self.desk.service
        paths = {service._path(each) for each in parked if each in service.entries}
        return any(path == each or path.startswith(f"{each}/") for each in paths)

    def _is_local(self, node: Node) -> bool:
        return node.local or (node.parent != ZONE and self._is_local(self.desk.nodes[node.parent]))

    def _path(self, node: Node) -> str:
        above = self.desk.nodes[node.parent]
        return node.name if above.ino == ZONE else f"{self._path(above)}/{node.name}"


def main(wanted: int, seed: int = 1) -> None:
    """Run that many random operations, in plays of random length."""
    chance, done, plays = random.Random(seed), Counter[str](), 0
    while sum(done[each] for each in set(OPERATIONS)) < wanted:
        play, plays = Play(), plays + 1
        script = [
            (chance.choice(OPERATIONS), chance.randrange(256), chance.randrange(256))
            for _ in range(chance.choice((20, 60, 200)))
        ]
        try:
            for call in script:
                play.do(*call)
            play.end()
        except Exception:
            print(f"play {plays} of seed {seed}: {script}", file=sys.stderr)
            raise
        done += play.desk.done
    print(f"{plays} plays with {plays * len(WAYS)} planted saves:", dict(done))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
