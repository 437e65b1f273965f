"""Virtual file `.xdg-volume-info` with the name and the icon of the mount for file managers.

GVfs, which tells Nautilus, Nemo, Caja, Thunar and others about volumes, reads this file at the top
of each new mount. Without the file, GVfs shows the name of the folder, because GVfs uses the option
`x-gvfs-name` only for a mount that is in /etc/fstab.
"""

import os
import stat
from pathlib import Path

from zonedrive.formatting import plain
from zonedrive.state.inode import ROOT
from zonedrive.state.local_state import LocalState
from zonedrive.views.virtual import Content, Node, SyncState, number, refuse_writing

ICON = "zonedrive"
SAYS = "name and icon of this mount for file managers; stays on this computer"


class VolumeInfo:
    """`VirtualRoot` for the file `.xdg-volume-info` at the top of the mount."""

    name = ".xdg-volume-info"

    def __init__(self, state: LocalState, title: str) -> None:
        """Create the virtual file in memory; `title` is the name of the mount."""
        self._file = _File(state, contents(title, installed_icon()))

    def open(self, folder: int) -> Node | None:
        return self._file if folder == ROOT else None


class _File(Node, Content):
    mode = stat.S_IFREG | 0o400

    def __init__(self, state: LocalState, text: bytes) -> None:
        # The number depends on the text, because the bytes of an inode number never change.
        super().__init__(number(state.database.identity, "volume info", text.decode()))
        self._text = text
        self.size = len(text)

    def sync_state(self) -> SyncState:
        return SyncState(SAYS, here_only=True)

    async def open(self, flags: int, pid: int) -> Content:
        refuse_writing(flags)
        return self

    async def read(self, offset: int, size: int) -> bytes:
        return self._text[offset : offset + size]


def contents(title: str, icon: Path | None) -> bytes:
    """Return the content of `.xdg-volume-info` for a mount named `title`.

    `icon` is the path of an installed icon, or None. If there is an icon, the key `IconFile` is
    written in addition to `Icon`, and takes precedence over `Icon`. With `Icon` alone, GTK 3 shows
    the icon of a drive.
    """
    lines = [f"Name={_value(plain(title).strip())}", f"Icon={ICON}"]
    if icon is not None and str(icon).isprintable():
        lines.append(f"IconFile={_value(str(icon))}")
    return "\n".join(["[Volume Info]", *lines, ""]).encode("utf-8", "replace")


def _value(text: str) -> str:
    """Return a string with its backslashes escaped, as a value of a key file."""
    return text.replace("\\", "\\\\")


def installed_icon() -> Path | None:
    """Return the path of the icon installed for this user or for all users, or None."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    for folder in (home, *shared.split(":")):
        icon = Path(folder, "icons/hicolor/scalable/apps", f"{ICON}.svg")
        if icon.is_absolute() and icon.is_file():
            return icon
    return None
