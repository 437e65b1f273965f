"""New folders, moves and removals on the service: answers, refusals and changes in between."""

import contextlib
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.harness.fake_service import Coworker, Node
from tests.harness.in_process import ALICE
from tests.unit.sync.account import Account, stale
from zonedrive.causes import Cause
from zonedrive.content.small_contents import LARGEST
from zonedrive.errors import AlreadyExists, Changed, Unavailable, ZonedriveError
from zonedrive.model import Entry
from zonedrive.state import local_operations, remote_binding
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.names import is_aside
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.status import Status
from zonedrive.sync.compare import COMPARISONS
from zonedrive.sync.materialize import materialize

ENTRY = r"GET /api/zones/\w+/files/\w+$"
LISTING = r"GET .*/folder/"
MAKE = r"POST .*/folders$"
MOVE = r"PUT "
DELETE = r"DELETE "


async def make(account: Account, path: str) -> None:
    inode = account.at(path)
    await account.names.make(account.intent(inode), inode)


async def move(account: Account, inode: Inode) -> None:
    await account.names.move(account.intent(inode), inode)


async def aside(account: Account, inode: Inode) -> None:
    await account.names.move(account.intent(inode), inode, aside=True)


async def delete(account: Account, inode: Inode) -> None:
    await account.names.delete(account.intent(inode), inode)


def tree(account: Account) -> set[str]:
    """Return the paths on the service."""
    return set(account.bob.tree())


def refusals(account: Account) -> list[str]:
    """Return the messages of changes that were taken back."""
    return [each.said for each in account.state.refusals.unacknowledged()]


def deny(account: Account, method: str, **more: object) -> None:
    account.world.fault(status=403, method=method, path="^/api/sandbox/", **more)


def count_moves_as_changes(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each move by Alice change the time and author of the entry on the service."""
    move = account.world.move

    def change(*request: Any) -> Node:
        node = move(*request)
        node.modified_us, node.modified_by = account.world.now_us(), ALICE
        return node

    monkeypatch.setattr(account.world, "move", change)


# ---- new folders ----


async def test_a_new_folder(account: Account) -> None:
    """The folder is known to be empty; files in it are sent without another listing."""
    async with account.running():
        account.make("f")
        inode, asked = account.at("f"), list[PendingRequest]()
        account.meanwhile(MAKE, lambda: asked.extend(account.state.requests.all()))
        await make(account, "f")
        assert asked == [
            PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, account.bob.root_id, "f", None)
        ]
        assert inode.remote_id == account.bob.entry_id("f")
        assert (inode.remote_parent, inode.remote_name) == (account.bob.root_id, "f")
        assert account.left() == {}
        assert account.state.requests.all() == []
        account.world.requests.clear()
        await account.folders.ensure(inode)
        assert account.world.requests == []


async def test_a_folder_in_one_that_is_not_there_yet(account: Account) -> None:
    """The outer folder is made first."""
    async with account.running():
        account.make("f")
        account.make("f/g")
        with pytest.raises(Changed):
            await make(account, "f/g")
        assert tree(account) == set()


async def test_a_folder_in_one_that_a_coworker_deletes(account: Account) -> None:
    """Nothing is refused: the outer folder is made again after the next listing."""
    account.bob.make_folder("f")
    async with account.running():
        await account.list("f")
        account.make("f/g")
        account.bob.delete("f")
        with pytest.raises(Changed):
            await make(account, "f/g")
        assert account.state.requests.all() == []
        await account.list()
        with pytest.raises(Changed):
            await make(account, "f/g")
        assert account.left() == {"Zone/f": "MOVED", "Zone/f/g": "MOVED"}


@pytest.mark.parametrize("there", ["folder", "file"])
@pytest.mark.parametrize("changed", [False, True])
async def test_a_folder_whose_name_is_taken(account: Account, there: str, changed: bool) -> None:
    """A coworker's folder is the same folder; a coworker's file stays, and the folder is a copy."""
    async with account.running():
        account.make("f")
        inode = account.at("f")
        if there == "folder":
            account.bob.make_folder("f")
            account.bob.write("f/theirs", b"")
        else:
            account.bob.write("f", b"by bob")
        if changed:
            account.meanwhile(LISTING, lambda: account.rename("f", "g"))
        with stale(changed):
            await make(account, "f")
        assert account.state.requests.all() == []
        if changed:
            assert account.left() == {"Zone/g": "MOVED"}
            assert inode.is_new
        elif there == "folder":
            assert inode.remote_id == account.bob.entry_id("f")
            assert account.left() == {}
            await account.folders.ensure(inode)
            assert account.names_in("f") == {"theirs"}
        else:
            assert account.at("f").remote_id == account.bob.entry_id("f")
            assert inode.name.startswith("f (conflict")
            assert [one["by"] for one in Status(account.state).conflicts()] == [account.bob.user]


async def test_a_folder_whose_name_is_free_again(account: Account) -> None:
    """The step is repeated."""
    async with account.running():
        account.make("f")
        account.bob.make_folder("f")
        account.meanwhile(MAKE, lambda: account.bob.delete("f"))
        with pytest.raises(Changed, match="gone"):
            await make(account, "f")
        assert account.left() == {"Zone/f": "MOVED"}


def fail(account: Account, path: str, number: int = 9) -> None:
    """Let attempts fail as during an outage."""
    for _ in range(number):
        account.state.intents.postpone(account.intent(account.at(path)), 0, "", Cause.SERVICE)


async def test_a_name_that_is_free_again_and_another_that_folds_to_it(account: Account) -> None:
    """The other entry is accepted only if the name is still taken, also after an outage."""
    async with account.running():
        account.make("f")
        fail(account, "f")
        account.bob.make_folder("f")
        account.meanwhile(MAKE, lambda: account.bob.move("f", "F"))
        with pytest.raises(Changed, match="gone"):
            await make(account, "f")
        await make(account, "f")
        assert tree(account) == {"F", "f"}


async def test_a_name_that_is_taken_but_not_listed_after_an_outage(account: Account) -> None:
    """The service refuses the name several times before the user is told."""
    async with account.running():
        account.make("f")
        fail(account, "f")
        account.world.fault(status=409, method="POST", path="^/api/")
        for _ in range(COMPARISONS):
            with pytest.raises(Changed, match="gone"):
                await make(account, "f")
        with pytest.raises(AlreadyExists):
            await make(account, "f")


@pytest.mark.parametrize("flying", [False, True])
async def test_a_folder_whose_name_another_entry_leaves(account: Account, flying: bool) -> None:
    """The other entry is moved first; its place on the service is known from now on."""
    account.bob.make_folder("g")
    async with account.running():
        other = account.at("g")
        account.rename("g", "h")
        account.bob.move("g", "f")
        account.make("f")
        if flying:
            account.state.in_flight[other.ino] = account.intent(other)
        with pytest.raises(Changed, match="still has this name"):
            await make(account, "f")
        assert other.remote_name == ("g" if flying else "f")
        assert account.left() == {"Zone/h": "MOVED", "Zone/f": "MOVED"}


async def test_two_new_folders_of_one_name(account: Account) -> None:
    """The second request waits for the first one, and is then planned again."""
    async with account.running():
        account.make("f")
        request = PendingRequest(account.at("f").ino, 0, 0, 0, "z", account.bob.root_id, "f", None)
        async with trio.open_nursery() as nursery:
            with account.reconciler.sending(request):
                nursery.start_soon(make, account, "f")
                await trio.testing.wait_all_tasks_blocked()
        assert tree(account) == set()
        account.state.resolved(request)
        await make(account, "f")
        assert tree(account) == {"f"}


# ---- moves ----


@pytest.mark.parametrize("edited", [False, True])
async def test_a_move(account: Account, edited: bool) -> None:
    """The entry has its new place, and an edit is based on the version of the move."""
    account.bob.make_folder("f")
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        if edited:
            account.save("a", b"edited")
        account.rename("a", "f/b")
        asked: list[PendingRequest] = []
        account.meanwhile(MOVE, lambda: asked.extend(account.state.requests.all()))
        await move(account, inode)
        folder = account.bob.entry_id("f")
        assert asked == [
            PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, folder, "b", inode.remote_id)
        ]
        assert tree(account) == {"f", "f/b"}
        assert (inode.remote_parent, inode.remote_name) == (account.bob.entry_id("f"), "b")
        assert account.left() == ({"Zone/f/b": "SAVED"} if edited else {})
        if edited:
            assert account.intent(inode).base == (await account.entry(inode)).revision
        assert account.state.requests.all() == []


@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize("opened", ["before", "after"])
async def test_a_cached_file_is_moved_on_a_service_that_counts_a_move_as_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, opened: str
) -> None:
    """The bytes are the same, so they stay on this machine, also for a program that reads them."""
    account, data = Account(tmp_path), os.urandom(size)
    account.bob.write("a", data)
    state, cache = account.state, account.state.cache
    async with account.running():
        inode = account.at("a")
        former, source = inode.revision, state.source(inode)
        if size <= LARGEST:
            cache.put(inode.ino, former, data)
        elif opened != "before":
            await cache.complete(inode.ino, former, size, source)
        reader = cache.open(inode.ino, former, size, source) if opened == "before" else None
        if reader is not None:
            await reader.fill()
            state.new_open_file(inode).reader = former, reader
        account.rename("a", "b")
        count_moves_as_changes(account, monkeypatch)
        await move(account, inode)
        assert inode.revision == (await account.entry(inode)).revision != former
        assert state.is_readable_offline(inode)
        account.world.fault(down=True)
        if reader is not None:
            assert state.opened[inode.ino].reader == (inode.revision, reader)
        else:
            reader = cache.open(inode.ino, inode.revision, size, state.source(inode))
        assert bytes(await reader.read(0, size)) == data
        reader.close()
        assert state.is_readable_offline(inode)
        assert cache.inos() == [inode.ino]


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("saved", [b"new", b"newer"])
@pytest.mark.parametrize("who", ["alice", "bob"])
async def test_another_machine_saves_a_cached_file_just_before_its_move(
    account: Account, monkeypatch: pytest.MonkeyPatch, who: str, saved: bytes, edited: bool
) -> None:
    """The version is not taken for the moved one, also if size and user are equal.

    So the cached content is not shown for it, and an edit finds the conflict.
    """
    account.bob.write("a", b"old")
    other: Coworker = getattr(account, who)
    state, cache = account.state, account.state.cache
    async with account.running():
        inode = account.at("a")
        former = inode.revision
        cache.put(inode.ino, former, b"old")
        if edited:
            account.save("a", b"edited")
        account.rename("a", "b")
        moved = account.world.move

        def save(*request: Any) -> Node:
            other.write("a", saved)
            return moved(*request)

        monkeypatch.setattr(account.world, "move", save)
        await move(account, inode)
        assert inode.remote_name == "b"
        if edited:
            assert account.intent(inode).base == former
            return
        await account.list()
        assert inode.revision == (await account.entry(inode)).revision != former
        size = len(saved)
        with closing(cache.open(inode.ino, inode.revision, size, state.source(inode))) as reader:
            assert bytes(await reader.read(0, size)) == saved


async def test_a_move_of_a_file_with_a_newer_version(account: Account) -> None:
    """The edit is still based on the former version: the upload finds the conflict."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        former = inode.revision
        account.save("a", b"edited")
        account.bob.write("a", b"by bob")
        account.rename("a", "b")
        await move(account, inode)
        assert account.intent(inode).base == former
        assert account.left() == {"Zone/b": "SAVED"}


@pytest.mark.parametrize("kind", ["taken", "own", "gone", "gone and edited", "gone folder"])
@pytest.mark.parametrize("changed", [False, True])
async def test_a_move_that_fails(account: Account, kind: str, changed: bool) -> None:
    """A taken name makes a conflict copy; a deleted entry is gone, except for a local edit."""
    account.bob.write("a", b"old")
    account.bob.make_folder("f")
    async with account.running():
        inode = account.at("f" if kind == "gone folder" else "a")
        if kind == "gone and edited":
            account.save("a", b"edited")
        account.rename(inode.name, "b")
        ino, path = inode.ino, f"Zone/{'c' if changed else 'b'}"
        match kind:
            case "taken":
                account.bob.write("b", b"by bob")
            case "own":
                account.alice.move("a", "b")
                account.world.fault(status=409, error="ALREADY_EXISTS", method="PUT", times=1)
            case _:
                account.bob.delete(inode.remote_name or "")
        if changed:
            request = {"taken": LISTING, "own": LISTING, "gone folder": MOVE}.get(kind, ENTRY)
            account.meanwhile(request, lambda: account.rename("b", "c"))
        with stale(changed):
            await move(account, inode)
        if changed:
            expected = "SAVED_MOVED" if kind == "gone and edited" else "MOVED"
            assert account.left() == {path: expected}
            assert not inode.is_new
            return
        match kind:
            case "taken":
                assert account.at("b").remote_id == account.bob.entry_id("b")
                assert inode.name.startswith("b (conflict")
                assert account.left() == {account.state.path(ino): "MOVED"}
            case "own":
                assert account.left() == {}
                assert inode.remote_name == "b"
            case "gone":
                assert account.state.inodes.find(ino) is None
                assert account.left() == {}
            case "gone and edited":
                assert inode.is_new
                assert account.left() == {path: "SAVED"}
            case _:
                assert (inode.remote_parent, inode.remote_name) == (account.bob.root_id, "b")
                assert account.left() == {}


@pytest.mark.parametrize("gone", ["target", "nothing", "entry"])
async def test_a_404_for_a_move(account: Account, gone: str) -> None:
    """The entry, its new folder or the endpoint is missing: each is another error."""
    account.bob.write("a", b"old")
    account.bob.make_folder("f")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "f/a")
        expected: type[ZonedriveError] | None = None
        match gone:
            case "target":
                account.bob.delete("f")
                expected = Changed
            case "nothing":
                account.world.fault(status=404, method="PUT", times=2)
            case _:
                account.bob.delete("a")
        if expected is not None:
            with pytest.raises(expected):
                await move(account, inode)
            assert account.left() == {"Zone/f/a": "MOVED"}
            return
        await move(account, inode)
        assert account.left() == {}
        if gone == "nothing":
            assert account.at("a") is inode
            assert len(refusals(account)) == 1


@pytest.mark.parametrize("situation", ["changed", "done", "in use", "other place"])
async def test_a_refused_move_is_taken_back(account: Account, situation: str) -> None:
    """The local name is the service's again, unless its former place is in use."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "b")
        deny(account, "PUT")
        match situation:
            case "changed":
                account.meanwhile(MOVE, lambda: account.rename("b", "c"))
            case "done":
                account.alice.move("a", "b")
            case "in use":
                account.save("a", b"new")
            case "other place":
                account.bob.move("a", "d")
        if situation == "in use":
            with pytest.raises(ZonedriveError):
                await move(account, inode)
            assert account.left() == {"Zone/b": "MOVED", "Zone/a": "SAVED"}
            return
        with stale(situation == "changed"):
            await move(account, inode)
        name = {"changed": "c", "done": "b", "other place": "d"}[situation]
        assert inode.name == name
        assert account.left() == ({"Zone/c": "MOVED"} if situation == "changed" else {})
        assert len(refusals(account)) == (situation == "other place")


async def test_a_refused_move_is_not_taken_back_into_a_file(account: Account) -> None:
    """The entry stays in a folder, although a hostile service names a file as its folder."""
    for name in ("a", "file"):
        account.bob.write(name, b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "b")
        deny(account, "PUT")
        moved, target = account.bob.node("a"), account.bob.node("file")
        assert moved is not None and target is not None
        moved.parent_id = target.id
        with pytest.raises(ZonedriveError):
            await move(account, inode)
        assert account.state.path(inode.ino) == "Zone/b"


async def test_a_refused_move_out_of_a_removed_folder_that_cannot_be_listed(
    account: Account,
) -> None:
    """The folder is not shown again, because nothing tells what is in it."""
    account.bob.make_folder("f")
    account.bob.make_folder("f/g")
    account.bob.write("f/g/a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        await account.folders.ensure(account.at("f/g"))
        inode = account.at("f/g/a")
        account.rename("f/g/a", "a")
        account.remove("f/g")
        account.remove("f")
        deny(account, "PUT")
        account.world.fault(status=500, method="GET", path="/folder/")
        with pytest.raises(ZonedriveError):
            await move(account, inode)
        assert account.state.path(inode.ino) == "Zone/a"
        assert account.left()["Zone/a"] == "MOVED"


@pytest.mark.parametrize("situation", ["plain", "folder moved", "gone", "changed"])
async def test_an_entry_steps_aside(account: Account, situation: str) -> None:
    """A file whose name another one needs gets a temporary one, in a folder that stays."""
    account.bob.make_folder("f")
    account.bob.write("f/a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        inode = account.at("f/a")
        intent = account.rename("f/a", "f/b")
        assert intent is not None
        match situation:
            case "folder moved":
                account.rename("f", "g")
            case "gone":
                account.bob.delete("f/a")
            case "changed":
                account.bob.delete("f/a")
                account.meanwhile(ENTRY, lambda: account.rename("f/b", "f/c"))
        with stale(situation == "changed"):
            await aside(account, inode)
        temporary = f".zonedrive-{inode.ino}-{intent.seq}"
        expected = {
            "plain": {"f", f"f/{temporary}"}, "folder moved": {"f", temporary},
        }  # fmt: skip
        assert tree(account) == expected.get(situation, {"f"})
        if situation in expected:
            assert inode.remote_name == temporary
            above = account.bob.root_id if situation == "folder moved" else "f"
            assert inode.remote_parent == (
                above if situation == "folder moved" else account.bob.entry_id("f")
            )
        found = account.left()
        assert found.pop("Zone/g", "MOVED") == "MOVED"
        places = {"gone": {}, "changed": {"Zone/f/c": "MOVED"}}
        name = "Zone/g/b" if situation == "folder moved" else "Zone/f/b"
        assert found == places.get(situation, {name: "MOVED"})
        assert account.state.requests.all() == []


async def test_an_entry_steps_aside_although_another_machine_uses_its_temporary_name(
    account: Account,
) -> None:
    """The other machine may be off for long; the entry gets another temporary name."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        intent = account.rename("a", "b")
        assert intent is not None
        taken = f".zonedrive-{inode.ino}-{intent.seq}"
        account.bob.write(taken, b"of another machine")
        await aside(account, inode)
        (temporary,) = tree(account) - {taken}
        assert is_aside(temporary)
        assert inode.remote_name == temporary
        await move(account, inode)
        assert tree(account) == {taken, "b"}
        assert account.left() == {}


# ---- removals ----


def nothing(_: Account) -> None:
    """Change nothing on the service."""


def newer(account: Account) -> None:
    account.bob.write("a", b"by bob")


def by_alice(account: Account) -> None:
    """Add a version of the same size from this user's other machine."""
    account.alice.write("a", b"OLD")


def longer_by_alice(account: Account) -> None:
    account.alice.write("a", b"from another machine")


def gone(account: Account) -> None:
    account.bob.delete("a")


def denied(account: Account) -> None:
    deny(account, "DELETE")


def denied_but_gone(account: Account) -> None:
    account.bob.delete("a")
    account.world.fault(status=403, method="DELETE", path="^/api/sandbox/")


def missing_endpoint(account: Account) -> None:
    account.world.fault(status=404, method="DELETE", times=1)


@pytest.mark.parametrize(
    ("happened", "stays", "refused"),
    [
        (nothing, False, False), (newer, True, False), (by_alice, True, False),
        (longer_by_alice, True, False), (gone, False, False), (denied, True, True),
        (denied_but_gone, False, False), (missing_endpoint, True, True),
    ],
)  # fmt: skip
async def test_a_removal(
    account: Account, happened: Callable[[Account], None], stays: bool, refused: bool
) -> None:
    """Only the version that was known here is deleted; what stays is shown again."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.remove("a")
        inode = account.state.inodes.get(inode.ino)
        happened(account)
        await delete(account, inode)
        assert account.left() == {}
        assert account.state.inodes.find(inode.ino) is None
        account.world.heal()
        assert tree(account) == ({"a"} if stays else set())
        assert len(refusals(account)) == refused
        await account.folders.ensure(account.zone)
        assert account.names_in() == ({"a"} if stays else set())


async def test_a_replaced_file_gets_a_version_just_before_its_removal(account: Account) -> None:
    """The entry of the file that has replaced it is asked for first, which may take long."""
    for name in ("a", "b"):
        account.bob.write(name, b"old")
    async with account.running():
        replaced, other = account.at("a"), account.at("b")
        account.rename("b", "a")
        account.meanwhile(f"GET .*/files/{other.remote_id}$", lambda: newer(account))
        await delete(account, account.state.inodes.get(replaced.ino))
        assert account.bob.read("a") == b"by bob"


def unreadable(account: Account) -> None:
    account.world.fault(status=403, path="/content$")


@pytest.mark.parametrize(
    ("happened", "stays", "copied"),
    [
        (nothing, False, True), (newer, True, False), (gone, False, False),
        (unreadable, False, False),
    ],
)  # fmt: skip
async def test_a_removal_of_a_file_in_use(
    account: Account, happened: Callable[[Account], None], stays: bool, copied: bool
) -> None:
    """The removed version stays readable until the close, if it could be read before."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        opened = state.new_open_file(inode)
        state.inodes.remember(inode.ino)
        account.remove("a")
        happened(account)
        await delete(account, inode)
        assert account.left() == {}
        account.world.heal()
        assert tree(account) == ({"a"} if stays else set())
        assert isinstance(opened.content, int) == copied
        if copied:
            file = state.spool.open(inode.ino, inode.generation)
            assert file.pread(0, 9) == b"old"
            file.close()
        del state.opened[inode.ino]
        state.release_if_unreferenced(inode)
        assert state.spool.stored() == []


@pytest.mark.parametrize("failures", ["other", "outages"])
async def test_a_removal_of_a_file_in_use_that_is_fetched_after_some_attempts(
    account: Account, failures: str
) -> None:
    """Failures of other requests and outages do not make its readers fail."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        opened = state.new_open_file(inode)
        account.remove("a")
        for _ in range(COMPARISONS + 1):
            if failures == "outages":
                account.world.fault(status=500)
                with pytest.raises(Unavailable):
                    await delete(account, inode)
                account.world.heal()
            state.intents.postpone(account.intent(inode), 0, "", Cause.SERVICE)
        account.world.fault(status=503, path="/content$")
        for _ in range(COMPARISONS):
            with pytest.raises(Unavailable):
                await delete(account, inode)
        account.world.heal()
        await delete(account, inode)
        assert tree(account) == set()
        assert isinstance(opened.content, int)


async def test_a_removal_of_a_file_in_use_that_can_never_be_fetched(account: Account) -> None:
    """After some attempts, the entry is deleted."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        opened = state.new_open_file(inode)
        account.remove("a")
        account.world.fault(status=503, path="/content$")
        for _ in range(COMPARISONS):
            with pytest.raises(Unavailable):
                await delete(account, inode)
        await delete(account, inode)
        assert tree(account) == set()
        assert not isinstance(opened.content, int)


async def test_a_removal_of_a_file_in_use_that_cannot_be_fetched_now(account: Account) -> None:
    """The entry stays until the content is here, or until the close."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        state.new_open_file(inode)
        account.remove("a")
        account.world.fault(status=503, path="/content$")
        with pytest.raises(Unavailable):
            await delete(account, inode)
        assert tree(account) == {"a"}
        assert account.left() == {"-Zone/a": "REMOVED_IN_USE"}
        del state.opened[inode.ino]
        await delete(account, inode)
        assert tree(account) == set()


@pytest.mark.parametrize("request_", [ENTRY, LISTING])
async def test_a_removal_that_another_file_takes_over(account: Account, request_: str) -> None:
    """A file that was saved at its place meanwhile becomes its next version."""
    account.bob.write("a", b"old")
    account.bob.make_folder("f")
    async with account.running():
        name = "a" if request_ == ENTRY else "f"
        await account.folders.ensure(account.at("f"))
        inode = account.at(name)
        account.remove(name)
        state = account.state

        def change() -> None:
            with state.transaction():
                state.intents.drop(inode.ino)

        account.meanwhile(request_, change)
        removed = state.inodes.get(inode.ino)
        with stale():
            await account.names.delete(account.intent(removed), removed)
        assert tree(account) == {"a", "f"}


async def handed_over(account: Account, inode: Inode, request: str) -> set[str]:
    """Remove `inode`, whose entry a new file takes over during a request; return what is left."""
    state, new = account.state, account.save("new", b"new")
    removed, added = state.inodes.get(inode.ino), state.inodes.get(new.ino)

    def take_over() -> None:
        remote_binding.hand_over(state, removed, account.intent(removed), added, removed.revision)

    account.meanwhile(request, take_over)
    with stale():
        await delete(account, removed)
    assert state.inodes.find(added.ino) is added
    assert refusals(account) == []
    return tree(account)


@pytest.mark.parametrize("is_newer", [False, True])
async def test_an_entry_that_another_file_takes_over_is_not_renamed(
    account: Account, is_newer: bool
) -> None:
    """The entry keeps its temporary name until the next step, which is planned for the new file.

    A coworker's version of the removed file does not matter any more.
    """
    account.bob.write("a", b"old")
    async with account.running():
        inode = await removed_aside(account)
        former = inode.remote_name or ""
        if is_newer:
            account.bob.write(former, b"by bob")
        assert await handed_over(account, inode, ENTRY) == {former}


@pytest.mark.parametrize("is_newer", [False, True])
async def test_an_entry_that_another_file_takes_over_is_neither_deleted_nor_shown_again(
    account: Account, is_newer: bool
) -> None:
    """The new file takes over while the entry gets its regular name again."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = await removed_aside(account)
        if is_newer:
            account.bob.write(inode.remote_name or "", b"by bob")
        (name,) = await handed_over(account, inode, MOVE)
        assert account.at("new").remote_id == account.bob.entry_id(name)


def new_file(account: Account) -> None:
    account.bob.write("f/new", b"")


def new_version(account: Account) -> None:
    account.bob.write("f/a", b"by bob")


def inner_new_file(account: Account) -> None:
    account.bob.write("f/g/new", b"")


def inner_new_version(account: Account) -> None:
    account.bob.write("f/g/b", b"by bob")


def inner_by_alice(account: Account) -> None:
    account.alice.write("f/g/b", b"OLD")


def inner_longer_by_alice(account: Account) -> None:
    account.alice.write("f/g/b", b"from another machine")


def deep_new_file(account: Account) -> None:
    """Add a file to a folder that was never listed here."""
    account.bob.write("f/g/h/new", b"")


def moved_in(account: Account) -> None:
    account.bob.write("x", b"")
    account.bob.move("x", "f/x")


def inner_is_gone(account: Account) -> None:
    account.bob.delete("f/g")


def all_is_gone(account: Account) -> None:
    account.bob.delete("f")


@pytest.mark.parametrize(
    ("happened", "stays"),
    [
        (nothing, False), (new_file, True), (new_version, True), (inner_new_file, True),
        (inner_new_version, True), (inner_by_alice, True), (inner_longer_by_alice, True),
        (deep_new_file, False), (moved_in, True), (inner_is_gone, False), (all_is_gone, False),
    ],
)  # fmt: skip
async def test_a_removal_of_a_whole_folder(
    account: Account, happened: Callable[[Account], None], stays: bool
) -> None:
    """Entries that were unknown here when the folder was removed are not deleted with it."""
    for folder in ("f", "f/g", "f/g/h"):
        account.bob.make_folder(folder)
    for file in ("f/a", "f/g/b"):
        account.bob.write(file, b"old")
    async with account.running():
        for path in ("f", "f/g"):
            await account.folders.ensure(account.at(path))
        inode, inner = account.at("f"), account.at("f/g/b")
        local_operations.remove_whole(account.state, inode)
        happened(account)
        before = tree(account)
        await delete(account, account.state.inodes.get(inode.ino))
        assert tree(account) == (before if stays else before - {
            path for path in before if path.startswith("f")
        })  # fmt: skip
        assert account.left() == {}
        assert account.state.inodes.is_here(account.state.inodes.find(inode.ino)) == stays
        if not stays:
            assert account.state.inodes.find(inner.ino) is None
            assert not account.state.inodes.rows.has_unreachable()


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize(
    ("happened", "stays"), [(nothing, False), (new_file, True), (all_is_gone, False)]
)
async def test_files_in_use_in_a_whole_folder(
    account: Account, happened: Callable[[Account], None], stays: bool, is_copied: bool
) -> None:
    """They stay readable until the close; if the folder stays, as the service has them."""
    for path in ("f", "f/g"):
        account.bob.make_folder(path)
    for path in ("f/a", "f/g/b", "f/g/closed"):
        account.bob.write(path, b"old")
    async with account.running():
        for path in ("f", "f/g"):
            await account.folders.ensure(account.at(path))
        state, folder = account.state, account.at("f")
        inodes = [account.at(path) for path in ("f/a", "f/g/b")]
        if is_copied:
            for inode in (*inodes, account.at("f/g/closed")):
                await materialize(state, account.service, inode)
        opened = [state.new_open_file(inode) for inode in inodes]
        local_operations.remove_whole(state, folder)
        happened(account)
        await delete(account, folder)
        assert tree(account) == (
            {"f", "f/a", "f/g", "f/g/b", "f/g/closed", "f/new"} if stays else set()
        )
        copied = not stays and (is_copied or happened is nothing)
        assert [isinstance(each.content, int) for each in opened] == [copied, copied]
        for inode in inodes if copied else ():
            file = state.spool.open(inode.ino, inode.generation)
            assert file.pread(0, 9) == b"old"
            file.close()
        for inode in inodes:
            del state.opened[inode.ino]
            state.release_if_unreferenced(inode)
        if stays:
            for path in ("", "f", "f/g"):
                await account.list(path)
            assert {account.bytes_of(path) for path in ("f/a", "f/g/b", "f/g/closed")} == {None}
        assert state.spool.stored() == []


async def test_a_folder_with_a_change_in_it_is_not_deleted(account: Account) -> None:
    """A deletion would lose the change."""
    account.bob.make_folder("f")
    account.bob.write("f/a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        inode = account.at("f")
        account.save("f/a", b"edited")
        local_operations.remove_whole(account.state, inode)
        await delete(account, account.state.inodes.get(inode.ino))
        assert tree(account) == {"f", "f/a"}


async def removed_aside(account: Account) -> Inode:
    """Rename the file `a` to `b`, remove it while it has a temporary name, and return it."""
    inode = account.at("a")
    account.rename("a", "b")
    await aside(account, inode)
    local_operations.remove(account.state, inode)
    return account.state.inodes.get(inode.ino)


@pytest.mark.parametrize("kind", ["file", "folder", "new folder"])
async def test_a_name_that_a_coworker_gave_to_an_edited_file(account: Account, kind: str) -> None:
    """The edit does not free the name, so the entry does not wait for it and becomes a copy."""
    account.bob.write("g", b"old")
    if kind == "file":
        account.bob.write("x", b"other")
    elif kind == "folder":
        account.bob.make_folder("x")
    async with account.running():
        account.save("g", b"edited")
        edited = account.at("g")
        if kind == "new folder":
            account.make("f")
        else:
            account.rename("x", "f")
        inode = account.at("f")
        account.bob.move("g", "f")
        step = account.names.make if kind == "new folder" else account.names.move
        with contextlib.suppress(Changed):  # the place of the edited file is known afterwards
            await step(account.intent(inode), inode)
        await account.list()
        if not inode.name.startswith("f (conflict"):
            await step(account.intent(inode), inode)
        assert inode.name.startswith("f (conflict")
        assert account.at("f") is edited


async def test_a_removal_whose_rename_counts_as_a_change_is_tried_again(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of the time is not taken for a coworker's version."""
    account.bob.write("a", b"old")
    async with account.running():
        count_moves_as_changes(account, monkeypatch)
        inode = await removed_aside(account)
        account.world.fault(status=503, error="NOT_AVAILABLE", method="DELETE", times=1)
        with pytest.raises(Unavailable):
            await delete(account, inode)
        await delete(account, inode)
        assert tree(account) == set()


@pytest.mark.parametrize("taken", [0, 1, 2])
async def test_a_removed_file_that_stays_gets_a_regular_name_again(
    account: Account, taken: int
) -> None:
    """If its name is taken, the file gets the name of a conflict copy, and is listed as one."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = await removed_aside(account)
        path = inode.remote_name or ""
        account.bob.write(path, b"by bob")
        if taken:
            account.bob.write("b", b"another")
        if taken == 2:
            account.world.fault(status=409, error="ALREADY_EXISTS", method="PUT", times=2)
            with pytest.raises(AlreadyExists):
                await delete(account, inode)
            assert path in tree(account)
            return
        await delete(account, inode)
        (name,) = tree(account) - ({"b"} if taken else set())
        assert name.startswith("b (conflict") if taken else name == "b"
        assert account.bob.read(name) == b"by bob"
        assert account.state.requests.all() == []
        assert inode.parent == NOWHERE
        listed = [(one["path"], one["by"]) for one in Status(account.state).conflicts()]
        assert listed == ([(f"Zone/{name}", account.bob.user)] if taken else [])


async def test_a_removed_file_that_stays_is_listed_after_an_interruption(account: Account) -> None:
    """A client that died after the service gave the name of a copy lists the copy later."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = await removed_aside(account)
        account.bob.write(inode.remote_name or "", b"by bob")
        account.bob.write("b", b"another")
        await account.names._name_again(inode)
        await delete(account, inode)
        (name,) = tree(account) - {"b"}
        listed = [(one["path"], one["by"]) for one in Status(account.state).conflicts()]
        assert listed == [(f"Zone/{name}", account.bob.user)]


async def test_a_removed_file_that_was_renamed_before_is_no_copy(account: Account) -> None:
    """A removed file that stays on the service under its former name is not listed."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "b")
        local_operations.remove(account.state, inode)
        account.bob.write("a", b"by bob")
        await delete(account, account.state.inodes.get(inode.ino))
        assert tree(account) == {"a"}
        assert Status(account.state).conflicts() == []


async def test_a_regular_name_that_a_new_file_gets_at_the_same_time(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removed file is renamed after the other file's upload, which has begun in between."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = await removed_aside(account)
        account.bob.write(inode.remote_name or "", b"by bob")
        new, folder, sent = account.save("b", b"new"), account.zone.remote_id or "", trio.Event()
        request = PendingRequest(new.ino, new.ino, 0, 0, inode.zone, folder, "b", None)
        found, asked = account.service.entry, list[str]()

        async def upload(task_status: trio.TaskStatus[None]) -> None:
            with account.reconciler.sending(request):
                task_status.started()
                await sent.wait()

        async def entry(zone: str, remote_id: str) -> Entry:
            asked.append(remote_id)
            if len(asked) == 1:  # then the removed file gets its name again
                await nursery.start(upload)
            return await found(zone, remote_id)

        monkeypatch.setattr(account.service, "entry", entry)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete, account, inode)
            await trio.testing.wait_all_tasks_blocked()
            assert "b" not in tree(account)
            sent.set()
        assert tree(account) == {"b"}
