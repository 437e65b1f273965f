"""Accounts in the sidebar of file managers and file choosers, with their states.

This code runs in a separate process, which the session bus starts when a program looks for cloud
providers. The library libcloudproviders exports the accounts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .client import Client, Daemon
from .menu import _, plural, top_items

BUS_NAME = "org.zonedrive.Desktop"
BUS_PATH = "/org/zonedrive/Desktop"


def described(link: str, counts: Mapping[str, int], paused: bool = False) -> tuple[str, str]:
    """Return the name of an account's CloudProviders.AccountStatus, and a text for the user.

    `link` is the state of the connection to the service. `counts` contains the number of entries in
    each state.
    """
    failed, conflicts = counts.get("failed", 0), counts.get("conflict", 0)
    waiting = counts.get("pending", 0) + counts.get("uploading", 0)
    if link == "logon-required":
        return "ERROR", _("You are logged off. Your changes are safe on this computer.")
    if link != "online":
        return "ERROR", _("The service cannot be reached.") + _still_waiting(waiting + failed)
    if failed:
        return "ERROR", plural("{count} upload failed.", "{count} uploads failed.", failed)
    if conflicts:
        text = plural(
            "{count} conflict is undecided.", "{count} conflicts are undecided.", conflicts
        )
        return "ERROR", text
    if paused:
        return "IDLE", _("Uploads are paused.") + _still_waiting(waiting)
    if waiting:
        text = plural(
            "{count} change is being uploaded.", "{count} changes are being uploaded.", waiting
        )
        return "SYNCING", text
    return "IDLE", _("Everything is on the service.")


def _still_waiting(count: int) -> str:
    waiting = plural("{count} change is waiting.", "{count} changes are waiting.", count)
    return f" {waiting}" if count else ""


def _is_utf_8(path: str) -> bool:
    return path.encode("utf-8", "replace").decode() == path


class SideBar:
    """D-Bus object that lists the mounted accounts for file managers' sidebars."""

    def __init__(
        self,
        library: Any,
        gio: Any,
        bus: Any,
        loop: Any,
        start: Callable[[str, list[str]], None],
        complete: Callable[[], None],
    ) -> None:
        """Export the accounts on the session bus `bus`.

        `library` and `gio` are the libraries CloudProviders and Gio. `start` starts an action for
        paths. `complete` is called once, when each connected daemon has reported its account, or
        has not answered in time.
        """
        self._complete: Callable[[], None] | None = complete
        self._library, self._gio, self._start = library, gio, start
        self._icon = gio.ThemedIcon.new("zonedrive")
        self._provider = library.ProviderExporter.new(bus, BUS_NAME, BUS_PATH)
        self._provider.set_name("zonedrive")
        self._accounts: dict[str, Any] = {}  # by mount point
        self._menus: dict[str, tuple[Any, bool]] = {}  # menu and the pause state that it shows
        self._client = Client(loop, self._update)
        self._update([])

    def _update(self, _paths: list[str]) -> None:
        # D-Bus has no text for a path that is not UTF-8; such an account must not hide the others.
        daemons = {each.mount: each for each in self._client.daemons() if _is_utf_8(each.mount)}
        for mount in self._accounts.keys() - daemons.keys():
            self._provider.remove_account(self._accounts.pop(mount))
            del self._menus[mount]
        for mount, daemon in daemons.items():
            if mount not in self._accounts:
                self._accounts[mount] = self._exported(daemon)
            state, text = described(daemon.link, daemon.counts, daemon.paused)
            account = self._accounts[mount]
            account.set_status(getattr(self._library.AccountStatus, state))
            account.set_status_details(text)
            self._show_menu(daemon)
        if self._complete is not None and self._client.is_complete:
            self._complete()
            self._complete = None

    def _exported(self, daemon: Daemon) -> Any:
        path = daemon.account.replace("-", "_")  # D-Bus allows no hyphen in an object path
        account = self._library.AccountExporter.new(self._provider, path)
        account.set_name(daemon.title)
        account.set_path(daemon.mount)
        account.set_icon(self._icon)
        account.set_action_group(self._actions(daemon.mount))
        menu = self._gio.Menu.new()
        account.set_menu_model(menu)
        self._menus[daemon.mount] = menu, not daemon.paused
        return account

    def _actions(self, mount: str) -> Any:
        group = self._gio.SimpleActionGroup.new()
        for name in ("pause", "resume", "overview"):
            action = self._gio.SimpleAction.new(name, None)
            action.connect("activate", lambda *_, name=name: self._start(name, [mount]))
            group.add_action(action)
        return group

    def _show_menu(self, daemon: Daemon) -> None:
        menu, shows_paused = self._menus[daemon.mount]
        if shows_paused == daemon.paused:
            return
        self._menus[daemon.mount] = menu, daemon.paused
        menu.remove_all()
        for item in top_items(daemon.paused):
            menu.append(item.label, item.action)
        menu.append(_("Open the window"), "overview")


def main(_arguments: list[str]) -> int:
    """Export the accounts until the bus name is lost, usually at the end of the session."""
    import gi

    gi.require_version("CloudProviders", "0.3")
    from gi.repository import CloudProviders, Gio, GLib

    from .glib_loop import GLibLoop, start

    loop = GLib.MainLoop()
    bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
    owners: list[int] = []

    def own() -> None:
        # The library announces a new account before the account has a name and a state. A program
        # that reads the accounts meanwhile may handle this announcement last, and then shows an
        # account without a name. A program reads the accounts when the bus name has an owner.
        flags = Gio.BusNameOwnerFlags.NONE
        owners.append(
            Gio.bus_own_name_on_connection(bus, BUS_NAME, flags, None, lambda *_: loop.quit())
        )

    side_bar = SideBar(CloudProviders, Gio, bus, GLibLoop(), start, own)
    loop.run()
    for owner in owners:
        Gio.bus_unown_name(owner)
    del side_bar
    return 0
