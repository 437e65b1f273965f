"""What is pinned: which entries a person wants on this machine, with all that lies below them.

Must not know the kernel, nor what is fetched for a pin; that is `keeping`.  A pin is remembered as
such, whatever lies below it follows from the tree: so what appears in a pinned folder is pinned,
too, and nothing has to be kept in step.

INVARIANT: what lies in a pin is never evicted, from the first moment on.
"""

import contextlib
from collections.abc import Container

import trio

from zonedrive.errors import ZonedriveError
from zonedrive.observers import Observers
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.tree.pins import Pin, PinStore
from zonedrive.vfs.core import Core


class Pins:
    """The pins of an account."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = PinStore(core.database)
        self._roots: set[int] = set()
        self._beside: set[int] = set()  # folders of pinned files
        self._asleep = False  # whether an entry that was pinned is gone
        self._added = trio.Event()
        self.changes: Observers[[]] = Observers()
        """Called when something was pinned, or let go of."""
        self.follow()

    def __contains__(self, ino: object) -> bool:
        """Whether an inode is pinned, or lies in something pinned."""
        return isinstance(ino, int) and bool(self._roots) and self.root_of(ino) is not None

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self._store.all())

    def root_of(self, ino: int) -> Inode | None:
        """What was pinned: the inode itself or the nearest folder above it."""
        tree = self._core.tree
        inode = tree.find(ino)
        while inode is not None and inode.parent != NOWHERE:
            if inode.ino in self._roots:
                return inode
            if inode.ino == ROOT:
                return None
            inode = tree.find(inode.parent)
        return None

    def concerns(self, ino: int) -> bool:
        """Whether what a folder holds tells something of what is pinned."""
        return ino in self or ino in self._beside

    def woken(self) -> bool:
        """Whether something pinned that was gone is back."""
        if not self._asleep:
            return False
        before = self._roots
        self.follow()
        return not self._roots <= before

    def places(self) -> list[int]:
        """The folders that were pinned and lie in no other such one, and those of pinned files."""
        self.follow()
        found = {ino for ino in self._beside if ino not in self}
        for inode in self._core.tree.get_all(self._roots):
            if inode.is_folder and (inode.ino == ROOT or inode.parent not in self):
                found.add(inode.ino)
        return sorted(found)

    async def some(self) -> bool:
        """Wait until anything is pinned; True where that was waited for."""
        waited = False
        while not self:
            waited = True
            await self._added.wait()
            self._added = trio.Event()
        return waited

    def roots(self) -> list[Inode]:
        """What was pinned and is there now, by path."""
        tree = self._core.tree
        self.follow()
        return sorted(map(tree.get, self._roots), key=lambda inode: tree.path(inode.ino))

    def single(self, folders: Container[int]) -> list[Inode]:
        """What was pinned by itself in these folders."""
        found = self._core.tree.get_all(self._roots)
        return [each for each in found if each.parent in folders and each.parent not in self]

    def add(self, inode: Inode) -> None:
        """Pin; whoever calls this has it brought here."""
        with self._core.transaction():
            self._store.put(Pin(inode.ino, inode.zone, inode.remote_id))
        self.follow()
        self._added.set()
        self.changes.notify()

    def remove(self, inode: Inode) -> None:
        """Let go of what `require` took for pinned."""
        with self._core.transaction():
            for pin in self._store.all():
                meant = self._inode_of(pin)
                if meant is not None and meant.ino == inode.ino:
                    self._store.drop(pin.ino)
        self.follow()
        self.changes.notify()

    def require(self, inode: Inode) -> None:
        """Raise ZonedriveError where an inode is not pinned itself."""
        self.follow()
        if inode.ino in self._roots:
            return
        above = self.root_of(inode.ino)
        if above is None:
            raise ZonedriveError("it is not pinned")
        raise ZonedriveError(
            f"it is kept with {self._core.tree.path(above.ino) or 'the whole mount'}",
            remedy="unpin that",
        )

    def _inode_of(self, pin: Pin) -> Inode | None:
        """What a pin means now; None where that is not known here (any more)."""
        tree = self._core.tree
        found = tree.by_remote(pin.zone, pin.remote_id) if pin.remote_id else None
        return found or tree.find(pin.ino)

    def follow(self) -> None:
        """Let each pin stand where its entry is now.

        One whose entry is gone sleeps: the entry may be restored.  Without an id it can not.
        """
        roots, asleep = set(), False
        for pin in self._store.all():
            inode = self._inode_of(pin)
            if inode is not None and inode.parent != NOWHERE:
                roots.add(inode.ino)
                self._note(pin, Pin(inode.ino, inode.zone, inode.remote_id or pin.remote_id))
            elif inode is None and pin.remote_id is None:
                self._note(pin, None)
            else:
                asleep = True
        self._roots, self._asleep = roots, asleep
        self._beside = {
            inode.parent for inode in self._core.tree.get_all(roots) if not inode.is_folder
        }

    def _note(self, pin: Pin, now: Pin | None) -> None:
        """Keep where a pin stands; on a full disk later."""
        if now == pin:
            return
        with contextlib.suppress(OSError), self._core.transaction():
            self._store.drop(pin.ino)
            if now is not None:
                self._store.put(now)
