"""Order in which a program reads the files of a folder, and the number of files to prefetch."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.unit.state.disk import Disk, zone_of
from zonedrive.content.content_file import ContentFile
from zonedrive.prefetch.files import ENOUGH, FEW, GAP, MOST, SMALL, FilePrefetch, ReadSequence
from zonedrive.single_flight import Flight
from zonedrive.state.inode import Kind
from zonedrive.supervisor import Supervisor, Task
from zonedrive.vfs.caller_policy import CallerPolicy

LISTED = [7, 3, 9, 1, 8, 2, 6, 4, 5]
NAMED = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the timeouts, because the machine may be busy."""
    for name in ("SOON_S", "GONE_S"):
        monkeypatch.setattr(f"zonedrive.prefetch.files.{name}", 1000.0)


def trail(*opened: int, listed: list[int] = LISTED, named: list[int] = NAMED) -> ReadSequence:
    """Return the sequence of a program that has opened these files."""
    made = ReadSequence(1, 0)
    for ino in opened:
        made.moved(ino)
    follow(made, listed, named)
    return made


def listings(*, read: bool = False) -> Any:
    """Return folders; `read`: True if a program has just read the names."""
    return SimpleNamespace(was_read_lately=lambda _ino: read)


def follow(found: ReadSequence, listed: list[int], named: list[int]) -> None:
    """Look for the program's order; the order of its last folder comes first."""
    for by_name in (found.by_name, not found.by_name):
        if found.follow(named if by_name else listed, by_name=by_name):
            return


@pytest.mark.parametrize(
    ("opened", "order", "following"),
    [
        ((7, 3, 9), LISTED, 1),
        ((1, 2, 3), NAMED, 4),
        ((3, 1, 2), LISTED, 6),
        ((9, 5, 1), [], 0),
        ((3, 3, 3), [], 0),
    ],
)
def test_the_order_is_found(opened: tuple[int, ...], order: list[int], following: int) -> None:
    """The order of the listing or of the names is recognised, and no order if the program jumps."""
    found = trail(*opened)
    assert found.order == order
    if order:
        assert found.order[found.next] == following
        assert found.window == FEW


def test_some_files_may_be_skipped() -> None:
    """A program may skip some files, for example because of a name pattern, but not too many."""
    many = list(range(100))
    skipping = trail(0, 5, 6 + GAP, listed=many)
    assert skipping.order == many
    skipping.moved(7 + 2 * GAP)
    assert skipping.order == many
    assert not trail(0, 1, 3 + GAP, listed=many).order
    skipping.moved(9 + 3 * GAP)
    assert not skipping.order


def test_the_window_grows_up_to_a_limit() -> None:
    """The window doubles with each file that is opened in order, up to a limit."""
    many = list(range(1000))
    found = trail(0, 1, 2, listed=many)
    windows = []
    for ino in range(3, 20):
        found.moved(ino)
        windows.append(found.window)
    assert windows[:3] == [2 * FEW, 4 * FEW, 8 * FEW]
    assert windows[-1] == MOST


def test_a_jump_ends_the_prefetching() -> None:
    """A program that jumps loses its order and its files ahead."""
    many = list(range(1000))
    found = trail(0, 1, 2, listed=many)
    found.ahead = {3: 10, 4: 10}
    found.moved(900)
    assert not found.order
    assert not found.ahead
    for ino in range(901, 900 + ENOUGH):
        found.moved(ino)
    follow(found, many, NAMED)
    assert found.next == 900 + ENOUGH


def test_skipped_files_do_not_block_prefetching() -> None:
    """Files that a program skips do not block the prefetching of the next ones."""
    found = trail(0, 1, 2, listed=list(range(100)))
    found.ahead = {3: 10, 4: 10, 5: 10}
    found.moved(5)
    assert found.ahead == {}


def test_the_order_is_kept_in_the_next_folder() -> None:
    """The former folder's order is kept until the program deviates from it."""
    found = ReadSequence(2, 8, by_name=True)
    found.moved(1)
    follow(found, LISTED, NAMED)
    assert found.order == NAMED
    found.moved(2)
    found.moved(1)  # which is behind it, and was not fetched ahead
    assert not found.order


async def test_an_error_of_a_prefetched_file(caplog: pytest.LogCaptureFixture) -> None:
    """An error of a prefetched file is logged, and the mount continues."""
    tree: Any = SimpleNamespace(loading=lambda ino: 1 / 0)
    service: Any = SimpleNamespace(content=lambda *whole: 1 / 0)
    settings: Any = SimpleNamespace(download_limit=0)
    job = Supervisor().job
    state: Any = SimpleNamespace(inodes=tree, settings=settings)
    siblings = FilePrefetch(state, service, listings(), CallerPolicy(()))
    inode: Any = SimpleNamespace(ino=7, revision="r", size=1, zone="z", remote_id="f")
    trail = ReadSequence(1, 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(siblings.run)
        siblings._running.begin(7, Flight())
        await job(Task.SIBLING_AHEAD, siblings._safely, siblings._fetch, trail, inode)
        assert 7 not in siblings._running
        await job(Task.READING_ORDER, siblings._safely, siblings._plan, trail)
        nursery.cancel_scope.cancel()
    assert len([record for record in caplog.records if record.exc_info]) == 2
    caplog.clear()


async def test_a_full_disk_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefetched file that cannot be stored is deleted and closed, so that its space is free."""
    disk = Disk(tmp_path)
    state, size = disk.start(), 100_000

    async def content(*_: object) -> bytes:
        return bytes(size)

    service: Any = SimpleNamespace(content=content)
    siblings = FilePrefetch(state, service, listings(), CallerPolicy(()))
    with state.transaction():
        inode = state.inodes.add(
            zone_of(state).ino, "a", Kind.FILE, zone="z", remote_id="a", size=size
        )
    files: list[ContentFile] = []

    def refused(file: ContentFile, *_: object) -> int:
        files.append(file)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(ContentFile, "pwrite", refused)
    with pytest.raises(OSError, match="full"):
        await siblings._bring(inode)
    disk.close()
    assert [file.closed for file in files] == [True]
    assert state.spool.stored() == []


class Listed:
    """Tree with one folder."""

    def __init__(self, names: list[str], sizes: dict[str, int] | None = None) -> None:
        self.inodes = {
            ino: SimpleNamespace(
                ino=ino, name=name, is_folder=False, size=(sizes or {}).get(name, 100)
            )
            for ino, name in enumerate(names)
        }
        self.looked = 0

    def find(self, ino: int) -> SimpleNamespace | None:
        """Return the folder."""
        return self.inodes.get(ino)

    def loading(self, _folder: int) -> list[None]:
        """Return no unloaded names, because the folder is in memory."""
        return []

    def children(self, _folder: int) -> dict[str, int]:
        """Return all children."""
        self.looked += 1
        return {inode.name: ino for ino, inode in self.inodes.items()}

    def get_all(self, inos: list[int]) -> list[SimpleNamespace]:
        """Return the inodes."""
        return [self.inodes[ino] for ino in inos]


def of(tree: Listed, *, read: bool = False) -> tuple[FilePrefetch, list[int]]:
    """Return the siblings of this tree, without any real downloads."""
    state: Any = SimpleNamespace(
        inodes=tree,
        supervisor=Supervisor(),
        settings=SimpleNamespace(download_limit=0),
        cache=SimpleNamespace(is_complete=lambda _ino, _revision: False),
    )
    siblings = FilePrefetch(state, cast(Any, None), listings(read=read), CallerPolicy(()))
    went: list[int] = []
    siblings._go_on = lambda sequence: went.extend(sequence.order[sequence.next :][:1])  # type: ignore[method-assign]
    return siblings, went


async def opened(siblings: FilePrefetch, inos: list[int]) -> None:
    """Open these files as a program."""
    for ino in inos:
        inode: Any = SimpleNamespace(
            ino=ino, size=100, generation=0, is_new=False, parent=1, revision="r"
        )
        siblings.opened(inode, 5, os.O_RDONLY)
        await wait_all_tasks_blocked()


async def test_random_reads_in_a_big_folder_cost_no_look_at_it_each() -> None:
    """The larger the folder, the rarer the checks; reading in order is still detected."""
    names = [f"{number * 7919 % 30011:05}" for number in range(30_000)]
    tree = Listed(names)
    siblings, went = of(tree)
    async with trio.open_nursery() as nursery:
        await nursery.start(siblings.run)
        await opened(siblings, [number * 4999 % 30_000 for number in range(150)])
        assert tree.looked <= 10
        assert not went
        by_name = sorted(tree.inodes, key=lambda ino: names[ino])
        await opened(siblings, by_name[100:120])
        assert went
        assert went[-1] == by_name[120]
        nursery.cancel_scope.cancel()


async def test_a_small_folder_is_looked_at_each_time() -> None:
    """In a small folder the order is recognised from the first opened files."""
    tree = Listed([f"{number * 71 % 199:03}" for number in range(190)])
    siblings, went = of(tree)
    async with trio.open_nursery() as nursery:
        await nursery.start(siblings.run)
        await opened(siblings, [5, 100, 30, 7, 8, 9])
        assert went[-1] == 10
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("names", "first", "following"),
    [
        (["b", "c", "a", "d"], 0, 1),  # the first as listed
        (["b", "c", "a", "d"], 2, 0),  # the first by name
        (["b", "c", "a", "d"], 1, None),
        (["large", "b", "c", "a"], 1, 2),  # the first small one as listed
    ],
)
async def test_the_first_file_after_a_listing_starts_the_prefetching(
    names: list[str], first: int, following: int | None
) -> None:
    """Opening a single file, without a listing, prefetches nothing."""
    for read in (True, False):
        siblings, went = of(Listed(names, {"large": SMALL + 1}), read=read)
        async with trio.open_nursery() as nursery:
            await nursery.start(siblings.run)
            await opened(siblings, [first])
            assert went == ([following] if read and following is not None else [])
            nursery.cancel_scope.cancel()
