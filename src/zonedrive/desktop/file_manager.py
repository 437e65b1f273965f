"""Extension that adds emblems and menus to Nautilus, Nemo and Caja, and menus to Thunar.

INVARIANT: the file manager waits for a daemon only before it shows a menu, for up to MENU_SECONDS
seconds, if states of the selected entries are not cached. After an error in this module, emblems or
menus are missing, but the file manager continues to work.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

from gi.repository import GLib, GObject

from . import menu
from .client import Client
from .glib_loop import GLibLoop, start
from .menu import _

MENU_SECONDS = 0.03
SLICE = 100  # entries that are refreshed in one callback of the event loop
LOOKED_AT = 200  # maximum number of selected entries whose states determine the menu


def path_of(file: Any) -> str | None:
    """Return the path of a file manager's entry, or None if the entry is not a local file."""
    if file.get_uri_scheme() != "file":
        return None
    location = file.get_location()
    path = location.get_path() if location is not None else None
    return os.fspath(path) if path else None


def copy(text: str) -> None:
    """Copy a text to the clipboard, with the GTK library that the file manager has loaded.

    `gi` could load another version of GTK, which would crash the file manager.
    """
    gtk = ctypes.CDLL(None)
    for name in ("gdk_display_get_default", "gdk_display_get_clipboard", "gtk_clipboard_get"):
        if hasattr(gtk, name):
            getattr(gtk, name).restype = ctypes.c_void_p
    if hasattr(gtk, "gdk_display_get_clipboard"):  # GTK 4
        display = ctypes.c_void_p(gtk.gdk_display_get_default())
        clipboard = ctypes.c_void_p(gtk.gdk_display_get_clipboard(display))
        gtk.gdk_clipboard_set_text(clipboard, text.encode())
    else:
        gtk.gdk_atom_intern.restype = ctypes.c_void_p
        atom = ctypes.c_void_p(gtk.gdk_atom_intern(b"CLIPBOARD", 0))
        clipboard = ctypes.c_void_p(gtk.gtk_clipboard_get(atom))
        gtk.gtk_clipboard_set_text(clipboard, text.encode(), -1)
        gtk.gtk_clipboard_store(clipboard)


class States:
    """Entry states in one file manager; `refresh` is called for the path of each changed entry."""

    def __init__(self, refresh: Callable[[str], None]) -> None:
        self._refresh = refresh
        self._changed: dict[str, None] = {}
        self.client = Client(GLibLoop(), self._note)

    def _note(self, paths: list[str]) -> None:
        if paths and not self._changed:
            GLib.idle_add(self._refresh_some)
        self._changed.update(dict.fromkeys(paths))

    def _refresh_some(self) -> bool:
        for path in list(self._changed)[:SLICE]:
            del self._changed[path]
            self._refresh(path)
        return bool(self._changed)

    def menu(self, module: Any, files: list[Any], kind: str = "Selection") -> list[Any]:
        """Return the menu items for `files`, as objects of the file manager's `module`.

        Return [] if an entry is not in a mount or its daemon is not connected. `kind` is a part of
        the items' names, because in Nautilus the menus of the selection and of the open folder must
        not contain items of the same name.
        """
        paths = [path_of(file) for file in files]
        inside = [path for path in paths if path is not None and self.client.is_inside(path)]
        if not inside or len(inside) != len(paths):
            return []
        known = list(self.client.soon(inside[:LOOKED_AT], MENU_SECONDS).values())
        daemon = self.client.daemon(inside[0])
        if daemon is None:
            return []
        found = menu.items(known, daemon.can, len(inside) == 1)
        if inside == [daemon.mount]:
            of_an_entry = ("link", "share")
            found = [item for item in found if item.action not in of_an_entry]
            found = menu.top_items(daemon.paused) + found
        if not found:
            return []
        top = _item(module, f"{kind}::zones", _("Zones"), "zonedrive")
        below = module.Menu()
        for item in found:
            entry = _item(module, f"{kind}::{item.action}", item.label, item.icon)
            entry.connect("activate", lambda _, action=item.action: self._do(action, inside))
            below.append_item(entry)
        (getattr(top, "set_submenu", None) or top.set_menu)(below)  # set_menu: Thunar's name
        return [top]

    def _do(self, action: str, paths: list[str]) -> None:
        daemon = self.client.daemon(paths[0])
        if action != "link" or daemon is None:
            start(action, paths)
            return

        def answered(message: dict[str, Any]) -> None:
            if "link" in message:
                copy(str(message["link"]))
            else:
                start(action, paths)  # the action reports the reason

        self.client.request(daemon, {"command": "link", "path": paths[0]}, answered)


def _item(module: Any, name: str, label: str, icon: str) -> Any:
    """Return a menu item without a tooltip.

    In Thunar, the argument for the tooltip has a different name.
    """
    tip = "tooltip" if module.__name__.endswith("Thunarx") else "tip"
    return module.MenuItem(name=f"Zonedrive::{name}", label=label, icon=icon, **{tip: ""})


def emblem_provider(module: Any) -> type:
    """Return the extension class for Nautilus, Nemo or Caja, which share one interface."""

    def refresh(path: str) -> None:
        info = module.FileInfo.lookup_for_uri(GLib.filename_to_uri(path, None))
        if info is not None:
            info.invalidate_extension_info()

    class Zonedrive(GObject.GObject, module.InfoProvider, module.MenuProvider):  # type: ignore[misc]
        """Provider of zonedrive's emblems and menus for Nautilus, Nemo or Caja."""

        def __init__(self) -> None:
            super().__init__()
            self._states = States(refresh)

        def update_file_info(self, file: Any) -> None:
            path = path_of(file)
            entry = self._states.client.entry(path) if path is not None else None
            if entry is not None and (name := menu.emblem(entry)):
                file.add_emblem(name)

        def get_file_items(self, *arguments: Any) -> list[Any]:
            """Return the menu of the selected files, which are the last argument.

            Nautilus before version 43 passes a window as the first argument.
            """
            return self._states.menu(module, arguments[-1])

        def get_background_items(self, *arguments: Any) -> list[Any]:
            """Return the menu of the open folder."""
            return self._states.menu(module, [arguments[-1]], "Folder")

    return Zonedrive


def menu_provider(module: Any) -> type:
    """Return the extension class for Thunar."""

    class Zonedrive(GObject.GObject, module.MenuProvider):  # type: ignore[misc]
        """Provider of zonedrive's menus for Thunar."""

        def __init__(self) -> None:
            super().__init__()
            self._states = States(lambda path: None)

        def get_file_menu_items(self, window: Any, files: list[Any]) -> list[Any]:
            return self._states.menu(module, files)

        def get_folder_menu_items(self, window: Any, folder: Any) -> list[Any]:
            return self._states.menu(module, [folder], "Folder")

    return Zonedrive
