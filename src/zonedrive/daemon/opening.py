"""Waiting for a keyring that a person has not opened yet, where a service manager waits along.

Must not know what is in it.  A command of a shell does not wait: who typed it reads the reason.

INVARIANT: nobody is asked to open it again and again; it is only looked at whether it is open.
"""

import logging
import time

from jeepney import DBusAddress, MessageType, Properties, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from zonedrive.daemon.notify import Notifier
from zonedrive.logon.session_bus import session_bus

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 5.0  # that a bus may take
NAME = "org.freedesktop.secrets"
SERVICE = DBusAddress("/org/freedesktop/secrets", NAME, "org.freedesktop.Secret.Service")


def wait(notifier: Notifier, why: str) -> None:
    """Return when the default collection of the session's keyring is open.

    A look comes before the manager's patience ends, so it hears of each.
    """
    log.info("waiting: %s", why)
    while True:
        notifier.waiting(f"waiting: {why}", LOOK_SECONDS + 4 * ANSWER_SECONDS)
        time.sleep(LOOK_SECONDS)
        if is_open():
            return


def is_open() -> bool:
    """Whether there is a keyring whose default collection can be read; nobody is asked."""
    address = session_bus()
    if address is None:
        return False
    try:
        with open_dbus_connection(address) as bus:
            path = _answer(bus, new_method_call(SERVICE, "ReadAlias", "s", ("default",)))
            place = DBusAddress(str(path), NAME, "org.freedesktop.Secret.Collection")
            return _answer(bus, Properties(place).get("Locked")) == ("b", False)
    except Exception as wrong:
        # Whatever a bus, or what stands in its place, does: the next look may find another one.
        log.debug("the keyring cannot be looked at: %s", type(wrong).__name__)
        return False


def _answer(bus: DBusConnection, message: object) -> object:
    reply = bus.send_and_get_reply(message, timeout=ANSWER_SECONDS)
    return reply.body[0] if reply.header.message_type is MessageType.method_return else None
