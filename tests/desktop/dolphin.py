"""Dolphin, a real file manager: one window, and the menu of a file.

Knows nothing of zonedrive. Its menus are not accessible to screen readers, so a menu is detected as
a new window.
"""

from pathlib import Path

from tests.desktop.session import Session
from tests.harness.waiting import eventually

MENU_SECONDS = 5.0  # after that, a key was lost


class Dolphin:
    """Window of Dolphin in which a file is selected."""

    def __init__(self, session: Session, file: Path) -> None:
        self._session = session
        session.environment |= {"QT_ACCESSIBILITY": "1", "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1"}
        session.run("dolphin", "--select", file)
        self.screen = session.screen.program("dolphin")
        self.screen.find("cell", file.name)
        session.focus("dolphin")

    def open_menu(self) -> None:
        """Open the menu of the selected file and its last submenu, which is above "Properties".

        Dolphin gives entries without a shortcut one of its choice, and not always the same.
        """

        def opened() -> bool:
            self._close_menus()
            self._press("Menu")
            eventually(lambda: self._windows() == 2, MENU_SECONDS, what="the menu")
            self._press("Up", "Up", "Right")
            return eventually(lambda: self._windows() == 3, MENU_SECONDS, what="the submenu")

        eventually(opened, what="the menus")

    def choose(self, number: int) -> None:
        """Choose the entry with this number, from 0 on, of the submenu that was just opened."""
        self._press(*["Down"] * number, "Return")

    def _press(self, *keys: str) -> None:
        self._session.xdotool("key", *keys)

    def _close_menus(self) -> None:
        while self._windows() > 1:
            self._press("Escape")

    def _windows(self) -> int:
        shown = self._session.xdotool("search", "--onlyvisible", "--class", "dolphin")
        return len(shown.split())
