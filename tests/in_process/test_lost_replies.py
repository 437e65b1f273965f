"""Requests that took effect, but whose answer was lost, are looked up and not repeated.

In every case the service ends up with exactly the local files, once.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.harness.fake_service import FakeService, Node
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from zonedrive.model import Entry
from zonedrive.remote.wire.error_mapping import refusal

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}
LOG = ("offline", "reach", "reply", "answer", "upload", "stays on the service")

pytestmark = pytest.mark.mount("settle=0")


@contextmanager
def unanswered(desk: Mounted, done: Callable[[], object], **request: str) -> Iterator[None]:
    """Let the first such request of the block take effect without an answer; later ones stall."""
    desk.allow(*LOG)
    desk.deployment.fault(drop_reply=True, times=1, **request)
    yield
    eventually(done, what="it took effect")
    desk.deployment.fault(down=True)


@contextmanager
def lost_upload(desk: Mounted, name: str, content: bytes) -> Iterator[None]:
    """Upload `content` as `name` without an answer, run the block, then end the fault."""
    with unanswered(
        desk,
        lambda: desk.zone.find(name) is not None and desk.zone.read(name) == content,
        method="POST",
        path="^/api/zones/",
    ):
        (desk.root / name).write_bytes(content)
    yield
    desk.deployment.heal()
    desk.sync()


def is_away(desk: Mounted) -> bool:
    """Return True if the daemon knows that the service is unreachable, after a read of uncached
    data."""
    with suppress(OSError):
        desk.names(desk.root / "docs")
    return bool(desk.status()["state"] == "offline")


def both(desk: Mounted) -> dict[str, bytes | None]:
    """Return the service's tree, after checking that the local one is equal."""
    there = desk.zone.tree()
    here = {
        str(path.relative_to(desk.root)): path.read_bytes() if path.is_file() else None
        for path in desk.root.rglob("*")
    }
    assert here == there
    assert desk.status()["outbox"] == {
        "pending": 0, "uploading": 0, "failed": 0, "conflicts": 0, "bytes": 0
    }  # fmt: skip
    eventually(lambda: not desk.outgoing(), what="no bytes are left")
    return there


@pytest.mark.also_mounted(name="notes.txt", change="edit")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("change", ["nothing", "edit", "edit of equal size"])
def test_a_kill_after_an_upload_without_an_answer(desk: Mounted, name: str, change: str) -> None:
    """The daemon died before the answer: the version is not sent again, and there is no
    conflict."""
    data = {"nothing": b"one\n", "edit": b"two!!\n", "edit of equal size": b"two\n"}[change]
    with lost_upload(desk, name, b"one\n"):
        desk.kill()
        desk.mount()
        if change != "nothing":
            (desk.root / name).write_bytes(data)
    assert both(desk).keys() == both(desk).keys() | {name}
    assert desk.zone.read(name) == data
    sent = (name == "notes.txt") + 1 + (change != "nothing")
    assert len(desk.zone.versions(name)) == sent


@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_reply_to_a_file_that_was_removed(
    desk: Mounted, name: str, killed: bool, edited: bool
) -> None:
    """The file is removed from the service, too, although the version there is not known here."""
    with lost_upload(desk, name, b"one\n"):
        if edited:
            (desk.root / name).write_bytes(b"two!!\n")
        (desk.root / name).unlink()
        if killed:
            desk.kill()
            desk.mount()
    assert name not in both(desk)


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_reply_to_a_file_that_was_renamed(desk: Mounted, killed: bool) -> None:
    """The file is renamed on the service: one file, one version."""
    with lost_upload(desk, "new.txt", b"one\n"):
        (desk.root / "new.txt").rename(desk.root / "renamed.txt")
        if killed:
            desk.kill()
            desk.mount()
    assert "new.txt" not in both(desk)
    assert len(desk.zone.versions("renamed.txt")) == 1


def test_a_lost_reply_to_a_file_that_was_renamed_over_another(desk: Mounted) -> None:
    """The other file gets one new version, and the temporary name is gone."""
    before = desk.zone.entry_id("notes.txt")
    with lost_upload(desk, "notes.tmp", b"one\n"):
        (desk.root / "notes.tmp").rename(desk.root / "notes.txt")
    assert "notes.tmp" not in both(desk)
    assert desk.zone.entry_id("notes.txt") == before
    assert desk.zone.read("notes.txt") == b"one\n"
    assert len(desk.zone.versions("notes.txt")) == 2


@pytest.mark.mount("settle=0", profile="published")
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("other", ["nothing", "new file", "exchange"])
def test_a_lost_reply_to_a_file_that_cannot_be_renamed(
    desk: Mounted, other: str, killed: bool
) -> None:
    """The file is sent again under its new name. The sent one stays, unless it gets a version."""
    with lost_upload(desk, "new.txt", b"one\n"):
        if other != "nothing":
            (desk.root / "renamed.txt").write_bytes(b"other\n")
        if other == "exchange":
            desk.exchange(desk.root / "new.txt", desk.root / "renamed.txt")
        else:
            (desk.root / "new.txt").rename(desk.root / "renamed.txt")
        if killed:
            desk.kill()
            desk.mount()
        desk.deployment.heal()
        told = desk.command("sync", timeout=60.0)
    stays = {f"{desk.root.name}/new.txt"} if other != "exchange" else set()
    assert {each["path"] for each in told["taken_back"]} == stays
    there = both(desk)
    assert there["renamed.txt"] == b"one\n"
    assert there["new.txt"] == (b"other\n" if other == "exchange" else b"one\n")


def test_a_lost_reply_with_a_temporary_name(
    desk: Mounted,
) -> None:
    """The same bytes were sent twice, with only one answer: the temporary name is deleted, too."""
    desk.allow(*LOG)
    desk.deployment.fault(drop_reply=True, times=1, method="POST", path="^/api/zones/")
    desk.deployment.fault(latency_ms=1500, method="GET", path="/folder/")
    (desk.root / "notes.tmp").write_bytes(b"one\n")
    eventually(lambda: desk.zone.find("notes.tmp") is not None, what="it took effect")
    (desk.root / "notes.tmp").rename(desk.root / "notes.txt")
    eventually(lambda: len(desk.zone.versions("notes.txt")) == 2, what="the version is there")
    desk.deployment.heal()
    desk.sync()
    assert "notes.tmp" not in both(desk)
    assert len(desk.zone.versions("notes.txt")) == 2


def test_a_lost_reply_to_a_file_that_became_local(desk: Mounted) -> None:
    """A file that gets a local-only name is deleted on the service."""
    with lost_upload(desk, "new.txt", b"one\n"):
        (desk.root / "new.txt").rename(desk.root / "new.txt~")
    assert set(desk.zone.listing()) == SEEDED
    assert (desk.root / "new.txt~").read_bytes() == b"one\n"


def test_a_lost_reply_to_a_file_that_was_created_again(desk: Mounted) -> None:
    """A file that was removed and created again is one file, without a conflict."""
    with lost_upload(desk, "new.txt", b"one\n"):
        (desk.root / "new.txt").unlink()
        (desk.root / "new.txt").write_bytes(b"two!!\n")
    assert both(desk)["new.txt"] == b"two!!\n"
    assert set(desk.zone.listing()) == SEEDED | {"new.txt"}


def test_a_name_that_is_free_again_is_not_mixed_up(desk: Mounted) -> None:
    """The renamed file and another one created under its name are two files."""
    with lost_upload(desk, "new.txt", b"one\n"):
        (desk.root / "new.txt").rename(desk.root / "old.txt")
        (desk.root / "new.txt").write_bytes(b"two!!\n")
    there = both(desk)
    assert (there["new.txt"], there["old.txt"]) == (b"two!!\n", b"one\n")
    assert set(desk.zone.listing()) == SEEDED | {"new.txt", "old.txt"}


@pytest.mark.parametrize("change", ["rename", "remove", "nothing"])
def test_a_lost_reply_to_a_new_folder(desk: Mounted, change: str) -> None:
    """The folder is renamed or removed on the service, and never created twice."""
    made = {"method": "POST", "path": "^/api/sandbox/"}
    with unanswered(desk, lambda: desk.zone.find("made"), **made):
        (desk.root / "made").mkdir()
    if change == "rename":
        (desk.root / "made").rename(desk.root / "renamed")
    elif change == "remove":
        (desk.root / "made").rmdir()
    desk.kill()
    desk.mount()
    desk.deployment.heal()
    desk.sync()
    left = {"rename": {"renamed"}, "remove": set(), "nothing": {"made"}}[change]
    both(desk)
    assert set(desk.zone.listing()) == SEEDED | left


def test_a_lost_reply_to_a_folder_that_was_moved(desk: Mounted) -> None:
    """Another folder gets its name, and the first folder is moved into that one on both sides."""
    made = {"method": "POST", "path": "^/api/sandbox/"}
    with unanswered(desk, lambda: desk.zone.find("made"), **made):
        (desk.root / "made").mkdir()
    (desk.root / "new").mkdir()
    (desk.root / "made").rename(desk.root / "new/inner")
    (desk.root / "new").rename(desk.root / "made")
    desk.deployment.heal()
    desk.sync()
    assert both(desk).keys() >= {"made", "made/inner"}
    assert set(desk.zone.listing()) == SEEDED | {"made"}


def test_a_lost_reply_to_a_removal(desk: Mounted) -> None:
    """The removal is complete; a new file of that name is a new file."""
    gone = {"method": "DELETE", "path": "^/api/sandbox/"}
    before = desk.zone.entry_id("notes.txt")
    with unanswered(desk, lambda: desk.zone.find("notes.txt") is None, **gone):
        (desk.root / "notes.txt").unlink()
    (desk.root / "notes.txt").write_bytes(b"again\n")
    desk.deployment.heal()
    desk.sync()
    assert both(desk)["notes.txt"] == b"again\n"
    assert desk.zone.entry_id("notes.txt") != before


def test_a_rename_and_an_edit_around_a_lost_answer(desk: Mounted) -> None:
    """A file that is renamed without an answer and then edited is one file, without a conflict."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    before = desk.zone.entry_id("notes.txt")
    with unanswered(desk, lambda: desk.zone.find("final.txt"), **moved):
        (desk.root / "notes.txt").rename(desk.root / "final.txt")
    (desk.root / "final.txt").write_bytes(b"edited\n")
    desk.deployment.heal()
    desk.sync()
    assert both(desk)["final.txt"] == b"edited\n"
    assert desk.zone.entry_id("final.txt") == before
    assert len(desk.zone.versions("final.txt")) == 2


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("change", ["edit before", "edit", "edit of equal size", "remove"])
def test_a_change_after_a_lost_answer_of_a_service_that_counts_renames(
    desk: Mounted, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename has changed the time of the version, but its bytes are known."""
    world = virtual(desk).deployment.world
    move, before = world.move, desk.zone.read("notes.txt")

    def counted(zone_id: str, entry_id: str, parent_id: str, name: str, user: str) -> Node:
        node = move(zone_id, entry_id, parent_id, name, user)
        node.modified_us, node.modified_by = world.now_us(), user
        return node

    monkeypatch.setattr(world, "move", counted)
    path, edited = desk.root / "final.txt", before.upper() if "equal" in change else b"edited\n"
    assert (desk.root / "notes.txt").read_bytes() == before
    with unanswered(desk, lambda: desk.zone.find("final.txt"), method="PUT"):
        (desk.root / "notes.txt").rename(path)
        if change == "edit before":
            path.write_bytes(edited)
    if change == "remove":
        path.unlink()
    elif change != "edit before":
        path.write_bytes(edited)
    desk.deployment.heal()
    desk.sync()
    expected = {} if change == "remove" else {"final.txt": edited}
    assert {name: data for name, data in both(desk).items() if "final" in name} == expected


def test_a_rename_without_an_answer_that_is_taken_back(desk: Mounted) -> None:
    """If the rename is reverted locally, it is reverted on the service, too."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    with unanswered(desk, lambda: desk.zone.find("final.txt"), **moved):
        (desk.root / "notes.txt").rename(desk.root / "final.txt")
    eventually(lambda: is_away(desk), what="the move is over")
    (desk.root / "final.txt").rename(desk.root / "on-the-way.txt")
    (desk.root / "on-the-way.txt").rename(desk.root / "notes.txt")
    desk.deployment.heal()
    desk.sync()
    assert set(both(desk)) >= {"notes.txt"}
    assert set(desk.zone.listing()) == SEEDED


@pytest.mark.parametrize("killed", [False, True])
def test_a_name_that_a_rename_without_an_answer_took(desk: Mounted, killed: bool) -> None:
    """Two names that are exchanged around such a rename end up as they are locally."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    with unanswered(desk, lambda: desk.zone.find("final.txt"), **moved):
        (desk.root / "notes.txt").rename(desk.root / "final.txt")
    eventually(lambda: is_away(desk), what="the move is over")
    (desk.root / "final.txt").rename(desk.root / "on-the-way.txt")
    (desk.root / "empty").rename(desk.root / "final.txt")
    (desk.root / "on-the-way.txt").rename(desk.root / "empty")
    if killed:
        desk.kill()
        desk.mount()
    desk.deployment.heal()
    desk.sync()
    there = both(desk)
    assert (there["empty"], there["final.txt"]) == (b"first line\nsecond line\n", b"")
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"} | {"final.txt"}


@pytest.mark.mount("settle=0", "refresh=0")
def test_a_renamed_file_with_a_lost_reply_does_not_reappear(desk: Mounted) -> None:
    """A file that was renamed or removed meanwhile does not appear under its former name."""
    with lost_upload(desk, "new.txt", b"one\n"):
        (desk.root / "new.txt").rename(desk.root / "renamed.txt")
        desk.kill()
        desk.deployment.heal()
        with desk.deployment.faulty(status=503, method="GET", path="^/api/zones/.*/files/"):
            desk.mount()
            desk.names(desk.root)
            seen = {name for _ in range(20) for name in desk.names(desk.root)}
        assert seen == SEEDED | {"renamed.txt"}
    assert set(desk.zone.listing()) == SEEDED | {"renamed.txt"}


@pytest.mark.parametrize(("name", "number"), [("notes.txt", 3), ("new.txt", 2)])
def test_a_coworkers_version_after_a_lost_reply(desk: Mounted, name: str, number: int) -> None:
    """Both versions are in the history, in order, without a conflict or another upload."""
    with lost_upload(desk, name, b"by alice\n"):
        desk.zone.write(name, b"by bob, later\n")
    path = desk.root / name
    eventually(lambda: path.read_bytes() == b"by bob, later\n", what="it shows")
    assert both(desk)[name] == b"by bob, later\n"
    assert len(desk.zone.versions(name)) == number


@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
@pytest.mark.parametrize(("later", "conflicts"), [(5, 0), (6, 1)])
def test_coworkers_versions_after_a_lost_reply(
    desk: Mounted, name: str, later: int, conflicts: int
) -> None:
    """The sent version is searched among the newest six; an older one is kept as a copy, too."""
    desk.allow("conflict copy")
    with lost_upload(desk, name, b"by alice\n"):
        for number in range(1, later + 1):
            desk.zone.write(name, b"by bob, %d\n" % number)
    path = desk.root / name
    eventually(lambda: path.read_bytes() == b"by bob, %d\n" % later, what="it shows")
    assert desk.status()["outbox"]["conflicts"] == conflicts
    copies = [data for each, data in desk.zone.tree().items() if "conflict" in each]
    assert copies == [b"by alice\n"] * conflicts


@pytest.mark.parametrize(
    ("name", "is_away", "is_shown"),
    [
        ("docs", False, False),
        ("docs", True, True),
        ("back", False, False),
        ("back", True, False),
        ("back", True, True),
    ],
)
def test_a_move_out_of_the_trash(desk: Mounted, name: str, is_away: bool, is_shown: bool) -> None:
    """The entry gets the wanted name, at the latest in the second attempt."""
    desk.allow(*LOG)
    trashed = desk.path / f".Trash-{os.getuid()}/files/docs"
    before = desk.zone.entry_id("docs")
    content = desk.zone.tree("docs")
    (desk.root / "docs").rename(trashed)
    desk.sync()
    desk.deployment.fault(drop_reply=True, times=1, path="restore$")
    if is_away:
        desk.deployment.fault(status=503, method="GET", path=f"/files/{before}$")
        with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.EREMOTEIO):
            trashed.rename(desk.root / name)
        desk.deployment.heal()
        time.sleep(20)  # in virtual time, until the connection is checked again
    if is_shown:
        eventually(lambda: "docs" in desk.names(desk.root), what="the restored folder shows")
    trashed.rename(desk.root / name)
    desk.sync()
    assert desk.zone.entry_id(name) == before
    assert set(desk.names(desk.root)) == SEEDED - {"docs"} | {name}
    assert {path.partition("/")[2] for path in desk.zone.tree(name)} == {
        path.partition("/")[2] for path in content
    }
    assert not trashed.exists()


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_lost_answer_to_a_rename_and_a_coworkers_version(desk: Mounted) -> None:
    """The version that is cached here can be read until the newer one is known."""
    before, path = desk.zone.read("notes.txt"), desk.root / "final.txt"
    assert (desk.root / "notes.txt").read_bytes() == before
    with unanswered(desk, lambda: desk.zone.find("final.txt"), method="PUT"):
        (desk.root / "notes.txt").rename(path)
    desk.zone.write("final.txt", before + b"more\n")
    desk.deployment.heal()
    desk.sync()
    desk.deployment.fault(down=True)
    assert path.read_bytes() == before


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("status", [401, 423, 429])
@pytest.mark.parametrize("change", ["mkdir", "rename"])
def test_a_change_without_an_entry_in_its_answer_is_undone(
    desk: Mounted, change: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service refuses the question about the entry. Before, the undone change stayed there."""
    desk.allow("refused", "logon")
    make = FakeService._change

    async def no_entry(service: FakeService, *args: Any) -> Entry:
        monkeypatch.setattr(FakeService, "_change", make)
        await make(service, *args)
        error = refusal(status, b"", "asking for an entry")
        error.is_partial = True
        raise error

    monkeypatch.setattr(FakeService, "_change", no_entry)
    if change == "mkdir":
        (desk.root / "made").mkdir()
        eventually(lambda: desk.zone.find("made"), what="it took effect")
        (desk.root / "made").rmdir()
    else:
        (desk.root / "notes.txt").rename(desk.root / "final.txt")
        eventually(lambda: desk.zone.find("final.txt"), what="it took effect")
        (desk.root / "final.txt").rename(desk.root / "notes.txt")
    desk.sync()
    both(desk)
    assert set(desk.zone.listing()) == SEEDED
