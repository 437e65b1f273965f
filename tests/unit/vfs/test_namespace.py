"""Names that change while an operation on them waits for the service."""

import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.harness.in_process import ALICE, EXCHANGE
from tests.unit.state.disk import SILENT, zone_of
from tests.unit.sync.account import Account
from tests.unit.vfs.mount import AWAKE, files_of, names_of
from zonedrive.sandbox.zones import Level
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.inode_cache import Dirents
from zonedrive.state.inode_table import BATCH
from zonedrive.state.invalidation import EntryChanged, EntryGone, Invalidation
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache, clocks_ns
from zonedrive.vfs.files import Files
from zonedrive.vfs.namespace import Namespace


@pytest.mark.parametrize("kind", [Kind.FOLDER, Kind.FILE])
async def test_an_entry_that_was_renamed_meanwhile_is_not_removed(
    state: LocalState, kind: Kind
) -> None:
    """A coworker's rename may arrive while a removal waits for the service."""
    zone = zone_of(state)
    with state.transaction():
        entry = state.inodes.add(
            zone.ino, "plans", kind, zone="z", remote_id="1", remote_parent="root", listed=True
        )

    def rename(inode: Inode) -> None:
        if inode is entry:
            with state.transaction():
                state.inodes.move(entry, zone.ino, "kept", remote_name="kept")

    class Folders(DirectoryCache):
        async def ensure(self, folder: Inode) -> None:
            rename(folder)

    class Names(Namespace):
        async def cancel_upload(self, inode: Inode, operation: str) -> None:
            rename(inode)

    folders = Folders(state, SILENT)
    names = Names(state, SILENT, folders, files_of(state, folders=folders), AWAKE)
    remove = names.rmdir if kind is Kind.FOLDER else names.unlink
    with pytest.raises(FileNotFoundError):
        await remove(zone.ino, b"plans")
    assert state.inodes.child(zone.ino, "kept") is entry
    assert state.intents.get(entry.ino) is None


async def test_a_folder_that_holds_the_target_by_now_is_not_moved(tmp_path: Path) -> None:
    """A coworker's move of the target folder arrives while the rename waits for a listing."""
    account = Account(tmp_path, refresh="600")
    for path in ("moved", "target", "target/empty"):
        account.bob.make_folder(path)
    async with account.running():
        state, moved, target = account.state, account.at("moved"), account.at("target")
        for folder in (moved, target):
            await account.folders.ensure(folder)
        names = names_of(state, account.service, account.folders)
        wrong = list[OSError]()

        async def rename() -> None:
            try:
                await names.rename(account.zone.ino, b"moved", target.ino, b"empty", 0)
            except OSError as refused:
                wrong.append(refused)

        empty = account.bob.entry_id("target/empty")
        account.bob.move("target", "moved/target")
        async with trio.open_nursery() as nursery:
            account.world.fault(stall=600, path=f"/folder/{empty}$")
            nursery.start_soon(rename)
            await trio.testing.wait_all_tasks_blocked()
            await account.list("moved")
            account.world.heal()
        assert [each.errno for each in wrong] == [errno.EBUSY]
        assert (moved.parent, target.parent) == (account.zone.ino, moved.ino)
        assert state.inodes.rows.unreachable() == []
        assert account.left() == {}


async def with_cached(account: Account, name: str) -> Namespace:
    """Return the running account's namespace, after a program has opened and read the file."""
    files = files_of(account.state, account.service, account.folders)
    reader = await files.open(account.at(name), os.O_RDONLY)
    assert await files.read(reader.handle, 0, 100) == b"text of " + name.encode()
    return Namespace(account.state, account.service, account.folders, files, AWAKE)


@pytest.mark.parametrize("flags", [0, EXCHANGE], ids=["rename", "exchange"])
async def test_a_rename_during_an_invalidation_of_the_name_invalidates_the_new_name(
    tmp_path: Path, flags: int
) -> None:
    """Otherwise the kernel shows another file under the new name, and writes go to that file."""
    account = Account(tmp_path, refresh="600")
    for name in ("one", "two", "other"):
        account.bob.write(name, b"text of " + name.encode())
    async with account.running():
        names, zone = await with_cached(account, "one"), account.zone.ino
        invalidations = account.state.invalidations
        target = b"two" if flags else b"new"
        await names.rename(zone, b"other", zone, b"third", 0)
        invalidations.put(EntryGone(zone, b"one", account.at("one").ino))
        await names.rename(zone, b"one", zone, target, flags)
        queued = list[Invalidation]()
        with suppress(trio.WouldBlock):
            while True:
                queued.append(invalidations.receive.receive_nowait())
        assert EntryChanged(zone, target) in queued
        assert EntryChanged(zone, b"third") not in queued


async def test_a_rename_that_takes_too_long_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the renamed file would stay on the disk, also after restarts."""
    account = Account(tmp_path, refresh="600")
    for name in ("new", "old"):
        account.bob.write(name, b"text of " + name.encode())
    async with account.running():
        names = await with_cached(account, "new")
        copies = list[bytes | None]()

        async def wait(self: Files, inode: Inode) -> None:
            copies.append(account.bytes_of("new"))
            limit.cancel()
            await trio.lowlevel.checkpoint()

        monkeypatch.setattr(Files, "keep_readable", wait)
        with trio.CancelScope() as limit:
            await names.rename(account.zone.ino, b"new", account.zone.ino, b"old", 0)
        copies.append(account.bytes_of("new"))
        assert copies == [b"text of new", None]
        assert account.state.spool.stored() == []


async def test_a_rename_keeps_the_copy_of_one_that_failed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second rename needs the bytes for a version of the file that it replaces."""
    account = Account(tmp_path, refresh="600")
    for name in ("new", "first", "second"):
        account.bob.write(name, b"text of " + name.encode())
    async with account.running():
        names = await with_cached(account, "new")
        waiting, go = list[str](), trio.Event()

        async def wait(self: Files, inode: Inode) -> None:
            waiting.append(inode.name)
            await (trio.Event() if inode.name == "first" else go).wait()

        monkeypatch.setattr(Files, "keep_readable", wait)
        limit, replaced = trio.CancelScope(), account.at("second").remote_id

        async def rename(target: str, scope: trio.CancelScope) -> None:
            with scope:
                await names.rename(account.zone.ino, b"new", account.zone.ino, target.encode(), 0)

        async with trio.open_nursery() as nursery:
            for target, scope in (("first", limit), ("second", trio.CancelScope())):
                nursery.start_soon(rename, target, scope)
                while target not in waiting:
                    await trio.lowlevel.checkpoint()
            limit.cancel()
            await trio.testing.wait_all_tasks_blocked()
            go.set()
        assert account.at("second").remote_id == replaced
        assert account.bytes_of("second") == b"text of new"


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("lookup", errno.ENOENT), ("unlink", errno.ENOENT), ("rmdir", errno.ENOENT),
        ("rename", errno.ENOENT), ("rename to it", errno.EILSEQ), ("create", errno.EILSEQ),
        ("mkdir", errno.EILSEQ),
    ],
)  # fmt: skip
async def test_no_entry_has_a_name_that_is_not_utf_8(
    state: LocalState, call: str, wrong: int
) -> None:
    """Such a name cannot be created, and is missing for all other calls, as on a local disk.

    rm(1) would fail also with the option -f.
    """
    names = names_of(state)
    zone, odd = zone_of(state), b"\xff"
    with state.transaction():
        state.inodes.update(zone, remote_id=None)  # whose listing nobody has to ask for
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "lookup": partial(names.lookup, zone.ino, odd),
        "unlink": partial(names.unlink, zone.ino, odd),
        "rmdir": partial(names.rmdir, zone.ino, odd),
        "rename": partial(names.rename, zone.ino, odd, zone.ino, b"a", 0),
        "rename to it": partial(names.rename, zone.ino, b"a", zone.ino, odd, 0),
        "create": partial(names.create, zone.ino, odd, 0o600, os.O_WRONLY),
        "mkdir": partial(names.mkdir, zone.ino, odd, 0o700),
    }
    with pytest.raises(OSError) as refused:
        await calls[call]()
    assert refused.value.errno == wrong


async def test_a_change_of_the_access_level_makes_a_listing_outdated(tmp_path: Path) -> None:
    """Listings are kept in the kernel's format, which includes the permission bits."""
    account = Account(tmp_path, refresh="600")
    account.bob.write("a", b"text")
    async with account.running():
        names = names_of(account.state, account.service, account.folders)

        async def listed() -> list[str]:
            found = names.listed(await names.opendir(account.zone.ino), 0)
            assert found is not None
            return found.names

        before = await listed()
        assert await listed() is before
        account.world.zones[account.alice.id].levels[ALICE] = Level.ADD
        account.folders.forget(ROOT)
        await account.folders.ensure(account.state.inodes.get(ROOT))
        assert await listed() is not before


async def test_two_large_folders_read_at_once_are_loaded_once(state: LocalState) -> None:
    """Each of them is read to its end although the cache has no room for the names of both."""
    zone, count = zone_of(state), BATCH + 100
    entries = [f"{number}" for number in range(count)]
    with state.transaction():
        folders = [
            state.inodes.add(
                zone.ino, name, Kind.FOLDER, zone="z", remote_id=name, remote_parent="root",
                listed=True,
            )
            for name in "ab"
        ]  # fmt: skip
        for folder in folders:
            state.inodes.add_all(folder.ino, {name: {"kind": Kind.FILE} for name in entries})
    state.inodes._dirents = Dirents(limit=count)
    directories = DirectoryCache(state, SILENT)
    for folder in folders:
        directories.known_empty(folder, clocks_ns())
    names = names_of(state, folders=directories)
    statements: list[str] = []
    state.database._connection.set_trace_callback(statements.append)
    handles = [await names.opendir(folder.ino) for folder in folders]
    found: list[list[str]] = [[], []]
    for start in range(0, count + 2, 100):
        for handle, there in zip(handles, found, strict=True):
            if start == 0:
                await names.load(handle)
            names.listed(handle, start)
            there += [name.decode() for name, _, _ in islice(names.readdir(handle, start), 100)]
    assert found == [[".", "..", *entries]] * 2
    assert sum("SELECT ino FROM inodes WHERE parent" in each for each in statements) == 2
    with state.transaction():
        state.inodes.unlink(state.inodes.get(state.inodes.numbers_in(folders[0].ino)[0]))
    assert [name for name, _, _ in names.readdir(handles[0], 2)][:2] == [b"1", b"2"]


async def test_a_folder_that_arrives_before_a_creation_is_not_opened(tmp_path: Path) -> None:
    """The kernel looked the name up before a coworker made the folder, and creates a file."""
    account = Account(tmp_path, refresh="600")
    account.bob.make_folder("plans")
    async with account.running():
        names = names_of(account.state, account.service, account.folders)
        with pytest.raises(IsADirectoryError):
            await names.create(account.zone.ino, b"plans", 0o600, os.O_WRONLY | os.O_TRUNC)
        assert account.left() == {}
