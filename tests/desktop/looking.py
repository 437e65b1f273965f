"""Access to a program's window through the interface of screen readers (AT-SPI).

Knows no program.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import DBusConnection

from tests.harness.bus import connected
from tests.harness.waiting import eventually

A11Y = "org.a11y.atspi."
SHOWING = 25  # AtspiStateType
ON_SCREEN = 0
IN_WINDOW = 1  # AtspiCoordType
NEWER = {"button": "push button", "status bar": "statusbar"}  # names of roles, and older ones
DESKTOP = ("org.a11y.atspi.Registry", "/org/a11y/atspi/accessible/root")


class Gone(AssertionError):
    """Error for an item that is no longer on the screen; waiting code looks again."""


class Item:
    """Item on the screen."""

    def __init__(self, connection: DBusConnection, where: tuple[str, str]) -> None:
        self._connection = connection
        self._where = where

    def _ask(self, interface: str, method: str, signature: str = "", *body: object) -> Any:
        bus_name, path = self._where
        address = DBusAddress(path, bus_name=bus_name, interface=interface)
        call = new_method_call(address, method, signature or None, body)
        answer = self._connection.send_and_get_reply(call, timeout=60)
        if answer.header.message_type is MessageType.error:
            raise Gone(answer.body)
        return answer.body[0] if answer.body else None

    def _get(self, interface: str, name: str) -> Any:
        return self._ask("org.freedesktop.DBus.Properties", "Get", "ss", interface, name)[1]

    @property
    def name(self) -> str:
        return str(self._get(A11Y + "Accessible", "Name"))

    @property
    def role(self) -> str:
        said = str(self._ask(A11Y + "Accessible", "GetRoleName"))
        return NEWER.get(said, said)

    @property
    def is_showing(self) -> bool:
        low, _ = self._ask(A11Y + "Accessible", "GetState")
        return bool(low >> SHOWING & 1)

    def is_gone(self) -> bool:
        """Return True if the item is no longer on the screen."""
        try:
            return not self.is_showing
        except Gone:
            return True

    def children(self) -> Iterator["Item"]:
        for where in self._ask(A11Y + "Accessible", "GetChildren"):
            yield Item(self._connection, where)

    def inside(self, role: str = "") -> Iterator["Item"]:
        """Yield all items of that role inside, at any depth, without those that disappear
        meanwhile."""
        try:
            for child in self.children():
                try:
                    if not role or child.role == role:
                        yield child
                except Gone:
                    continue
                yield from child.inside(role)
        except Gone:
            return

    def find(self, role: str, name: str = "") -> "Item":
        """Return the first item of that role and name, and wait for it if necessary."""

        def look() -> "Item | None":
            for each in self.inside(role):
                if name in ("", each.name) and each.is_showing:
                    return each
            return None

        found = eventually(look, what=f"{role} {name!r} is on the screen")
        assert found is not None
        return found

    def program(self, name: str) -> "Item":
        """Return the items of one program; others have items on the screen, too."""

        def look() -> "Item | None":
            every = (each for each in self.children() if each.name.casefold() == name.casefold())
            return next(every, None)

        found = eventually(look, what=f"{name} is on the screen")
        assert found is not None
        return found

    def do(self, number: int = 0) -> None:
        """Do the item's first action: press a button, open a row."""
        self._ask(A11Y + "Action", "DoAction", "i", number)

    def actions(self) -> list[str]:
        return [each[0] for each in self._ask(A11Y + "Action", "GetActions")]

    def focus(self) -> None:
        self._ask(A11Y + "Component", "GrabFocus")

    def centre(self, origin: int = IN_WINDOW) -> tuple[int, int]:
        """Return the middle of the item in its window or ON_SCREEN, in pixels."""
        x, y, width, height = self._ask(A11Y + "Component", "GetExtents", "u", origin)
        return x + width // 2, y + height // 2

    def write(self, text: str) -> None:
        """Fill a field."""
        self._ask(A11Y + "EditableText", "SetTextContents", "s", text)

    @property
    def text(self) -> str:
        return str(self._ask(A11Y + "Text", "GetText", "ii", 0, -1))

    def words(self) -> str:
        """Return all text inside the item."""
        return "\n".join(filter(None, (each.name for each in self.inside("label"))))


def accessibility(environment: Mapping[str, str]) -> str:
    """Return the address of the bus for the accessibility of a session's programs."""
    service = DBusAddress("/org/a11y/bus", bus_name="org.a11y.Bus", interface="org.a11y.Bus")
    with connected(environment["DBUS_SESSION_BUS_ADDRESS"]) as connection:
        answer = connection.send_and_get_reply(new_method_call(service, "GetAddress"), timeout=60)
    return str(answer.body[0])
