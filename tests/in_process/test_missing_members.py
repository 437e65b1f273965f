"""Answers without the time or the author of a version, or without the folder of an entry."""

import os
import time

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from tests.in_process.test_precision import contents

pytestmark = pytest.mark.mount("settle=0", "refresh=0")

TIME, AUTHOR = "lastModified", "lastModifiedBy"
EVERYWHERE = ("listing", "entry", "answer")


@pytest.mark.parametrize("missing", [(TIME,), (AUTHOR,), (TIME, AUTHOR)], ids="-".join)
@pytest.mark.parametrize("where", [EVERYWHERE, ("answer",)], ids="-".join)
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_each_save_is_one_version(
    desk: Mounted, missing: tuple[str, ...], where: tuple[str, ...], name: str
) -> None:
    """An answer without them ends the upload, also if the saves have equal sizes."""
    before = contents(desk, name) if name == "notes.txt" else []
    virtual(desk).deployment.world.unsaid = {key: set(missing) for key in where}
    desk.names(desk.root)
    for text in ("one", "two", "six"):
        (desk.root / name).write_text(text)
        desk.sync()
        desk.names(desk.root)
        assert (desk.root / name).read_text() == text
    virtual(desk).loop.run(trio.sleep, 600)
    assert contents(desk, name) == [*before, "one", "two", "six"]
    assert not desk.conflicts()


@pytest.mark.parametrize("where", [("listing",), ("entry",), ("listing", "answer")], ids="-".join)
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_the_author_is_missing_in_some_answers(
    desk: Mounted, where: tuple[str, ...], name: str
) -> None:
    """The other members show that it is the same version."""
    before = contents(desk, name) if name == "notes.txt" else []
    virtual(desk).deployment.world.unsaid = {key: {AUTHOR} for key in where}
    for text in ("one", "two", "three"):
        desk.names(desk.root)
        (desk.root / name).write_text(text)
        desk.sync()
    assert contents(desk, name) == [*before, "one", "two", "three"]
    assert not desk.conflicts()


@pytest.mark.parametrize("missing", [(TIME,), (AUTHOR,), (TIME, AUTHOR)], ids="-".join)
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_a_save_whose_answer_is_lost_is_found_by_its_bytes(
    desk: Mounted, missing: tuple[str, ...], name: str
) -> None:
    """Without time and author, nothing else in an entry shows that it arrived."""
    desk.allow("offline", "reach", "reply", "answer")
    before = contents(desk, name) if name == "notes.txt" else []
    virtual(desk).deployment.world.unsaid = {key: set(missing) for key in EVERYWHERE}
    desk.names(desk.root)
    (desk.root / name).write_text("one")
    desk.sync()
    desk.deployment.fault(drop_reply=True, times=1, method="POST", path="^/api/zones/")
    (desk.root / name).write_text("two")
    desk.sync()
    assert contents(desk, name) == [*before, "one", "two"]
    assert not desk.conflicts()


def test_an_upload_that_cannot_be_found_is_not_sent_without_end(desk: Mounted) -> None:
    """The answer has no id, and the service stores the file under another name."""
    desk.allow("the answer is not an entry", "not sent, retry follows")
    mount = virtual(desk)
    world = mount.deployment.world
    world.unsaid["answer"] = {"id"}
    world.stored = lambda name: f"{name}.txt"
    desk.names(desk.root)
    (desk.root / "new").write_text("one")
    mount.loop.run(trio.sleep, 86_400)
    (upload,) = desk.status()["uploads"]
    assert upload["state"] == "failed" and "save it again" in upload["error"]
    assert 4 <= sum(request.startswith("POST /api/zones/") for request in world.requests) < 20


@pytest.mark.parametrize("outage", ["none", "errors", "full"])
def test_an_upload_with_one_unusable_answer_is_found_soon(desk: Mounted, outage: str) -> None:
    """The pauses after earlier failures of another kind do not delay the search for the file."""
    desk.allow("refused by the service", "not sent, retry follows")
    mount = virtual(desk)
    world = mount.deployment.world
    desk.names(desk.root)
    world.is_full = outage == "full"
    if outage == "errors":
        desk.deployment.fault(status=500, method="POST", path="^/api/zones/")
    (desk.root / "new.txt").write_text("one")
    if outage != "none":
        mount.loop.run(trio.sleep, 3600)
    world.is_full = False
    desk.deployment.heal()
    world.unsaid["answer"] = {"size"}
    eventually(lambda: desk.zone.find("new.txt") is not None, what="it arrives", seconds=600)
    world.unsaid.clear()
    mount.loop.run(trio.sleep, 15)
    assert desk.status()["uploads"] == []
    assert contents(desk, "new.txt") == ["one"]


@pytest.mark.parametrize("where", ["listing", "entry", "answer"])
def test_a_coworker_renames_a_file_to_the_name_of_a_new_one(desk: Mounted, where: str) -> None:
    """Both files stay if an answer does not tell the folder of an entry."""
    desk.allow("a conflict copy")
    virtual(desk).deployment.world.unsaid[where] = {"parentId"}
    desk.zone.write("theirs", b"by Bob\n")
    assert "theirs" in desk.names(desk.root)
    desk.command("pause")
    desk.zone.move("theirs", "plan")
    (desk.root / "plan").write_bytes(b"by Alice\n")
    time.sleep(2)
    assert len([name for name in desk.names(desk.root) if name.startswith("plan")]) == 2
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("plan") == (desk.root / "plan").read_bytes() == b"by Bob\n"
    (copy,) = (name for name in desk.zone.listing() if "conflict" in name)
    assert desk.zone.read(copy) == b"by Alice\n"


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_restored_file_is_shown_if_the_answer_does_not_tell_its_folder(desk: Mounted) -> None:
    """No new file can take its name."""
    virtual(desk).deployment.world.unsaid["answer"] = {"parentId"}
    path, identity = desk.root / "docs/report.md", desk.zone.entry_id("docs/report.md")
    path.unlink()
    desk.sync()
    desk.command("restore", entries=[identity])
    assert path.name in desk.names(path.parent)


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_file_from_the_trash_moves_on_if_the_answer_does_not_tell_its_folder(
    desk: Mounted,
) -> None:
    """The file is restored in its former folder first."""
    virtual(desk).deployment.world.unsaid["answer"] = {"parentId"}
    trashed = desk.path / f".Trash-{os.getuid()}" / "files" / "report.md"
    (desk.root / "docs/report.md").rename(trashed)
    trashed.rename(desk.root / "report.md")
    desk.sync()
    assert desk.zone.find("report.md") is not None
    assert desk.zone.find("docs/report.md") is None
