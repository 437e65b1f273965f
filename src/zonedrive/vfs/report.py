"""What people ask the daemon: is it safe, what is waiting, what went wrong."""

import heapq
import itertools
import time
from collections.abc import Collection, Iterable
from typing import Any

import trio

from zonedrive import causes
from zonedrive.causes import Cause
from zonedrive.errors import ZonedriveError
from zonedrive.outbox.dispatch import Dispatcher, is_blocked
from zonedrive.outbox.journal import Intent
from zonedrive.remote.service import Service
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.vfs.core import Core
from zonedrive.vfs.delivery.uploads import Uploads
from zonedrive.vfs.fetch_failures import FetchFailures
from zonedrive.vfs.listings.folders import Folders
from zonedrive.vfs.recovery import losses
from zonedrive.vfs.virtual.history import Histories
from zonedrive.vfs.xattrs import state_of

VAIN = 7  # attempts in a row: with the pauses between them, most of a minute
WRITTEN = 0  # the number of no change
URGENCY = ("failed", "uploading", "conflict", "pending")
"""What a person is to see first, where not everything is shown."""


class Report:
    """Answers in plain values, ready for JSON."""

    def __init__(
        self,
        core: Core,
        service: Service,
        folders: Folders,
        dispatcher: Dispatcher,
        uploads: Uploads,
        histories: Histories,
        fetch_failures: FetchFailures,
    ) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher
        self._uploads = uploads
        self._histories = histories
        self._fetch_failures = fetch_failures

    def status(self, under: Iterable[int] | None = None, most: int | None = None) -> dict[str, Any]:
        """state, outbox, uploads, cache and tree, as `zonedrive status --json` has them.

        Also `notice`, one line, after a damaged database, where a folder cannot be shown whole, or
        where content could not be fetched lately.

        `under` limits the uploads to what is in these folders; of those at most `most` are given,
        the most urgent ones, while `outbox` counts all.  This is for people, who are also told
        `change` and `cause` of each, in the outbox `files`: how many have bytes that are only
        here, and `causes`: how many failed for which cause; and `lost`, as `lost` counts them.
        """
        core = self._core
        intents = self._below(under)
        copies = self.copies() if intents else set()
        states = {intent.ino: self._state(intent, copies) for intent in intents}
        counted = list(states.values())
        shown = intents
        if most is not None:
            shown = heapq.nsmallest(
                most, intents, key=lambda one: (URGENCY.index(states[one.ino]), one.seq)
            )
        entries, folders = core.tree.counts()
        return {
            "state": self._service.link.state,
            "outbox": {
                "pending": counted.count("pending") + counted.count("conflict"),
                "uploading": counted.count("uploading"),
                "failed": counted.count("failed"),
                "conflicts": len(self.conflicts()),
                "bytes": sum(intent.size for intent in intents),
                **({} if most is None else _for_people(intents)),
            },
            "uploads": [
                self._upload(intent, states[intent.ino])
                | ({} if most is None else self._said(intent))
                for intent in shown
            ],
            "cache": {"bytes": core.cache.usage(), "limit": core.cache.ceiling},
            "tree": {"entries": entries, "folders": folders},
            **({"notice": said} if (said := self._notice()) else {}),
            **({} if most is None else {"lost": self.lost(under)}),
        }

    def lost(self, under: Iterable[int] | None = None) -> int:
        """How many files lost their names: never sent, and not on the service.

        They are at the top of the mount: 0 where `under` is something else.  Those who ask for
        one of them by its path are told by `Place.stays`.
        """
        return losses.count(self._core) if under is None or ROOT in under else 0

    def _notice(self) -> str:
        said = [
            losses.notice(self._core),
            self._taken_back(),
            self._fetch_failures.notice(),
            self._folders.notice(),
        ]
        return "; ".join(each for each in said if each)

    def _taken_back(self) -> str:
        """What of changes was refused and taken back, until `sync` has said it."""
        every = self._core.refusals.untold()
        if not every:
            return ""
        more = f" (and {len(every) - 1} more like it)" if len(every) > 1 else ""
        return f"{every[0].path}: {every[0].said}{more}"

    def vitals(self) -> dict[str, Any]:
        """What `zonedrive doctor` judges: without any name."""
        intents = self._core.journal.pending()
        return {
            "state": self._service.link.state,
            "encrypt": self._core.settings.encrypt,
            "waiting": len(intents),
            "failed": sum(intent.failed for intent in intents),
            "causes": causes.count(intent.cause for intent in intents),
            "held": sum(intent.held for intent in intents),
            "tries": max((intent.attempts for intent in intents), default=0),
            "conflicts": len(self.conflicts()),
            "lost": bool(losses.notice(self._core)),
            "unfetched": len(self._fetch_failures.recent()),
        }

    def left(self) -> dict[str, int]:
        """files, changes and bytes that are not on the service; also when the stores are closed."""
        return _counts(self._waiting())

    @property
    def changed(self) -> trio.Event:
        """Set at the next change of the outbox; to be taken before looking at it."""
        return self._dispatcher.changed

    def work(self, under: Iterable[int] | None = None) -> dict[str, Any]:
        """What waits and how far it is, without a name: files, bytes, sent, uploading, failed.

        `causes` counts what failed by why.

        `changes` counts those of the files that are new folders, renames or removals: they have
        no bytes that are only here.  `open` counts those that a program may still write to.
        `under` limits it to what is in these folders.
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
            "open": sum(intent.held and not intent.gone for intent in intents),
        }

    def held(self, under: Iterable[int] | None, most: int) -> list[str]:
        """The paths of those that `work` counts as `open`, at most so many."""
        found = (one.ino for one in self._below(under) if one.held and not one.gone)
        return [self.path(ino) for ino in itertools.islice(found, most)]

    def waiting(self) -> set[int]:
        """Inodes that the service is to hear of, and the numbers of what was taken back."""
        taken_back = {-each.number for each in self._core.refusals.untold()}
        return {intent.ino for intent in self._core.journal.pending()} | taken_back

    def failures(self) -> dict[int, str]:
        """Those of them that failed since this daemon began, with why.

        What was taken back has a negative number.
        """
        return {
            intent.ino: intent.error
            for intent in self._core.journal.pending()
            if intent.failed and self._dispatcher.failure(intent.ino) is not None
        } | {-each.number: each.said for each in self._core.refusals.untold()}

    def copies(self) -> set[int]:
        """The inodes of `conflicts`."""
        return {conflict.ino for conflict in self._core.journal.conflicts.all()}

    def untold(self) -> set[int]:
        """Those of them that no person has been told of."""
        return self._core.journal.conflicts.untold()

    def tell(self, copies: Iterable[int]) -> None:
        """A person has been told of these; kept over restarts.  Raises OSError, StoreError."""
        with self._core.transaction():
            self._core.journal.conflicts.tell(copies)

    def state(self, ino: int) -> str:
        """The state of one entry, as its extended attribute says it."""
        return state_of(self._core, self._core.tree.get(ino))

    def conflicts(self) -> list[dict[str, Any]]:
        """The conflict copies that still exist: path, original, by, at (ns)."""
        core, found = self._core, []
        for conflict in core.journal.conflicts.all():
            copy = core.tree.find(conflict.ino)
            if copy is None or copy.parent == NOWHERE:
                continue
            original = core.tree.find(conflict.original)
            path = core.tree.path(copy.ino)
            found.append(
                {
                    "path": path,
                    "original": core.tree.path(original.ino) if original else path,
                    "by": conflict.by,
                    "at_ns": conflict.at_ns,
                }
            )
        return found

    async def sync(self, under: Iterable[int], timeout: float | None) -> dict[str, Any]:
        """Wait until everything under these inodes is on the service, or cannot be.

        Without a `timeout`, what failed VAIN times in a row is not waited for either.
        Gives the uploads that are left: failed ones, and after `timeout` seconds pending ones.
        """
        roots = list(under)
        started = time.time_ns()
        vain = VAIN if timeout is None else None
        asked, newest = self._below(roots), self._core.journal.newest
        written = {intent.ino for intent in asked if intent.held}
        self._dispatcher.hurry(intent.ino for intent in asked)

        def over() -> bool:
            # What was refused before gets one more try: it is over when it is postponed again.
            now, left = time.time_ns(), self._below(roots)
            # What was there when it was asked for does not settle, not even where the kernel lets
            # us know of its last close only now.
            if settling := [
                intent.ino
                for intent in left
                if (intent.seq <= newest or intent.ino in written)
                and not (intent.held or intent.attempts or intent.due_ns <= now)
            ]:
                self._dispatcher.hurry(settling)
            if any(intent.seq == WRITTEN for intent in left):
                return False
            if any(self._core.journal.get(ino) is None for ino in self._dispatcher.running):
                return False  # removed here while on its way: its end may leave something to undo
            return self._dispatcher.stuck(vain) or all(
                is_blocked(intent, vain)
                and intent.due_ns > now
                and intent.ino not in self._dispatcher.running
                for intent in left
            )

        with (
            self._dispatcher.waited_for(),
            trio.move_on_after(float("inf") if timeout is None else timeout),
        ):
            await self._dispatcher.wait_until(over)
        left = self._below(roots)
        return {
            "left": _counts(left),
            "uploads": self._uploads_of(left),
            "failed": sum(intent.failed for intent in left),
            "conflicts": [each for each in self.conflicts() if each["at_ns"] >= started],
        }

    def tell_taken_back(self, roots: Collection[int]) -> list[dict[str, str]]:
        """path and error of changes below these inodes that were refused and taken back.

        Who asks tells a person: each is given once.  Also when the stores are closed, for ROOT.
        """
        below = self._core.refusals.untold()
        if below and ROOT not in roots:
            asked = [*self._core.tree.get_all(roots)]
            entries = {(each.zone, each.remote_id) for each in asked}
            inside = tuple(f"{self.path(each.ino)}/" for each in asked)
            below = [
                each
                for each in below
                if each.path.startswith(inside) or (each.zone, each.remote_id) in entries
            ]
        self._core.refusals.told(below)
        return [{"path": one.path, "error": one.said} for one in below]

    def _waiting(self) -> list[Intent]:
        """What the service is to hear of, oldest change first.

        Also what a program has written and not closed yet, in the place of the intent that it has
        not: `held`, with WRITTEN for a number.
        """
        core = self._core
        written = [
            Intent(ino, WRITTEN, opened.session.generation, opened.session.size, held=True)
            for ino, opened in core.opened.items()
            if opened.session is not None
            and opened.session.dirty
            and core.journal.get(ino) is None
            and (inode := core.tree.find(ino)) is not None
            and inode.parent != NOWHERE
            and not inode.local
        ]
        return written + core.journal.pending()

    def _below(self, under: Iterable[int] | None) -> list[Intent]:
        """The intents about these inodes and what is in them."""
        intents = self._waiting()
        roots = None if under is None else set(under)
        if roots is None or ROOT in roots:
            return intents
        return [intent for intent in intents if roots & set(self._ancestors(intent.ino))]

    def _ancestors(self, ino: int) -> Iterable[int]:
        """An inode and the folders it is in (for a deleted one, those it was in)."""
        core = self._core
        inode = core.tree.find(ino)
        while inode is not None and inode.ino != ROOT:
            yield inode.ino
            if inode.parent == NOWHERE:
                inode = core.tree.by_remote(inode.zone, inode.remote_parent or "")
            else:
                inode = core.tree.find(inode.parent)

    def _uploads_of(self, intents: list[Intent]) -> list[dict[str, Any]]:
        copies = self.copies() if intents else set()
        return [self._upload(intent, self._state(intent, copies)) for intent in intents]

    def _state(self, intent: Intent, copies: set[int]) -> str:
        if intent.ino in self._dispatcher.running:
            return "uploading"
        if intent.failed:
            return "failed"
        return "conflict" if intent.ino in copies else "pending"

    def _trouble(self, intent: Intent) -> str | None:
        """What keeps an upload back, where that is no answer of the service."""
        if intent.held and not intent.gone:
            return "a program still has it open for writing"
        failure = self._dispatcher.failure(intent.ino)
        if failure is not None and self._passing(intent):
            return causes.line_of(failure)
        return None

    def _passing(self, intent: Intent) -> Cause:
        """Why the last attempt failed, where the journal on a full disk took no note of it."""
        failure = self._dispatcher.failure(intent.ino)
        local = failure is not None and causes.cause_of(failure) is Cause.LOCAL
        return Cause.LOCAL if local and not intent.held else Cause.NONE

    def _upload(self, intent: Intent, state: str) -> dict[str, Any]:
        return {
            "path": self.path(intent.ino),
            "state": state,
            "size": intent.size,
            "sent": min(self._uploads.sent(intent.ino), intent.size),
            "error": intent.error or self._trouble(intent),
        }

    def _said(self, intent: Intent) -> dict[str, Any]:
        """What is told of an upload beyond the object for programs."""
        return {
            "change": intent.change(is_new=self._core.tree.get(intent.ino).is_new),
            "cause": causes.label(intent.cause or self._passing(intent)),
        }

    def path(self, ino: int) -> str:
        """As `Core.path`; also of what was taken back, by its number."""
        for each in self._core.refusals.untold() if ino < 0 else ():
            if each.number == -ino:
                return each.path
        return self._core.path(ino)

    async def versions(self, inode: Inode) -> list[Any]:
        """The versions of a file, newest first.  Raises NotSupported."""
        if inode.is_folder:
            raise ZonedriveError("a folder has no versions")
        if inode.remote_id is None:
            return []
        return list(await self._histories.asked(inode))


def _for_people(intents: list[Intent]) -> dict[str, Any]:
    """What is counted of the outbox beyond the object for programs."""
    return {
        "files": sum(bool(one.generation) for one in intents),
        "causes": causes.count(one.cause for one in intents),
    }


def _counts(intents: list[Intent]) -> dict[str, int]:
    return {
        "files": len(intents),
        "changes": sum(not intent.generation for intent in intents),
        "bytes": sum(intent.size for intent in intents),
    }
