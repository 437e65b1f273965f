"""Saves that change no byte: they are compared with the version before, and not uploaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from trio.testing import MockClock

from tests.unit.sync.account import Account, stale
from tests.unit.sync.test_uploading import (
    CONTENT,
    ENTRY,
    conflicts,
    deleted,
    longer,
    renamed,
    same_size,
    send,
    there,
)
from zonedrive.causes import Cause
from zonedrive.errors import Changed, Damaged, Forbidden, Unavailable, Unreachable
from zonedrive.state.inode import Inode
from zonedrive.state.open_file import Session
from zonedrive.sync.compare import COMPARED, COMPARISONS

OLD, SAME_SIZE, LARGE = b"alice", b"bobby", bytes(range(256)) * (COMPARED // 256)


async def fetch(account: Account, inode: Inode) -> None:
    """Fetch the service's version into the cache."""
    state = account.state
    await state.cache.complete(inode.ino, inode.revision, inode.size, state.source(inode))


@contextmanager
def faulty(account: Account, **fault: object) -> Iterator[None]:
    """Set a fault of the service for the block."""
    account.world.fault(**fault)
    yield
    account.world.heal()


def sent(account: Account) -> int:
    """Return the number of uploads."""
    return sum(each.startswith("POST") for each in account.world.requests)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("content", [b"", OLD, LARGE], ids=["empty", "small", "largest"])
async def test_a_save_without_a_change(account: Account, cached: bool, content: bytes) -> None:
    """Nothing is uploaded, and the rest is as after an upload."""
    account.bob.write("a", content)
    async with account.running():
        inode, state = account.at("a"), account.state
        before = inode.revision
        if cached:
            await fetch(account, inode)
        account.save("a", content)
        saved_ns = inode.mtime_ns
        await send(account, "a")
        assert sent(account) == 0
        assert account.left() == {}
        assert state.requests.all() == []
        assert (inode.revision, inode.modified_by) == (before, account.bob.user)
        assert (inode.generation, inode.size, inode.mtime_ns) == (0, len(content), saved_ns)
        assert state.spool.stored() == []
        assert state.cache.is_complete(inode.ino, inode.revision) or not content
        await account.list()
        assert inode.mtime_ns == saved_ns


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("content", [SAME_SIZE, LARGE[1:] + LARGE[:1]], ids=["small", "largest"])
async def test_a_change_that_keeps_the_size(account: Account, cached: bool, content: bytes) -> None:
    """A version is added."""
    old = bytes(sorted(content))
    account.bob.write("a", old)
    async with account.running():
        if cached:
            await fetch(account, account.at("a"))
        account.save("a", content)
        await send(account, "a")
        assert there(account) == {"a": [old, content]}
        assert account.left() == {}


async def test_a_file_of_another_size_is_not_downloaded(account: Account) -> None:
    """The sizes are known without a request."""
    account.bob.write("a", b"old")
    async with account.running():
        account.save("a", OLD)
        await send(account, "a")
        assert not [each for each in account.world.requests if each.endswith("/content")]


async def test_damaged_bytes_in_the_cache(tmp_path: Path) -> None:
    """They are fetched again for the comparison."""
    account = Account(tmp_path)
    account.bob.write("a", LARGE)
    async with account.running():
        inode, state = account.at("a"), account.state
        await fetch(account, inode)
        (path,) = (tmp_path / "account/cache").glob(f"**/{inode.ino}-*")
        data = path.read_bytes()
        path.write_bytes(data[:-5000] + bytes(100) + data[-4900:])
        account.save("a", LARGE)
        account.world.requests.clear()
        await send(account, "a")
        assert [each for each in account.world.requests if each.endswith("/content")]
        assert there(account) == {"a": [LARGE]}
        assert state.cache.is_complete(inode.ino, inode.revision)


async def test_damaged_bytes_of_a_save(account: Account) -> None:
    """They do not count as unchanged, and the user is told what to do."""
    account.bob.write("a", LARGE)
    async with account.running():
        intent, state = account.save("a", LARGE), account.state
        path = state.spool.path(intent.ino, intent.generation)
        data = path.read_bytes()
        path.write_bytes(data[:-5000] + bytes(100) + data[-4900:])
        with pytest.raises(Damaged) as refused:
            await send(account, "a")
        assert refused.value.remedy
        assert account.left() == {"Zone/a": "SAVED"}


@pytest.mark.parametrize("status", [403, 404, 503])
async def test_a_version_that_cannot_be_read(account: Account, status: int) -> None:
    """The save is uploaded if that is not allowed, and waits if the service is busy."""
    account.bob.write("a", OLD)
    async with account.running():
        account.save("a", OLD)
        account.world.fault(status=status, method="GET", path="/content$")
        if status == 503:
            with pytest.raises(Unavailable):
                await send(account, "a")
            assert account.left() == {"Zone/a": "SAVED"}
            account.world.heal()
        await send(account, "a")
        assert there(account) == {"a": [OLD] * (1 if status == 503 else 2)}
        assert account.left() == {}


@pytest.mark.parametrize("theirs", [OLD, b"by bob"], ids=["none", "newer"])
async def test_an_outage_during_the_comparison(
    account: Account, autojump_clock: MockClock, theirs: bytes
) -> None:
    """The save waits for the service, even after failed attempts to compare it."""
    account.bob.write("a", OLD)
    async with account.running():
        account.save("a", OLD)
        with faulty(account, status=503, method="GET", path="/content$"):
            for _ in range(COMPARISONS):
                with pytest.raises(Unavailable):
                    await send(account, "a")
        if theirs != OLD:
            account.bob.write("a", theirs)
        account.meanwhile(ENTRY, lambda: account.world.fault(down=True))
        with pytest.raises(Unreachable):
            await send(account, "a")
        assert account.left() == {"Zone/a": "SAVED"}
        account.world.heal()
        await send(account, "a")
        assert account.left() == {}
        assert account.bob.read("a") == theirs
        assert conflicts(account) == []
        assert sent(account) == 0


@pytest.mark.parametrize("failures", ["other", "outages"])
async def test_a_failed_comparison_after_other_failures(account: Account, failures: str) -> None:
    """The save waits for the service as long as without those failures."""
    account.bob.write("a", OLD)
    async with account.running():
        account.save("a", OLD)
        for _ in range(COMPARISONS + 1):
            intent = account.intent(account.at("a"))
            if failures == "outages":  # they begin during a comparison, and affect all requests
                account.meanwhile(ENTRY, lambda: account.world.fault(status=500))
                with pytest.raises(Unavailable):
                    await send(account, "a")
                account.world.heal()
            account.state.intents.postpone(intent, 0, "", Cause.SERVICE)
        with faulty(account, status=503, method="GET", path="/content$"):
            for _ in range(COMPARISONS):
                with pytest.raises(Unavailable):
                    await send(account, "a")
        await send(account, "a")
        assert sent(account) == 0
        assert account.left() == {}


@pytest.mark.parametrize("change", ["save", "rename", "remove"])
async def test_a_change_during_the_comparison(account: Account, change: str) -> None:
    """The comparison was about a state that is not current any more: nothing is decided."""
    account.bob.write("a", OLD)

    def act() -> None:
        match change:
            case "save":
                account.save("a", SAME_SIZE)
            case "rename":
                account.rename("a", "b")
            case "remove":
                account.remove("a")

    async with account.running():
        account.save("a", OLD)
        account.meanwhile(CONTENT, act)
        with stale():
            await send(account, "a")
        wanted = {"save": ("Zone/a", "SAVED"), "rename": ("Zone/b", "SAVED_MOVED"),
                  "remove": ("-Zone/a", "REMOVED")}[change]  # fmt: skip
        assert account.left() == dict([wanted])
        assert there(account) == {"a": [OLD]}
        if change == "save":
            await send(account, "a")
            assert there(account) == {"a": [OLD, SAME_SIZE]}


@pytest.mark.parametrize("happened", [same_size, longer, renamed, deleted])
async def test_a_coworker_during_the_comparison(
    account: Account, happened: Callable[[Account], None]
) -> None:
    """The save is planned again with the state of the service after that."""
    account.bob.write("a", OLD)
    async with account.running():
        account.save("a", OLD)
        account.meanwhile(CONTENT, lambda: happened(account))
        with pytest.raises(Changed):
            await send(account, "a")
        before = there(account)
        assert account.left() == {"Zone/a": "SAVED"}
        await send(account, "a")
        assert there(account) == before
        assert (account.left() == {}) == (happened is not deleted)
        assert bool(conflicts(account)) == (happened is deleted)


@pytest.mark.parametrize("happened", [same_size, longer])
async def test_a_coworker_between_the_comparison_and_the_record(
    account: Account, happened: Callable[[Account], None]
) -> None:
    """A version that comes after the last look at the entry is shown by the next listing."""
    account.bob.write("a", OLD)
    async with account.running():
        account.save("a", OLD)
        # At the second request for the entry.
        account.meanwhile(ENTRY, lambda: account.meanwhile(ENTRY, lambda: happened(account)))
        await send(account, "a")
        assert account.left() == {}
        await account.list()
        inode = account.at("a")
        assert inode.revision == (await account.entry(inode)).revision
        assert inode.size == len(account.bob.read("a"))
        assert conflicts(account) == []


@pytest.mark.parametrize("history", ["bob", "alice", "alice, bob"])
async def test_a_coworkers_version_while_the_file_is_open(account: Account, history: str) -> None:
    """The program has the former bytes open: they become a copy.

    They may also be the bytes of a version of the user that is not newer than the base.
    """
    (account.bob if history == "bob" else account.alice).write("a", OLD)
    if history == "alice, bob":
        account.bob.write("a", SAME_SIZE)
    async with account.running():
        inode, state = account.at("a"), account.state
        account.save("a", OLD)
        longer(account)
        opened = state.new_open_file(inode)
        file = state.spool.open(inode.ino, inode.generation)
        opened.session = Session(inode.generation, file, inode.revision, 0, inode.revision)
        opened.session.frozen = True
        await send(account, "a")
        assert conflicts(account) == [("Zone/a", "Zone/a", "bob")]
        file.close()


async def test_an_edit_that_is_taken_back(account: Account) -> None:
    """The version on the service decides, also after a lost answer."""
    account.bob.write("a", OLD)
    async with account.running():
        inode = account.at("a")
        account.save("a", SAME_SIZE)
        account.save("a", OLD)
        await send(account, "a")
        assert there(account) == {"a": [OLD]}
        account.save("a", SAME_SIZE)
        account.ask(inode)
        account.alice.write("a", SAME_SIZE)
        account.save("a", OLD)
        assert await account.reconciler.settle(inode.ino)
        await send(account, "a")
        assert there(account) == {"a": [OLD, SAME_SIZE, OLD]}


async def test_an_upload_that_would_be_refused(account: Account) -> None:
    """A save without a change needs no right to upload."""
    account.bob.write("a", OLD)
    async with account.running():
        account.world.fault(status=403, method="POST")
        account.save("a", OLD)
        await send(account, "a")
        assert account.left() == {}
        account.save("a", SAME_SIZE)
        with pytest.raises(Forbidden):
            await send(account, "a")
        assert there(account) == {"a": [OLD]}
