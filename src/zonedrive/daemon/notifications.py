"""Desktop notifications through the session bus.

Knows nothing about the content. Without a session, a bus or a notification service, nothing
happens, because all information is also available elsewhere.
"""

import logging

import trio
from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.trio import open_dbus_router

from zonedrive.logon.session_bus import session_bus

log = logging.getLogger(__name__)

SECONDS = 5.0  # timeout of a call to the desktop
NORMAL, URGENT = 1, 2
FOR_EVER = 0  # the notification stays until the user closes it
ADDRESS = DBusAddress(
    "/org/freedesktop/Notifications",
    bus_name="org.freedesktop.Notifications",
    interface="org.freedesktop.Notifications",
)


class Desktop:
    """One notification that is shown, replaced and withdrawn."""

    def __init__(self, icon: str = "dialog-password", urgency: int = URGENT) -> None:
        self._icon = icon
        self._hints = {"urgency": ("y", urgency), "desktop-entry": ("s", "zonedrive")}
        self._number = 0  # id of the visible notification, 0: none

    async def show(self, title: str, text: str) -> bool:
        """Show or replace the notification; return True if a desktop accepted it."""
        words: list[object] = ["zonedrive", self._number, self._icon, _shown(title), _plain(text)]
        answer = await self._call("Notify", "susssasa{sv}i", (*words, [], self._hints, FOR_EVER))
        if not answer:
            return False
        self._number = answer[0]
        return True

    async def withdraw(self) -> None:
        """Remove the notification because it no longer applies."""
        if self._number:
            number, self._number = self._number, 0
            await self._call("CloseNotification", "u", (number,))

    async def _call(self, method: str, types: str, words: tuple[object, ...]) -> tuple[int, ...]:
        """Return the body of the answer, or () if there is none."""
        address = session_bus()
        if address is None:
            return ()
        with trio.move_on_after(SECONDS):
            try:
                async with open_dbus_router(address) as bus:
                    message = new_method_call(ADDRESS, method, types, words)
                    reply = await bus.send_and_get_reply(message)
            except Exception as wrong:
                # An error of the bus must not affect the mount.
                log.debug("the desktop cannot be told: %s", type(wrong).__name__)
                return ()
            if reply.header.message_type is MessageType.method_return:
                body: tuple[int, ...] = reply.body
                return body
        return ()


def _plain(text: str) -> str:
    """Return `text` with its markup characters escaped."""
    return _shown(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shown(text: str) -> str:
    """Return `text` with unprintable characters replaced, such as direction marks in file names."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
