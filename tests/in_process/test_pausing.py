"""Pause of the uploads, and files that are sent nevertheless."""

import errno
from functools import partial
from typing import Any

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import UPLOAD, Watcher, state, virtual
from zonedrive.failpoint import Place

ZONE = "Zone 01"
LONG_S = 3600.0  # no upload waits so long without a pause


@pytest.fixture
def mount(desk: Mounted) -> VirtualMount:
    """Return the mount of Alice's zones in this process, with uploads paused."""
    found = virtual(desk)
    assert found.command("pause")["left"] == {"files": 0, "changes": 0, "bytes": 0}
    return found


def wait(mount: VirtualMount, seconds: float = LONG_S) -> None:
    """Let time pass."""
    mount.loop.run(trio.sleep, seconds)


def sent(mount: VirtualMount, name: str) -> bool:
    """Return True if the service has an entry of that name in the zone."""
    return mount.zone.find(name) is not None


def test_an_error_from_before_the_pause_is_no_longer_the_reason(desk: Mounted) -> None:
    """The pause keeps the upload from being sent, and not the service's answer before it."""
    mount = virtual(desk)
    mount.deployment.fault(status=500, **UPLOAD)
    (mount.root / "notes.txt").write_bytes(b"edited\n")
    wait(mount, 30)
    (upload,) = mount.status()["uploads"]
    assert "the service cannot do it now" in upload["error"]
    mount.command("pause")
    mount.deployment.heal()
    wait(mount)
    (upload,) = mount.status()["uploads"]
    assert (upload["state"], upload["error"]) == ("pending", None)


def test_files_are_saved_and_read_and_not_sent(mount: VirtualMount) -> None:
    """No request changes the service until `resume`; everything is sent then."""
    requests = len(mount.deployment.world.requests)
    (mount.root / "new").mkdir()
    (mount.root / "new/a.txt").write_bytes(b"one\n")
    (mount.root / "notes.txt").write_bytes(b"edited\n")
    (mount.root / "docs/report.md").rename(mount.root / "moved.md")
    (mount.root / "big.bin").unlink()
    wait(mount)
    (mount.root / "new/a.txt").write_bytes(b"two\n")
    wait(mount)
    changing = [
        each for each in mount.deployment.world.requests[requests:] if not each.startswith("GET")
    ]
    assert changing == []
    assert (mount.root / "new/a.txt").read_bytes() == b"two\n"
    assert (mount.root / "docs/Grüße aus Köln.txt").read_bytes()
    found = mount.status()
    assert (found["paused"], found["held"], found["outbox"]["pending"]) == (True, 0, 5)
    answer = mount.command("resume")
    assert (answer["was_paused"], answer["left"]["files"]) == (True, 5)
    assert mount.command("sync")["exit"] == 0
    assert mount.zone.read("new/a.txt") == b"two\n"
    assert len(mount.zone.versions("new/a.txt")) == 1
    assert mount.zone.read("notes.txt") == b"edited\n"
    assert sent(mount, "moved.md")
    assert not sent(mount, "big.bin")
    assert mount.command("resume")["was_paused"] is False


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_pause_outlives_the_daemon(mount: VirtualMount, end: str) -> None:
    """The next daemon sends nothing either, until `resume`."""
    (mount.root / "a.txt").write_bytes(b"one\n")
    if end == "kill":
        mount.kill()
    else:
        mount.loop.run(mount.client.stop)
    mount.mount()
    wait(mount)
    assert mount.status()["paused"]
    assert not sent(mount, "a.txt")
    assert (mount.root / "a.txt").read_bytes() == b"one\n"
    mount.command("resume")
    eventually(lambda: sent(mount, "a.txt"), what="it is sent")
    mount.kill()
    mount.mount()
    assert not mount.status()["paused"]


def test_a_pause_with_an_end(mount: VirtualMount) -> None:
    """A pause with an end ends by itself, also after a restart of the daemon."""
    mount.command("pause", seconds=LONG_S)
    (mount.root / "a.txt").write_bytes(b"one\n")
    wait(mount, LONG_S - 60)
    assert not sent(mount, "a.txt")
    mount.kill()
    mount.mount()
    assert "paused_until" in mount.status()
    wait(mount, 120)
    assert sent(mount, "a.txt")
    assert not mount.status()["paused"]
    assert not mount.client.paths.pause.exists()


def test_a_pause_ends_while_the_service_is_unreachable(mount: VirtualMount) -> None:
    """The changes are sent when the service is back."""
    mount.allow("offline", "reach")
    mount.command("pause", seconds=LONG_S)
    (mount.root / "a.txt").write_bytes(b"one\n")
    with mount.deployment.faulty(down=True):
        wait(mount, 2 * LONG_S)
        assert not mount.status()["paused"]
    eventually(lambda: sent(mount, "a.txt"), what="it is sent")


@pytest.mark.parametrize("timeout", [None, LONG_S])
def test_sync_does_not_wait_in_a_pause(mount: VirtualMount, timeout: float | None) -> None:
    """`sync` reports at once what is left and why, and nothing is sent."""
    assert mount.command("sync", timeout=timeout)["exit"] == 0
    (mount.root / "a.txt").write_bytes(b"one\n")
    before = mount.loop.time.clock.current_time()
    answer = mount.command("sync", timeout=timeout)
    assert mount.loop.time.clock.current_time() - before < 10
    assert (answer["exit"], answer["left"]["files"], answer["paused"]) == (1, 1, True)
    assert answer["reason"] == "uploads are paused"
    assert not sent(mount, "a.txt")


def test_a_waiting_sync_ends_when_a_pause_begins(mount: VirtualMount) -> None:
    """`sync` waits for requests in progress, and then reports what is left."""
    mount.command("resume")
    mount.deployment.fault(stall=20, method="POST", path="^/api/zones/")
    answers: list[dict[str, Any]] = []

    async def sync() -> None:
        answers.append(await mount.client.call(mount.client.command, "sync"))

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync)
            await trio.sleep(5)
            assert not answers
            answer = await mount.client.call(mount.client.command, "pause")
            assert (answer["uploading"], answer["left"]["files"]) == (1, 2)

    with (mount.root / "open.txt").open("wb", buffering=0) as file:
        file.write(b"not closed yet\n")
        (mount.root / "a.txt").write_bytes(b"one\n")
        mount.loop.run(both)
    assert [(each["exit"], each["left"]["files"]) for each in answers] == [(1, 1)]
    assert mount.zone.read("a.txt") == b"one\n"
    assert not sent(mount, "open.txt")


def test_send_sends_exactly_these(mount: VirtualMount) -> None:
    """A file is sent with the new folders above it, and nothing else."""
    (mount.root / "new/below").mkdir(parents=True)
    for name in ("new/below/a.txt", "new/below/b.txt", "new/c.txt", "d.txt"):
        (mount.root / name).write_bytes(name.encode())
    (mount.root / "notes.txt").write_bytes(b"edited\n")
    answer = mount.command("send", paths=[f"{ZONE}/new/below/a.txt"])
    assert (answer["exit"], answer["left"]["files"]) == (0, 0)
    wait(mount)
    assert mount.zone.tree("new") == {"new/below": None, "new/below/a.txt": b"new/below/a.txt"}
    assert not sent(mount, "d.txt")
    assert mount.zone.read("notes.txt") != b"edited\n"
    assert mount.command("send", paths=[f"{ZONE}/new", f"{ZONE}/notes.txt"])["exit"] == 0
    assert {"new/below/b.txt", "new/c.txt"} <= mount.zone.tree("new").keys()
    assert mount.zone.read("notes.txt") == b"edited\n"
    wait(mount)
    assert not sent(mount, "d.txt")
    assert mount.status()["paused"]
    assert mount.command("send", paths=[ZONE])["exit"] == 0
    assert sent(mount, "d.txt")


def test_send_frees_the_name_first(mount: VirtualMount) -> None:
    """A file at the place of a renamed one is sent after that rename."""
    (mount.root / "notes.txt").rename(mount.root / "old notes.txt")
    (mount.root / "notes.txt").mkdir()
    (mount.root / "notes.txt/inside.txt").write_bytes(b"in\n")
    (mount.root / "other.txt").write_bytes(b"other\n")
    assert mount.command("send", paths=[f"{ZONE}/notes.txt/inside.txt"])["exit"] == 0
    assert mount.zone.read("notes.txt/inside.txt") == b"in\n"
    assert sent(mount, "old notes.txt")
    assert not sent(mount, "other.txt")


def ids(mount: VirtualMount) -> dict[str, str]:
    """Return the ids of the entries in the zone, by name."""
    return {name: mount.zone.entry_id(name) for name in mount.zone.tree() if "/" not in name}


def exchange(mount: VirtualMount) -> dict[str, str]:
    """Exchange the names of two files; return what `ids` returns when the service has done it."""
    before = ids(mount)
    mount.exchange(mount.root / "notes.txt", mount.root / "big.bin")
    return before | {"notes.txt": before["big.bin"], "big.bin": before["notes.txt"]}


@pytest.mark.parametrize("name", ["notes.txt", "big.bin"])
def test_send_completes_an_exchange_of_names(mount: VirtualMount, name: str) -> None:
    """The other file does not keep a temporary name on the service; its edit is not sent."""
    (mount.root / name).write_bytes(b"edited\n")
    after = exchange(mount)
    assert mount.command("send", paths=[f"{ZONE}/{name}"])["exit"] == 0
    assert ids(mount) == after
    wait(mount)
    assert b"edited\n" not in mount.zone.tree().values()
    assert mount.status()["outbox"]["pending"] == 1


def test_an_exchange_under_way_is_completed(desk: Mounted) -> None:
    """No file keeps a temporary name on the service until the pause ends."""
    mount = virtual(desk)
    mount.deployment.fault(stall=2, method="PUT")
    after = exchange(mount)
    eventually(lambda: mount.client.parts.state.in_flight, what="a file gets a temporary name")
    mount.command("pause")
    wait(mount, 60)
    assert ids(mount) == after
    assert mount.status()["paused"]


@pytest.mark.parametrize("place", [Place.ASIDE_DONE, Place.ASIDE_NOTED], ids=str)
def test_the_next_daemon_completes_an_exchange(mount: VirtualMount, place: Place) -> None:
    """This also holds if the answer to the request for the temporary name was lost."""
    mount.kill()
    mount.mount(kill_at=str(place))
    after = exchange(mount)
    with pytest.raises(ConnectionAbortedError):
        mount.command("send", paths=[f"{ZONE}/notes.txt", f"{ZONE}/big.bin"])
    assert mount.died_at(str(place))
    mount.mount()
    wait(mount, 60)
    assert ids(mount) == after
    assert mount.status()["paused"]


def test_send_sends_the_conflict_copy(mount: VirtualMount) -> None:
    """The bytes of the file are in the copy."""
    mount.allow("a conflict copy")
    (mount.root / "notes.txt").read_bytes()
    (mount.root / "notes.txt").write_bytes(b"edited\n")
    (mount.root / "other.txt").write_bytes(b"other\n")
    mount.zone.write("notes.txt", b"by bob\n")
    answer = mount.command("send", paths=[f"{ZONE}/notes.txt"])
    (copy,) = [one["path"] for one in mount.conflicts()]
    assert (answer["exit"], answer["conflicts"]) == (0, [copy])
    assert mount.zone.read(copy.removeprefix(f"{ZONE}/")) == b"edited\n"
    assert mount.zone.read("notes.txt") == b"by bob\n"
    assert not sent(mount, "other.txt")


def test_send_does_not_wait_for_the_settle_time(desk: Mounted) -> None:
    """`send` sends at once, also without a pause."""
    mount = virtual(desk)
    mount.restart("settle=3600")
    (mount.root / "a.txt").write_bytes(b"one\n")
    (mount.root / "b.txt").write_bytes(b"two\n")
    wait(mount, 60)
    assert not sent(mount, "a.txt")
    assert mount.command("send", paths=[f"{ZONE}/a.txt"])["exit"] == 0
    assert sent(mount, "a.txt")
    assert not sent(mount, "b.txt")


def test_send_of_a_refused_file_fails(mount: VirtualMount) -> None:
    """The file is tried once, and the answer has the reason; the other files keep waiting."""
    mount.allow("refused")
    (mount.root / "a.txt").write_bytes(b"one\n")
    (mount.root / "b.txt").write_bytes(b"two\n")
    mount.deployment.fault(status=403, method="POST", path="^/api/zones/")
    answer = mount.command("send", paths=[f"{ZONE}/a.txt"])
    assert answer["exit"] == 1
    (failed,) = answer["failed"]
    assert failed["path"] == f"{ZONE}/a.txt"
    mount.deployment.heal()
    answer = mount.command("send", paths=[f"{ZONE}/a.txt"])
    assert answer["exit"] == 0
    assert not sent(mount, "b.txt")


def test_send_while_the_service_is_unreachable(mount: VirtualMount) -> None:
    """`send` ends with exit code 4, and the file still waits for the end of the pause."""
    mount.allow("offline", "reach", "upload", "answer")
    (mount.root / "a.txt").write_bytes(b"one\n")
    with mount.deployment.faulty(down=True):
        assert mount.command("send", paths=[f"{ZONE}/a.txt"], timeout=30)["exit"] == 4
    wait(mount)
    assert not sent(mount, "a.txt")
    assert mount.status()["outbox"]["pending"] == 1


def test_send_of_an_open_file_waits_for_its_close(mount: VirtualMount) -> None:
    """The command waits as long as its timeout says, and sends the file after the close."""
    with (mount.root / "a.txt").open("wb", buffering=0) as file:
        file.write(b"one\n")
        assert mount.command("send", paths=[f"{ZONE}/a.txt"], timeout=5)["exit"] == 1
    assert not sent(mount, "a.txt")
    assert mount.command("send", paths=[f"{ZONE}/a.txt"])["exit"] == 0
    assert mount.zone.read("a.txt") == b"one\n"


@pytest.mark.mount("close=wait")
def test_a_close_that_waits_for_the_service_fails_in_a_pause(mount: VirtualMount) -> None:
    """close fails as for an unreachable service; the version is saved here and sent later."""
    with pytest.raises(OSError, match=r".") as failed:
        (mount.root / "a.txt").write_bytes(b"one\n")
    assert failed.value.errno == errno.ENETUNREACH
    assert (mount.root / "a.txt").read_bytes() == b"one\n"
    mount.command("resume")
    eventually(lambda: sent(mount, "a.txt"), what="it is sent")


def test_file_managers_are_notified(mount: VirtualMount) -> None:
    """The stream of changes has lines for begin and end, although no state of an entry changes."""
    watcher = Watcher(mount)  # type: ignore[arg-type]
    (mount.root / "a.txt").write_bytes(b"one\n")
    watcher.wait(5)
    assert watcher.lines[0]["paused"]
    assert watcher.lines[-1]["counts"]["pending"] == 1
    assert state(mount, f"{ZONE}/a.txt") == "pending"  # type: ignore[arg-type]
    mount.command("resume")
    watcher.wait(5)
    assert not watcher.lines[-1]["paused"]
    mount.command("pause")
    watcher.wait()
    assert watcher.lines[-1]["paused"]
    assert watcher.lines[-1]["counts"]["pending"] == 0


def test_a_full_disk_refuses_a_pause(mount: VirtualMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that cannot be stored, and would end at a restart, is refused."""
    mount.command("resume")
    monkeypatch.setattr(
        "zonedrive.state.pause.write_private", partial(_fail, OSError(errno.ENOSPC, "full"))
    )
    with pytest.raises(OSError, match="full"):
        mount.command("pause")
    assert not mount.status()["paused"]
    (mount.root / "a.txt").write_bytes(b"one\n")
    eventually(lambda: sent(mount, "a.txt"), what="it is sent")


def _fail(error: OSError, *_: object) -> None:
    raise error


def test_trash_does_not_wait_in_a_pause(mount: VirtualMount) -> None:
    """A deletion that the service does not know is not listed in its trash yet, and none is
    lost."""
    (mount.root / "notes.txt").unlink()
    before = mount.loop.time.clock.current_time()
    assert mount.command("trash")["entries"] == []
    assert mount.loop.time.clock.current_time() - before < 5
    mount.command("resume")
    assert [each["name"] for each in mount.command("trash")["entries"]] == ["notes.txt"]


def test_a_move_counts_for_the_folder_that_it_leaves(mount: VirtualMount) -> None:
    """The service still has the entry there; a new name in the same folder counts once."""
    root = mount.root
    mount.command("resume")
    for name in ("from", "from/inner", "to", "other"):
        (root / name).mkdir()
    for name in ("from/inner/file", "from/renamed", "other/x"):
        (root / name).write_bytes(b"x")
    mount.sync()
    mount.command("pause")

    def counts(*names: str) -> list[int]:
        """Return the number of pending changes in each folder, the same for both commands."""
        found = []
        for name in names:
            where = [str(root / name)]
            number = mount.command("status", paths=where)["outbox"]["pending"]
            answer = mount.command("sync", paths=where, timeout=0)
            assert (answer["left"]["files"], answer["exit"]) == (number, 1 if number else 0)
            found.append(number)
        return found

    assert counts("from", "from/inner", "to") == [0, 0, 0]
    (root / "from/inner/file").rename(root / "to/file")
    assert counts("from", "from/inner", "to", "other") == [1, 1, 1, 0]
    (root / "from/renamed").rename(root / "from/new name")
    assert counts("from", "from/inner", "to", "other") == [2, 1, 1, 0]
    (root / "from/inner").rename(root / "to/inner")
    assert counts("from", "to", "other") == [3, 2, 0]
    (root / "to/new").write_bytes(b"new")
    (root / "to/new").rename(root / "to/other name")
    assert counts("from", "to") == [3, 3]
    mount.command("resume")
    mount.sync(root / "from")
    assert not mount.zone.tree("from").keys() & {"from/inner", "from/inner/file", "from/renamed"}
    mount.sync()
