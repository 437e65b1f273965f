"""Profiles made from the profile `sandbox`: without some operations, or with other ones."""

import re
from collections.abc import Iterable
from importlib import resources

from zonedrive.remote import profiles

COMBINED = "combined-move"  # what sets name and folder in one request; there are two operations
TWO = """\
[rename]
method = "PUT"
path = "/api/sandbox/zones/{zone}/entries/{entry}"
body = { name = "{name}" }
[move]
method = "PUT"
path = "/api/sandbox/zones/{zone}/entries/{entry}"
body = { parentId = "{parent}" }
"""


def profile_without(operations: Iterable[str]) -> str:
    """Return the text of the profile `sandbox` without these operations, or without COMBINED."""
    text = (resources.files(profiles) / "sandbox.toml").read_text("utf-8")
    for name in operations:
        table = "move" if name == COMBINED else name
        pattern = rf"^\[{table}\]\n.*?(?=^\[)"
        text = re.sub(
            pattern, TWO if name == COMBINED else "", text, flags=re.DOTALL | re.MULTILINE
        )
    return text
