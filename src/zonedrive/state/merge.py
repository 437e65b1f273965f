"""Merge of a listing from the service into the local inodes.

Local changes that are not on the service yet take precedence over the listing. The outbox uploads
them later. This module does not use the network. The caller has fetched the listing, and passes the
time of the request. If this client has changed an entry since that time, the listing does not undo
the change.

A large folder is merged in steps of one transaction each. Other operations may run between the
steps, so each step checks again the rows that it is about to change. A hash of the service's last
data for each entry is stored (`Inode.seen`). An entry is decoded only if the hash of the new data
differs.
"""

import heapq
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

import msgspec

from zonedrive.errors import Changed, StoreError
from zonedrive.model import Entry, Zone
from zonedrive.state import remote_binding
from zonedrive.state.conflict_copies import end_conflict_if_renamed, rename_to_copy
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind, Local
from zonedrive.state.inode_table import batches
from zonedrive.state.inodes import Inodes
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import fits, folded, is_aside, local_name, safe, shows, zone_name

SORTED = 5000  # entries sorted in one step
STEP = 500  # entries of one transaction: about ten milliseconds


class RawListing(Protocol):
    """Listing of a folder, with numbered entries that are decoded on request."""

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the entries, in the order of their numbers; each id occurs once."""

    def said(self, number: int) -> bytes:
        """Return the JSON text of the entry with the given number, as received."""

    def entry(self, number: int) -> Entry | None:
        """Return the decoded entry with the given number, or None if the entry is deleted."""

    def unsure(self, number: int) -> bool:
        """Return True if the reply describes the entry incompletely.

        The entry's inode is then not changed.
        """

    @property
    def complete(self) -> bool:
        """True if `ids` contains the ids of all entries of the folder.

        If it is False, the merge keeps inodes whose entries are missing from `ids`.
        """

    @property
    def strangers(self) -> Sequence[Entry]:
        """Entries without an id; only the name of such an entry is usable."""


class Merged(msgspec.Struct, eq=False):
    """Changes that a merge has made, for updating caches of the tree."""

    gone: list[tuple[int, str, int]] = []  # parent, name, ino
    moved: list[tuple[int, str]] = []  # former parent and name of a renamed or moved folder
    appeared: int = 0  # number of new names; zones do not count
    content: list[int] = []  # files with new content, and folders with new times
    copies: list[tuple[int, int]] = []  # inode and generation: copies of former bytes
    attributes: list[int] = []  # inodes with new attributes
    unsure: int = 0  # number of entries that the reply describes incompletely
    unshown: int = 0  # number of such entries without an inode, which are not shown
    hidden: dict[str, Entry] = {}  # entries without an inode that occupy a name, by name

    @property
    def changed(self) -> bool:
        """True if any names or attributes have changed; file content does not count."""
        return bool(self.gone or self.moved or self.appeared or self.attributes)


class Merge:
    """Merge of one listing into one folder.

    INVARIANT: the merge does not unlink an inode that has local changes or whose entry is in the
    listing. The inode of a listed entry may be in another folder, because a program may have moved
    the inode there.
    """

    def __init__(
        self,
        state: LocalState,
        folder: Inode,
        asked_ns: int,
        can_make_folders: Callable[[], bool],
    ) -> None:
        """Prepare a merge into `folder`.

        `asked_ns` is the time of the request (monotonic clock). `can_make_folders` tells whether
        the service can create folders.
        """
        self._state = state
        self._inodes = state.inodes
        self._can_make_folders = can_make_folders
        self._folder = folder
        self._remote_id = folder.remote_id
        self._asked_ns = asked_ns
        self._seen: set[int] = set()
        self._is_first = False  # the first listing of the folder
        self.result = Merged()
        self._above_ours: set[int] | None = None  # inodes with local changes below them, per step

    # ---- the entries of a folder ----

    def entries(self, answer: RawListing) -> Iterator[None]:
        """Apply a listing of the folder in steps, and yield between two steps.

        The changes are collected in `result`. If the folder or a folder above it is removed between
        two steps, the remaining steps do nothing.
        """
        inodes, folder = self._inodes, self._folder
        known = inodes.numbers_in(folder.ino)
        self._is_first = not (known or folder.listed)
        for stranger in answer.strangers:
            self._hide(stranger)
        changed, elsewhere, fresh = list[int](), list[int](), list[int]()
        ids = answer.ids
        if not known and len(ids) <= STEP:  # the usual case when a program walks a tree
            inodes.note_empty(folder.ino)
            numbers = sorted(range(len(ids)), key=ids.__getitem__)
            return self._step(answer, numbers, (), last=True, empty=True)
        ordered: list[list[int]] = []
        for start in range(0, len(ids), SORTED):
            part = range(start, min(start + SORTED, len(ids)))
            ordered.append(sorted(part, key=ids.__getitem__))
            yield
        # Sorted by id, so that the same one of two entries with one name gets the hash suffix.
        for numbers in batches(heapq.merge(*ordered, key=ids.__getitem__), STEP):
            if known:
                self._compare(answer, numbers, changed, elsewhere, fresh)
            else:
                fresh += numbers
            yield
        left = [ino for ino in known if ino not in self._seen and answer.complete]
        yield from self._empty_large_folders(left)
        if len(fresh) > STEP or len(fresh) > len(self._seen):
            yield from inodes.loading(folder.ino)
        if len(ids) > SORTED and self._may_unmark(answer):
            yield from inodes.loading(folder.ino)
        if len(changed) + len(elsewhere) + len(fresh) + len(left) <= STEP:
            everything = sorted(changed + elsewhere + fresh, key=answer.ids.__getitem__)
            self._step(answer, everything, left, last=True)
            return
        if elsewhere:  # before their former folders are removed
            folders = set(inodes.rows.folders_in(folder.ino))
            self._step(answer, elsewhere, [ino for ino in left if ino in folders])
            yield
        renamed: list[int] = []
        for gone in batches(left, STEP):
            self._step(answer, (), gone)
            yield
        for numbers in batches(changed, STEP):
            self._step(answer, numbers, (), renamed)
            yield
        self._step(answer, renamed, ())  # together, because entries may have exchanged names
        yield
        for numbers in batches(fresh, STEP):
            self._step(answer, numbers, ())
            yield
        self._step(answer, (), (), last=True)

    def _compare(
        self,
        answer: RawListing,
        numbers: Sequence[int],
        changed: list[int],
        elsewhere: list[int],
        fresh: list[int],
    ) -> None:
        """Add the number of each entry that needs a merge to `changed`, `elsewhere` or `fresh`.

        `changed` gets the possibly changed entries, `elsewhere` those whose inode is in another
        folder, and `fresh` those that have no inode.
        """
        inodes, folder = self._inodes, self._folder
        known = inodes.by_remotes(folder.zone, [answer.ids[number] for number in numbers])
        for number in numbers:
            row = known.get(answer.ids[number])
            if row is None:
                fresh.append(number)
                continue
            ino, parent, seen = row
            if parent == folder.ino and seen and seen == inodes.rows.mark(answer.said(number)):
                self._seen.add(ino)
            elif answer.unsure(number):
                self._seen.add(ino)
                self.result.unsure += 1
            elif answer.entry(number) is not None:
                self._seen.add(ino)
                (changed if parent == folder.ino else elsewhere).append(number)

    def _step(
        self,
        answer: RawListing,
        numbers: Sequence[int],
        left: Sequence[int],
        later: list[int] | None = None,
        *,
        last: bool = False,
        empty: bool = False,
    ) -> None:
        """Merge the entries `numbers`, and remove the inodes `left`, in one transaction.

        `left` are inodes that the listing does not contain. Old names are freed before new names
        are given. If the list `later` is given, entries with a new name are not merged, but their
        numbers are added to this list. `last` tells whether this is the last step, and `empty`
        whether the folder has no entries yet.
        """
        inodes, folder = self._inodes, self._folder
        if not inodes.is_here(folder) or folder.remote_id != self._remote_id:
            return
        with inodes.transaction():
            self._above_ours = None
            met, fresh = self._look(answer, numbers, empty=empty)
            renamed = list(self._renamed(met))
            if later is None:
                for _, inode, entry in renamed:
                    end_conflict_if_renamed(self._state, inode, entry.name)
                renames = [(inode, entry.name, entry.id) for _, inode, entry in renamed]
                before = self._take_names(renames)
            else:
                later.extend(number for number, _, _ in renamed)
            for child in inodes.get_all(left):
                if child.ino not in self._seen:
                    self._remove_unnamed(child)
            if later is None:
                self._give_names(renames, before)
            put_off = set(later or ())
            for number, inode, entry in met:
                if number not in put_off:
                    self._update(inode, entry, inodes.rows.mark(answer.said(number)))
            self._add(answer, fresh)
            if last:
                if self._may_unmark(answer):
                    self._unmark()
                self._note_times(appeared=bool(self.result.appeared))
                inodes.update(folder, listed=True)

    def _note_times(self, *, appeared: bool) -> None:
        """Set the times of the folders in which names have changed, as for a change by a program.

        Programs that remember the names in a folder read them again only if the folder's times
        change. The first listing of a folder changes no times. `appeared` tells whether the listed
        folder has new names.
        """
        inodes, result, now = self._inodes, self.result, time.time_ns()
        folders = {parent for parent, _, _ in result.gone} | {parent for parent, _ in result.moved}
        folders.difference_update(ino for _, _, ino in result.gone)  # possibly very many
        if appeared and not self._is_first:
            folders.add(self._folder.ino)
        for each in inodes.get_all(folders):
            if each.parent != NOWHERE:
                inodes.update(each, mtime_ns=now, ctime_ns=now)
                result.attributes.append(each.ino)

    def _look(
        self, answer: RawListing, numbers: Sequence[int], *, empty: bool
    ) -> tuple[list["_Met"], list[tuple[int, Entry]]]:
        """Return the entries to merge into an existing inode, and the entries without an inode.

        Entries that cannot be merged now are not returned.
        """
        inodes, folder = self._inodes, self._folder
        met: list[_Met] = []
        fresh: list[tuple[int, Entry]] = []
        if not numbers:
            return met, fresh
        rows = inodes.by_remotes(folder.zone, [answer.ids[number] for number in numbers])
        present = {inode.ino: inode for inode in inodes.get_all(row[0] for row in rows.values())}
        new = [] if empty else list(inodes.new_in(folder.ino))
        kept = {child.name: child for child in new if self._state.is_kept(child)}
        ours = {child.remote_name or child.name for child in new if child.name not in kept}
        pending_names = self._state.requests.names_in(folder.remote_id or "")
        unanswered = {folded(name) for name in pending_names}
        for number in numbers:
            entry = answer.entry(number)
            row = rows.get(answer.ids[number])
            inode = None if row is None else present.get(row[0])
            if inode is not None:
                self._seen.add(inode.ino)
            if entry is None or inodes.recent_writes.since(folder.zone, entry.id, self._asked_ns):
                continue
            if inode is not None and entry.name not in pending_names and not entry.folder:
                is_possible = bool(unanswered) and folded(entry.name) in unanswered
                if is_possible and entry.revision != inode.revision:
                    continue  # the request may have replaced the version that is still shown
            if entry.unsure:
                self.result.unsure += 1
                if inode is None:
                    self._hide(entry)
                continue
            if inode is not None and inode.is_folder and inodes.is_below(folder, inode):
                continue  # the listing further up has not been read yet
            if inode is not None and inode.is_folder != entry.folder:
                if self._busy(inode):
                    continue  # kept until its local changes are sent or dropped
                self._seen.discard(inode.ino)
                if not self._remove(inode):
                    continue
                inode = None
            if inode is None and entry.folder and kept:
                inode = kept.pop(local_name(entry.name, entry.id, ()), None)
            if inode is not None and inode.is_new:
                self._bind(inode, entry)
            if inode is not None:
                met.append((number, inode, entry))
            elif entry.name in ours or (unanswered and folded(entry.name) in unanswered):
                self.result.hidden[entry.name] = entry
            else:
                fresh.append((number, entry))
        return met, fresh

    def _hide(self, entry: Entry) -> None:
        """Count an entry that cannot be shown, and reserve its name."""
        self.result.unshown += 1
        self.result.hidden[entry.name] = entry

    def _add(self, answer: RawListing, fresh: list[tuple[int, Entry]]) -> None:
        """Add the entries without an inode.

        If a request for a temporary name was given up, and an entry has this name, show the entry
        under its former name, and schedule a rename to that name.
        """
        inodes, folder, state = self._inodes, self._folder, self._state
        added, names = dict[str, dict[str, Any]](), _Names(inodes, folder.ino)
        returned: list[str] = []
        for number, entry in fresh:
            former = state.names_to_return.pop(entry.id, entry.name)
            plain = safe(former if is_aside(entry.name) else entry.name)
            name = local_name(plain, entry.id, names)
            if name != plain:
                kept = self._kept(plain)
                if kept is not None and entry.folder:  # the former entry was replaced
                    self._bind(kept, entry)
                    self._update(kept, entry, inodes.rows.mark(answer.said(number)))
                    continue
                self._take_back(plain, to_folder=entry.folder)
                name = local_name(plain, entry.id, names)
            names.given.add(name)
            added[name] = fields_of(entry, folder)
            added[name]["seen"] = inodes.rows.mark(answer.said(number))
            if is_aside(entry.name) and not is_aside(name):
                returned.append(name)
        inodes.add_all(folder.ino, added)
        self.result.appeared += len(added)
        for name in returned:
            if (inode := inodes.child(folder.ino, name)) is not None:
                state.intents.place(inode.ino, state.due())

    def _bind(self, kept: Inode, entry: Entry) -> None:
        """Bind `entry`, which has no inode, to a folder kept because of local changes in it."""
        self._seen.add(kept.ino)
        self._inodes.update(kept, remote_id=entry.id, listed=False)

    def _renamed(self, met: list["_Met"]) -> Iterator["_Met"]:
        """Yield the entries that got a new name or were moved to this folder on the service.

        Skip entries that were moved or removed locally. Also skip edited files that have a
        temporary name on the service, because another client is exchanging two names. If such a
        file is deleted now, its edit is sent as a new file, which must not get the temporary name.
        """
        for number, inode, entry in met:
            local = self._state.local(inode.ino)
            if local & (Local.PLACE | Local.GONE):
                continue
            if local & Local.CONTENT and is_aside(entry.name):
                continue
            is_here = inode.parent == self._folder.ino and inode.remote_name == entry.name
            if not (is_here and shows(inode.name, entry.name, entry.id)):
                yield number, inode, entry

    def _take_names(self, renames: list[tuple[Inode, str, str]]) -> list[tuple[int, str]]:
        """Move inodes into the folder under temporary names; return their former places.

        For `renames`, see `_give_names`.
        """
        before = [(inode.parent, inode.name) for inode, _, _ in renames]
        for inode, _, _ in renames:
            self._inodes.move(inode, self._folder.ino, f"/{inode.ino}")  # not a possible name
        return before

    def _give_names(
        self,
        renames: list[tuple[Inode, str, str]],
        before: list[tuple[int, str]],
        show: Callable[[str], str] = safe,
    ) -> None:
        """Give inodes their display names; each rename is (inode, the service's name, remote id).

        `before` contains the former places of the inodes. All names are given together, because
        entries may have exchanged names.
        """
        inodes, parent = self._inodes, self._folder.ino
        for (inode, name, entry_id), old in zip(renames, before, strict=True):
            shown = local_name(name, entry_id, _Names(inodes, parent), show=show)
            if shown != show(name):
                self._take_back(show(name), to_folder=inode.is_folder)
                shown = local_name(name, entry_id, _Names(inodes, parent), show=show)
            inodes.move(inode, parent, shown)
            if (parent, shown) != old:
                if inode.is_folder:
                    self.result.moved.append(old)
                else:
                    self.result.gone.append((*old, inode.ino))
                self.result.appeared += 1

    def _may_unmark(self, answer: RawListing) -> bool:
        """Return False for a large folder without a change since the last call of `_unmark`."""
        ino = self._folder.ino
        is_large = len(answer.ids) > SORTED
        return not is_large or self._state.unmarked.get(ino) != self._inodes.changes(ino)

    def _unmark(self) -> None:
        """Remove the hash suffix (see `names`) from display names that are unique without it."""
        inodes, parent = self._inodes, self._folder.ino
        alone: list[tuple[Inode, str, str]] = []
        for inode in inodes.get_all(inodes.marked(parent).values()):
            name, entry_id = inode.remote_name, inode.remote_id
            if name is None or entry_id is None or self._state.local(inode.ino) & Local.PLACE:
                continue
            plain = safe(name)
            if plain == inode.name or not fits(plain) or not shows(inode.name, name, entry_id):
                continue
            self._take_back(plain, to_folder=inode.is_folder)
            if (kept := self._kept(plain)) is not None:
                with suppress(StoreError, Changed):  # a later listing tries again
                    remote_binding.unite(self._state, kept, inode)
            elif not inodes.has_name(parent, plain):
                alone.append((inode, name, entry_id))
        self._give_names(alone, self._take_names(alone))
        self._state.unmarked[parent] = inodes.changes(parent)

    def _take_back(self, name: str, *, to_folder: bool) -> None:
        """Free the display name `name` if a folder that is kept for local changes has this name.

        An entry on the service needs the name; `to_folder` tells whether this entry is a folder. If
        the entry is a file, rename the kept folder to a conflict-copy name. If the entry is a
        folder and the service can create folders, schedule the creation of the kept folder. The
        service rejects the creation, because the name is taken, and then the two folders are
        merged.
        """
        kept, state = self._kept(name), self._state
        if kept is None:
            return
        if not to_folder:
            rename_to_copy(state, kept, kept.parent)
        elif self._can_make_folders():
            state.intents.place(kept.ino, state.due())

    def _kept(self, name: str) -> Inode | None:
        """Return the folder with the display name `name` that is kept for local changes, if any."""
        holder = self._inodes.child(self._folder.ino, name)
        return holder if holder is not None and self._state.is_kept(holder) else None

    def _update(self, inode: Inode, entry: Entry, mark: int) -> None:
        local = self._state.local(inode.ino)
        place: dict[str, object] = {
            "remote_parent": self._folder.remote_id, "remote_name": entry.name,
        }  # fmt: skip
        if inode.is_folder and inode.remote_parent != self._folder.remote_id:
            self._forget_places_below(inode)
        if local & Local.PARKED:
            # The recorded place stays unchanged: a new file there takes over the entry. If a
            # coworker has moved the entry, the upload of the new file also moves the file.
            self._note_parked(inode, entry.name)
            place, mark = {}, 0  # `seen` is 0, so the next listing calls `_note_parked` again
        else:
            self._state.moved_entries.pop(inode.ino, None)
        if local & (Local.CONTENT | Local.GONE) or (inode.local and inode.generation):
            # The base of the edit is kept, so that another version since then is noticed.
            if inode.attributes != entry.attributes:
                place["attributes"] = entry.attributes
                self.result.attributes.append(inode.ino)
            self._inodes.update(inode, **place)
            return
        fields = {"type": entry.type, "sync": entry.sync, "attributes": entry.attributes}
        others = any(getattr(inode, name) != value for name, value in fields.items())
        if inode.revision != entry.revision:
            fields |= {
                "revision": entry.revision,
                "size": 0 if entry.folder else entry.size,
                "mtime_ns": entry.modified_ns,
                "modified_by": entry.modified_by,
            }
            self.result.content.append(inode.ino)
            if inode.generation:  # an unneeded copy of the former version
                self.result.copies.append((inode.ino, inode.generation))
                fields["generation"] = 0
        if others:
            self.result.attributes.append(inode.ino)
        if others or "revision" in fields:
            # Backup programs notice the change by this time, independent of the service's clock.
            fields["ctime_ns"] = time.time_ns()
        self._inodes.update(inode, **place, **fields, seen=mark)

    def _note_parked(self, inode: Inode, name: str) -> None:
        """Record whether a coworker has moved the entry of a parked file (see `sync.planner`)."""
        state = self._state
        place = self._folder.entry_id, name
        if place == (inode.remote_parent, inode.remote_name):
            state.moved_entries.pop(inode.ino, None)
        else:
            is_known = inode.ino in state.moved_entries
            state.moved_entries[inode.ino] = place
            if not is_known:
                state.intents.changes.notify()

    def _forget_places_below(self, inode: Inode) -> None:
        """Forget last known places that contradict the listing, which shows `inode` in the folder.

        If the stored `remote_parent` values lead from the folder up to `inode`, they form a cycle,
        so at least one of them is outdated. Clear the values of the folders on this path that were
        also moved or removed locally. The other values agree with the local tree, which is acyclic.
        """
        way = [self._folder, *self._inodes.above_on_service(self._folder)]
        for below in way[: way.index(inode)] if inode in way else ():
            if self._state.local(below.ino) & (Local.PLACE | Local.GONE):
                self._inodes.update(below, remote_parent=None)

    # ---- removal of entries that a listing no longer names ----

    def _empty_large_folders(self, left: list[int]) -> Iterator[None]:
        """Remove the contents of the large folders among the inodes `left`, one batch per step."""
        for folder in [each for each in self._inodes.get_all(left) if each.is_folder]:
            inside = self._inodes.innermost_first(folder)
            first = list(islice(inside, STEP))
            while len(first) == STEP and self._is_left(folder):
                with self._inodes.transaction():
                    self._above_ours = None
                    if self._state.holds_local_changes(folder) and self._busy(folder):
                        break
                    for child in first:
                        if self._inodes.is_below(child, folder):  # a program may have moved it out
                            self._remove(child)
                yield
                first = list(islice(inside, STEP))

    def _is_left(self, child: Inode) -> bool:
        """Return True if an inode that the listing lacks is no longer in this folder.

        Return False if its creation or its move to this folder was not sent yet, or if this client
        has changed the entry since the listing was requested. For a kept folder or an unsaved file
        (see `LocalState`), return True if its local parent is this folder.
        """
        if self._state.is_kept(child) or self._state.is_unsaved(child):
            return child.parent == self._folder.ino
        return not (
            child.is_new
            or child.parent != self._folder.ino
            or self._state.local(child.ino) & Local.PLACE  # moved here, not on the service yet
            or self._inodes.recent_writes.since(child.zone, child.remote_id or "", self._asked_ns)
        )

    def _remove_unnamed(self, child: Inode) -> None:
        """Remove an inode that the listing does not contain, unless the inode has local changes.

        A folder with local changes below it is kept, see `_keep_ours`.
        """
        if not self._is_left(child):
            return
        if not self._busy(child):
            self._remove(child)
        elif child.is_folder:
            self._keep_ours(child)

    def accept_deletion(self, folder: Inode) -> None:
        """Apply the deletion of a folder that no listing shows, because its parent is new.

        Remove the folder, or keep it for the local changes in it, as a listing does. Call within a
        transaction.
        """
        if self._busy(folder):
            self._keep_ours(folder)
        else:
            self._remove(folder)

    def _keep_ours(self, folder: Inode) -> None:
        """Keep a folder that the service no longer has, and the local changes below it.

        Unbind the folder from its remote entry, and remove all inodes below it that have no local
        changes. The first upload into the folder creates it again on the service. A folder that was
        moved here locally stays as it is, because the service has it in another place.
        """
        ahead = [(folder, self._inside(folder))]
        while ahead:
            each, inside = ahead[-1]
            if (child := next(inside, None)) is not None:
                if not self._busy(child):
                    self._remove(child)
                elif (
                    child.is_folder
                    and child.ino not in self._seen
                    and not self._is_moved_into(each, child)
                ):
                    ahead.append((child, self._inside(child)))
                continue
            ahead.pop()
            if each.remote_id is None:
                continue
            remote_binding.unbind_folder(self._state, each)

    def _is_moved_into(self, folder: Inode, child: Inode) -> bool:
        """Return True if `child` was moved to `folder` locally, but not yet on the service.

        Also return True if the entry has a temporary name on the service, or is getting one. Only
        its move gives it a regular name again.
        """
        request = self._state.requests.get(child.ino)
        is_elsewhere = child.remote_parent not in (None, folder.remote_id)
        is_elsewhere |= is_aside(child.remote_name)
        is_elsewhere |= request is not None and is_aside(request.name)
        return is_elsewhere and bool(self._state.local(child.ino) & Local.PLACE)

    def _busy(self, inode: Inode) -> bool:
        """Return True if the inode, or any inode below it, has local changes or is local-only.

        Local bytes that are only a copy of the service's version do not count.
        """
        if self._has_changes(inode):
            return True
        if not inode.is_folder:
            return False
        if self._above_ours is None:
            inodes, state = self._inodes, self._state
            self._above_ours = set()
            inos = {*inodes.rows.with_bytes(), *state.opened}
            inos.update(intent.ino for intent in state.intents.all())
            for changed in inodes.get_all(inos):
                each: Inode | None = changed
                while each is not None and each.ino not in self._above_ours and each.ino != ROOT:
                    if each is changed and not self._has_changes(each):
                        break
                    self._above_ours.add(each.ino)
                    each = inodes.find(each.parent)
        return inode.ino in self._above_ours

    def _has_changes(self, inode: Inode) -> bool:
        is_only_here = inode.generation and (inode.local or inode.is_new)
        return bool(is_only_here or self._state.local(inode.ino))

    def _remove(self, inode: Inode) -> bool:
        """Unlink an inode and its descendants, except inodes that the listing contains.

        Return False if the inode was kept, because the listing contains the inode or one of its
        descendants.
        """
        if inode.ino in self._seen:
            return False
        kept: set[int] = set()
        ahead = [(inode, self._inside(inode))]
        while ahead:
            each, inside = ahead[-1]
            if (child := next(inside, None)) is not None:
                if child.ino in self._seen:
                    kept.add(each.ino)
                else:
                    ahead.append((child, self._inside(child)))
                continue
            ahead.pop()
            if each.ino in kept:
                kept.add(each.parent)
                continue
            self.result.gone.append((each.parent, each.name, each.ino))
            if each.is_folder:
                remote_binding.release_parked_in(self._state, each)
            if each.generation:
                self.result.copies.append((each.ino, each.generation))
            self._inodes.unlink(each)
        return inode.ino not in kept

    def _inside(self, inode: Inode) -> Iterator[Inode]:
        if not inode.is_folder:
            return iter(())
        return self._inodes.get_all(self._inodes.numbers_in(inode.ino))

    # ---- the zones in the root ----

    def zones(
        self,
        zones: Iterable[Zone],
        *,
        unsure: Container[str] = frozenset(),
        complete: bool = True,
    ) -> Iterator[None]:
        """Update the root in steps to show the accessible `zones`; yield between two steps.

        Zones whose ids are in `unsure` are left unchanged. If the list is not `complete`, zones
        that are not in the list are left unchanged, too. The changes are collected in `result`.
        """
        zones = list(zones)
        told = {zone.id for zone in zones}
        shown = sorted((zone for zone in zones if zone.accessible), key=lambda each: each.id)
        stays = {zone.id for zone in shown}
        left = [
            each.ino
            for each in self._zones_here()
            if each.zone not in stays
            and each.zone not in unsure
            and (complete or each.zone in told)
        ]
        left = [zone.ino for zone in self._unchanged(left)]
        yield from self._empty_large_folders(left)
        for zone in list(self._inodes.get_all(left)):
            if self._state.holds_local_changes(zone):
                yield from self._leave_local_only(zone)
        with self._inodes.transaction():
            self._above_ours = None
            for gone in self._unchanged(left):
                if gone.parent == ROOT and not self._busy(gone):
                    self._remove(gone)
            self._show_zones(shown)

    def _unchanged(self, zones: Sequence[int]) -> list[Inode]:
        """Return the given zones that have no local changes.

        A pending removal counts as a change of its zone; a local-only file does not.
        """
        if not zones:
            return []
        state = self._state
        ours = [intent.ino for intent in state.intents.all()]
        ours += [ino for ino in state.opened if state.local(ino)]
        changed = {each.zone for each in self._inodes.get_all(ours)}
        return [zone for zone in self._inodes.get_all(zones) if zone.zone not in changed]

    def _leave_local_only(self, zone: Inode) -> Iterator[None]:
        """Remove everything from a zone that is no longer accessible, except local-only files.

        Also keep the folders that contain these files. Stop at the first local change, because a
        rollback of this change may need the remaining folders.
        """
        inside = self._inodes.innermost_first(zone)
        while (batch := list(islice(inside, STEP))) and self._unchanged([zone.ino]):
            with self._inodes.transaction():
                self._above_ours = None
                for child in batch:
                    if self._inodes.is_below(child, zone) and not self._busy(child):
                        self._remove(child)
            yield

    def _zones_here(self) -> list[Inode]:
        return [child for child in self._inodes.inodes_in(ROOT) if child.kind is Kind.ZONE]

    def _show_zones(self, shown: Sequence[Zone]) -> None:
        inodes, root = self._inodes, self._folder
        known = {child.zone: child for child in self._zones_here()}
        self._is_first = not (known or root.listed)
        met = [(known[zone.id], zone) for zone in shown if zone.id in known]
        renames = [
            (inode, zone.name, zone.id) for inode, zone in met if inode.remote_name != zone.name
        ]
        self._give_names(renames, self._take_names(renames), zone_name)
        for inode, zone in met:
            inodes.update(inode, remote_name=zone.name)
            if inode.remote_id != zone.root_id:
                inodes.update(inode, remote_id=zone.root_id, listed=False)
        alone = [
            (inode, zone.name, zone.id)
            for inode, zone in met
            if fits(plain := zone_name(zone.name))
            and plain != inode.name
            and not inodes.has_name(ROOT, plain)
        ]
        self._give_names(alone, self._take_names(alone), zone_name)
        added = [zone for zone in shown if zone.id not in known]
        for zone in added:
            self._add_zone(zone)
        self._note_times(appeared=bool(added))
        inodes.update(root, listed=True)

    def _add_zone(self, zone: Zone) -> None:
        name = local_name(zone.name, zone.id, self._inodes.children(ROOT), show=zone_name)
        self._inodes.add(
            ROOT,
            name,
            Kind.ZONE,
            zone=zone.id,
            remote_id=zone.root_id,
            remote_name=zone.name,
            **({"mtime_ns": zone.created_ns} if zone.created_ns else {}),
        )


_Met = tuple[int, Inode, Entry]  # number in the listing, inode, entry


class _Names(Container[str]):
    """Container of all names in a folder, cached or not, and of the names in `given`."""

    def __init__(self, inodes: Inodes, folder: int) -> None:
        self._inodes = inodes
        self._folder = folder
        self.given: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self.given or self._inodes.has_name(self._folder, str(name))


def fields_of(entry: Entry, folder: Inode) -> dict[str, Any]:
    """Return the fields of a new inode that represents `entry` in `folder`."""
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
