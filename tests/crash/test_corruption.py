"""A disk that returns wrong bytes: the damage is detected and reported, the rest is kept."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash import damage
from tests.crash.desk import Desk
from tests.crash.mounts import Mortal
from tests.crash.scenarios import NEW, SEED
from tests.harness.waiting import eventually
from zonedrive.state.inode import ROOT

OUTBOX = "refused"


def waiting(dying: Mortal, name: str, *options: str) -> Desk:
    """Return a desk whose file a.txt was saved and could not be sent; the daemon is dead."""
    dying.allow(OUTBOX)
    desk = Desk(dying, name, SEED)
    dying.mount(*options)
    assert (desk.path / "b.txt").read_bytes() == SEED["b.txt"]
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    desk.save("a.txt", NEW)
    dying.kill()
    dying.deployment.heal()
    return desk


def flip(path: Path, offset: int) -> None:
    """Flip one bit of a file, or of its last byte."""
    data = bytearray(path.read_bytes())
    data[min(offset, len(data) - 1)] ^= 0x10
    path.write_bytes(data)


def outgoing(dying: Mortal) -> Path:
    """Return the only file in the spool."""
    (found,) = (dying.machine.state / "outgoing").iterdir()
    return found


@pytest.mark.parametrize("table", ["intents", "doubts", "conflicts"])
def test_a_journal_that_cannot_be_read_is_made_again(dying: Mortal, table: str) -> None:
    """The names are still known, so a saved file is sent once under its name."""
    desk = waiting(dying, f"journal {table}")
    damage.lose_table(dying.machine.state / "tree.db", table)
    dying.allow("damaged")
    dying.mount()
    desk.check_here()
    dying.sync()
    desk.check_there()
    eventually(lambda: not dying.outgoing(), what="no bytes are left")
    assert not (dying.path / "lost+found").exists()


def test_a_damaged_page_loses_only_its_rows(dying: Mortal) -> None:
    """Other files keep their names; the damaged database is kept, and the log has its path."""
    desk = Desk(dying, "page", SEED)
    dying.allow(OUTBOX, "damaged", "lost their names")
    dying.mount()
    desk.look()
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    saved = {f"{number:03}.txt": b"%d" % number for number in range(120)}
    for name, data in saved.items():
        desk.save(name, data)
    dying.kill()
    dying.deployment.heal()
    path = dying.machine.state / "tree.db"
    damage.flatten(path)
    pages = damage.pages_of(path, "inodes")
    assert len(pages) > 3
    damage.overwrite(path, *pages[-1])
    dying.mount()
    found = sorted((dying.path / "lost+found").iterdir())
    nameless = {each.read_bytes() for each in found}
    named = {name: (desk.path / name).read_bytes() for name in os.listdir(desk.path)}
    assert 0 < len(found) < len(saved)
    assert all(saved.get(name, SEED.get(name)) == data for name, data in named.items())
    assert nameless | {named[name] for name in named if name in saved} == set(saved.values())
    assert "lost+found" in str(dying.status()["notice"])
    (aside,) = dying.machine.state.glob("tree.db.damaged-*")
    assert aside.name in dying.log()
    answer = dying.ask("sync", 40, paths=[], timeout=30)
    assert (answer["exit"], answer["lost"], answer["left"]["files"]) == (1, len(found), 0)
    for each in found:
        each.unlink()
    dying.sync()
    assert named == {
        path.removeprefix("page/"): data for path, data in dying.zone.tree("page").items()
    }


@pytest.mark.parametrize("mounts", [1, 2])
@pytest.mark.parametrize("lost", ["the log", "the content of the log", "the database's content"])
def test_saved_files_are_kept_without_the_records_of_them(
    dying: Mortal, lost: str, mounts: int
) -> None:
    """A database that is empty or without its log is not taken for a sound one."""
    dying.allow(OUTBOX, "lost")
    desk = Desk(dying, f"{lost} {mounts}", SEED)
    for _ in range(mounts - 1):
        dying.mount()
        desk.look()
        dying.end()
    dying.mount()
    desk.look()
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    desk.save("a.txt", NEW)
    desk.save("new.txt", b"new")
    dying.kill()
    dying.deployment.heal()
    if lost == "the database's content":
        os.truncate(dying.database, 0)
    elif lost == "the log":
        dying.database.with_name("tree.db-wal").unlink()
    else:
        os.truncate(dying.database.with_name("tree.db-wal"), 0)
    said = dying.machine.done("status")
    assert said.startswith("2 files in lost+found are only on this machine")
    assert "2 files in lost+found" in dying.machine.run("sync").stderr
    assert "2 files in lost+found" in dying.machine.run("logoff").stderr
    assert "BAD  database: " in dying.machine.run("doctor").stdout
    dying.mount()
    found = sorted(each.read_bytes() for each in (dying.path / "lost+found").iterdir())
    assert found == sorted([NEW, b"new"])
    status = dying.status()
    assert status["lost"] == 2 and "lost+found" in str(status["notice"])


def test_a_damaged_name_is_noticed(dying: Mortal) -> None:
    """A flipped bit inside a row counts as damage; the other rows are still used."""
    desk = waiting(dying, "bit")
    path = dying.machine.state / "tree.db"
    damage.flatten(path)
    with closing(sqlite3.connect(path)) as database:
        (sealed,) = database.execute("SELECT sealed FROM inodes WHERE ino = ?", (ROOT,)).fetchone()
    data, middle = path.read_bytes(), len(sealed) // 2
    damaged = sealed[:middle] + bytes([sealed[middle] ^ 0x10]) + sealed[middle + 1 :]
    path.write_bytes(data.replace(sealed, damaged))
    assert path.read_bytes() != data
    dying.allow("damaged")
    dying.mount()
    desk.check_here()
    dying.sync()
    desk.check_there()


@pytest.mark.parametrize(
    ("how", "options"),
    [("truncated", ()), ("flipped", ()), ("truncated", ("encrypt=false",))],
    ids=["truncated", "flipped", "truncated-plain"],
)
def test_damaged_outgoing_bytes_are_never_sent(
    dying: Mortal, how: str, options: tuple[str, ...]
) -> None:
    """The file is shown as failed with the reason, others are sent; saving it again helps."""
    desk = waiting(dying, f"outgoing {how} {len(options)}", *options)
    path = outgoing(dying)
    if how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    else:
        flip(path, path.stat().st_size // 2)
    dying.mount(*options)
    (desk.path / "b.txt").write_bytes(b"sent all the same")
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    (left,) = dying.status()["uploads"]
    assert left["state"] == "failed"
    assert "damaged" in left["error"]
    assert dying.zone.read(f"{desk.name}/b.txt") == b"sent all the same"
    assert dying.zone.read(f"{desk.name}/a.txt") == SEED["a.txt"]
    assert len(dying.zone.versions(f"{desk.name}/a.txt")) == 1
    (desk.path / "a.txt").write_bytes(b"saved again")
    dying.sync()
    assert dying.zone.read(f"{desk.name}/a.txt") == b"saved again"
    assert len(dying.zone.versions(f"{desk.name}/a.txt")) == 2


def test_after_a_power_cut_bytes_are_checked_before_anything_is_sent(dying: Mortal) -> None:
    """Bytes that were never synced may be torn: none of them is sent."""
    desk = waiting(dying, "power")
    path = outgoing(dying)
    flip(path, path.stat().st_size - 10)
    (dying.machine.state / "boot").write_text("another run of the machine")
    before = dying.deployment.stats()
    dying.mount()
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    after = dying.deployment.stats()
    assert "damaged" in dying.status()["uploads"][0]["error"]
    assert _posts(after) == _posts(before)
    with pytest.raises(OSError, match="Input/output") as refused:
        (desk.path / "a.txt").read_bytes()
    assert refused.value.errno == errno.EIO
    (desk.path / "a.txt").unlink()
    dying.sync()
    eventually(lambda: not dying.outgoing(), what="no bytes are left")


def _posts(stats: dict[str, object]) -> object:
    requests = stats["requests"]
    assert isinstance(requests, dict)
    return {
        route: count for route, count in requests.items() if str(route).startswith("POST /api/z")
    }


def test_intact_bytes_are_sent_after_a_power_cut(dying: Mortal) -> None:
    """If the check finds no damage, the files are sent."""
    desk = waiting(dying, "power, intact")
    (dying.machine.state / "boot").write_text("another run of the machine")
    dying.mount()
    dying.sync()
    desk.check_there()


@pytest.mark.parametrize("how", ["truncated", "flipped", "index", "half an index"])
def test_a_damaged_cache_is_fetched_again(dying: Mortal, how: str) -> None:
    """Cached bytes are checked when they are read: a program never sees wrong ones."""
    desk = Desk(dying, f"cache {how}", {**SEED, "big.bin": NEW})
    dying.allow("cache")
    dying.mount()
    assert desk.here() == {**SEED, "big.bin": NEW}
    dying.end()
    folder = dying.machine.cache / "content"
    biggest = max(folder.glob("*-*"), key=lambda path: path.stat().st_size)
    index = folder / "index.db"
    match how:
        case "truncated":
            os.truncate(biggest, biggest.stat().st_size // 2)
        case "flipped":
            flip(biggest, biggest.stat().st_size // 2)
        case "index":
            damage.overwrite(index, 0, 200)
        case _:
            os.truncate(index, index.stat().st_size // 2)
    dying.mount()
    assert desk.here() == {**SEED, "big.bin": NEW}
    assert "cache" in dying.log()


def test_a_cut_that_was_not_closed_leaves_a_file_that_can_be_sent(dying: Mortal) -> None:
    """After fsync, a truncation and the daemon's death, the file is truncated but not damaged."""
    desk = Desk(dying, "cut", SEED)
    dying.allow(OUTBOX)
    dying.mount(kill_at="bytes-cut")
    with (
        pytest.raises(OSError, match="connect"),
        (desk.path / "new.txt").open("wb") as file,
    ):
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())
        file.truncate(5)
    assert dying.died_at("bytes-cut")
    dying.mount()
    assert (desk.path / "new.txt").read_bytes() == NEW[:5]
    dying.sync()
    assert dying.zone.read("cut/new.txt") == NEW[:5]
