"""Pinned entries that coworkers move, and that disappear and return."""

import errno
import os
import re
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest
import trio

from tests.harness import world
from tests.harness.in_process import ALICE
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import ZONE
from tests.in_process.test_entry_states import virtual
from zonedrive.pins.fetch import RECHECK_S
from zonedrive.pins.poll import MISSING, PASS_S
from zonedrive.sandbox.zones import Level
from zonedrive.state.inode import ROOT

STATE = "user.zonedrive.state"


def pin(desk: Mounted, *paths: str) -> None:
    """Pin paths in the zone, and wait until they are in the cache."""
    said = virtual(desk).command("pin", paths=[f"{ZONE}/{path}" for path in paths])
    assert said["exit"] == 0, said


def pinned(desk: Mounted) -> list[tuple[str, int]]:
    """Return the path of each pinned entry, with the number of its files in the cache."""
    found = virtual(desk).command("pins")["pins"]
    return [(each["path"].removeprefix(f"{ZONE}/"), each["here"]) for each in found]


def wait(desk: Mounted, seconds: float) -> None:
    virtual(desk).loop.run(trio.sleep, seconds)


def test_a_pin_follows_an_entry_to_a_folder_that_nobody_lists(desk: Mounted) -> None:
    """A coworker moves a pinned file and the folder of a pinned folder; both stay available."""
    for folder in ("archive", "archive/old", "a", "a/b"):
        desk.zone.make_folder(folder)
    desk.zone.write("a/b/y.txt", b"yy")
    pin(desk, "docs/report.md", "a/b")
    desk.zone.move("docs/report.md", "archive/old/report.md")
    desk.zone.move("a/b", "archive/old/b")
    wait(desk, 2 * PASS_S)
    desk.system.listdir(desk.root / "a")
    wait(desk, 2 * PASS_S)
    assert pinned(desk) == [("archive/old/b", 1), ("archive/old/report.md", 1)]
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        assert (desk.root / "archive/old/b/y.txt").read_bytes() == b"yy"


def unlist(desk: Mounted, name: str) -> None:
    """Mark the listing of a folder in the zone incomplete, as when it gets another remote id."""
    state = virtual(desk).client.parts.state
    zone = state.inodes.inodes_in(ROOT)[0]
    folder = state.inodes.child(zone.ino, name)
    assert folder is not None
    with state.transaction():
        state.inodes.update(folder, listed=False)


@pytest.mark.parametrize("verb", ["open", "place", "pin"])
def test_a_known_file_in_an_unlisted_folder_is_found_without_a_connection(
    desk: Mounted, verb: str
) -> None:
    """Other names, and the folder's names, cannot be told: the error is that of the service."""
    report = desk.root / "docs/report.md"
    pin(desk, "docs/report.md")
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        unlist(desk, "docs")
        match verb:
            case "open":
                assert report.read_bytes() == world.SEED["docs/report.md"]
                assert report.stat().st_size == len(world.SEED["docs/report.md"])
            case "place":
                said = virtual(desk).command("place", path=f"{ZONE}/docs/report.md")
                assert said["id"] == desk.zone.entry_id("docs/report.md"), said
            case "pin":
                pin(desk, "docs/report.md")
        for wrong in (lambda: (desk.root / "docs/other").stat(), lambda: desk.names(report.parent)):
            with pytest.raises(OSError, match="Network is unreachable") as caught:
                wrong()
            assert caught.value.errno == errno.ENETUNREACH


def test_folders_above_a_pin_are_listed_with_it(desk: Mounted) -> None:
    """A person can walk to a pinned file without a connection."""
    pin(desk, "docs/2026/q1.csv")
    unlist(desk, "docs")
    wait(desk, 2 * PASS_S)
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        assert {"2026", "report.md"} <= {*desk.names(desk.root / "docs")}


@pytest.mark.mount("refresh=1")
def test_a_restored_entry_is_fetched_again(desk: Mounted) -> None:
    """A restored entry is cached once its folder is listed, without another access."""
    names = {"notes.txt", "docs"}
    pin(desk, *names)
    ids = [desk.zone.entry_id(name) for name in names]
    for name in names:
        desk.zone.delete(name)
    wait(desk, 2)
    assert not names & {*desk.names(desk.root)}
    assert pinned(desk) == []
    for each in ids:
        desk.zone.restore(each)
    wait(desk, 2)
    assert names <= {*desk.names(desk.root)}
    wait(desk, 2)
    for path in (desk.root / "notes.txt", desk.root / "docs/2026/q1.csv"):
        assert desk.xattr(path, STATE) == "cached"


def test_pinned_files_return_into_an_emptied_cache_folder(desk: Mounted) -> None:
    """A tool that cleans up deletes the whole folder; the files are fetched again."""
    pin(desk, "docs/report.md", "big.bin")
    cache = virtual(desk).client.paths.cache
    shutil.rmtree(cache)
    wait(desk, 2 * PASS_S)
    assert any(path.is_file() for path in cache.rglob("*"))
    assert pinned(desk) == [("big.bin", 1), ("docs/report.md", 1)]
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        assert (desk.root / "big.bin").read_bytes() == world.SEED["big.bin"]


def test_folders_that_were_never_listed_are_counted(desk: Mounted) -> None:
    """While the service is down, a pinned folder counts the folders whose files are unknown."""
    desk.zone.make_folder("docs/old")
    desk.system.listdir(desk.root / "docs")
    desk.allow("offline", "reach")

    def unlisted() -> list[int]:
        return [each["unlisted"] for each in virtual(desk).command("pins")["pins"]]

    with desk.deployment.faulty(down=True):
        assert virtual(desk).command("pin", paths=[f"{ZONE}/docs"])["exit"] == 4
        assert unlisted() == [2]
    wait(desk, 2 * PASS_S)
    assert unlisted() == [0]


def test_a_pin_returns_after_a_restore_of_a_folder_above(desk: Mounted) -> None:
    """The pin of an inner folder returns although nobody lists the restored folder."""
    pin(desk, "docs/2026")
    (desk.root / "docs").rename(desk.path / f".Trash-{os.getuid()}" / "files" / "docs")
    desk.sync()
    assert pinned(desk) == []
    virtual(desk).command("restore", entries=["docs"])
    wait(desk, 2 * PASS_S)
    assert pinned(desk) == [("docs/2026", 1)]


@pytest.mark.parametrize("path", ["", "docs", "docs/report.md"])
def test_a_pin_returns_with_its_zone(desk: Mounted, path: str) -> None:
    """The user's membership ends and begins again, and no program looks at the zones."""
    pin(desk, path)
    before, service = pinned(desk), virtual(desk).deployment.world
    service.set_level(desk.zone.id, ALICE, Level.NONE)
    wait(desk, 2 * PASS_S)
    desk.names(desk.path)
    wait(desk, PASS_S)
    assert desk.names(desk.path) == []
    assert pinned(desk) == []
    service.set_level(desk.zone.id, ALICE, Level.MODIFY)
    wait(desk, 3 * PASS_S)
    assert pinned(desk) == before


@pytest.mark.parametrize("restored", [False, True])
def test_a_pinned_folder_that_is_created_again_stays_pinned(desk: Mounted, restored: bool) -> None:
    """A coworker deletes a pinned folder that has a new file here, and perhaps restores it."""
    desk.system.listdir(desk.root / "docs")
    pin(desk, "docs")
    desk.allow("offline", "reach", "created again")
    before = desk.zone.entry_id("docs")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        (desk.root / "docs/new.txt").write_bytes(b"new")
        desk.zone.delete("docs")
    wait(desk, 30)
    desk.sync()
    assert desk.zone.entry_id("docs") != before
    if restored:
        desk.zone.move("docs", "again")
        desk.zone.restore(before)
    wait(desk, 2 * PASS_S)
    found = dict(pinned(desk))
    assert found["again" if restored else "docs"] == 1
    assert len(found) == 1 + restored
    assert virtual(desk).client.parts.files.pins.missing() == []


@pytest.mark.parametrize("lost", ["folder", "zone"])
def test_the_pin_of_a_former_folder_is_kept_until_its_deletion_is_certain(
    desk: Mounted, lost: str
) -> None:
    """The answers lack the folder of the entry, or the zone is not accessible for a while."""
    desk.system.listdir(desk.root / "docs")
    pin(desk, "docs")
    desk.allow("offline", "reach", "created again")
    before, service = desk.zone.entry_id("docs"), virtual(desk).deployment.world
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        (desk.root / "docs/new.txt").write_bytes(b"new")
        desk.zone.delete("docs")
    wait(desk, 30)
    desk.sync()
    desk.zone.move("docs", "again")
    desk.zone.restore(before)
    desk.zone.make_folder("far")
    desk.zone.move("docs", "far/docs")
    if lost == "folder":
        service.unsaid["entry"] = {"parentId"}
    else:
        service.set_level(desk.zone.id, ALICE, Level.NONE)
        wait(desk, 2 * PASS_S)
        desk.names(desk.path)
    wait(desk, 2 * PASS_S)
    service.set_level(desk.zone.id, ALICE, Level.MODIFY)
    desk.names(desk.path)
    desk.names(desk.root / "far")
    wait(desk, PASS_S)
    assert [path for path, _ in pinned(desk)] == ["again", "far/docs"]


def test_few_requests_are_sent_for_deleted_pinned_files(desk: Mounted) -> None:
    """Each round looks for a limited number of entries, in turn; restored ones are found once."""
    names = [f"{number}.txt" for number in range(2 * MISSING)]
    desk.zone.make_folder("many")
    for name in names:
        desk.zone.write(f"many/{name}", b"x")
    desk.system.listdir(desk.root / "many")
    pin(desk, *(f"many/{name}" for name in names))
    requests = virtual(desk).deployment.world.requests
    ids = {desk.zone.entry_id(f"many/{name}") for name in names}
    for name in names:
        desk.zone.delete(f"many/{name}")
    wait(desk, 1.5 * PASS_S)
    assert pinned(desk) == []

    def sought() -> list[str]:
        return [each for each in requests if each.rpartition("/")[2] in ids]

    del requests[:]
    wait(desk, 2 * PASS_S)
    assert len(sought()) == 2 * MISSING
    assert len(set(sought())) == 2 * MISSING
    for entry in ids:
        desk.zone.restore(entry)
    del requests[:]
    wait(desk, PASS_S)
    assert len(pinned(desk)) == len(names)
    assert len(sought()) == 1


def test_the_work_for_many_pins_grows_with_their_number(desk: Mounted) -> None:
    """Twice as many paths take at most about twice as many queries, and one transaction."""
    statements: list[str] = []
    database = virtual(desk).client.parts.state.database
    database._connection.set_trace_callback(statements.append)

    desk.zone.make_folder("many")
    names = [f"{number}.txt" for number in range(40)]
    for name in names:
        desk.zone.write(f"many/{name}", b"x")
    desk.system.listdir(desk.root / "many")

    def work(count: int) -> list[int]:
        paths, found = [f"{ZONE}/many/{name}" for name in names[:count]], []
        for command in ("pin", "unpin"):
            del statements[:]
            virtual(desk).command(command, paths=paths)
            changed = re.compile("(INTO|FROM) pins ").search
            writes = [at for at, sql in enumerate(statements) if changed(sql)]
            assert len(writes) == count
            assert "COMMIT" not in statements[writes[0] : writes[-1]]
            found.append(sum("FROM inodes WHERE zone = " in sql for sql in statements))
        return found

    once, twice = work(20), work(40)
    assert all(more <= 2.2 * less for less, more in zip(once, twice, strict=True)), (once, twice)


@pytest.mark.mount("cache_size=4000000")
def test_a_file_that_did_not_fit_is_fetched_when_another_one_is_deleted(desk: Mounted) -> None:
    """Two of three pinned files do not fit; each deletion makes room for one."""
    desk.allow("no room")
    desk.zone.make_folder("keep")
    for name in "abc":
        desk.zone.write(f"keep/{name}", os.urandom(3_000_000))
    assert virtual(desk).command("pin", paths=[f"{ZONE}/keep"])["exit"] == 1

    def cached() -> list[str]:
        found = desk.names(desk.root / "keep")
        return [n for n in found if desk.xattr(desk.root / "keep" / n, STATE) == "cached"]

    for left in (2, 1):
        (gone,) = cached()
        desk.zone.delete(f"keep/{gone}")
        wait(desk, 2 * PASS_S)
        assert len(desk.names(desk.root / "keep")) == left
        assert len(cached()) == 1


@pytest.mark.mount("cache_size=4000000")
def test_a_file_that_did_not_fit_is_fetched_when_another_one_is_closed(desk: Mounted) -> None:
    """The content of an open file leaves no room for a pinned one until it is closed."""
    desk.allow("no room")
    for name in ("open", "pinned"):
        desk.zone.write(name, os.urandom(3_000_000))
    with (desk.root / "open").open("rb") as file:
        while file.read(1 << 20):
            pass
        assert virtual(desk).command("pin", paths=[f"{ZONE}/pinned"])["exit"] == 1
        downloads = desk.deployment.downloads()
        wait(desk, 2 * PASS_S)
        assert desk.xattr(desk.root / "pinned", STATE) == "remote"
        assert desk.deployment.downloads() == downloads
    wait(desk, 2 * PASS_S)
    assert desk.xattr(desk.root / "pinned", STATE) == "cached"


@pytest.mark.mount("cache_size=4000000")
def test_a_file_that_is_unpinned_makes_room_at_once(desk: Mounted) -> None:
    """The next file that is read is cached, although there was no room for the one before."""
    desk.allow("no room")
    for name in ("pinned", "before", "after"):
        desk.zone.write(name, os.urandom(3_000_000))
    pin(desk, "pinned")
    (desk.root / "before").read_bytes()
    assert desk.xattr(desk.root / "before", STATE) == "remote"
    virtual(desk).command("unpin", paths=[f"{ZONE}/pinned"])
    (desk.root / "after").read_bytes()
    assert desk.xattr(desk.root / "after", STATE) == "cached"


@pytest.mark.mount("cache_size=4000000")
def test_a_file_that_is_saved_by_a_rename_is_not_evicted(desk: Mounted) -> None:
    """The new file takes over the pin with the entry, and stays when much else is read."""
    data = os.urandom(2_000_000)
    desk.zone.write("pinned", b"before")
    for number in range(3):
        desk.zone.write(f"{number}", os.urandom(1_500_000))
    pin(desk, "pinned")
    (desk.root / "new").write_bytes(data)
    (desk.root / "new").rename(desk.root / "pinned")
    desk.sync()
    for number in range(3):
        (desk.root / f"{number}").read_bytes()
    assert desk.xattr(desk.root / "pinned", STATE) == "cached"
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        assert (desk.root / "pinned").read_bytes() == data


def test_pinned_folders_are_listed_although_missing_entries_cannot_be_asked_for(
    desk: Mounted,
) -> None:
    """The service answers 500 to each request for one of six deleted entries."""
    names = [f"gone {number}.txt" for number in range(6)]
    for name in names:
        desk.zone.write(name, b"x")
    pin(desk, "docs", *names)
    for name in names:
        desk.zone.delete(name)
    wait(desk, 2 * PASS_S)
    before = dict(pinned(desk))["docs"]
    desk.allow("500")
    with desk.deployment.faulty(status=500, method="GET", path="/files/[^/]+$"):
        desk.zone.write("docs/new.txt", b"new")
        wait(desk, 4 * PASS_S)
    assert dict(pinned(desk))["docs"] == before + 1


@pytest.mark.parametrize(
    "fault",
    [{"status": 401, "error": "AUTHORIZATION_FAILED"}, {"drop_reply": True}],
    ids=["refused", "cut"],
)
def test_few_requests_are_sent_while_only_downloads_fail(
    desk: Mounted, fault: dict[str, Any]
) -> None:
    """Listings succeed, but each request for content fails; the pinned files arrive afterwards."""
    desk.allow(".*")
    desk.system.listdir(desk.root / "docs")
    files = len([name for name in world.SEED if name.startswith("docs/")])
    requests = virtual(desk).deployment.world.requests
    with desk.deployment.faulty(**fault, path="/content$"):
        virtual(desk).command("pin", paths=[f"{ZONE}/docs"])
        wait(desk, PASS_S)
        del requests[:]
        wait(desk, PASS_S)
        assert len(requests) < 100
    wait(desk, 2 * PASS_S)
    assert pinned(desk) == [("docs", files)]


@pytest.mark.parametrize("written", ["copy", "edit"])
def test_two_pinned_files_that_replace_each_other_stay_pinned(desk: Mounted, written: str) -> None:
    """One pinned file is renamed over the other one, after a new file got its name."""
    desk.zone.write("a", b"aaaa")
    desk.zone.write("b", b"bbbbbb")
    pin(desk, "a", "b")
    (desk.root / "b").rename(desk.root / "tmp")
    new = (desk.root / "a").read_bytes() if written == "copy" else b"new"
    (desk.root / "b").write_bytes(new)
    (desk.root / "tmp").rename(desk.root / "a")
    desk.sync()
    wait(desk, 2 * PASS_S)
    assert pinned(desk) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pinned_file_whose_removal_is_refused_stays_pinned(desk: Mounted, restarts: bool) -> None:
    """A pinned file is renamed over another one, but its own entry stays, with a newer version."""
    desk.allow("newer version")
    desk.zone.write("a", b"aaaa")
    desk.zone.write("b", b"bbbbbb")
    pin(desk, "a", "b")
    desk.zone.write("b", b"newer version of a coworker")
    (desk.root / "b").rename(desk.root / "a")
    desk.sync()
    if restarts:
        desk.restart()
    wait(desk, 3 * PASS_S)
    assert "b" in desk.names(desk.root)
    assert pinned(desk) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("source", ["new", "notes.txt"])
def test_a_new_pinned_file_that_is_saved_by_a_rename_stays_pinned(
    desk: Mounted, source: str
) -> None:
    """The file is replaced before its first upload, by a new file or a file of the service."""
    desk.system.listdir(desk.root)
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        (desk.root / "file").write_bytes(b"first")
        virtual(desk).command("pin", paths=[f"{ZONE}/file"])
        if source == "new":
            (desk.root / source).write_bytes(b"second")
        (desk.root / source).rename(desk.root / "file")
        assert [path for path, _ in pinned(desk)] == ["file"]
    wait(desk, 60)
    desk.sync()
    wait(desk, 2 * PASS_S)
    assert pinned(desk) == [("file", 1)]


@pytest.mark.parametrize("loss", ["file", "row"])
def test_a_pinned_file_that_was_lost_from_the_cache_is_fetched_again(
    desk: Mounted, loss: str
) -> None:
    """A tool deletes single old files, or a row of the index is damaged; the folder stays."""
    desk.allow("missing or damaged", "damaged rows")
    pin(desk, "big.bin")
    wait(desk, 2 * PASS_S)
    cache = virtual(desk).client.paths.cache
    if loss == "file":
        for path in cache.rglob("*"):
            if path.is_file() and not path.name.startswith("index.db"):
                path.unlink()
    else:
        (index,) = cache.rglob("index.db")
        with closing(sqlite3.connect(index)) as rows, rows:
            rows.execute("UPDATE entries SET size = size + 1")
    assert pinned(desk) == [("big.bin", 0)]
    wait(desk, RECHECK_S + PASS_S)
    assert pinned(desk) == [("big.bin", 1)]
    desk.allow("offline", "reach")
    with desk.deployment.faulty(down=True):
        wait(desk, 30)
        assert (desk.root / "big.bin").read_bytes() == world.SEED["big.bin"]
