"""Uploads: the service's current version decides whether a version, a file or a copy is added."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.harness.counting import calls
from tests.unit.sync.account import Account, stale
from zonedrive.causes import Cause
from zonedrive.errors import (
    AmbiguousName,
    BadAnswer,
    Changed,
    Damaged,
    Forbidden,
    StoreError,
    ZonedriveError,
)
from zonedrive.model import Attributes, Version
from zonedrive.pins.pins import Pins
from zonedrive.snapshot import Stale
from zonedrive.state import local_operations
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.open_file import Session
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.pin_table import Pin, PinStore
from zonedrive.state.status import Status
from zonedrive.sync import directory_cache
from zonedrive.sync.reconcile import STAYS_THERE

BIG = b"alice" * 40_000
ENTRY = r"GET /api/zones/\w+/files/\w+$"
CONTENT = r"GET .*/content$"
LISTING = r"GET .*/folder/"
UPLOAD = r"POST /api/zones/"


async def send(account: Account, path: str) -> None:
    """Upload the local bytes of a file, after all listings have become old."""
    account.folders.forget()
    inode = account.at(path)
    await account.uploads.upload(account.intent(inode), inode)


def conflicts(account: Account) -> list[tuple[str, str, str]]:
    """Return copy, original and author of each conflict, with the copies' names cut."""
    return [
        (each["path"].partition(" (conflict")[0], each["original"], each["by"].partition("@")[0])
        for each in Status(account.state).conflicts()
    ]


def there(account: Account) -> dict[str, list[bytes]]:
    """Return the versions of each file on the service, with the names of copies cut."""
    return {
        path.partition(" (conflict")[0] + "~" * (" (conflict" in path): [
            version.data for version in account.world.nodes[account.bob.entry_id(path)].versions
        ]
        for path, data in account.bob.tree().items()
        if data is not None
    }


def nothing(_: Account) -> None:
    """Change nothing on the service."""


def same(account: Account) -> None:
    account.bob.write("a", b"alice")


def same_size(account: Account) -> None:
    account.bob.write("a", b"bobby")


def longer(account: Account) -> None:
    account.bob.write("a", b"by bob")


def deleted(account: Account) -> None:
    account.bob.delete("a")


def renamed(account: Account) -> None:
    account.bob.move("a", "b")


def moved(account: Account) -> None:
    account.bob.move("a", "docs/a")


def renamed_and_replaced(account: Account) -> None:
    account.bob.move("a", "b")
    account.bob.write("a", b"another")


A, OLD = [b"old", b"alice"], [b"old"]


@pytest.mark.parametrize(
    ("happened", "found", "left", "listed"),
    [
        (nothing, {"a": A}, {}, []),
        (same, {"a": A}, {}, []),
        (same_size, {"a": [b"old", b"bobby"]}, {"copy": "SAVED"}, [("Zone/a", "Zone/a", "bob")]),
        (longer, {"a": [b"old", b"by bob"]}, {"copy": "SAVED"}, [("Zone/a", "Zone/a", "bob")]),
        (deleted, {}, {"Zone/a": "SAVED"}, [("Zone/a", "Zone/a", "")]),
        (renamed, {"b": A}, {}, []),
        (moved, {"docs/a": A}, {}, []),
        (renamed_and_replaced, {"b": A, "a": [b"another"]}, {}, []),
    ],
)
async def test_an_edit(
    account: Account, happened: Callable[[Account], None], found: dict[str, list[bytes]],
    left: dict[str, str], listed: list[tuple[str, str, str]],
) -> None:  # fmt: skip
    """Only a version on top of the one that the edit began from is added to the file."""
    account.bob.make_folder("docs")
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        account.save("a", b"alice")
        happened(account)
        await send(account, "a")
        assert there(account) == found
        changes = account.left().items()
        assert {("copy" if "conflict" in path else path): what for path, what in changes} == left
        assert conflicts(account) == listed
        assert state.requests.all() == []
        if happened is deleted:
            assert inode.is_new
            return
        shown = account.at(next(iter(found))) if left else inode
        assert shown.revision == (await account.entry(shown)).revision
        assert shown.generation == 0
        assert state.path(shown.ino) == f"Zone/{next(iter(found))}"
        if left:  # the copy keeps the inode
            assert [one.ino for one in state.intents.all()] == [inode.ino]
            assert inode.size == 5
            assert state.spool.stored() == [(inode.ino, inode.generation)]
        else:
            assert state.spool.stored() == []
            assert state.cache.is_complete(inode.ino, inode.revision)


def same_folder(account: Account) -> None:
    account.bob.make_folder("a")


@pytest.mark.parametrize(
    ("happened", "found", "left", "listed"),
    [
        (nothing, {"a": [b"alice"]}, {}, []),
        (same, {"a": [b"alice"]}, {}, []),
        (same_size, {"a": [b"bobby"]}, {"copy": "SAVED"}, [("Zone/a", "Zone/a", "bob")]),
        (longer, {"a": [b"by bob"]}, {"copy": "SAVED"}, [("Zone/a", "Zone/a", "bob")]),
        (same_folder, {}, {"copy": "SAVED"}, [("Zone/a", "Zone/a", "bob")]),
    ],
)
async def test_a_new_file(
    account: Account, happened: Callable[[Account], None], found: dict[str, list[bytes]],
    left: dict[str, str], listed: list[tuple[str, str, str]],
) -> None:  # fmt: skip
    """A name that a coworker has taken is left to the coworker's entry."""
    async with account.running():
        account.save("a", b"alice")
        inode = account.at("a")
        happened(account)
        await send(account, "a")
        assert there(account) == found
        changes = account.left().items()
        assert {("copy" if "conflict" in path else path): what for path, what in changes} == left
        assert conflicts(account) == listed
        assert inode.is_new == bool(left)
        assert account.at("a").remote_id == account.bob.entry_id("a")
        assert account.bytes_of(inode.name) == (b"alice" if left else None)


@pytest.mark.parametrize(("due", "listings"), [(0, 0), (1 << 62, 1)], ids=["before", "after"])
async def test_the_listing_that_shows_if_a_name_is_free(
    account: Account, due: int, listings: int
) -> None:
    """One recent listing serves all new files, if it was requested after their change."""
    async with account.running():
        intent = account.save("a", b"alice")
        if due:
            account.state.intents.let_go(intent.ino, time.time_ns())
        count = len([each for each in account.world.requests if "/folder/" in each])
        inode = account.at("a")
        await account.uploads.upload(account.intent(inode), inode)
        count = len([each for each in account.world.requests if "/folder/" in each]) - count
        assert count == listings


async def test_the_names_of_a_large_folder_are_loaded_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs do not wait while an upload looks for its name among many."""
    account, now_ns = Account(tmp_path), time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)  # the listing of the folder is recent
    monkeypatch.setattr(directory_cache, "since_boot_ns", lambda: now_ns)
    async with account.running():
        inodes, zone = account.state.inodes, account.zone
        with account.state.transaction():
            inodes.add_all(zone.ino, {f"{number}~": {"kind": Kind.FILE} for number in range(2000)})
        account.save("a", b"alice")
        inodes._dirents.forget(zone.ino)
        children, steps = inodes.children, list[int]()

        def loaded(folder: int) -> Mapping[str, int]:
            steps.append(sum(1 for _ in inodes.loading(folder)))
            return children(folder)

        monkeypatch.setattr(inodes, "children", loaded)
        inode = inodes.child(zone.ino, "a")
        assert inode is not None
        await account.uploads.upload(account.intent(inode), inode)
        assert set(steps) == {0}, "all names were loaded before"
        assert there(account) == {"a": [b"alice"]}


@pytest.mark.parametrize(("seconds", "listings"), [(0.5, 0), (1.5, 1)])
async def test_a_listing_shows_for_a_second_that_a_name_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, listings: int
) -> None:
    """After a second the folder is listed again, because a coworker may have used the name."""
    account, clock = Account(tmp_path), [10**15]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    monkeypatch.setattr(directory_cache, "since_boot_ns", lambda: clock[0])
    async with account.running():
        account.save("a", b"alice")
        clock[0] += int(seconds * 1e9)
        account.world.requests.clear()
        inode = account.at("a")
        await account.uploads.upload(account.intent(inode), inode)
        assert len([each for each in account.world.requests if "/folder/" in each]) == listings


@pytest.mark.parametrize(
    ("request_", "expected"), [(ENTRY, [b"old"]), (UPLOAD, [b"old", b"alice"])]
)
@pytest.mark.parametrize("change", ["save", "rename", "remove"])
async def test_a_change_during_the_requests_of_an_upload(
    account: Account, request_: str, expected: list[bytes], change: str
) -> None:
    """A change before the upload replans it; a change during the upload is based on its version."""
    account.bob.write("a", b"old")

    def act() -> None:
        match change:
            case "save":
                account.save("a", b"newer")
            case "rename":
                account.rename("a", "b")
            case "remove":
                account.remove("a")

    async with account.running():
        inode = account.at("a")
        former = inode.revision
        account.save("a", b"alice")
        account.meanwhile(request_, act)
        with stale(request_ == ENTRY):
            await send(account, "a")
        assert there(account) == {"a": expected}
        state, intent = account.state, account.intent(inode)
        sent = request_ == UPLOAD
        name = {"save": "SAVED", "rename": "MOVED" if sent else "SAVED_MOVED"}
        assert intent.state.name == name.get(change, "REMOVED")
        current = (await account.entry(inode)).revision
        if not (change == "remove" and not sent) and not (change == "rename" and sent):
            assert intent.base == (current if sent else former)
        assert state.requests.all() == []


async def test_a_change_during_a_comparison(account: Account) -> None:
    """The comparison was about bytes that are not current any more: nothing is decided."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.bob.write("a", b"alice")
        account.meanwhile(CONTENT, lambda: account.save("a", b"newer"))
        with stale():
            await send(account, "a")
        assert account.left() == {"Zone/a": "SAVED"}
        assert account.bytes_of("a") == b"newer"
        assert len(there(account)["a"]) == 2


async def test_a_file_that_is_cut_before_the_comparison(account: Account) -> None:
    """A coworker cuts the file between the check of its size and the comparison."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.bob.write("a", b"alice")
        account.meanwhile(ENTRY, lambda: account.bob.write("a", b"ali"))
        with pytest.raises(Changed):
            await send(account, "a")
        await send(account, "a")
        assert conflicts(account) == [("Zone/a", "Zone/a", "bob")]


async def test_a_file_that_is_deleted_while_its_versions_are_compared(account: Account) -> None:
    """Nothing is refused: the next attempt finds the deletion."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.bob.write("a", b"bobby")
        account.meanwhile(ENTRY, lambda: account.bob.delete("a"))
        with pytest.raises(Changed):
            await send(account, "a")
        await send(account, "a")
        await send(account, "a")
        assert there(account) == {"a": [b"alice"]}


def deleted_and_replaced(account: Account) -> None:
    account.bob.delete("a")
    account.bob.write("a", b"bobby")


async def test_a_removed_file_whose_upload_went_to_a_new_file_of_a_coworker(
    account: Account,
) -> None:
    """The coworker's file is not removed; it is shown at once, and the user is told."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.meanwhile(ENTRY, lambda: deleted_and_replaced(account))
        account.meanwhile(UPLOAD, lambda: account.remove("a"))
        await send(account, "a")
        assert there(account) == {"a": [b"bobby", b"alice"]}
        assert account.left() == {} and account.state.requests.all() == []
        (told,) = account.state.refusals.unacknowledged()
        assert (told.path, told.said) == ("Zone/a", STAYS_THERE)
        await account.folders.ensure(account.zone)
        assert account.names_in() == {"a"}


async def test_an_upload_to_a_new_file_of_a_coworker_needs_no_versions(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload of a file that is still here is recorded also if versions cannot be listed."""

    async def fail(_zone: str, _file_id: str) -> list[Version]:
        raise BadAnswer("no versions")

    monkeypatch.setattr(account.service, "versions", fail)
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.meanwhile(ENTRY, lambda: deleted_and_replaced(account))
        await send(account, "a")
        assert account.left() == {} and account.state.requests.all() == []
        assert account.at("a").remote_id == account.bob.entry_id("a")


@pytest.mark.parametrize("happened", [deleted, longer])
async def test_an_edit_that_loses_a_protected_entry(
    account: Account, happened: Callable[[Account], None]
) -> None:
    """The new file or conflict copy is not protected, and keeps the executable bit."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        account.save("a", b"alice")
        with state.transaction():
            flags = Attributes(executable=True, read_protected=True, write_protected=True)
            state.inodes.update(inode, attributes=flags)
        happened(account)
        await send(account, "a")
        assert inode.is_new
        assert inode.attributes == Attributes(executable=True)


def recorded(account: Account) -> list[tuple[int, int]]:
    """Return inode and generation of the outgoing files of which the database has a record."""
    rows = account.state.database.execute("SELECT ino, generation FROM manifests")
    return sorted((ino, generation) for ino, generation in rows)


async def test_records_of_uploaded_files_are_deleted_at_the_latest_at_the_next_start(
    account: Account, tmp_path: Path
) -> None:
    """They are deleted together, later than the files, so a kill may prevent that."""
    async with account.running():
        account.save("a", b"alice")
        account.save("b", b"bobby")
        await send(account, "a")
        (waiting,) = account.state.spool.stored()
        assert len(recorded(account)) == 2
    again = Account(tmp_path)
    assert again.state.spool.stored() == [waiting]
    assert recorded(again) == [waiting]
    assert again.bytes_of("b") == b"bobby"
    await again.state.cache.aclose()
    again.state.database.close()


@pytest.mark.parametrize("attempts", [0, 5, 6])
async def test_a_file_that_has_a_temporary_name(account: Account, attempts: int) -> None:
    """Another machine exchanges two names: the upload waits, but not without a limit.

    Earlier failures do not shorten the wait.
    """
    account.bob.write("a", b"old")
    async with account.running():
        intent = account.save("a", b"alice")
        for _ in range(9):
            account.state.intents.postpone(intent, 0, "busy", Cause.SERVICE)
        account.bob.move("a", ".zonedrive-7-8")
        for _ in range(attempts):
            with pytest.raises(Changed):
                await send(account, "a")
        if attempts < 6:
            with pytest.raises(Changed):
                await send(account, "a")
        else:
            await send(account, "a")
        assert len(there(account)[".zonedrive-7-8"]) == 1 + (attempts == 6)


async def ask_with_temporary_name(account: Account, inode: Inode) -> PendingRequest:
    """Record an upload to the temporary name of the file `a`, which ends before the upload."""
    account.bob.move("a", ".zonedrive-7-8")
    await account.list()
    account.save(".zonedrive-7-8", b"alice")
    request = account.ask(inode)
    account.bob.move(".zonedrive-7-8", "a")
    return request


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("answer", ["came", "lost"])
async def test_a_temporary_name_that_ends_before_an_upload_to_it(
    account: Account, answer: str, is_known: bool
) -> None:
    """The new file of that name is deleted, and the version is sent to the right file.

    If a listing has shown the new file already, it stays, because it may be a coworker's.
    """
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        request = await ask_with_temporary_name(account, inode)
        account.alice.write(".zonedrive-7-8", b"alice")
        if is_known:
            await account.list()
        if answer == "came":
            stray = account.bob.entry_id(".zonedrive-7-8")
            entry = await account.service.entry(inode.zone, stray)
            await account.reconciler.arrived(request, entry)
        else:
            assert await account.reconciler.settle(inode.ino)
        assert account.state.requests.all() == []
        left = account.left()
        if is_known:
            assert there(account) == {"a": [b"old"], ".zonedrive-7-8": [b"alice"]}
            assert left == {}
            return
        removal = next(one for one in account.state.intents.all() if one.gone)
        assert left == {"-Zone/.zonedrive-7-8": "DELETED", "Zone/.zonedrive-7-8": "SAVED"}
        await account.names.delete(removal, account.state.inodes.get(removal.ino))
        await send(account, inode.name)
        assert there(account) == {"a": A}
        assert account.left() == {}


@pytest.mark.parametrize("answer", ["came", "lost"])
async def test_an_upload_to_a_temporary_name_that_another_file_has_got(
    account: Account, answer: str
) -> None:
    """No listing has shown the other file, but it has an earlier version, so it is not deleted.

    Two machines may choose the same temporary name, one after the other.
    """
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        request = await ask_with_temporary_name(account, inode)
        account.bob.write("b", b"bob")
        account.bob.move("b", ".zonedrive-7-8")
        account.alice.write(".zonedrive-7-8", b"alice")
        if answer == "came":
            other = account.bob.entry_id(".zonedrive-7-8")
            entry = await account.service.entry(inode.zone, other)
            await account.reconciler.arrived(request, entry)
        else:
            assert await account.reconciler.settle(inode.ino)
        assert account.left() == {}
        assert there(account) == {"a": [b"old"], ".zonedrive-7-8": [b"bob", b"alice"]}


@pytest.mark.parametrize("leaves", ["other", "this", "nobody"])
async def test_a_name_that_two_files_have_in_an_old_listing(account: Account, leaves: str) -> None:
    """A listing may be older than a coworker's rename."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", b"alice")
        account.world.plant(account.bob.id, "a", b"twin", user=account.bob.user)
        await account.list()
        ids = {node.versions[0].data: node for node in account.world.children(account.bob.root_id)}

        def leave() -> None:
            if leaves == "other":
                ids[b"twin"].name = "c"
            elif leaves == "this":
                ids[b"old"].name = "c"

        account.meanwhile(LISTING, leave)
        outcome: type[ZonedriveError] | None = None
        try:
            await send(account, "a")
        except ZonedriveError as wrong:
            outcome = type(wrong)
        assert outcome is {"other": None, "this": Changed, "nobody": AmbiguousName}[leaves]
        sent = [version.data for version in ids[b"old"].versions]
        assert sent == (A if leaves == "other" else [b"old"])


async def test_a_name_that_another_file_is_about_to_leave(account: Account) -> None:
    """The new file is sent after the rename of the other one."""
    account.bob.write("a", b"old")
    async with account.running():
        account.rename("a", "b")
        account.save("a", b"alice")
        with pytest.raises(Changed):
            await send(account, "a")
        assert there(account) == {"a": [b"old"]}


@pytest.mark.parametrize("deleted", [True, False])
async def test_a_name_that_a_parked_file_keeps(account: Account, deleted: bool) -> None:
    """The edit is sent, unless the entry of the parked file still has the name on the service."""
    account.bob.write("a", b"old")
    async with account.running():
        account.rename("a", "a~")
        if deleted:
            account.bob.delete("a")
        account.world.plant(account.bob.id, "a", b"by bob", user=account.bob.user)
        await account.list()
        account.save("a", b"alice")
        if deleted:
            await send(account, "a")
            assert there(account) == {"a": [b"by bob", b"alice"]}
        else:
            with pytest.raises(AmbiguousName):
                await send(account, "a")
        assert account.left()["Zone/a~"] == "PARKED"


@pytest.mark.parametrize("leaves", ["removed", "parked"])
async def test_a_name_that_a_file_that_leaves_gets_during_an_upload(
    account: Account, leaves: str
) -> None:
    """The service adds a version to the entry of that file, so the uploaded file has the entry."""
    account.bob.write("former", b"old")
    async with account.running():
        former = account.at("former")
        remote_id = former.remote_id
        if leaves == "removed":
            account.remove("former")
        else:
            account.rename("former", "former~")
        account.save("a", b"alice")
        account.meanwhile(LISTING, lambda: account.bob.move("former", "a"))
        await send(account, "a")
        assert there(account) == {"a": [b"old", b"alice"]}
        assert account.at("a").remote_id == remote_id
        assert account.bytes_of("a") is None
        assert set(account.left()) <= {"Zone/a"}
        assert account.state.requests.all() == []
        left = account.state.inodes.find(former.ino)
        assert (left is None) == (leaves == "removed")
        assert left is None or (left.is_new and left.local)


async def test_a_name_that_a_file_with_another_local_name_has(account: Account) -> None:
    """The service's file is shown with a mark, because a new local file has its name."""
    async with account.running():
        account.save("a", b"alice")
        account.bob.write("b", b"by bob")
        await account.list()
        account.bob.move("b", "a")
        await account.list()
        await send(account, "a")
        assert there(account) == {"a": [b"by bob"]}
        assert conflicts(account) == [("Zone/a", "Zone/a", "bob")]


@pytest.mark.parametrize("profile", ["sandbox", "published"])
async def test_a_file_in_a_folder_that_is_not_there(tmp_path: Path, profile: str) -> None:
    """The folder is made first, or the user has to move the file."""
    account = Account(tmp_path, profile)
    account.bob.make_folder("docs")
    async with account.running():
        await account.folders.ensure(account.at("docs"))
        account.save("docs/a", b"alice")
        account.bob.delete("docs")
        with pytest.raises(Changed if profile == "sandbox" else StoreError) as refused:
            await send(account, "docs/a")
        assert bool(refused.value.remedy) == (profile != "sandbox")
        assert account.bytes_of("docs/a") == b"alice"


@pytest.mark.parametrize("lost", ["gone", "short", "changed"])
async def test_outgoing_bytes_that_are_damaged(account: Account, lost: str) -> None:
    """Nothing is sent, and the user is told what to do."""
    account.bob.write("a", b"old")
    async with account.running():
        intent, state = account.save("a", BIG), account.state
        path = state.spool.path(intent.ino, intent.generation)
        data = path.read_bytes()
        match lost:
            case "gone":
                path.unlink()
            case "short":
                with state.transaction():
                    state.intents.content(
                        intent.ino, intent.generation, len(BIG) + 1, base=intent.base, held=False,
                        due_ns=0,
                    )  # fmt: skip
            case _:
                path.write_bytes(data[:-5000] + bytes(100) + data[-4900:])
                state.unverified_after_crash.add((intent.ino, intent.generation))
        with pytest.raises(StoreError if lost == "gone" else Damaged) as refused:
            await send(account, "a")
        assert refused.value.remedy
        assert there(account) == {"a": [b"old"]}
        assert state.requests.all() == []


async def test_bytes_that_were_checked_once_are_not_checked_again(account: Account) -> None:
    """After a restart of the machine, only bytes from before it are read twice."""
    async with account.running():
        intent, state = account.save("a", b"alice"), account.state
        state.unverified_after_crash |= {(intent.ino, intent.generation), (99, 99)}
        await send(account, "a")
        assert state.unverified_after_crash == {(99, 99)}
        assert there(account) == {"a": [b"alice"]}


async def test_bytes_that_were_replaced_while_they_were_opened(account: Account) -> None:
    """Newer bytes have taken their place: the step is planned again, without an error."""
    async with account.running():
        old = account.save("a", b"alice")
        account.save("a", b"newer")
        with stale():
            await account.uploads.upload(old, account.at("a"))
        assert there(account) == {}
        await send(account, "a")
        assert there(account) == {"a": [b"newer"]}


@pytest.mark.parametrize("limit", ["", "1GiB"])
@pytest.mark.parametrize("content", [b"alice", BIG[: 128 << 10], BIG[: (128 << 10) + 1]])
async def test_the_progress_of_an_upload(tmp_path: Path, content: bytes, limit: str) -> None:
    """Small files are sent at once unless there is a limit; larger ones report their progress."""
    account = Account(tmp_path, **({"upload_limit": limit} if limit else {}))
    async with account.running():
        intent = account.save("a", content)
        seen: list[int] = []
        account.meanwhile(UPLOAD, lambda: seen.append(account.uploads.sent(intent.ino)))
        await send(account, "a")
        at_once = len(content) <= 128 << 10 and not limit
        assert seen == [0 if at_once else len(content)]
        assert account.uploads.sent(intent.ino) == 0
        assert there(account) == {"a": [content]}
        inode = account.at("a")
        assert account.state.cache.is_complete(inode.ino, inode.revision)


@pytest.mark.parametrize("why", ["cancelled", "paused", "newer", "removed"])
async def test_a_cancelled_upload(account: Account, why: str) -> None:
    """The service has no new version, and no request is pending."""
    async with account.running():
        intent, state = account.save("a", BIG), account.state

        def act() -> None:
            match why:
                case "cancelled":
                    state.cancelled_uploads.add(intent.ino)
                case "paused":
                    state.paused_uploads.add(intent.ino)
                case "newer":
                    account.save("a", b"newer")
                case _:
                    local_operations.remove(state, account.at("a"))

        account.meanwhile(LISTING, act)
        with suppress(Changed, Stale):
            await send(account, "a")
        assert there(account) == {}
        assert state.requests.all() == []
        assert account.uploads.sent(intent.ino) == 0


async def test_two_uploads_to_one_name(account: Account) -> None:
    """The second one waits for the first one, and is then planned again."""
    async with account.running():
        account.save("a", b"alice")
        request = account.ask(account.at("a"))
        account.state.resolved(request)
        done = trio.Event()

        async def second() -> None:
            await send(account, "a")
            done.set()

        async with trio.open_nursery() as nursery:
            with account.reconciler.sending(request):
                nursery.start_soon(second)
                await trio.testing.wait_all_tasks_blocked()
                assert not done.is_set()
        assert there(account) == {}
        account.state.resolved(request)
        await send(account, "a")
        assert there(account) == {"a": [b"alice"]}


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_conflict_with_a_file_that_is_still_open(account: Account, frozen: bool) -> None:
    """The copy is made when the program closes the file."""
    account.bob.write("a", b"old")
    async with account.running():
        inode, state = account.at("a"), account.state
        account.save("a", b"alice")
        longer(account)
        opened = state.new_open_file(inode)
        file = state.spool.open(inode.ino, inode.generation)
        opened.session = Session(inode.generation, file, inode.revision, 0, inode.revision)
        opened.session.frozen = frozen
        if frozen:
            await send(account, "a")
        else:
            with pytest.raises(Changed):
                await send(account, "a")
        assert bool(conflicts(account)) == frozen
        file.close()


@pytest.mark.parametrize("case", ["new", "edited", "before the base"])
async def test_a_version_whose_record_was_undone(account: Account, case: str) -> None:
    """The version is found below a newer one and not sent again, unless it is before the base."""
    if case == "before the base":
        account.alice.write("a", b"alice")
    if case != "new":
        account.bob.write("a", b"bob's base")
    async with account.running():
        account.save("a", b"alice")
        if case != "before the base":
            account.alice.write("a", b"alice")
        account.bob.write("a", b"and bob")
        before = there(account)["a"]
        await send(account, "a")
        assert there(account)["a"] == before
        assert bool(conflicts(account)) == (case == "before the base")
        if case != "before the base":
            assert account.state.intents.get(account.at("a").ino) is None


@pytest.mark.parametrize("found", ["same", "other version", "folder", "twins", "nothing"])
async def test_an_upload_with_another_id_in_the_listing(account: Account, found: str) -> None:
    """The file is recognised by name and version; otherwise it counts as deleted."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.save("a", b"alice")
        node = account.world.nodes.pop(inode.remote_id or "")
        node.id = "another"
        if found != "nothing":
            account.world.nodes["another"] = node
        match found:
            case "other version":
                account.bob.write("a", b"bob")
            case "folder":
                node.folder = True
            case "twins":
                account.world.nodes["twin"] = dataclasses.replace(node, id="twin")
        await send(account, "a")
        if found == "same":
            assert inode.remote_id == "another"
            assert there(account) == {"a": A}
            assert account.left() == {}
        else:
            assert inode.is_new
            assert account.left() == {"Zone/a": "SAVED"}


async def test_an_upload_does_not_look_at_all_pending_removals(tmp_path: Path) -> None:
    """The check for another entry of the same name is the same with few and with many of them."""
    few, many = 3, 300
    account, numbers = Account(tmp_path), []
    account.bob.write("a", b"alice")
    for number in range(few + many):
        account.bob.write(f"removed {number}", b"")
    async with account.running():
        state, inode = account.state, account.at("a")
        for pending in (range(few), range(few, few + many)):
            for number in pending:
                local_operations.remove(state, account.at(f"removed {number}"))
            state.leaving.at(account.zone, "a")
            account.save("a", b"edited %d" % len(pending))
            with calls() as counted:
                await account.uploads.upload(account.intent(inode), inode)
            numbers.append(counted.number)
    assert abs(numbers[1] - numbers[0]) < many // 2


async def test_a_conflict_soon_after_a_pin(account: Account) -> None:
    """The file that was pinned before its first upload stays pinned, not its conflict copy."""
    async with account.running():
        account.save("a", b"1")
        inode, pins = account.at("a"), Pins(account.state)
        pins.add(inode)
        await account.uploads.upload(account.intent(inode), inode)
        account.save("a", b"mine!")
        account.bob.write("a", b"theirs")
        await account.uploads.upload(account.intent(inode), inode)
        pins.update_inodes()
        assert [each.name for each in pins.roots()] == ["a"]
        assert inode.ino not in pins


async def test_a_pin_after_an_upload_that_could_not_be_recorded(account: Account) -> None:
    """The rollback restores all of it, and leaves no transaction open."""
    async with account.running():
        account.save("a", b"1")
        inode, pins, database = account.at("a"), Pins(account.state), account.state.database
        pins.add(inode)
        with pytest.raises(OSError, match="full"), account.state.transaction():
            account.state.inodes.update(inode, remote_id="new", remote_parent="p", remote_name="a")
            raise OSError("full")
        assert inode.remote_id is None
        assert PinStore(database).all() == [Pin(inode.ino, inode.zone)]
        await account.uploads.upload(account.intent(inode), inode)
        assert PinStore(database).all() == [Pin(inode.ino, inode.zone, inode.remote_id)]


@pytest.mark.parametrize("newer", [False, True])
async def test_a_new_file_that_replaces_a_version_that_its_backup_has_not_shown(
    account: Account, newer: bool
) -> None:
    """The service stores the new file as a version of the backup's entry, which has another case.

    If a coworker's version came after the listing, the user is told.
    """
    account.world.key = str.lower
    account.bob.write("a", b"old")
    async with account.running():
        account.rename("a", "a~")
        account.save("A", b"alice")
        if newer:
            account.meanwhile(r"GET .*/folder/", lambda: account.bob.write("a", b"newer"))
        await send(account, "A")
        assert account.bytes_of("a~") == b"old"
        assert there(account) == {"a": [b"old", *[b"newer"] * newer, b"alice"]}
        assert conflicts(account) == [("Zone/a", "Zone/a", "bob")] * newer


async def test_a_new_file_that_replaces_a_version_whose_history_is_forbidden(
    account: Account,
) -> None:
    """The upload counts, and the user is told about the author of the version shown before."""
    account.world.key = str.lower
    account.bob.write("a", b"old")

    async def forbidden(*_: object) -> None:
        raise Forbidden("you may not list versions")

    async with account.running():
        account.rename("a", "a~")
        account.save("A", b"alice")
        account.service.versions = forbidden  # type: ignore[method-assign, assignment]
        await send(account, "A")
        assert account.state.requests.all() == []
        assert account.names_in() == {"a", "a~"}
        assert conflicts(account) == [("Zone/a", "Zone/a", "bob")]
