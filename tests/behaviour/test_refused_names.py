"""What the service refuses to remove or to rename is here again, and said once."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.meddler import Answer, Meddler
from tests.harness.waiting import eventually

NOTES = world.SEED["notes.txt"]
ENTRIES = "/api/sandbox/zones/[^/]+/entries/"

# Nothing is refused before all of it was done: the service hears of it when somebody asks.
pytestmark = pytest.mark.mount("settle=600")


@contextmanager
def refusing(mounted: Mounted, status: int, method: str, entry: str = "") -> Iterator[None]:
    """The service refuses removals (DELETE) or renames (PUT), of one entry or all."""
    mounted.allow("refused")
    with mounted.deployment.faulty(status=status, method=method, path=ENTRIES + entry):
        yield


def tell_removals(mounted: Mounted) -> None:
    """Let the service hear of removals now, and nobody of what became of them."""
    mounted.machine.run("trash", "--zone", mounted.root.name)


def told_once(mounted: Mounted, *words: str) -> None:
    """`status` says it until `sync` does, with 1; then all is well."""
    eventually(lambda: "notice" in mounted.status(), what="the refusal came")
    said = mounted.status()["notice"]
    ended = mounted.machine.run("sync", "--timeout", "20")
    assert ended.returncode == 1
    for word in words:
        assert word in said
        assert word in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert mounted.machine.run("sync", "--timeout", "20").returncode == 0
    found = mounted.status()
    assert "notice" not in found
    assert (found["uploads"], found["outbox"]["failed"]) == ([], 0)


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_file_whose_removal_is_refused_is_here_again(mounted: Mounted, status: int) -> None:
    """With its bytes and its history; and a removal that is not refused goes through later."""
    path, entry = mounted.root / "notes.txt", mounted.zone.entry_id("notes.txt")
    with refusing(mounted, status, "DELETE"):
        path.unlink()
        assert not path.exists()
        tell_removals(mounted)
        told_once(mounted, "notes.txt: it could not be removed", f"HTTP {status}")
    assert path.read_bytes() == NOTES
    assert os.getxattr(path, "user.zonedrive.id").decode() == entry
    path.unlink()
    mounted.sync()
    assert mounted.zone.find("notes.txt") is None


@pytest.mark.parametrize("name", ["notes.txt", "empty"])
def test_a_removal_that_got_through_is_not_said_to_be_refused(
    meddled: Mounted, meddler: Meddler, name: str
) -> None:
    """Its answer was lost, and to be asked again makes no sense to the service."""

    def nonsense(answer: Answer) -> None:
        answer.status = 400
        answer.say({"error": "WRONG_STATE", "message": "it is deleted"})

    meddler.about = lambda asked: asked.method == "DELETE"
    meddler.mood = nonsense
    path = meddled.root / name
    (path.rmdir if path.is_dir() else path.unlink)()
    meddled.sync()
    assert "notice" not in meddled.status()
    assert meddled.zone.find(name) is None
    assert name not in {each.name for each in meddled.root.iterdir()}


def test_a_tree_whose_removal_is_refused_is_here_again(mounted: Mounted) -> None:
    """Entry by entry, as a shell removes it: every file, and every folder that it was in."""
    before = mounted.zone.tree("docs")
    folder = mounted.root / "docs"
    mounted.allow("a folder that was removed here holds something")
    with refusing(mounted, 403, "DELETE"):
        for path in sorted(folder.rglob("*"), reverse=True):
            (path.rmdir if path.is_dir() else path.unlink)()
        folder.rmdir()
        assert not folder.exists()
        tell_removals(mounted)
        eventually(lambda: not mounted.status()["uploads"], what="all is taken back")
        assert mounted.machine.run("sync", mounted.root / "empty").returncode == 0
        ended = mounted.machine.run("sync", mounted.root / "docs/2026", "--timeout", "30")
        assert ended.returncode == 1
        assert f"{mounted.root.name}/docs/2026/q1.csv: it could not be removed" in ended.stderr
        assert mounted.machine.run("sync", mounted.root).returncode == 1
        eventually(lambda: mounted.machine.run("sync").returncode == 0, what="it was said once")
    assert {
        f"docs/{path.relative_to(folder)}": None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    } == before
    assert mounted.zone.tree("docs") == before


def test_what_was_moved_out_of_a_removed_folder_is_back_in_it(mounted: Mounted) -> None:
    """The folder cannot be removed while it cannot be left: all is as it was, and said once."""
    before = mounted.zone.tree()
    mounted.allow("refused", "a folder that was removed here holds something")
    folder = mounted.root / "docs"
    with mounted.deployment.faulty(status=403, path=ENTRIES):
        (folder / "2026/q1.csv").rename(mounted.root / "q1.csv")
        shutil.rmtree(folder)
        ended = mounted.machine.run("sync", "--timeout", "30")
        assert ended.returncode == 1
        eventually(lambda: mounted.machine.run("sync").returncode == 0, what="it was said once")
    found = mounted.status()
    assert (found["uploads"], found["outbox"]["failed"]) == ([], 0)
    assert not (mounted.root / "q1.csv").exists()
    assert {
        str(path.relative_to(mounted.root)): None if path.is_dir() else path.read_bytes()
        for path in mounted.root.rglob("*")
    } == before
    assert mounted.zone.tree() == before


def test_a_new_file_in_the_place_of_one_that_stays_is_kept_beside_it(mounted: Mounted) -> None:
    """Moved into the trash as itself, so that nobody takes over its history."""
    path = mounted.root / "notes.txt"
    with refusing(mounted, 403, "DELETE"):
        path.rename(mounted.path / f".Trash-{os.getuid()}/files/notes.txt")
        path.write_bytes(b"another\n")
        mounted.allow("took a name")
        tell_removals(mounted)
        told_once(mounted, "notes.txt: it could not be removed")
    assert path.read_bytes() == NOTES
    assert mounted.zone.read("notes.txt") == NOTES
    (copy,) = (each for each in mounted.root.iterdir() if "conflict" in each.name)
    assert copy.read_bytes() == b"another\n"
    mounted.sync()
    assert mounted.zone.read(copy.name) == b"another\n"


@pytest.mark.mount("settle=0.2")
@pytest.mark.parametrize("status", [403, 404])
def test_a_refused_rename_goes_back(mounted: Mounted, status: int) -> None:
    """What was written to it meanwhile is a version under its former name; nothing is lost.

    A 404 about what is there is a refusal, too: the profile may have a path that is wrong.
    """
    path, new = mounted.root / "notes.txt", mounted.root / "renamed.txt"
    entry = mounted.zone.entry_id("notes.txt")
    with refusing(mounted, status, "PUT"):
        with path.open("ab") as file:
            path.rename(new)
            file.write(b"more\n")
        told_once(mounted, "notes.txt: 'renamed.txt' has its former name again", f"HTTP {status}")
        assert not new.exists()
        assert path.read_bytes() == NOTES + b"more\n"
    assert mounted.zone.read("notes.txt") == NOTES + b"more\n"
    assert mounted.zone.entry_id("notes.txt") == entry


def test_names_whose_exchange_is_refused_are_as_they_were(mounted: Mounted) -> None:
    """Also in a row of renames, of which the last had to wait for the first."""
    first, second = mounted.root / "notes.txt", mounted.root / "docs/report.md"
    with refusing(mounted, 403, "PUT"):
        second.rename(mounted.root / "third")
        first.rename(second)
        assert mounted.machine.run("sync", "--timeout", "30").returncode == 1
        eventually(lambda: mounted.machine.run("sync").returncode == 0, what="it was said once")
    assert first.read_bytes() == NOTES
    assert second.read_bytes() == world.SEED["docs/report.md"]
    assert not (mounted.root / "third").exists()


@pytest.mark.parametrize("refused", ["notes.txt", "docs/report.md"])
def test_of_an_exchange_of_which_one_half_is_refused_nothing_keeps_a_name_that_nobody_gave(
    mounted: Mounted, refused: str
) -> None:
    """Whichever of the two made way for the other on the service."""
    first, second = mounted.root / "notes.txt", mounted.root / "docs/report.md"
    before = mounted.zone.tree()
    with refusing(mounted, 403, "PUT", mounted.zone.entry_id(refused)):
        first.rename(mounted.root / "third")
        second.rename(first)
        (mounted.root / "third").rename(second)
        assert mounted.machine.run("sync", "--timeout", "30").returncode == 1
    mounted.sync()
    assert mounted.zone.tree() == before
    assert first.read_bytes() == NOTES
    assert second.read_bytes() == world.SEED["docs/report.md"]
    assert not (mounted.root / "third").exists()


def test_a_refused_move_out_of_a_folder_that_was_removed_since_does_not_go_back_into_it(
    mounted: Mounted,
) -> None:
    """Or it would be removed with that one."""
    inner, outer = mounted.root / "docs/2026/q1.csv", mounted.root / "q1.csv"
    trash = mounted.path / f".Trash-{os.getuid()}/files"
    mounted.allow("refused", "holds something")
    mounted.deployment.fault(status=503, method="DELETE", path=ENTRIES)
    mounted.deployment.fault(status=403, method="PUT", path=ENTRIES)
    inner.rename(outer)
    (mounted.root / "docs").rename(trash / "docs")
    mounted.machine.run("sync", "--timeout", "1")
    eventually(lambda: mounted.status()["outbox"]["failed"], what="the move was refused")
    assert outer.read_bytes() == world.SEED["docs/2026/q1.csv"]
    mounted.deployment.heal()
    mounted.sync()
    assert outer.read_bytes() == world.SEED["docs/2026/q1.csv"]
    assert mounted.zone.read("q1.csv") == world.SEED["docs/2026/q1.csv"]


def test_folders_that_would_go_back_into_each_other_stay_in_reach(mounted: Mounted) -> None:
    """Refused, they stay where they were brought, and go there once it is allowed."""
    root = mounted.root
    for path in ("far", "far/deep", "far/deep/x", "near", "near/y", "top"):
        (root / path).mkdir()
    mounted.sync()
    with refusing(mounted, 403, "PUT"):
        (root / "far/deep/x").rename(root / "top/x")
        (root / "near/y").rename(root / "far/deep/x")
        (root / "far/deep").rename(root / "near/y")
        (root / "far").rename(root / "top/x/far")
        assert mounted.machine.run("sync", "--timeout", "20").returncode == 1
        assert (root / "near/y/x").is_dir()
        assert (root / "top/x/far").is_dir()
    mounted.sync()
    assert {path for path in mounted.zone.tree() if path.startswith(("top", "near", "far"))} == {
        "top", "top/x", "top/x/far", "near", "near/y", "near/y/x"
    }  # fmt: skip


def test_where_the_former_name_is_in_use_a_refused_rename_waits(mounted: Mounted) -> None:
    """It is a failure that stays in sight, and goes through once it is allowed."""
    path, new = mounted.root / "big.bin", mounted.root / "renamed.bin"
    with refusing(mounted, 403, "PUT"):
        path.rename(new)
        path.mkdir()
        ended = mounted.machine.run("sync", "--timeout", "20")
        assert ended.returncode == 1
        assert "renamed.bin" in ended.stderr
        assert path.is_dir()
        with pytest.raises(OSError, match=os.strerror(errno.EISDIR)):
            path.read_bytes()
        assert new.read_bytes() == world.SEED["big.bin"]
    mounted.sync()
    assert mounted.zone.read("renamed.bin") == world.SEED["big.bin"]


@pytest.mark.parametrize("command", ["logoff", "unmount"])
def test_a_refused_removal_hinders_no_end_but_is_said_there(mounted: Mounted, command: str) -> None:
    """There is nothing left that would have to be sent; and nobody else would hear of it."""
    with refusing(mounted, 403, "DELETE"):
        (mounted.root / "notes.txt").unlink()
        where = [mounted.path] if command == "unmount" else []
        ended = mounted.machine.run(command, *where, "--timeout", "30")
    assert ended.returncode == 0
    assert ended.stderr.count("notes.txt: it could not be removed") == 1
    assert mounted.zone.read("notes.txt") == NOTES
