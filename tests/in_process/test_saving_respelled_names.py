"""Saves of files that the folder shows under another name than the service's.

Programs save by a rename or removal of the old file, and then write a new file under the name that
the folder shows. The new file is the next version of the same entry, as for any other name.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

pytestmark = pytest.mark.mount("settle=1", "refresh=1")

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}
OLD, NEW, OTHER = b"by Bob", b"by Alice", b"by Carol"

NAMES = {
    "control": "a\tb.txt",
    "direction": "a\u202eb.txt",
    "long": "\u00e4" * 200 + ".txt",
    "look-alike": "a\tb.txt",
}
"""Kinds of names, and the service's name of the file that is saved."""


def shown(desk: Mounted, kind: str) -> Path:
    """Create the file on the service, and return the path under which the folder shows it.

    A file with a look-alike name shows with a hash suffix, because another file shows already.
    """
    before = {*desk.names(desk.root)}
    if kind == "look-alike":
        desk.zone.write("a\u2409b.txt", OTHER)
        eventually(lambda: "a\u2409b.txt" in desk.names(desk.root), what="the other file shows")
        before.add("a\u2409b.txt")
    desk.zone.write(NAMES[kind], OLD)
    eventually(lambda: {*desk.names(desk.root)} > before, what="the file shows")
    (name,) = {*desk.names(desk.root)} - before
    assert name != NAMES[kind]
    assert ("~" in name) == (kind in ("long", "look-alike"))
    return desk.root / name


def aside(path: Path, ending: str) -> Path:
    """Return a name for the former file, which is short enough."""
    return path.with_name(path.name[:100] + ending)


# ---- ways to save: each yields between its steps ----


def unlink(path: Path) -> Iterator[None]:
    """Remove the file and write a new one."""
    path.unlink()
    yield
    path.write_bytes(NEW)


def backup(path: Path) -> Iterator[None]:
    """Rename the file to a backup that stays, as vim and emacs."""
    path.rename(aside(path, "~"))
    yield
    path.write_bytes(NEW)


def removed_backup(path: Path) -> Iterator[None]:
    """Remove the backup after the new file is written, as vim."""
    yield from backup(path)
    yield
    aside(path, "~").unlink()


def backup_removed_first(path: Path) -> Iterator[None]:
    """Remove the backup before the new file is written."""
    path.rename(aside(path, "~"))
    aside(path, "~").unlink()
    yield
    path.write_bytes(NEW)


def renamed_backup(path: Path) -> Iterator[None]:
    """Rename the file to an ordinary name, and remove it later."""
    path.rename(aside(path, ".bak"))
    yield
    path.write_bytes(NEW)
    yield
    aside(path, ".bak").unlink()


def rename_over(path: Path) -> Iterator[None]:
    """Rename a new file over the old one."""
    path.with_name("temporary").write_bytes(NEW)
    yield
    path.with_name("temporary").rename(path)


def rename_into_gap(path: Path) -> Iterator[None]:
    """Rename the old file to a backup, and a new file to the name of the old one."""
    path.with_name("temporary").write_bytes(NEW)
    path.rename(aside(path, "~"))
    yield
    path.with_name("temporary").rename(path)


def rename_after_unlink(path: Path) -> Iterator[None]:
    """Remove the old file, and give its name to a new file."""
    path.with_name("temporary").write_bytes(NEW)
    path.unlink()
    yield
    path.with_name("temporary").rename(path)


WAYS = (
    unlink, backup, removed_backup, backup_removed_first,
    renamed_backup, rename_over, rename_into_gap, rename_after_unlink,
)  # fmt: skip


def check(desk: Mounted, path: Path, kind: str, before: str) -> None:
    """Check that the file has one new version, and that the service has no other new entry."""
    name, others = NAMES[kind], {"a\u2409b.txt"} if kind == "look-alike" else set[str]()
    assert set(desk.zone.listing()) == SEEDED | {name} | others
    assert desk.zone.entry_id(name) == before
    assert desk.zone.read(name) == path.read_bytes() == NEW
    assert len(desk.zone.versions(name)) == 2
    assert path.name in desk.names(desk.root)
    for other in others:
        assert desk.zone.read(other) == (desk.root / other).read_bytes() == OTHER
        assert len(desk.zone.versions(other)) == 1


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_a_save_makes_one_version(
    desk: Mounted, way: Callable[[Path], Iterator[None]], kind: str, restarted: bool
) -> None:
    """The daemon may be killed between two steps of the save."""
    path = shown(desk, kind)
    before = desk.zone.entry_id(NAMES[kind])
    assert path.read_bytes() == OLD
    with desk.paused():
        for _ in way(path):
            if restarted:
                desk.kill()
                desk.mount()
    desk.sync()
    check(desk, path, kind, before)
    if way is backup:
        assert aside(path, "~").read_bytes() == OLD


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("kind", NAMES)
def test_a_save_after_the_backup_was_sent(desk: Mounted, kind: str, restarted: bool) -> None:
    """The new file is the next version however late it is written."""
    path = shown(desk, kind)
    before = desk.zone.entry_id(NAMES[kind])
    path.rename(aside(path, "~"))
    desk.sync()
    if restarted:
        desk.restart()
    path.write_bytes(NEW)
    desk.sync()
    check(desk, path, kind, before)
    assert aside(path, "~").read_bytes() == OLD


@pytest.mark.parametrize("kind", NAMES)
def test_both_files_of_a_folder_are_replaced(desk: Mounted, kind: str) -> None:
    """Each new file continues the entry that had its name in the folder."""
    path = shown(desk, kind)
    other = desk.root / ("a\u2409b.txt" if kind == "look-alike" else "notes.txt")
    before = {each: desk.zone.entry_id(each) for each in (NAMES[kind], other.name)}
    with desk.paused():
        for each in (path, other):
            each.unlink()
        for each, content in ((path, NEW), (other, b"by Dave")):
            each.write_bytes(content)
    desk.sync()
    assert {each: desk.zone.entry_id(each) for each in before} == before
    assert desk.zone.read(NAMES[kind]) == NEW
    assert desk.zone.read(other.name) == b"by Dave"
    assert {len(desk.zone.versions(each)) for each in before} == {2}


@pytest.mark.parametrize("kind", NAMES)
def test_the_new_file_is_removed_before_it_is_sent(desk: Mounted, kind: str) -> None:
    """The entry is deleted, and the backup stays on this machine."""
    path = shown(desk, kind)
    with desk.paused():
        path.rename(aside(path, "~"))
        path.write_bytes(NEW)
        path.unlink()
    desk.sync()
    assert desk.zone.find(NAMES[kind]) is None
    assert aside(path, "~").read_bytes() == OLD


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("successor", ["folder", "unread file"])
def test_an_entry_that_cannot_continue_it_takes_the_name(
    desk: Mounted, kind: str, successor: str
) -> None:
    """The file is deleted on the service, and its bytes stay in the backup."""
    path = shown(desk, kind)
    other = desk.zone.entry_id("big.bin")
    path.rename(aside(path, "~"))
    desk.sync()
    if successor == "folder":
        path.mkdir()
    else:
        (desk.root / "big.bin").rename(path)
    desk.sync()
    assert desk.zone.find(NAMES[kind]) is None
    assert aside(path, "~").read_bytes() == OLD
    if successor == "folder":
        assert desk.zone.listing()[path.name]["folder"]
    else:
        assert desk.zone.entry_id(path.name) == other


@pytest.mark.parametrize("kind", NAMES)
def test_a_backup_that_is_renamed_back(desk: Mounted, kind: str) -> None:
    """Nothing has changed on the service."""
    path = shown(desk, kind)
    before = desk.zone.entry_id(NAMES[kind])
    path.rename(aside(path, "~"))
    desk.sync()
    aside(path, "~").rename(path)
    desk.sync()
    assert desk.zone.entry_id(NAMES[kind]) == before
    assert len(desk.zone.versions(NAMES[kind])) == 1
    assert desk.status()["outbox"]["pending"] == 0
