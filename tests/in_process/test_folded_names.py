"""A service that takes names for one that differ in case or Unicode normalization.

An upload under the other name becomes the next version of another file. zonedrive reports
that, and takes the name that the service has given.
"""

import time
import unicodedata
from collections.abc import Callable

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from tests.in_process.test_lost_replies import lost_upload

SAID = "replaced the version"
BOB, ALICE = b"Bob's version\n", b"Alice's version\n"
PUBLISHED = pytest.param(None, marks=pytest.mark.mount(profile="published"), id="published")
SANDBOX = pytest.param(None, id="sandbox")


def nfc(name: str) -> str:
    """Return the composed form."""
    return unicodedata.normalize("NFC", name)


def fold(desk: Mounted, key: Callable[[str], str] = str.lower, *, stored: bool = False) -> None:
    """Let the service compare names by `key`; it may also store new names in this form."""
    world = virtual(desk).deployment.world
    world.key = key
    if stored:
        world.stored = key


def collide(desk: Mounted, theirs: str = "x.txt", mine: str = "X.TXT") -> None:
    """Save a file beside Bob's, which has another spelling of its name."""
    desk.allow(SAID)
    desk.zone.write(theirs, BOB)
    assert theirs in desk.names(desk.root)
    (desk.root / mine).write_bytes(ALICE)


def assert_replaced(desk: Mounted, name: str = "x.txt", sent: int = 1) -> None:
    """Check that there is one file of Bob's name with Alice's bytes, and that this is reported."""
    assert desk.zone.read(name) == ALICE
    assert len(desk.zone.versions(name)) == 1 + sent
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
    assert (desk.root / name).read_bytes() == ALICE
    (told,) = desk.conflicts()
    assert told["path"] == told["original"] == f"Zone 01/{name}"
    assert told["by"] == "bob@acme.example"
    assert desk.status()["outbox"]["failed"] == desk.status()["outbox"]["pending"] == 0


@pytest.mark.parametrize("profile", [SANDBOX, PUBLISHED])
@pytest.mark.parametrize(
    ("theirs", "mine", "key"),
    [("x.txt", "X.TXT", str.lower), ("\u00e9.txt", "e\u0301.txt", nfc)],
)
def test_a_file_beside_a_coworkers(
    desk: Mounted, profile: None, theirs: str, mine: str, key: Callable[[str], str]
) -> None:
    """The file takes Bob's name, and nothing is renamed on the service."""
    fold(desk, key)
    collide(desk, theirs, mine)
    answer = desk.command("sync", timeout=60)
    assert (answer["exit"], answer["failed"], answer["conflicts"]) == (0, [], [])
    assert answer["replaced"] == [f"Zone 01/{theirs}"]
    assert_replaced(desk, theirs)
    assert not [one for one in virtual(desk).deployment.world.requests if one.startswith("PUT")]


def test_another_save_under_the_other_name(desk: Mounted) -> None:
    """The save is a version of the same file, and the former report stays the only one."""
    fold(desk)
    collide(desk)
    desk.sync()
    (desk.root / "X.TXT").write_bytes(ALICE * 2)
    desk.sync()
    assert desk.zone.read("x.txt") == ALICE * 2
    assert len(desk.conflicts()) == 1
    assert desk.command("sync", timeout=60)["replaced"] == []


@pytest.mark.parametrize("profile", [SANDBOX, PUBLISHED])
def test_an_own_file(desk: Mounted, profile: None) -> None:
    """The user's other file is reported like a coworker's, but once for all saves to the path."""
    fold(desk)
    desk.allow(SAID)
    (desk.root / "x.txt").write_bytes(BOB)
    desk.sync()
    (desk.root / "X.TXT").write_bytes(ALICE)
    assert desk.command("sync", timeout=60)["replaced"] == ["Zone 01/x.txt"]
    assert desk.zone.read("x.txt") == ALICE
    assert "X.TXT" not in desk.names(desk.root)
    (told,) = desk.conflicts()
    assert told["path"] == told["original"] == "Zone 01/x.txt"
    assert told["by"] == "alice@acme.example"
    (desk.root / "X.TXT").write_bytes(ALICE * 2)
    desk.sync()
    assert desk.zone.read("x.txt") == ALICE * 2
    assert desk.conflicts() == [told]


@pytest.mark.parametrize("first", ["x.txt", "X.TXT"])
def test_two_own_files_at_once(desk: Mounted, first: str) -> None:
    """One of the two files is reported, whichever name the service stores."""
    fold(desk, stored=True)
    desk.allow(SAID)
    second = {"x.txt": "X.TXT", "X.TXT": "x.txt"}[first]
    desk.deployment.fault(stall=2, method="POST", path="^/api/zones/")
    (desk.root / first).write_bytes(BOB)
    (desk.root / second).write_bytes(ALICE)
    desk.sync()
    desk.deployment.heal()
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
    assert len(desk.zone.versions("x.txt")) == 2
    assert len(desk.conflicts()) == 1


def test_a_path_whose_name_the_service_changes(desk: Mounted) -> None:
    """A program that always saves to its own path replaces only its former save."""
    fold(desk, stored=True)
    for number in range(3):
        (desk.root / "New.TXT").write_bytes(b"%d" % number)
        desk.sync()
    assert len(desk.zone.versions("new.txt")) == 3
    assert desk.conflicts() == []


def test_an_own_file_that_is_renamed_to_the_other_name(desk: Mounted) -> None:
    """A rename sends no new file, whether or not the file was uploaded before."""
    fold(desk)
    (desk.root / "x.txt").write_bytes(BOB)
    desk.sync()
    (desk.root / "x.txt").rename(desk.root / "X.TXT")
    desk.sync()
    (desk.root / "y.txt").write_bytes(BOB)
    (desk.root / "y.txt").rename(desk.root / "Y.TXT")
    desk.sync()
    assert {"X.TXT", "Y.TXT"} <= set(desk.names(desk.root))
    assert desk.conflicts() == []


def test_an_own_file_that_was_removed(desk: Mounted) -> None:
    """A new file under the other name replaces what the user has removed."""
    fold(desk)
    (desk.root / "x.txt").write_bytes(BOB)
    desk.sync()
    (desk.root / "x.txt").unlink()
    (desk.root / "X.TXT").write_bytes(ALICE)
    desk.sync()
    assert desk.conflicts() == []


@pytest.mark.mount("settle=3", "refresh=600")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_file_that_is_removed_beside_its_other_name(
    desk: Mounted, is_first: bool, stored: bool
) -> None:
    """The file is deleted before the other one is sent, which would become its version."""
    fold(desk, stored=stored)
    desk.zone.write("x.txt", BOB)
    assert (desk.root / "x.txt").read_bytes() == BOB
    desk.deployment.fault(latency_ms=300, method="DELETE")
    if is_first:
        (desk.root / "x.txt").unlink()
    (desk.root / "X.TXT").write_bytes(ALICE)
    if not is_first:
        (desk.root / "x.txt").unlink()
    desk.sync()
    name = "x.txt" if stored else "X.TXT"
    assert desk.zone.read(name) == (desk.root / name).read_bytes() == ALICE
    assert len(desk.zone.versions(name)) == 1


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("is_united", [False, True])
def test_a_file_that_cannot_be_removed_beside_its_other_name(
    desk: Mounted, is_united: bool
) -> None:
    """The other file is sent, because most services take them for two files."""
    desk.allow("locked it")
    if is_united:
        fold(desk)
    desk.zone.write("x.txt", BOB)
    assert (desk.root / "x.txt").read_bytes() == BOB
    desk.deployment.fault(status=423, error="LOCKED", method="DELETE")
    (desk.root / "x.txt").unlink()
    time.sleep(1)
    (desk.root / "X.TXT").write_bytes(ALICE)
    desk.try_sync()
    assert ALICE in desk.zone.tree().values()
    desk.deployment.heal()
    desk.sync()
    (name,) = (each for each in desk.zone.listing() if each.lower() == "x.txt")
    assert name == ("x.txt" if is_united else "X.TXT")
    assert desk.zone.read(name) == (desk.root / name).read_bytes() == ALICE


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_file_that_is_removed_during_the_upload_under_its_other_name(desk: Mounted) -> None:
    """The removal finds the version that was uploaded, and keeps the file."""
    fold(desk)
    desk.allow("newer version")
    desk.zone.write("x.txt", BOB)
    assert (desk.root / "x.txt").read_bytes() == BOB
    desk.deployment.fault(latency_ms=2500, method="POST", path="^/api/zones/")
    desk.deployment.fault(latency_ms=2000, method="DELETE")
    (desk.root / "X.TXT").write_bytes(ALICE)
    time.sleep(0.2)
    (desk.root / "x.txt").unlink()
    time.sleep(10)
    desk.sync()
    assert desk.zone.read("x.txt") == (desk.root / "x.txt").read_bytes() == ALICE


@pytest.mark.mount("settle=3", "refresh=600")
def test_a_file_that_is_renamed_beside_its_other_name(desk: Mounted) -> None:
    """The file is renamed before the other one is sent."""
    fold(desk)
    desk.zone.write("x.txt", BOB)
    before = desk.zone.entry_id("x.txt")
    assert (desk.root / "x.txt").read_bytes() == BOB
    desk.deployment.fault(latency_ms=300, method="PUT")
    (desk.root / "x.txt").rename(desk.root / "old.txt")
    (desk.root / "X.TXT").write_bytes(ALICE)
    desk.sync()
    assert desk.zone.entry_id("old.txt") == before
    assert desk.zone.read("old.txt") == (desk.root / "old.txt").read_bytes() == BOB
    assert desk.zone.read("X.TXT") == (desk.root / "X.TXT").read_bytes() == ALICE
    assert desk.conflicts() == []


@pytest.mark.parametrize("stored", [False, True])
def test_a_file_moves_into_a_new_folder_with_another_spelling_of_its_name(
    desk: Mounted, stored: bool
) -> None:
    """The file has a temporary name until the folder is made."""
    fold(desk, stored=stored)
    desk.zone.write("x", BOB)
    before = desk.zone.entry_id("x")
    assert (desk.root / "x").read_bytes() == BOB
    (desk.root / "X").mkdir()
    (desk.root / "x").rename(desk.root / "X" / "x")
    (desk.root / "X" / "new").write_bytes(ALICE)
    desk.sync()
    assert desk.zone.entry_id("X/x") == before
    assert desk.zone.read("X/new") == ALICE
    assert set(desk.zone.listing("X")) == {"x", "new"}


def test_a_folder_is_replaced_by_one_with_another_spelling_of_its_name(desk: Mounted) -> None:
    """The files of the removed folder have temporary names until the new folder is made."""
    fold(desk)
    desk.zone.make_folder("x")
    for name in ("one", "two"):
        desk.zone.write(f"x/{name}", name.encode())
    before = {name: desk.zone.entry_id(f"x/{name}") for name in ("one", "two")}
    assert set(desk.names(desk.root / "x")) == set(before)
    (desk.root / "X").mkdir()
    for name in before:
        (desk.root / "x" / name).rename(desk.root / "X" / name)
    (desk.root / "x").rmdir()
    desk.sync()
    assert {name: desk.zone.entry_id(f"X/{name}") for name in desk.zone.listing("X")} == before
    assert set(desk.names(desk.root / "X")) == set(before)


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_save_under_the_other_name_of_a_removed_file_that_is_read(desk: Mounted) -> None:
    """The saved file stays visible, and the program continues to read the removed one."""
    fold(desk)
    desk.zone.write("x.txt", BOB)
    before = desk.zone.entry_id("x.txt")
    with (desk.root / "x.txt").open("rb", buffering=0) as file:
        assert file.read(6) == BOB[:6]
        (desk.root / "x.txt").unlink()
        (desk.root / "X.TXT").write_bytes(ALICE)
        desk.sync()
        assert (desk.root / "x.txt").read_bytes() == ALICE
        assert file.read() == BOB[6:]
    desk.sync()
    assert desk.zone.entry_id("x.txt") == before
    assert desk.zone.read("x.txt") == (desk.root / "x.txt").read_bytes() == ALICE
    assert desk.conflicts() == []


@pytest.mark.mount("settle=0", "refresh=0.5")
@pytest.mark.parametrize("read", [False, True])
def test_a_save_under_the_other_name_of_a_backup(desk: Mounted, read: bool) -> None:
    """The saved file gets the entry of the backup, which keeps its content on this machine."""
    fold(desk)
    desk.zone.write("x.txt", BOB)
    before = desk.zone.entry_id("x.txt")
    assert "x.txt" in desk.names(desk.root)
    if read:
        assert (desk.root / "x.txt").read_bytes() == BOB
    (desk.root / "x.txt").rename(desk.root / "x.txt~")
    (desk.root / "X.TXT").write_bytes(ALICE)
    desk.sync()
    assert desk.zone.entry_id("x.txt") == before
    assert desk.zone.read("x.txt") == (desk.root / "x.txt").read_bytes() == ALICE
    assert (desk.root / "x.txt~").read_bytes() == BOB
    desk.restart()
    assert (desk.root / "x.txt~").read_bytes() == BOB
    assert set(desk.names(desk.root)) == {*desk.zone.listing(), "x.txt~"}
    assert desk.conflicts() == []


@pytest.mark.mount("settle=0", "refresh=0")
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_late_answer(desk: Mounted, killed: bool, listed: bool) -> None:
    """Bob's version is reported as well if a listing is faster, and after a restart."""
    fold(desk)
    desk.deployment.fault(stall=3, method="POST", path="^/api/zones/")
    collide(desk)
    eventually(lambda: desk.zone.read("x.txt") == ALICE, what="the version is on the service")
    if killed:
        desk.kill()
        desk.deployment.heal()
        if listed:  # the comparison with the sent bytes fails
            desk.allow("refused")
            desk.deployment.fault(status=403, method="GET", path="/content$")
        desk.mount()
    if listed:
        assert "x.txt" in desk.names(desk.root)
        time.sleep(1)
        assert "x.txt" in desk.names(desk.root)
    desk.deployment.heal()
    desk.sync()
    assert_replaced(desk)


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("change", ["rename", "remove", "edit"])
def test_a_change_during_the_upload(desk: Mounted, change: str) -> None:
    """A rename or a removal of the new file does not rename or remove Bob's."""
    fold(desk)
    desk.deployment.fault(stall=5, method="POST", path="^/api/zones/")
    collide(desk)
    eventually(lambda: desk.zone.read("x.txt") == ALICE, what="the version is on the service")
    if change == "rename":
        (desk.root / "X.TXT").rename(desk.root / "y.txt")
    elif change == "remove":
        (desk.root / "X.TXT").unlink()
    else:
        (desk.root / "X.TXT").write_bytes(BOB * 2)
    desk.deployment.heal()
    desk.sync()
    assert len(desk.conflicts()) == 1
    assert ("y.txt" in desk.zone.listing()) == (change == "rename")
    assert desk.zone.read("x.txt") == (BOB * 2 if change == "edit" else ALICE)
    assert set(desk.names(desk.root)) == set(desk.zone.listing())


@pytest.mark.parametrize("profile", [SANDBOX, PUBLISHED])
def test_a_service_that_changes_new_names(desk: Mounted, profile: None) -> None:
    """The file gets the service's name at once, without a rename or an error."""
    fold(desk, stored=True)
    (desk.root / "New.TXT").write_bytes(b"1")
    assert desk.command("sync", timeout=60)["exit"] == 0
    assert "new.txt" in desk.names(desk.root)
    (desk.root / "new.txt").write_bytes(b"two")
    assert desk.command("sync", timeout=60)["exit"] == 0
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
    assert len(desk.zone.versions("new.txt")) == 2
    assert desk.conflicts() == []
    assert not [one for one in virtual(desk).deployment.world.requests if one.startswith("PUT")]


def test_a_rename_whose_answer_has_another_name(desk: Mounted) -> None:
    """The file gets the service's name, and the next save does not rename it again."""
    fold(desk, stored=True)
    (desk.root / "notes.txt").rename(desk.root / "New.TXT")
    desk.sync()
    assert "new.txt" in desk.names(desk.root)
    (desk.root / "new.txt").write_bytes(b"two")
    desk.sync()
    moves = [one for one in virtual(desk).deployment.world.requests if one.startswith("PUT")]
    assert len(moves) == 1
    assert set(desk.names(desk.root)) == set(desk.zone.listing())


def test_a_folder_whose_name_is_changed(desk: Mounted) -> None:
    """Files in the folder are uploaded; the folder has the service's name."""
    fold(desk, stored=True)
    (desk.root / "New").mkdir()
    (desk.root / "New" / "a").write_bytes(b"1")
    desk.sync()
    assert desk.zone.read("new/a") == b"1"
    assert set(desk.names(desk.root)) == set(desk.zone.listing())


def test_a_service_that_distinguishes_the_names(desk: Mounted) -> None:
    """Both files stay, without a report."""
    collide(desk)
    desk.sync()
    assert (desk.zone.read("x.txt"), desk.zone.read("X.TXT")) == (BOB, ALICE)
    assert {"x.txt", "X.TXT"} <= set(desk.names(desk.root))
    assert desk.conflicts() == []


@pytest.mark.parametrize("theirs", ["file", "folder"])
@pytest.mark.parametrize("mine", ["new folder", "renamed folder", "renamed file"])
def test_a_new_folder_or_a_rename_beside_the_other_name(
    desk: Mounted, theirs: str, mine: str
) -> None:
    """Two folders become one; anything else becomes a conflict copy."""
    desk.allow("a coworker uses the name")
    fold(desk)
    if theirs == "folder":
        desk.zone.make_folder("x")
    else:
        desk.zone.write("x", BOB)
    desk.zone.make_folder("y")
    desk.zone.write("y/file", BOB)
    desk.names(desk.root / "y")
    if mine == "new folder":
        (desk.root / "X").mkdir()
        (desk.root / "X/new").write_bytes(ALICE)
    else:
        (desk.root / ("y/file" if mine == "renamed file" else "y")).rename(desk.root / "X")
    desk.command("sync", timeout=60)
    assert desk.status()["outbox"]["failed"] == desk.status()["outbox"]["pending"] == 0
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
    is_united = theirs == "folder" and mine == "new folder"
    assert len(desk.conflicts()) == (not is_united)
    copies = [name for name in desk.zone.listing() if name.startswith("X (conflict")]
    assert len(copies) == (not is_united)
    if is_united:
        assert desk.zone.read("x/new") == ALICE


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("last", ["ONE", "one"])
def test_an_exchange_of_names_with_other_spellings(
    desk: Mounted, is_folder: bool, last: str
) -> None:
    """Each entry gets its name: for the service, each of both is in the other's way."""
    fold(desk)
    ids = {}
    for name in ("one", "two"):
        if is_folder:
            (desk.root / name).mkdir()
        else:
            (desk.root / name).write_bytes(name.encode())
        desk.sync()
        ids[name] = desk.zone.entry_id(name)
    (desk.root / "one").rename(desk.root / "TWO")
    (desk.root / "two").rename(desk.root / last)
    desk.sync()
    assert (desk.zone.entry_id("TWO"), desk.zone.entry_id(last)) == (ids["one"], ids["two"])
    assert {last, "TWO"} <= set(desk.names(desk.root)) == set(desk.zone.listing())


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("key", [str.lower, nfc])
@pytest.mark.parametrize("change", ["nothing", "unlink", "rename", "kill"])
def test_a_new_file_whose_reply_is_lost_is_sent_once(
    desk: Mounted, key: Callable[[str], str], change: str
) -> None:
    """The upload is found under the name that the service has stored."""
    fold(desk, key, stored=True)
    name = "Ne\u0301w.txt"
    desk.names(desk.root)
    with lost_upload(desk, name, ALICE):
        match change:
            case "unlink":
                (desk.root / name).unlink()
            case "rename":
                (desk.root / name).rename(desk.root / "other.txt")
            case "kill":
                desk.kill()
                desk.mount()
    desk.sync()
    there = {*desk.zone.listing()} - {*world.SEED} - {"docs", "empty"}
    match change:
        case "unlink":
            assert there == set()
        case "rename":
            assert there == {"other.txt"}
            assert len(desk.zone.versions("other.txt")) == 1
        case _:
            assert there == {key(name)}
            assert len(desk.zone.versions(key(name))) == 1


@pytest.mark.parametrize("former", ["read", "read in a folder", "backup"])
@pytest.mark.parametrize("new", ["folder", "known file"])
def test_an_entry_takes_the_name_of_a_file_that_is_still_needed_here(
    desk: Mounted, former: str, new: str
) -> None:
    """The service deletes the file; a program continues to read it, or a backup has its bytes."""
    fold(desk)
    desk.allow("retry")
    path = desk.root / ("x/file" if former == "read in a folder" else "x")
    if former == "read in a folder":
        path.parent.mkdir()
    path.write_bytes(ALICE)
    desk.sync()
    with path.open("rb") as reader:
        with desk.paused():
            if former == "backup":
                path.rename(desk.root / "x~")
            else:
                path.unlink()
            if former == "read in a folder":
                path.parent.rmdir()
            if new == "folder":
                (desk.root / "X").mkdir()
            else:
                (desk.root / "notes.txt").rename(desk.root / "X")
        eventually(lambda: not desk.status()["outbox"]["pending"], 600, what="all is sent")
        assert reader.read() == ALICE
    assert "x" not in desk.zone.listing()
    assert desk.zone.listing()["X"]["folder"] == (new == "folder")
    assert former != "backup" or (desk.root / "x~").read_bytes() == ALICE
