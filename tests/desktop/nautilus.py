"""Nautilus, a real file manager: one window, its rows and menus.

Knows nothing of zonedrive.
"""

from pathlib import Path

from tests.desktop.looking import Gone, Item
from tests.desktop.session import Session
from tests.harness.waiting import eventually

MENU_SECONDS = 5.0  # after that, a click was lost, because the window has changed meanwhile


class Nautilus:
    """Window of Nautilus that shows a folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        session.run("nautilus", "--new-window", folder)
        self.screen = session.screen.program("org.gnome.Nautilus")
        title = "Home" if str(folder) == session.environment["HOME"] else folder.name
        eventually(lambda: self._labels(title), what="the window")
        session.focus("nautilus")

    def _labels(self, name: str) -> list[Item]:
        """Return the labels with that text; GTK 4 reports none of them as showing."""
        return [each for each in self.screen.inside("label") if each.name == name]

    def select(self, name: str) -> None:
        """Click on an entry."""
        labels = eventually(lambda: self._labels(name), what=f"{name} is shown")
        x, y = max(label.centre() for label in labels)  # the side bar is on the left
        self._session.xdotool("mousemove", str(x), str(y), "click", "1")

    def open(self, name: str) -> None:
        """Select an entry and press Return."""
        self.select(name)
        self.key("Return")

    def key(self, key: str) -> None:
        """Press a key."""
        self._session.xdotool("key", key)

    def open_menu(self, name: str) -> None:
        """Open the menu of an entry, with the right mouse button."""

        def opened() -> bool:
            self._session.xdotool("key", "Escape")
            eventually(lambda: not self.menu(), MENU_SECONDS, what="no menu is open")
            self.select(name)
            self._session.xdotool("click", "3")
            return eventually(lambda: "Properties" in self.menu(), MENU_SECONDS, what="the menu")

        eventually(opened, what=f"the menu of {name}")

    def menu(self) -> list[str]:
        """Return the items of the open menu and its submenus."""
        try:
            return [each.name for each in self.screen.inside("menu item")]
        except Gone:
            return []

    def choose(self, *names: str) -> None:
        """Choose an item of the open menu, through its submenus, as a screen reader does.

        Keys would get lost, because the menu loses the focus when Nautilus updates it.
        """
        shown = {each.name: each for each in self.screen.inside("menu item")}
        assert set(names) <= set(shown), f"{names} is not in the menu: {list(shown)}"
        shown[names[-1]].do()
        eventually(lambda: names[-1] not in self.menu(), what="the menu closes")

    def choose_for(self, name: str, *items: str) -> None:
        """Choose an item of an entry's menu, through its submenus.

        Opens the menu again if it has no such item, because extensions get little time to answer.
        """

        def chosen() -> bool:
            self.open_menu(name)
            self.choose(*items)
            return True

        eventually(chosen, what=f"{items} of {name} is chosen")
