"""Reports for users about uploads, and about files that are never uploaded.

This module does not depend on the commands that show the reports.

INVARIANT: a file that is never uploaded is always reported as such.
"""

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import PurePosixPath
from typing import Any

import msgspec
import trio

from zonedrive import causes
from zonedrive.errors import ZonedriveError
from zonedrive.remote.service import Service
from zonedrive.state import local_operations, repair
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.intents import Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import typed
from zonedrive.state.pause import Pause
from zonedrive.state.reader import StateReader
from zonedrive.state.status import LOST_FOUND, Status, Work, damage_notice
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.sync.upload import Uploader
from zonedrive.translation import marked
from zonedrive.vfs.fetch_failures import FetchFailures
from zonedrive.vfs.xattrs import state_of
from zonedrive.views.upload_wait import WRITTEN, UploadWait
from zonedrive.views.versions import Versions
from zonedrive.views.virtual import Node, VirtualLayer

WAITING = ("pending", "uploading", "failed")
NOT_YET = marked("it is not there yet")


class Place(msgspec.Struct, frozen=True):
    """Path in the mount, with the inode or the virtual entry at the path."""

    path: str  # relative to the mount point
    inos: tuple[int, ...]  # inodes whose changes, with those below them, count for the path
    inode: Inode | None = None  # None for a virtual entry
    file: Inode | None = None  # the file itself, or the file whose versions a virtual entry shows
    what: str = ""  # description of a virtual entry
    stays: str = ""  # why it is never uploaded, and what to do; "" for an uploaded file

    @property
    def unknown(self) -> str:
        """Reason why `file` has no version on the service, or "".

        The reason is "" if the service has a version, or if `file` is None.
        """
        if self.file is None or self.file.remote_id is not None:
            return ""
        return self.stays or NOT_YET


@dataclass(eq=False)
class StatusReport:
    """Data about a mount for status queries, as plain values that JSON can encode."""

    _state: LocalState
    _service: Service
    _folders: DirectoryCache
    _dispatcher: Dispatcher
    _uploads: Uploader
    _virtual: VirtualLayer
    _versions: Versions
    _fetch_failures: FetchFailures

    def __post_init__(self) -> None:
        dispatcher = self._dispatcher
        link = self._service.link
        work = Work(
            running=lambda: dispatcher.running,
            failure=dispatcher.failure,
            blocking=dispatcher.blocking_failures,
            sent=self._uploads.sent,
            is_online=lambda: link.state == "online",
        )
        self._status = Status(self._state, work)
        # Times of the conflicts that were recorded before the start, or are in results of `sync`.
        # They only identify the conflicts, because the clock may be set back.
        self._reported = self._state.intents.conflicts.times()

    def status(self, under: Iterable[int] | None, most: int | None) -> dict[str, Any]:
        """Return the result of `Status.answer` for the mount.

        `under` limits the uploads to these inodes, the entries below them, and the conflict copies
        of all these files. `most` limits the list of uploads to the most urgent ones.
        """
        quota = self._state.cache.quota
        return self._status.answer(
            self._below(under),
            most,
            state=self._service.link.state,
            cache=(quota.usage(), quota.ceiling),
            notices=(
                self._damage(),
                self._taken_back(),
                self._fetch_failures.notice(),
                self._folders.notice(),
            ),
            lost=self.lost(under),
            pause=self.pause,
        )

    @property
    def pause(self) -> Pause | None:
        """Current pause of the uploads, or None."""
        return self._state.pause.current

    async def wait_until_quiet(self) -> None:
        """Wait until no upload is running, except uploads that a `sync` with `first` waits for."""
        await self._dispatcher.wait_until(self._dispatcher.is_quiet)

    def lost(self, under: Iterable[int] | None = None) -> int:
        """Return the number of files in lost+found, which exist only on this machine.

        The folder lost+found is at the top of the mount, so the number is 0 if `under` does not
        contain the root. For a single file, see `Place.stays`.
        """
        if under is not None and ROOT not in under:
            return 0
        return StateReader(self._state.database).lost_files()

    def _damage(self) -> str:
        return damage_notice(self._state.database.path, self.lost())

    def _taken_back(self) -> str:
        """Return one line about rolled-back changes that `sync` has not reported yet, or ""."""
        every = self._state.refusals.unacknowledged()
        if not every:
            return ""
        others = marked(f"and {len(every) - 1} more like it")
        more = f" ({others})" if len(every) > 1 else ""
        return f"{every[0].path}: {every[0].said}{more}"

    def vitals(self) -> dict[str, Any]:
        """Return the values that `zonedrive doctor` checks; no value contains a file name."""
        intents = self._state.intents.pending()
        return {
            "state": self._service.link.state,
            "encrypt": self._state.settings.encrypt,
            "cache_size": self._state.settings.cache_size,
            "waiting": len(intents),
            "failed": sum(intent.failed for intent in intents),
            "causes": causes.count(intent.cause for intent in intents),
            "held": sum(intent.held for intent in intents),
            "tries": max((intent.attempts for intent in intents), default=0),
            "conflicts": len(self.conflicts()),
            "damaged": repair.has_fault(self._state.database.path),
            "lost": bool(self.lost()),
            "paused": self.pause is not None,
            "unfetched": len(self._fetch_failures.recent()),
        }

    def left(self) -> dict[str, int]:
        """Return the counts of pending changes: `files`, `changes` and `bytes`, as in `work`.

        The method also works after the stores have been closed.
        """
        return _counts(self._waiting())

    @property
    def changed(self) -> trio.Event:
        """Event that is set on the next change of the outbox, and then replaced.

        Get the event before you read the outbox; otherwise you can miss a change.
        """
        return self._dispatcher.changed

    def work(self, under: Iterable[int] | None = None) -> dict[str, Any]:
        """Return a dict with counts of the pending changes.

        `files` counts all pending changes, and `changes` those without local bytes: new folders,
        renames and removals. `bytes` is the size of all local bytes. `uploading` counts the running
        uploads, and `sent` is the number of bytes that they have sent. `failed` counts the failed
        changes, and `causes` has the number of failed changes for each cause. `open` counts files
        that a program may still write to, and `held` also removed files that a program still reads.
        `paused` is True while uploads are paused. `under` limits the counts to these inodes and
        everything below them. The result contains no file names.
        """
        intents = self._below(under)
        running = self._dispatcher.running
        moving = [intent for intent in intents if intent.ino in running]
        return {
            **_counts(intents),
            "sent": sum(min(self._uploads.sent(one.ino), one.size) for one in moving),
            "uploading": len(moving),
            "failed": sum(intent.failed for intent in intents),
            "causes": causes.count(intent.cause for intent in intents),
            "paused": self.pause is not None,
            "open": sum(intent.held and not intent.gone for intent in intents),
            "held": sum(intent.held for intent in intents),
        }

    def held(self, under: Iterable[int] | None, most: int) -> list[str]:
        """Return at most `most` paths of changed or removed files that a program has open.

        `under` limits the files to these inodes and everything below them.
        """
        found = (one.ino for one in self._below(under) if one.held)
        return [self.path(ino) for ino in itertools.islice(found, most)]

    def waiting(self) -> set[int]:
        """Return the inodes with pending changes, and negated numbers of rolled-back changes.

        A rolled-back change is included until it has been reported to the user.
        """
        taken_back = {-each.number for each in self._state.refusals.unacknowledged()}
        return {intent.ino for intent in self._state.intents.pending()} | taken_back

    def failures(self) -> dict[int, str]:
        """Return the error texts of the failed changes, keyed by inode number as in `waiting`.

        Only failures since the start of the daemon are included. The key of a rolled-back change is
        the negated `RejectedChange.number`.
        """
        return {
            intent.ino: intent.error
            for intent in self._state.intents.pending()
            if intent.failed and self._dispatcher.failure(intent.ino) is not None
        } | {-each.number: each.said for each in self._state.refusals.unacknowledged()}

    def copies(self) -> set[int]:
        """Return the inodes of all conflict copies."""
        return self._state.intents.conflicts.copies()

    def unacknowledged(self) -> set[int]:
        """Return the inodes of the conflict copies that have not been reported to the user yet."""
        return self._state.intents.conflicts.unacknowledged()

    def tell(self, copies: Iterable[int]) -> None:
        """Record that the conflict copies `copies` (inode numbers) have been reported to the user.

        Raises OSError or StoreError if the database cannot be written.
        """
        local_operations.acknowledge_conflicts(self._state, copies)

    def state(self, ino: int) -> str:
        """Return the sync state of an inode, as its extended attribute `state` shows it."""
        return state_of(self._state, self._state.inodes.get(ino))

    def waits(self, ino: int) -> bool:
        """Return True if the latest change of an inode has not been uploaded yet."""
        state = self.state(ino)
        is_changed_copy = state == "conflict" and self._state.intents.get(ino) is not None
        return state in WAITING or is_changed_copy

    def conflicts(self) -> list[dict[str, Any]]:
        """Return `ino`, `path`, `original`, `by` and `at_ns` of each existing conflict copy."""
        return self._status.conflicts()

    async def sync(
        self, under: Iterable[int], scope: trio.CancelScope, *, is_patient: bool, first: bool
    ) -> dict[str, Any]:
        """Wait until every change at or below the inodes `under` is uploaded or blocked.

        A change of a conflict copy also counts for its original. The wait enters `scope`, and
        also ends when `scope` is cancelled or reaches its deadline. Unless `is_patient`, a change
        counts as blocked after `upload_wait.VAIN` failed attempts.

        If `first` is False and uploads are paused, wait only for running uploads. If `first` is
        True, these changes are sent before all others, even while uploads are paused. In that case,
        also wait until no entry has a temporary name (as entries have while two names are
        exchanged).

        Return a dict about the remaining changes. These are the blocked changes and, if the wait
        was ended by `scope` or a pause, also pending changes.

        * `left`: the counts of the remaining changes
        * `uploads`: a description of each remaining change
        * `conflicts`: the conflict copies under `under` that were created or pending during the
          call, and those created since the start of the daemon that are in no earlier result
        """
        roots, before = list(under), self._state.intents.conflicts.times()
        remaining = partial(self._below, roots)
        wait = UploadWait(
            self._state, self._dispatcher, remaining, is_patient=is_patient, first=first
        )
        await wait.run(scope)
        left, counting = remaining(), self._with_copies(roots)
        copies = [
            each
            for each in self.conflicts()
            if (
                each["at_ns"] not in before
                or each["at_ns"] not in self._reported
                or each["ino"] in wait.pending
            )
            and self._is_below(each["ino"], counting)
        ]
        self._reported.update(each["at_ns"] for each in copies)
        return {
            "left": _counts(left),
            "uploads": self._status.uploads(left),
            "conflicts": copies,
        }

    def _is_below(self, ino: int, roots: Collection[int]) -> bool:
        inodes = self._state.inodes
        return any(each.ino in roots for each in inodes.and_above(inodes.find(ino)))

    def _with_copies(self, roots: Collection[int]) -> set[int]:
        """Return the inodes `roots` and the conflict copies of files among or below them."""
        every = self._state.intents.conflicts.originals()
        return {*roots, *(copy for copy, original in every if self._is_below(original, roots))}

    def take_rejected(self, roots: Collection[int]) -> list[dict[str, str]]:
        """Return path and error of each unreported change that was rejected and rolled back.

        Only changes of the inodes `roots`, of entries below them and of folders above them are
        returned. A returned change counts as reported afterwards. If `roots` contains ROOT, the
        method also works after the stores have been closed.
        """
        below = self._state.refusals.unacknowledged()
        if below and ROOT not in roots:
            inodes = self._state.inodes
            asked = [*inodes.get_all(roots)]
            every = [above for each in asked for above in inodes.and_above(each)]
            entries = {(each.zone, each.remote_id) for each in every}
            inside = tuple(f"{self.path(each.ino)}/" for each in asked)
            below = [
                each
                for each in below
                if each.path.startswith(inside) or (each.zone, each.remote_id) in entries
            ]
        self._state.refusals.told(below)
        return [{"path": one.path, "error": one.said} for one in below]

    def _waiting(self) -> list[Intent]:
        """Return all pending changes, ordered by sequence number.

        A file that is open with unsaved bytes, but has no intent yet, is included as an intent that
        is `held` and has the sequence number WRITTEN.
        """
        state = self._state
        written = [
            Intent(ino, WRITTEN, opened.session.generation, opened.session.size, held=True)
            for ino, opened in state.opened.items()
            if opened.session is not None
            and opened.session.dirty
            and state.intents.get(ino) is None
            and (inode := state.inodes.find(ino)) is not None
            and inode.parent != NOWHERE
            and not inode.local
        ]
        return written + state.intents.pending()

    def _below(self, under: Iterable[int] | None) -> list[Intent]:
        """Return the pending changes of the inodes `under` (None: all) and their descendants.

        A change of a conflict copy also counts for its original. The creation or move of a folder
        also counts for everything in the folder. The move of an entry also counts for the folder
        that still contains the entry on the service.
        """
        intents, inodes = self._waiting(), self._state.inodes
        roots = None if under is None else set(under)
        if roots is None or ROOT in roots:
            return intents
        above = {each.ino for root in roots for each in inodes.and_above(inodes.find(root))}
        roots = self._with_copies(roots)
        is_former = cache(partial(self._is_remote_below, roots=roots))  # many files leave a folder

        def is_leaving(inode: Inode | None) -> bool:
            return inode is not None and is_former(inode.zone, inode.remote_parent)

        moved = [inodes.find(intent.ino) for intent in intents if intent.place]
        # A move waits for the creation of its new folder.
        above |= {each.ino for one in filter(is_leaving, moved) for each in inodes.and_above(one)}
        return [
            intent
            for intent in intents
            if self._is_below(intent.ino, roots)
            or (intent.place and (intent.ino in above or is_leaving(inodes.find(intent.ino))))
        ]

    def _is_remote_below(self, zone: str, folder: str | None, roots: Collection[int]) -> bool:
        """Return True if the remote folder with id `folder` is in `roots` or below one of them."""
        inodes, passed = self._state.inodes, set[int]()
        inode = inodes.by_remote(zone, folder or "")
        while inode is not None and inode.ino not in passed:
            passed.add(inode.ino)
            inode = inodes.by_remote(zone, inode.remote_parent or "")
        return not passed.isdisjoint(roots)

    def path(self, ino: int) -> str:
        """Return the path of an inode, or of the rolled-back change with the number -`ino`."""
        for each in self._state.refusals.unacknowledged() if ino < 0 else ():
            if each.number == -ino:
                return each.path
        return self._state.path(ino)

    # ---- one path ----

    async def find(self, path: str) -> Place:
        """Return the entry at a path relative to the mount point.

        Raises FileNotFoundError, NotADirectoryError, or the error of a failed listing.
        """
        found: Inode | Node = self._state.inodes.get(ROOT)
        for part in PurePosixPath(path).parts:
            child = await self._child(found, typed(part))
            if child is None:
                raise FileNotFoundError(path)
            found = child
        if isinstance(found, Node):
            return self._virtual_place(path, found)
        return Place(
            path=self._state.inodes.path(found.ino),
            inos=(found.ino,),
            inode=found,
            file=None if found.is_folder else found,
            stays=self._stays(found),
        )

    async def _child(self, above: Inode | Node, name: str) -> Inode | Node | None:
        if not above.is_folder:
            raise NotADirectoryError(name)
        if isinstance(above, Node):
            return await above.child(name)
        unanswered = await self._folders.ensure_if_reachable(above)
        found = self._state.inodes.child(above.ino, name) or self._virtual.root(
            above.ino, name.encode("utf-8", "surrogatepass")
        )
        if found is None and unanswered is not None:
            raise unanswered
        return found

    def _virtual_place(self, path: str, node: Node) -> Place:
        state = node.sync_state()
        return Place(
            path=path,
            inos=state.inos,
            file=self._state.inodes.find(state.file) if state.file else None,
            what=state.words,
            stays=state.words if state.here_only else "",
        )

    def _stays(self, inode: Inode) -> str:
        """Return the reason why an inode is never uploaded, or "" for an inode that is uploaded."""
        if not inode.local:
            return ""
        inodes, top = self._state.inodes, inode
        while (above := inodes.get(top.parent)).local:
            top = above
        if top.parent == ROOT and top.name == LOST_FOUND:
            return marked(
                "recovered from a damaged database, and only here; copy it to where it belongs"
            )
        glob = self._state.local_only_glob(top.name)
        whose = "its name" if top is inode else f"the name of {top.name!r}"
        why = f"{whose} matches {glob!r}, of local_only" if glob else f"{whose} was in local_only"
        if inode.remote_id is None:
            known = "to send it, rename it" if top is inode else "to send it, move it elsewhere"
        else:
            before = ", as it was before" if inode.generation else ""
            known = f"the service keeps it as {self._there(inode)}{before}"
        return f"{marked('stays on this machine')}: {marked(why)}; {marked(known)}"

    def _there(self, inode: Inode) -> str:
        inodes = self._state.inodes
        folder = inodes.by_remote(inode.zone, inode.remote_parent or "")
        above = f"{inodes.path(folder.ino)}/" if folder is not None else ""
        return f"{above}{inode.remote_name or inode.name}"

    async def versions(self, inode: Inode) -> list[Any]:
        """Return the versions of a file, newest first; [] if the service does not have the file.

        Raises ZonedriveError for a folder, NotSupported if the service cannot list versions, and
        the service's errors.
        """
        if inode.is_folder:
            raise ZonedriveError("a folder has no versions")
        if inode.remote_id is None:
            return []
        return list((await self._versions.requested(inode)).versions)


def _counts(intents: list[Intent]) -> dict[str, int]:
    return {
        "files": len(intents),
        "changes": sum(not intent.generation for intent in intents),
        "bytes": sum(intent.size for intent in intents),
    }
