"""An attacker with access to the disk, but without the key, restores former bytes."""

import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash import former
from tests.crash.mounts import Mortal
from zonedrive.content.slots import CHUNK, SLOT, slot_offset

SIZE = 5 * CHUNK + 1000
FORMER, LATER, LAST = (letter * SIZE for letter in (b"f", b"l", b"z"))


def whole(old: Path, new: Path) -> None:
    """Replace the present file by the former one."""
    shutil.copyfile(old, new)


def chunk(old: Path, new: Path) -> None:
    """Replace one chunk by its former bytes."""
    data = bytearray(new.read_bytes())
    place = slot_offset(2)
    data[place : place + SLOT] = old.read_bytes()[place : place + SLOT]
    new.write_bytes(data)


def head(old: Path, new: Path) -> None:
    """Restore the former head and journal, and truncate to the length that they contain."""
    data = old.read_bytes()[: slot_offset(0)] + new.read_bytes()[slot_offset(0) :]
    new.write_bytes(data)
    os.truncate(new, slot_offset(1))


def cut(old: Path, new: Path) -> None:
    """Truncate the present file after its third chunk."""
    os.truncate(new, slot_offset(3))


ATTACKS = [whole, chunk, cut, head]


def edit(path: Path, data: bytes) -> None:
    """Write the whole file in place, as databases and some editors do."""
    with path.open("r+b") as file:
        for offset in range(0, len(data), 100_000):
            file.write(data[offset : offset + 100_000])


def read(path: Path) -> bytes:
    """Read from the daemon instead of the kernel's page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return path.read_bytes()


def newest(folder: Path, ino: int) -> Path:
    """Return the content file of an inode's newest generation; a cache has only one."""
    found = folder.glob(f"{ino}-*")
    return max(found, key=lambda path: int(path.stem.split("-")[1], 16))


def keep(folder: Path, aside: Path) -> Path:
    """Copy everything in a folder for a later restore."""
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder, aside)
    return aside


def work_in(dying: Mortal, name: str) -> Path:
    """Return a folder for one test, mounted."""
    dying.zone.make_folder(f"rollback {name}")
    dying.mount()
    return dying.root / f"rollback {name}"


def with_two_versions(dying: Mortal, paths: Iterable[Path], aside: Path) -> dict[Path, int]:
    """Create files with two versions of the same size, the newer ones in the cache; return the
    inodes.

    A newer version is an edit of the former, so that both have the same key and id.  The cache with
    the former ones is kept `aside`.
    """
    for path in paths:
        path.write_bytes(FORMER)
    dying.sync()
    keep(dying.machine.cache / "content", aside)
    for path in paths:
        edit(path, LATER)
    dying.sync()
    assert [read(path) for path in paths] == [LATER] * len(list(paths))
    return {path: path.stat().st_ino for path in paths}


def test_former_cached_bytes_are_never_read(dying: Mortal, tmp_path: Path) -> None:
    """Restored bytes are downloaded again and then kept, with a running and a stopped daemon."""
    dying.allow("cache")
    folder = work_in(dying, "cache")
    attacks = {folder / each.__name__: each for each in ATTACKS}
    inodes = with_two_versions(dying, attacks, tmp_path / "former")
    content = dying.machine.cache / "content"

    def put_back() -> None:
        for path, attack in attacks.items():
            attack(*(newest(place, inodes[path]) for place in (tmp_path / "former", content)))

    put_back()
    assert [read(path) for path in attacks] == [LATER] * len(attacks)
    put_back()
    dying.end()
    put_back()
    dying.mount()
    assert [read(path) for path in attacks] == [LATER] * len(attacks)
    assert dying.log().count("fetched again") == 2 * len(attacks)  # not for each chunk
    before = dying.deployment.stats()["requests"]
    assert [read(path) for path in attacks] == [LATER] * len(attacks)
    assert dying.deployment.stats()["requests"] == before


def test_a_former_cache_is_of_no_use(dying: Mortal, tmp_path: Path) -> None:
    """A former cache is not used with today's database, nor with a mixture of old and new rows."""
    dying.allow("cache", "index")
    path = work_in(dying, "former cache") / "file.bin"
    inodes = with_two_versions(dying, [path], tmp_path / "former")
    content = dying.machine.cache / "content"
    dying.end()
    present = keep(content, tmp_path / "present")
    shutil.rmtree(content)
    shutil.copytree(tmp_path / "former", content)
    dying.mount()
    assert read(path) == LATER
    dying.end()
    shutil.rmtree(content)
    shutil.copytree(present, content)
    forge(content, tmp_path / "former", inodes[path])
    dying.mount()
    assert read(path) == LATER


def forge(content: Path, former: Path, ino: int) -> None:
    """Make the present version's row name the former file, with all data of the former row."""
    newest(content, ino).unlink()
    shutil.copyfile(newest(former, ino), content / newest(former, ino).name)
    with closing(sqlite3.connect(content / "index.db", isolation_level=None)) as database:
        database.execute("ATTACH ? AS before", (str(former / "index.db"),))
        columns = [row[1] for row in database.execute("PRAGMA table_info(entries)")]
        for name in columns:
            if name not in ("ino", "stamp", "hash"):
                database.execute(f"UPDATE entries SET {name} = (SELECT {name} FROM before.entries)")


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_former_outgoing_bytes_are_never_sent(dying: Mortal, tmp_path: Path, running: bool) -> None:
    """A file that was restored while it was pending is shown as failed; saving again helps."""
    dying.allow("refused", "damaged")
    folder, outgoing = work_in(dying, f"out {running}"), dying.machine.state / "outgoing"
    attacks = {folder / each.__name__: each for each in ATTACKS}
    for path in attacks:
        path.write_bytes(FORMER)
    dying.sync()
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    for path in attacks:
        edit(path, LATER)
    former_bytes = keep(outgoing, tmp_path / "former")
    for path in attacks:
        edit(path, LAST)
    inodes = {path: path.stat().st_ino for path in attacks}
    if not running:
        dying.end()
    for path, attack in attacks.items():
        attack(*(newest(place, inodes[path]) for place in (former_bytes, outgoing)))
    dying.deployment.heal()
    if not running:
        dying.mount()
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    left = dying.status()["uploads"]
    assert [each["state"] for each in left] == ["failed"] * len(attacks)
    assert all("damaged" in each["error"] for each in left)
    for path in attacks:
        with pytest.raises(OSError, match="Input/output"):
            read(path)
        there = f"{folder.name}/{path.name}"
        assert dying.zone.read(there) == FORMER
        assert len(dying.zone.versions(there)) == 1
        path.write_bytes(LAST)
    dying.sync()
    assert all(dying.zone.read(f"{folder.name}/{path.name}") == LAST for path in attacks)


def test_foreign_outgoing_bytes_are_never_sent(dying: Mortal) -> None:
    """Outgoing bytes of another file, or bytes without encryption, are never sent."""
    dying.allow("refused", "damaged")
    folder = work_in(dying, "foreign")
    outgoing = dying.machine.state / "outgoing"
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    paths = [folder / name for name in ("a", "b", "c")]
    for path, data in zip(paths, (FORMER, LATER, LAST), strict=True):
        path.write_bytes(data)
    dying.end()
    one, two, three = sorted(outgoing.iterdir(), key=lambda each: int(each.name.split("-")[0]))
    shutil.copyfile(one, two)
    three.unlink()
    three.with_suffix(".plain").write_bytes(FORMER)
    dying.deployment.heal()
    dying.mount()
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    left = dying.status()["uploads"]
    assert [each["state"] for each in left] == ["failed", "failed"]
    assert all("damaged" in each["error"] for each in left)
    assert dying.zone.tree(folder.name) == {f"{folder.name}/a": FORMER}


def test_former_bytes_below_an_open_file(dying: Mortal, tmp_path: Path) -> None:
    """Chunks that are restored while a program still writes are detected at its next read."""
    dying.allow("refused", "damaged")
    folder = work_in(dying, "open")
    path, outgoing = folder / "file.bin", dying.machine.state / "outgoing"
    with path.open("w+b", buffering=0) as file:
        file.write(FORMER)
        os.fsync(file.fileno())
        ino = path.stat().st_ino
        old = newest(keep(outgoing, tmp_path / "former"), ino)
        file.seek(0)
        file.write(LATER)
        os.fsync(file.fileno())
        chunk(old, newest(outgoing, ino))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with pytest.raises(OSError, match="Input/output"):
            os.pread(file.fileno(), CHUNK, 2 * CHUNK)
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    assert dying.zone.find(f"{folder.name}/file.bin") is None


def test_a_crash_is_not_taken_for_an_attack(dying: Mortal) -> None:
    """Bytes written after fsync may or may not survive a crash; the file is always sent."""
    dying.allow("refused", "reach", "offline")
    folder = work_in(dying, "crash")
    path = folder / "file.bin"
    with pytest.raises(OSError, match=r"connect|abort"), path.open("w+b", buffering=0) as file:
        file.write(FORMER)
        os.fsync(file.fileno())
        for number in (1, 3, 1):
            os.pwrite(file.fileno(), b"%d" % number * CHUNK, number * CHUNK)
        os.pwrite(file.fileno(), LATER, SIZE)
        dying.kill()
        os.pwrite(file.fileno(), b"x", 0)
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    dying.mount()
    expected = bytearray(FORMER)
    for number in (1, 3):
        expected[number * CHUNK : (number + 1) * CHUNK] = b"%d" % number * CHUNK
    assert read(path) == expected
    with path.open("r+b") as again:  # an edit of the recovered file
        again.seek(4 * CHUNK)
        again.write(b"4" * CHUNK)
    expected[4 * CHUNK : 5 * CHUNK] = b"4" * CHUNK
    dying.kill()
    dying.deployment.heal()
    dying.mount()
    dying.sync()
    assert dying.zone.read(f"{folder.name}/file.bin") == expected
    assert len(dying.zone.versions(f"{folder.name}/file.bin")) == 1
    assert read(path) == expected


def test_before_the_fsync_is_not_after_the_crash(dying: Mortal, tmp_path: Path) -> None:
    """After a crash, an open file may differ from the record only in later writes."""
    dying.allow("refused", "damaged", "reach", "offline")
    folder = work_in(dying, "between")
    path, outgoing = folder / "file.bin", dying.machine.state / "outgoing"
    with pytest.raises(OSError, match=r"connect|abort"), path.open("w+b", buffering=0) as file:
        file.write(FORMER)
        os.fsync(file.fileno())
        ino = path.stat().st_ino
        old = newest(keep(outgoing, tmp_path / "former"), ino)
        os.pwrite(file.fileno(), LATER, 0)
        os.fsync(file.fileno())
        dying.kill()
        os.pwrite(file.fileno(), b"x", 0)
    chunk(old, newest(outgoing, ino))
    dying.mount()
    assert dying.ask("sync", paths=[], timeout=20)["exit"] == 1
    assert "damaged" in dying.status()["uploads"][0]["error"]
    assert dying.zone.find(f"{folder.name}/file.bin") is None


def test_outgoing_files_without_records_are_sent(dying: Mortal) -> None:
    """Outgoing files of a version without records are sent: edited again, renamed, or unchanged."""
    dying.allow("refused", "reach", "offline")
    folder = work_in(dying, "before")
    dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    for name in ("as it is", "edited", "cut", "renamed"):
        (folder / name).write_bytes(FORMER)
    dying.kill()
    former.make_seventh(dying.machine.state)
    dying.mount()
    with (folder / "edited").open("r+b") as file:
        file.seek(3 * CHUNK)
        file.write(b"new")
    os.truncate(folder / "cut", CHUNK + 5)
    (folder / "renamed").rename(folder / "new name")
    edited = FORMER[: 3 * CHUNK] + b"new" + FORMER[3 * CHUNK + 3 :]
    expected = {
        "as it is": FORMER,
        "edited": edited,
        "cut": FORMER[: CHUNK + 5],
        "new name": FORMER,
    }
    for _ in range(2):
        assert {name: read(folder / name) for name in expected} == expected
        dying.kill()
        dying.mount()
    dying.deployment.heal()
    dying.sync()
    there = {f"{folder.name}/{name}": data for name, data in expected.items()}
    assert dying.zone.tree(folder.name) == there
    assert {name: read(folder / name) for name in expected} == expected
