"""Large databases: used at once, checked in the background, repaired at the next start."""

from pathlib import Path

import pytest

from tests.crash import damage
from zonedrive.cipher import Box, Sealed, new_key
from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.state import repair
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.schema import ONLY_HERE, SCHEMAS, whole


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every database as a large one."""
    monkeypatch.setattr(repair, "SMALL", 0)


def opened(path: Path, box: Box) -> Database:
    return repair.open_sound(path, SCHEMAS, whole(box), sparing=ONLY_HERE)


def filled(path: Path, box: Box) -> dict[str, int]:
    """Create a thousand copies and a local file; return the inode numbers by name."""
    database = opened(path, box)
    tree = Inodes.open(database, box)
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        copies = {
            f"{number:04}": {"kind": Kind.FILE, "zone": "z", "remote_id": f"{number}"}
            for number in range(1000)
        }
        tree.add_all(zone.ino, copies)
        tree.add(zone.ino, "ours", Kind.FILE, zone="z", generation=5)
    found = dict(tree.children(zone.ino))
    database.close()
    return found


def spoil(path: Path, ino: int) -> None:
    """Damage a row so that its check fails."""
    database = Database.open(path, SCHEMAS)
    database.execute("UPDATE inodes SET sealed = x'00' WHERE ino = ?", (ino,))
    database.close()


def test_a_damaged_copy_does_not_keep_a_mount_waiting(tmp_path: Path) -> None:
    """Rows that can be listed again are not checked before the mount, however many there are."""
    box = Sealed(new_key())
    path = tmp_path / "tree.db"
    inos = filled(path, box)
    spoil(path, inos["0500"])
    database = opened(path, box)
    assert not repair.pending(path)
    names = Inodes.open(database, box).children(2)
    assert set(names) == set(inos) - {"0500"}
    database.close()


def test_what_is_only_here_is_looked_at_before_the_mount(tmp_path: Path) -> None:
    """A damaged row with local bytes is detected at once, and the bytes are found again."""
    box = Sealed(new_key())
    path = tmp_path / "tree.db"
    inos = filled(path, box)
    spoil(path, inos["ours"])
    database = opened(path, box)
    assert repair.pending(path)
    assert set(Inodes.open(database, box).children(2)) == set(inos) - {"ours"}
    database.close()


def test_damage_found_beside_the_work_is_mended_at_the_next_start(tmp_path: Path) -> None:
    """A background check finds damage of the structure; the daemon reports it and continues."""
    box = Sealed(new_key())
    path = tmp_path / "tree.db"
    inos = filled(path, box)
    assert repair.inspect(path) == ""
    damage.flatten(path)
    pages = damage.pages_of(path, "inodes")
    damage.overwrite(path, *pages[len(pages) // 2])
    assert repair.inspect(path)
    assert repair.doubted(path)
    database = opened(path, box)
    assert repair.pending(path)
    assert not repair.doubted(path)
    names = Inodes.open(database, box).children(2)
    assert "ours" in names
    assert 900 < len(names) < 1001
    assert all(inos[name] == ino for name, ino in names.items())
    database.close()


def test_the_wrong_key_is_no_damage(tmp_path: Path) -> None:
    """An emptied keyring does not cause a repair of the database."""
    path = tmp_path / "tree.db"
    filled(path, Sealed(new_key()))
    with pytest.raises(StoreError, match="key of this account"):
        opened(path, Sealed(new_key()))
