"""A newer zonedrive opens an older state, and an older one refuses a newer state."""

from tests.crash import damage, former
from tests.crash.mounts import Mortal
from tests.harness.waiting import eventually
from zonedrive.db import Database
from zonedrive.state.schema import SCHEMAS


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
    eventually(lambda: not dying.outgoing(), what="no bytes are left")


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
    """The second daemon of an account says so in one line, and changes nothing."""
    dying.mount()
    other = dying.machine.folder / "Other"
    other.mkdir()
    ended = dying.machine.run("mount", other)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert dying.status()["pid"] == dying.pid
