"""Client of the desktop's notification service, and of other services on the session bus.

This module does not depend on the texts of notifications. See the Desktop Notifications
Specification.

The connection is opened for the first call and stays open, because GNOME removes the notifications
of a closed connection, and the service reports a click only to an open connection.

INVARIANT: this module raises no error of the bus or of a service. If there is no session, bus or
notification service, nothing is shown.
INVARIANT: only a click on a notification that is shown now has an effect. A click on a withdrawn
notification, or on a notification of an earlier service process, has no effect.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import trio
from jeepney import (
    DBusAddress,
    HeaderFields,
    MatchRule,
    Message,
    MessageType,
    Properties,
    message_bus,
    new_method_call,
)
from jeepney.io.trio import DBusConnection, open_dbus_connection

from zonedrive.logon.session_bus import session_bus
from zonedrive.translation import translated

log = logging.getLogger(__name__)

SECONDS = 5.0  # timeout in seconds of a call to the desktop

NORMAL, URGENT = 1, 2
UNTIL_CLOSED = 0  # the notification stays until the user closes it
NAME = "org.freedesktop.Notifications"
NOTIFICATIONS = DBusAddress("/org/freedesktop/Notifications", bus_name=NAME, interface=NAME)
FILE_MANAGER = DBusAddress(
    "/org/freedesktop/FileManager1",
    bus_name="org.freedesktop.FileManager1",
    interface="org.freedesktop.FileManager1",
)
SERVICE_MANAGER = DBusAddress(
    "/org/freedesktop/systemd1",
    bus_name="org.freedesktop.systemd1",
    interface="org.freedesktop.systemd1.Manager",
)
OWNER_CHANGED = MatchRule(
    type="signal", sender=message_bus.bus_name, interface=message_bus.interface,
    member="NameOwnerChanged",
)  # fmt: skip
OWNER_CHANGED.add_arg_condition(0, NAME)
SIGNAL_OF_SERVICE = MatchRule(type="signal", interface=NAME, path=NOTIFICATIONS.object_path)
# The bus resolves the name of the sender; a message has only its id.
FROM_SERVICE = MatchRule(type="signal", sender=NAME, interface=NAME, path=NOTIFICATIONS.object_path)

Click = Callable[[str], Awaitable[object]]
"""Action of a button; the argument is the activation token of the desktop, or ""."""


class Button(NamedTuple):
    """Button of a notification."""

    label: str
    click: Click


class _Reply:
    """Reply to one call; `message` stays None if the connection ends before the reply arrives."""

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.taken = trio.Event()  # set when the caller has the reply, or no longer waits for it
        self.message: Message | None = None


class Desktop:
    """Connection of one mount to the services of the desktop."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._connecting = trio.Lock()
        self._bus: DBusConnection | None = None
        self._replies: dict[int, _Reply] = {}  # by serial number
        self._shown: dict[int, Notification] = {}  # by the number that the service assigned
        self._tokens: dict[int, str] = {}  # activation token for the next click, by the same number

    async def run(self) -> None:
        """Keep the connection open and run the actions of clicked buttons, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def show(self, notification: "Notification", words: tuple[object, ...]) -> int:
        """Show a notification, with `words` as the arguments of the method Notify.

        Return the number of the notification, or 0 if no notification service accepted it.
        """
        answer = await self._call(NOTIFICATIONS, "Notify", "susssasa{sv}i", words)
        if not answer:
            return 0
        self._shown[answer[0]] = notification
        return int(answer[0])

    async def close(self, number: int) -> None:
        """Remove the notification with this number from the screen."""
        self._shown.pop(number, None)
        await self._call(NOTIFICATIONS, "CloseNotification", "u", (number,))

    async def abilities(self) -> Sequence[str]:
        """Return the capabilities of the notification service, such as `actions`.

        The result is empty if there is no service.
        """
        answer = await self._call(NOTIFICATIONS, "GetCapabilities")
        return answer[0] if answer else ()

    async def select_files(self, uris: Sequence[str], token: str) -> bool:
        """Select files in the file manager; return False if no file manager can do that.

        `token` is the activation token of a click, or "".
        """
        answer = await self._call(FILE_MANAGER, "ShowItems", "ass", (list(uris), token))
        return answer is not None

    async def session_environment(self) -> dict[str, str]:
        """Return the environment of the user's service manager, or {} if there is none."""
        answer = await self._answer(Properties(SERVICE_MANAGER).get("Environment"))
        pairs = answer[0][1] if answer else ()
        return dict(pair.split("=", 1) for pair in pairs)

    async def _call(
        self, address: DBusAddress, method: str, types: str = "", words: tuple[object, ...] = ()
    ) -> tuple[Any, ...] | None:
        return await self._answer(new_method_call(address, method, types or None, words))

    async def _answer(self, call: Message) -> tuple[Any, ...] | None:
        """Send `call`, and return the body of its reply.

        Return None if the reply is an error or does not arrive within SECONDS.
        """
        with trio.move_on_after(SECONDS):
            try:
                bus = await self._connected()
                reply = await self._ask(bus, call) if bus is not None else None
            except Exception as wrong:
                # An error of the bus must not affect the mount.
                log.debug("the desktop cannot be reached: %s", type(wrong).__name__)
                return None
            if reply is not None and reply.header.message_type is MessageType.method_return:
                body: tuple[Any, ...] = reply.body
                return body
        return None

    # ---- the connection ----

    async def _connected(self) -> DBusConnection | None:
        async with self._connecting:
            if self._bus is None and self._nursery is not None:
                address = session_bus()
                if address is not None:
                    await self._nursery.start(self._hold, address)
            return self._bus

    async def _hold(self, address: str, task_status: trio.TaskStatus[None]) -> None:
        """Open a connection to the session bus, and handle messages until the connection ends."""
        try:
            async with await open_dbus_connection(address) as bus, trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, bus)
                for rule in (OWNER_CHANGED, FROM_SERVICE):
                    await self._ask(bus, message_bus.AddMatch(rule))
                self._bus = bus
                task_status.started()
        except Exception as wrong:
            log.debug("the session bus cannot be reached: %s", type(wrong).__name__)
        finally:
            self._bus = None
            self._forget()
            for reply in self._replies.values():
                reply.arrived.set()

    async def _ask(self, bus: DBusConnection, call: Message) -> Message | None:
        serial = next(bus.outgoing_serial)
        reply = self._replies[serial] = _Reply()
        try:
            await bus.send(call, serial=serial)
            await reply.arrived.wait()
        finally:
            reply.taken.set()
            del self._replies[serial]
        return reply.message

    async def _receive(self, bus: DBusConnection) -> None:
        while True:
            message = await bus.receive()
            if message.header.message_type is MessageType.signal:
                self._handle_signal(message)
                continue
            serial = message.header.fields.get(HeaderFields.reply_serial)
            reply = self._replies.get(serial) if serial is not None else None
            if reply is not None:
                reply.message = message
                reply.arrived.set()
                await reply.taken.wait()  # the next message may be a click on what was just shown

    def _handle_signal(self, message: Message) -> None:
        if OWNER_CHANGED.matches(message):
            self._forget()  # another service starts its own numbers
            return
        if not SIGNAL_OF_SERVICE.matches(message):
            return
        match message.header.fields.get(HeaderFields.member), message.body:
            case "ActivationToken", (int(number), str(token)):
                if number in self._shown:
                    self._tokens[number] = token
            case "ActionInvoked", (int(number), str(key)):
                token = self._tokens.pop(number, "")
                shown = self._shown.get(number)
                button = shown.button(key) if shown is not None else None
                if button is not None and self._nursery is not None:
                    self._nursery.start_soon(self._click, button, token)

    async def _click(self, button: Button, token: str) -> None:
        try:
            await button.click(token)
        except Exception as wrong:
            log.warning("the button %r had no effect: %s", button.label, wrong)

    def _forget(self) -> None:
        """Mark all notifications as not shown, because the service that showed them has ended."""
        for notification in self._shown.values():
            notification.lost()
        self._shown.clear()
        self._tokens.clear()


class Notification:
    """Desktop notification, which can be shown, replaced and withdrawn."""

    def __init__(
        self, desktop: Desktop, icon: str = "dialog-password", urgency: int = URGENT
    ) -> None:
        self._desktop, self._icon = desktop, icon
        self._hints = {"urgency": ("y", urgency), "desktop-entry": ("s", "zonedrive")}
        self._number = 0  # of the visible notification, 0: none
        self._buttons: Sequence[Button] = ()

    async def show(
        self, title: str, text: str, buttons: Sequence[Button] = (), without: str = ""
    ) -> bool:
        """Show the notification or replace its content; return True if the service accepted it.

        A click on the notification itself counts as a click on the first button. `without` is added
        to the text if the desktop shows no buttons.
        """
        abilities = await self._desktop.abilities()
        if "actions" not in abilities:
            text = f"{text} {without}".rstrip()
            buttons = ()
        text = _shown(text)
        if "body-markup" in abilities:
            text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        actions = [word for key, each in enumerate(buttons) for word in (str(key), each.label)]
        if buttons:
            actions = ["default", buttons[0].label, *actions]
        self._buttons = buttons
        number = await self._desktop.show(
            self,
            (
                translated("Zones"), self._number, self._icon, _shown(title), text,
                actions, self._hints, UNTIL_CLOSED,
            ),
        )  # fmt: skip
        self._number = number or self._number
        return bool(number)

    async def withdraw(self) -> None:
        """Remove the notification, if it is shown."""
        if self._number:
            number, self._number = self._number, 0
            await self._desktop.close(number)

    def button(self, key: str) -> Button | None:
        """Return the button with this key, or None; the key "default" means the first button."""
        if key == "default":
            key = "0"
        return self._buttons[int(key)] if key in map(str, range(len(self._buttons))) else None

    def lost(self) -> None:
        """Mark the notification as not shown, because the service that showed it has ended."""
        self._number = 0


def _shown(text: str) -> str:
    """Return `text` with bidirectional marks and other unprintable characters replaced."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
