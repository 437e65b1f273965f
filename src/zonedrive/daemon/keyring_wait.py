"""Wait for the user to unlock the keyring, under a service manager.

Knows nothing about the keyring's content. A shell command does not wait, because its user can read
the reason.

INVARIANT: the user is not prompted repeatedly; the lock state is only polled.
"""

import logging
import time

from jeepney import DBusAddress, MessageType, Properties, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from zonedrive.daemon.sd_notify import Notifier
from zonedrive.logon.session_bus import session_bus

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 5.0  # timeout of a call on the bus
NAME = "org.freedesktop.secrets"
SERVICE = DBusAddress("/org/freedesktop/secrets", NAME, "org.freedesktop.Secret.Service")


def wait(notifier: Notifier, why: str) -> None:
    """Return when the default collection of the session's keyring is unlocked.

    The manager's start timeout is extended before each check.
    """
    log.info("waiting: %s", why)
    while True:
        notifier.waiting(f"waiting: {why}", LOOK_SECONDS + 4 * ANSWER_SECONDS)
        time.sleep(LOOK_SECONDS)
        if is_open():
            return


def is_open() -> bool:
    """Return True if the default collection of the keyring is unlocked; do not prompt."""
    address = session_bus()
    if address is None:
        return False
    try:
        with open_dbus_connection(address) as bus:
            path = _answer(bus, new_method_call(SERVICE, "ReadAlias", "s", ("default",)))
            place = DBusAddress(str(path), NAME, "org.freedesktop.Secret.Collection")
            return _answer(bus, Properties(place).get("Locked")) == ("b", False)
    except Exception as wrong:
        # After any error of the bus, the next check may find a working one.
        log.debug("the keyring cannot be looked at: %s", type(wrong).__name__)
        return False


def _answer(bus: DBusConnection, message: object) -> object:
    reply = bus.send_and_get_reply(message, timeout=ANSWER_SECONDS)
    return reply.body[0] if reply.header.message_type is MessageType.method_return else None
