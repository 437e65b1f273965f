"""Merging of received listings into the local state, several small listings per transaction.

This module does not fetch the listings. Each commit writes whole index pages. With one commit per
small listing, commits took a fifth of the time of a walk through many folders. A listing that no
program is waiting for is therefore collected with others, until the listings fill a transaction or
GATHER_S seconds have passed. When a program needs one of these listings, all of them are merged at
once (`merge_waiting`).

INVARIANT: a listing that cannot be merged does not block other listings: after an error, each
listing gets its own transaction.
"""

import logging
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

import trio

from zonedrive.model import Zone
from zonedrive.state import remote_operations
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merge, Merged, RawListing

log = logging.getLogger(__name__)

TOGETHER = 200  # entries of one transaction: a few milliseconds
GATHER_S = 0.02
ROWS = 500  # rows changed since the last checkpoint: about half of the pages of `db.LOG_PAGES`


@dataclass(eq=False)
class _Arrived:
    """Small listing that is waiting to be merged."""

    folder: Inode
    remote_id: str | None
    asked_ns: int
    answer: RawListing
    error: Exception | None = None
    result: Merged = field(default_factory=Merged)
    done: trio.Event = field(default_factory=trio.Event)


class ListingBatches:
    """Queue of received folder listings, which are merged into the local state in batches."""

    def __init__(
        self,
        state: LocalState,
        can_make_folders: Callable[[], bool],
        tell: Callable[[int, Merged], None],
    ) -> None:
        """Create the queue; `tell(ino, changes)` is called after each merge into a folder.

        `can_make_folders` returns True if the service can create folders.
        """
        self._state = state
        self._can_make_folders = can_make_folders
        self._tell = tell
        self._waiting: list[_Arrived] = []
        self._checkpointed = state.database.changes

    @property
    def waiting(self) -> int:
        """Number of listings that have arrived and are not merged yet."""
        return len(self._waiting)

    def claim_checkpoint(self) -> bool:
        """Return True if enough rows were written to require `checkpoint`; then reset the count."""
        changes = self._state.database.changes
        if changes - self._checkpointed < ROWS:
            return False
        self._checkpointed = changes
        return True

    async def checkpoint(self) -> None:
        """Checkpoint the write-ahead log, so that no commit has to wait for the disk."""
        await trio.to_thread.run_sync(self._state.database.checkpoint)

    async def merge(
        self, folder: Inode, asked_ns: int, answer: RawListing, *, urgent: bool
    ) -> None:
        """Merge a listing that was requested at `asked_ns` (monotonic) into the folder.

        If `urgent` is true, merge the listing at once, because a program is waiting for the
        listing. Do nothing if the folder has another remote id when the listing is merged. Raises
        the error of the merge.
        """
        if len(answer.ids) > TOGETHER:
            merge = self._begun(folder, asked_ns)
            await self._take(merge.entries(answer), folder, merge)
            return
        entries = sum(len(each.answer.ids) + 1 for each in self._waiting)
        if entries + len(answer.ids) > TOGETHER:
            self.merge_waiting()
        arrived = _Arrived(folder, folder.remote_id, asked_ns, answer)
        self._waiting.append(arrived)
        try:
            if urgent:
                # Lets the loop process other listings that arrived.
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(GATHER_S):
                    await arrived.done.wait()
        except trio.Cancelled:
            if arrived in self._waiting:
                self._waiting.remove(arrived)
                self.merge_waiting()  # concurrent calls may rely on this merge of their listings
            raise
        if not arrived.done.is_set():
            self.merge_waiting()
        if arrived.error is not None:
            raise arrived.error

    def merge_waiting(self) -> None:
        """Merge all waiting listings in one transaction; after an error, merge each separately."""
        batch, self._waiting = self._waiting, []
        try:
            self._merge_all(batch)
        except Exception:
            for each in batch:
                try:
                    self._merge_all([each])
                except Exception as wrong:
                    each.error = wrong
        for each in batch:
            if each.error is None:
                try:
                    self._tell(each.folder.ino, each.result)
                except Exception as wrong:
                    each.error = wrong
            each.done.set()

    async def merge_zones(
        self,
        root: Inode,
        asked_ns: int,
        zones: list[Zone],
        *,
        unsure: Container[str],
        complete: bool,
    ) -> None:
        """Merge the list of zones that was requested at `asked_ns` (monotonic) into the root.

        The other arguments are those of `Merge.zones`.
        """
        merge = self._begun(root, asked_ns)
        await self._take(merge.zones(zones, unsure=unsure, complete=complete), root, merge)

    async def _take(self, steps: Iterator[None], folder: Inode, merge: Merge) -> None:
        try:
            for _ in steps:
                await trio.lowlevel.checkpoint()
        finally:
            self._tell(folder.ino, merge.result)

    def _begun(self, folder: Inode, asked_ns: int) -> Merge:
        return Merge(self._state, folder, asked_ns, self._can_make_folders)

    def _merge_all(self, batch: list[_Arrived]) -> None:
        batch = [each for each in batch if each.folder.remote_id == each.remote_id]
        merges = [(self._begun(each.folder, each.asked_ns), each.answer) for each in batch]
        remote_operations.merge_listings(self._state, merges)
        for each, (merge, _) in zip(batch, merges, strict=True):
            each.result = merge.result
