"""States in a file manager: requested in batches, kept up to date, never waited for."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.desktop.fake_daemon import MOUNT, SYNCED, FakeDaemon, StepLoop
from zonedrive.desktop import client as client_module
from zonedrive.desktop import mounts
from zonedrive.desktop.client import Client, Entry

TABLE = (
    "31 1 0:27 / / rw shared:1 - ext4 /dev/sda1 rw\n"
    "98 31 0:52 / /home/me/My\\040Zones rw,nosuid shared:9 - fuse.zonedrive https://s.example rw\n"
    "99 31 0:53 / /home/me/Other rw - fuse.sshfs me@host: rw\n"
)
FILE = f"{MOUNT}/Zone/a.txt"


class Desk:
    """Client of one daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = StepLoop()
        self.changed: list[str] = []
        self.daemon = FakeDaemon(folder / "zonedrive" / "default.sock")
        self.client = Client(self.loop, self.changed.extend)

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass until all events are handled."""
        self.loop.now += seconds
        while self.loop.step() | self.daemon.step():
            pass

    def ask(self, *paths: str) -> None:
        """Have the file manager show these paths."""
        for path in paths:
            self.client.entry(path)
        self.settle(1)

    def batches(self) -> list[int]:
        """Return the number of paths in each question."""
        asked = (each for each in self.daemon.requests if each["command"] == "states")
        return [len(each["paths"]) for each in asked]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Yield a client that is connected to a daemon."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    (tmp_path / "zonedrive").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(mounts, "MOUNTINFO", table)
    desk = Desk(tmp_path)
    desk.settle()
    yield desk
    desk.client.close()
    desk.daemon.die()


def test_mounts_of_the_table() -> None:
    """Only mounts of zonedrive count; escaped characters are decoded."""
    assert mounts.mount_points(TABLE.encode()) == [MOUNT]
    other = b"44 27 0:41 / /x\ry rw - fuse.zonedrive z rw\n"
    assert mounts.mount_points(other) == ["/x\ry"]


def test_paths_elsewhere_are_not_asked_for(desk: Desk) -> None:
    """A path outside of all mounts, also one with a similar name, has no state."""
    desk.ask("/home/me/a.txt", "/home/me/Other/a.txt", f"{MOUNT} 2/a.txt")
    assert desk.batches() == []
    assert not desk.client.is_inside(f"{MOUNT} 2")
    assert desk.client.is_inside(MOUNT)
    assert desk.client.is_inside(FILE)


def test_a_folder_is_asked_for_in_few_questions(desk: Desk) -> None:
    """1,000 entries are two questions; the answers are remembered."""
    paths = [f"{MOUNT}/Zone/{number}.txt" for number in range(1000)]
    desk.daemon.states = dict.fromkeys(paths, SYNCED)
    desk.ask(*paths)
    assert desk.batches() == [500, 500]
    assert sorted(set(desk.changed) - {MOUNT}) == sorted(paths)
    assert {desk.client.entry(path) for path in paths} == {Entry("synced", False, False)}
    desk.settle(1)
    assert len(desk.batches()) == 2


@pytest.mark.parametrize(("name", "size"), [("x" * 2000, 2000), ("ж" * 120, 720)])
def test_long_paths_fit_into_the_socket(desk: Desk, name: str, size: int) -> None:
    """The size of a question is that of its bytes: a Cyrillic letter takes six of them."""
    paths = [f"{MOUNT}/{name}/{number}" for number in range(500)]
    desk.daemon.states = dict.fromkeys(paths, SYNCED)
    desk.ask(*paths)
    assert sum(desk.batches()) == 500
    assert max(desk.batches()) <= client_module.BATCH_BYTES // size + 1
    assert all(desk.client.entry(path) for path in paths)


def test_a_daemon_that_ends_at_a_question_does_not_disturb_the_next_one(desk: Desk) -> None:
    """A question that cannot be sent removes the daemon, without an error in the file manager."""
    desk.client.entry(FILE)
    desk.daemon.die()
    desk.loop.now += 1
    assert desk.client.soon([FILE], 0) == {}
    assert not desk.client.daemons()


def test_a_change_during_a_question_is_not_lost(desk: Desk) -> None:
    """A report that arrives before an older answer wins: the state is requested again."""
    pending = SYNCED | {"state": "pending"}
    desk.daemon.states[FILE] = pending
    for line in ({"changed": {"Zone/a.txt": SYNCED}}, {"everything": True}):
        desk.daemon.report(changed={"Zone/a.txt": None})  # no longer known
        desk.settle()
        desk.daemon.states[FILE] = pending
        desk.client.entry(FILE)
        desk.loop.now += 1
        desk.loop.step()
        while desk.daemon.step():  # the answer waits, unread
            pass
        desk.daemon.states[FILE] = SYNCED
        desk.daemon.report(**line)
        desk.settle()
        entry = desk.client.entry(FILE)
        assert entry is not None
        assert entry.state == "synced"


def test_changes_are_reported_by_the_daemon(desk: Desk) -> None:
    """A reported change of a shown entry is displayed; other changes are ignored."""
    desk.daemon.states[FILE] = SYNCED
    desk.ask(FILE)
    desk.changed.clear()
    pending = SYNCED | {"state": "pending"}
    desk.daemon.report(changed={"Zone/a.txt": pending, "Zone/other.txt": pending})
    desk.settle()
    assert set(desk.changed) - {MOUNT} == {FILE}
    entry = desk.client.entry(FILE)
    assert entry is not None
    assert entry.state == "pending"
    assert desk.batches() == [1]


def test_a_pause_is_reported_by_the_daemon(desk: Desk) -> None:
    """A daemon of an earlier version does not report a pause, and counts as not paused."""
    (daemon,) = desk.client.daemons()
    assert not daemon.paused
    desk.daemon.report(paused=True)
    desk.settle()
    assert daemon.paused
    desk.daemon.report(paused=False)
    desk.settle()
    assert not daemon.paused


def test_all_states_are_requested_again(desk: Desk) -> None:
    """After a pin the client requests the states of all shown entries."""
    desk.daemon.states[FILE] = SYNCED
    desk.ask(FILE)
    desk.daemon.states[FILE] = SYNCED | {"kept": True}
    desk.changed.clear()
    desk.daemon.report(everything=True)
    desk.settle()
    assert set(desk.changed) - {MOUNT} == {FILE}
    entry = desk.client.entry(FILE)
    assert entry is not None
    assert entry.kept


def test_a_dead_daemon_leaves_no_states(desk: Desk) -> None:
    """The states are removed at once; a new daemon is found, and the states are requested again."""
    desk.daemon.states[FILE] = SYNCED
    desk.ask(FILE)
    desk.daemon.die()
    desk.changed.clear()
    desk.settle()
    assert set(desk.changed) - {MOUNT} == {FILE}
    assert desk.client.entry(FILE) is None
    assert desk.client.daemon(FILE) is None
    (desk.folder / "zonedrive" / "default.sock").unlink()
    desk.daemon = FakeDaemon(desk.folder / "zonedrive" / "default.sock")
    desk.daemon.states[FILE] = SYNCED
    for _ in range(4):
        desk.settle(client_module.LONGEST_RETRY_SECONDS)
    assert desk.client.entry(FILE) is not None


def test_a_daemon_that_ends_at_the_connection_is_replaced(desk: Desk) -> None:
    """The client connects to the successor of a daemon that ended before the first request."""
    first = desk.daemon

    class EndingLoop(StepLoop):
        """Loop of a client that has just opened both connections when the first daemon ends."""

        def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
            unwatch = super().watch(fd, urgent, callback)
            if len(self._watched) == 3:  # with the mount table
                first.die()
            return unwatch

    desk.client.close()
    desk.loop = EndingLoop()
    desk.client = Client(desk.loop, desk.changed.extend)
    (desk.folder / "zonedrive" / "default.sock").unlink()
    desk.daemon = FakeDaemon(desk.folder / "zonedrive" / "default.sock")
    desk.settle(client_module.LONGEST_RETRY_SECONDS)
    assert desk.client.daemon(FILE) is not None


def test_the_states_of_a_silent_daemon_are_removed(desk: Desk) -> None:
    """The states of a daemon that does not answer in time are removed."""
    desk.daemon.states[FILE] = SYNCED
    desk.ask(FILE)
    desk.daemon.answers = False
    desk.ask(f"{MOUNT}/Zone/b.txt")
    assert desk.client.entry(FILE) is not None
    desk.settle(client_module.ANSWER_SECONDS + 1)
    assert desk.client.entry(FILE) is None
    assert not desk.client.daemons()


def test_a_daemon_that_never_answers(desk: Desk) -> None:
    """A daemon that never reported its mount point is disconnected; no path counts as changed."""
    desk.daemon.answers = False
    desk.client.close()
    changed: list[str] = []
    client = Client(desk.loop, changed.extend)
    desk.settle()
    desk.settle(client_module.ANSWER_SECONDS + 1)
    assert changed == []
    client.close()


def test_a_menu_waits_only_a_moment(desk: Desk) -> None:
    """With a silent daemon the wait ends after the given time, and the menu has no states."""
    desk.daemon.answers = False
    begun = time.monotonic()
    assert desk.client.soon([FILE], 0.05) == {}
    assert 0.04 < time.monotonic() - begun < 5


def test_an_older_daemon_is_left_alone(desk: Desk) -> None:
    """A daemon that does not know the command is not asked again and again."""
    desk.daemon.report(error="there is no command 'watch'", done=True)
    desk.settle()
    assert not desk.client.daemons()
    for _ in range(20):
        desk.settle(1)
    watches = [each for each in desk.daemon.requests if each["command"] == "watch"]
    assert len(watches) < 8


def test_nothing_runs_without_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mount there is no timer and no connection."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE.splitlines()[0] + "\n")
    monkeypatch.setattr(mounts, "MOUNTINFO", table)
    loop = StepLoop()
    client = Client(loop, lambda paths: None)
    assert loop.is_idle
    client.close()


def test_showing_icons_costs_little(desk: Desk) -> None:
    """A lookup takes microseconds. The margin is generous, because the machine may be busy."""
    paths = [f"{MOUNT}/Zone/{number}.txt" for number in range(1000)]
    desk.daemon.answers = False
    spent = []
    for _ in range(5):
        begun = time.process_time()
        for path in paths:
            desk.client.entry(path)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.05


def test_a_request_is_answered_once(desk: Desk) -> None:
    """The answer comes without waiting; a silent, a dying and a dead daemon are an empty answer."""
    desk.ask(FILE)
    daemon = desk.client.daemon(FILE)
    assert daemon is not None
    answers: list[dict[str, object]] = []
    desk.daemon.answer = {"link": "https://zones.example/1", "done": True}
    desk.client.request(daemon, {"command": "link", "path": FILE}, answers.append)
    assert answers == []
    desk.settle()
    desk.settle(client_module.ANSWER_SECONDS + 1)
    assert answers == [desk.daemon.answer]
    desk.daemon.answers = False
    desk.client.request(daemon, {"command": "link", "path": FILE}, answers.append)
    desk.settle()
    desk.settle(client_module.ANSWER_SECONDS + 1)
    assert answers[1:] == [{}]
    desk.client.request(daemon, {"command": "link", "path": FILE}, answers.append)
    desk.daemon.die()
    desk.settle()
    assert answers[1:] == [{}, {}]
    desk.client.request(daemon, {"command": "link", "path": FILE}, answers.append)
    assert answers[1:] == [{}, {}, {}]


def test_a_mount_of_another_user_does_not_delay_the_next_connection(desk: Desk) -> None:
    """The emblems are back soon after a daemon was silent, although the other mount has none."""
    other = "97 31 0:59 / /home/you/Zones rw - fuse.zonedrive https://s.example rw\n"
    mounts.MOUNTINFO.write_text(TABLE + other)
    desk.client.look()
    for _ in range(10):
        desk.settle(client_module.LONGEST_RETRY_SECONDS)
    desk.daemon.answers = False
    desk.ask(FILE)
    desk.settle(client_module.ANSWER_SECONDS)
    assert not desk.client.daemons()
    desk.daemon.answers = True
    desk.settle(client_module.FIRST_RETRY_SECONDS)
    assert desk.client.daemons()
