"""Thunar, a real file manager: one window, keys, and its visible content.

Knows nothing of zonedrive or the folders.
"""

from pathlib import Path

from tests.desktop.looking import Item
from tests.desktop.session import Session
from tests.harness.waiting import eventually

MENU_SECONDS = 5.0  # for an item of a menu
SETTINGS = """<?xml version="1.0" encoding="UTF-8"?>
<channel name="thunar" version="1.0">
  <property name="last-view" type="string" value="ThunarDetailsView"/>
  <property name="misc-thumbnail-mode" type="string" value="THUNAR_THUMBNAIL_MODE_ALWAYS"/>
</channel>
"""


def configure(session: Session) -> None:
    """Have Thunar show rows; screen readers learn no names from its icons."""
    channels = Path(session.environment["XDG_CONFIG_HOME"], "xfce4/xfconf/xfce-perchannel-xml")
    channels.mkdir(parents=True)
    (channels / "thunar.xml").write_text(SETTINGS)


class Thunar:
    """Window of Thunar that shows a folder."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        configure(session)
        session.run("thunar", folder)
        self.screen = session.screen.program("thunar")
        self.window = self.screen.find("frame")
        self._arrived(folder.name)

    def choose_for(self, name: str, *items: str) -> None:
        """Choose an item of an entry's menu, through its submenus.

        Opens the menu again if it has no such item, because extensions learn of changes later.
        """

        def chosen() -> bool:
            self.key("Escape")
            self.select(name)
            self.key("shift+F10")
            for item in items[:-1]:
                self._shown("menu", item).do()
            self._shown("menu item", items[-1]).do()
            return True

        eventually(chosen, what=f"{items} of {name} is chosen")

    def _shown(self, role: str, name: str) -> Item:
        """Return an item of an open menu."""

        def look() -> Item | None:
            items = (each for each in self.screen.inside(role) if each.name == name)
            return next((each for each in items if each.is_showing), None)

        found = eventually(look, MENU_SECONDS, what=f"{name} in the menu")
        assert found is not None
        return found

    def _arrived(self, title: str) -> None:
        eventually(
            lambda: self.window.name == f"{title} - Thunar",
            what=f"the window shows {title}: {self.window.name}",
        )  # fmt: skip

    def go(self, place: str | Path, title: str = "") -> None:
        """Type an address."""
        self.key("ctrl+l")
        field = next(each for each in self.window.find("tool bar").inside("text"))
        field.write(str(place))
        self.key("Return")
        self._arrived(title or Path(place).name)

    def rows(self) -> list[str]:
        """Return the visible names."""
        return [each.name for each in self._rows()]

    def _rows(self) -> list[Item]:
        pane = self.window.find("directory pane")
        cells = [each for row in pane.inside("table cell") for each in row.children()]
        return [cell for cell in cells if cell.role == "table cell" and cell.name]

    def until(self, *names: str) -> None:
        """Wait until exactly these names are shown, in this order."""
        eventually(lambda: self.rows() == list(names), what=f"{names}, not {self.rows()}")

    def select(self, name: str) -> None:
        """Click on a row."""
        eventually(lambda: name in self.rows(), what=f"{name} is shown")
        next(each for each in self._rows() if each.name == name).focus()
        eventually(lambda: f'"{name}"' in self.status(), what=f"{name} is selected")

    def open(self, name: str) -> None:
        """Select a row and press Return; into a folder."""
        self.select(name)
        self.key("Return")

    def enter(self, name: str) -> None:
        """Enter a folder."""
        self.open(name)
        self._arrived(name)

    def up(self) -> None:
        """Go to the parent folder."""
        self.key("alt+Up")

    def key(self, *keys: str) -> None:
        """Press keys, one after the other."""
        self._session.xdotool("key", *keys, check=True)

    def status(self) -> str:
        """Return the text of the status bar."""
        return self.window.find("statusbar").name.replace("\N{NO-BREAK SPACE}", " ")

    def dialogs(self) -> list[Item]:
        """Return the dialogs."""
        return [each for each in self.screen.inside() if each.role in ("dialog", "alert")]

    def side_bar(self) -> set[str]:
        """Return the places in the side bar."""
        table = next(self.window.find("split pane").inside("table"))
        return {each.name for each in table.inside("table cell")}
