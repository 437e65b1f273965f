"""Private D-Bus for system and session, with a real keyring, a notification server and logind.

Knows nothing of zonedrive.
"""

import os
import re
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import secretstorage
from jeepney import (
    DBusAddress,
    HeaderFields,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from tests.harness.waiting import PATIENCE_SECONDS, eventually

RING_PASSWORD = "the ring's own"
BUS = DBusAddress(
    "/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", interface="org.freedesktop.DBus"
)
# No service is started by its name: a keyring that has gone stays gone.
CONFIGURATION = """<busconfig>
<type>session</type>
<listen>{listen}</listen>
<auth>EXTERNAL</auth>
<policy context="default">
<allow user="*"/>
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy>
</busconfig>
"""


def connected(address: str, *, fds: bool = False) -> DBusConnection:
    """Return a connection to a bus, with more time for authentication than the library's
    default."""
    return open_dbus_connection(address, enable_fds=fds, auth_timeout=PATIENCE_SECONDS)


def has_owner(address: str, name: str) -> bool:
    """Return True if a name has an owner on the bus."""
    with connected(address) as connection:
        call = new_method_call(BUS, "NameHasOwner", "s", (name,))
        return bool(connection.send_and_get_reply(call).body[0])


class Bus:
    """Private session bus, or one of the user `uid` that accepts all users."""

    def __init__(
        self, folder: Path, *, uid: int | None = None, name: str = "session-bus", form: str = "path"
    ) -> None:
        """Start a bus; `form` of its address: `path`, or `abstract` for a socket without a file."""
        configuration = folder / f"{name}.conf"
        self.uid = uid
        self.address = f"unix:{form}={folder}/{name}"
        configuration.write_text(CONFIGURATION.format(listen=self.address))
        self._process = subprocess.Popen(
            ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            **identity(uid),
        )  # fmt: skip
        eventually(lambda: self._answers(), what="the bus answers")

    def _answers(self) -> bool:
        with suppress(OSError):
            connected(self.address).close()
            return True
        return False

    def has(self, name: str) -> bool:
        """Return True if the name has an owner."""
        return has_owner(self.address, name)

    def close(self) -> None:
        """Stop the bus."""
        self._process.terminate()
        self._process.wait(60)


def identity(uid: int | None) -> dict[str, Any]:
    """Return the arguments to start a process as that user; none for the current user."""
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


DEFAULT = "/org/freedesktop/secrets/aliases/default"


class Ring:
    """Unlocked gnome-keyring with a default collection below a home folder of its own."""

    def __init__(self, bus: Bus, environment: Mapping[str, str]) -> None:
        self._bus, self._environment = bus, dict(environment)
        self.start()

    def start(self) -> None:
        """Start or restart the keyring, whose content is on the disk."""
        self._process = subprocess.Popen(
            ["gnome-keyring-daemon", "--unlock", "--components=secrets", "--foreground"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=self._environment | {"DBUS_SESSION_BUS_ADDRESS": self._bus.address},
            **identity(self._bus.uid),
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(RING_PASSWORD.encode())
        self._process.stdin.close()
        eventually(lambda: self._bus.has("org.freedesktop.secrets"), what="the keyring is there")
        eventually(self._is_unlocked, what="the keyring has its default collection")

    def _is_unlocked(self) -> bool:
        """Return True if the default collection exists, which may be later than the service."""
        with (
            connected(self._bus.address) as connection,
            suppress(secretstorage.exceptions.SecretStorageException),
        ):
            return not secretstorage.Collection(connection, DEFAULT).is_locked()
        return False

    def stop(self) -> None:
        """Stop the keyring."""
        self._process.terminate()
        self._process.wait(60)

    def lock(self) -> None:
        """Lock the keyring without a user who could answer a prompt."""
        with connected(self._bus.address) as connection:
            secretstorage.get_default_collection(connection).lock()

    def empty(self) -> None:
        """Delete all entries."""
        with connected(self._bus.address) as connection:
            for item in secretstorage.get_default_collection(connection).get_all_items():
                item.delete()

    def names(self) -> set[str]:
        """Return the names of zonedrive's entries, as ACCOUNT/SECRET, without the id between."""
        return set(self._texts())

    def text(self, name: str) -> str:
        """Return the text of an entry."""
        return self._texts()[name]

    def _texts(self) -> dict[str, str]:
        try:
            return self._read()
        except secretstorage.exceptions.SecretServiceNotAvailableException:
            if self._process.wait(60) >= 0:  # not by a signal
                raise
            self.start()  # gnome-keyring crashes at times after a deletion; the disk has everything
            return self._read()

    def _read(self) -> dict[str, str]:
        with connected(self._bus.address) as connection:
            found = secretstorage.get_default_collection(connection).get_all_items()
            return {
                re.sub("/.*/", "/", item.get_attributes()["username"]): item.get_secret().decode()
                for item in found
            }


class Owner:
    """Owner of a name on a bus, who answers calls until it is closed."""

    NAME = ""

    def __init__(self, bus: Bus | str) -> None:
        """Own the name on a bus, or on the bus at an address."""
        self._connection = connected(bus if isinstance(bus, str) else bus.address, fds=True)
        call = new_method_call(BUS, "RequestName", "su", (self.NAME, 0))
        assert self._connection.send_and_get_reply(call).body == (1,)
        self._sending = threading.Lock()
        self._spent: list[int] = []  # descriptors that were handed over
        self._over = False
        self._thread = threading.Thread(target=self._serve, args=(self._connection,))
        self._thread.start()

    def close(self) -> None:
        """Release the name."""
        self._over = True
        self._thread.join(60)
        self._connection.close()

    def _serve(self, connection: DBusConnection) -> None:
        while not self._over:
            with suppress(TimeoutError):
                try:
                    message = connection.receive(timeout=0.1)
                except ConnectionError:
                    return  # the bus has gone
                if message.header.message_type is MessageType.method_call:
                    answer = self._answer(message, message.header.fields[3])
                    if answer is not None:
                        self._send(answer)
                    while self._spent:  # not in `_send`: other threads send as well
                        os.close(self._spent.pop())

    def _send(self, message: Any) -> None:
        with self._sending:
            self._connection.send(message)

    def _answer(self, message: Any, method: str) -> Any:
        raise NotImplementedError


class Screen(Owner):
    """Notification server that records notifications, and whose buttons can be clicked."""

    NAME = "org.freedesktop.Notifications"
    ADDRESS = DBusAddress("/org/freedesktop/Notifications", bus_name=NAME, interface=NAME)

    def __init__(
        self, bus: Bus, abilities: Sequence[str] = ("actions", "body", "body-markup")
    ) -> None:
        self.abilities = list(abilities)
        self.shown: list[tuple[str, str]] = []  # title and text
        self.open: set[int] = set()  # the numbers of those that are on the screen
        self.buttons: dict[int, dict[str, str]] = {}  # key by label, of each number
        self.sender = ""  # of the last notification
        self.clicked_at_once = ""  # label of the button that is clicked as soon as it is shown
        self._replying = threading.RLock()  # no click comes between a notification and its number
        super().__init__(bus)

    def click(self, number: int, label: str = "", token: str = "") -> None:
        """Click a button of a notification, or the notification itself."""
        with self._replying:
            key = self.buttons[number][label] if label else "default"
            if token:
                self._send(new_signal(self.ADDRESS, "ActivationToken", "us", (number, token)))
            self._send(new_signal(self.ADDRESS, "ActionInvoked", "us", (number, key)))
            self.open.discard(number)
            self._send(new_signal(self.ADDRESS, "NotificationClosed", "uu", (number, 2)))

    def _answer(self, message: Any, method: str) -> Any:
        if method == "GetCapabilities":
            return new_method_return(message, "as", (self.abilities,))
        if method == "Notify":
            _, replaces, _, title, text, actions, *_ = message.body
            self.sender = message.header.fields[HeaderFields.sender]
            number = replaces or len(self.shown) + 1
            pairs = zip(actions[::2], actions[1::2], strict=True)
            self.buttons[number] = {label: key for key, label in pairs}
            self.open.add(number)
            with self._replying:
                self.shown.append((title, text))
                self._send(new_method_return(message, "u", (number,)))
                if self.clicked_at_once:
                    self.click(number, self.clicked_at_once)
            return None
        if method == "CloseNotification":
            self.open.discard(message.body[0])
            return new_method_return(message)
        return new_error(message, "org.freedesktop.DBus.Error.UnknownMethod")


class Prompter(Owner):
    """Desktop that dismisses and counts the keyring's prompts."""

    NAME = "org.gnome.keyring.SystemPrompter"

    def __init__(self, bus: Bus) -> None:
        self.prompts = 0
        super().__init__(bus)

    def _answer(self, message: Any, method: str) -> Any:
        self.prompts += 1
        return new_error(message, "org.freedesktop.DBus.Error.UnknownMethod")


class Logind(Owner):
    """Stand-in for logind that gives locks, and announces shutdown and sleep."""

    NAME = "org.freedesktop.login1"
    ADDRESS = DBusAddress(
        "/org/freedesktop/login1", bus_name=NAME, interface="org.freedesktop.login1.Manager"
    )

    def __init__(self, bus: Bus, denied: str = "", silent: int = 0, delay_seconds: int = 5) -> None:
        """Start; `denied` is a mode that this machine forbids.

        The first `silent` requests for a lock get no reply.  A shutdown is delayed for up to
        `delay_seconds`.
        """
        self.denied = denied
        self.delay_seconds = delay_seconds
        self.silent = silent
        self.taken: list[tuple[str, str, str]] = []  # every one: what, mode, why
        self._pipes: list[tuple[int, tuple[str, str, str]]] = []
        super().__init__(bus)

    def held(self) -> dict[str, str]:
        """Return the reasons of the current locks by mode."""
        return {mode: why for end, (_, mode, why) in self._pipes if not _has_ended(end)}

    def announce(self, signal: str, begins: bool) -> None:
        """Announce `PrepareForShutdown` or `PrepareForSleep`."""
        self._send(new_signal(self.ADDRESS, signal, "b", (begins,)))

    def close(self) -> None:
        """Close everything."""
        super().close()
        for end, _ in self._pipes:
            os.close(end)

    def _answer(self, message: Any, method: str) -> Any:
        if method == "Get":
            return new_method_return(message, "v", (("t", self.delay_seconds * 1_000_000),))
        what, _, why, mode = message.body
        if method != "Inhibit" or mode == self.denied:
            return new_error(message, "org.freedesktop.DBus.Error.AccessDenied")
        if self.silent:
            self.silent -= 1
            return None
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self.taken.append((what, mode, why))
        self._pipes.append((ours, (what, mode, why)))
        self._spent.append(theirs)
        return new_method_return(message, "h", (theirs,))


def _has_ended(pipe: int) -> bool:
    """Return True if the other end of the pipe is closed."""
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def environment(base: Mapping[str, str], bus: Bus) -> dict[str, str]:
    """Return the environment of a program in the session."""
    return dict(base, DBUS_SESSION_BUS_ADDRESS=bus.address, PATH=os.environ["PATH"])
