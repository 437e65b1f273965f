"""Steps of the outbox: requests before a step, and files that continue the history of others."""

import pytest

from tests.unit.sync.account import Account
from zonedrive.errors import Changed, Forbidden, NotFound, Unavailable, ZonedriveError
from zonedrive.state.inode import Inode
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.executor import Executor
from zonedrive.sync.materialize import refresh_version
from zonedrive.sync.planner import Action, InodeView, InodeViews, Planner, Step


class Outbox:
    """The planner and the executor of an account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.executor = Executor(account.state, account.service, account.folders)
        self._planner = Planner(account.state.intents, InodeViews(account.state))

    def step(self, inode: Inode) -> Step:
        """Return the next step of an inode."""
        return next(each for each in self._planner.steps_of([inode.ino]) if each.ino == inode.ino)

    async def carry(self, inode: Inode) -> list[str]:
        """Perform the next step of an inode; return the requests without their ids."""
        self.account.world.requests.clear()
        await self.executor.carry(self.step(inode))
        return self.requests()

    def requests(self) -> list[str]:
        """Return method and kind of each request since the last step began."""
        kinds = ("folders", "entries", "folder", "content", "files", "zones")
        return [
            each.partition(" ")[0] + " " + next(kind for kind in kinds if f"/{kind}" in each)
            for each in self.account.world.requests
        ]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("edit", ["GET files", "GET folder", "GET folder"]), ("new", ["GET folder"]),
        ("folder", ["GET folder"]),
        ("deleted", ["GET files", "GET folder", "GET files", "GET folder", "GET files"]),
    ],
)  # fmt: skip
async def test_after_a_refusal_the_service_is_asked_first(
    account: Account, kind: str, asked: list[str]
) -> None:
    """The known remote state may be wrong, so it is fetched before the step is sent again."""
    account.bob.make_folder("f")
    account.bob.write("f/a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        outbox = Outbox(account)
        match kind:
            case "edit" | "deleted":
                account.save("f/a", b"edited")
                inode = account.at("f/a")
            case "new":
                account.save("f/new", b"new")
                inode = account.at("f/new")
            case _:
                account.make("f/made")
                inode = account.at("f/made")
        account.world.fault(status=403, method="POST")
        with pytest.raises(Forbidden):
            await outbox.carry(inode)
        account.world.heal()
        if kind == "deleted":
            account.bob.delete("f/a")
        assert await outbox.carry(inode) == asked
        assert account.state.intents.get(inode.ino) is not None
        sent = await outbox.carry(inode)
        if kind != "deleted":
            assert sent[-1].startswith("POST")
            assert account.left() == {}


async def test_an_unreachable_service_is_no_refusal(account: Account) -> None:
    """The next attempt sends the step at once."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox = Outbox(account)
        account.save("a", b"edited")
        account.world.fault(status=503, method="POST")
        with pytest.raises(ZonedriveError):
            await outbox.carry(account.at("a"))
        account.world.heal()
        await outbox.carry(account.at("a"))
        assert account.left() == {}
        assert len(account.bob.versions("a")) == 2


async def test_a_step_of_an_inode_without_a_change_does_nothing(account: Account) -> None:
    """The change has ended since the step was planned."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox = Outbox(account)
        account.save("a", b"edited")
        step = outbox.step(account.at("a"))
        with account.state.transaction():
            account.state.intents.drop(step.ino)
        account.world.requests.clear()
        await outbox.executor.carry(step)
        await outbox.executor.carry(Step(Action.UPLOAD, 900, step.intent))
        assert account.world.requests == []


async def test_a_move_without_an_answer_to_the_place_is_settled_first(account: Account) -> None:
    """The place of a new folder may be that of another entry, whose move was done unnoticed."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox, moved = Outbox(account), account.at("a")
        account.rename("a", "b")
        zone = account.zone.remote_id or ""
        account.state.record_request(
            PendingRequest(moved.ino, moved.ino, 0, 0, moved.zone, zone, "b", moved.remote_id)
        )
        account.rename("b", "c")
        account.alice.move("a", "b")
        account.make("b")
        assert await outbox.carry(account.at("b")) == ["GET files"]
        assert moved.remote_name == "b"
        assert account.state.requests.all() == []


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("gone", [True, False])
async def test_a_new_file_at_the_place_of_a_removed_one(
    account: Account, reads: bool, gone: bool
) -> None:
    """The new file is the next version; a program with the removed one open continues to read."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox, state, old = Outbox(account), account.state, account.at("a")
        if reads:
            state.new_open_file(old)
        account.remove("a")
        if reads:
            state.intents.let_go(old.ino, 0)
        account.save("a", b"new")
        new = account.at("a")
        if gone:
            account.bob.delete("a")
        step = outbox.step(new)
        assert (step.action, step.other) == (Action.ADOPT, old.ino)
        await outbox.executor.carry(step)
        assert new.is_new == gone
        assert state.intents.get(old.ino) is None
        former = state.inodes.find(old.ino)
        assert bool(former is not None and former.generation) == (reads and not gone)
        while state.intents.get(new.ino) is not None:
            await outbox.carry(new)
        assert len(account.bob.versions("a")) == (1 if gone else 2)
        if reads:
            state.opened.pop(old.ino)


@pytest.mark.parametrize("lost", ["the inode", "the change", "the entry"])
async def test_a_removed_file_that_is_settled_meanwhile_has_no_successor(
    account: Account, lost: str
) -> None:
    """There is no history to continue any more, so the step is planned again."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox, state, old = Outbox(account), account.state, account.at("a")
        account.remove("a")
        account.save("a", b"new")
        new = account.at("a")
        step = outbox.step(new)
        assert (step.action, step.other) == (Action.ADOPT, old.ino)
        with state.transaction():
            if lost == "the entry":
                state.inodes.update(old, remote_id=None)
            else:
                state.intents.drop(old.ino)
            if lost == "the inode":
                state.inodes.unlink(old)
        account.world.requests.clear()
        await outbox.executor.carry(step)
        assert outbox.requests() == []
        assert new.is_new
        assert state.intents.get(new.ino) == step.intent


@pytest.mark.parametrize("happened", ["nothing", "saved", "new version", "deleted", "changing"])
async def test_the_former_bytes_are_copied_before_another_file_takes_the_place(
    account: Account, happened: str
) -> None:
    """A coworker's newer version is copied; a program's own bytes need no copy."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox, state = Outbox(account), account.state
        account.rename("a", "b")
        account.save("a", b"new")
        new = account.at("a")
        content = r"GET .*/content$"
        match happened:
            case "saved":
                account.meanwhile(content, lambda: account.save("b", b"saved"))
            case "new version":
                account.bob.write("a", b"by bob")
            case "deleted":
                account.bob.delete("a")
            case "changing":
                account.bob.write("a", b"by bob")
                sizes = iter(range(10, 20))
                for _ in range(9):
                    account.meanwhile(
                        r"GET .*/files/\w+$", lambda: account.bob.write("a", bytes(next(sizes)))
                    )
        if happened == "changing":
            with pytest.raises(Changed):
                await outbox.carry(new)
            assert outbox.requests().count("GET content") == 5
            assert account.bytes_of("b") is None
            return
        await outbox.carry(new)
        if happened == "deleted":
            assert new.is_new
            assert account.names_in() == {"a"}
            return
        shown = {"nothing": b"old", "saved": b"saved", "new version": b"by bob"}[happened]
        assert account.bytes_of("b") == shown
        stored = [ino for ino, _ in state.spool.stored()]
        assert sorted(stored) == sorted({account.at("b").ino, new.ino})
        assert new.is_new == (happened == "saved")


@pytest.mark.parametrize("happened", ["removed", "replaced", "replaced while open"])
async def test_a_renamed_file_that_goes_during_the_copy_of_its_bytes(
    account: Account, happened: str
) -> None:
    """No second copy is begun, because the file has no entry of which it could be a copy."""
    account.bob.write("a", b"old")
    async with account.running():
        outbox, state, old = Outbox(account), account.state, account.at("a")
        if happened == "replaced while open":
            state.new_open_file(old)
        account.rename("a", "b")
        account.save("a", b"new")
        new = account.at("a")

        def go() -> None:
            if happened == "removed":
                account.remove("b")
            else:
                account.save("c", b"newest")
                account.rename("c", "b")
            state.release_if_unreferenced(old)

        account.meanwhile(r"GET .*/content$", go)
        requests = await outbox.carry(new)
        assert requests.count("GET content") == 1
        state.opened.pop(old.ino, None)
        while changed := state.intents.all():
            await outbox.carry(state.inodes.get(changed[0].ino))
        tree = {"a": b"new"} if happened == "removed" else {"a": b"new", "b": b"newest"}
        assert account.bob.tree() == tree
        assert account.left() == {}


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("kind", ["move", "remove", "adopt", "withdraw"])
async def test_a_zone_that_the_service_does_not_know(
    account: Account, kind: str, is_gone: bool
) -> None:
    """As long as the zone is listed, the change stays pending.

    Otherwise the change is refused: a rename or removal of a folder is undone, another change
    stays.
    """
    for name in ("a", "b"):
        account.bob.write(name, b"old")
    account.bob.make_folder("f")
    async with account.running():
        outbox, inode = Outbox(account), account.at("a")
        match kind:
            case "move":
                inode = account.at("f")
                account.rename("f", "c")
            case "remove":
                inode = account.at("f")
                account.remove("f")
            case "adopt":
                account.state.new_open_file(inode)
                account.remove("a")
                account.state.intents.let_go(inode.ino, 0)
                account.save("a", b"new")
                inode = account.at("a")
            case _:
                account.rename("a", "a~")
                account.rename("b", "a")
        step, before = outbox.step(inode), account.left()
        if is_gone:
            del account.world.zones[account.bob.id]
        account.world.fault(status=404, error="UNKNOWN_ZONE", path=f"/{account.bob.id}/")
        if is_gone and kind in ("move", "remove"):
            await outbox.executor.carry(step)
            (undone,) = account.state.refusals.unacknowledged()
            assert "UNKNOWN_ZONE" in undone.said
            assert not account.left()
            return
        with pytest.raises(Forbidden if is_gone else Unavailable):
            await outbox.executor.carry(step)
        assert account.left() == before
        assert not inode.is_new or kind == "adopt"
        account.state.opened.pop(step.other, None)


@pytest.mark.parametrize("happened", ["nothing", "deleted", "renamed back", "edited before"])
async def test_a_parked_file_whose_place_is_needed(account: Account, happened: str) -> None:
    """The file becomes local-only with its own bytes, and its remote entry is deleted."""
    for name in ("a", "b"):
        account.bob.write(name, name.encode())
    async with account.running():
        outbox, state, parked = Outbox(account), account.state, account.at("a")
        account.rename("a", "a~")
        if happened == "edited before":
            account.save("a~", b"edited")
        account.rename("b", "a")
        match happened:
            case "deleted":
                account.bob.delete("a")
            case "renamed back":
                account.meanwhile(r"GET .*/content$", lambda: account.rename("a~", "c"))
        assert outbox.step(parked).action is Action.WITHDRAW
        await outbox.carry(parked)
        if happened == "deleted":
            assert account.names_in() == {"a"}
            return
        if happened == "renamed back":
            assert account.bytes_of("c") is None
            assert not parked.is_new
            assert account.left() == {"Zone/c": "MOVED", "Zone/a": "MOVED"}
            return
        assert parked.is_new
        assert account.bytes_of("a~") == (b"edited" if happened == "edited before" else b"a")
        assert account.left() == {"Zone/a": "MOVED", "-Zone/a": "REMOVED"}
        (ghost,) = [one.ino for one in state.intents.all() if one.gone]
        for ino in (ghost, account.at("a").ino):
            await outbox.carry(state.inodes.get(ino))
        assert account.bob.tree() == {"a": b"b"}
        assert account.left() == {}


async def test_a_version_that_is_not_newer_is_no_reason_to_copy_again(account: Account) -> None:
    """A local edit is never replaced by what the service has."""
    account.bob.write("a", b"old")
    async with account.running():
        state, service, inode = account.state, account.service, account.at("a")
        former = inode.revision
        assert not await refresh_version(state, service, inode)
        account.bob.write("a", b"newer")
        account.save("a", b"edited")
        assert not await refresh_version(state, service, inode)
        assert inode.revision == former
        with state.transaction():
            state.inodes.update(inode, generation=0)
        assert not await refresh_version(state, service, inode)
        with state.transaction():
            state.intents.drop(inode.ino)
        assert await refresh_version(state, service, inode)
        assert inode.revision == (await account.entry(inode)).revision
        account.bob.write("a", b"newest")
        assert await refresh_version(state, service, inode)
        account.bob.delete("a")
        with pytest.raises(NotFound):
            await refresh_version(state, service, inode)


@pytest.mark.parametrize("failing", ["an outage", "a full disk", "a bug"])
async def test_a_listing_that_fails_is_an_error_of_its_folder_only(
    account: Account, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every waiting program gets the error; the next listing is requested again."""
    account.bob.make_folder("f")
    errors: dict[str, Exception] = {
        "a full disk": OSError(28, "No space left on device"), "a bug": RuntimeError("a bug")
    }  # fmt: skip

    def fail() -> None:
        if failing in errors:
            raise errors[failing]

    async with account.running():
        folder = account.at("f")
        if failing == "an outage":
            account.world.fault(status=500, method="GET", path="/folder/")
        for _ in range(2):
            account.meanwhile(r"GET .*/folder/", fail)
            with pytest.raises((ZonedriveError, OSError, RuntimeError)):
                await account.folders.ensure(folder)
        account.world.heal()
        account.service.actions.clear()
        await account.folders.ensure(folder)
        assert folder.listed
    logged = {"a full disk": "could not be stored", "a bug": "could not be merged"}
    assert logged.get(failing, "") in caplog.text
    assert ("could not be" in caplog.text) == (failing in logged)


async def test_the_new_file_at_a_place(account: Account) -> None:
    """Only a new file in a folder that is shown can take over an entry."""
    account.bob.write("known", b"old")
    async with account.running():
        state, zone = account.state, account.zone.ino
        views = InodeViews(state)
        account.save("new", b"new")
        folder = account.make("folder").ino
        account.save("folder/inner", b"inner")
        assert views.occupant((zone, "new")) == account.at("new").ino
        assert views.occupant((folder, "inner")) == account.at("folder/inner").ino
        for place in ((zone, "known"), (zone, "folder"), (zone, "none"), (900, "new")):
            assert views.occupant(place) == 0
        with state.transaction():
            state.inodes.unlink(state.inodes.get(folder), tombstone=True)
        assert views.occupant((folder, "inner")) == 0


@pytest.mark.parametrize("is_new", [False, True], ids=["moved", "new"])
@pytest.mark.parametrize("change", ["removed", "parked", "renamed"])
async def test_the_place_of_a_file_at_a_former_display_name(
    account: Account, change: str, is_new: bool
) -> None:
    """A new file has the place of the former entry; a moved file only that of a parked file."""
    account.bob.write("a\tb", b"old")
    account.bob.write("other", b"other")
    async with account.running():
        state, zone, old = account.state, account.zone.ino, account.at("a\u2409b")
        views = InodeViews(state)
        if change == "removed":
            account.remove("a\u2409b")
        else:
            account.rename("a\u2409b", "old~" if change == "parked" else "old")
        if is_new:
            account.save("a\u2409b", b"new")
        else:
            account.rename("other", "a\u2409b")
        later = account.at("a\u2409b")
        here, former = views.describe(later.ino, {}), views.describe(old.ino, {})
        assert here is not None
        assert former is not None
        assert (former.origin, former.shown) == ((zone, "a\tb"), (zone, "a\u2409b"))
        has_place = is_new or change == "parked"
        assert here.place == (former.origin if has_place else former.shown)
        assert views.occupant((zone, "a\u2409b")) == (later.ino if is_new else 0)


async def test_the_facts_that_the_order_of_steps_needs(account: Account) -> None:
    """Each inode is described by its places here and on the service."""
    for name in ("f", "f/g", "h"):
        account.bob.make_folder(name)
    account.bob.write("f/g/a", b"old")
    async with account.running():
        for path in ("f", "f/g"):
            await account.folders.ensure(account.at(path))
        state, zone = account.state, account.zone.ino
        views = InodeViews(state)
        inos = {path: account.at(path).ino for path in ("f", "f/g", "f/g/a", "h")}
        account.rename("f/g/a", "b")
        account.rename("f/g", "h/g")
        account.save("new", b"new")
        new = account.at("new")
        above = (inos["f/g"], inos["f"], zone)
        assert views.describe(inos["f/g/a"], {}) == InodeView(
            inos["f/g/a"], False, False, (zone, "b"), (inos["f/g"], "a"), above, ()
        )
        assert views.describe(inos["f/g"], {}) == InodeView(
            inos["f/g"], True, False, (inos["h"], "g"), (inos["f"], "g"), above[1:], (zone,)
        )
        assert views.describe(new.ino, {}) == InodeView(
            new.ino, False, True, (zone, "new"), None, (), ()
        )
        request = account.ask(new)
        described = views.describe(new.ino, {})
        assert described is not None
        assert described.origin == (zone, "new")
        with state.transaction():
            state.inodes.unlink(new, tombstone=True)
        assert views.describe(new.ino, {}) is not None
        state.resolved(request)
        assert views.describe(new.ino, {}) is None
        assert views.describe(900, {}) is None
