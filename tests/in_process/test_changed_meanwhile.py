"""A coworker moves, renames or saves a file that is saved here: the client plans the change again.

A refusal would be a warning, which fails a test.  See also behaviour/test_changed_meanwhile.py.
"""

import errno
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

PATIENT = "refresh=60"  # a listed folder is not listed again by itself
DECIDED = ("a conflict copy", "a coworker", "planned again")


def names(folder: Path) -> set[str]:
    """Return the names that a folder shows."""
    return {each.name for each in folder.iterdir()}


@pytest.mark.mount("refresh=0.2", "settle=2")
@pytest.mark.parametrize("known", ["known", "unknown"])
def test_an_edited_file_that_a_coworker_moves_and_whose_name_another_file_gets(
    desk: Mounted, known: str
) -> None:
    """The edit becomes the next version of the file at its new place, without a conflict name."""
    zone, docs = desk.zone, desk.root / "docs"
    there = "docs/2026" if known == "known" else "docs/new/below"
    if known == "unknown":
        zone.make_folder("docs/new")
        zone.make_folder("docs/new/below")
    shown = [names(docs), names(desk.root)]
    moved, other = zone.entry_id("docs/report.md"), zone.entry_id("notes.txt")
    with (docs / "report.md").open("ab") as file:
        file.write(b"and more\n")
        file.flush()
        zone.move("docs/report.md", f"{there}/report.md")
        zone.move("notes.txt", "docs/report.md")

        def follows() -> bool:
            shown.append(names(docs))
            return (docs / "report.md").stat().st_size == 23

        eventually(follows, what="the name leads to the coworker's file")
    desk.sync(docs)
    shown.append(names(docs))
    assert [each for each in shown if any("~" in name for name in each)] == []
    assert zone.read(f"{there}/report.md") == b"# Report\n\nAll is well.\nand more\n"
    assert zone.entry_id(f"{there}/report.md") == moved
    assert zone.entry_id("docs/report.md") == other
    assert len(zone.versions(f"{there}/report.md")) == 2
    assert len(zone.versions("docs/report.md")) == 1
    assert desk.status()["outbox"]["failed"] == 0
    assert (docs / "report.md").read_bytes() == b"first line\nsecond line\n"
    here = desk.root / there / "report.md"
    assert here.read_bytes() == b"# Report\n\nAll is well.\nand more\n"


@pytest.mark.mount(PATIENT, "settle=600")
@pytest.mark.parametrize("profile_content", [b"Bob's longer report of the year\n", b"Bob\n"])
def test_a_file_that_was_never_read_here_is_moved_aside_after_a_coworkers_save(
    desk: Mounted, profile_content: bytes
) -> None:
    """Both contents are kept at the first try, and no refusal is reported."""
    desk.allow(*DECIDED)
    zone, root = desk.zone, desk.root
    names(root)
    zone.write("notes.txt", profile_content)
    (root / "notes.txt").rename(root / "notes.before.txt")
    (root / "notes.txt").write_bytes(b"Alice's notes, written anew\n")
    desk.sync()
    found = {name: zone.read(name) for name in zone.listing() if name.startswith("notes")}
    assert b"Alice's notes, written anew\n" in found.values()
    assert found["notes.before.txt"] == profile_content
    versions = {size["size"] for size in zone.versions("notes.txt")}
    assert len(profile_content) in versions
    assert desk.status()["outbox"]["failed"] == 0


@pytest.mark.mount("refresh=0.2")
def test_a_file_that_is_moved_here_and_removed_by_a_coworker_leaves_nothing_behind(
    desk: Mounted,
) -> None:
    """No unreadable entry is left, and no refusal is reported."""
    docs = desk.root / "docs"
    names(docs)
    with desk.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        (desk.root / "notes.txt").rename(docs / "moved.txt")
        desk.zone.delete("notes.txt")
    desk.sync()
    eventually(lambda: "moved.txt" not in names(docs), what="it is gone here, too")


@pytest.mark.mount("refresh=0.2")
def test_a_file_stays_if_a_coworker_removes_the_file_that_replaced_it(desk: Mounted) -> None:
    """A rename over a file deletes it on the service before the move. It would leave nothing."""
    desk.allow("renamed over another one")
    known = desk.zone.entry_id("docs/report.md")
    with desk.deployment.faulty(status=503, method="DELETE", path="^/api/sandbox/"):
        (desk.root / "notes.txt").rename(desk.root / "docs/report.md")
        desk.zone.delete("notes.txt")
    desk.sync()
    assert desk.zone.entry_id("docs/report.md") == known
    content = b"# Report\n\nAll is well.\n"
    eventually(lambda: (desk.root / "docs/report.md").read_bytes() == content, what="it is back")


@pytest.mark.mount("refresh=0.2")
def test_a_file_that_is_moved_to_a_folder_which_a_coworker_removes(desk: Mounted) -> None:
    """The file keeps its identity on the service; its folder is created again."""
    desk.allow("deleted on the service")
    there = desk.root / "docs" / "2026"
    names(there)
    known = desk.zone.entry_id("notes.txt")
    with desk.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        (desk.root / "notes.txt").rename(there / "notes.txt")
        desk.zone.delete("docs/2026")
    desk.sync()
    assert desk.zone.entry_id("docs/2026/notes.txt") == known
    assert desk.zone.find("notes.txt") is None
    assert (there / "notes.txt").read_bytes() == b"first line\nsecond line\n"


@pytest.mark.mount("refresh=0.2")
@pytest.mark.parametrize(("removed", "left"), [(0, 1), (1, 0)])
def test_one_of_two_files_that_exchange_their_names_is_removed_by_a_coworker(
    desk: Mounted, removed: int, left: int
) -> None:
    """The other file gets its name, and no refusal is reported."""
    root, paths = desk.root, ("notes.txt", "docs/report.md")
    names(root / "docs")
    known, content = desk.zone.entry_id(paths[left]), desk.zone.read(paths[left])
    with desk.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        desk.exchange(root / paths[0], root / paths[1])
        desk.zone.delete(paths[removed])
    desk.sync()
    assert desk.zone.entry_id(paths[removed]) == known
    eventually(lambda: not (root / paths[left]).exists(), what="the other one is gone here, too")
    assert (root / paths[removed]).read_bytes() == content


@pytest.mark.mount("refresh=0.3")
def test_a_folder_is_deleted_over_a_new_file(desk: Mounted) -> None:
    """A new file in a folder that a coworker deletes is uploaded to a new folder."""
    desk.allow("deleted on the service")
    path = desk.root / "docs/2026/mine.txt"
    with path.open("ab", buffering=0) as file:
        file.write(b"mine\n")
        desk.zone.delete("docs")
        eventually(lambda: not (desk.root / "docs/2026/q1.csv").exists(), what="the rest is gone")
    desk.sync()
    assert desk.zone.tree("docs") == {"docs/2026": None, "docs/2026/mine.txt": b"mine\n"}
    assert path.read_bytes() == b"mine\n"


@pytest.mark.mount("refresh=0.3")
def test_a_coworkers_version_is_not_shown_in_a_file_that_is_edited(desk: Mounted) -> None:
    """The program reads its own edit until it closes the file; both versions are kept."""
    desk.allow("a conflict copy")
    path = desk.root / "notes.txt"
    with path.open("r+b", buffering=0) as file:
        file.write(b"FIRST")
        mine = path.read_bytes()
        desk.zone.write("notes.txt", b"by bob\n")
        desk.zone.write("seen.txt", b"")
        eventually(lambda: (desk.root / "seen.txt").exists(), what="the folder was refreshed")
        assert path.read_bytes() == mine == b"FIRST line\nsecond line\n"
    desk.sync()
    contents = [desk.zone.read(name) for name in desk.zone.listing() if "notes" in name]
    assert sorted(contents) == [mine, b"by bob\n"]


@pytest.mark.mount("refresh=0.3", profile="published")
def test_an_edit_in_a_deleted_folder_that_cannot_be_created_again(desk: Mounted) -> None:
    """The edit stays pending, is reported with the remedy, and can be moved."""
    desk.allow("deleted on the service", "refused")
    path = desk.root / "docs/report.md"
    with path.open("ab", buffering=0) as file:
        file.write(b"mine\n")
        desk.zone.delete("docs")
        eventually(lambda: not (desk.root / "docs/2026/q1.csv").exists(), what="the rest is gone")
    answer = desk.command("sync", timeout=20)
    assert answer["exit"] == 1
    assert "move the entry to another folder" in str(answer)
    content = path.read_bytes()
    path.rename(desk.root / "report.md")
    desk.sync()
    assert desk.zone.read("report.md") == content
    assert content.endswith(b"mine\n")


@pytest.mark.mount("refresh=0.3")
def test_two_people_rename_to_one_name(desk: Mounted) -> None:
    """If Alice and Bob rename different files to the same name, both files exist and are
    reported."""
    desk.allow("a conflict copy")
    mine = (desk.root / "notes.txt").read_bytes()
    hers = f"/entries/{desk.zone.entry_id('notes.txt')}$"
    with desk.deployment.faulty(status=503, method="PUT", path=hers):
        (desk.root / "notes.txt").rename(desk.root / "final")
        desk.zone.write("bobs.txt", b"by bob\n")
        desk.zone.move("bobs.txt", "final")
    desk.sync()
    found = {name: desk.zone.read(name) for name in desk.zone.listing() if "final" in name}
    assert sorted(found.values()) == sorted([mine, b"by bob\n"])
    eventually(
        lambda: {name for name in desk.names(desk.root) if "final" in name} == found.keys(),
        what="both show here",
    )


@pytest.mark.mount("refresh=0.2")
def test_programs_go_on_in_a_folder_that_a_coworker_moves(desk: Mounted) -> None:
    """The folder is the same one at its new place, and what is written there is saved there."""
    zone, docs = desk.zone, desk.root / "docs"
    zone.make_folder("other")
    for folder in (desk.root, docs, desk.root / "other"):
        names(folder)
    number = docs.stat().st_ino
    with (
        (docs / "report.md").open("ab", buffering=0) as file,
        (desk.root / "docs/2026/q1.csv").open("r+b", buffering=0) as edited,
    ):
        assert edited.read()
        zone.move("docs", "other/moved")
        eventually(lambda: "docs" not in names(desk.root), what="the folder has left")
        file.write(b"more\n")
        edited.write(b"1\n")
    desk.sync()
    assert zone.read("other/moved/report.md").endswith(b"more\n")
    assert zone.read("other/moved/2026/q1.csv").endswith(b"1\n")
    assert (desk.root / "other/moved").stat().st_ino == number
    assert "docs" not in zone.listing()


@pytest.mark.also_mounted(size=3000, mode="rb")
@pytest.mark.mount(PATIENT)
@pytest.mark.parametrize("size", [0, 5, 3000])
@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_a_file_is_opened_that_a_coworker_has_saved_since_its_listing(
    desk: Mounted, mode: str, size: int
) -> None:
    """The program gets the new version, also if the size differs, instead of ESTALE for a read.

    Many programs take a file whose read fails for an empty one, and save that.
    """
    path, new = desk.root / "notes.txt", b"n" * size
    assert path.stat().st_size not in (0, size)
    desk.zone.write("notes.txt", new)
    with path.open(mode) as file:
        assert file.read() == new
    assert path.stat().st_size == size


def test_a_file_that_cannot_be_fetched_is_not_opened_for_reading(desk: Mounted) -> None:
    """The open fails, not only the read; a program that writes need not read the file."""
    desk.allow("offline")
    path, new = desk.root / "notes.txt", b"new\n"
    assert path.stat().st_size
    desk.deployment.fault(down=True)
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ENETUNREACH):
        path.open("rb", buffering=0)
    with path.open("r+b", buffering=0) as file:
        file.truncate(0)
        file.write(new)
    desk.deployment.heal()
    desk.sync()
    assert desk.zone.read("notes.txt") == new
