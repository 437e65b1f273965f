"""Notifications on a real session bus: buttons, services that vanish, and buses that hang."""

import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.harness.bus import Bus, Screen
from zonedrive.daemon.notification_client import Button, Desktop, Notification

PATIENCE_SECONDS = 60.0


@pytest.fixture
def screen(bus: Bus) -> Iterator[Screen]:
    """Yield a notification service with buttons."""
    running = Screen(bus)
    yield running
    running.close()


class Clicks:
    """Buttons that record the clicks on them."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[tuple[str, str]](10)

    def button(self, label: str) -> Button:
        """Return a button."""

        async def click(token: str) -> None:
            if label == "Broken":
                raise OSError("no such program")
            await self._sender.send((label, token))

        return Button(label, click)

    async def next(self) -> tuple[str, str]:
        """Wait for the next click: the label and the token."""
        with trio.fail_after(PATIENCE_SECONDS):
            return await self._receiver.receive()


async def test_notifications_are_plain_text(screen: Screen, desktop: Desktop) -> None:
    """A new one replaces the old one, and it can be withdrawn."""
    notification = Notification(desktop)
    assert await notification.show("one", "<b>&")
    assert await notification.show("two", "…\N{RIGHT-TO-LEFT OVERRIDE}")
    assert screen.shown == [("one", "&lt;b&gt;&amp;"), ("two", "…\N{REPLACEMENT CHARACTER}")]
    assert screen.open == {1}
    await notification.withdraw()
    await notification.withdraw()
    assert screen.open == set()


async def test_a_click_runs_the_action_of_its_button(
    bus: Bus, screen: Screen, desktop: Desktop
) -> None:
    """The notification itself is its first button; a failing action affects no other."""
    clicks, notification = Clicks(), Notification(desktop)
    labels = ("Show", "Folder", "Broken")
    assert await notification.show("one", "two", [*map(clicks.button, labels)], "Run: it")
    assert screen.shown == [("one", "two")]
    assert screen.buttons[1].keys() == {*labels}
    assert bus.has(screen.sender)
    screen.click(1, "Broken")
    screen.click(1, "Folder", token="token of the desktop")
    assert await clicks.next() == ("Folder", "token of the desktop")
    screen.click(1)  # long after, in the list of past notifications
    assert await clicks.next() == ("Show", "")
    await notification.show("three", "four", [clicks.button("Other")])
    screen.click(1, "Other")
    assert await clicks.next() == ("Other", "")


async def test_a_click_may_follow_the_reply_at_once(screen: Screen, desktop: Desktop) -> None:
    """The service has sent both before the daemon reads the reply."""
    clicks = Clicks()
    for label in ("one", "two", "three", "four", "five", "six", "seven", "eight"):
        screen.clicked_at_once = label
        assert await Notification(desktop).show("title", "text", [clicks.button(label)])
        assert await clicks.next() == (label, "")


async def test_without_buttons_the_text_has_the_command(bus: Bus, desktop: Desktop) -> None:
    """The text has the command on desktops without buttons or markup."""
    screen = Screen(bus, abilities=["body"])
    try:
        shown = await Notification(desktop).show("one", "a & b.", [Clicks().button("A")], "Run: it")
        assert shown
        assert screen.shown == [("one", "a & b. Run: it")]
        assert screen.buttons == {1: {}}
    finally:
        screen.close()


async def test_invalid_clicks_have_no_effect(screen: Screen, desktop: Desktop) -> None:
    """Clicks on withdrawn or foreign notifications, and on unknown buttons, are ignored."""
    clicks = Clicks()
    gone, there = Notification(desktop), Notification(desktop)
    await gone.show("one", "", [clicks.button("Gone")])
    await there.show("two", "", [clicks.button("There")])
    await gone.withdraw()
    screen.buttons[77] = {"Foreign": "0"}
    screen.buttons[2] |= {"None": "9", "Odd": "-1", "Text": "log on"}
    screen.click(1, "Gone", token="x")
    screen.click(77, "Foreign", token="x")
    for label in ("None", "Odd", "Text"):
        screen.click(2, label, token="x")
    screen.click(2, "There")
    assert await clicks.next() == ("There", "")


async def test_another_service_has_its_own_notifications(bus: Bus, desktop: Desktop) -> None:
    """After a restart of the desktop, the number of an earlier notification is not used."""
    clicks, first, second = Clicks(), Notification(desktop), Notification(desktop)
    screen = Screen(bus)
    await first.show("one", "", [clicks.button("First")])
    screen.close()
    assert not await second.show("nobody", "")
    screen = Screen(bus)
    try:
        screen.buttons[1] = {"First": "0"}  # of another program now
        screen.click(1, "First")
        await second.show("two", "", [clicks.button("Second")])
        screen.click(1, "Second")
        assert await clicks.next() == ("Second", "")
        assert await first.show("three", "")
        assert screen.open == {2}
    finally:
        screen.close()


async def test_another_bus_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: Bus, desktop: Desktop
) -> None:
    """A daemon outlives the session in which it was started."""
    notification = Notification(desktop)
    screen = Screen(bus)
    assert await notification.show("one", "")
    screen.close()
    bus.close()
    assert not await notification.show("two", "")
    other = Bus(tmp_path, name="other")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", other.address)
    screen = Screen(other)
    try:
        assert await notification.show("three", "")
        assert screen.shown == [("three", "")]
    finally:
        screen.close()
        other.close()


@pytest.mark.parametrize("address", [None, "", "nonsense", "tcp:host=127.0.0.1", "unix:path=/no"])
async def test_without_a_desktop_no_notification_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, desktop: Desktop
) -> None:
    """There is no desktop on a server, in a container, or with a wrong bus address."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    notification = Notification(desktop)
    assert not await notification.show("one", "two")
    await notification.withdraw()


# The library leaves its socket to the garbage collector when it is cancelled while connecting.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_hanging_desktop_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, desktop: Desktop
) -> None:
    """The call ends after a few seconds."""
    monkeypatch.setattr("zonedrive.daemon.notification_client.SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bus"))
        listening.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
        assert not await Notification(desktop).show("one", "two")
    gc.collect()  # here, where that socket is no failure
