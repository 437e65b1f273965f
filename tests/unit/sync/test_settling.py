"""Requests without an answer: the service's state decides what is still sent."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from tests.harness.in_process import ALICE
from tests.unit.sync.account import Account, stale
from zonedrive.model import Entry
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.status import Status


def nothing(_: Account) -> None:
    """Change nothing: the request had no effect."""


def arrived(account: Account) -> None:
    account.alice.write("a", b"alice")


def by_bob(account: Account) -> None:
    account.bob.write("a", b"alice")


def same_size(account: Account) -> None:
    account.alice.write("a", b"ALICE")


def longer(account: Account) -> None:
    account.alice.write("a", b"alice, from another machine")


def below(account: Account) -> None:
    account.alice.write("a", b"alice")
    account.bob.write("a", b"and bob")


def edited_since(account: Account) -> None:
    below(account)
    account.save("a", b"newer")


def arrived_and_edited(account: Account) -> None:
    account.alice.write("a", b"alice")
    account.save("a", b"newer")


def deleted(account: Account) -> None:
    account.bob.delete("a")


@pytest.mark.parametrize(
    ("happened", "settled", "left", "shown", "follows"),
    [
        (nothing, False, "SAVED", b"alice", False),
        (arrived, True, "", None, True),
        (by_bob, False, "SAVED", b"alice", False),
        (same_size, False, "SAVED", b"alice", False),
        (longer, False, "SAVED", b"alice", False),
        (below, False, "SAVED", b"alice", False),  # found by the conflict check, see `was_sent`
        (edited_since, False, "SAVED", b"newer", False),
        (arrived_and_edited, True, "SAVED", b"newer", True),
        (deleted, False, "SAVED", b"alice", False),
    ],
)
async def test_a_version_without_an_answer(
    account: Account, happened: Callable[[Account], None], settled: bool, left: str,
    shown: bytes | None, follows: bool,
) -> None:  # fmt: skip
    """Only a version with these bytes and this user as its author is the one that was sent."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        former = inode.revision
        account.save("a", b"alice")
        account.ask(inode)
        happened(account)
        assert await account.reconciler.settle(inode.ino) == settled
        assert state.requests.all() == []
        assert account.left() == ({"Zone/a": left} if left else {})
        assert account.bytes_of("a") == shown
        intent = state.intents.get(inode.ino)
        known = inode.revision if intent is None else intent.base
        assert known == ((await account.entry(inode)).revision if follows else former)
        kept = {(inode.ino, inode.generation)} if inode.generation else set()
        assert set(state.spool.stored()) == kept
        assert not await account.reconciler.settle(inode.ino)


def moved(account: Account) -> None:
    """Rename the file as Bob; the upload makes a new file with the former name."""
    account.bob.move("a", "b")
    account.alice.write("a", b"alice")


def replaced(account: Account) -> None:
    """Rename the file as Bob and give its name to another file, which gets the version."""
    account.bob.move("a", "b")
    account.bob.move("other", "a")
    account.alice.write("a", b"alice")


def deleted_and_made(account: Account) -> None:
    account.bob.delete("a")
    account.alice.write("a", b"alice")


def made_by_bob(account: Account) -> None:
    account.bob.delete("a")
    account.bob.write("a", b"alice")


def made_with_other_bytes(account: Account) -> None:
    account.bob.move("a", "b")
    account.alice.write("a", b"ALICE")


def made_as_folder(account: Account) -> None:
    account.bob.move("a", "b")
    account.alice.make_folder("a")


def under_other_names(account: Account) -> None:
    account.bob.move("a", "b")
    for name in ("A", "c"):
        account.alice.write(name, b"alice")


@pytest.mark.parametrize(
    ("happened", "arrived", "names", "conflicts"),
    [
        (moved, True, {"a": None, "b": None, "other": None}, [("Zone/a", "Zone/b")]),
        (replaced, True, {"a": None, "b": None}, [("Zone/a", "Zone/b")]),
        (deleted_and_made, True, {"a": None, "other": None}, [("Zone/a", "Zone/a")]),
        (made_by_bob, False, {"a": b"alice", "other": None}, []),
        (made_with_other_bytes, False, {"a": b"alice", "other": None}, []),
        (made_as_folder, False, {"a": b"alice", "other": None}, []),
        (under_other_names, False, {"a": b"alice", "other": None}, []),
    ],
)
async def test_a_version_that_went_to_another_file(
    account: Account, happened: Callable[[Account], None], arrived: bool,
    names: dict[str, bytes | None], conflicts: list[tuple[str, str]],
) -> None:  # fmt: skip
    """Uploads go by name: the version is not sent again, and the user is told where it is."""
    account.bob.write("other", b"other")
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        account.save("a", b"alice")
        account.ask(inode)
        happened(account)
        assert await account.reconciler.settle(inode.ino) == arrived
        assert state.requests.all() == []
        assert {name: account.bytes_of(name) for name in account.names_in()} == names
        assert account.left() == ({} if arrived else {"Zone/a": "SAVED"})
        found = Status(state).conflicts()
        assert [(one["path"], one["original"]) for one in found] == conflicts
        if happened is deleted_and_made:
            assert inode.remote_id == account.bob.entry_id("a")


def make_twin(account: Account) -> None:
    account.alice.write("a", b"alice")
    account.world.plant(account.bob.id, "a", b"alice", user=account.bob.user)


def make_folder(account: Account) -> None:
    account.alice.make_folder("a")


def removed_here(account: Account) -> None:
    account.remove("a")


def arrived_and_removed_here(account: Account) -> None:
    account.alice.write("a", b"alice")
    account.remove("a")


def removed_here_but_bobs(account: Account) -> None:
    account.bob.write("a", b"alice")
    account.remove("a")


@pytest.mark.parametrize(
    ("happened", "settled", "left", "is_known"),
    [
        (nothing, True, {"Zone/a": "SAVED"}, False),
        (arrived, True, {}, True),
        (by_bob, True, {"Zone/a": "SAVED"}, False),
        (same_size, True, {"Zone/a": "SAVED"}, False),
        (longer, True, {"Zone/a": "SAVED"}, False),
        (make_twin, True, {"Zone/a": "SAVED"}, False),
        (make_folder, True, {"Zone/a": "SAVED"}, False),
        (arrived_and_edited, True, {"Zone/a": "SAVED"}, True),
        (removed_here, True, {}, False),
        (arrived_and_removed_here, True, {"-Zone/a": "REMOVED"}, True),
        (removed_here_but_bobs, True, {}, False),
    ],
)
async def test_a_new_file_without_an_answer(
    account: Account, happened: Callable[[Account], None], settled: bool, left: dict[str, str],
    is_known: bool,
) -> None:  # fmt: skip
    """A file of the same name is another one, unless it has these bytes and this author."""
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        account.ask(inode)
        happened(account)
        assert await account.reconciler.settle(inode.ino) == settled
        assert account.state.requests.all() == []
        assert account.left() == left
        found = account.state.inodes.find(inode.ino)
        assert (found is None) == (not left and not is_known)
        known = None if found is None else found.remote_id
        assert known == (account.bob.entry_id("a") if is_known else None)
        saved = [one for one in account.state.intents.all() if not one.gone]
        assert account.state.spool.stored() == [(one.ino, one.generation) for one in saved]


@pytest.mark.parametrize("name", ["0", "b"])
async def test_a_file_of_another_name_is_not_taken_for_a_sent_one(
    account: Account, name: str
) -> None:
    """Another machine of the user has saved the sent bytes in another file, a known one."""
    account.alice.write(name, b"former")
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        account.ask(inode)
        account.alice.write(name, b"alice")
        assert await account.reconciler.settle(inode.ino)
        assert account.left() == {"Zone/a": "SAVED"}
        assert inode.is_new
        assert account.at(name).remote_id == account.bob.entry_id(name)


async def test_the_name_of_the_user_does_not_depend_on_case(account: Account) -> None:
    """A user may log on as Alice at a service that calls her alice."""
    account.state.user = ALICE.replace("alice", "Alice")
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        account.ask(inode)
        arrived(account)
        assert await account.reconciler.settle(inode.ino)
        assert account.left() == {}
        assert inode.remote_id == account.bob.entry_id("a")


async def test_a_file_in_use_is_not_taken_for_a_sent_one(account: Account) -> None:
    """A listing arrived before the answer, and a program has saved the listed file."""
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        account.ask(inode)
        account.alice.write("a", b"alice")
        there = account.bob.entry_id("a")
        with account.state.transaction():
            account.state.inodes.add(
                account.zone.ino, "other", Kind.FILE, zone=inode.zone, remote_id=there,
                generation=5,
            )  # fmt: skip
        assert await account.reconciler.settle(inode.ino)
        assert inode.is_new
        assert account.left() == {"Zone/a": "SAVED"}
        assert account.at("other").remote_id == there


@pytest.mark.parametrize("happened", ["made", "nothing", "by bob", "file"])
async def test_a_folder_without_an_answer(account: Account, happened: str) -> None:
    """Only a folder of this user is the one that was asked for."""
    async with account.running():
        account.make("f")
        inode = account.at("f")
        account.ask(inode)
        match happened:
            case "made":
                account.alice.make_folder("f")
            case "by bob":
                account.bob.make_folder("f")
            case "file":
                account.alice.write("f", b"")
        assert await account.reconciler.settle(inode.ino)
        assert inode.is_new == (happened != "made")
        assert account.left() == ({} if happened == "made" else {"Zone/f": "MOVED"})
        assert account.state.requests.all() == []


@pytest.mark.parametrize("happened", ["moved", "nothing", "deleted", "elsewhere", "renamed here"])
async def test_a_move_without_an_answer(account: Account, happened: str) -> None:
    """The place on the service decides whether the move is sent again."""
    account.bob.write("a", b"old")
    async with account.running():
        account.rename("a", "b")
        inode = account.at("b")
        zone = account.zone.remote_id or ""
        request = PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, zone, "b", inode.remote_id)
        account.state.record_request(request)
        match happened:
            case "moved" | "renamed here":
                account.alice.move("a", "b")
            case "deleted":
                account.bob.delete("a")
            case "elsewhere":
                account.bob.move("a", "c")
        if happened == "renamed here":
            account.rename("b", "d")
        assert await account.reconciler.settle(inode.ino)
        assert account.state.requests.all() == []
        place = {"moved": "b", "renamed here": "b", "elsewhere": "c"}.get(happened, "a")
        assert inode.remote_name == place
        name = "d" if happened == "renamed here" else "b"
        assert account.left() == ({} if happened == "moved" else {f"Zone/{name}": "MOVED"})


def lose_bytes(account: Account, lost: str = "spool") -> Inode:
    """Save a file, ask the service without an answer, and destroy the sent bytes."""
    account.save("a", b"alice")
    inode = account.at("a")
    request = account.ask(inode)
    path = account.state.spool.path(inode.ino, request.generation)
    if lost == "spool":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    account.state.spool._open.clear()
    return inode


@pytest.mark.parametrize("lost", ["spool", "damaged"])
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize(
    ("happened", "is_found"),
    [(arrived, True), (nothing, False), (longer, False), (by_bob, False), (removed_here, False)],
)
async def test_a_request_without_its_bytes(
    account: Account, lost: str, is_new: bool, happened: Callable[[Account], None], is_found: bool
) -> None:
    """A file that a power cut destroyed here is not lost if the service received it before.

    Otherwise, the user would have to save or delete a file that is intact on the service.
    """
    if not is_new:
        account.bob.write("a", b"old")
    async with account.running():
        inode = lose_bytes(account, lost)
        happened(account)
        await account.reconciler.settle(inode.ino)
        assert account.state.requests.all() == []
        assert ("Zone/a" not in account.left()) == (is_found or happened is removed_here)
        if is_found:
            assert inode.remote_id == account.bob.entry_id("a")
            assert inode.revision == (await account.entry(inode)).revision


@pytest.mark.parametrize(
    ("is_new", "untold"), [(False, {"modified_ns": 0, "revision": "0|5|alice"}),
                           (True, {"modified_by": ""})],
)  # fmt: skip
async def test_a_request_without_its_bytes_at_a_service_without_times_or_authors(
    account: Account, monkeypatch: pytest.MonkeyPatch, is_new: bool, untold: dict[str, object]
) -> None:
    """The version may be the base, or a coworker's: the lost bytes stay reported."""
    look, listing = account.service.entry, account.service.listing

    async def entry(zone: str, file_id: str) -> Entry:
        return msgspec.structs.replace(await look(zone, file_id), **untold)

    async def entries(zone: str, folder: str) -> list[Entry]:
        return [msgspec.structs.replace(each, **untold) for each in await listing(zone, folder)]

    if not is_new:
        account.alice.write("a", b"older")
    async with account.running():
        inode = lose_bytes(account)
        if is_new:
            account.bob.write("a", b"bobby")
        else:
            with account.state.transaction():
                account.state.inodes.update(inode, revision=untold["revision"])
        monkeypatch.setattr(account.service, "entry", entry)
        monkeypatch.setattr(account.service, "listing", entries)
        await account.reconciler.settle(inode.ino)
        assert account.left() == {"Zone/a": "SAVED"}


@pytest.mark.parametrize("happened", [arrived_and_edited, arrived_and_removed_here])
async def test_a_request_without_its_bytes_for_a_file_that_changed_since(
    account: Account, happened: Callable[[Account], None]
) -> None:
    """A newer edit, or a removal, must not concern a version that may be another machine's."""
    async with account.running():
        inode = lose_bytes(account)
        happened(account)
        await account.reconciler.settle(inode.ino)
        assert account.state.requests.all() == []
        found = account.state.inodes.find(inode.ino)
        assert found is None or found.remote_id is None
        assert [*account.bob.listing("")] == ["a"]


ENTRY = r"GET /api/zones/\w+/files/\w+$"
LISTING = r"GET .*/folder/"


@pytest.mark.parametrize("new", [True, False])
async def test_an_answer_that_came_while_the_service_was_asked(account: Account, new: bool) -> None:
    """The request has ended: nothing is recorded twice, and the step is planned again."""
    if not new:
        account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        request = account.ask(inode)
        account.alice.write("a", b"alice")
        account.meanwhile(LISTING if new else ENTRY, lambda: account.state.resolved(request))
        with stale():
            await account.reconciler.settle(inode.ino)
        assert account.left() == {"Zone/a": "SAVED"}
        assert inode.is_new == new


async def test_a_request_that_is_still_running_is_waited_for(account: Account) -> None:
    """The answer may still come."""
    async with account.running():
        account.save("a", b"alice")
        inode, results = account.at("a"), list[bool]()
        request = account.ask(inode)

        async def settle() -> None:
            with stale():
                await account.reconciler.settle(inode.ino)
            results.append(True)

        async with trio.open_nursery() as nursery:
            with account.reconciler.sending(request):
                nursery.start_soon(settle)
                await trio.testing.wait_all_tasks_blocked()
                assert results == []
                account.state.resolved(request)
        assert results == [True]
        assert [each for each in account.world.requests if "/files/" in each] == []


@pytest.mark.parametrize("profile", ["sandbox", "published"])
async def test_a_version_in_a_folder_that_was_deleted(tmp_path: Path, profile: str) -> None:
    """The upload decides about the edit; some services have no history to look into."""
    account = Account(tmp_path, profile)
    account.bob.make_folder("f")
    account.bob.write("f/a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        account.save("f/a", b"alice")
        inode = account.at("f/a")
        account.ask(inode)
        account.bob.delete("f")
        assert not await account.reconciler.settle(inode.ino)
        assert account.left() == {"Zone/f/a": "SAVED"}


@pytest.mark.parametrize("found", ["same file", "another file", "ended", "ended meanwhile"])
async def test_an_answer_that_names_another_entry(account: Account, found: str) -> None:
    """The file is looked up by its own id before the answer is accepted."""
    account.bob.write("a", b"old")
    account.bob.write("other", b"other")
    async with account.running():
        inode = account.at("a")
        account.save("a", b"alice")
        request = account.ask(inode)
        if found == "another file":
            account.bob.move("a", "b")
        account.alice.write("a", b"alice")
        entries = await account.service.listing(inode.zone, account.bob.root_id)
        entry = next(each for each in entries if each.name == "a")
        if found != "another file":
            entry = msgspec.structs.replace(entry, id="another")
        if found == "ended":
            account.state.resolved(request)
        if found == "ended meanwhile":
            account.meanwhile(ENTRY, lambda: account.state.resolved(request))
        with stale(found == "ended meanwhile"):
            await account.reconciler.arrived(request, entry)
        ended = found.startswith("ended")
        assert account.left() == ({"Zone/a": "SAVED"} if ended else {})
        assert account.state.requests.all() == []
        assert inode.remote_id != "another"
        assert bool(Status(account.state).conflicts()) == (found == "another file")


async def test_an_answer_for_a_file_that_has_another_entry_by_now(account: Account) -> None:
    """Another file has taken over the entry: the request ends without an effect."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.save("a", b"alice")
        request = account.ask(inode)
        account.alice.write("a", b"alice")
        entry = await account.entry(inode)
        with account.state.transaction():
            account.state.inodes.update(inode, remote_id="another")
        await account.reconciler.arrived(request, entry)
        assert account.left() == {"Zone/a": "SAVED"}
        assert account.state.requests.all() == []


@pytest.mark.parametrize("situation", ["saved", "edited since", "removed", "folder"])
async def test_an_entry_that_another_inode_stands_for(account: Account, situation: str) -> None:
    """A listing was faster than the answer, and a program has used the listed file."""
    async with account.running():
        if situation == "folder":
            account.make("a")
            account.alice.make_folder("a")
        else:
            account.save("a", b"alice")
            account.alice.write("a", b"alice")
        inode = account.at("a")
        request = account.ask(inode)
        (entry,) = await account.service.listing(inode.zone, account.bob.root_id)
        with account.state.transaction():
            account.state.inodes.add(
                account.zone.ino, "other", Kind.FOLDER if situation == "folder" else Kind.FILE,
                zone=inode.zone, remote_id=entry.id, generation=5,
            )  # fmt: skip
        if situation == "edited since":
            account.save("a", b"newer")
        if situation == "removed":
            account.remove("a")
        await account.reconciler.arrived(request, entry)
        stays = situation in ("edited since", "folder")
        assert account.names_in() == ({"a", "other"} if stays else {"other"})
        assert bool(account.left()) == stays
        assert account.state.requests.all() == []
        assert bool(account.state.spool.stored()) == (situation == "edited since")


@pytest.mark.parametrize("profile", ["sandbox", "published"])
async def test_a_file_that_was_removed_during_its_upload(tmp_path: Path, profile: str) -> None:
    """The file is deleted on the service, if the profile can delete; otherwise it is shown again.

    No listing is needed to show it.
    """
    account = Account(tmp_path, profile)
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        request = account.ask(inode)
        account.remove("a")
        account.alice.write("a", b"alice")
        (entry,) = await account.service.listing(inode.zone, account.bob.root_id)
        await account.reconciler.arrived(request, entry)
        can = profile == "sandbox"
        assert account.left() == ({"-Zone/a": "REMOVED"} if can else {})
        assert (account.state.inodes.find(inode.ino) is not None) == can
        assert account.names_in() == (set() if can else {"a"})
        assert account.state.spool.stored() == []


@pytest.mark.parametrize("successor", ["file", "folder", "none"])
async def test_a_file_that_was_replaced_during_its_upload(tmp_path: Path, successor: str) -> None:
    """A new file at its place continues its history, if the profile cannot delete."""
    account = Account(tmp_path, "published")
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        request = account.ask(inode)
        account.remove("a")
        if successor == "file":
            account.save("a", b"newer")
        if successor == "folder":
            account.make("a")
        account.alice.write("a", b"alice")
        (entry,) = await account.service.listing(inode.zone, account.bob.root_id)
        await account.reconciler.arrived(request, entry)
        assert account.left() == {
            "file": {"-Zone/a": "REMOVED", "Zone/a": "SAVED"}, "folder": {"Zone/a": "MOVED"},
            "none": {},
        }[successor]  # fmt: skip
        assert (account.state.inodes.find(inode.ino) is None) == (successor != "file")


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_with_another_display_name_that_was_replaced_during_its_upload(
    tmp_path: Path, is_replaced: bool
) -> None:
    """The new file has the name that the folder shows, and continues the history."""
    account = Account(tmp_path, "published")
    account.bob.write("a\tb", b"bob")
    async with account.running():
        await account.list()
        account.save("a\u2409b", b"alice")
        inode = account.at("a\u2409b")
        request = account.ask(inode)
        assert request.name == "a\tb"
        account.remove("a\u2409b")
        if is_replaced:
            account.save("a\u2409b", b"newer")
        account.alice.write("a\tb", b"alice")
        (entry,) = await account.service.listing(inode.zone, account.bob.root_id)
        await account.reconciler.arrived(request, entry)
        assert (account.state.inodes.find(inode.ino) is not None) == is_replaced


@pytest.mark.parametrize("is_moved_here", [False, True])
async def test_a_new_file_whose_folder_a_coworker_has_moved(
    account: Account, is_moved_here: bool
) -> None:
    """The file stays in the moved folder, unless a program has moved it back to the former path.

    The service did not tell where the folder is when its former place was listed.
    """
    account.bob.make_folder("f")
    account.bob.make_folder("other")
    async with account.running():
        await account.list("f")
        await account.list("other")
        account.save("f/new", b"alice")
        account.save("f/second", b"second")
        inode = account.at("f/new")
        account.ask(inode)
        account.alice.write("f/new", b"alice")
        account.bob.move("f", "other/f")
        account.world.fault(status=403, method="GET", path="/files/")
        await account.list()
        account.world.heal()
        await account.list("other")
        if is_moved_here:
            account.rename("f/new", "new")
            account.rename("new", "f/new")
        await account.reconciler.settle(inode.ino)
        left = {"Zone/f/second": "SAVED"}
        if is_moved_here:
            left["Zone/f/new"] = "MOVED"
        assert account.left() == left
        await account.folders.ensure(account.at("other/f"))
        assert account.names_in("other/f") == (set() if is_moved_here else {"new"})
        assert account.names_in("f") == {"second"} | ({"new"} if is_moved_here else set())
