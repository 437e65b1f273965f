"""A coworker moves, renames or saves the file that is saved here: decided again, not refused."""

from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

PATIENT = "refresh=60"  # what was listed once is not looked at again by itself
DECIDED = ("in between", "came", "decided again")


def names(folder: Path) -> set[str]:
    """The names that a folder shows."""
    return {each.name for each in folder.iterdir()}


@pytest.mark.mount("refresh=0.2", "settle=2")
@pytest.mark.parametrize("known", ["known", "unknown"])
def test_an_edited_file_that_a_coworker_moves_and_whose_name_another_file_gets(
    mounted: Mounted, known: str
) -> None:
    """The edit is the next version of the file, where it is now; nothing has a marked name."""
    zone, docs = mounted.zone, mounted.root / "docs"
    there = "docs/2026" if known == "known" else "docs/new/below"
    if known == "unknown":
        zone.make_folder("docs/new")
        zone.make_folder("docs/new/below")
    shown = [names(docs), names(mounted.root)]
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
    mounted.sync(docs, seconds=20)
    shown.append(names(docs))
    assert [each for each in shown if any("~" in name for name in each)] == []
    assert zone.read(f"{there}/report.md") == b"# Report\n\nAll is well.\nand more\n"
    assert zone.entry_id(f"{there}/report.md") == moved
    assert zone.entry_id("docs/report.md") == other
    assert len(zone.versions(f"{there}/report.md")) == 2
    assert len(zone.versions("docs/report.md")) == 1
    assert mounted.status()["outbox"]["failed"] == 0
    assert (docs / "report.md").read_bytes() == b"first line\nsecond line\n"
    here = mounted.root / there / "report.md"
    assert here.read_bytes() == b"# Report\n\nAll is well.\nand more\n"


@pytest.mark.mount(PATIENT)
@pytest.mark.parametrize("profile_content", [b"Bob's longer report of the year\n", b"Bob\n"])
def test_a_file_that_was_never_read_here_is_moved_aside_after_a_coworkers_save(
    mounted: Mounted, profile_content: bytes
) -> None:
    """Everybody's words are kept, at the first try, and nothing is called a refusal."""
    mounted.allow(*DECIDED)
    zone, root = mounted.zone, mounted.root
    names(root)
    zone.write("notes.txt", profile_content)
    (root / "notes.txt").rename(root / "notes.before.txt")
    (root / "notes.txt").write_bytes(b"Alice's notes, written anew\n")
    mounted.sync(seconds=20)
    found = {name: zone.read(name) for name in zone.listing() if name.startswith("notes")}
    assert b"Alice's notes, written anew\n" in found.values()
    assert found["notes.before.txt"] == profile_content
    versions = {size["size"] for size in zone.versions("notes.txt")}
    assert len(profile_content) in versions
    assert "refused" not in mounted.log()
    assert mounted.status()["outbox"]["failed"] == 0
