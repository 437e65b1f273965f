"""Nautilus, a real file manager: one window, its rows and menus.

Knows nothing of zonedrive.
"""

import subprocess
from pathlib import Path

from tests.desktop.looking import Gone, Item
from tests.desktop.session import Session
from tests.harness.waiting import eventually

NOWHERE = (-1, "")
LOOKS = 200


class Nautilus:
    """Window of Nautilus that shows a folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        session.environment["GSK_RENDERER"] = "cairo"
        session.run("nautilus", "--new-window", folder)
        self.screen = session.screen.program("org.gnome.Nautilus")
        eventually(lambda: self._labels(folder.name), what="the window")
        session.focus("nautilus")

    def _tool(self, *arguments: str) -> str:
        done = subprocess.run(
            ["xdotool", *arguments], env=self._session.environment, timeout=30,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout

    def _labels(self, name: str) -> list[Item]:
        """Return the labels with that text.  GTK 4 says of none that it is showing."""
        return [each for each in self.screen.inside("label") if each.name == name]

    def select(self, name: str) -> None:
        """Click on an entry."""
        label = eventually(lambda: self._labels(name), what=f"{name} is shown")[-1]
        x, y = label.centre()
        self._tool("mousemove", str(x), str(y), "click", "1")

    def open(self, name: str) -> None:
        """Select an entry and press Return."""
        self.select(name)
        self.key("Return")

    def key(self, key: str) -> None:
        """Press a key."""
        self._tool("key", key)

    def open_menu(self, name: str) -> None:
        """Open the menu of an entry, with the right mouse button."""
        self.select(name)
        self._tool("click", "3")
        eventually(lambda: "Properties" in self.menu(), what="the menu")

    def menu(self) -> list[str]:
        """Return the items of the open menu and its submenus."""
        try:
            return [each.name for each in self.screen.inside("menu item")]
        except Gone:
            return []

    def choose(self, *names: str) -> None:
        """Choose an item of the open menu, through its submenus, with the keyboard."""
        for number, name in enumerate(names, 1):
            for _ in self.menu():
                self._press("Up")
                if self._focused()[1] == name:
                    break
            assert self._focused()[1] == name, f"{name} is not in the menu"
            if number < len(names):
                self._press("Return")
        self._tool("key", "Return")

    def choose_for(self, name: str, *items: str) -> None:
        """Choose an item of an entry's menu, through its submenus.

        Opens the menu again if it has no such item, because extensions get little time to answer,
        or if it has lost the keyboard, because Nautilus has updated it meanwhile.
        """

        def chosen() -> bool:
            self._tool("key", "Escape")
            self.open_menu(name)
            self.choose(*items)
            return True

        eventually(chosen, what=f"{items} of {name} is chosen")
        eventually(lambda: items[-1] not in self.menu(), what="the menu closes")

    def _press(self, key: str) -> None:
        """Press a key that moves the focus to another item, and wait for that."""
        before = self._focused()
        self._tool("key", key)
        moved = any(self._focused() not in (before, NOWHERE) for _ in range(LOOKS))
        assert moved, f"{key} does not move the focus"

    def _focused(self) -> tuple[int, str]:
        """Return number and name of the item that has the focus, or NOWHERE."""
        for number, each in enumerate(self.screen.inside("menu item")):
            try:
                if each.is_focused:
                    return number, each.name
            except Gone:
                continue
        return NOWHERE
