"""Virtual entries: lookup by name, permanent inode numbers, refused changes."""

import errno
import os
import stat
from collections.abc import Mapping

import pytest

from tests.unit.state.disk import zone_of
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL
from zonedrive.views.virtual import (
    Content,
    Node,
    VirtualLayer,
    number,
    refuse_writing,
)


class Words(Content):
    """Open file with fixed bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.closed = False

    async def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def close(self) -> None:
        self.closed = True


class Letter(Node):
    """File of one letter."""

    mode = stat.S_IFREG | 0o444
    size = 1

    def __init__(self, letter: str) -> None:
        super().__init__(number("test", "letter", letter))
        self.letter = letter

    def xattrs(self) -> dict[str, str]:
        return {"state": "local"}

    async def open(self, flags: int, pid: int) -> Content:
        refuse_writing(flags)
        return Words(self.letter.encode())


class Letters(Node):
    """Virtual folder of letters."""

    mode = stat.S_IFDIR | 0o500

    def __init__(self) -> None:
        super().__init__(number("test", "letters"))

    async def children(self) -> Mapping[str, Node]:
        return {letter: Letter(letter) for letter in "abc"}


class LettersInZones:
    """Virtual root `letters` in zones."""

    name = "letters"

    def open(self, folder: int) -> Node | None:
        return None if folder == ROOT else Letters()


async def test_a_virtual_root_is_found_by_name(state: LocalState) -> None:
    """A virtual root exists in folders that have it, unless an entry of the tree has the name."""
    zone, virtual = zone_of(state), VirtualLayer(state, [LettersInZones()])
    for parent, name in ((ROOT, b"letters"), (zone.ino, b"other")):
        with pytest.raises(FileNotFoundError):
            await virtual.lookup(parent, name)
    found = await virtual.lookup(zone.ino, b"letters")
    assert found.ino == number("test", "letters") > VIRTUAL
    assert virtual.has(zone.ino, b"letters") and not virtual.has(zone.ino, b"other")
    with state.transaction():
        real = state.inodes.add(zone.ino, "letters", Kind.FOLDER, zone="z")
    with pytest.raises(FileNotFoundError):
        await virtual.lookup(zone.ino, b"letters")
    assert not virtual.has(zone.ino, b"letters")
    with state.transaction():
        state.inodes.unlink(real)
    assert virtual.has(zone.ino, b"letters")


async def test_nodes_are_kept_until_the_kernel_forgets_them(state: LocalState) -> None:
    """Nodes are kept after lookups and after listings."""
    zone, virtual = zone_of(state), VirtualLayer(state, [LettersInZones()])
    top = await virtual.lookup(zone.ino, b"letters")
    handle = await virtual.opendir(top.ino)
    listed = list(virtual.readdir(handle, 0))
    assert [name for name, _, _ in listed] == [b".", b"..", b"a", b"b", b"c"]
    assert [name for name, _, _ in virtual.readdir(handle, 4)] == [b"c"]
    virtual.remember([attr.ino for _, attr, _ in listed[2:]])
    virtual.releasedir(handle)
    a = await virtual.lookup(top.ino, b"a")
    assert a.ino == listed[2][1].ino
    virtual.forget(a.ino, 1)
    assert virtual.getattr(a.ino).size == 1
    assert virtual.xattrs(a.ino) == {"user.zonedrive.state": "local"}
    virtual.forget(a.ino, 1)
    with pytest.raises(FileNotFoundError):
        virtual.getattr(a.ino)
    with pytest.raises(FileNotFoundError):
        await virtual.lookup(top.ino, b"d")
    with pytest.raises(NotADirectoryError):
        await virtual.opendir(listed[3][1].ino)
    with pytest.raises(IsADirectoryError):
        await virtual.open(top.ino, os.O_RDONLY, 0)


async def test_entries_are_read_only(state: LocalState) -> None:
    """Every change that a folder does not implement is refused with EROFS."""
    zone, virtual = zone_of(state), VirtualLayer(state, [LettersInZones()])
    top = await virtual.lookup(zone.ino, b"letters")
    file = await virtual.lookup(top.ino, b"b")
    opened = await virtual.open(file.ino, os.O_RDONLY, 0)
    assert opened.handle >= VIRTUAL
    assert await virtual.read(opened.handle, 0, 10) == b"b"
    await virtual.flush(opened.handle)
    for change in (
        virtual.write(opened.handle, 0, b"x"),
        virtual.open(file.ino, os.O_RDWR, 0),
        virtual.open(file.ino, os.O_RDONLY | os.O_TRUNC, 0),
        virtual.create(top.ino, b"d", 0o600, os.O_WRONLY),
        virtual.mkdir(top.ino, b"d", 0o700),
        virtual.unlink(top.ino, b"b"),
        virtual.rmdir(zone.ino, b"letters"),
        virtual.rename(top.ino, b"b", top.ino, b"d", 0),
        virtual.rename(top.ino, b"b", zone.ino, b"d", 0),
        virtual.rename(zone.ino, b"x", top.ino, b"d", 0),
        virtual.rename(zone.ino, b"letters", zone.ino, b"d", 0),
        virtual.rename(zone.ino, b"x", zone.ino, b"letters", 0),
        virtual.setattr(file.ino, size=0, mode=None, mtime_ns=None),
    ):
        with pytest.raises(OSError) as refused:  # check= is younger than Debian 13's pytest
            await change
        assert refused.value.errno == errno.EROFS
    for taken in (
        virtual.create(zone.ino, b"letters", 0o600, 0),
        virtual.mkdir(zone.ino, b"letters", 0o700),
    ):
        with pytest.raises(FileExistsError):
            await taken
    virtual.close_all()


def test_inode_numbers() -> None:
    """Inode numbers are permanent, unique, and never those of entries of the tree."""
    found = [number("a", "bc"), number("ab", "c"), number("abc"), number("a", "bc", "")]
    assert len(set(found)) == len(found)
    assert number("a", "bc") == found[0]
    assert all(VIRTUAL <= each < 1 << 63 for each in found)
    assert number("\udcff") >= VIRTUAL
