"""Programs that change files, a service, and the outbox between them, all in memory.

The effect of each operation in the vfs is modelled here independently; sending is in `sending`.
"""

from dataclasses import dataclass

from tests.unit.sync.sending import NOWHERE, Node, Sending
from zonedrive.model import Revision


@dataclass
class Desk(Sending):
    """Programs, outbox and service; the operations raise OSError like the kernel."""

    # ---- what programs do ----

    def create(self, parent: int, name: str) -> Node:
        """Create a file like open(2) with O_CREAT; it stays open for writing."""
        if self.child(parent, name) is not None:
            raise FileExistsError(name)
        node = self.new(parent, name, local=self._stays_local(parent, name))
        node.writing = True
        self.write(node)
        return node

    def write(self, node: Node) -> None:
        """Write new content and commit it, like fsync."""
        if node.folder or node.parent == NOWHERE:
            raise IsADirectoryError(node.name)
        node.writing = True
        self._generation += 1
        node.generation = node.content = 100 + self._generation
        if not node.local:
            base = None if node.remote_id is None else Revision(str(node.revision))
            self._content(node, base, held=True)

    def close(self, node: Node) -> None:
        """Close the file for the last time."""
        node.writing = False
        intent = self.journal.get(node.ino)
        if intent is not None and intent.generation:
            self.journal.let_go(node.ino, 0)

    def mkdir(self, parent: int, name: str) -> Node:
        """Create a folder."""
        if self.child(parent, name) is not None:
            raise FileExistsError(name)
        node = self.new(parent, name, folder=True, local=self._stays_local(parent, name))
        if not node.local:
            self.journal.place(node.ino, 0)
        return node

    def remove(self, node: Node) -> None:
        """Remove an entry like unlink(2) and rmdir(2)."""
        if node.folder and self.inside(node.ino):
            raise OSError("not empty")
        node.writing = False
        if node.remote_id is None and node.doubt is None:
            self.journal.drop(node.ino)
            del self.nodes[node.ino]
            return
        node.parent, node.generation = NOWHERE, 0
        self.journal.gone(node.ino, 0)

    def rename(self, node: Node, parent: int, name: str) -> None:
        """Rename an entry like rename(2)."""
        target = self.child(parent, name)
        above = parent
        while above:
            if above == node.ino:
                raise OSError("into itself")
            above = self.nodes[above].parent
        if target is node:
            return
        if node.folder and self._stays_local(parent, name) and not node.local:
            raise OSError("another device")
        if target is not None:
            if target.folder != node.folder or self.inside(target.ino):
                raise OSError("in the way")
            self._replace(node, target)
        else:
            self._take_parked_place(node, parent, name)
        self._place(node, parent, name)

    def exchange(self, one: Node, other: Node) -> None:
        """Exchange two entries like renameat2(2) with RENAME_EXCHANGE."""
        if one.folder or other.folder:
            raise OSError("folders are moved by rename")
        here, there = (one.parent, one.name), (other.parent, other.name)
        one.name = f"/{one.ino}"
        self._place(other, *here)
        self._place(one, *there)

    # ---- what that means for the outbox ----

    def _take_parked_place(self, node: Node, parent: int, name: str) -> None:
        """Take over the history of the service's file there, which has a local-only name now."""
        wanted = self.nodes[parent].remote_id, name
        parked = (each.ino for each in self.journal.all() if each.parked)
        former = next((ino for ino in parked if self.nodes[ino].origin == wanted), node.ino)
        if former != node.ino and not node.folder and node.remote_id is not None:
            self._give_up_identity(node)
            self._send(node, None)

    def _replace(self, node: Node, target: Node) -> None:
        new, known = node.remote_id is None, target.remote_id is not None
        if not node.folder and not new and known:
            self._give_up_identity(node)  # the bytes are local: the target's history continues
            new = True
        if node.folder or not new or not known:
            self.remove(target)
            return
        intent = self.journal.get(target.ino)
        base = (intent.base if intent is not None else None) or Revision(str(target.revision))
        if node.doubt is not None:
            self._ghost(node)
        node.doubt = target.doubt
        self.journal.drop(target.ino)
        node.remote_id, node.origin = target.remote_id, target.origin
        node.revision = target.revision
        del self.nodes[target.ino]
        self._send(node, base)
        if intent is not None and intent.place:
            self.journal.place(node.ino, 0)

    def _ghost(self, node: Node) -> None:
        """Add an inode that removes a file which a pending request may have created."""
        ghost = self.new(NOWHERE, node.name, folder=node.folder, doubt=node.doubt)
        self.journal.gone(ghost.ino, 0)
        node.doubt = None

    def _place(self, node: Node, parent: int, name: str) -> None:
        was_local, node.local = node.local, self._stays_local(parent, name)
        node.parent, node.name = parent, name
        if node.remote_id is not None and node.local:
            self.journal.park(node.ino, Revision(str(node.revision)))
        elif node.remote_id is not None:
            self._unpark(node)
            self._note_place(node)
        elif node.folder and not node.local and not was_local:
            self._note_place(node)
        elif node.local and not was_local:
            self._withdraw(node)
        elif was_local and not node.local:
            self._publish(node)

    def _unpark(self, node: Node) -> None:
        intent = self.journal.get(node.ino)
        if intent is not None and intent.parked:
            self.journal.place(node.ino, 0)
            if node.generation:
                self._send(node, intent.base)

    def _withdraw(self, node: Node) -> None:
        if node.doubt is not None:
            self._ghost(node)
        node.local = True
        self.journal.drop(node.ino)
        for child in self.inside(node.ino):
            self._withdraw(child)

    def _publish(self, node: Node) -> None:
        if self._stays_local(node.parent, node.name):
            return
        node.local = False
        if node.remote_id is not None:
            self._unpark(node)
        elif node.folder:
            self.journal.place(node.ino, 0)
        elif node.generation:
            self._send(node, None)
        for child in self.inside(node.ino):
            self._publish(child)

    def _note_place(self, node: Node) -> None:
        intent = self.journal.get(node.ino)
        back = node.remote_id is not None and self._wanted(node) == node.origin
        asked = node.doubt is not None and node.doubt.is_move
        if not back or asked or node.ino in self.under_way:
            known = None if node.remote_id is None else Revision(str(node.revision))
            self.journal.place(node.ino, 0, known)
        elif intent is not None and intent.place:
            self.journal.done(intent, place=True)
