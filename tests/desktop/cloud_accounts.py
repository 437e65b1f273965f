"""Program with a side bar: prints the accounts of all cloud providers at each change, as JSON.

Runs in the system's Python.
"""

import json
from typing import Any

import gi

gi.require_version("CloudProviders", "0.3")
from gi.repository import CloudProviders, GLib  # noqa: E402

said: list[Any] = []


def look() -> bool:
    """Print the accounts if they have changed."""
    found = [
        [each.get_name(), each.get_path(), each.get_status().value_nick, each.get_status_details()]
        for provider in collector.get_providers()
        for each in provider.get_accounts()
    ]
    if found != said:
        said[:] = found
        print(json.dumps(found), flush=True)
    return True


collector = CloudProviders.Collector.dup_singleton()
GLib.timeout_add(50, look)
GLib.MainLoop().run()
