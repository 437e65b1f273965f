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

    def open_menu(self, key: str) -> None:
        """Open the menu of the selected file, and the submenu with that key."""

        def opened() -> bool:
            self._close_menus()
            self.press("Menu")
            eventually(lambda: self._windows() == 2, MENU_SECONDS, what="the menu")
            self.press(key)
            return eventually(lambda: self._windows() == 3, MENU_SECONDS, what="the submenu")

        eventually(opened, what="the menus")

    def press(self, key: str) -> None:
        """Press a key."""
        self._session.xdotool("key", key)

    def _close_menus(self) -> None:
        while self._windows() > 1:
            self.press("Escape")

    def _windows(self) -> int:
        shown = self._session.xdotool("search", "--onlyvisible", "--class", "dolphin")
        return len(shown.split())
