"""Program with a side bar: prints the accounts of all cloud providers at each change, as JSON.

Each line of standard input is the name of an action of the first account, which is activated.  Runs
in the system's Python.
"""

import json
import sys
from typing import Any

import gi

gi.require_version("CloudProviders", "0.3")
from gi.repository import CloudProviders, GLib  # noqa: E402

said: list[Any] = []


def accounts() -> list[Any]:
    """Return the accounts of all providers."""
    return [each for provider in collector.get_providers() for each in provider.get_accounts()]


def labels(menu: Any) -> list[str]:
    """Return the labels of a menu, as far as they have arrived."""
    count = menu.get_n_items() if menu is not None else 0
    found = (menu.get_item_attribute_value(number, "label") for number in range(count))
    return [each.get_string() for each in found if each is not None]


def activate(source: Any, _condition: Any) -> bool:
    """Activate the action that is named on standard input."""
    action = source.readline().strip()
    if action:
        accounts()[0].get_action_group().activate_action(action, None)
    return bool(action)


def look() -> bool:
    """Print the accounts if they have changed."""
    found = [
        [
            each.get_name(), each.get_path(), each.get_status().value_nick,
            each.get_status_details(), labels(each.get_menu_model()),
        ]
        for each in accounts()
    ]  # fmt: skip
    if found != said:
        said[:] = found
        print(json.dumps(found), flush=True)
    return True


collector = CloudProviders.Collector.dup_singleton()
GLib.timeout_add(50, look)
GLib.io_add_watch(sys.stdin, GLib.PRIORITY_DEFAULT, GLib.IOCondition.IN, activate)
GLib.MainLoop().run()
