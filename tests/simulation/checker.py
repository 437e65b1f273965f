"""Checks of what the service has in the end, by what programs wrote and were told."""

import errno
import fnmatch
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import trio

from tests.harness.fake_service import Content, Node, World
from tests.harness.in_process import EXCHANGE
from tests.harness.virtual_mount import System, VirtualPath
from tests.model.claims import COPY, Claims, head
from tests.simulation import disk as disks
from tests.simulation.posix_model import Model
from zonedrive.state.names import is_aside

CALM_S = 200.0  # after which trouble has no effect any more
RACE_S = 15.0  # between the look at an entry and its change
UNCALLED_FOR = {
    errno.EIO, errno.ETIMEDOUT, errno.ENETUNREACH, errno.EREMOTEIO, errno.EHOSTUNREACH,
    errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED,
}  # fmt: skip
"""Errnos that no program gets while nothing is wrong."""
REMOVING = {"rename", "unlink", "rmdir"}
NAMING = {*REMOVING, "mkdir"}
WASTEBASKET = f".Trash-{os.getuid()}/files"  # of file managers
LISTING = re.compile(r"GET /api/zones/[^/]+/folder/([^/?]+)(\?|$)")
ENTRY = re.compile(r"GET /api/zones/[^/]+/files/([^/?]+)$")
UNREADABLE = 3  # failed reads after which a client may take the versions of a file for unreadable
VERSIONS = re.compile(r"GET /api/(?:sandbox/)?zones/[^/]+/files/([^/?]+)/")  # or their content
DISK = {errno.ENOSPC, errno.EIO, errno.EDQUOT}


class LocalNames:
    """The names that the setting `local_only` matches, also as those of conflict copies."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._pattern = re.compile("|".join(map(fnmatch.translate, patterns)))

    def __call__(self, path: str) -> bool:
        """Return True if the last name of the path matches."""
        return bool(self._pattern.match(COPY.sub("", path.rpartition("/")[2])))


class Calm:
    """Faults of one machine in progress; true if none was in the last CALM_S seconds."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._until = float("-inf")

    def note(self, what: str, *, begins: bool) -> None:
        """Record the begin or end of a fault."""
        (self._now.add if begins else self._now.discard)(what)
        self._until = trio.current_time()

    def __bool__(self) -> bool:
        return not self._now and trio.current_time() > self._until + CALM_S


@dataclass
class NameCall:
    """Call of a program that changes a name, with the ids on the service before the call.

    An id is "" for what is not on the service, and None for nothing.
    """

    verb: str
    old: str
    new: str
    old_id: str | None
    new_id: str | None
    is_exchange: bool = False
    has_waited: bool = False  # meanwhile, another entry may have got the name
    at_s: float = 0.0


@dataclass(eq=False)
class SystemCall:
    """System call that has not ended."""

    name: str
    args: tuple[Any, ...]
    files: frozenset[object]  # that it concerns
    overlaps: bool = False  # another program's call concerned one of them meanwhile


class WatchedSystem(System):
    """System calls of one program, with checks of their results."""

    def __init__(
        self, mount: Any, who: str, identity: Callable[[str], str | None], world: "RecordedWorld"
    ) -> None:
        """Watch a program of the machine `who`, where `identity` is `Machine.identity`."""
        super().__init__(mount)
        self.who, self._identity, self._world = who, identity, world
        self.calm = Calm()
        self.waits = False  # closes or syncs wait for the service, which may refuse the file
        self.lost_power = False  # bytes that were never synced may be damaged
        self.model: Model | None = None
        self.findings: list[str] = []
        self.refused: set[str] = set()  # tokens of saves that close(2) refused
        self.names: list[NameCall] = []
        self.changed_s: dict[int, float] = {}  # by inode: its last change by this program
        self._written: dict[int, bytes] = {}  # by descriptor, since the last fsync
        self._running: list[SystemCall] = []
        # By path of a folder, or inode number of a file.
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the system call of that name."""
        real = super().__getattr__(name)

        def call(*args: Any, **options: Any) -> Any:
            plain: tuple[Any, ...] = tuple(
                str(each) if isinstance(each, VirtualPath) else each for each in args
            )
            locks = self._locked(name, plain)
            if name in NAMING:
                self.note_names(name, *plain)
                noted = self.names[-1]
            began = trio.current_time()
            if name in REMOVING:
                self._world.removals[self.who] = began
            running = self._begun(name, plain)
            try:
                try:
                    result = real(*args, **options)
                finally:
                    self._running.remove(running)
                    for lock in locks:
                        lock.release()
                    if name in NAMING:
                        noted.has_waited = trio.current_time() > began
                    if name in REMOVING:
                        self._world.removals[self.who] = trio.current_time()
            except OSError as wrong:
                self._failed(running, wrong.errno or 0)
                raise
            if name == "rename" and noted.old_id is None:
                # A coworker moved a folder above, and the kernel still uses its former path.
                noted.old_id = self._identity(plain[1])
            if name in REMOVING and noted.verb != "rename":
                self._world.removed_s[self.who, noted.old_id or ""] = began
            if name in ("write", "ftruncate", "open"):
                self._note_change(name, plain, result)
            if name == "write":
                self._written[plain[0]] = self._written.get(plain[0], b"") + plain[1]
            elif name in ("close", "fsync"):
                self._written.pop(plain[0], None)
            if self.model is not None:
                self.model.called(name, plain, result, is_ordered=not running.overlaps)
            return result

        setattr(self, name, call)
        return call

    def _locked(self, name: str, args: tuple[Any, ...]) -> list[trio.Lock]:
        """Return the locks that a kernel holds during a call, after waiting for them.

        A kernel changes the names in a folder, and the content of a file, one call at a time.
        """
        if name in NAMING:
            keys = {each.rpartition("/")[0] for each in args if isinstance(each, str)}
        elif name == "open" and args[1] & os.O_CREAT:
            keys = {args[0].rpartition("/")[0]}
        elif name in ("write", "ftruncate"):
            keys = {str(self._mount.client.kernel.ino_of(args[0]))}
        else:
            keys = set()
        locks = [self._locks[key] for key in sorted(keys)]
        for lock in locks:
            cast(Any, self._mount).take(lock)
        return locks

    def _begun(self, name: str, args: tuple[Any, ...]) -> SystemCall:
        """Return a call that begins, and note which calls of other programs it overlaps."""
        files = self.model.concerned(args) if self.model is not None else frozenset()
        call = SystemCall(name, args, files)
        for other in self._running:
            if not files.isdisjoint(other.files):
                call.overlaps = other.overlaps = True
        self._running.append(call)
        return call

    def _note_change(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Record which file a call has changed."""
        if name == "open" and not args[1] & os.O_TRUNC:
            return
        ino = self._mount.client.kernel.ino_of(result if name == "open" else args[0])
        self.changed_s[ino] = trio.current_time()

    def note_saved(self, descriptor: int) -> None:
        """Record that what was written may be a version, whatever a later close answers."""
        self._written.pop(descriptor, None)

    def note_names(self, verb: str, old: str, new: str = "", flags: int = 0) -> None:
        """Record a call that changes names, before it."""
        if new.startswith(WASTEBASKET):
            verb = "unlink"
        new = new if verb == "rename" else ""
        new_id = self._identity(new) if new else None
        self.names.append(
            NameCall(
                verb,
                old,
                new,
                self._identity(old),
                new_id,
                is_exchange=flags == EXCHANGE,
                at_s=trio.current_time(),
            )
        )

    def _failed(self, call: SystemCall, number: int) -> None:
        name, args = call.name, call.args
        if name == "close" and number in DISK:
            token = head(self._written.pop(args[0], b""))
            self.refused |= {token} if token else set()
        damaged = self.lost_power and number == errno.EIO
        may_refuse = self.waits and name in ("close", "fsync")
        if self.calm and number in UNCALLED_FOR and not (damaged or may_refuse):
            what = errno.errorcode.get(number, str(number))
            self.findings.append(f"{self.who}: {name} {args[0]}: {what}, though nothing is wrong")
        if self.model is not None:
            is_ordered = not call.overlaps
            self.model.failed(name, args, number, is_calm=bool(self.calm), is_ordered=is_ordered)


class RecordedWorld(World):
    """Deployment that knows when each version was made, and which machine deletes it."""

    race_s = RACE_S

    def __init__(self) -> None:
        super().__init__()
        self.made_s: dict[str, float] = {}  # by id of a version
        self.made_by: dict[str, str] = {}  # machine of each version that a machine has sent, by id
        self.removals: dict[str, float] = {}  # by machine: its last removal or rename
        # By machine and id of an entry: when a program began to remove it.
        self.removed_s: dict[tuple[str, str], float] = {}
        # By machine and id of a folder: the times of its listings, each with the ids in it.
        self._listings: dict[tuple[str, str], list[tuple[float, set[str]]]] = {}
        # By machine and id of a file: when the service last told the machine its newest version.
        self._told_s: dict[tuple[str, str], float] = {}
        self._heard_s: dict[tuple[str, str], float] = {}  # when the machine got such an answer
        self.checked_s: dict[str, float] = {}  # by id of a version: when its machine was told so
        self.deleted_unseen: list[tuple[str, str, str]] = []  # machine, path, token
        # By id of an entry: time and machine ("" for the website) of its last move to a folder.
        self._placed: dict[str, tuple[float, str]] = {}
        # By id of an entry: time and machine of its last rename or move.
        self._named: dict[str, tuple[float, str]] = {}
        # By id of a version: when somebody else gave the file its name, before the version.
        self.named_s: dict[str, float] = {}
        self.deletions: list[tuple[str, Node]] = []  # machine, file by itself, as it was
        self.sent_late: set[str] = set()  # tokens of versions whose client had given up waiting
        self.unanswered: set[str] = set()  # tokens of versions of which the answer was lost
        self.answered_s: dict[str, float] = {}  # by token of a version: when its machine was told
        # Ids of versions that the file had already, and that no client can prevent: late ones,
        # because between the lost reply and the late work, the client finds nothing of the first
        # request on the service, and sends it again; and those that two machines send at once.
        self.sent_again: set[str] = set()
        # Ids of entries that were moved after the client had given up waiting.  If the user has
        # renamed the file meanwhile, the client takes the move for a coworker's.
        self.moved_late: set[str] = set()
        self.failed_reads: Counter[str] = Counter()  # of versions and contents, by id of a file
        self.newest = ""  # token of the version that was made last
        self._is_late = False

    @contextmanager
    def late(self) -> Iterator[None]:
        """Do the work of a request whose client has given up."""
        self._is_late = True
        try:
            yield
        finally:
            self._is_late = False

    def move(self, zone_id: str, entry_id: str, parent_id: str, name: str, user: str) -> Node:
        node = self.nodes.get(entry_id)
        before = (node.parent_id, node.name) if node is not None else None
        moved = super().move(zone_id, entry_id, parent_id, name, user)
        if self._is_late and before != (moved.parent_id, moved.name):
            self.moved_late.add(entry_id)
        if before is not None and before != (moved.parent_id, moved.name):
            disk = disks.CURRENT.get()
            place = trio.current_time(), disk.folder.name if disk else ""
            self._named[entry_id] = place
            if before[0] != moved.parent_id:
                self._placed[entry_id] = place
        return moved

    def _add_version(self, node: Node, data: bytes, user: str) -> None:
        super()._add_version(node, data, user)
        self._note_version(node.id, node.versions)

    def _note_version(self, entry_id: str, versions: Sequence[Content]) -> None:
        """Note the newest version of a file, given all of them."""
        newest = versions[-1]
        is_there = any(each.data == newest.data for each in versions[:-1])
        # What is there before a run begins is made at 0.
        now = trio.current_time() if trio.lowlevel.in_trio_run() else 0.0
        self.made_s[newest.id] = now
        if (disk := disks.CURRENT.get()) is not None:
            self.made_by[newest.id] = disk.folder.name
            named_s, who = self._named.get(entry_id, (0.0, disk.folder.name))
            self.named_s[newest.id] = named_s if who != disk.folder.name else 0.0
            if (told_s := self._told_s.get((disk.folder.name, entry_id))) is not None:
                self.checked_s[newest.id] = told_s
            before = versions[-2] if len(versions) > 1 else newest
            is_other = self.made_by.get(before.id, disk.folder.name) != disk.folder.name
            if is_other and before.data == newest.data and now - self.made_s[before.id] < RACE_S:
                self.sent_again.add(newest.id)
        self.newest = head(newest.data) or ""
        if self._is_late and self.newest:
            self.sent_late.add(self.newest)
            self.unanswered.add(self.newest)
            self.sent_again |= {newest.id} if is_there else set()

    def note_answer(self, what: str, made_s: float) -> None:
        """Note that a machine has got the answer of the request `what` (method and target).

        The service made the answer at `made_s`.
        """
        if (disk := disks.CURRENT.get()) is None:
            return
        if listing := LISTING.match(what):
            inside = {each.id for each in self.nodes.values()
                      if each.parent_id == listing[1] and not each.trash_id}  # fmt: skip
            listings = self._listings.setdefault((disk.folder.name, listing[1]), [])
            listings.append((trio.current_time(), inside))
        elif entry := ENTRY.match(what):
            key = disk.folder.name, entry[1]
            self._told_s[key] = max(made_s, self._told_s.get(key, made_s))
            self._heard_s[key] = trio.current_time()

    def forget_listings(self, who: str) -> None:
        """Forget what a machine has listed, because it may have lost these listings."""
        self._listings = {key: got for key, got in self._listings.items() if key[0] != who}

    def note_failure(self, what: str) -> None:
        """Note that a machine got no answer of the request `what` (method and target)."""
        if versions := VERSIONS.match(what):
            self.failed_reads[versions[1]] += 1

    def delete(self, zone_id: str, entry_id: str, user: str) -> None:
        """Move an entry to the trash."""
        present = self._present()
        super().delete(zone_id, entry_id, user)
        self._note_deletion(present)

    def _present(self) -> list[Node]:
        """Return the files that are not deleted."""
        return [each for each in self.nodes.values() if each.versions and not each.trash_id]

    def _note_deletion(self, present: Iterable[Node]) -> None:
        """Note the files that came, or got a version, after the removal on this machine.

        Their author does not matter: several machines may belong to one person. A folder that the
        machine has not listed before the removal is deleted with the folder above, whatever it
        holds.
        """
        disk = disks.CURRENT.get()
        if disk is None:
            return
        who = disk.folder.name
        asked_s = self.removals.get(who, float("-inf"))
        for node in present:
            newest = node.versions[-1]
            made_s, token = self.made_s[newest.id], head(newest.data)
            is_late = asked_s < made_s < trio.current_time() - self.race_s
            is_deleted = self.nodes[node.id].trash_id
            if is_deleted == node.id:
                self.deletions.append((who, replace(node, versions=[*node.versions])))
            is_late &= not self._came_between(who, node)
            is_own = self.made_by.get(newest.id) == who  # sent while it was removed
            is_listed = bool(self._listed_before(who, node.parent_id, is_deleted, asked_s))
            if not (is_deleted and token):
                continue
            if (is_late and is_listed and not is_own) or self._was_moved_in(node, who, asked_s):
                self.deleted_unseen.append((who, node.name, token))

    def _listed_before(self, who: str, folder: str, top: str, asked_s: float) -> list[set[str]]:
        """Return the ids in each listing of `folder` that `who` got before it removed `top`.

        If no program has removed the entry `top` itself, the listings before `asked_s` count.
        """
        removed_s = self.removed_s.get((who, top), asked_s)
        listings = self._listings.get((who, folder), ())
        return [inside for got_s, inside in listings if got_s <= removed_s]

    def _came_between(self, who: str, node: Node) -> bool:
        """Return True if the newest version was made while `who` waited for the service's answer.

        `who` has deleted the file soon after the answer, which was slow.
        """
        told_s = self._told_s.get((who, node.id), float("inf"))
        heard_s = self._heard_s.get((who, node.id), float("-inf"))
        made_s = self.made_s[node.versions[-1].id]
        return told_s < made_s < heard_s > trio.current_time() - self.race_s

    def _was_moved_in(self, node: Node, who: str, asked_s: float) -> bool:
        """Return True if somebody else has moved a file into the folder that `who` now deletes.

        The file, or a folder between, was moved after the removal, to a folder that `who` has
        listed before, and whose last listing before the removal did not have it.
        """
        top = self.nodes[node.id].trash_id
        while node.id != top and node.parent_id:
            at_s, mover = self._placed.get(node.id, (0.0, who))
            is_late = asked_s < at_s < trio.current_time() - self.race_s
            before = self._listed_before(who, node.parent_id, top, asked_s)
            if mover != who and is_late and before and node.id not in before[-1]:
                return True
            node = self.nodes[node.parent_id]
        return False

    def close(self) -> None:
        """Free the resources of the deployment."""


def torn(world: World, lines: Mapping[str, bytes]) -> list[str]:
    """Return the versions that are not made of whole lines that programs wrote."""
    return [
        f"{node.name}: bytes that nobody wrote: {rest[:60]!r}"
        for node in world.nodes.values()
        for version in node.versions
        if (rest := rest_of(version.data, lines))
    ]


def rest_of(data: bytes, lines: Mapping[str, bytes]) -> bytes:
    """Return the bytes from the first line on that no program wrote."""
    rest = data.replace(b"\0", b"")  # of a save that makes the file longer first
    while rest:
        line, _, after = rest.partition(b"\n")
        token = head(line)
        if token is None or lines.get(token) != line + b"\n":
            return rest
        rest = after
    return b""


def emptied(world: World, freed: set[str]) -> list[str]:
    """Return the files of which an empty version has replaced content; no program saves that.

    A new file may be empty: if its program dies, it stays, as on a local disk. `freed` are the
    names whose files programs deleted or exchanged: a new file there continues the history of the
    old one.
    """
    return [
        f"{node.name}: an empty version replaced content"
        for node in world.nodes.values()
        if node.name not in freed and any(not version.data for version in node.versions[1:])
    ]


def refused(world: World, tokens: set[str]) -> list[str]:
    """Return the saves that were refused and are versions."""
    versions = [(node, head(each.data)) for node in world.nodes.values() for each in node.versions]
    return [f"{node.name}: {one} was refused, and is a version" for node, one in versions
            if one in tokens]  # fmt: skip


def scattered(
    world: World, continued: Iterable[tuple[str, str]], copied: Container[str]
) -> list[str]:
    """Return the saves through one descriptor that are in two conflict copies.

    `continued` has two tokens each, of such saves. Saves in `copied` do not count.
    """
    copies: dict[str | None, set[str]] = {}
    for node in world.nodes.values():
        for version in node.versions if COPY.search(node.name) and not node.trash_id else ():
            copies.setdefault(head(version.data), set()).add(node.id)
    return [
        f"{first} and {second} of one descriptor are in two conflict copies"
        for first, second in continued
        if not (first in copied or second in copied)
        if first in copies and second in copies and not copies[first] & copies[second]
    ]


def unseen(world: RecordedWorld, claims: Claims) -> list[str]:
    """Return the versions that were deleted by a machine on which nobody can have known them."""
    deleted = [each for each in world.deleted_unseen if not claims.has_read(each[0], each[2])]
    return [f"{path}: {who} deleted {token} unseen" for who, path, token in deleted]


def uncalled(
    world: RecordedWorld, calls: Mapping[str, Sequence[NameCall]], claims: Claims
) -> list[str]:
    """Return the deletions of somebody else's files that no program on the machine has asked for.

    `calls` are those of all programs, by machine.
    """
    found = []
    for who, node in world.deletions:
        tokens = {head(each.data) for each in node.versions if world.made_by.get(each.id) != who}
        others = {token for token in tokens if token and claims.saves[token].who != who}
        if _is_united(world, who, node, calls[who]):
            continue
        if others and not _is_called_for(node, calls[who]):
            found.append(f"{node.name}: {who} deleted {sorted(others)}, which no program removed")
    return found


def _is_united(world: RecordedWorld, who: str, node: Node, calls: Sequence[NameCall]) -> bool:
    """Return True if a new file of this machine became a version of the file in a race.

    The machine did not get the answer before a program renamed its file over another one, or
    another file over it. Then it deletes what its upload has made, and the service has added it to
    a file that came after the look at the name.
    """
    first, newest = node.versions[0], node.versions[-1]
    is_race = world.made_s[newest.id] < world.made_s[first.id] + RACE_S
    if world.made_by.get(newest.id) != who or not is_race:
        return False
    token = head(newest.data) or ""
    answered_s = world.answered_s.get(token, math.inf)
    for call in calls:
        old, new = (path.rpartition("/")[2] for path in (call.old, call.new))
        is_unanswered = token in world.unanswered or call.at_s < answered_s
        moved = is_unanswered and old == node.name and call.old_id == "" and call.new_id is not None
        if call.verb == "rename" and (moved or (new == node.name and call.new_id == "")):
            return True
    return False


def _is_called_for(node: Node, calls: Sequence[NameCall]) -> bool:
    """Return True if one of the calls may delete the file.

    A new file that is renamed over it continues its history. A rename to a name of `local_only`
    leaves it on the service, unless something else happens to its former name.
    """
    renames = []
    for number, call in enumerate(calls):
        names = {path.rpartition("/")[2] for path in (call.old, call.new)}
        if node.name in names and (call.verb == "unlink" or call.has_waited):
            return True
        if is_aside(node.name) and call.verb == "rename" and call.has_waited:
            return True  # its name was being exchanged
        if call.verb == "unlink" and call.old_id == node.id:
            return True
        if call.verb == "rename" and node.id in (call.old_id, call.new_id):
            was_left = any(call.new == earlier.old for earlier in calls[:number])
            if call.old_id and (call.new_id is not None or was_left):
                return True  # a file of the service takes the place of another file
            left = call.old if call.old_id == node.id else call.new
            renames += [(number, left)] if call.is_exchange or left == call.old else []
    if len(renames) != 1:
        return bool(renames)
    ((number, former),) = renames
    later = calls[number + 1 :]
    is_taken = any(former in (call.old, call.new) for call in later)
    removed = [call.old for call in later if call.verb == "unlink"]
    removed += [call.new for call in later if call.verb == "rename"]  # perhaps over a folder
    is_in_removed = any(former.startswith(f"{folder}/") for folder in removed)
    return is_taken or is_in_removed or any(call.verb in ("rmdir", "mkdir") for call in calls)
