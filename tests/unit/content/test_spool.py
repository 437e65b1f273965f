"""Spool of outgoing files: no accepted byte is lost, and bytes that cannot be kept are refused."""

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from tests.unit.content.mounts import small_disk
from zonedrive.cipher import Sealed
from zonedrive.content.content_file import ContentFile
from zonedrive.content.encrypted_file import create_file
from zonedrive.content.spool import MANY, Spool
from zonedrive.db import Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.paths import private_dir
from zonedrive.state.schema import SCHEMAS

KEY = bytes(range(32))
MIB = 1 << 20


@pytest.fixture
def spool(tmp_path: Path, key: bytes | None) -> Spool:
    """Return a spool of each kind."""
    return Spool(private_dir(tmp_path / "outgoing"), key)


def test_generations_are_found_after_a_restart(spool: Spool) -> None:
    """Generations that were not uploaded before a restart are found; other files are ignored."""
    for ino, generation in ((12, 3), (7, 1), (7, 2)):
        file = spool.create(ino, generation)
        file.pwrite(0, b"%d-%d" % (ino, generation))
        file.close()
    (spool.directory / "README").write_text("not ours")
    again = Spool(spool.directory, spool._key)
    assert again.stored() == [(7, 1), (7, 2), (12, 3)]
    file = again.open(12, 3)
    assert file.pread(0, 100) == b"12-3"
    file.close()
    assert spool.directory.stat().st_mode & 0o777 == 0o700


def test_a_generation_is_not_created_twice(spool: Spool) -> None:
    """A wrong number never overwrites bytes that wait for upload."""
    spool.create(1, 1).close()
    with pytest.raises(FileExistsError):
        spool.create(1, 1)
    with pytest.raises(FileNotFoundError):
        spool.open(1, 2)


def test_a_missing_folder_is_no_missing_file(spool: Spool) -> None:
    """If the folder was moved away, each use fails with EIO, and works when the folder is back."""
    spool.create(1, 1).close()
    aside = spool.directory.rename(spool.directory.with_name("aside"))
    with closing(create_file(spool.directory.with_name("source"), spool._key)) as source:
        for use in (
            spool.room,
            lambda: spool.create(1, 2),
            lambda: spool.open(1, 1),
            lambda: spool.copy(source, 1, 3),
        ):
            with pytest.raises(OSError, match="folder is missing") as refused:
                use()
            assert refused.value.errno == errno.EIO
    aside.rename(spool.directory)
    spool.open(1, 1).close()


def test_readers_see_unflushed_writes(spool: Spool) -> None:
    """A reader sees bytes that were just written and are not on the disk yet."""
    writer = spool.create(1, 1)
    reader = spool.open(1, 1)
    writer.pwrite(0, b"just now")
    assert reader.pread(0, 100) == b"just now"
    writer.close()
    assert reader.pread(0, 100) == b"just now"
    reader.close()
    later = spool.open(1, 1)
    assert later.pread(0, 100) == b"just now"
    later.close()


def test_a_copy_is_independent(spool: Spool) -> None:
    """Writes during an upload do not change the uploaded bytes."""
    old = spool.create(1, 1)
    old.pwrite(0, b"version one" * 10_000)
    new = spool.copy(old, 1, 2)
    new.pwrite(8, b"two")
    assert old.pread(0, 11) == b"version one"
    assert new.pread(0, 11) == b"version two"
    old.close()
    new.close()


async def test_a_file_that_is_created_during_a_copy_stays_known(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that open such a file see the bytes that were just written to it."""
    closed, loop = vars(ContentFile)["closed"].fget, threading.get_ident()
    created = list[ContentFile]()

    def create() -> None:
        created.append(spool.create(2, 1))

    def closed_during_a_switch(file: ContentFile) -> bool:
        if threading.get_ident() != loop and not created:
            trio.from_thread.run_sync(create)
        return bool(closed(file))

    with closing(spool.create(1, 1)) as source:
        source.pwrite(0, b"text")
        monkeypatch.setattr(ContentFile, "closed", property(closed_during_a_switch))
        check = trio.from_thread.check_cancelled
        copy = await trio.to_thread.run_sync(spool.copy, source, 1, 2, check)
    if not created:
        create()
    with closing(copy), closing(created[0]) as written, closing(spool.open(2, 1)) as opened:
        written.pwrite(0, b"just now")
        assert opened.pread(0, 100) == b"just now"


def test_a_deleted_generation_stays_readable(spool: Spool) -> None:
    """A file that is open stays readable after its generation was deleted."""
    file = spool.create(1, 1)
    file.pwrite(0, b"still here")
    spool.delete(1, 1)
    spool.delete(1, 1)
    assert spool.stored() == []
    assert file.pread(0, 100) == b"still here"
    file.close()


def test_bytes_stay_readable_when_encryption_is_switched_on(tmp_path: Path) -> None:
    """Plain files written before `encrypt` was turned on are uploaded unchanged."""
    before = Spool(tmp_path, None).create(1, 1)
    before.pwrite(0, b"plain")
    before.close()
    file = Spool(tmp_path, KEY).open(1, 1)
    assert file.pread(0, 10) == b"plain"
    file.close()


def test_encrypted_bytes_are_never_uploaded_as_they_are(tmp_path: Path) -> None:
    """Encrypted files give an error with a remedy after `encrypt` was turned off."""
    Spool(tmp_path, KEY).create(1, 1).close()
    with pytest.raises(StoreError, match="encrypted") as refused:
        Spool(tmp_path, None).open(1, 1)
    assert refused.value.remedy


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Yield a database with a table of manifests."""
    opened = Database.open(tmp_path / "tree.db", SCHEMAS)
    yield opened
    opened.close()


@pytest.fixture
def recorded(tmp_path: Path, database: Database) -> Spool:
    """Return a spool with a table of manifests; generations 1 and 2 are recorded, 3 is not."""
    spool = Spool(private_dir(tmp_path / "outgoing"), KEY, database, Sealed(KEY))
    for generation in (1, 2, 3):
        file = spool.create(7, generation)
        file.pwrite(0, b"%d" % generation)
        file.close()
        if generation < 3:
            spool.record(7, generation, file)
    return spool


def test_only_recorded_generations_are_opened(recorded: Spool) -> None:
    """A file without a record, or with the record of another file, is not read."""
    with pytest.raises(Damaged, match="nothing is recorded"):
        recorded.open(7, 3)
    shutil.copyfile(recorded.path(7, 1), recorded.path(7, 2))
    with pytest.raises(Damaged, match="not the file"):
        recorded.open(7, 2)
    path = recorded.path(7, 1)
    path.rename(path.with_suffix(".plain"))
    with pytest.raises(Damaged, match="not the file"):
        recorded.open(7, 1)


def test_records_follow_their_files(recorded: Spool) -> None:
    """A second name has a record, a deleted file has none, lost records can be accepted again."""
    recorded.link(7, 1, 8)
    file = recorded.open(8, 1)
    assert file.pread(0, 10) == b"1"
    file.close()
    recorded.link(7, 3, 9)
    with pytest.raises(Damaged, match="nothing is recorded"):
        recorded.open(9, 3)
    recorded.delete(7, 1)
    assert [recorded.accept(*each) for each in recorded.stored()].count(True) == 2
    file = recorded.open(7, 3)
    assert file.pread(0, 10) == b"3"
    assert file.manifest() == b""
    file.close()
    recorded.path(7, 2).unlink()
    recorded.drop_records()
    for ino, generation in ((7, 1), (7, 2)):
        with pytest.raises(Damaged, match="nothing is recorded"):
            recorded.manifest(ino, generation)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_second_name_on_a_disk_without_hard_links(
    recorded: Spool, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The second name has the same bytes, also if a killed process has left a part of them."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    (recorded.directory / f"{recorded.path(8, 1).name}.part").write_bytes(b"part")
    recorded.link(7, 1, 8)
    assert recorded.stored() == [(7, 1), (7, 2), (7, 3), (8, 1)]
    assert len(list(recorded.directory.iterdir())) == 4
    assert recorded.path(8, 1).stat().st_mode & 0o777 == 0o600
    recorded.delete(7, 1)
    with closing(recorded.open(8, 1)) as file:
        assert file.pread(0, 10) == b"1"


def test_records_of_deleted_files_are_deleted_together(
    recorded: Spool, database: Database, tmp_path: Path
) -> None:
    """The records are deleted when the next file is recorded, or when there are many."""

    def rows() -> set[tuple[int, int]]:
        reader = Database.read(tmp_path / "tree.db", SCHEMAS)
        found = reader.execute("SELECT ino, generation FROM manifests").fetchall()
        reader.close()
        return set(found)

    recorded.delete(7, 1)
    assert rows() == {(7, 1), (7, 2)}
    file = recorded.create(8, 1)
    with pytest.raises(RuntimeError), database.transaction():
        recorded.record(8, 1, file)
        raise RuntimeError
    assert rows() == {(7, 1), (7, 2)}
    with pytest.raises(Damaged, match="nothing is recorded"):
        recorded.manifest(7, 1)
    recorded.record(8, 1, file)
    file.close()
    assert rows() == {(7, 2), (8, 1)}
    for generation in range(MANY - 1):
        recorded.delete(7, generation)
    assert rows() == {(7, 2), (8, 1)}
    recorded.delete(8, 1)
    assert rows() == set()


@pytest.mark.parametrize("piece", [4096, 100_000, MIB])
def test_a_full_disk_loses_nothing(tmp_path: Path, key: bytes | None, piece: int) -> None:
    """A write that does not fit fails with ENOSPC; bytes flushed before are kept."""
    with small_disk(tmp_path / "disk", 3 * MIB) as disk:
        spool = Spool(private_dir(disk / "out"), key)
        file = spool.create(1, 1)
        safe = os.urandom(MIB + 12_345)
        file.pwrite(0, safe)
        file.flush()
        offset = len(safe)
        with pytest.raises(OSError, match=r".") as refused:
            while True:
                offset += file.pwrite(offset, b"n" * piece)
        assert refused.value.errno == errno.ENOSPC
        # Overwriting existing bytes is tested as well: the result is all old or all new bytes.
        for place in (0, MIB, 500_000):
            try:
                file.pwrite(place, safe[place : place + 5000])
            except OSError as full:
                assert full.errno == errno.ENOSPC
        assert file.pread(0, len(safe)) == safe
        try:
            file.close()
        except OSError as full:
            assert full.errno == errno.ENOSPC
        again = spool.open(1, 1)
        assert again.pread(0, len(safe)) == safe
        assert again.size >= len(safe)
        again.truncate(10)
        again.pwrite(10, b"room again")
        again.sync()
        assert again.pread(0, 20) == safe[:10] + b"room again"
        again.close()


def test_a_file_that_cannot_be_created_leaves_nothing(tmp_path: Path, key: bytes | None) -> None:
    """On a full disk a new file fails at once, and no empty file remains."""
    with small_disk(tmp_path / "disk", 64 * 1024) as disk:
        (disk / "filler").write_bytes(bytes(64 * 1024))
        path = disk / "1-1"
        with pytest.raises(OSError, match="space"):
            create_file(path, key).pwrite(0, bytes(5000))
        assert key is None or not path.exists()
