"""Names with a mark, which a folder shows for the second of two entries of one name."""

import re
import time
from pathlib import Path

import pytest

from tests.harness.in_process import ALICE
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import ZONE
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from zonedrive.sandbox.zones import Level
from zonedrive.state.names import local_name

pytestmark = pytest.mark.mount("settle=0", "refresh=0.2")


def copy_of(desk: Mounted, name: str, folder: str = "") -> str:
    """Return the only conflict copy of a name on the service."""
    mark = re.compile(re.escape(name) + r" \(conflict, alice@acme\.example on .+\)")
    (copy,) = (each for each in desk.zone.listing(folder) if mark.fullmatch(each))
    return copy


def marked(desk: Mounted, name: str) -> str:
    """Wait until a second entry of the name is shown; return the name with the mark."""
    found: list[str] = []

    def shows() -> bool:
        found[:] = [each for each in desk.names(desk.root) if each.startswith(f"{name}~")]
        return bool(found)

    eventually(shows, what="the second entry shows")
    return found[0]


def without_marks(desk: Mounted) -> bool:
    """Return True if no entry on the service has a name with a mark."""
    return not [path for path in desk.zone.tree() if "~" in path]


@pytest.mark.parametrize("is_free", [False, True], ids=["taken", "free"])
@pytest.mark.parametrize("is_listed", [False, True], ids=["unseen", "seen"])
def test_a_program_appends_to_a_deleted_file_under_a_name_with_a_mark(
    desk: Mounted, is_free: bool, is_listed: bool
) -> None:
    """The file is created again without the mark, or as a conflict copy."""
    desk.allow("deleted on the service")
    desk.command("pause")
    (desk.root / "notes.txt").rename(desk.root / "C")
    desk.zone.write("C", b"by Bob")
    with (desk.root / marked(desk, "C")).open("ab", buffering=0) as file:
        if is_free:
            (desk.root / "C").unlink()
        desk.zone.delete("C")
        if is_listed:
            time.sleep(3)
            desk.names(desk.root)
        file.write(b"by Alice")
    desk.command("resume")
    desk.sync()
    name = "C" if is_free else copy_of(desk, "C")
    assert desk.zone.read(name) == (desk.root / name).read_bytes() == b"by Alice"
    assert without_marks(desk)
    assert not [each for each in desk.names(desk.root) if "~" in each]


@pytest.mark.parametrize("is_free", [False, True], ids=["taken", "free"])
def test_a_deleted_file_that_was_edited_under_a_name_with_a_mark(
    desk: Mounted, is_free: bool
) -> None:
    """Its edit gets the name without the mark, or that of a conflict copy."""
    desk.allow("deleted on the service")
    before = desk.zone.read("notes.txt")
    desk.command("pause")
    (desk.root / "notes.txt").rename(desk.root / "C")
    desk.zone.write("C", b"by Bob")
    with (desk.root / marked(desk, "C")).open("ab") as file:
        file.write(b", by Alice")
    desk.zone.delete("C")
    if is_free:
        (desk.root / "C").unlink()
    desk.command("resume")
    desk.sync()
    name = "C" if is_free else copy_of(desk, "C")
    assert desk.zone.read(name) == (desk.root / name).read_bytes() == b"by Bob, by Alice"
    if not is_free:
        assert desk.zone.read("C") == (desk.root / "C").read_bytes() == before
    assert without_marks(desk)
    assert not [each for each in desk.names(desk.root) if "~" in each]
    (told,) = desk.conflicts()
    assert told["path"].endswith(name)


@pytest.mark.parametrize("is_free", [False, True], ids=["taken", "free"])
def test_a_file_that_was_edited_in_a_deleted_folder_with_a_mark(
    desk: Mounted, is_free: bool
) -> None:
    """Its folder is created again without the mark, or as a conflict copy."""
    desk.allow("deleted on the service")
    desk.command("pause")
    (desk.root / "docs").rename(desk.root / "C")
    desk.zone.make_folder("C")
    desk.zone.write("C/file", b"by Bob")
    with (desk.root / marked(desk, "C") / "file").open("ab") as file:
        file.write(b", by Alice")
    if is_free:
        desk.remove_tree(desk.root / "C")
    desk.zone.delete("C")
    time.sleep(5)
    desk.names(desk.root)
    desk.command("resume")
    desk.sync()
    name = "C" if is_free else copy_of(desk, "C")
    assert desk.zone.read(f"{name}/file") == b"by Bob, by Alice"
    assert (desk.root / name / "file").read_bytes() == b"by Bob, by Alice"
    assert is_free or desk.zone.find("C/report.md")
    assert without_marks(desk)
    assert not [each for each in desk.names(desk.root) if "~" in each]


def test_a_folder_and_one_that_a_coworker_renamed_to_its_name_are_united(desk: Mounted) -> None:
    """Files that both contain become conflict copies; folders that both contain are united."""
    desk.allow("deleted on the service", "taken in the united folder")
    folder = desk.root / "docs"
    (folder / ".report.swp").write_bytes(b"stays here")
    desk.sync()
    desk.zone.make_folder("x")
    eventually(lambda: "x" in desk.names(desk.root), what="the folder shows")
    desk.command("pause")
    desk.zone.delete("docs")
    desk.zone.move("x", "docs")
    other = desk.root / marked(desk, "docs")
    for place, text in (folder, b"one"), (other, b"two"):
        (place / "q").write_bytes(text)
        (place / "new").mkdir()
        (place / "new" / text.decode()).write_bytes(text)
        (place / "new" / "in both").write_bytes(text)
    desk.command("resume")
    desk.sync()
    copy = copy_of(desk, "q", "docs")
    inner = copy_of(desk, "in both", "docs/new")
    assert {desk.zone.read("docs/q"), desk.zone.read(f"docs/{copy}")} == {b"one", b"two"}
    wanted = {"in both", inner, "one", "two"}
    assert set(desk.zone.listing("docs/new")) == set(desk.names(folder / "new")) == wanted
    assert without_marks(desk)
    assert {told["path"].removeprefix("/").partition("/")[2] for told in desk.conflicts()} == {
        f"docs/{copy}", f"docs/new/{inner}"
    }  # fmt: skip


def settled(desk: Mounted, path: Path) -> list[str]:
    """Return the names in a folder, after checking that another listing changes none of them."""
    found = []
    for _ in range(3):
        desk.names(path)
        time.sleep(2)
        found.append(sorted(desk.names(path)))
    assert found[1] == found[2]
    return found[2]


def names_with_marks(name: str, entry_id: str) -> list[str]:
    """Return the three names that an entry can get if others of its folder have its name."""
    found = [name]
    for _ in range(3):
        found.append(local_name(name, entry_id, found))
    return found[1:]


def test_a_file_is_shown_although_its_names_with_a_mark_are_taken(desk: Mounted) -> None:
    """A coworker gives these names to other files. All are shown, and an edit reaches the file."""
    desk.zone.write("last", b"last")
    last = desk.zone.entry_id("last")
    for name in ("a\u2409b", *names_with_marks("a\u2409b", last)):
        desk.zone.write(name, b"other")
    before = settled(desk, desk.root)
    desk.zone.move("last", "a\tb")  # looks like the first of the other names
    after = settled(desk, desk.root)
    assert len(after) == len(before)
    (shown,) = {*after} - {*before}
    (desk.root / shown).write_bytes(b"edited")
    desk.sync()
    assert desk.zone.read("a\tb") == b"edited"
    assert desk.zone.entry_id("a\tb") == last
    desk.restart()
    assert settled(desk, desk.root) == after


def test_a_zone_is_shown_although_its_names_with_a_mark_are_taken(desk: Mounted) -> None:
    """Coworkers give these names to other zones; these and zones created later are shown."""
    service, members = virtual(desk).deployment.world, {ALICE: Level.MODIFY}
    last = service.add_zone("last", members)
    others = names_with_marks(ZONE, last)
    for name in others:
        service.add_zone(name, members)
    assert {*settled(desk, desk.path)} == {ZONE, "last", *others}
    service.zones[last].name = ZONE
    service.add_zone("later", members)
    after = settled(desk, desk.path)
    assert {*after} > {ZONE, "later", *others}
    assert len(after) == len(service.zones)


@pytest.mark.parametrize("change", ["deleted", "renamed", "left"])
def test_a_zone_loses_its_mark_when_its_name_is_unique(desk: Mounted, change: str) -> None:
    """Two zones have one name, until the first one is deleted, renamed or no longer the user's."""
    service = virtual(desk).deployment.world
    second = service.add_zone(ZONE, {ALICE: Level.MODIFY})
    service.plant(second, "in the second zone", b"x", user=ALICE)
    assert len(settled(desk, desk.path)) == 2
    if change == "deleted":
        del service.zones[desk.zone.id]
    elif change == "renamed":
        service.zones[desk.zone.id].name = "Other"
    else:
        service.set_level(desk.zone.id, ALICE, Level.NONE)
    assert settled(desk, desk.path) == (["Other", ZONE] if change == "renamed" else [ZONE])
    assert desk.names(desk.path / ZONE) == ["in the second zone"]


@pytest.mark.also_mounted
@pytest.mark.mount("settle=600", "refresh=60")
@pytest.mark.parametrize("is_exchange", [False, True], ids=["rename", "exchange"])
def test_both_spellings_of_a_renamed_file_lead_to_one_file(
    desk: Mounted, is_exchange: bool
) -> None:
    """The kernel does not keep the former file under the spelling that the rename used.

    The client tells the kernel after the rename, so that a program may be faster.
    """
    (desk.root / "draft").write_bytes(b"first")
    assert "draft" in desk.names(desk.root)
    (desk.root / "draft").stat()
    if is_exchange:
        (desk.root / "a\tb").write_bytes(b"other")
        desk.exchange(desk.root / "draft", desk.root / "a\tb")
    else:
        (desk.root / "draft").rename(desk.root / "a\tb")
    eventually(lambda: (desk.root / "a\u2409b").read_bytes() == b"first", what="the new name shows")
    (desk.root / "a\u2409b").rename(desk.root / "moved")
    (desk.root / "a\u2409b").write_bytes(b"second")
    eventually(
        lambda: (desk.root / "a\tb").read_bytes() == b"second",
        what="the other spelling shows the new file",
        seconds=20,
    )


@pytest.mark.parametrize("more", [10, 5001], ids=["small", "large"])
def test_a_mark_ends_when_its_name_is_unique(desk: Mounted, more: int) -> None:
    """A save under the plain name is then the next version, also in a large folder."""
    for number in range(more):
        desk.zone.write(f"docs/n{number:05}", b"x")
    desk.zone.write("docs/A", b"by Alice")
    docs = desk.root / "docs"
    eventually(lambda: "A" in desk.names(docs), what="the folder is listed")
    desk.command("pause")
    (docs / "A").rename(docs / "C")
    desk.zone.write("docs/C", b"by Bob")
    eventually(lambda: any(each.startswith("C~") for each in desk.names(docs)), what="the mark")
    (docs / "C").rename(docs / "D")
    desk.command("resume")
    desk.sync()
    eventually(lambda: "C" in desk.names(docs), what="the mark has ended", seconds=60)
    (docs / "C").write_bytes(b"saved by Alice")
    desk.sync()
    assert desk.zone.read("docs/C") == b"saved by Alice"
    assert desk.conflicts() == []
