"""Reading of folders while they change: telldir, seekdir, rewinddir, and many entries."""

import ctypes
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
for name, kinds in {
    "readdir": [ctypes.c_void_p],
    "telldir": [ctypes.c_void_p],
    "seekdir": [ctypes.c_void_p, ctypes.c_long],
    "rewinddir": [ctypes.c_void_p],
    "closedir": [ctypes.c_void_p],
}.items():
    getattr(libc, name).argtypes = kinds
NAME_AT = 19  # of d_name in struct dirent


class Stream:
    """Folder stream of opendir(3)."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __iter__(self) -> Iterator[str]:
        while entry := libc.readdir(self._pointer):
            name = os.fsdecode(ctypes.string_at(entry + NAME_AT))
            if name not in (".", ".."):
                yield name

    def take(self, count: int) -> list[str]:
        """Return the next names."""
        return list(islice(self, count))

    def tell(self) -> int:
        """Call telldir(3)."""
        return int(libc.telldir(self._pointer))

    def seek(self, where: int) -> None:
        """Call seekdir(3)."""
        libc.seekdir(self._pointer, where)

    def rewind(self) -> None:
        """Call rewinddir(3)."""
        libc.rewinddir(self._pointer)


@contextmanager
def reading(path: Path) -> Iterator[Stream]:
    """Yield the open folder."""
    pointer = libc.opendir(os.fsencode(path))
    assert pointer
    try:
        yield Stream(pointer)
    finally:
        libc.closedir(pointer)


def test_a_listing_under_way_sees_what_stays_exactly_once(mounted: Mounted) -> None:
    """While entries are created, removed and replaced, the others are listed exactly once.

    rewinddir shows the current entries, seekdir continues at the position of telldir.
    """
    folder = mounted.root / "many"
    folder.mkdir()
    names = [f"{number:04}~" for number in range(1500)]
    for name in names:
        (folder / name).touch()
    gone, replaced = set(names[1::3]), names[2::3]
    with reading(folder) as stream:
        seen = stream.take(200)
        here = stream.tell()
        after = stream.take(5)
        stream.seek(here)
        assert stream.take(5) == after
        for name in gone:
            (folder / name).unlink()
        for name in replaced[:150]:
            (folder / "new~").write_bytes(b"saved")
            (folder / "new~").rename(folder / name)
        for number in range(200):
            (folder / f"later {number}~").touch()
        seen += after
        rest = list(stream)
        present = set(os.listdir(folder))
        for name in rest[1200:]:
            assert name in present
        everything = seen + rest
        assert len(everything) == len(set(everything))
        assert set(names) - gone <= set(everything)
        assert not set(rest[1000:]) & gone
        for name in rest:  # what the listing told the kernel of a name is right
            if name in present:
                assert (folder / name).stat().st_size == (5 if name in replaced[:150] else 0)
        stream.rewind()
        again = list(stream)
        assert set(again) == present
        assert len(again) == len(present)
    assert sorted(os.listdir(folder)) == sorted(present)


def test_a_folder_removed_while_it_is_read_is_empty(mounted: Mounted) -> None:
    """The entries of a removed folder are not shown any more, and no entry can be created in it."""
    folder = mounted.root / "short-lived"
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    try:
        folder.rmdir()
        assert os.listdir(handle) == []
        eventually(lambda: not folder.exists(), what="the name is gone")
        with pytest.raises(FileNotFoundError):
            os.open("a", os.O_CREAT | os.O_WRONLY, dir_fd=handle)
    finally:
        os.close(handle)


def fill(mounted: Mounted, folder: str, count: int) -> None:
    """Put `count` empty files into a new folder of the zone, directly in the sandbox's tables."""
    mounted.zone.make_folder(folder)
    parent = mounted.zone.entry_id(folder)
    now = time.time_ns() // 1000
    names = [
        (f"entry {number:06}.txt", uuid.uuid4().hex, uuid.uuid4().hex) for number in range(count)
    ]
    path = mounted.deployment.folder / "data" / "sandbox.db"
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.executemany(
            "INSERT INTO entries (id, zone_id, parent_id, name, folder, version_id, size,"
            " modified_us, modified_by) VALUES (?, ?, ?, ?, 0, ?, 0, ?, ?)",
            [
                (entry, mounted.zone.id, parent, name, version, now, "bob@acme.example")
                for name, entry, version in names
            ],
        )
        database.executemany(
            "INSERT INTO versions VALUES (?, ?, 1, 0, ?, ?)",
            [(version, entry, now, "bob@acme.example") for _, entry, version in names],
        )


def test_thousands_of_entries_of_the_service(mounted: Mounted) -> None:
    """A folder with 5,000 entries is listed completely, each entry once, and can be used."""
    fill(mounted, "many", 5000)
    mounted.restart()
    folder = mounted.root / "many"
    expected = {f"entry {number:06}.txt" for number in range(5000)}
    found = os.listdir(folder)
    assert len(found) == len(expected)
    assert set(found) == expected
    with os.scandir(folder) as entries:
        numbers = {entry.name: entry.stat().st_ino for entry in entries}
    assert len(set(numbers.values())) == 5000
    (folder / "one more.txt").write_bytes(b"x")
    (folder / "entry 002500.txt").unlink()
    assert set(os.listdir(folder)) == expected - {"entry 002500.txt"} | {"one more.txt"}
    mounted.sync()
    assert set(mounted.zone.listing("many")) == set(os.listdir(folder))
