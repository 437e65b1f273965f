"""Status line for a service manager: updated after changes, otherwise silent."""

from typing import Any, cast

import trio
from trio.testing import MockClock

from zonedrive.daemon.service_manager import Notifier, StatusLine
from zonedrive.errors import NotLoggedOn, Unreachable
from zonedrive.remote.connectivity import Connectivity
from zonedrive.views.status_report import StatusReport

COMMAND = "zonedrive logon https://zones.example --username alice"
DONE = "everything is on the service"


class Manager:
    """Fake service manager that records the status lines."""

    def __init__(self, *, has_manager: bool = True) -> None:
        self.has_manager = has_manager
        self.lines: list[str] = []

    def status(self, line: str) -> None:
        """Record a line."""
        self.lines.append(line)


class Outbox:
    """Fake report with pending work."""

    def __init__(self) -> None:
        self.changed = trio.Event()
        self.now: dict[str, Any] = dict.fromkeys(
            ("files", "changes", "bytes", "sent", "uploading", "failed", "paused"), 0
        )
        self.looks = 0

    def work(self) -> dict[str, Any]:
        """Return the counts as a report does."""
        self.looks += 1
        return self.now

    def lost(self) -> int:
        """Return the number of lost files."""
        return int(self.now.get("lost", 0))

    def become(self, **numbers: object) -> None:
        """Set other counts."""
        self.now = self.now | numbers
        self.changed.set()
        self.changed = trio.Event()


class Watched:
    """Status line over fake components."""

    def __init__(self, *, has_manager: bool = True) -> None:
        self.manager, self.link, self.outbox = (
            Manager(has_manager=has_manager),
            Connectivity(),
            Outbox(),
        )
        self.bulletin = StatusLine(
            cast(Notifier, self.manager),
            self.link,
            cast(StatusReport, self.outbox),
            lambda: COMMAND,
        )


async def test_uploads_and_the_state_are_in_the_line(autojump_clock: MockClock) -> None:
    """Pending and sent amounts, failures, connection state and the logon command."""
    mount = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.bulletin.run)
        await trio.sleep(5)
        mount.outbox.become(files=3, bytes=3 << 20, uploading=2)
        await trio.sleep(5)
        mount.outbox.now = mount.outbox.now | {"sent": 1 << 20}  # progress alone is no change
        await trio.sleep(5)
        mount.outbox.become(files=1, bytes=4, sent=0, uploading=0, failed=1, causes={"refused": 1})
        await trio.sleep(5)
        mount.link.note_failure(Unreachable("no route to host"))
        mount.outbox.become()  # a change of the connection is one of the outbox
        await trio.sleep(5)
        mount.link.note_failure(NotLoggedOn("the session has ended"))
        mount.outbox.become(files=0, failed=0)
        await trio.sleep(5)
        mount.link.note_answer()
        mount.outbox.become()
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert mount.manager.lines == [
        f"online; {DONE}",
        "online; 3 files to upload, 0 bytes of 3.0 MiB, 2 uploading",
        "online; 3 files to upload, 1.0 MiB of 3.0 MiB, 2 uploading",
        "online; 1 file to upload, 0 bytes of 4 bytes, 1 refused by the service, see zonedrive"
        " status",
        "offline (no route to host); 1 file to upload, 0 bytes of 4 bytes, 1 refused by the"
        " service, see zonedrive status",
        f"logon required, run: {COMMAND}; {DONE}",
        f"online; {DONE}",
    ]


async def test_an_idle_mount_computes_no_line(autojump_clock: MockClock) -> None:
    """Without a change, the report is not read."""
    mount = Watched()
    with trio.move_on_after(86_400):
        await mount.bulletin.run()
    assert len(mount.manager.lines) == 1
    assert mount.outbox.looks < 5


async def test_without_a_manager_the_report_is_not_read() -> None:
    """Without a service manager, the status line is not computed."""
    mount = Watched(has_manager=False)
    await mount.bulletin.run()
    assert mount.outbox.looks == 0


async def test_the_last_line_has_the_remaining_changes() -> None:
    """The service manager shows the line after the stop."""
    mount = Watched()
    assert mount.bulletin.end() == f"unmounted; {DONE}"
    mount.outbox.become(files=2, bytes=2048)
    assert mount.bulletin.end() == (
        "unmounted; 2 files (2.0 KiB) are not on the service yet; kept here, uploads continue at"
        " the next mount"
    )


async def test_changes_without_content_are_counted_separately() -> None:
    """Removals, renames and new folders are not files to upload."""
    mount = Watched()
    mount.outbox.become(files=3, changes=2, bytes=2048)
    assert mount.bulletin.line() == (
        "online; 1 file to upload, 0 bytes of 2.0 KiB, 2 changes to send (new folders, renames,"
        " removals)"
    )
    mount.outbox.become(files=1, changes=1, bytes=0)
    assert "file" not in mount.bulletin.line()
    assert "file" not in mount.bulletin.end()


async def test_a_pause_is_in_the_line() -> None:
    """The last line names the pause, too, because the next mount sends nothing either."""
    mount = Watched()
    mount.outbox.become(paused=True)
    assert mount.bulletin.line() == f"online, uploads are paused; {DONE}"
    mount.outbox.become(files=1, bytes=2048)
    assert mount.bulletin.line() == (
        "online, uploads are paused; 1 file to upload, 0 bytes of 2.0 KiB"
    )
    assert mount.bulletin.end() == (
        "unmounted; 1 file (2.0 KiB) is not on the service yet; kept here, uploads are paused"
    )


async def test_lost_files_are_in_the_line() -> None:
    """The lost files are named during the mount, and in the last line."""
    mount = Watched()
    mount.outbox.become(lost=2)
    said = "2 files in lost+found are only on this machine"
    assert mount.bulletin.line() == f"online; {said}"
    assert mount.bulletin.end() == f"unmounted; {said}"
