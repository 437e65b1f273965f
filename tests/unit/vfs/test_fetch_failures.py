"""Failed downloads are logged, and reported to the user while they are recent."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.state.disk import Disk, zone_of
from zonedrive.errors import BadAnswer, Forbidden, Interrupted, RemoteError, Unreachable
from zonedrive.state.inode import Kind
from zonedrive.vfs.fetch_failures import MOST, QUIET_S, REMEMBERED_S, FetchFailures


class Watch:
    """Failures in a zone with some files, on a clock that stands still."""

    def __init__(self, disk: Disk) -> None:
        self.core = disk.start()
        zone, self.seconds = zone_of(self.core), 1000.0
        with self.core.transaction():
            self.inos = [
                self.core.inodes.add(
                    zone.ino, f"{n}.txt", Kind.FILE, zone="z", remote_id=f"{n}", size=5
                ).ino
                for n in range(MOST + 1)
            ]
        self.link = SimpleNamespace(state="online")
        self.failures = FetchFailures(
            self.core.inodes, self.core.cache, cast(Any, self.link), lambda: self.seconds
        )

    def fail(self, number: int, error: RemoteError | None) -> None:
        """Report the end of a download, with an error or with the bytes."""
        self.core.cache.fetched.notify(self.inos[number], error)


@pytest.fixture
def watch(disk: Disk, caplog: pytest.LogCaptureFixture) -> Watch:
    """Return a watch without failures."""
    caplog.set_level(logging.INFO)
    return Watch(disk)


CUT = Interrupted("reading a file: the connection broke")


def test_each_failure_is_logged_once_in_a_while(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each file has one line in the log within a period, however often and for whatever reason
    it fails."""

    def lines() -> list[str]:
        found = [each.getMessage() for each in caplog.records]
        caplog.clear()
        return found

    for _ in range(5):
        watch.fail(0, CUT)
        watch.fail(0, BadAnswer("too short"))
        watch.fail(0, None)
        watch.seconds += 1
    assert lines() == [f"inode {watch.inos[0]}: its content could not be fetched: {CUT}"]
    watch.fail(1, CUT)
    assert len(lines()) == 1
    watch.seconds += QUIET_S
    watch.fail(1, CUT)
    assert len(lines()) == 1


def test_recent_failures_are_in_the_notice(watch: Watch) -> None:
    """The notice has the last failure with its reason, and the number of others."""
    assert watch.failures.notice() == ""
    watch.fail(0, CUT)
    assert watch.failures.notice() == f"Zone/0.txt could not be fetched recently: {CUT}"
    watch.fail(1, BadAnswer("too short"))
    told = "Zone/1.txt could not be fetched recently (and 1 more file as well): too short"
    assert watch.failures.notice() == told
    watch.seconds += REMEMBERED_S
    assert watch.failures.notice() == ""


def test_files_that_were_read_meanwhile_are_not_reported(watch: Watch) -> None:
    """A file that was read meanwhile, written anew or deleted is not reported."""
    core = watch.core
    for number in range(5):
        watch.fail(number, CUT)
    watch.fail(3, None)  # a part of it was read
    core.cache.put(watch.inos[0], core.inodes.get(watch.inos[0]).revision, b"bytes")
    with core.transaction():
        core.inodes.unlink(core.inodes.get(watch.inos[1]))
        core.inodes.update(core.inodes.get(watch.inos[4]), generation=1)
    assert [inode.ino for inode, _ in watch.failures.recent()] == [watch.inos[2]]


def test_failures_with_a_known_reason_are_not_reported(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the service is unreachable failures are not recorded; a refusal is only in the log."""
    watch.link.state = "offline"
    watch.fail(0, Unreachable("away"))
    assert not caplog.records
    watch.link.state = "online"
    watch.fail(1, Forbidden("your rights do not allow it"))
    assert len(caplog.records) == 1
    assert watch.failures.recent() == []


def test_only_so_many_are_remembered(watch: Watch) -> None:
    """The number of recorded failures is limited, so that memory does not grow."""
    for number in range(MOST + 1):
        watch.fail(number, CUT)
    assert len(watch.failures.recent()) == MOST
