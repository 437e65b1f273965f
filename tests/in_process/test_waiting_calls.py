"""Calls that wait for the service: close with `close=wait`, fsync with `fsync=service`, sync."""

import contextlib
import errno
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.harness.world import SEED
from tests.in_process.test_entry_states import UPLOAD, virtual
from zonedrive.failpoint import Place

WAITING = [
    pytest.param("close", marks=pytest.mark.mount("close=wait")),
    pytest.param("fsync", marks=pytest.mark.mount("fsync=service")),
]


async def limited(work: Callable[..., Awaitable[Any]], *args: object) -> Any:
    """Do the work; a wait without an end fails the test."""
    with trio.fail_after(600):
        return await work(*args)


def deliver(mount: VirtualMount, call: str, descriptor: int) -> None:
    """Make the call that waits for the service; the file stays open."""
    kernel = mount.client.kernel
    if call == "fsync":
        mount.loop.run(limited, kernel.fsync, descriptor)
    else:
        mount.loop.run(limited, kernel.close, mount.system.dup(descriptor))


def save(mount: VirtualMount, call: str, name: str) -> None:
    """Write a file, and make the call that waits for the service."""
    with (mount.root / name).open("wb", buffering=0) as file:
        file.write(b"saved\n")
        deliver(mount, call, file.fileno())


async def make_read_only(mount: VirtualMount, value: str) -> None:
    """Make the database read-only with "ON", as a disk with errors does."""
    mount.client.parts.state.database.execute(f"PRAGMA query_only = {value}")


async def break_disk(mount: VirtualMount) -> None:
    """Make the database read-only one second later."""

    async def later() -> None:
        await trio.sleep(1)
        await make_read_only(mount, "ON")

    mount.loop.nursery.start_soon(later)


@pytest.mark.parametrize("call", WAITING)
def test_a_disk_that_becomes_read_only_during_the_upload(desk: Mounted, call: str) -> None:
    """The call fails, because the result of the upload cannot be recorded; so does `sync`."""
    mount = virtual(desk)
    mount.allow("read-only", "could not be recorded", "not sent")
    mount.deployment.fault(latency_ms=2000, method="POST", path="^/api/zones/")
    mount.loop.run(break_disk, mount)
    with pytest.raises(OSError, match="Read-only") as failed:
        save(mount, call, "a.txt")
    assert failed.value.errno == errno.EROFS
    answer = mount.loop.run(limited, mount.client.command, "sync")
    assert (answer["exit"], answer["left"]["files"]) == (1, 1)
    assert "read-only" in answer["reason"]
    mount.loop.run(make_read_only, mount, "OFF")
    mount.sync()
    assert mount.zone.read("a.txt") == b"saved\n"
    assert len(mount.zone.versions("a.txt")) == 1


@pytest.mark.mount("fsync=service")
def test_a_write_while_fsync_flushes_the_database(
    desk: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may write the pages of a mapping at any time: they are sent, too."""
    mount, path = virtual(desk), desk.root / "a.txt"
    kernel, database = mount.client.kernel, mount.client.parts.state.database
    flush, late = database.flush, [b"later\n"]

    def slow_flush() -> None:
        if late:
            trio.from_thread.run(kernel.pwrite, mapped.fileno(), late.pop(), 0)
        flush()

    with path.open("wb", buffering=0) as file, path.open("r+b", buffering=0) as mapped:
        file.write(b"saved\n")
        monkeypatch.setattr(database, "flush", slow_flush)
        deliver(mount, "fsync", file.fileno())
        assert mount.zone.read("a.txt") == b"later\n"
    mount.sync()
    assert path.read_bytes() == b"later\n"
    assert len(mount.zone.versions("a.txt")) == 1


@pytest.mark.mount("settle=30")
def test_sync_ends_if_the_disk_is_read_only(desk: Mounted) -> None:
    """Also a file that waits for its folder does not keep it waiting."""
    mount = virtual(desk)
    mount.allow("read-only", "could not be recorded", "not sent")
    (mount.root / "new").mkdir()
    (mount.root / "new/a.txt").write_bytes(b"saved\n")
    mount.loop.run(make_read_only, mount, "ON")
    answer = mount.loop.run(limited, mount.client.command, "sync")
    assert (answer["exit"], answer["left"]["files"]) == (1, 2)
    assert "read-only" in answer["reason"]
    mount.loop.run(make_read_only, mount, "OFF")
    mount.sync()
    assert mount.zone.read("new/a.txt") == b"saved\n"


def test_the_last_error_is_the_reason_if_an_attempt_is_running_at_the_timeout(
    desk: Mounted,
) -> None:
    """`sync` tells it, while `status` tells no error of an upload that is under way again."""
    mount = virtual(desk)
    mount.deployment.fault(status=500, **UPLOAD)
    (mount.root / "notes.txt").write_bytes(b"edited\n")
    mount.loop.run(trio.sleep, 30)
    mount.deployment.heal()
    mount.deployment.fault(latency_ms=5000, **UPLOAD)
    answer = mount.command("sync", timeout=0.5)
    (upload,) = mount.status()["uploads"]
    assert (upload["state"], upload["error"]) == ("uploading", None)
    assert answer["exit"] == 1
    assert "the service cannot do it now" in answer["reason"]


@pytest.mark.parametrize("call", WAITING)
def test_a_folder_that_a_coworker_has_deleted(desk: Mounted, call: str) -> None:
    """The call succeeds: the folder, which is kept here for a lock file, is created again."""
    mount = virtual(desk)
    mount.allow("deleted on the service")
    (mount.root / "docs/.~lock.report.md#").write_bytes(b"lock")
    mount.zone.delete("docs")
    eventually(lambda: mount.names(mount.root / "docs") == [".~lock.report.md#"], what="it is gone")
    save(mount, call, "docs/new.txt")
    assert mount.zone.read("docs/new.txt") == b"saved\n"


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("call", WAITING)
def test_a_folder_that_the_service_refuses_to_create(
    desk: Mounted, call: str, is_new: bool
) -> None:
    """The call fails with the error of the folder, and succeeds once the service accepts it."""
    mount = virtual(desk)
    mount.allow("deleted on the service", "refused")
    lock = ".~lock.report.md#"
    if not is_new:
        (mount.root / "docs" / lock).write_bytes(b"lock")
        mount.zone.delete("docs")
        eventually(lambda: mount.names(mount.root / "docs") == [lock], what="the file is gone")
    mount.deployment.fault(status=403, error="NOT_ALLOWED", method="POST")
    folder = "new" if is_new else "docs"
    if is_new:
        (mount.root / folder).mkdir()
    began = time.monotonic()  # of the virtual clock
    for _ in range(2):
        with pytest.raises(PermissionError):
            save(mount, call, f"{folder}/new.txt")
    assert time.monotonic() < began + 30
    mount.deployment.heal()
    save(mount, call, f"{folder}/new.txt")
    assert mount.zone.read(f"{folder}/new.txt") == b"saved\n"


@pytest.mark.parametrize("call", WAITING)
def test_a_file_that_a_coworker_deletes_with_its_folder(desk: Mounted, call: str) -> None:
    """The call succeeds: file and folder are created again."""
    mount = virtual(desk)
    mount.allow("deleted on the service")
    mount.names(mount.root / "docs")
    mount.zone.delete("docs")
    save(mount, call, "docs/report.md")
    assert mount.zone.read("docs/report.md") == b"saved\n"


@pytest.mark.mount("fsync=service")
def test_an_fsync_after_a_refusal_makes_an_attempt(desk: Mounted) -> None:
    """The refused version is sent as soon as the service accepts it."""
    mount = virtual(desk)
    mount.allow("refused")
    with (mount.root / "a.txt").open("wb", buffering=0) as file:
        file.write(b"saved\n")
        mount.deployment.fault(status=403, error="NOT_ALLOWED", method="POST")
        for _ in range(2):
            with pytest.raises(PermissionError):
                mount.system.fsync(file.fileno())
        assert mount.deployment.uploads() == 2
        mount.deployment.heal()
        mount.system.fsync(file.fileno())
        assert mount.zone.read("a.txt") == b"saved\n"


@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
@pytest.mark.parametrize("fault", [{"drop_reply": True}, {"cut_after": 2}])
@pytest.mark.parametrize("call", WAITING)
def test_a_connection_that_breaks_during_the_upload(
    desk: Mounted, call: str, fault: dict[str, int], name: str
) -> None:
    """The call waits until the daemon knows whether the service has the version."""
    mount = virtual(desk)
    mount.allow("broke")
    mount.deployment.fault(**fault, times=1, **UPLOAD)
    save(mount, call, name)
    assert mount.zone.read(name) == b"saved\n"
    assert len(mount.zone.versions(name)) == (1 if name == "new.txt" else 2)


@pytest.mark.parametrize("call", WAITING)
def test_connections_that_break_during_every_upload(desk: Mounted, call: str) -> None:
    """The call fails in the end; the version stays in the outbox."""
    mount = virtual(desk)
    mount.allow("broke")
    mount.deployment.fault(cut_after=2, **UPLOAD)
    began = time.monotonic()  # of the virtual clock
    with pytest.raises(OSError, match=r".") as failed:
        save(mount, call, "a.txt")
    assert failed.value.errno == errno.EIO
    assert time.monotonic() < began + 30
    mount.deployment.heal()
    mount.sync()
    assert mount.zone.read("a.txt") == b"saved\n"
    assert len(mount.zone.versions("a.txt")) == 1


@pytest.mark.parametrize("call", WAITING)
def test_the_network_goes_away_after_a_lost_reply(desk: Mounted, call: str) -> None:
    """The call fails as soon as the service cannot be reached."""
    mount = virtual(desk)
    mount.allow("broke", "offline", "reach")
    mount.deployment.fault(latency_ms=1000, drop_reply=True, times=1, **UPLOAD)

    async def go_away() -> None:
        await trio.sleep(1.2)
        mount.deployment.fault(down=True)

    async def begin() -> None:
        mount.loop.nursery.start_soon(go_away)

    mount.loop.run(begin)
    with pytest.raises(OSError, match=r".") as failed:
        save(mount, call, "a.txt")
    assert failed.value.errno == errno.ENETUNREACH
    mount.deployment.heal()
    mount.sync()
    assert len(mount.zone.versions("a.txt")) == 1


@pytest.mark.mount("close=wait")
def test_a_coworkers_version_while_another_program_writes(desk: Mounted) -> None:
    """The call fails in the end, because no conflict copy is made while the program writes."""
    mount = virtual(desk)
    mount.allow("a conflict copy")
    path = mount.root / "notes.txt"
    assert path.read_bytes()
    with path.open("r+b", buffering=0) as first, path.open("r+b", buffering=0) as second:
        first.write(b"saved\n")
        mount.zone.write("notes.txt", b"Bob's\n")
        mount.deployment.fault(latency_ms=500, method="GET")

        async def write() -> None:
            await trio.sleep(0.2)
            await mount.client.kernel.write(second.fileno(), b"again\n")

        async def begin() -> None:
            mount.loop.nursery.start_soon(write)

        mount.loop.run(begin)
        descriptor = mount.system.dup(first.fileno())
        with pytest.raises(OSError, match=r".") as failed:
            mount.loop.run(limited, mount.client.kernel.close, descriptor)
        assert failed.value.errno == errno.ESTALE
        mount.deployment.heal()


@pytest.mark.parametrize("is_renamed", [False, True])
@pytest.mark.parametrize("call", WAITING)
def test_a_program_continues_with_its_conflict_copy(
    desk: Mounted, call: str, is_renamed: bool
) -> None:
    """All that it saves after a coworker's version is in one conflict copy.

    The coworker's version shows at once, and keeps the name, also one that waits to be sent.
    """
    mount = virtual(desk)
    mount.allow("a conflict copy")
    path, seed = mount.root / "notes.txt", SEED["notes.txt"]
    entry = mount.zone.entry_id("notes.txt")
    with path.open("r+b", buffering=0) as file:
        assert file.read() == seed
        file.write(b"0\n")
        mount.zone.write("notes.txt", b"Bob's\n")
        name = "notes.txt"
        if is_renamed:
            path.rename(path := mount.root / (name := "mine.txt"))
        for number in range(3):
            if number:
                file.write(b"%d\n" % number)
            deliver(mount, call, file.fileno())
            (copy,) = [each for each in mount.zone.listing() if "(conflict" in each]
            assert mount.zone.read(copy) == seed + b"0\n1\n2\n"[: 2 * number + 2]
            assert mount.system.pread(file.fileno(), 100, 0) == mount.zone.read(copy)
            assert path.read_bytes() == b"Bob's\n"
        assert os.path.samestat(mount.system.fstat(file.fileno()), (mount.root / copy).stat())
        mount.sync()
        assert mount.zone.entry_id(name) == entry
        file.write(b"3\n")
    path.write_bytes(b"next\n")
    mount.sync()
    assert mount.zone.read(copy) == seed + b"0\n1\n2\n3\n"
    assert len(mount.zone.versions(copy)) == 4
    assert [each["path"] for each in mount.conflicts()] == [f"Zone 01/{copy}"]
    assert mount.conflicts()[0]["original"] == f"Zone 01/{name}"
    assert len(mount.zone.versions(name)) == 3


@pytest.mark.mount("fsync=service", "settle=0")
def test_a_death_after_the_file_became_a_conflict_copy(desk: Mounted) -> None:
    """The next start sends the copy, once, and the coworker's version keeps the entry."""
    mount = virtual(desk)
    mount.allow("a conflict copy", "fsync took longer")
    mount.unmount()
    mount.mount("fsync=service", kill_at=Place.COPY_RECORDED)
    path, entry = mount.root / "notes.txt", mount.zone.entry_id("notes.txt")
    file = mount.system.open(path, os.O_RDWR)
    mount.system.write(file, b"0\n")
    mount.zone.write("notes.txt", b"Bob's\n")
    with pytest.raises(OSError, match=r"."):
        mount.loop.run(limited, mount.client.kernel.fsync, file)
    assert mount.died_at(Place.COPY_RECORDED)
    mount.mount("fsync=service")
    mount.sync()
    (copy,) = [each for each in mount.zone.listing() if "(conflict" in each]
    assert mount.zone.read(copy) == b"0\n" + SEED["notes.txt"][2:]
    assert len(mount.zone.versions(copy)) == 1
    assert (mount.zone.entry_id("notes.txt"), path.read_bytes()) == (entry, b"Bob's\n")
    assert [each["path"] for each in mount.conflicts()] == [f"Zone 01/{copy}"]
    path.write_bytes(b"next\n")
    mount.sync()
    assert len(mount.zone.versions("notes.txt")) == 3


def rename_during_upload(mount: VirtualMount, **fault: object) -> None:
    """Let a coworker rename `notes.txt` to `moved.txt` during its next upload; set a fault then."""
    mount.allow("renamed by a coworker")
    mount.deployment.fault(latency_ms=2000, **UPLOAD)

    async def rename() -> None:
        await trio.sleep(1)
        mount.zone.move("notes.txt", "moved.txt")
        if fault:
            mount.deployment.fault(**fault)

    async def begin() -> None:
        mount.loop.nursery.start_soon(rename)

    mount.loop.run(begin)


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("call", WAITING)
def test_a_coworker_renames_the_file_during_the_upload(
    desk: Mounted, call: str, continues: bool
) -> None:
    """The sent version is a new file; the renamed one shows its own content after the close.

    What the program writes after that follows to the renamed file.
    """
    mount = virtual(desk)
    seed, (new, old) = SEED["notes.txt"], (mount.root / "moved.txt", mount.root / "notes.txt")
    with old.open("r+b", buffering=0) as file:
        assert file.read() == seed
        file.write(b"saved\n")
        rename_during_upload(mount)
        deliver(mount, call, file.fileno())
        mount.deployment.heal()
        assert mount.zone.read("notes.txt") == seed + b"saved\n"
        assert mount.zone.read("moved.txt") == seed
        if continues:
            file.write(b"again\n")
    mount.sync()
    whole = seed + b"saved\nagain\n" if continues else seed
    eventually(lambda: new.exists() and new.read_bytes() == whole, what="it shows its content")
    assert mount.zone.read("moved.txt") == whole
    assert old.read_bytes() == seed + b"saved\n"
    assert mount.client.parts.state.spool.stored() == []
    assert len(mount.conflicts()) == 1


@pytest.mark.mount("close=wait")
def test_the_folder_cannot_be_listed_after_a_coworker_has_renamed_the_file(desk: Mounted) -> None:
    """The conflict is listed nevertheless."""
    mount = virtual(desk)
    mount.allow("not sent")
    rename_during_upload(mount, status=500, method="GET", path="/folder/")
    (mount.root / "notes.txt").write_bytes(b"saved\n")
    (conflict,) = mount.conflicts()
    mount.deployment.heal()
    eventually(
        lambda: (mount.root / "moved.txt").exists(), what="the folder is listed, with both names"
    )
    (conflict,) = mount.conflicts()
    assert conflict["path"] == "Zone 01/notes.txt"
    assert conflict["original"] == "Zone 01/moved.txt"
    assert (mount.root / "notes.txt").read_bytes() == b"saved\n"


@pytest.mark.mount("close=wait", "cache_size=1M")
def test_a_file_that_is_closed_while_its_bytes_move_into_the_cache(desk: Mounted) -> None:
    """The close returns while older content is being removed from the full cache."""
    mount = virtual(desk)
    for number in range(4):
        (path := mount.root / f"{number}.bin").write_bytes(b"n" * 400_000)
    state = mount.client.parts.state
    inode = state.inodes.get(path.stat().st_ino)
    eventually(lambda: state.is_readable_offline(inode), what="its bytes are in the cache")
    assert path.read_bytes() == b"n" * 400_000
    assert mount.deployment.downloads() == 0
    assert state.spool.stored() == []


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("call", WAITING)
def test_another_program_saves_while_a_call_waits(
    desk: Mounted, call: str, is_refused: bool
) -> None:
    """The call waits for the newer version, which contains the changes of both, or fails, too."""
    mount, path = virtual(desk), desk.root / "notes.txt"
    mount.allow("refused")
    kernel, whole = mount.client.kernel, b"FIRST\nSECOND" + SEED["notes.txt"][12:]
    wait = kernel.fsync if call == "fsync" else kernel.close
    with path.open("r+b", buffering=0) as first, path.open("r+b", buffering=0) as second:
        first.write(b"FIRST\n")
        done, waiting = trio.Event(), [mount.system.dup(each.fileno()) for each in (first, second)]
        mount.deployment.fault(latency_ms=1000, method="GET")
        if is_refused:
            mount.deployment.fault(status=403, error="NOT_ALLOWED", method="POST")

        async def save() -> None:
            await trio.sleep(0.5)
            await kernel.pwrite(second.fileno(), b"SECOND", 6)
            with contextlib.suppress(PermissionError):
                await wait(waiting[1])
            done.set()

        async def begin() -> None:
            mount.loop.nursery.start_soon(save)

        mount.loop.run(begin)
        if is_refused:
            with pytest.raises(PermissionError):
                mount.loop.run(limited, wait, waiting[0])
        else:
            mount.loop.run(limited, wait, waiting[0])
            assert mount.zone.read("notes.txt") == whole
        mount.loop.run(limited, done.wait)
        mount.deployment.heal()
    mount.sync()
    assert mount.zone.read("notes.txt") == path.read_bytes() == whole


@pytest.mark.mount("close=wait")
def test_a_program_that_keeps_saving_does_not_keep_another_one_waiting(desk: Mounted) -> None:
    """The close fails, because the service gets no version before the next save."""
    mount, path = virtual(desk), desk.root / "notes.txt"
    kernel = mount.client.kernel
    with path.open("r+b", buffering=0) as first, path.open("r+b", buffering=0) as second:
        first.write(b"FIRST\n")
        mount.deployment.fault(latency_ms=1000, method="GET")

        async def save() -> None:
            for _ in range(40):
                await trio.sleep(0.5)
                await kernel.pwrite(second.fileno(), b"SECOND", 6)
                await kernel.fsync(second.fileno())

        async def begin() -> None:
            mount.loop.nursery.start_soon(save)

        mount.loop.run(begin)
        with pytest.raises(OSError, match=r".") as failed:
            mount.loop.run(limited, kernel.close, mount.system.dup(first.fileno()))
        assert failed.value.errno == errno.ESTALE
        mount.deployment.heal()
        mount.loop.run(trio.sleep, 20)
    mount.sync()
    assert mount.zone.read("notes.txt") == path.read_bytes()


@pytest.mark.parametrize("call", WAITING)
@pytest.mark.parametrize("saves", [12, 60])
def test_a_version_that_arrives_while_another_program_keeps_saving(
    desk: Mounted, call: str, saves: int
) -> None:
    """The call returns as soon as its version is on the service, whatever is saved meanwhile."""
    mount, path = virtual(desk), desk.root / "notes.txt"
    kernel = mount.client.kernel
    wait = kernel.fsync if call == "fsync" else kernel.close
    with path.open("r+b", buffering=0) as first, path.open("r+b", buffering=0) as second:
        first.write(b"FIRST\n")
        waiting = mount.system.dup(first.fileno())
        others = [mount.system.dup(second.fileno()) for _ in range(saves)]
        mount.deployment.fault(latency_ms=2000, **UPLOAD)
        closed: list[int] = []
        failed: list[OSError] = []

        async def save() -> None:
            await trio.sleep(1.1)
            for _ in range(saves):
                await trio.sleep(0.1)
                await kernel.pwrite(second.fileno(), b"SECOND", 6)
                mount.loop.nursery.start_soon(finish, others.pop())

        async def finish(each: int) -> None:
            try:
                await wait(each)
            except OSError as wrong:
                failed.append(wrong)
            closed.append(each)

        async def begin() -> None:
            mount.loop.nursery.start_soon(save)

        mount.loop.run(begin)
        mount.loop.run(limited, wait, waiting)
        assert b"FIRST\n" in mount.zone.read("notes.txt")
        mount.loop.run(trio.sleep, 60)
        assert (len(closed), failed) == (saves, [])
        mount.deployment.heal()
    mount.sync()
    assert mount.zone.read("notes.txt") == path.read_bytes()
