"""States of entries for file managers, and the stream of their changes."""

import os
from functools import partial
from typing import Any

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_conflicts import SAID, collide, copies
from zonedrive.daemon import entry_watch
from zonedrive.daemon.protocol import Message
from zonedrive.pins.poll import PASS_S

ZONE = "Zone 01"
UPLOAD = {"method": "POST", "path": "^/api/zones/"}


def states(desk: Mounted, *paths: str) -> list[Any]:
    """Return the answer about these paths."""
    found: list[Any] = virtual(desk).command("states", paths=list(paths))["states"]
    return found


def state(desk: Mounted, path: str) -> str:
    found: str = states(desk, path)[0]["state"]
    return found


def virtual(desk: Mounted) -> VirtualMount:
    assert isinstance(desk, VirtualMount)
    return desk


class Watcher:
    """Client that watches entry states, with the lines that it received."""

    def __init__(self, desk: Mounted) -> None:
        self.lines: list[Message] = []
        self.reads = True
        self.ended: list[BaseException] = []
        self._desk = virtual(desk)
        self._desk.loop.run(self._begin)

    async def _begin(self) -> None:
        self._desk.loop.nursery.start_soon(self._watch)
        await trio.sleep(1)

    async def _watch(self) -> None:
        watch = self._desk.client.commands.handlers["watch"]
        try:
            await self._desk.client.call(partial(watch, {"command": "watch"}, self._say))
        except (trio.BrokenResourceError, ConnectionError) as wrong:
            self.ended.append(wrong)

    async def _say(self, line: Message) -> None:
        if not self.reads:
            await trio.sleep_forever()
        self.lines.append(line)

    def wait(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self._desk.loop.run(trio.sleep, seconds)

    def seen(self, path: str) -> list[str]:
        """Return the states of a path in the order in which they were reported."""
        found = (line.get("changed", {}).get(path) for line in self.lines)
        return [each["state"] for each in found if each is not None]


def test_many_paths_are_answered_in_order(desk: Mounted) -> None:
    """Each path has its state, folder flag, pin and permission; unknown paths have none."""
    desk.system.listdir(desk.root)
    desk.system.listdir(desk.root / "docs")
    virtual(desk).command("pin", paths=[f"{ZONE}/docs"])
    wanted = [f"{ZONE}/notes.txt", f"/Zones/{ZONE}/docs/report.md", f"{ZONE}/docs", "", "no", "a/b"]
    notes, report, docs, top, unknown, nowhere = states(desk, *wanted)
    plain = {"state": "synced", "folder": False, "kept": False, "read_only": False}
    plain |= {"missing": False}
    assert notes == plain
    assert report == plain | {"kept": True}
    assert docs == plain | {"kept": True, "folder": True}
    assert top == plain | {"folder": True}
    assert unknown is None
    assert nowhere is None


def test_an_answer_sends_no_request(desk: Mounted) -> None:
    """Paths that were never listed are unknown, and nothing is asked of the service."""
    virtual(desk).loop.run(trio.sleep, 1)
    before = len(virtual(desk).deployment.world.requests)
    assert states(desk, f"{ZONE}/docs/2026/never listed.txt") == [None]
    assert len(virtual(desk).deployment.world.requests) == before


@pytest.mark.mount("settle=600")
def test_a_folder_has_the_most_urgent_state_below(desk: Mounted) -> None:
    """A pending file makes its folders pending, a failed one makes them failed."""
    (desk.root / "docs" / "new.txt").write_bytes(b"new")
    assert state(desk, f"{ZONE}/docs/new.txt") == "pending"
    assert state(desk, f"{ZONE}/docs") == "pending"
    assert state(desk, ZONE) == "pending"
    desk.allow("refused")
    with desk.deployment.faulty(status=403, **UPLOAD):
        (desk.root / "notes.txt").write_bytes(b"refused")
        assert desk.try_sync(desk.root / "notes.txt", seconds=60) == 1
        assert state(desk, f"{ZONE}/notes.txt") == "failed"
        assert state(desk, ZONE) == "failed"
        assert state(desk, f"{ZONE}/docs") == "pending"
    desk.sync()
    assert {state(desk, each) for each in (ZONE, f"{ZONE}/docs", f"{ZONE}/notes.txt")} == {"synced"}


def test_a_conflict_is_shown_on_copy_and_folder(desk: Mounted) -> None:
    """The copy stays a conflict until it is removed."""
    collide(desk)
    (copy,) = copies(desk)
    assert state(desk, f"{ZONE}/{copy}") == "conflict"
    assert state(desk, ZONE) == "conflict"
    assert state(desk, f"{ZONE}/notes.txt") == "synced"
    (desk.root / copy).unlink()
    desk.sync()
    assert state(desk, ZONE) == "synced"


def collide_in_folder(desk: Mounted) -> str:
    """Make a conflict in the folder `team`; return the path of the copy in the zone."""
    desk.zone.make_folder("team")
    desk.zone.write("team/notes.txt", b"the first\n")
    eventually(lambda: (desk.root / "team/notes.txt").exists(), what="the file is listed")
    desk.allow(SAID)
    with (desk.root / "team/notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("team/notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")
    desk.sync()
    (conflict,) = desk.conflicts()
    assert state(desk, ZONE) == state(desk, f"{ZONE}/team") == "conflict"
    path: str = conflict["path"].removeprefix(f"{ZONE}/")
    return path


@pytest.mark.mount("settle=0", "refresh=1")
@pytest.mark.parametrize("change", ["rename the copy", "delete the copy", "delete the folder"])
def test_a_conflict_that_a_coworker_ended_is_not_shown(desk: Mounted, change: str) -> None:
    """The emblems of the copy and of the folders above it change without a local change."""
    copy = collide_in_folder(desk)
    if change == "rename the copy":
        desk.zone.move(copy, "team/mine.txt")
    else:
        desk.zone.delete(copy if change == "delete the copy" else "team")
    shown = desk.path / ZONE / copy
    eventually(lambda: not shown.exists(), what="the change shows")
    assert desk.conflicts() == []
    assert state(desk, ZONE) == "synced"
    if change == "rename the copy":
        assert state(desk, f"{ZONE}/team/mine.txt") == state(desk, f"{ZONE}/team") == "synced"


@pytest.mark.mount("settle=0", "refresh=1")
def test_a_conflict_in_a_folder_in_the_trash_is_not_shown(desk: Mounted) -> None:
    """While the deletion of the folder waits, the copy is neither listed nor counted."""
    collide_in_folder(desk)
    desk.command("pause")
    (desk.root / "team").rename(desk.path / f".Trash-{os.getuid()}/files/team")
    assert desk.conflicts() == []
    assert desk.status()["outbox"]["conflicts"] == 0
    assert state(desk, ZONE) == "pending"
    watcher = Watcher(desk)
    assert watcher.lines[-1]["counts"]["conflict"] == 0


def test_a_protected_file_is_read_only(desk: Mounted) -> None:
    """Write protection on the service shows."""
    (desk.root / "notes.txt").chmod(0o400)
    (found,) = states(desk, f"{ZONE}/notes.txt")
    assert found["read_only"]


def test_a_save_is_reported_until_it_is_on_the_service(desk: Mounted) -> None:
    """The states follow each other, for the file and the folders above it; the last is synced."""
    watcher = Watcher(desk)
    (first,) = watcher.lines
    assert first["mountpoint"] == "/Zones"
    assert first["link"] == "online"
    assert first["counts"] == dict.fromkeys(("failed", "conflict", "uploading", "pending"), 0)
    assert "versions" in first["can"]
    with desk.deployment.faulty(latency_ms=3000, **UPLOAD):
        (desk.root / "docs" / "new.txt").write_bytes(b"new")
        watcher.wait(2)
        assert watcher.lines[-1]["counts"]["uploading"] == 1
        desk.sync()
        watcher.wait()
    for path in (f"{ZONE}/docs/new.txt", f"{ZONE}/docs", ZONE):
        seen = watcher.seen(path)
        assert "uploading" in seen
        assert seen[-1] == "synced"
    assert watcher.lines[-1]["counts"]["uploading"] == 0


@pytest.mark.mount("settle=0")
def test_every_change_is_reported_within_a_second(desk: Mounted) -> None:
    """Saves, failures and uploads are pushed to the client, in the middle of other changes."""
    watcher, half = Watcher(desk), 0.5
    desk.allow("refused")
    with desk.deployment.faulty(status=403, **UPLOAD):
        for number in range(20):
            (desk.root / f"{number}.txt").write_bytes(b"new")
            watcher.wait(half)
            assert watcher.seen(f"{ZONE}/{number}.txt")[-1] == "failed"
    virtual(desk).command("send", paths=[ZONE])
    watcher.wait(half)
    assert {watcher.seen(f"{ZONE}/{number}.txt")[-1] for number in range(20)} == {"synced"}


def test_many_changes_are_few_lines(desk: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes within a moment share a line; too many for a line are reported without names."""
    watcher = Watcher(desk)
    for number in range(50):
        (desk.root / "docs" / f"{number}.txt").write_bytes(b"new")
    desk.sync()
    watcher.wait()
    assert len(watcher.lines) < 25
    assert state(desk, f"{ZONE}/docs") == "synced"
    assert not any(watcher.lines[-1]["counts"].values())
    monkeypatch.setattr(entry_watch, "MOST", 10)
    with desk.deployment.faulty(down=True):
        for number in range(50):
            (desk.root / "docs" / f"{number}.txt").write_bytes(b"newer")
        watcher.wait(3)
        assert any(line.get("everything") for line in watcher.lines)
        assert watcher.lines[-1]["counts"]["pending"] == 50


def test_pins_and_the_connection_are_reported(desk: Mounted) -> None:
    """After a pin the client asks again for everything; the connection's state is in each line."""
    watcher = Watcher(desk)
    virtual(desk).command("pin", paths=[f"{ZONE}/notes.txt"])
    watcher.wait()
    assert any(line.get("everything") for line in watcher.lines)
    with desk.deployment.faulty(down=True):
        (desk.root / "notes.txt").write_bytes(b"new")
        watcher.wait(10)
        assert watcher.lines[-1]["link"] == "offline"
    watcher.wait(60)
    desk.sync()
    watcher.wait()
    assert watcher.lines[-1]["link"] == "online"


def test_a_kept_file_is_missing_until_its_content_is_here(desk: Mounted) -> None:
    """The arrival of the content is reported, as is a newer version that is not here yet."""
    notes = f"{ZONE}/notes.txt"
    desk.system.listdir(desk.root)
    desk.allow("offline", "reach")
    watcher = Watcher(desk)

    def seen() -> list[bool]:
        found = (line.get("changed", {}).get(notes) for line in watcher.lines)
        return [each["missing"] for each in found if each is not None and each["kept"]]

    with desk.deployment.faulty(down=True):
        assert virtual(desk).command("pin", paths=[notes])["exit"] == 4
        (found,) = states(desk, notes)
        assert (found["kept"], found["missing"]) == (True, True)
        watcher.wait()
        del watcher.lines[:]
    watcher.wait(2 * PASS_S)
    assert seen()[-1:] == [False]
    assert states(desk, notes)[0]["missing"] is False
    del watcher.lines[:]
    with desk.deployment.faulty(status=503, path="/content$"):
        desk.zone.write("notes.txt", b"newer")
        watcher.wait(2 * PASS_S)
        assert seen()[:1] == [True]
        assert states(desk, notes)[0]["missing"] is True


def test_a_client_that_does_not_read_is_disconnected(desk: Mounted) -> None:
    """The connection ends after a while; others get their lines meanwhile."""
    slow, other = Watcher(desk), Watcher(desk)
    slow.reads = False
    with desk.deployment.faulty(latency_ms=3000, **UPLOAD):
        (desk.root / "notes.txt").write_bytes(b"new")
        other.wait(2)
    desk.sync()
    other.wait(entry_watch.SLOW_SECONDS + 1)
    (wrong,) = slow.ended
    assert isinstance(wrong, trio.BrokenResourceError)
    assert other.seen(f"{ZONE}/notes.txt")[-1] == "synced"
    assert not other.ended


def test_states_are_not_computed_without_a_client(desk: Mounted) -> None:
    """Saves without a client compute no states."""
    (desk.root / "notes.txt").write_bytes(b"new")
    desk.sync()
    found = virtual(desk).client.files.entry_states
    assert found._unsynced is None
