"""Two people, one file: both versions are kept, and it is said."""

import errno
import json
import os
import re
import signal

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

SAID = "in between"
NAME = re.compile(
    r"notes \(conflict, alice@acme\.example on .+, \d{4}-\d\d-\d\d \d\d-\d\d-\d\d\)\.txt"
)


def collide(mounted: Mounted) -> None:
    """Alice saves what she began before Bob's version."""
    mounted.allow(SAID)
    with (mounted.root / "notes.txt").open("wb", buffering=0) as file:
        mounted.zone.write("notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")
    mounted.sync()


def copies(mounted: Mounted) -> list[str]:
    """The names of conflict copies on the service."""
    return [name for name in mounted.zone.listing() if NAME.fullmatch(name)]


def test_both_versions_are_kept(mounted: Mounted) -> None:
    """The coworker's version keeps the name; the local one stands beside it, on the service."""
    collide(mounted)
    (copy,) = copies(mounted)
    assert mounted.zone.read("notes.txt") == b"Bob's version\n"
    assert mounted.zone.read(copy) == b"Alice's version\n"
    assert (mounted.root / copy).read_bytes() == b"Alice's version\n"
    eventually(
        lambda: (mounted.root / "notes.txt").read_bytes() == b"Bob's version\n",
        what="the coworker's version shows",
    )


def test_a_conflict_is_listed_until_its_copy_goes(mounted: Mounted) -> None:
    """`zonedrive conflicts` names copy, original, author and time, also after a restart."""
    collide(mounted)
    (copy,) = copies(mounted)
    mounted.restart()
    (conflict,) = json.loads(mounted.machine.done("conflicts", "--json"))
    assert conflict["path"].endswith(copy)
    assert conflict["original"].endswith("notes.txt")
    assert conflict["by"] == "bob@acme.example"
    assert conflict["at"]
    (mounted.root / copy).unlink()
    mounted.sync()
    assert json.loads(mounted.machine.done("conflicts", "--json")) == []


def test_equal_content_is_no_conflict(mounted: Mounted) -> None:
    """Two people who saved the very same bytes do not get a copy of them."""
    assert (mounted.root / "notes.txt").read_bytes()
    mounted.zone.write("notes.txt", b"the same\n")
    (mounted.root / "notes.txt").write_bytes(b"the same\n")
    mounted.sync()
    assert copies(mounted) == []
    assert mounted.status()["outbox"]["conflicts"] == 0


@pytest.mark.mount("settle=600")
def test_a_new_file_beside_a_coworkers_of_the_same_name(mounted: Mounted) -> None:
    """Both wrote `plan.txt` at the same time: each finds the own words, and the other's."""
    mounted.allow(SAID)
    (mounted.root / "plan.txt").write_bytes(b"Alice's plan\n")
    mounted.zone.write("plan.txt", b"Bob's own plan\n")
    mounted.sync()
    assert mounted.zone.read("plan.txt") == b"Bob's own plan\n"
    (copy,) = [name for name in mounted.zone.listing() if name.startswith("plan (conflict, ")]
    assert mounted.zone.read(copy) == b"Alice's plan\n"
    eventually(
        lambda: (mounted.root / "plan.txt").read_bytes() == b"Bob's own plan\n",
        what="the coworker's file shows under its name",
    )


@pytest.mark.mount("refresh=0.2")
def test_an_edit_after_the_other_version_was_seen_is_no_conflict(mounted: Mounted) -> None:
    """Who saw the coworker's version and then saves makes the next one."""
    mounted.zone.write("notes.txt", b"Bob's version\n")
    eventually(
        lambda: (mounted.root / "notes.txt").read_bytes() == b"Bob's version\n",
        what="the coworker's version shows",
    )
    (mounted.root / "notes.txt").write_bytes(b"Alice's next version\n")
    mounted.sync()
    assert copies(mounted) == []
    assert len(mounted.zone.versions("notes.txt")) == 3


@pytest.mark.mount("refresh=60")
def test_a_version_that_was_not_heard_of_is_never_mixed_in(mounted: Mounted) -> None:
    """Read from a listing that is out of date: an error at once, the new version at the next open.

    What must not be is a piece of the new version, cut at the old size.
    """
    path = mounted.root / "notes.txt"
    assert path.stat().st_size == 23
    mounted.zone.write("notes.txt", b"much longer than it was before\n" * 10)
    try:
        found = path.read_bytes()
    except OSError as wrong:
        assert wrong.errno == errno.ESTALE
        found = path.read_bytes()
    assert found == mounted.zone.read("notes.txt")


@pytest.mark.mount("refresh=60")
def test_appending_to_a_version_that_was_not_heard_of(mounted: Mounted) -> None:
    """An append from a listing that is out of date goes behind the coworker's words."""
    path = mounted.root / "notes.txt"
    assert path.stat().st_size == 23
    mounted.zone.write("notes.txt", b"Bob's longer version of the notes\n")
    with path.open("ab") as file:
        file.write(b"and Alice's line\n")
    mounted.sync()
    names = set(mounted.zone.listing())
    found = {mounted.zone.read(name) for name in names if name.startswith("notes")}
    assert b"Bob's longer version of the notes\n" in {each[:34] for each in found}
    assert any(each.endswith(b"and Alice's line\n") for each in found)


@pytest.mark.mount("close=wait")
def test_close_does_not_wait_for_ever_on_a_conflict(mounted: Mounted) -> None:
    """With close=wait, too, a version that came in between is kept beside, and close returns."""
    mounted.allow(SAID)
    with (mounted.root / "notes.txt").open("r+b", buffering=0) as file:
        file.write(b"Alice")
        mounted.zone.write("notes.txt", b"Bob's version\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"Bob's version\n"
    assert len(copies(mounted)) == 1


def test_one_of_two_entries_of_a_name_is_not_sent_over_the_other(mounted: Mounted) -> None:
    """The service takes versions by name: where that is ambiguous an edit waits, and says so."""
    mounted.allow("not sent")
    for content in ("AAAA", "BBBBBB"):
        mounted.deployment.tell(
            {"plant": {"zone": mounted.root.name, "name": "twice", "content": content}}
        )
    names = [name for name in os.listdir(mounted.root) if name.startswith("twice")]
    assert len(names) == 2
    for name in names:
        (mounted.root / name).write_bytes(b"edited " + name.encode())
    assert mounted.machine.run("sync", "--timeout", "8").returncode == 1
    entries = mounted.zone.entries()
    found = [mounted.zone.read_id(each["id"]) for each in entries if each["name"] == "twice"]
    assert sorted(found) == [b"AAAA", b"BBBBBB"]


@pytest.mark.mount("refresh=600")
@pytest.mark.parametrize("name", ["bob", "alice"])
def test_a_deletion_spares_a_version_that_was_not_seen(mounted: Mounted, name: str) -> None:
    """Who deletes a file does not delete what was written elsewhere a moment before."""
    mounted.allow("newer version")
    assert (mounted.root / "notes.txt").exists()
    zone = mounted.deployment.person(name).zone(mounted.root.name)
    zone.write("notes.txt", b"another version\n")
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"another version\n"
    eventually((mounted.root / "notes.txt").exists, what="the file shows again")


@pytest.mark.mount("settle=0", "refresh=60")
@pytest.mark.parametrize("kind", ["file", "folder", "new folder"])
def test_a_name_that_somebody_took_meanwhile(mounted: Mounted, kind: str) -> None:
    """Renamed to, or made under, a name that is just being taken: theirs has it, ours is beside."""
    mounted.allow(SAID)
    assert "target" not in os.listdir(mounted.root)
    mounted.zone.write("target", b"by bob\n")
    match kind:
        case "file":
            content = (mounted.root / "notes.txt").read_bytes()
            (mounted.root / "notes.txt").rename(mounted.root / "target")
        case "folder":
            (mounted.root / "docs").rename(mounted.root / "target")
        case _:
            (mounted.root / "target").mkdir()
    mounted.sync()
    assert mounted.zone.read("target") == b"by bob\n"
    (ours,) = (name for name in mounted.zone.listing() if "conflict" in name)
    assert ours in os.listdir(mounted.root)
    assert (mounted.root / "target").read_bytes() == b"by bob\n"
    if kind == "file":
        assert mounted.zone.read(ours) == content
    (told,) = json.loads(mounted.machine.done("conflicts", "--json"))
    assert told["path"].endswith(ours)
    assert told["original"].endswith("/target")
    assert told["by"] == "bob@acme.example"


@pytest.mark.mount("settle=60", "refresh=0.2")
@pytest.mark.parametrize("aside", ["notes.bak", "notes.txt~"])
def test_a_coworkers_version_between_the_steps_of_a_save(mounted: Mounted, aside: str) -> None:
    """Saved in several steps, and somebody else's version came in between them: both are kept."""
    mounted.allow(SAID)
    path = mounted.root / "notes.txt"
    path.read_bytes()
    path.rename(mounted.root / aside)
    mounted.zone.write("notes.txt", b"Bob's version\n")
    eventually(lambda: (mounted.root / aside).stat().st_size == 14, what="it is heard of")
    path.write_bytes(b"Alice's version\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"Bob's version\n"
    (copy,) = copies(mounted)
    assert mounted.zone.read(copy) == b"Alice's version\n"


def test_a_conflict_is_settled_by_a_rename(mounted: Mounted) -> None:
    """An edit leaves the copy listed; once it is renamed, over the original too, it is settled."""
    collide(mounted)
    (copy,) = copies(mounted)
    (mounted.root / "save.tmp").write_bytes(b"edited\n")
    (mounted.root / "save.tmp").rename(mounted.root / copy)
    mounted.sync()
    (told,) = json.loads(mounted.machine.done("conflicts", "--json"))
    assert told["path"].endswith(copy)
    (mounted.root / copy).rename(mounted.root / "notes.txt")
    mounted.sync()
    assert json.loads(mounted.machine.done("conflicts", "--json")) == []
    assert mounted.zone.read("notes.txt") == b"edited\n"
    assert copies(mounted) == []


@pytest.mark.mount("settle=60", "refresh=60")
@pytest.mark.parametrize("new", ["renamed.txt", "docs/notes.txt"])
def test_a_coworkers_rename_of_a_file_that_waits(mounted: Mounted, new: str) -> None:
    """Edited here while somebody else renames or moves it: the version goes there, as renamed."""
    before = mounted.zone.entry_id("notes.txt")
    (mounted.root / "notes.txt").read_bytes()
    (mounted.root / "notes.txt").write_bytes(b"edited\n")
    mounted.zone.move("notes.txt", new)
    mounted.sync()
    assert mounted.zone.entry_id(new) == before
    assert mounted.zone.read(new) == b"edited\n"
    assert mounted.zone.find("notes.txt") is None
    eventually((mounted.root / new).exists, what="it shows under its new name")
    assert (mounted.root / new).read_bytes() == b"edited\n"
    eventually(lambda: not (mounted.root / "notes.txt").exists(), what="the former name goes")


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_removed_folder_that_somebody_fills(mounted: Mounted) -> None:
    """What is new in it is not removed unseen: the folder stays and shows again, nothing fails."""
    mounted.allow("holds something new")
    mounted.zone.make_folder("box")
    assert os.listdir(mounted.root / "box") == []
    mounted.zone.write("box/x.txt", b"by bob\n")
    (mounted.root / "box").rmdir()
    mounted.sync()
    assert mounted.zone.read("box/x.txt") == b"by bob\n"
    eventually((mounted.root / "box/x.txt").exists, what="it shows again")
    assert mounted.status()["outbox"]["failed"] == 0


@pytest.mark.mount("settle=60", "refresh=60")
def test_names_that_a_coworker_exchanged_while_both_wait(mounted: Mounted) -> None:
    """Each version goes to the file that was edited, under the name that it has now."""
    for name in ("one.txt", "two.txt"):
        mounted.zone.write(name, name.encode())
    ids = {name: mounted.zone.entry_id(name) for name in ("one.txt", "two.txt")}
    for name in ids:
        (mounted.root / name).read_bytes()
        (mounted.root / name).write_bytes(b"edited " + name.encode())
    mounted.zone.move("one.txt", "three.txt")
    mounted.zone.move("two.txt", "one.txt")
    mounted.zone.move("three.txt", "two.txt")
    mounted.sync()
    assert mounted.zone.read_id(ids["one.txt"]) == b"edited one.txt"
    assert mounted.zone.read_id(ids["two.txt"]) == b"edited two.txt"
    assert mounted.zone.entry_id("two.txt") == ids["one.txt"]
    assert not [name for name in mounted.zone.listing() if "conflict" in name]
    eventually(
        lambda: (mounted.root / "two.txt").read_bytes() == b"edited one.txt", what="it shows"
    )


def test_a_name_that_a_coworker_gave_to_another_file_is_respected(mounted: Mounted) -> None:
    """A new file waits here; a coworker renames a file to that name meanwhile: both are kept, once,
    also while a program has the other one open for writing."""
    mounted.allow("took a name in between")
    with (mounted.root / "notes.txt").open("r+b", buffering=0) as other:
        other.write(b"edited")
        with (mounted.root / "plan.txt").open("wb", buffering=0) as plan:
            plan.write(b"my plan")
            mounted.zone.move("notes.txt", "plan.txt")
        theirs = mounted.zone.entry_id("plan.txt")
        eventually(lambda: len(copies_of(mounted, "plan")) == 1, what="the copy is sent")
        assert len(mounted.zone.versions("plan.txt")) == 1
    mounted.sync()
    assert mounted.zone.entry_id("plan.txt") == theirs
    assert mounted.zone.read("plan.txt").startswith(b"edited")
    (copy,) = copies_of(mounted, "plan")
    assert mounted.zone.read(copy) == b"my plan"
    assert len(mounted.zone.versions(copy)) == 1


def test_a_folder_that_a_coworker_made_again_is_one_folder(mounted: Mounted) -> None:
    """A coworker deletes a folder in which somebody works here, and makes it again: it is one
    folder in the end, with what both put into it."""
    mounted.allow("was deleted on the service", "met in a folder", "took a name")
    (mounted.root / "docs/mine.txt").write_bytes(b"1")
    mounted.sync()
    mounted.deployment.fault(status=503, method="POST", path="^/api/")
    (mounted.root / "docs/mine.txt").write_bytes(b"2")
    (mounted.root / "docs/new.txt").write_bytes(b"3")
    os.kill(mounted.pid, signal.SIGSTOP)  # nothing is sent before all of that is done
    try:
        mounted.zone.delete("docs")
        mounted.deployment.heal()
        mounted.zone.make_folder("docs")
        mounted.zone.write("docs/theirs.txt", b"4")
    finally:
        os.kill(mounted.pid, signal.SIGCONT)
    eventually(lambda: (mounted.root / "docs/theirs.txt").exists(), what="one folder")
    mounted.sync()
    wanted = {"docs/mine.txt": b"2", "docs/new.txt": b"3", "docs/theirs.txt": b"4"}
    found = mounted.zone.tree()
    assert {path: found.get(path) for path in wanted} == wanted
    assert [path for path in found if path.startswith("docs") and path not in wanted] == ["docs"]
    for path, content in wanted.items():
        assert (mounted.root / path).read_bytes() == content


def copies_of(mounted: Mounted, stem: str) -> list[str]:
    """The names of conflict copies of a file on the service."""
    return [name for name in mounted.zone.listing() if name.startswith(f"{stem} (conflict, ")]
