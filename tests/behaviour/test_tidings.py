"""Notifications of a mount to the desktop, and its inhibitor of a shutdown."""

from collections.abc import Iterator

import pytest

from tests.crash import former
from tests.harness.bus import Bus, Logind, Screen
from tests.harness.machine import Mounted
from tests.harness.planting import Plant
from tests.harness.waiting import eventually

BY_BOB = "was also changed by bob@acme.example"

# Uploads that follow each other within some seconds are told of together: the test says when that
# time is over, because a machine may stand still for longer between two of them.
UNTIL_TOLD = """
def first():
    from types import SimpleNamespace
    from zonedrive.daemon import notifications

    async def calm(_seconds):
        await trio.sleep(0.02)
        while not FILE.with_name("calm").exists():
            await trio.sleep(0.02)

    notifications.GATHER_SECONDS = 600.0
    notifications.trio = SimpleNamespace(**{**vars(trio), "sleep": calm})
"""


@pytest.fixture
def bus(mounted: Mounted) -> Iterator[Bus]:
    """Yield a bus for the mount that is both session bus and system bus."""
    folder = mounted.machine.folder / "bus"
    folder.mkdir()
    running = Bus(folder)
    for kind in ("SESSION", "SYSTEM"):
        mounted.machine.environment[f"DBUS_{kind}_BUS_ADDRESS"] = running.address
    mounted.restart()
    assert (mounted.root / "notes.txt").read_bytes()
    yield running
    mounted.unmount("--now")
    running.close()


@pytest.fixture
def screen(bus: Bus) -> Iterator[Screen]:
    """Yield a desktop."""
    running = Screen(bus)
    yield running
    running.close()


@pytest.mark.mount("settle=600")
def test_refused_uploads_are_one_notification(mounted: Mounted, screen: Screen) -> None:
    """The notification of many files is withdrawn when they have arrived."""
    mounted.allow("refused")
    mounted.unmount()
    Plant(mounted.machine, UNTIL_TOLD)
    mounted.mount()
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        for number in range(20):
            (mounted.root / f"{number}.txt").write_bytes(b"x")
        assert mounted.machine.run("sync", "--timeout", "60").returncode == 1
        assert not screen.shown
        (mounted.machine.folder / "site" / "calm").touch()
        eventually(lambda: screen.shown, what="it is told")
    ((title, text),) = screen.shown
    assert title == "20 files could not be uploaded"
    assert "Your changes are safe on this computer." in text
    assert screen.buttons[1].keys() == {"Open window", "Open folder"}
    mounted.sync()
    eventually(lambda: not screen.open, what="it is taken away")


def test_a_conflict_without_a_desktop_is_notified_at_the_next_start(
    mounted: Mounted, bus: Bus
) -> None:
    """A conflict without a desktop is notified once at the next start.

    Conflicts from before an upgrade, which were not recorded, are not notified.
    """
    mounted.allow("a conflict copy")
    clash(mounted, "notes.txt")
    mounted.unmount()
    former.make_fourth(mounted.machine.state)
    mounted.mount()
    clash(mounted, "big.bin")
    mounted.unmount()
    screen = Screen(bus)
    try:
        mounted.mount()
        eventually(lambda: screen.shown, what="the conflict is told")
        ((title, text),) = screen.shown
        assert (title, "big (conflict, " in text) == (f"big.bin {BY_BOB}", True)
        mounted.restart()
        clash(mounted, "docs/2026/q1.csv")
        eventually(lambda: len(screen.shown) == 2, what="the next one is told")
        title, text = screen.shown[1]
        assert (title, "q1 (conflict, " in text) == (f"q1.csv {BY_BOB}", True)
    finally:
        screen.close()


def clash(mounted: Mounted, name: str) -> None:
    """Change a file as Bob and as Alice at the same time."""
    assert (mounted.root / name).read_bytes()
    with (mounted.root / name).open("ab", buffering=0) as file:
        file.write(b"mine\n")
        mounted.zone.write(name, b"by bob\n")
    mounted.sync()


@pytest.mark.mount("settle=600")
def test_a_shutdown_waits_for_uploads(mounted: Mounted, bus: Bus) -> None:
    """The inhibitor names the amount; then uploads are tried at once, and the shutdown may
    continue."""
    logind = Logind(bus, delay_seconds=300)  # longer than an upload takes on any machine
    try:
        (mounted.root / "late.txt").write_bytes(b"just in time\n")
        eventually(lambda: set(logind.held()) == {"delay", "block"}, what="it is held up")
        assert logind.held()["block"] == "1 file (13 bytes) is not on the service yet"
        logind.announce("PrepareForShutdown", True)
        eventually(lambda: not logind.held(), what="the machine may go")
        assert mounted.zone.read("late.txt") == b"just in time\n"
        logind.announce("PrepareForShutdown", False)
        logind.announce("PrepareForSleep", True)
        logind.announce("PrepareForSleep", False)
        eventually(
            lambda: "resumed after a suspend" in mounted.log(), what="it has heard of the sleep"
        )
        assert (mounted.root / "big.bin").read_bytes()
        assert {what for what, _, _ in logind.taken} == {"shutdown"}
    finally:
        logind.close()
