"""A newer zonedrive opens an older state, and an older one refuses a newer state."""

import random
from pathlib import Path

from tests.crash import damage, former
from tests.crash.mounts import Mortal
from tests.harness.deployment import RemoteZone
from tests.harness.waiting import eventually
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import FileStore
from zonedrive.paths import private_dir
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.schema import SCHEMAS


class FormerDatabases:
    """Databases of an account in the fourth schema, as the old version wrote them."""

    def __init__(self, state: Path, zone: RemoteZone, name: str) -> None:
        box, key = data_box(FileStore(state / "secrets.json"), True)
        self._state = state
        self.database = Database.open(state / "tree.db", SCHEMAS)
        self.tree = Inodes.open(self.database, box)
        self.spool = Spool(private_dir(state / "outgoing"), key)
        self._generation = 1000
        with self.database.transaction():
            self.zone = self.tree.add(
                ROOT, name, Kind.ZONE, zone=zone.id, remote_id=zone.root_id, remote_name=name
            )

    def intent(self, inode: Inode, generation: int, size: int, *, gone: int = 0) -> None:
        """Add an intent."""
        self.database.execute(
            "INSERT INTO intents VALUES (?, ?, ?, ?, ?, 0, ?, 0, 0, 0, 0, '', 0, 0, NULL)",
            (inode.ino, inode.ino, generation, size, inode.revision or None, gone),
        )

    def close(self) -> None:
        """Close the databases, as the old daemon did."""
        self.database.close()
        former.make_fourth(self._state)

    def save(self, name: str, data: bytes, **known: object) -> None:
        """Add a file that was closed and not sent."""
        self._generation += 1
        with self.database.transaction():
            inode = self.tree.add(
                self.zone.ino, name, Kind.FILE, zone=self.zone.zone,
                generation=self._generation, size=len(data), **known,
            )  # fmt: skip
            file = self.spool.create(inode.ino, self._generation)
            file.pwrite(0, data)
            file.close()
            self.intent(inode, self._generation, len(data))


def test_a_full_outbox_of_the_former_schema_is_sent_once(dying: Mortal) -> None:
    """Files that were pending before the upgrade are sent after it, each as one version."""
    zone = dying.zone
    before = zone.listing()
    name = dying.root.name
    stores = FormerDatabases(dying.machine.state, zone, name)
    saved = {f"former {n}.txt": random.Random(n).randbytes(1 + n * 40_000) for n in range(8)}
    for file, data in saved.items():
        stores.save(file, data)
    stores.close()
    dying.mount()
    assert {file: (dying.root / file).read_bytes() for file in saved} == saved
    dying.sync()
    assert zone.listing().keys() == before.keys() | saved.keys()
    for file, data in saved.items():
        assert zone.read(file) == data
        assert len(zone.versions(file)) == 1
    eventually(lambda: not dying.outgoing(), what="no bytes are left")
    assert dying.complaints() == []
    dying.kill()
    dying.mount()
    dying.sync()
    assert all(len(zone.versions(file)) == 1 for file in saved)
    for file in saved:
        zone.delete(file)


def test_edits_renames_and_removals_of_the_former_schema_arrive(dying: Mortal) -> None:
    """Pending changes of all kinds are carried out after the upgrade, once."""
    dying.allow("offline", "reach")
    zone = dying.zone
    zone.make_folder("upgrade")
    for name in ("edited.txt", "renamed.txt", "removed.txt"):
        zone.write(f"upgrade/{name}", b"former\n")
    edited, renamed = (zone.entry_id(f"upgrade/{name}.txt") for name in ("edited", "renamed"))
    dying.mount()
    folder = dying.root / "upgrade"
    assert len(list(folder.iterdir())) == 3
    with dying.deployment.faulty(down=True):
        (folder / "edited.txt").write_bytes(b"edited\n")
        (folder / "renamed.txt").rename(folder / "new name.txt")
        (folder / "removed.txt").unlink()
        (folder / "made").mkdir()
        (folder / "made/inside.txt").write_bytes(b"inside\n")
        dying.kill()
    former.make_fourth(dying.machine.state)
    dying.mount()
    dying.sync()
    assert zone.tree("upgrade") == {
        "upgrade/edited.txt": b"edited\n",
        "upgrade/new name.txt": b"former\n",
        "upgrade/made": None,
        "upgrade/made/inside.txt": b"inside\n",
    }
    assert zone.entry_id("upgrade/edited.txt") == edited
    assert zone.entry_id("upgrade/new name.txt") == renamed
    assert len(zone.versions("upgrade/edited.txt")) == 2


def test_listings_of_the_former_schema_serve_offline(dying: Mortal) -> None:
    """Former listings are used after the upgrade with the same inode numbers, also offline."""
    dying.allow("offline", "reach")
    dying.zone.make_folder("former")
    names = {f"{number:03}.txt" for number in range(150)}
    for name in names:
        dying.deployment.plant(dying.root.name, name, "x", parent="former")
    dying.mount()
    folder = dying.root / "former"
    before = {each.name: each.stat().st_ino for each in folder.iterdir()}
    assert before.keys() == names
    dying.kill()
    former.make_fourth(dying.machine.state)
    with dying.deployment.faulty(down=True):
        dying.mount()
        assert (folder / "007.txt").stat().st_ino == before["007.txt"]
        assert not (folder / "no such").exists()
        assert {each.name: each.stat().st_ino for each in folder.iterdir()} == before
        dying.kill()
    dying.mount()
    assert {each.name: each.stat().st_ino for each in folder.iterdir()} == before
    assert (folder / "007.txt").read_text() == "x"


def test_a_database_of_a_newer_zonedrive_is_left_alone(dying: Mortal) -> None:
    """One line has the remedy; the database is neither changed nor treated as damaged."""
    dying.mount()
    dying.kill()
    path = dying.machine.state / "tree.db"
    damage.flatten(path)
    database = Database.open(path, SCHEMAS)
    database.execute(f"PRAGMA user_version = {len(SCHEMAS) + 1}")
    database.close()
    before = path.read_bytes()
    ended = dying.machine.run("mount", dying.path)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "newer zonedrive" in ended.stderr
    assert "upgrade" in ended.stderr
    assert path.read_bytes() == before
    assert not list(dying.machine.state.glob("tree.db.*"))


def test_a_second_daemon_is_refused(dying: Mortal) -> None:
    """Two daemons never use one account: the second reports that in one line and changes
    nothing."""
    dying.mount()
    other = dying.machine.folder / "Other"
    other.mkdir()
    ended = dying.machine.run("mount", other)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert dying.status()["pid"] == dying.pid
