"""The service did what it was asked, and its answer never came: it is found out, not repeated.

In every case the service ends up with what is in the folder here, once, and nothing beside it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}
LOG = ("offline", "reach", "reply", "answer", "upload", "stays on the service")

pytestmark = pytest.mark.mount("settle=0")


@contextmanager
def unanswered(mounted: Mounted, done: Callable[[], object], **request: str) -> Iterator[None]:
    """The block's first such request takes effect without an answer, and then all is silent."""
    mounted.allow(*LOG)
    mounted.deployment.fault(drop_reply=True, times=1, **request)
    yield
    eventually(done, what="it took effect")
    mounted.deployment.fault(down=True)


@contextmanager
def lost_upload(mounted: Mounted, name: str, content: bytes) -> Iterator[None]:
    """`name` gets `content`, the service has it, nobody here knows; the block, then peace."""
    with unanswered(
        mounted,
        lambda: mounted.zone.find(name) is not None and mounted.zone.read(name) == content,
        method="POST",
        path="^/api/zones/",
    ):
        (mounted.root / name).write_bytes(content)
    yield
    mounted.deployment.heal()
    mounted.sync()


def is_away(mounted: Mounted) -> bool:
    """Whether the daemon knows that the service is away, asked for what only the service has."""
    with suppress(OSError):
        os.listdir(mounted.root / "docs")
    return bool(mounted.status()["state"] == "offline")


def both(mounted: Mounted) -> dict[str, bytes | None]:
    """The service's tree, which is the one here."""
    there = mounted.zone.tree()
    here = {
        str(path.relative_to(mounted.root)): path.read_bytes() if path.is_file() else None
        for path in mounted.root.rglob("*")
    }
    assert here == there
    assert mounted.status()["outbox"] == {
        "pending": 0, "uploading": 0, "failed": 0, "conflicts": 0, "bytes": 0
    }  # fmt: skip
    eventually(lambda: not os.listdir(mounted.machine.state / "outgoing"), what="no bytes are left")
    return there


@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("change", ["nothing", "edit", "edit of equal size"])
def test_a_kill_after_an_upload_without_an_answer(mounted: Mounted, name: str, change: str) -> None:
    """The daemon died before it knew that the version arrived: not sent again, no conflict."""
    data = {"nothing": b"one\n", "edit": b"two!!\n", "edit of equal size": b"two\n"}[change]
    with lost_upload(mounted, name, b"one\n"):
        mounted.kill()
        mounted.mount()
        if change != "nothing":
            (mounted.root / name).write_bytes(data)
    assert both(mounted).keys() == both(mounted).keys() | {name}
    assert mounted.zone.read(name) == data
    sent = (name == "notes.txt") + 1 + (change != "nothing")
    assert len(mounted.zone.versions(name)) == sent


@pytest.mark.parametrize("killed", [False, True])
def test_a_new_file_that_arrived_unnoticed_and_was_removed(mounted: Mounted, killed: bool) -> None:
    """It is removed from the service, too."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").unlink()
        if killed:
            mounted.kill()
            mounted.mount()
    assert "new.txt" not in both(mounted)


@pytest.mark.parametrize("killed", [False, True])
def test_a_new_file_that_arrived_unnoticed_and_was_renamed(mounted: Mounted, killed: bool) -> None:
    """It is renamed on the service: one file, one version."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").rename(mounted.root / "renamed.txt")
        if killed:
            mounted.kill()
            mounted.mount()
    assert "new.txt" not in both(mounted)
    assert len(mounted.zone.versions("renamed.txt")) == 1


def test_a_new_file_that_arrived_unnoticed_and_was_renamed_over_another(mounted: Mounted) -> None:
    """The other one gets one new version, and the temporary name is gone."""
    before = mounted.zone.entry_id("notes.txt")
    with lost_upload(mounted, "notes.tmp", b"one\n"):
        (mounted.root / "notes.tmp").rename(mounted.root / "notes.txt")
    assert "notes.tmp" not in both(mounted)
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == b"one\n"
    assert len(mounted.zone.versions("notes.txt")) == 2


def test_one_that_became_a_version_before_its_temporary_name_was_looked_for(
    mounted: Mounted,
) -> None:
    """The same bytes were sent twice, and only one answer came: the temporary name goes, too."""
    mounted.allow(*LOG)
    mounted.deployment.fault(drop_reply=True, times=1, method="POST", path="^/api/zones/")
    mounted.deployment.fault(latency_ms=1500, method="GET", path="/folder/")
    (mounted.root / "notes.tmp").write_bytes(b"one\n")
    eventually(lambda: mounted.zone.find("notes.tmp") is not None, what="it took effect")
    (mounted.root / "notes.tmp").rename(mounted.root / "notes.txt")
    eventually(lambda: len(mounted.zone.versions("notes.txt")) == 2, what="the version is there")
    mounted.deployment.heal()
    mounted.sync()
    assert "notes.tmp" not in both(mounted)
    assert len(mounted.zone.versions("notes.txt")) == 2


def test_a_new_file_that_arrived_unnoticed_and_became_a_local_one(mounted: Mounted) -> None:
    """A name that never leaves this machine is not left behind on the service either."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").rename(mounted.root / "new.txt~")
    assert set(mounted.zone.listing()) == SEEDED
    assert (mounted.root / "new.txt~").read_bytes() == b"one\n"


def test_a_new_file_that_arrived_unnoticed_and_was_written_anew(mounted: Mounted) -> None:
    """Removed and made again under its name, it is one file, without a conflict."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").unlink()
        (mounted.root / "new.txt").write_bytes(b"two!!\n")
    assert both(mounted)["new.txt"] == b"two!!\n"
    assert set(mounted.zone.listing()) == SEEDED | {"new.txt"}


def test_a_name_that_is_free_again_is_not_mixed_up(mounted: Mounted) -> None:
    """Renamed away after it arrived unnoticed, and another file made there: two files."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").rename(mounted.root / "old.txt")
        (mounted.root / "new.txt").write_bytes(b"two!!\n")
    there = both(mounted)
    assert (there["new.txt"], there["old.txt"]) == (b"two!!\n", b"one\n")
    assert set(mounted.zone.listing()) == SEEDED | {"new.txt", "old.txt"}


@pytest.mark.parametrize("change", ["rename", "remove", "nothing"])
def test_a_folder_that_was_made_unnoticed(mounted: Mounted, change: str) -> None:
    """Renamed or removed since, that is what the service does with it; never a second one."""
    made = {"method": "POST", "path": "^/api/sandbox/"}
    with unanswered(mounted, lambda: mounted.zone.find("made"), **made):
        (mounted.root / "made").mkdir()
    if change == "rename":
        (mounted.root / "made").rename(mounted.root / "renamed")
    elif change == "remove":
        (mounted.root / "made").rmdir()
    mounted.kill()
    mounted.mount()
    mounted.deployment.heal()
    mounted.sync()
    left = {"rename": {"renamed"}, "remove": set(), "nothing": {"made"}}[change]
    both(mounted)
    assert set(mounted.zone.listing()) == SEEDED | left


def test_a_folder_that_was_made_unnoticed_and_put_into_its_successor(mounted: Mounted) -> None:
    """Another folder gets its name, and it a place in there: both end up so."""
    made = {"method": "POST", "path": "^/api/sandbox/"}
    with unanswered(mounted, lambda: mounted.zone.find("made"), **made):
        (mounted.root / "made").mkdir()
    (mounted.root / "new").mkdir()
    (mounted.root / "made").rename(mounted.root / "new/inner")
    (mounted.root / "new").rename(mounted.root / "made")
    mounted.deployment.heal()
    mounted.sync()
    assert both(mounted).keys() >= {"made", "made/inner"}
    assert set(mounted.zone.listing()) == SEEDED | {"made"}


def test_a_removal_that_was_carried_out_unnoticed(mounted: Mounted) -> None:
    """It is over; a new file of that name is a new file."""
    gone = {"method": "DELETE", "path": "^/api/sandbox/"}
    before = mounted.zone.entry_id("notes.txt")
    with unanswered(mounted, lambda: mounted.zone.find("notes.txt") is None, **gone):
        (mounted.root / "notes.txt").unlink()
    (mounted.root / "notes.txt").write_bytes(b"again\n")
    mounted.deployment.heal()
    mounted.sync()
    assert both(mounted)["notes.txt"] == b"again\n"
    assert mounted.zone.entry_id("notes.txt") != before


def test_a_rename_and_an_edit_around_a_lost_answer(mounted: Mounted) -> None:
    """Renamed without an answer, then edited: one file under its new name, no conflict."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    before = mounted.zone.entry_id("notes.txt")
    with unanswered(mounted, lambda: mounted.zone.find("final.txt"), **moved):
        (mounted.root / "notes.txt").rename(mounted.root / "final.txt")
    (mounted.root / "final.txt").write_bytes(b"edited\n")
    mounted.deployment.heal()
    mounted.sync()
    assert both(mounted)["final.txt"] == b"edited\n"
    assert mounted.zone.entry_id("final.txt") == before
    assert len(mounted.zone.versions("final.txt")) == 2


def test_a_rename_without_an_answer_that_is_taken_back(mounted: Mounted) -> None:
    """Renamed without an answer, then renamed back: that is what the service is told, too."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    with unanswered(mounted, lambda: mounted.zone.find("final.txt"), **moved):
        (mounted.root / "notes.txt").rename(mounted.root / "final.txt")
    eventually(lambda: is_away(mounted), what="the move is over")
    (mounted.root / "final.txt").rename(mounted.root / "on-the-way.txt")
    (mounted.root / "on-the-way.txt").rename(mounted.root / "notes.txt")
    mounted.deployment.heal()
    mounted.sync()
    assert set(both(mounted)) >= {"notes.txt"}
    assert set(mounted.zone.listing()) == SEEDED


@pytest.mark.parametrize("killed", [False, True])
def test_a_name_that_a_rename_without_an_answer_took(mounted: Mounted, killed: bool) -> None:
    """Two names that change hands around such a rename end up as they are here."""
    moved = {"method": "PUT", "path": "^/api/sandbox/"}
    with unanswered(mounted, lambda: mounted.zone.find("final.txt"), **moved):
        (mounted.root / "notes.txt").rename(mounted.root / "final.txt")
    eventually(lambda: is_away(mounted), what="the move is over")
    (mounted.root / "final.txt").rename(mounted.root / "on-the-way.txt")
    (mounted.root / "empty").rename(mounted.root / "final.txt")
    (mounted.root / "on-the-way.txt").rename(mounted.root / "empty")
    if killed:
        mounted.kill()
        mounted.mount()
    mounted.deployment.heal()
    mounted.sync()
    there = both(mounted)
    assert (there["empty"], there["final.txt"]) == (b"first line\nsecond line\n", b"")
    assert set(mounted.zone.listing()) == SEEDED - {"notes.txt"} | {"final.txt"}


@pytest.mark.mount("settle=0", "refresh=0")
def test_what_arrived_unnoticed_does_not_come_back(mounted: Mounted) -> None:
    """A file that was renamed or removed meanwhile is not shown again under its former name."""
    with lost_upload(mounted, "new.txt", b"one\n"):
        (mounted.root / "new.txt").rename(mounted.root / "renamed.txt")
        mounted.kill()
        mounted.deployment.heal()
        with mounted.deployment.faulty(status=503, method="GET", path="^/api/zones/.*/files/"):
            mounted.mount()
            os.listdir(mounted.root)
            seen = {name for _ in range(20) for name in os.listdir(mounted.root)}
        assert seen == SEEDED | {"renamed.txt"}
    assert set(mounted.zone.listing()) == SEEDED | {"renamed.txt"}


def test_a_coworkers_version_on_top_of_one_that_arrived_unnoticed(mounted: Mounted) -> None:
    """Both are in the history, in their order; that is no conflict, and nothing is sent again."""
    with lost_upload(mounted, "notes.txt", b"by alice\n"):
        mounted.deployment.heal()
        with mounted.deployment.faulty(status=503, method="GET", path="^/api/zones/.*/files/"):
            mounted.zone.write("notes.txt", b"by bob, later\n")
    path = mounted.root / "notes.txt"
    eventually(lambda: path.read_bytes() == b"by bob, later\n", what="it shows")
    assert both(mounted)["notes.txt"] == b"by bob, later\n"
    assert len(mounted.zone.versions("notes.txt")) == 3
