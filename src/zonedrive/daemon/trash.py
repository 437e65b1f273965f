"""Listing, restoring and permanently deleting trash entries, with or without a mount.

An entry inside a deleted folder can be restored only after that folder. The permanent deletion of a
folder includes the trash entries inside it, which were deleted before the folder.

INVARIANT: if several entries have the requested name, none of them is restored or deleted, and the
user has to give the id.
INVARIANT: if the service refuses to list the trash of a zone, the trash of the other zones is
listed nevertheless, and the answer names this zone.
INVARIANT: nothing is restored to a name that is in use, locally or on the service.
INVARIANT: to find the original paths of all entries, at most MOST_FOLDERS folders are requested,
each of them once. For the remaining entries, the original folder is not shown.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from zonedrive.errors import AlreadyExists, Forbidden, NotFound, Rejected, ZonedriveError
from zonedrive.formatting import amount, count, local_time, timestamp
from zonedrive.model import Entry, Zone
from zonedrive.remote.service import Service
from zonedrive.state.names import safe, shows, typed, zone_name
from zonedrive.translation import marked
from zonedrive.views.trash import TrashOperations, restore_entry

OFFERED = 5  # maximum number of ambiguous entries that an error lists
MOST_FOLDERS = 100  # maximum number of original folders that are requested
MOST_LISTINGS = 8  # maximum number of zones whose trash is requested at the same time
DEEPEST = 200  # maximum depth of nested folders


Key = tuple[str, str]  # ids of a zone and of an entry in it


@dataclass(frozen=True)
class Deletion:
    """Entry in the trash of a zone."""

    zone: Zone
    entry: Entry
    at_ns: int  # time of the deletion; 0: not reported by the service

    @property
    def key(self) -> Key:
        """Key of the entry; several zones may use the same entry id."""
        return self.zone.id, self.entry.id

    @property
    def since_ns(self) -> int:
        """Time of the deletion in nanoseconds since the epoch.

        If the service does not report this time, the value is the time of the entry's last change.
        """
        return self.at_ns or self.entry.modified_ns


@dataclass(eq=False)
class Trash:
    """Trash of all zones, or of the zone with the name or id `_zone`.

    `_option` selects the account in suggested commands; see `AccountPaths.option`.
    """

    _service: Service
    _option: str
    _zone: str | None = None
    _mount: TrashOperations | None = None

    def __post_init__(self) -> None:
        self._deleted: list[Deletion] = []  # as of the last listing
        self._unseen: list[str] = []  # names of the zones whose trash cannot be listed
        self._folders: dict[Key, Entry | None] = {}  # None: unknown folder
        self._asked = 0  # folders requested from the service
        self._command = f"zonedrive trash{self._option}"
        self.total = self.finished = 0  # entries to restore or delete, and those that are done

    async def do(self, command: str, entries: list[str]) -> dict[str, Any]:
        """Run the command `trash`, `restore` or `purge`, and return the answer.

        `entries` are ids, names or paths. Without entries, `trash` lists the trash. With entries,
        `trash` only counts the other trash entries that are, or may be, inside them, and returns
        the count as `inside`.
        """
        if command == "restore":
            return {"restored": await self._restore(entries)}
        if command == "purge":
            return await self._purge(entries)
        if entries:
            return {"inside": (await self._inside(await self._choose(entries))).total()}
        return await self._list()

    async def _list(self) -> dict[str, Any]:
        """Return the trash entries as `entries`, most recently deleted first.

        `unseen` in the result has the names of the zones whose trash cannot be listed.
        """
        await self._look()
        found = [(one, await self._folder(one)) for one in self._deleted]
        found.sort(
            key=lambda pair: (
                -pair[0].at_ns,
                pair[0].zone.name,
                pair[1] or "",
                pair[0].entry.name,
                pair[0].entry.id,
            )
        )
        entries = [_object(one, folder) for one, folder in found]
        return {"entries": entries, "unseen": self._unseen}

    async def _restore(self, wanted: list[str]) -> list[dict[str, Any]]:
        """Restore the entries `wanted`, given by id, name or path.

        Return an object for each restored entry. `path` is the path of the entry. `left` is the
        number of entries inside the restored entry that stay in the trash because they were deleted
        separately.
        """
        done: dict[Key, str] = {}
        found: list[Entry] = []

        async def restore(one: Deletion) -> str:
            path, entry = await self._path(one), one.entry
            try:
                if self._mount is not None:
                    self._mount.require_vacant(entry)
                    await self._mount.end_removal(entry)
                    self._mount.require_vacant(entry)
                back = await restore_entry(self._service, entry)
            except AlreadyExists as taken:
                there = marked(f"rename the {entry.name!r} that is there now, and restore again")
                taken.message, taken.remedy = f"{taken.message}; {there}", ""
                raise
            except (Forbidden, NotFound, Rejected) as refused:
                above = one.zone.id, entry.parent_id
                if above not in done and any(each.key == above for each in self._deleted):
                    first = marked(f"its folder is deleted, too: restore {entry.parent_id} first")
                    refused.message, refused.remedy = f"{refused.message}; {first}", ""
                raise
            found.append(back)
            done[one.key] = path
            return path

        chosen = await self._choose(wanted)
        try:
            await self._each(chosen, restore, "restored")
        finally:
            if self._mount is not None:
                done |= await self._mount.show(found)
        self._asked = MOST_FOLDERS  # no more requests for the paths of other entries
        left = await self._inside(chosen)
        return [{"path": path, "left": left[key]} for key, path in done.items()]

    async def _purge(self, wanted: list[str]) -> dict[str, Any]:
        """Delete the entries `wanted` permanently, given by id, name or path.

        In the result, `purged` has the paths of these entries, and `inside` is the number of other
        trash entries that were deleted together with them.
        """

        async def purge(one: Deletion) -> str:
            path = await self._path(one)
            await self._service.purge(one.zone.id, one.entry.id, folder=one.entry.folder)
            return path

        chosen = await self._choose(wanted)
        # An entry inside a deleted folder was deleted before the folder.
        inner_first = chosen[::-1]
        inner_first.sort(key=lambda one: (one.entry.folder, one.at_ns))
        inside = (await self._inside(chosen)).total()
        done = await self._each(inner_first, purge, "removed")
        if inside:
            before = {one.key for one in self._deleted} - {one.key for one in chosen}
            with suppress(ZonedriveError):  # then the number remains an upper limit
                await self._look()
                inside = len(before - {one.key for one in self._deleted})
        return {"purged": done, "inside": inside}

    async def _inside(self, chosen: list[Deletion]) -> Counter[Key]:
        """Return the number of other trash entries inside each chosen folder.

        A trash entry whose original folder is unknown may be inside any of the chosen folders of
        its zone, and is counted under a key without a folder.
        """
        folders = {one.key for one in chosen if one.entry.folder}
        zones = {one.zone.id for one in chosen if one.entry.folder}
        keys = {one.key for one in chosen}
        found: Counter[Key] = Counter()
        for one in self._deleted:
            if one.key in keys or one.zone.id not in zones:
                continue
            above = one.entry.parent_id
            for _ in range(DEEPEST):
                if above in ("", one.zone.root_id) or (one.zone.id, above) in folders:
                    break
                folder = await self._folder_entry(one.zone, above)
                above = "" if folder is None else folder.parent_id
            if above != one.zone.root_id:
                key = one.zone.id, above
                found[key if key in folders else (one.zone.id, "")] += 1
        return found

    async def _choose(self, wanted: list[str]) -> list[Deletion]:
        """Return the trash entries `wanted`, each folder before the entries inside it.

        `wanted` has ids, names or paths. Raises NotFound if an entry is missing, and ZonedriveError
        if an entry is ambiguous or `wanted` is empty.
        """
        if not wanted:
            raise ZonedriveError("the request names no entries")
        await self._look()
        try:
            return _folders_first([await self._chosen(name) for name in wanted])
        except NotFound as missing:
            if self._unseen:
                unseen = marked(f"the trash of {', '.join(self._unseen)} cannot be listed")
                missing.message += f"; {unseen}"
            raise

    async def _each(
        self, chosen: list[Deletion], work: Callable[[Deletion], Awaitable[str]], done: str
    ) -> list[str]:
        """Call `work` for each chosen entry, and return the results.

        If a call raises ZonedriveError, the results of the earlier calls are added to the message.
        `done` is a word such as "restored", which precedes these results.
        """
        names: list[str] = []
        self.total = len(chosen)
        for one in chosen:
            try:
                names.append(await work(one))
                self.finished += 1
            except ZonedriveError as wrong:
                if names:
                    wrong.message += f" (before that, {done}: {', '.join(names)})"
                raise
        return names

    async def _look(self) -> None:
        if self._mount is not None:
            await self._mount.send_deletions()
        listed = await self._service.zones()
        if self._zone is not None:
            listed = [zone for zone in listed if self._zone in (zone.name, zone.id)]
            if not listed:
                remedy = f"run 'zonedrive zones{self._option}'"
                raise NotFound(f"there is no zone {self._zone!r}", remedy=remedy)
        zones = [zone for zone in listed if zone.accessible]
        if self._zone is not None and not zones:
            raise ZonedriveError(
                f"the zone {self._zone!r} is not accessible through the API",
                remedy="use the web application of the service",
            )
        found: list[list[Deletion] | ZonedriveError | None] = [None] * len(zones)
        together = trio.CapacityLimiter(MOST_LISTINGS)
        async with trio.open_nursery() as nursery:

            async def list_trash(number: int) -> None:
                zone = zones[number]
                async with together:
                    try:
                        listed = await self._service.deletions(zone.id)
                    except ZonedriveError as wrong:
                        found[number] = wrong
                        if not self._may_miss(wrong):
                            wrong.message += f" (zone {zone.name!r})"
                            nursery.cancel_scope.cancel()
                    else:
                        found[number] = [Deletion(zone, entry, at_ns) for entry, at_ns in listed]

            for number in range(len(zones)):
                nursery.start_soon(list_trash, number)
        self._deleted, self._unseen = [], []
        for zone, result in zip(zones, found, strict=True):
            if isinstance(result, list):
                self._deleted += result
            elif result is not None and not self._may_miss(result):
                raise result
            else:
                self._unseen.append(zone.name)
        self._folders |= {one.key: one.entry for one in self._deleted}  # need no request

    def _may_miss(self, wrong: ZonedriveError) -> bool:
        """Return True if the answer may lack a zone whose trash cannot be listed due to `wrong`."""
        return self._zone is None and isinstance(wrong, Forbidden | NotFound)

    async def _chosen(self, name: str) -> Deletion:
        """Return the deleted entry with the id `name`, or the only entry with this name or path.

        A name or path with a slash at the end means a folder. Raises NotFound if no entry matches,
        and ZonedriveError if several entries match.
        """
        wanted, deleted = name, self._deleted
        by_id = [one for one in deleted if one.entry.id == name]
        found = by_id or [one for one in deleted if one.entry.name == name]
        if not found and name.endswith("/"):  # `zonedrive trash` and shells show a folder like this
            wanted, deleted = name.rstrip("/"), [one for one in deleted if one.entry.folder]
            found = [one for one in deleted if one.entry.name == wanted]
        if not found:  # the name in the mount
            shown = typed(wanted)
            found = [one for one in deleted if shows(shown, one.entry.name, one.entry.id)]
        if not found and "/" in wanted:
            found = [one for one in deleted if await self._was_at(wanted, one)]
        own = wanted.rpartition("/")[2]
        if not found and self._mount is not None and self._mount.is_to_be_removed(own):
            raise NotFound(
                f"{name!r} is not in the trash yet: its removal was not sent",
                remedy=f"run 'zonedrive status{self._option}'",
            )
        if not found:
            raise NotFound(f"{name!r} is not in the trash", remedy=f"run '{self._command}'")
        if len(found) > 1:
            raise ZonedriveError(
                f"{count(len(found), 'entry', 'entries')} called {name!r} were deleted; give an"
                f" id: {await self._offer(found)}"
            )
        return found[0]

    async def _was_at(self, path: str, one: Deletion) -> bool:
        """Return True if `path` is the entry's original path, with or without the zone's name."""
        name = one.entry.name
        if not (path.endswith(name) or shows(typed(path.rpartition("/")[2]), name, one.entry.id)):
            return False
        for show in (str, safe):  # names of the service, and of the mount
            whole = await self._path(one, show)
            if path in (whole, whole.partition("/")[2]):
                return True
        return False

    async def _offer(self, found: list[Deletion]) -> str:
        """Return a string that lists ambiguous entries, most recently deleted first.

        The string has the id, folder, time and size of up to OFFERED entries.
        """
        told = []
        for one in sorted(found, key=lambda one: -one.since_ns)[:OFFERED]:
            place = (await self._path(one)).removesuffix(f"/{one.entry.name}")
            size = "a folder" if one.entry.folder else amount(one.entry.size)
            since = local_time(one.since_ns / 1e9)
            told.append(f"{one.entry.id} (in {place}, {since}, {size})")
        more = len(found) - OFFERED
        return ", ".join(told) + (f", {more} more: run '{self._command}'" if more > 0 else "")

    async def _folder(self, one: Deletion, show: Callable[[str], str] = str) -> str | None:
        """Return the path of the entry's original folder in its zone, or None if it is unknown.

        `show` converts each name in the path, for example to the name in the mount.
        """
        parts: list[str] = []
        above = one.entry.parent_id
        for _ in range(DEEPEST):
            if above == one.zone.root_id:
                return "/".join(reversed(parts))
            found = await self._folder_entry(one.zone, above)
            if found is None:
                break
            parts.append(show(found.name))
            above = found.parent_id
        return None

    async def _path(self, one: Deletion, show: Callable[[str], str] = str) -> str:
        folder = await self._folder(one, show)
        above = [] if folder == "" else [folder or "..."]
        zone = zone_name(one.zone.name) if show is safe else one.zone.name
        return "/".join([zone, *above, show(one.entry.name)])

    async def _folder_entry(self, zone: Zone, folder_id: str) -> Entry | None:
        if (zone.id, folder_id) in self._folders:
            return self._folders[zone.id, folder_id]
        found = None if self._mount is None else self._mount.known_folder(zone.id, folder_id)
        if found is None:
            if not folder_id or self._asked == MOST_FOLDERS:
                return None
            self._asked += 1
            with suppress(ZonedriveError):
                found = await self._service.entry(zone.id, folder_id)
        self._folders[zone.id, folder_id] = found
        return found


def _folders_first(chosen: Iterable[Deletion]) -> list[Deletion]:
    """Return the entries without duplicates, each folder before the entries inside it."""
    left = {one.key: one for one in chosen}
    found: list[Deletion] = []
    while left:
        ready = [key for key, one in left.items() if (key[0], one.entry.parent_id) not in left]
        for key in ready or list(left):  # in a cycle of parents, the order does not matter
            found.append(left.pop(key))
    return found


def _object(one: Deletion, folder: str | None) -> dict[str, Any]:
    return {
        "zone": one.zone.name,
        "id": one.entry.id,
        "name": one.entry.name,
        "parent": folder,
        "folder": one.entry.folder,
        "size": one.entry.size,
        "modified": timestamp(one.entry.modified_ns),
        "modified_by": one.entry.modified_by,
        "deleted": timestamp(one.at_ns) if one.at_ns else None,
    }
