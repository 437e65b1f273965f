"""A coworker moves, renames or saves a file that is saved here: the client plans the change
again."""

import json
from pathlib import Path

import pytest

from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix import calls

PATIENT = "refresh=60"  # a listed folder is not listed again by itself
DECIDED = ("a conflict copy", "a coworker", "planned again")


def names(folder: Path) -> set[str]:
    """Return the names that a folder shows."""
    return {each.name for each in folder.iterdir()}


@pytest.mark.mount("refresh=0.2", "settle=2")
@pytest.mark.parametrize("known", ["known", "unknown"])
def test_an_edited_file_that_a_coworker_moves_and_whose_name_another_file_gets(
    mounted: Mounted, known: str
) -> None:
    """The edit becomes the next version of the file at its new place, without a conflict name."""
    zone, docs = mounted.zone, mounted.root / "docs"
    there = "docs/2026" if known == "known" else "docs/new/below"
    if known == "unknown":
        zone.make_folder("docs/new")
        zone.make_folder("docs/new/below")
    shown = [names(docs), names(mounted.root)]
    moved, other = zone.entry_id("docs/report.md"), zone.entry_id("notes.txt")
    with (docs / "report.md").open("ab") as file:
        file.write(b"and more\n")
        file.flush()
        zone.move("docs/report.md", f"{there}/report.md")
        zone.move("notes.txt", "docs/report.md")

        def follows() -> bool:
            shown.append(names(docs))
            return (docs / "report.md").stat().st_size == 23

        eventually(follows, what="the name leads to the coworker's file")
    mounted.sync(docs)
    shown.append(names(docs))
    assert [each for each in shown if any("~" in name for name in each)] == []
    assert zone.read(f"{there}/report.md") == b"# Report\n\nAll is well.\nand more\n"
    assert zone.entry_id(f"{there}/report.md") == moved
    assert zone.entry_id("docs/report.md") == other
    assert len(zone.versions(f"{there}/report.md")) == 2
    assert len(zone.versions("docs/report.md")) == 1
    assert mounted.status()["outbox"]["failed"] == 0
    assert (docs / "report.md").read_bytes() == b"first line\nsecond line\n"
    here = mounted.root / there / "report.md"
    assert here.read_bytes() == b"# Report\n\nAll is well.\nand more\n"


@pytest.mark.mount(PATIENT, "settle=600")
@pytest.mark.parametrize("profile_content", [b"Bob's longer report of the year\n", b"Bob\n"])
def test_a_file_that_was_never_read_here_is_moved_aside_after_a_coworkers_save(
    mounted: Mounted, profile_content: bytes
) -> None:
    """Both contents are kept at the first try, and no refusal is reported."""
    mounted.allow(*DECIDED)
    zone, root = mounted.zone, mounted.root
    names(root)
    zone.write("notes.txt", profile_content)
    (root / "notes.txt").rename(root / "notes.before.txt")
    (root / "notes.txt").write_bytes(b"Alice's notes, written anew\n")
    mounted.sync()
    found = {name: zone.read(name) for name in zone.listing() if name.startswith("notes")}
    assert b"Alice's notes, written anew\n" in found.values()
    assert found["notes.before.txt"] == profile_content
    versions = {size["size"] for size in zone.versions("notes.txt")}
    assert len(profile_content) in versions
    assert "refused" not in mounted.log()
    assert mounted.status()["outbox"]["failed"] == 0


@pytest.mark.mount("refresh=0.2")
def test_a_file_that_is_moved_here_and_removed_by_a_coworker_leaves_nothing_behind(
    mounted: Mounted,
) -> None:
    """No unreadable entry is left, and no refusal is reported."""
    docs = mounted.root / "docs"
    names(docs)
    with mounted.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        (mounted.root / "notes.txt").rename(docs / "moved.txt")
        mounted.zone.delete("notes.txt")
    mounted.sync()
    eventually(lambda: "moved.txt" not in names(docs), what="it is gone here, too")
    assert "refused" not in mounted.log()


@pytest.mark.mount("refresh=0.2")
def test_a_file_that_is_moved_to_a_folder_which_a_coworker_removes(mounted: Mounted) -> None:
    """The file keeps its identity on the service; its folder is created again."""
    mounted.allow("deleted on the service")
    there = mounted.root / "docs" / "2026"
    names(there)
    known = mounted.zone.entry_id("notes.txt")
    with mounted.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        (mounted.root / "notes.txt").rename(there / "notes.txt")
        mounted.zone.delete("docs/2026")
    mounted.sync()
    assert mounted.zone.entry_id("docs/2026/notes.txt") == known
    assert mounted.zone.find("notes.txt") is None
    assert (there / "notes.txt").read_bytes() == b"first line\nsecond line\n"
    assert "refused" not in mounted.log()


@pytest.mark.mount("refresh=0.2")
@pytest.mark.parametrize(("removed", "left"), [(0, 1), (1, 0)])
def test_one_of_two_files_that_exchange_their_names_is_removed_by_a_coworker(
    mounted: Mounted, removed: int, left: int
) -> None:
    """The other file gets its name, and no refusal is reported."""
    root, paths = mounted.root, ("notes.txt", "docs/report.md")
    names(root / "docs")
    known, content = mounted.zone.entry_id(paths[left]), mounted.zone.read(paths[left])
    with mounted.deployment.faulty(status=503, method="PUT", path="^/api/sandbox/"):
        calls.renameat2(root / paths[0], root / paths[1], calls.EXCHANGE)
        mounted.zone.delete(paths[removed])
    mounted.sync()
    assert mounted.zone.entry_id(paths[removed]) == known
    eventually(lambda: not (root / paths[left]).exists(), what="the other one is gone here, too")
    assert (root / paths[removed]).read_bytes() == content
    assert "refused" not in mounted.log()


@pytest.mark.parametrize("reply", ["comes", "is lost"])
def test_a_version_that_reaches_another_file_of_the_name(
    proxy: FaultProxy, proxied: Mounted, reply: str
) -> None:
    """If a coworker renames the file during the upload, the version exists once and is reported."""
    proxied.allow("renamed by a coworker during the upload", "reply")
    zone, root = proxied.zone, proxied.root
    before = (root / "notes.txt").read_bytes()
    renamed: list[str] = []

    def rename(asked: Asked) -> None:
        if asked.method != "POST" or "/files/" not in asked.path or renamed:
            return
        renamed.append(asked.path)
        zone.move("notes.txt", "docs/notes.txt")
        zone.move("docs/report.md", "notes.txt")
        if reply == "is lost":
            proxied.deployment.fault(drop_reply=True, method="POST", times=1)

    proxy.alter_request = rename
    (root / "notes.txt").write_bytes(b"Alice's words\n")
    proxied.sync()
    assert renamed
    contents = {path: zone.read(path) for path in ("notes.txt", "docs/notes.txt")}
    assert contents == {"notes.txt": b"Alice's words\n", "docs/notes.txt": before}
    assert (len(zone.versions("notes.txt")), len(zone.versions("docs/notes.txt"))) == (2, 1)
    (conflict,) = json.loads(proxied.machine.done("conflicts", "--json"))
    assert conflict["path"].endswith(f"{root.name}/notes.txt")
    eventually(
        lambda: {path: (root / path).read_bytes() for path in contents} == contents,
        what="each file shows what the service has of it",
    )


def test_a_file_removed_just_before_its_version_is_sent(
    proxy: FaultProxy, proxied: Mounted
) -> None:
    """The version becomes a new file on the service, and the only one with its name here."""
    proxied.allow("deleted on the service during the upload")
    zone, root = proxied.zone, proxied.root
    assert (root / "notes.txt").read_bytes()
    removed: list[str] = []

    def remove(asked: Asked) -> None:
        if asked.method == "POST" and "/files/" in asked.path and not removed:
            removed.append(zone.entry_id("notes.txt"))
            zone.delete("notes.txt")

    proxy.alter_request = remove
    (root / "notes.txt").write_bytes(b"Alice's words\n")
    proxied.sync()
    assert zone.read("notes.txt") == b"Alice's words\n"
    assert [zone.entry_id("notes.txt")] != removed
    (conflict,) = json.loads(proxied.machine.done("conflicts", "--json"))
    assert conflict["path"].endswith(f"{root.name}/notes.txt")
    (root / "notes.txt").write_bytes(b"Alice's next words\n")
    proxied.sync()
    assert zone.read("notes.txt") == b"Alice's next words\n"
    assert names(root) == set(zone.listing())
    assert len(zone.versions("notes.txt")) == 2


def test_no_temporary_name_stays_on_the_service(proxy: FaultProxy, proxied: Mounted) -> None:
    """No temporary name stays on the service if a coworker saves during an exchange and a
    removal."""
    proxied.allow("newer version on the service", "answer", "offline", "reach")
    zone, root = proxied.zone, proxied.root
    paths = {zone.entry_id(path): path for path in ("notes.txt", "docs/report.md")}
    names(root / "docs")
    told: list[str] = []

    def stop(asked: Asked) -> None:
        if asked.method == "PUT":
            told.append(asked.path)
            if len(told) > 1:
                asked.path = "/api/nowhere"
                asked.method = "GET"

    def fail(answer: Answer) -> None:
        if answer.asked.method == "PUT" and len(told) > 1:
            answer.status = 503

    proxy.alter_request, proxy.alter, proxy.about = (
        stop,
        fail,
        lambda asked: True,
    )
    calls.renameat2(root / "notes.txt", root / "docs" / "report.md", calls.EXCHANGE)

    def aside() -> dict[str, str]:
        found = {**zone.listing(), **{f"docs/{k}": v for k, v in zone.listing("docs").items()}}
        return {path: one["id"] for path, one in found.items() if ".zonedrive-" in path}

    ((path, known),) = eventually(aside, what="one steps aside").items()
    zone.write(path, b"Bob's words\n")
    here = {"notes.txt": "docs/report.md", "docs/report.md": "notes.txt"}[paths[known]]
    (root / here).unlink()
    proxy.alter_request = lambda asked: None
    proxy.alter = lambda answer: None
    proxied.sync()
    assert aside() == {}
    found = {**zone.listing(), **{f"docs/{k}": v for k, v in zone.listing("docs").items()}}
    (kept,) = [path for path, one in found.items() if one["id"] == known]
    assert zone.read(kept) == b"Bob's words\n"


def test_an_upload_waits_for_an_exchange_of_names(proxy: FaultProxy, proxied: Mounted) -> None:
    """If another machine exchanges the names of two files, the upload waits for the new name."""
    zone, root = proxied.zone, proxied.root
    assert (root / "notes.txt").read_bytes()
    moved: list[str] = []

    def move_on() -> None:
        if not moved:
            moved.append("other.txt")
            zone.move(".zonedrive-9-9", "other.txt")

    proxy.alter_request = lambda asked: move_on() if asked.method == "POST" else None
    with (root / "notes.txt").open("ab") as file:
        file.write(b"third line\n")
        zone.move("notes.txt", ".zonedrive-9-9")
    eventually(lambda: moved or "planned again" in proxied.log(), what="it is looked at")
    move_on()
    proxied.sync()
    assert zone.read("other.txt").endswith(b"third line\n")
    assert not any(name.startswith(".zonedrive") for name in zone.listing())
    assert (root / "other.txt").read_bytes().endswith(b"third line\n")
