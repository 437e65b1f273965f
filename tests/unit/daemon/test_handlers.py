"""Answers of the daemon's commands, with fake components."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from zonedrive.cli import sync
from zonedrive.daemon import handlers
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.handlers import AWAY_SECONDS, Commands
from zonedrive.daemon.protocol import Message
from zonedrive.daemon.trash import Trash
from zonedrive.errors import (
    NotFound,
    NotLoggedOn,
    RemoteError,
    StoreError,
    Unreachable,
    ZonedriveError,
    first_of,
)
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog, LocalData
from zonedrive.model import Entry, Zone
from zonedrive.paths import AccountPaths
from zonedrive.remote.connectivity import Connectivity, State
from zonedrive.state.inode import ROOT
from zonedrive.state.pause import Pause
from zonedrive.views.status_report import Place

FOLDER = Path("/home/me/Zones")
NOTHING = {"files": 0, "changes": 0, "bytes": 0}


class Link(Connectivity):
    """Connection whose state a test sets."""

    def become(self, state: State, error: RemoteError | None = None) -> None:
        """Set another state, and the last error."""
        self.last_error = error
        self._become(state)


class Report:
    """Fake status report."""

    def __init__(self) -> None:
        self.uploads: list[dict[str, Any]] = []
        self.counted: Callable[[], object] = list  # called by `work`
        self.conflicted: list[dict[str, Any]] = []
        self.saved = 0
        self.first = False
        self.pause: Pause | None = None
        self.taken_back: list[dict[str, str]] = []
        self.done = trio.Event()
        self.roots: list[list[int]] = []
        self.is_patient = False

    def status(self, under: list[int] | None = None, most: int | None = None) -> dict[str, Any]:
        return {"state": "online", "uploads": self.uploads[:most]}

    def work(self, under: list[int] | None = None) -> dict[str, int]:
        sent = sum(one.get("sent", 0) for one in self.uploads)
        self.counted()
        is_open = sum(bool(one.get("held")) for one in self.uploads)
        return {**self.left(), "sent": sent, "open": is_open, "held": is_open}

    def held(self, under: list[int], most: int) -> list[str]:
        return [one["path"] for one in self.uploads if one.get("held")][:most]

    def lost(self, under: list[int]) -> int:
        return self.saved if ROOT in under else 0

    def take_rejected(self, under: list[int]) -> list[dict[str, str]]:
        given, self.taken_back = self.taken_back, []
        return given

    async def sync(
        self, under: list[int], scope: trio.CancelScope, *, is_patient: bool, first: bool
    ) -> dict[str, Any]:
        self.roots.append(under)
        self.is_patient, self.first = is_patient, first
        with scope:
            await self.done.wait()
        return {"left": self.left(), "uploads": self.uploads, "conflicts": self.conflicted}

    async def find(self, path: str) -> Place:
        if path == "Zone/a.txt":
            return Place(path, (7,))
        if path == ".":
            return Place("", (ROOT,))
        if path == "Zone/a.swp":
            return Place(path, (8,), stays="stays on this machine")
        raise FileNotFoundError(path)

    def left(self) -> dict[str, int]:
        waits = self.uploads
        return {"files": len(waits), "changes": 0, "bytes": sum(one["size"] for one in waits)}


class DataKey:
    """Fake data key; `found` becomes its problem at the next check."""

    def __init__(self) -> None:
        self.found: StoreError | None = None
        self.problem: StoreError | None = None

    async def keep(self) -> None:
        self.problem = self.found


class TrashOperations:
    """Fake trash operations."""

    async def send_deletions(self) -> None:
        pass

    async def end_removal(self, entry: Entry) -> None:
        pass

    def is_to_be_removed(self, name: str) -> bool:
        return False

    def require_vacant(self, entry: Entry) -> None:
        pass

    def known_folder(self, zone_id: str, entry_id: str) -> Entry | None:
        return None

    async def show(self, entries: Iterable[Entry]) -> dict[tuple[str, str], str]:
        return {(entry.zone_id, entry.id): f"shown/{entry.name}" for entry in entries}


class Service:
    """Fake service with zones and trash entries."""

    def __init__(self) -> None:
        self.link = Link()
        self.restored: list[str] = []
        self.slow_s = 0.0  # duration of a restore

    async def zones(self) -> list[Zone]:
        return [Zone("z1", "One", "r1"), Zone("z2", "KeyringLocked", "r2", accessible=False)]

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        assert zone_id == "z1"
        return [(Entry(f"e{n}", "z1", "r1", name, False), 0) for n, name in enumerate("abb")]

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool) -> Entry:
        await trio.sleep(self.slow_s)
        self.restored.append(entry_id)
        return Entry(entry_id, zone_id, "r1", f"name of {entry_id}", False)


class Daemon:
    """Commands with fake components."""

    def __init__(self) -> None:
        self.report, self.service, self.data_key = Report(), Service(), DataKey()
        self.over = trio.Event()
        self.stopped = 0
        self.session = SimpleNamespace(
            folder=FOLDER, detach=bool, stop=self._stop, ended=trio.Event()
        )
        parts = SimpleNamespace(
            files=SimpleNamespace(report=self.report, trash=TrashOperations()),
            service=self.service,
            paths=SimpleNamespace(
                account="work",
                account_file=FOLDER / "none",
                account_copy=FOLDER / "none",
                is_logged_on=False,
                outgoing=FOLDER / "outgoing",
                content=FOLDER / "content",
                state=FOLDER / "state",
                option=" --account work",
            ),
            account=Account(name="work", base_url="https://x", username="alice"),
            auth=SimpleNamespace(last=None),
            state=SimpleNamespace(
                settings=SimpleNamespace(profile=None), supervisor=SimpleNamespace(failing=list)
            ),
            data_key=self.data_key,
            renewal=SimpleNamespace(may_succeed=lambda: False),
        )
        self.parts = parts
        self.said: list[Message] = []
        self.heard: list[str] = []
        self.commands = Commands(
            cast(Parts, parts),
            cast(Session, self.session),
            self.over,
            lambda: self.heard.append("logged on"),
        )

    def _stop(self) -> None:
        self.stopped += 1
        self.over.set()

    async def ask(self, command: str, **request: object) -> Message:
        try:
            return await self.commands.handlers[command]({"command": command, **request}, self._say)
        except ExceptionGroup as several:  # as the control server
            raise first_of(several) from several

    async def _say(self, message: Message) -> None:
        self.said.append(message)


@pytest.fixture
def daemon() -> Daemon:
    """Return a daemon with nothing to do."""
    return Daemon()


def _upload(state: str, size: int = 5) -> dict[str, Any]:
    upload = {"path": "Zone/a.txt", "state": state, "size": size, "sent": 1}
    return {**upload, "error": "why", "last_error": "why"}


async def test_counts_that_take_long_are_reported_less_often(
    daemon: Daemon, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many changes, the progress of a waiting command takes a fifth of the time at most."""
    monkeypatch.setattr(time, "perf_counter", trio.current_time)
    daemon.report.uploads = [_upload("pending")]
    daemon.report.counted = lambda: autojump_clock.jump(10.0)
    await daemon.ask("sync", paths=[], timeout=1000.0)
    assert 10 < len(daemon.said) <= 20


@pytest.mark.parametrize("path", ["/home/me", "/home/me/Zones/../x", "/", "Zone/../../x"])
async def test_a_path_outside_the_mount_is_refused(daemon: Daemon, path: str) -> None:
    """`..` cannot leave the mount either."""
    with pytest.raises(ZonedriveError, match="is not in the mount"):
        await daemon.ask("sync", paths=[path])


async def test_a_missing_path_is_an_error(daemon: Daemon) -> None:
    """The error names the path."""
    with pytest.raises(ZonedriveError, match=r"Zone/b\.txt does not exist"):
        await daemon.ask("status", paths=["Zone/b.txt"])


async def test_very_many_paths_do_not_hold_up_other_tasks(daemon: Daemon) -> None:
    """The loop, which answers the programs, has other turns during the request."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await daemon.ask("status", paths=["Zone/a.txt"] * 20_000)
        nursery.cancel_scope.cancel()
    assert turns >= 100


async def test_sync_of_a_local_only_file_fails(daemon: Daemon) -> None:
    """If the path of the file was given, the answer has the reason why it stays on this machine."""
    daemon.report.done.set()
    answer = await daemon.ask("sync", paths=["Zone/a.txt", "Zone/a.swp"])
    assert answer["exit"] == 1
    assert answer["stays"] == [{"path": "Zone/a.swp", "error": "stays on this machine"}]


async def test_sync_in_a_pause_fails(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy is complete, also if the service is unreachable and all uploads failed before."""
    daemon.report.uploads = [_upload("failed"), _upload("failed")]
    daemon.report.pause = Pause(1)
    daemon.report.done.set()
    daemon.service.link.become("offline", Unreachable("away"))
    answer = await daemon.ask("sync")
    assert (answer["exit"], answer["paused"], daemon.report.first) == (1, True, False)
    sync.report(answer)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "zonedrive: 2 files (10 bytes) not on the service yet: uploads are paused; run"
        " 'zonedrive resume --account work', or for some files 'zonedrive send PATH'"
    )


async def test_the_status_has_the_remedy_of_a_lost_connection(daemon: Daemon) -> None:
    """The remedy is a part of the reason, and is also given by itself."""
    daemon.service.link.become("offline", Unreachable("away; run 'x'", remedy="check the network"))
    answer = await daemon.ask("status")
    assert answer["reason"] == "away; run 'x'; check the network"
    assert answer["advice"] == "check the network"


async def test_send_needs_paths(daemon: Daemon) -> None:
    """`send` uploads these files first, and does not fail because of a pause."""
    with pytest.raises(ZonedriveError, match="names no paths"):
        await daemon.ask("send")
    daemon.report.pause = Pause(1)
    daemon.report.done.set()
    answer = await daemon.ask("send", paths=["Zone/a.txt"])
    assert (answer["exit"], daemon.report.first, daemon.report.roots) == (0, True, [[7]])
    answer = await daemon.ask("send", paths=["Zone/a.swp"])
    assert answer["stays"] == [{"path": "Zone/a.swp", "error": "stays on this machine"}]


@pytest.mark.parametrize("seconds", [0, -1, 1e9, "30m", True])
async def test_a_wrong_length_of_a_pause_is_refused(daemon: Daemon, seconds: object) -> None:
    with pytest.raises(ZonedriveError, match="the request is not valid"):
        await daemon.ask("pause", seconds=seconds)


async def test_sync_fails_if_files_are_in_lost_found(daemon: Daemon) -> None:
    """A sync of the whole mount reports the files, a sync of a path does not."""
    daemon.report.saved = 2
    daemon.report.done.set()
    answer = await daemon.ask("sync")
    assert (answer["exit"], answer["lost"]) == (1, 2)
    answer = await daemon.ask("sync", paths=["Zone/a.txt"])
    assert (answer["exit"], answer["lost"]) == (0, 0)


async def test_sync_reports_rolled_back_and_pending_changes(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer has both kinds of changes."""
    daemon.report.taken_back = [{"path": "Zone/b", "error": "it is here again"}]
    daemon.report.uploads = [_upload("pending")]
    answer = await daemon.ask("sync", timeout=0)
    assert answer["exit"] == 1
    sync.report(answer)
    said = capsys.readouterr().err
    assert "Zone/b: it is here again" in said
    assert "not on the service yet" in said


async def test_sync_reports_conflict_copies(daemon: Daemon) -> None:
    """An uploaded conflict copy counts as success."""
    daemon.report.conflicted = [
        {"path": "Zone/a (conflict).txt", "original": "Zone/a.txt", "by": "bob@x"},
        {"path": "Zone/deleted there", "original": "Zone/deleted there", "by": ""},
        {"path": "Zone/replaced there", "original": "Zone/replaced there", "by": "bob@x"},
    ]
    daemon.report.done.set()
    answer = await daemon.ask("sync")
    assert (answer["exit"], answer["conflicts"]) == (0, ["Zone/a (conflict).txt"])
    assert answer["anew"] == ["Zone/deleted there"]
    assert answer["replaced"] == ["Zone/replaced there"]


@pytest.mark.parametrize(("state", "code"), [("offline", 4), ("logon-required", 3), ("online", 1)])
async def test_exit_code_of_a_sync_that_times_out(
    daemon: Daemon, autojump_clock: MockClock, state: State, code: int
) -> None:
    """4 if the service is unreachable, 3 without a logon, 1 if it is only slow."""
    daemon.report.uploads = [_upload("pending")]
    daemon.service.link.become(state, Unreachable("it is away"))
    answer = await daemon.ask("sync", timeout=10)
    assert trio.current_time() == 10
    assert answer["exit"] == code
    assert ("it is away" in answer["reason"]) == (state != "online")
    assert daemon.said and daemon.said[0]["left"] == {"files": 1, "changes": 0, "bytes": 4}


@pytest.mark.parametrize(
    ("state", "sent", "timeout", "code"),
    [
        ("uploading", 0, 3, 4),
        ("uploading", 0, 0.5, 1),
        ("uploading", 5, 3, 1),
        ("pending", 0, 3, 1),
    ],
    ids=["silent", "hardly waited", "bytes move", "nothing asked"],
)
async def test_sync_reports_a_silent_service(
    daemon: Daemon, autojump_clock: trio.abc.Clock, state: str, sent: int, timeout: float, code: int
) -> None:
    """4 if the service did not answer, although it counts as online; a running upload is named."""
    upload = _upload(state) | {"sent": 0, "error": "", "last_error": ""}
    daemon.report.uploads = [upload]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_later, upload, sent)
        answer = await daemon.ask("sync", timeout=timeout)
    assert answer["exit"] == code
    assert ("gave no answer" in answer["reason"]) == (code == 4)
    assert bool(answer["reason"]) == (state == "uploading")


async def _later(upload: dict[str, Any], sent: int) -> None:
    await trio.sleep(0.1)
    upload["sent"] = sent


async def test_sync_without_a_timeout_ends_while_the_service_is_unreachable(
    daemon: Daemon, autojump_clock: MockClock
) -> None:
    """A minute offline ends it; short interruptions do not."""
    daemon.report.uploads = [_upload("pending")]
    link = daemon.service.link

    async def come_and_go() -> None:
        for _ in range(3):
            link.become("offline")
            await trio.sleep(AWAY_SECONDS - 1)
            link.become("online")
            await trio.sleep(100)
        link.become("offline")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_and_go)
        answer = await daemon.ask("sync")
    assert answer["exit"] == 4
    assert trio.current_time() == pytest.approx(3 * (AWAY_SECONDS + 99) + AWAY_SECONDS)


async def test_sync_without_a_logon_ends_at_once(daemon: Daemon, autojump_clock: MockClock) -> None:
    """The answer has the whole logon command."""
    daemon.report.uploads = [_upload("pending")]
    daemon.service.link.become("logon-required", NotLoggedOn("the logon has ended"))
    answer = await daemon.ask("sync")
    assert (answer["exit"], answer["reason"]) == (3, "the logon has ended")
    assert answer["remedy"] == ("run 'zonedrive logon https://x --username alice --account work'")
    assert trio.current_time() < 1


@pytest.mark.parametrize("answers", [[False], [True, False]])
async def test_a_logoff_does_not_wait_for_a_logon_that_cannot_be_renewed(
    daemon: Daemon, answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent before the user logs on. A renewal may still be refused during the wait."""
    monkeypatch.setattr(handlers, "GIVE_UP_SECONDS", 0.0)
    daemon.report.uploads = [_upload("pending")]
    daemon.parts.renewal.may_succeed = lambda: answers.pop(0)
    daemon.service.link.become("logon-required", NotLoggedOn("the logon has ended"))
    with trio.fail_after(60):
        answer = await daemon.ask("sync", timeout=3600, give_up=True)
    assert (answer["exit"], answer["left"]["bytes"], answers) == (3, 5, [])


async def test_a_logoff_waits_for_a_logon_that_was_rejected_for_a_moment(
    daemon: Daemon, autojump_clock: MockClock
) -> None:
    """With --discard, changes would be deleted that can be uploaded a moment later."""
    daemon.report.uploads = [_upload("pending")]
    daemon.service.link.become("logon-required", NotLoggedOn("the logon has ended"))

    async def accept() -> None:
        await trio.sleep(handlers.GIVE_UP_SECONDS / 2)
        daemon.service.link.become("online")
        daemon.report.uploads = []
        daemon.report.done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        assert (await daemon.ask("sync", timeout=3600, give_up=True))["exit"] == 0


async def test_a_logoff_waits_for_a_logon_that_may_be_renewed(
    daemon: Daemon, autojump_clock: MockClock
) -> None:
    """A service that does not answer the renewal now may answer the next one."""
    daemon.report.uploads = [_upload("pending")]
    daemon.parts.renewal.may_succeed = lambda: True
    daemon.service.link.become("logon-required", NotLoggedOn("the logon has ended"))
    assert (await daemon.ask("sync", timeout=30, give_up=True))["exit"] == 3
    assert trio.current_time() == 30


@pytest.fixture
def detach(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bool]], None]:
    """Results of the plain unmount attempts."""

    def script(answers: list[bool]) -> None:
        daemon.session.detach = lambda: answers.pop(0)
        monkeypatch.setattr(mountpoint, "users", lambda folder: ["vim (7)"])

    return script


async def test_unmount_waits_for_uploads_first(
    daemon: Daemon, detach: Callable[[list[bool]], None]
) -> None:
    """The mount ends as soon as everything is on the service."""
    detach([])
    daemon.session.detach = daemon.report.done.is_set  # not tried before
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(daemon.ask, "unmount", timeout=1000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            daemon.report.done.set()
    assert daemon.stopped == 1
    assert {"users": ["vim (7)"]} not in daemon.said


@pytest.mark.parametrize("state", ["online", "offline"])
async def test_unmount_waits_until_its_timeout(
    daemon: Daemon, autojump_clock: MockClock, detach: Callable[[list[bool]], None], state: State
) -> None:
    """The wait ends not earlier, however many attempts fail; the answer counts what is left."""
    detach([])
    daemon.report.uploads = [_upload("pending")]
    daemon.service.link.become(state)
    answer = await daemon.ask("unmount", timeout=5 * AWAY_SECONDS)
    assert trio.current_time() == 5 * AWAY_SECONDS
    assert daemon.report.is_patient
    assert answer["left"] == {"files": 1, "changes": 0, "bytes": 5}


async def test_unmount_does_not_wait_for_a_logon(
    daemon: Daemon, detach: Callable[[list[bool]], None]
) -> None:
    """Nothing is sent before the user logs on."""
    detach([True])
    daemon.report.uploads = [_upload("pending")]
    daemon.service.link.become("logon-required")
    with trio.fail_after(60):
        await daemon.ask("unmount", timeout=3600)
    assert daemon.stopped == 1


async def test_unmount_waits_for_programs_that_use_the_mount(
    daemon: Daemon, detach: Callable[[list[bool]], None]
) -> None:
    """Progress lines name the programs."""
    detach([False, False, True])
    daemon.report.done.set()
    await daemon.ask("unmount", timeout=20)
    assert daemon.said == [{"users": ["vim (7)"]}] * 2
    assert daemon.stopped == 1


async def test_unmount_now_does_not_wait(
    daemon: Daemon, detach: Callable[[list[bool]], None]
) -> None:
    """The answer names the programs that used the mount."""
    detach([])
    answer = await daemon.ask("unmount", timeout=0, now=True)
    assert answer["users"] == ["vim (7)"]


@pytest.mark.parametrize("timeout", ["soon", -1, True, [], float("nan")])
async def test_an_invalid_timeout_is_refused(daemon: Daemon, timeout: object) -> None:
    """Invalid values are errors, not endless waits."""
    with pytest.raises(ZonedriveError, match="timeout"):
        await daemon.ask("sync", timeout=timeout)


async def test_deleted_entries_are_restored_by_name_or_id(daemon: Daemon) -> None:
    """If several entries have the name, the error asks for an id."""
    found = (await daemon.ask("trash"))["entries"]
    assert [(one["zone"], one["id"], one["name"]) for one in found] == [
        ("One", "e0", "a"),
        ("One", "e1", "b"),
        ("One", "e2", "b"),
    ]
    answer = await daemon.ask("restore", entries=["a", "e2"])
    assert answer["restored"] == [
        {"path": "shown/name of e0", "left": 0},
        {"path": "shown/name of e2", "left": 0},
    ]
    assert daemon.service.restored == ["e0", "e2"]
    with pytest.raises(ZonedriveError, match="2 entries called 'b' were deleted") as several:
        await daemon.ask("restore", entries=["b"])
    assert several.value.message.count("(in One, 1970-01-0") == 2
    for name in ("c", "One/c", "One/x/a", "x/a"):
        with pytest.raises(NotFound, match="not in the trash") as missing:
            await daemon.ask("restore", entries=[name])
        assert missing.value.remedy == "run 'zonedrive trash --account work'"
    with pytest.raises(NotFound, match="no zone 'Nowhere'") as unknown:
        await daemon.ask("trash", zone="Nowhere")
    assert unknown.value.remedy == "run 'zonedrive zones --account work'"
    assert daemon.service.restored == ["e0", "e2"]
    await daemon.ask("restore", entries=["One/a"])
    assert daemon.service.restored.pop() == "e0"


async def test_a_long_restore_reports_its_progress(
    daemon: Daemon, autojump_clock: MockClock
) -> None:
    """The lines tell the client that the daemon works, and how far it is."""
    daemon.service.slow_s = 60.0
    await daemon.ask("restore", entries=["e0", "e1"])
    finished = [one["finished"] for one in daemon.said if one["total"] == 2]
    assert set(finished) == {0, 1}
    assert len(finished) > 200


async def test_a_path_without_versions_is_named_as_given(daemon: Daemon) -> None:
    """The mount point has no path relative to itself."""
    with pytest.raises(ZonedriveError, match=f"^{FOLDER}: a folder has no versions$"):
        await daemon.ask("versions", path=str(FOLDER))


async def test_a_logon_is_passed_on(daemon: Daemon) -> None:
    """Tasks that wait for a logon continue at once; the answer has the mount's profile."""
    answer = await daemon.ask("logged-on")
    assert answer == {"profile": "published", "mountpoint": str(FOLDER), "notice": ""}
    assert daemon.heard == ["logged on"]


@pytest.mark.parametrize(("before", "after"), [(None, "/etc/a.pem"), ("/etc/a.pem", None)])
async def test_a_logon_with_another_certificate_authority(
    daemon: Daemon, paths: AccountPaths, before: str | None, after: str | None
) -> None:
    """Otherwise the mount stays offline after a successful logon, and nothing says why."""
    account = Account(name="work", base_url="https://x", username="alice", ca_file=before)
    daemon.parts.account, daemon.parts.paths = account, paths
    account.save(paths)
    assert (await daemon.ask("logged-on"))["notice"] == ""
    msgspec.structs.replace(account, ca_file=after).save(paths)
    notice = (await daemon.ask("logged-on"))["notice"]
    assert f"'zonedrive unmount {FOLDER}'" in notice
    assert f"'zonedrive mount {FOLDER} --account work'" in notice


async def test_no_unmount_makes_data_unreadable_unasked(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the data key cannot be stored, all answers say so, and only `now` unmounts."""
    here = LocalData(Backlog(1, 3))
    monkeypatch.setattr("zonedrive.daemon.handlers.only_here", lambda paths: here)
    daemon.data_key.found = StoreError("the key is not stored", remedy="make room")
    assert (await daemon.ask("logged-on"))["notice"] == "the key is not stored; make room"
    assert (await daemon.ask("status"))["notice"] == "the key is not stored; make room"
    with pytest.raises(StoreError) as refused:
        await daemon.ask("unmount", timeout=0)
    assert refused.value.line() == (
        "only this machine has 1 file (3 bytes); the key is not stored; make room"
    )
    assert not daemon.stopped
    answer = await daemon.ask("unmount", now=True)
    assert answer["unreadable"] == "the key is not stored; make room"
    here = LocalData()
    assert "users" in await daemon.ask("unmount", timeout=0)


class ManyZones(Service):
    """Fake service with many zones, each of which answers after 7 s; z3 may be refused."""

    refusal: ZonedriveError | None = None

    async def zones(self) -> list[Zone]:
        return [Zone(f"z{number}", f"Zone {number}", "r") for number in range(32)]

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        await trio.sleep(7)
        if zone_id == "z3" and self.refusal is not None:
            raise self.refusal
        return [(Entry(f"e-{zone_id}", zone_id, "r", "a", False), 0)]


async def test_the_trash_of_many_zones_is_listed_together(autojump_clock: MockClock) -> None:
    """The time does not grow with each zone; a refusal hides one zone, an outage ends the list."""
    service = ManyZones()
    trash = Trash(cast(Any, service), "")
    found = await trash.do("trash", [])
    assert trio.current_time() == pytest.approx(4 * 7)
    assert {each["zone"] for each in found["entries"]} == {f"Zone {n}" for n in range(32)}
    service.refusal = NotFound("no such zone")
    found = await trash.do("trash", [])
    assert (len(found["entries"]), found["unseen"]) == (31, ["Zone 3"])
    service.refusal = Unreachable("no route")
    with pytest.raises(Unreachable, match="no route") as caught:
        await trash.do("trash", [])
    assert caught.value.message == "no route (zone 'Zone 3')"


class EqualIds(Service):
    """Fake service with two zones in which the same ids mean different entries."""

    async def zones(self) -> list[Zone]:
        return [Zone(zone, f"Zone {zone}", "r") for zone in "AB"]

    async def entry(self, zone_id: str, entry_id: str) -> Entry:
        return Entry(entry_id, zone_id, "r", f"folder of {zone_id}", True)

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        folder = Entry("2", zone_id, "r", "drafts", True)
        return [(Entry("1", zone_id, "2", "a", False), 0), (folder, 0)][
            : 2 if zone_id == "A" else 1
        ]

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        self.restored.append(f"{zone_id}/{entry_id}")
        return Entry(entry_id, zone_id, "2", "a", False)


async def test_entry_ids_are_those_of_a_zone() -> None:
    """A path finds the entry of its zone, and each entry is shown in its own folder."""
    service = EqualIds()
    trash = Trash(cast(Any, service), "")
    found = (await trash.do("trash", []))["entries"]
    assert {(one["zone"], one["parent"]) for one in found if one["name"] == "a"} == {
        ("Zone A", "drafts"),
        ("Zone B", "folder of B"),
    }
    paths = ["Zone B/folder of B/a", "Zone A/drafts/a"]
    answer = await trash.do("restore", paths)
    assert service.restored == ["B/1", "A/1"]
    assert [one["path"] for one in answer["restored"]] == paths
