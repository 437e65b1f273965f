"""One save makes one version, whichever way a program saves."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.harness import world
from tests.harness.fake_service import Node
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual

SLOWLY = pytest.mark.mount("settle=600")
"""Mark for a mount that sends nothing between a program's steps, however long they take."""

NEW = b"first line\nsecond line, mended\nthird line\n"


def append(path: Path) -> None:
    """Append as `>>` in a shell."""
    with path.open("ab") as file:
        file.write(b"third line\n")


def write_in_place(path: Path) -> None:
    """Write in place as a program that changes a record."""
    with path.open("r+b") as file:
        file.write(NEW)


def rewrite(path: Path) -> None:
    """Truncate as `>` in a shell, then write in pieces."""
    with path.open("wb") as file:
        for start in range(0, len(NEW), 7):
            file.write(NEW[start : start + 7])
            file.flush()


def rename_over(path: Path) -> None:
    """Rename a temporary file over the old one, as most editors and `sed -i`."""
    new = path.with_name("tmpaBcD12")
    new.write_bytes(NEW)
    new.rename(path)


def rename_aside(path: Path) -> None:
    """Rename the old file, write a new one, and remove the backup, as vim does."""
    backup = path.with_name(path.name + ".bak")
    path.rename(backup)
    path.write_bytes(NEW)
    backup.unlink()


def delete_and_write(path: Path) -> None:
    """Delete the file and write a new one."""
    path.unlink()
    path.write_bytes(NEW)


WAYS: list[Callable[[Path], None]] = [
    append, write_in_place, rewrite, rename_over, rename_aside, delete_and_write,
]  # fmt: skip


@SLOWLY
@pytest.mark.parametrize("save", WAYS, ids=lambda way: way.__name__)
def test_one_save_makes_one_version(desk: Mounted, save: Callable[[Path], None]) -> None:
    """The service gets one new version of the same file, and no other entries."""
    path = desk.root / "notes.txt"
    before = desk.zone.find("notes.txt")
    save(path)
    saved = path.read_bytes()
    desk.sync()
    after = desk.zone.find("notes.txt")
    assert before is not None
    assert after is not None
    assert after["id"] == before["id"]
    assert desk.zone.read("notes.txt") == saved
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}
    assert path.read_bytes() == saved


def test_a_new_file_is_on_the_service(desk: Mounted) -> None:
    """A created file is uploaded with one version."""
    data = os.urandom(2_500_000)
    (desk.root / "docs/new.bin").write_bytes(data)
    assert (desk.root / "docs/new.bin").read_bytes() == data
    desk.sync()
    assert desk.zone.read("docs/new.bin") == data
    assert len(desk.zone.versions("docs/new.bin")) == 1


def test_an_empty_file_is_on_the_service(desk: Mounted) -> None:
    """`touch` creates an empty file."""
    (desk.root / "flag").touch()
    desk.sync()
    assert desk.zone.read("flag") == b""


@SLOWLY
def test_saves_in_quick_succession_settle(desk: Mounted) -> None:
    """Many saves within the settle time make one version, the last one."""
    path = desk.root / "notes.txt"
    for number in range(10):
        path.write_text(f"draft {number}\n")
    desk.sync()
    assert desk.zone.read("notes.txt") == b"draft 9\n"
    assert len(desk.zone.versions("notes.txt")) == 2


def test_a_save_without_a_change_of_content_keeps_the_file(desk: Mounted) -> None:
    """Opening for writing and closing without a write makes no version."""
    with (desk.root / "notes.txt").open("r+b"):
        pass
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == 1


def test_a_file_is_readable_while_it_waits(desk: Mounted) -> None:
    """With the service down a save succeeds, can be read, and is sent once the service is back."""
    desk.allow("offline", "reach", "upload")
    assert "notes.txt" in desk.names(desk.root)
    with desk.deployment.faulty(down=True):
        (desk.root / "notes.txt").write_bytes(NEW)
        assert (desk.root / "notes.txt").read_bytes() == NEW
        outbox = desk.status()["outbox"]
        assert outbox["pending"] + outbox["uploading"] == 1
        assert outbox["bytes"] == len(NEW)
    desk.sync()
    assert desk.zone.read("notes.txt") == NEW
    assert len(desk.zone.versions("notes.txt")) == 2


def test_seeded_files_have_one_version(desk: Mounted) -> None:
    """Reading makes no version."""
    for name in world.SEED:
        (desk.root / name).read_bytes()
    desk.sync()
    assert {len(desk.zone.versions(name)) for name in world.SEED} == {1}


@pytest.mark.mount("settle=0")
def test_a_temporary_file_that_was_already_sent_still_makes_one_version(desk: Mounted) -> None:
    """The history continues, however long a program takes between writing and renaming."""
    before = desk.zone.find("notes.txt")
    temporary = desk.root / "notes.tmp"
    temporary.write_bytes(NEW)
    desk.sync()
    assert desk.zone.find("notes.tmp") is not None
    temporary.rename(desk.root / "notes.txt")
    desk.sync()
    after = desk.zone.find("notes.txt")
    assert before is not None
    assert after is not None
    assert after["id"] == before["id"]
    assert desk.zone.read("notes.txt") == NEW
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("settle=0", "refresh=0.2")
@pytest.mark.parametrize("change", ["rename", "rename_over", "unlink", "rewrite"])
def test_a_change_during_the_upload_is_not_lost(desk: Mounted, change: str) -> None:
    """A rename, removal or write during the upload takes effect."""
    new = desk.root / "new.bin"
    with desk.deployment.faulty(stall=300, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"n" * 300_000)
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is on its way")
        match change:
            case "rename":
                new.rename(desk.root / "renamed.bin")
            case "rename_over":
                new.rename(desk.root / "notes.txt")
            case "unlink":
                new.unlink()
            case "rewrite":
                new.write_bytes(b"m" * 200_000)
        desk.names(desk.root)
    desk.sync()
    here = {path.name: path.read_bytes() for path in desk.root.iterdir() if path.is_file()}
    there = {name: data for name, data in desk.zone.tree().items() if data is not None}
    assert here == {name: data for name, data in there.items() if "/" not in name}


@pytest.mark.mount("settle=0", "refresh=0.2", profile="published")
@pytest.mark.parametrize("change", ["rename", "unlink"])
def test_published_a_name_changed_during_the_upload(desk: Mounted, change: str) -> None:
    """If the service cannot rename, the rename is in time or refused, and never partial."""
    new = desk.root / "new.bin"

    before = desk.deployment.uploads()
    with desk.deployment.faulty(stall=1.5, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"n" * 300_000)
        eventually(lambda: desk.deployment.uploads() > before, what="it is on its way")
        try:
            if change == "rename":
                new.rename(desk.root / "renamed.bin")
            else:
                new.unlink()
        except OSError as refused:
            assert refused.errno in (errno.EPERM, errno.EACCES, errno.EBUSY)
    desk.sync()
    assert set(desk.names(desk.root)) == set(desk.zone.listing())


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
def test_a_lost_reply_and_a_newer_edit_are_no_conflict(desk: Mounted, name: str) -> None:
    """An upload succeeded, its answer was lost, and the file was saved again: no conflict."""
    path = desk.root / name
    faults = {"drop_reply": True, "times": 1, "method": "POST", "path": "^/api/zones/"}
    with desk.deployment.faulty(**faults):
        path.write_bytes(b"one\n")
        eventually(
            lambda: desk.zone.find(name) is not None and desk.zone.read(name) == b"one\n",
            what="it arrived",
        )
        path.write_bytes(b"two!!\n")
        desk.sync()
    assert desk.zone.read(name) == b"two!!\n"
    assert not [each for each in desk.zone.listing() if "conflict" in each]


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("way", ["over", "again"])
def test_a_new_file_replaced_during_its_upload(desk: Mounted, way: str) -> None:
    """A file replaced by a rename, or removed and created again during its upload, is one file."""
    new = desk.root / "new.txt"
    with desk.deployment.faulty(stall=300, times=1, method="POST", path="^/api/zones/"):
        new.write_bytes(b"one\n")
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is on its way")
        if way == "over":
            (desk.root / "other").write_bytes(b"two!!\n")
            (desk.root / "other").rename(new)
        else:
            new.unlink()
            new.write_bytes(b"two!!\n")
    desk.sync()
    assert desk.zone.read("new.txt") == b"two!!\n"
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", "new.txt"}


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_a_file_renamed_over_an_open_one_during_its_upload(desk: Mounted, name: str) -> None:
    """The upload ends while the content of the target is fetched for the program that reads it.

    The target gets the bytes as its next version.
    """
    target = desk.root / "big.bin"
    before = desk.zone.entry_id("big.bin")
    with target.open("rb", buffering=0) as reader:
        desk.deployment.fault(latency_ms=3000, method="POST", path="^/api/zones/")
        desk.deployment.fault(latency_ms=6000, method="GET", path="/content$")
        (desk.root / name).write_bytes(NEW)
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is on its way")
        (desk.root / name).rename(target)
        assert desk.zone.read(name) == NEW  # the upload has ended
        assert reader.read(5) != NEW[:5]
    desk.deployment.heal()
    desk.sync()
    assert desk.zone.entry_id("big.bin") == before
    assert len(desk.zone.versions("big.bin")) == 2
    assert (desk.zone.read("big.bin"), target.read_bytes()) == (NEW, NEW)
    assert desk.zone.find(name) is None


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("close", marks=pytest.mark.mount("settle=0")),
        pytest.param("fsync", marks=pytest.mark.mount("settle=0", "fsync=service")),
    ],
)
def test_a_file_saved_again_while_it_is_renamed_over_an_open_one(desk: Mounted, call: str) -> None:
    """Its upload waits until the content of the target is fetched for the program that reads it.

    The target gets the bytes as its next version.
    """
    mount, target = virtual(desk), desk.root / "big.bin"
    before, kernel = mount.zone.entry_id("big.bin"), mount.client.kernel

    async def rename_and_save() -> None:
        flags = os.O_WRONLY | os.O_CREAT
        writer = await kernel.open(str(desk.root / "new.txt"), flags)
        await kernel.write(writer, NEW)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kernel.rename, str(desk.root / "new.txt"), str(target))
            await trio.sleep(1)
            with trio.fail_after(600):
                if call == "fsync":
                    await kernel.fsync(writer)
                await kernel.close(writer)

    with target.open("rb", buffering=0):
        mount.deployment.fault(latency_ms=6000, method="GET", path="/content$")
        mount.loop.run(rename_and_save)
    mount.deployment.heal()
    mount.sync()
    assert mount.zone.entry_id("big.bin") == before
    assert len(mount.zone.versions("big.bin")) == 2
    assert (mount.zone.read("big.bin"), target.read_bytes()) == (NEW, NEW)
    assert mount.zone.trash() == []


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_file_that_a_coworker_saved_is_renamed_over_an_open_one(
    desk: Mounted, is_moved: bool
) -> None:
    """The conflict is found while the content of the target is fetched; both versions are kept."""
    notes, target = desk.root / "notes.txt", desk.root / "big.bin"
    before = [desk.zone.entry_id(each.name) for each in (notes, target)]
    assert notes.read_bytes()
    desk.zone.write("notes.txt", b"by bob\n")
    desk.allow("newer version", "conflict copy")
    with target.open("rb", buffering=0):
        desk.deployment.fault(latency_ms=2000, method="GET")
        desk.deployment.fault(latency_ms=6000, method="GET", path="/content$")
        notes.write_bytes(NEW)
        if is_moved:
            notes = notes.rename(desk.root / "moved.txt")
        else:
            eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is checked")
        notes.rename(target)
    desk.deployment.heal()
    desk.sync()
    assert [desk.zone.entry_id(each.name) for each in (notes, target)] == before
    assert [desk.zone.read(each.name) for each in (notes, target)] == [b"by bob\n", NEW]
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", notes.name}
    assert target.read_bytes() == NEW


@pytest.mark.mount("settle=0")
def test_renamed_there_and_back_during_the_move(desk: Mounted) -> None:
    """A rename that is reverted during its request is reverted on the service, too."""
    notes, other = desk.root / "notes.txt", desk.root / "other.txt"
    with desk.deployment.faulty(stall=300, times=1, method="PUT", path="^/api/sandbox/"):
        notes.rename(other)
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is on its way")
        other.rename(notes)
    desk.sync()
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("settle=0")
def test_a_folder_renamed_while_it_is_made(desk: Mounted) -> None:
    """A folder that is renamed during its creation gets its last name on the service."""
    with desk.deployment.faulty(stall=300, times=1, method="POST", path="^/api/sandbox/"):
        (desk.root / "new").mkdir()
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is on its way")
        (desk.root / "new").rename(desk.root / "final")
        (desk.root / "final/x").write_bytes(b"x\n")
    desk.sync()
    assert desk.zone.find("new") is None
    assert desk.zone.read("final/x") == b"x\n"


@SLOWLY
@pytest.mark.parametrize("way", ["removed", "aside", "exchanged"])
def test_a_temporary_file_that_was_already_sent_takes_the_place_of_one_moved_away(
    desk: Mounted, way: str
) -> None:
    """The temporary file of a slow save is uploaded before its target is moved away."""
    before = desk.zone.entry_id("notes.txt")
    temporary, target = desk.root / "notes.new", desk.root / "notes.txt"
    temporary.write_bytes(NEW)
    desk.sync()
    if way == "removed":
        target.unlink()
        temporary.rename(target)
    elif way == "exchanged":
        desk.exchange(temporary, target)
        temporary.unlink()
    else:
        target.rename(desk.root / "notes.bak")
        temporary.rename(target)
        (desk.root / "notes.bak").unlink()
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert desk.zone.read("notes.txt") == NEW
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


def test_names_passed_on_keep_their_histories(desk: Mounted) -> None:
    """Renames of several files to each other's names keep every file's history."""
    ids = {}
    for name in ("log", "log.1"):
        (desk.root / name).write_bytes(name.encode())
        desk.sync()
        ids[name] = desk.zone.entry_id(name)
    (desk.root / "log.1").rename(desk.root / "log.2")
    (desk.root / "log").rename(desk.root / "log.1")
    desk.sync()
    assert desk.zone.entry_id("log.2") == ids["log.1"]
    assert desk.zone.entry_id("log.1") == ids["log"]
    assert desk.zone.find("log") is None
    assert desk.zone.read("log.1") == b"log"


def save_with_holes(path: Path) -> None:
    """Save a file with bytes only at its begin."""
    with path.open("wb", buffering=0) as file:
        file.write(b"begin")
        file.truncate(1 << 20)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "unanswered"])
def test_a_file_with_holes_stays_cached(desk: Mounted, is_answered: bool) -> None:
    """All bytes came from this machine: they can be read and changed without the service."""
    path = desk.root / "sparse.bin"
    if not is_answered:
        desk.deployment.fault(drop_reply=True, method="POST", times=1)
    save_with_holes(path)
    desk.sync()
    assert len(desk.zone.versions("sparse.bin")) == 1
    assert desk.xattr(path, "user.zonedrive.state") == "cached"
    downloads = desk.deployment.downloads()
    assert path.read_bytes() == b"begin".ljust(1 << 20, b"\0")
    with path.open("r+b") as file:
        file.seek(500_000)
        file.write(b"middle")
    desk.sync()
    assert desk.zone.read("sparse.bin") == path.read_bytes()
    assert path.read_bytes()[500_000:500_010] == b"middle\0\0\0\0"
    assert desk.deployment.downloads() == downloads


def test_a_file_with_holes_stays_cached_after_a_save_without_a_change(desk: Mounted) -> None:
    """The cached version can still be read without the service."""
    path = desk.root / "sparse.bin"
    save_with_holes(path)
    desk.sync()
    content = path.read_bytes()
    save_with_holes(path)
    desk.sync()
    assert len(desk.zone.versions("sparse.bin")) == 1
    assert desk.xattr(path, "user.zonedrive.state") == "cached"
    downloads = desk.deployment.downloads()
    assert path.read_bytes() == content
    assert desk.deployment.downloads() == downloads


@pytest.mark.parametrize("written", [False, True])
def test_a_truncation_is_saved_while_another_program_has_the_file_open(
    desk: Mounted, written: bool
) -> None:
    """The new size survives a death, unless the other program has written unsaved bytes."""
    path = desk.root / "notes.txt"
    before = path.read_bytes()
    other = desk.system.open(path, os.O_RDWR)
    if written:
        desk.system.write(other, b"X")
    desk.system.truncate(path, 5)
    desk.kill()
    with pytest.raises(ConnectionAbortedError):
        desk.system.close(other)
    desk.mount()
    assert path.read_bytes() == (before if written else before[:5])


def test_a_program_saves_again_during_the_upload(tmp_path: Path) -> None:
    """A program writes a new file, removes the old one, and renames the new one."""
    mount = VirtualMount(tmp_path, "settle=0")
    mount.mount()
    try:
        path, new = mount.root / "notes.txt", mount.root / "new"
        known = mount.zone.entry_id("notes.txt")
        mount.deployment.fault(latency_ms=6000, method="POST")
        for number in range(3):
            new.write_bytes(b"%d" % number)
            mount.loop.run(trio.sleep, 1)  # in virtual time, as below
            path.unlink()
            new.rename(path)
            mount.loop.run(trio.sleep, 4)
        mount.deployment.heal()
        mount.sync()
        assert mount.zone.read("notes.txt") == b"2"
        assert mount.zone.entry_id("notes.txt") == known
        assert len(mount.zone.versions("notes.txt")) > 2
    finally:
        mount.close()


@pytest.mark.mount("settle=600", "fsync=service")
def test_a_sync_of_a_closed_file_waits_for_the_service(desk: Mounted) -> None:
    """`sync FILE` opens a file that another program has written and closed."""
    path = desk.root / "notes.txt"
    path.write_bytes(b"new\n")
    file = desk.system.open(path, os.O_RDONLY)
    try:
        desk.system.fsync(file)
    finally:
        desk.system.close(file)
    assert desk.zone.read("notes.txt") == b"new\n"


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_APPEND])
def test_a_guarded_program_opens_no_file_for_writing_that_is_not_here(
    desk: Mounted, flags: int
) -> None:
    """The write would download the file; a cached file, and a truncation, need no download."""
    mount = virtual(desk)
    mount.restart(f"guard={Path('/proc/self/exe').readlink().name}")
    before = mount.deployment.downloads()
    with pytest.raises(PermissionError):
        mount.system.open(mount.root / "big.bin", flags)
    for name, further in (("notes.txt", os.O_TRUNC), ("empty", 0)):
        mount.system.close(mount.system.open(mount.root / name, flags | further))
    assert mount.deployment.downloads() == before
    mount.client.kernel.pid = 0  # an unknown program, which is not on the list
    content = (mount.root / "big.bin").read_bytes()
    mount.client.kernel.pid = os.getpid()
    file = mount.system.open(mount.root / "big.bin", flags)
    mount.system.pwrite(file, content[:1], 0)
    mount.system.close(file)


@pytest.mark.parametrize("year", [-400, 2400])
def test_a_time_that_does_not_fit_is_limited(desk: Mounted, year: int) -> None:
    """utimensat(2) allows any year; the bytes that are written meanwhile are saved."""
    path, when_ns = desk.root / "notes.txt", (year - 1970) * 31_556_952 * 10**9
    with path.open("wb", buffering=0) as file:
        file.write(b"new\n")
        desk.system.utime(file.fileno(), ns=(when_ns, when_ns))
    assert path.stat().st_mtime_ns == (2**63 - 1 if year > 0 else -(2**63))
    assert path.read_bytes() == b"new\n"
    desk.sync()
    assert desk.zone.read("notes.txt") == b"new\n"


def change_uploads(
    desk: Mounted, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes], times: int
) -> None:
    """Let the service change the bytes of the next uploads, and tell the size of the result."""
    desk.allow("upload")
    service = virtual(desk).deployment.world
    store, left = service.upload, [None] * times

    def upload(zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        if left:
            left.pop()
            data = change(data)
        return store(zone_id, folder_id, name, data, user)

    monkeypatch.setattr(service, "upload", upload)


def half(data: bytes) -> bytes:
    """Return the first half."""
    return data[: len(data) // 2]


def longer(data: bytes) -> bytes:
    """Return the bytes with one more."""
    return data + b"x"


def other_and_shorter(data: bytes) -> bytes:
    """Return fewer bytes, which are different from the start."""
    return b"x" + data[2:]


@pytest.mark.mount("settle=0", "refresh=5")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("size", [1, 300_000])
def test_a_file_that_the_service_stores_in_part_is_sent_again(
    desk: Mounted, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file is the next version. Before, the shortened one replaced it here, too."""
    data = bytes(number % 251 for number in range(size))
    change_uploads(desk, monkeypatch, half, times=1)
    before = desk.deployment.uploads()
    (desk.root / name).write_bytes(data)
    desk.sync()
    assert desk.deployment.uploads() == before + 2
    assert desk.zone.read(name) == data
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", name}
    time.sleep(60)
    assert (desk.root / name).read_bytes() == data


@pytest.mark.mount("settle=0", "refresh=5")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("change", [half, longer, other_and_shorter])
def test_a_file_that_the_service_always_changes_is_not_saved(
    desk: Mounted, name: str, change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stays as it is here, `sync` and the status report the failure, and no copies
    appear."""
    change_uploads(desk, monkeypatch, change, times=1000)
    before = desk.deployment.uploads()
    (desk.root / name).write_bytes(NEW)
    assert desk.try_sync(seconds=120) != 0
    time.sleep(600)
    assert desk.status()["outbox"]["failed"] == 1
    assert (desk.root / name).read_bytes() == NEW
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", name}
    assert desk.deployment.uploads() <= before + 12


@pytest.mark.mount("settle=0", "refresh=5")
@pytest.mark.parametrize(("name", "versions"), [("new.txt", 2), ("notes.txt", 3)])
@pytest.mark.parametrize("person", ["alice", "bob"])
@pytest.mark.parametrize("other", [b"other\n", NEW[:5], NEW + b"other\n"])
def test_an_answer_that_shows_the_next_version(
    desk: Mounted,
    name: str,
    versions: int,
    person: str,
    other: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version from another machine stays the newest one, and the file is not sent twice."""
    desk.allow("upload")
    service = virtual(desk).deployment.world
    store, before = service.upload, desk.deployment.uploads()

    def upload(zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        store(zone_id, folder_id, name, data, user)
        monkeypatch.setattr(service, "upload", store)
        desk.deployment.person(person).zone(desk.root.name).write(name, other)
        return service.child(folder_id, name)  # type: ignore[return-value]

    monkeypatch.setattr(service, "upload", upload)
    (desk.root / name).write_bytes(NEW)
    desk.sync()
    assert desk.deployment.uploads() == before + 1
    assert desk.zone.read(name) == other
    assert len(desk.zone.versions(name)) == versions
    assert set(desk.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", name}
    time.sleep(60)
    assert (desk.root / name).read_bytes() == other


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("size", [0, 1000])
def test_an_answer_with_a_wrong_size(
    desk: Mounted, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is sent once, and has its size here, if the service has all bytes."""
    service = virtual(desk).deployment.world
    answer, before = service.answer, desk.deployment.uploads()

    def answered(node: Node) -> dict[str, Any]:
        return answer(node) | {"size": size}

    monkeypatch.setattr(service, "answer", answered)
    (desk.root / name).write_bytes(NEW)
    desk.sync()
    assert desk.deployment.uploads() == before + 1
    assert desk.zone.read(name) == NEW
    assert (desk.root / name).stat().st_size == len(NEW)
    assert (desk.root / name).read_bytes() == NEW


@pytest.mark.mount("settle=0", "refresh=5", profile="published")
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
def test_published_an_answer_that_shows_a_coworkers_version(
    desk: Mounted, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coworker's version stays the newest one, although its history cannot be read."""
    desk.allow("upload", "conflict", "newer version")
    service = virtual(desk).deployment.world
    store = service.upload

    def upload(zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        store(zone_id, folder_id, name, data, user)
        monkeypatch.setattr(service, "upload", store)
        desk.zone.write(name, b"by bob\n")
        return service.child(folder_id, name)  # type: ignore[return-value]

    monkeypatch.setattr(service, "upload", upload)
    (desk.root / name).write_bytes(NEW)
    desk.try_sync()
    time.sleep(60)
    assert desk.zone.read(name) == b"by bob\n"
    assert (desk.root / name).read_bytes() == b"by bob\n"


EDITED = {"none": b"saved", "write": b"Saved", "append": b"saved!", "extend": b"saved\0\0\0"}


@pytest.mark.mount("encrypt=false", "settle=1000")
@pytest.mark.parametrize("change", EDITED)
def test_bytes_that_were_not_saved_before_a_crash_stay_away(desk: Mounted, change: str) -> None:
    """A later edit of the file does not bring back what a program had not saved."""
    mount, path = virtual(desk), desk.root / "new.txt"
    system = mount.system
    file = system.open(path, os.O_RDWR | os.O_CREAT)
    system.pwrite(file, b"saved", 0)
    system.fsync(file)
    system.pwrite(file, b" never saved", 5)
    mount.kill()
    mount.mount()
    file = system.open(path, os.O_RDWR | os.O_APPEND if change == "append" else os.O_RDWR)
    if change == "write":
        system.pwrite(file, b"S", 0)
    elif change == "append":
        system.write(file, b"!")
    elif change == "extend":
        system.ftruncate(file, 8)
    assert system.pread(file, 100, 0) == EDITED[change]
    system.close(file)
    desk.sync()
    assert desk.zone.read("new.txt") == path.read_bytes() == EDITED[change]
