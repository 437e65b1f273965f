"""A listing from the service, merged into the tree.

What changed here and is not on the service yet wins over what the listing says; the outbox
settles the difference later.  Knows no network: who calls has fetched the listing, and says when
it was asked for, so that a reply that was overtaken by a change of ours undoes nothing.
"""

from collections.abc import Callable, Iterable
from enum import Flag, auto

import msgspec

from zonedrive.model import Entry, Zone
from zonedrive.tree.inode import ROOT, Inode, Kind
from zonedrive.tree.names import local_name
from zonedrive.tree.tree import Tree


class Local(Flag):
    """What of an inode the service does not know yet."""

    NOTHING = 0
    CONTENT = auto()
    PLACE = auto()
    GONE = auto()


class Merged(msgspec.Struct):
    """What a listing changed, for those who cache."""

    gone: list[tuple[int, str, int]] = []  # parent, name, ino
    appeared: list[tuple[int, str]] = []  # parent, name
    content: list[int] = []  # other bytes
    attributes: list[int] = []  # the same bytes, other attributes
    hidden: dict[str, Entry] = {}  # by name: behind a new file of ours of that name


class Merge:
    """One listing on its way into one folder."""

    def __init__(
        self, tree: Tree, folder: Inode, asked_ns: int, local: Callable[[int], Local]
    ) -> None:
        """`asked_ns`: when the listing was requested (monotonic)."""
        self._tree = tree
        self._folder = folder
        self._asked_ns = asked_ns
        self._local = local
        self._result = Merged()
        self._seen: set[int] = set()

    def entries(self, entries: Iterable[Entry]) -> Merged:
        """Make the folder show `entries`."""
        tree, folder = self._tree, self._folder
        with tree.transaction():
            children = tree.inodes_in(folder.ino)
            known = {child.remote_id: child for child in children if child.remote_id}
            ours = {child.remote_name or child.name for child in children if child.is_new}
            for entry in sorted(entries, key=lambda each: each.id):
                if entry.deleted or tree.settled_since(folder.zone, entry.id, self._asked_ns):
                    if entry.id in known:
                        self._seen.add(known[entry.id].ino)
                    continue
                inode = known.get(entry.id) or tree.by_remote(folder.zone, entry.id)
                if inode is not None and inode.is_folder != entry.folder:
                    self._remove(inode)
                    inode = None
                if inode is not None:
                    self._seen.add(inode.ino)
                    self._update(inode, entry)
                elif entry.name in ours:
                    self._result.hidden[entry.name] = entry
                else:
                    self._add(entry)
            for child in children:
                self._sweep(child)
            tree.update(folder, listed=True)
        return self._result

    def zones(self, zones: Iterable[Zone]) -> Merged:
        """Make the root show the accessible `zones`."""
        tree = self._tree
        with tree.transaction():
            children = tree.inodes_in(ROOT)
            known = {child.zone: child for child in children}
            for zone in sorted(zones, key=lambda each: each.id):
                if not zone.accessible:
                    continue
                inode = known.get(zone.id)
                if inode is None:
                    name = local_name(zone.name, zone.id, tree.children(ROOT))
                    inode = tree.add(
                        ROOT,
                        name,
                        Kind.ZONE,
                        zone=zone.id,
                        remote_id=zone.root_id,
                        remote_name=zone.name,
                        **({"mtime_ns": zone.created_ns} if zone.created_ns else {}),
                    )
                    self._result.appeared.append((ROOT, name))
                elif inode.remote_name != zone.name:
                    self._rename(inode, ROOT, zone.name, zone.id)
                    tree.update(inode, remote_name=zone.name)
                if inode.remote_id != zone.root_id:
                    tree.update(inode, remote_id=zone.root_id, listed=False)
                self._seen.add(inode.ino)
            for child in children:
                if child.ino not in self._seen and not self._busy(child):
                    self._remove(child)
            tree.update(self._folder, listed=True)
        return self._result

    def _add(self, entry: Entry) -> None:
        folder = self._folder
        name = local_name(entry.name, entry.id, self._tree.children(folder.ino))
        self._tree.add(
            folder.ino,
            name,
            Kind.FOLDER if entry.folder else Kind.FILE,
            zone=folder.zone,
            remote_id=entry.id,
            remote_parent=folder.remote_id,
            remote_name=entry.name,
            revision=entry.revision,
            size=0 if entry.folder else entry.size,
            mtime_ns=entry.modified_ns,
            modified_by=entry.modified_by,
            type=entry.type,
            sync=entry.sync,
            attributes=entry.attributes,
        )
        self._result.appeared.append((folder.ino, name))

    def _update(self, inode: Inode, entry: Entry) -> None:
        tree, folder, local = self._tree, self._folder, self._local(inode.ino)
        renamed = inode.remote_name != entry.name
        if not local & (Local.PLACE | Local.GONE) and (renamed or inode.parent != folder.ino):
            self._rename(inode, folder.ino, entry.name, entry.id)
        tree.update(inode, remote_parent=folder.remote_id, remote_name=entry.name)
        if local & (Local.CONTENT | Local.GONE):
            return  # what the edit began from stays, so that a version in between is noticed
        if inode.revision != entry.revision:
            tree.update(
                inode,
                revision=entry.revision,
                size=0 if entry.folder else entry.size,
                mtime_ns=entry.modified_ns,
                modified_by=entry.modified_by,
            )
            if not entry.folder:
                self._result.content.append(inode.ino)
        fields = {"type": entry.type, "sync": entry.sync, "attributes": entry.attributes}
        if any(getattr(inode, name) != value for name, value in fields.items()):
            tree.update(inode, **fields)
            self._result.attributes.append(inode.ino)

    def _rename(self, inode: Inode, parent: int, name: str, entry_id: str) -> None:
        old = (inode.parent, inode.name)
        taken = dict(self._tree.children(parent))
        if inode.parent == parent:
            del taken[inode.name]
        shown = local_name(name, entry_id, taken)
        if (parent, shown) == old:
            return
        self._tree.move(inode, parent, shown)
        self._result.gone.append((*old, inode.ino))
        self._result.appeared.append((parent, shown))

    def _sweep(self, child: Inode) -> None:
        """Take away what the listing no longer names, unless it is ours to bring there."""
        if (
            child.is_new
            or child.ino in self._seen
            or child.parent != self._folder.ino
            or child.remote_parent != self._folder.remote_id  # moved here, not on the service yet
            or self._tree.settled_since(child.zone, child.remote_id or "", self._asked_ns)
            or self._busy(child)
        ):
            return
        self._remove(child)

    def _busy(self, inode: Inode) -> bool:
        """Whether the inode, or anything in it, holds what the service does not have."""
        return any(each.generation or self._local(each.ino) for each in self._tree.below(inode.ino))

    def _remove(self, inode: Inode) -> None:
        if inode.is_folder:
            for child in self._tree.inodes_in(inode.ino):
                self._remove(child)
        self._result.gone.append((inode.parent, inode.name, inode.ino))
        self._tree.unlink(inode)
