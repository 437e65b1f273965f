"""Listings that arrived, on their way into the tree: small ones together, in one transaction.

Must not know how a listing is fetched. To commit each small listing on its own took a fifth of the
time of a walk through many folders.

INVARIANT: a listing that cannot be merged hinders no other one: then each has its own transaction.
"""

from collections.abc import Callable

import trio

from zonedrive.tree.answer import Answer, Merged
from zonedrive.tree.inode import Inode
from zonedrive.tree.listing import Merge
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings.unsent import Unsent

TOGETHER = 200  # entries of one transaction: a few milliseconds


class _Arrived:
    """A small listing that waits to be merged."""

    def __init__(self, folder: Inode, asked_ns: int, answer: Answer) -> None:
        self.folder = folder
        self.asked_ns = asked_ns
        self.answer = answer
        self.error: Exception | None = None
        self.result = Merged()


class Merging:
    """Merges listings of folders."""

    def __init__(self, core: Core, tell: Callable[[int, Merged], None]) -> None:
        """`tell` hears of each folder, by its inode, what the listing changed in it."""
        self._core = core
        self._tell = tell
        self._waiting: list[_Arrived] = []

    async def merge(self, folder: Inode, asked_ns: int, answer: Answer) -> None:
        """Make the folder show the answer, which was asked for at that time (monotonic)."""
        if len(answer.ids) > TOGETHER:
            await self._merge_in_steps(folder, asked_ns, answer)
            return
        arrived = _Arrived(folder, asked_ns, answer)
        self._waiting.append(arrived)
        try:
            await trio.lowlevel.checkpoint()  # until the loop has heard of what else arrived
        except trio.Cancelled:
            if arrived in self._waiting:
                self._waiting.remove(arrived)
            raise
        while arrived in self._waiting:
            self._merge_waiting()
        if arrived.error is not None:
            raise arrived.error

    async def _merge_in_steps(self, folder: Inode, asked_ns: int, answer: Answer) -> None:
        merge = self._begun(folder, asked_ns, answer)
        try:
            for _ in merge.entries(answer):
                await trio.lowlevel.checkpoint()
        finally:
            self._tell(folder.ino, merge.result)

    def _begun(self, folder: Inode, asked_ns: int, answer: Answer) -> Merge:
        return Merge(self._core.tree, folder, asked_ns, Unsent(self._core))

    def _merge_waiting(self) -> None:
        """Merge what waits, the longest waiting first, up to the size of one transaction."""
        batch: list[_Arrived] = []
        entries = 0
        while self._waiting and entries + len(self._waiting[0].answer.ids) <= TOGETHER:
            batch.append(self._waiting.pop(0))
            entries += len(batch[-1].answer.ids) + 1
        try:
            self._merge_all(batch)
        except Exception as wrong:
            if len(batch) == 1:
                batch[0].error = wrong
                return
            for each in batch:
                try:
                    self._merge_all([each])
                except Exception as its_own:
                    each.error = its_own
        for each in batch:
            if each.error is None:
                self._tell(each.folder.ino, each.result)

    def _merge_all(self, batch: list[_Arrived]) -> None:
        with self._core.transaction():
            for each in batch:
                merge = self._begun(each.folder, each.asked_ns, each.answer)
                for _ in merge.entries(each.answer):
                    pass
                each.result = merge.result
