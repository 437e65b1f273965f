"""Inodes, a service, and the steps of the outbox between them, all in memory.

The journal and the folding are the real ones.  The vfs is modelled independently and as briefly as
possible: a second implementation, not a copy.  Knows no network, no bytes (content is a number) and
no time.
"""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

from tests.unit.sync.remote_side import ROOT_ID, Service
from zonedrive.causes import Cause
from zonedrive.db import Database
from zonedrive.model import Revision
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.sync.planner import Action, InodeView, Place, Step, fold

ZONE, NOWHERE = 1, 0


@dataclass
class PendingRequest:
    """Request whose answer is not known here."""

    sent_by: int
    generation: int  # 0: a folder, or a move
    folder: str
    name: str
    remote_id: str | None

    @property
    def is_move(self) -> bool:
        """Return True if the request moves an entry to that place."""
        return self.remote_id is not None and not self.generation


@dataclass
class Node:
    """Inode of the model."""

    ino: int
    parent: int
    name: str
    folder: bool = False
    remote_id: str | None = None
    origin: tuple[str, str] | None = None  # the folder's id and the name there
    revision: int = 0  # number of the version known here
    content: int = 0
    generation: int = 0  # content that is only here
    writing: bool = False
    local: bool = False
    doubt: PendingRequest | None = None


class _Memory:
    """Database that stores nothing, because the journal keeps its rows in memory anyway."""

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def execute(self, *_: object) -> "_Memory":
        return self

    def fetchall(self) -> list[object]:
        return []

    def on_rollback(self, step: object) -> None:
        """Ignore the callback, because no transaction fails."""


@dataclass
class Under:
    """Running request, whose effect on the service is complete."""

    step: Step
    remote_id: str
    doubt: PendingRequest | None
    place: tuple[str, str]


@dataclass
class Sending:
    """Inodes, and their transfer to the service."""

    service: Service = field(default_factory=Service)
    nodes: dict[int, Node] = field(default_factory=dict)
    under_way: dict[int, Under] = field(default_factory=dict)
    unhurried: set[int] = field(default_factory=set)  # removed or renamed a moment ago
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.journal = IntentTable(cast(Database, _Memory()))
        self._last = ZONE
        self._generation = 0
        self.nodes[ZONE] = Node(ZONE, NOWHERE, "", folder=True, remote_id=ROOT_ID)

    # ---- looking ----

    def child(self, parent: int, name: str) -> Node | None:
        """Return the entry with that name."""
        return next((n for n in self.nodes.values() if (n.parent, n.name) == (parent, name)), None)

    def inside(self, parent: int) -> list[Node]:
        """Return the entries of a folder."""
        return [node for node in self.nodes.values() if node.parent == parent]

    def by_remote(self, remote_id: str | None) -> Node | None:
        """Return the inode of an entry on the service."""
        return next((n for n in self.nodes.values() if n.remote_id == remote_id), None)

    def new(self, parent: int, name: str, **fields: object) -> Node:
        """Add an inode."""
        self._last += 1
        node = self.nodes[self._last] = Node(self._last, parent, name, **fields)  # type: ignore[arg-type]
        return node

    def seed(self, name: str) -> Node:
        """Add a file that both sides have."""
        remote_id = self.service.put(ROOT_ID, name, 1)
        return self.new(
            ZONE, name, remote_id=remote_id, origin=(ROOT_ID, name), revision=1, content=1
        )

    def _stays_local(self, parent: int, name: str) -> bool:
        return self.nodes[parent].local or name.endswith("~")

    def _content(self, node: Node, base: Revision | None, *, held: bool) -> None:
        self.journal.content(node.ino, node.generation, 1, base=base, held=held, due_ns=0)

    def _send(self, node: Node, base: Revision | None) -> None:
        self._content(node, base, held=node.writing)
        self.journal.set_base(node.ino, base)

    def _give_up_identity(self, node: Node) -> None:
        """Make the node a new file with its former bytes, because its entry is to be deleted."""
        self._keep_bytes(node)
        ghost = self.new(NOWHERE, node.name, remote_id=node.remote_id, origin=node.origin)
        ghost.revision, ghost.doubt = node.revision, node.doubt
        node.remote_id = node.origin = node.doubt = None
        self.journal.drop(node.ino)
        self.journal.gone(ghost.ino, 0)

    def _keep_bytes(self, node: Node) -> None:
        if not node.generation:
            self._generation += 1
            node.generation = node.content = -self._generation

    def _wanted(self, node: Node) -> tuple[str, str]:
        above = self.nodes.get(node.parent)
        return (above and above.remote_id) or "", node.name

    # ---- the way out ----

    def _above(self, node: Node) -> list[int]:
        """Return the folders above the node on the service."""
        folders: list[int] = []
        above = node.origin
        while above is not None:
            folder = self.by_remote(above[0])
            above = folder.origin if folder is not None else None
            if folder is not None:
                folders.append(folder.ino)
        return folders

    def describe(self, intent: Intent) -> InodeView:
        """Return the view of an inode for folding."""
        node = self.nodes[intent.ino]
        inside = self._above(node)
        origin: Place | None = None
        if inside and node.origin is not None:
            origin = (inside[0], node.origin[1])
        if node.remote_id is None and node.doubt is not None:
            folder = self.by_remote(node.doubt.folder)
            inside = [] if folder is None else [folder.ino, *self._above(folder)]
            origin = (folder.ino, node.doubt.name) if folder is not None else None
        place = (node.parent, node.name)
        toward: list[int] = []
        if node.folder and node.remote_id is not None and node.parent != NOWHERE:
            toward = self._above(self.nodes[node.parent])
        return InodeView(
            node.ino,
            node.folder,
            node.remote_id is None,
            place,
            origin,
            tuple(inside),
            tuple(toward),
        )

    def steps(self) -> list[Step]:
        """Return the steps that could start now."""
        intents = self.journal.all()
        subjects = {intent.ino: self.describe(intent) for intent in intents}
        writing = {
            (node.parent, node.name)
            for node in self.nodes.values()
            if node.writing and node.remote_id is None and not node.local
        }
        busy = {ino for each in self.under_way.values() for ino in (each.step.ino, each.step.other)}
        return [
            step
            for step in fold(intents, subjects, writing)
            if not step.after
            and busy.isdisjoint({step.ino, step.other} - {0})
            and not (step.ino in self.unhurried and step.action in (Action.MOVE, Action.DELETE))
        ]

    def start(self, step: Step) -> None:
        """Start a step; its effect on the service is complete afterwards."""
        node = self.nodes[step.ino]
        self.done[f"step {step.action.name}"] += 1
        perhaps_there = [
            each.ino
            for each in self.nodes.values()
            if each.doubt is not None
            and each.doubt.is_move
            and (each.doubt.folder, each.doubt.name) == self._wanted(node)
        ]
        for ino in (step.other, step.ino, *perhaps_there):
            if ino and self._settle(self.nodes[ino]):
                return
        intent = self.journal.get(step.ino)
        if intent is None:
            return
        folder, name = self._wanted(node)
        asked = {each.place for each in self.under_way.values()}
        if node.remote_id is None and step.action is not Action.ADOPT and (folder, name) in asked:
            return
        match step.action:
            case Action.ADOPT:
                self._adopt(node, self.nodes[step.other])
            case Action.WITHDRAW:
                self._give_up_identity(node)
            case Action.MAKE | Action.UPLOAD:
                doubt = PendingRequest(node.ino, intent.generation, folder, name, node.remote_id)
                if node.remote_id is None:
                    made = self.service.put(folder, name, intent.generation)
                else:
                    assert intent.base is not None
                    assert node.origin is not None
                    known = int(intent.base)
                    self.service.add_version(node.remote_id, known, intent.generation)
                    doubt.folder, doubt.name = node.origin
                    made = node.remote_id
                node.doubt = doubt
                self.under_way[node.ino] = Under(step, made, doubt, (doubt.folder, doubt.name))
            case Action.MOVE | Action.ASIDE:
                assert node.remote_id is not None
                if step.action is Action.ASIDE:
                    folder, name = ROOT_ID, f".aside-{node.ino}-{intent.seq}"
                self.service.move(node.remote_id, folder, name)
                node.doubt = PendingRequest(node.ino, 0, folder, name, node.remote_id)
                self.under_way[node.ino] = Under(step, node.remote_id, node.doubt, (folder, name))
            case Action.DELETE:
                self.service.delete(node.remote_id)
                self.under_way[node.ino] = Under(step, node.remote_id or "", None, ("", ""))

    def refresh(self) -> None:
        """Apply a listing: names are those of the service, except during requests."""
        for node in self.nodes.values():
            entry = self.service.entries.get(node.remote_id or "")
            if entry is not None and node.ino not in self.under_way:
                node.origin = (entry.folder, entry.name)

    def answer(self, ino: int, *, lost: bool) -> None:
        """Deliver or lose the answer to a request."""
        under = self.under_way.pop(ino)
        self.done["lost replies" if lost else "replies"] += 1
        if lost:
            self.journal.postpone(under.step.intent, 0, "no answer", Cause.SERVICE)
            return
        step, node = under.step, self.nodes.get(ino)
        if under.doubt is not None:
            owner = next((n for n in self.nodes.values() if n.doubt is under.doubt), None)
            if owner is not None and under.doubt.is_move:
                owner.doubt, owner.origin = None, under.place
            elif owner is not None:
                self._arrived(owner, under.remote_id)
            if step.action is Action.MOVE:
                self.journal.done(step.intent, place=True)
        elif node is not None:
            self.journal.drop(ino)
            del self.nodes[ino]

    def _settle(self, node: Node) -> bool:
        doubt = node.doubt
        if doubt is None:
            return False
        if any(each.doubt is doubt for each in self.under_way.values()):
            return True  # it is waited for
        if doubt.is_move:
            self._locate(node)
            return True
        found = self.service.find(doubt.folder, doubt.name, doubt.remote_id, doubt.generation)
        if found is not None and (node.remote_id or found) == found:
            self._arrived(node, found)
            return True
        node.doubt = None
        if node.remote_id is None and node.parent == NOWHERE:
            self.journal.drop(node.ino)
            del self.nodes[node.ino]
        return node.remote_id is None

    def _locate(self, node: Node) -> None:
        """Find out if a move without an answer was made."""
        node.doubt = None
        entry = self.service.entries.get(node.remote_id or "")
        if entry is None:
            return
        node.origin = entry.folder, entry.name
        intent = self.journal.get(node.ino)
        if intent is None or not (intent.place or intent.gone):
            if node.parent != NOWHERE and self._wanted(node) != node.origin:
                self.journal.place(node.ino, 0)
        elif intent.place and not intent.parked and self._wanted(node) == node.origin:
            self.journal.done(intent, place=True)

    def _arrived(self, node: Node, remote_id: str) -> None:
        doubt, node.doubt = node.doubt, None
        assert doubt is not None
        entry = self.service.entries[remote_id]
        node.remote_id, node.origin = remote_id, (entry.folder, entry.name)
        node.revision = len(entry.versions)
        intent = self.journal.get(node.ino)
        if intent is not None:
            self.journal.set_base(node.ino, Revision(str(node.revision)))
        if intent is not None and not intent.gone:
            if doubt.sent_by == node.ino and intent.generation == doubt.generation:
                self.journal.done(intent, content=True)
            if node.folder:
                self.journal.done(intent, place=True)
            left = self.journal.get(node.ino)
            if not (left is not None and left.parked) and self._wanted(node) != node.origin:
                self.journal.place(node.ino, 0)
        left = self.journal.get(node.ino)
        if node.generation == doubt.generation and not (left and left.generation):
            node.generation = 0

    def _adopt(self, new: Node, old: Node) -> None:
        intent = self.journal.get(old.ino)
        assert intent is not None
        if intent.gone and old.remote_id not in self.service.entries:
            self.journal.drop(old.ino)  # its removal was carried out: the new one is just new
            del self.nodes[old.ino]
            return
        base = intent.base or Revision(str(old.revision))
        new.remote_id, new.origin, new.revision = old.remote_id, old.origin, old.revision
        old.remote_id = old.origin = None
        self.journal.set_base(new.ino, base)
        if intent.gone:
            self.journal.drop(old.ino)
            del self.nodes[old.ino]
            return
        self._keep_bytes(old)
        if old.local:
            self.journal.drop(old.ino)
        else:
            self.journal.done(intent, place=True)
            self._content(old, None, held=old.writing)
