"""A listing from the service, merged into the tree.

What changed here and is not on the service yet wins over what the listing says; the outbox
settles the difference later.  Knows no network: who calls has fetched the listing, and says when
it was asked for, so that a reply that was overtaken by a change of ours undoes nothing.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator
from enum import Flag, auto
from typing import Any

import msgspec

from zonedrive.model import Entry, Revision, Zone
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
    moved: list[tuple[int, str]] = []  # parent and name that a folder, still there, had before
    appeared: list[tuple[int, str]] = []  # parent, name
    content: list[int] = []  # other bytes
    attributes: list[int] = []  # the same bytes, other attributes
    orphaned: list[int] = []  # folders the service no longer has, kept for what is in them
    hidden: dict[str, Entry] = {}  # by name: behind a new file of ours, or perhaps such a one


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

    def entries(self, entries: Iterable[Entry], in_doubt: Container[str] = ()) -> Merged:
        """Make the folder show `entries`.

        `in_doubt` are names under which something of ours may have arrived: what has one, and is
        not known yet, is not shown before that is found out.
        """
        tree, folder = self._tree, self._folder
        with tree.transaction():
            children = tree.inodes_in(folder.ino)
            known = {child.remote_id: child for child in children if child.remote_id}
            ours = {child.remote_name or child.name for child in children if child.is_new}
            met: list[tuple[Inode, Entry]] = []
            fresh: list[Entry] = []
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
                    met.append((inode, entry))
                elif entry.name in ours or entry.name in in_doubt:
                    self._result.hidden[entry.name] = entry
                else:
                    fresh.append(entry)
            # Names are given back before they are given out.
            for child in children:
                self._sweep(child)
            self._rename([(inode, entry.name, entry.id) for inode, entry in self._renamed(met)])
            for inode, entry in met:
                self._update(inode, entry)
            for entry in fresh:
                self._add(entry)
            tree.update(folder, listed=True)
        return self._result

    def zones(self, zones: Iterable[Zone]) -> Merged:
        """Make the root show the accessible `zones`."""
        tree, root = self._tree, self._folder
        with tree.transaction():
            zones_here = [child for child in tree.inodes_in(ROOT) if child.kind is Kind.ZONE]
            known = {child.zone: child for child in zones_here}
            shown = sorted((zone for zone in zones if zone.accessible), key=lambda each: each.id)
            for gone in known.keys() - {zone.id for zone in shown}:
                if not self._busy(known[gone]):
                    self._remove(known[gone])
            met = [(known[zone.id], zone) for zone in shown if zone.id in known]
            self._rename(
                [
                    (inode, zone.name, zone.id)
                    for inode, zone in met
                    if inode.remote_name != zone.name
                ]
            )
            for inode, zone in met:
                tree.update(inode, remote_name=zone.name)
                if inode.remote_id != zone.root_id:
                    tree.update(inode, remote_id=zone.root_id, listed=False)
            for zone in shown:
                if zone.id not in known:
                    self._add_zone(zone)
            tree.update(root, listed=True)
        return self._result

    def _add_zone(self, zone: Zone) -> None:
        name = local_name(zone.name, zone.id, self._tree.children(ROOT))
        self._tree.add(
            ROOT,
            name,
            Kind.ZONE,
            zone=zone.id,
            remote_id=zone.root_id,
            remote_name=zone.name,
            **({"mtime_ns": zone.created_ns} if zone.created_ns else {}),
        )
        self._result.appeared.append((ROOT, name))

    def _add(self, entry: Entry) -> None:
        folder = self._folder
        name = local_name(entry.name, entry.id, self._tree.children(folder.ino))
        self._tree.add(folder.ino, name, **fields_of(entry, folder))
        self._result.appeared.append((folder.ino, name))

    def _renamed(self, met: list[tuple[Inode, Entry]]) -> Iterator[tuple[Inode, Entry]]:
        """Those that the service has under another name, or has moved here."""
        for inode, entry in met:
            if self._local(inode.ino) & (Local.PLACE | Local.GONE):
                continue
            if inode.remote_name != entry.name or inode.parent != self._folder.ino:
                yield inode, entry

    def _rename(self, renames: list[tuple[Inode, str, str]]) -> None:
        """(inode, the service's name, id): all at once, for names may be exchanged."""
        tree, parent = self._tree, self._folder.ino
        before = [(inode.parent, inode.name) for inode, _, _ in renames]
        for inode, _, _ in renames:
            tree.move(inode, parent, f"/{inode.ino}")  # a name that no entry can have
        for (inode, name, entry_id), old in zip(renames, before, strict=True):
            shown = local_name(name, entry_id, tree.children(parent))
            tree.move(inode, parent, shown)
            if (parent, shown) != old:
                if inode.is_folder:
                    self._result.moved.append(old)
                else:
                    self._result.gone.append((*old, inode.ino))
                self._result.appeared.append((parent, shown))

    def _update(self, inode: Inode, entry: Entry) -> None:
        tree, local = self._tree, self._local(inode.ino)
        tree.update(inode, remote_parent=self._folder.remote_id, remote_name=entry.name)
        if local & (Local.CONTENT | Local.GONE) or (inode.local and inode.generation):
            return  # what the edit began from stays, so that a version in between is noticed
        if inode.revision != entry.revision:
            tree.update(
                inode,
                revision=entry.revision,
                size=0 if entry.folder else entry.size,
                mtime_ns=entry.modified_ns,
                ctime_ns=time.time_ns(),  # by which backups notice, whatever the service's clock
                modified_by=entry.modified_by,
            )
            if not entry.folder:
                self._result.content.append(inode.ino)
        fields = {"type": entry.type, "sync": entry.sync, "attributes": entry.attributes}
        if any(getattr(inode, name) != value for name, value in fields.items()):
            tree.update(inode, **fields, ctime_ns=time.time_ns())
            self._result.attributes.append(inode.ino)

    def _sweep(self, child: Inode) -> None:
        """Take away what the listing no longer names, unless it is ours to bring there."""
        if (
            child.is_new
            or child.ino in self._seen
            or child.parent != self._folder.ino
            or child.remote_parent != self._folder.remote_id  # moved here, not on the service yet
            or self._tree.settled_since(child.zone, child.remote_id or "", self._asked_ns)
        ):
            return
        if not self._busy(child):
            self._remove(child)
        elif child.is_folder:
            self._keep_ours(child)

    def _keep_ours(self, folder: Inode) -> None:
        """The service no longer has the folder, but something in it is only here."""
        for child in self._tree.inodes_in(folder.ino):
            if not self._busy(child):
                self._remove(child)
            elif child.is_folder:
                self._keep_ours(child)
        self._tree.update(
            folder, remote_id=None, remote_parent=None, remote_name=None, revision=Revision("")
        )
        self._result.orphaned.append(folder.ino)

    def _busy(self, inode: Inode) -> bool:
        """Whether the inode, or anything in it, holds what the service does not have."""
        return any(each.generation or self._local(each.ino) for each in self._tree.below(inode.ino))

    def _remove(self, inode: Inode) -> None:
        if inode.is_folder:
            for child in self._tree.inodes_in(inode.ino):
                self._remove(child)
        self._result.gone.append((inode.parent, inode.name, inode.ino))
        self._tree.unlink(inode)


def fields_of(entry: Entry, folder: Inode) -> dict[str, Any]:
    """What an inode that has just been heard of knows of its entry, in a folder."""
    return {
        "kind": Kind.FOLDER if entry.folder else Kind.FILE,
        "zone": folder.zone,
        "remote_id": entry.id,
        "remote_parent": folder.remote_id,
        "remote_name": entry.name,
        "revision": entry.revision,
        "size": 0 if entry.folder else entry.size,
        "mtime_ns": entry.modified_ns,
        "modified_by": entry.modified_by,
        "type": entry.type,
        "sync": entry.sync,
        "attributes": entry.attributes,
    }
