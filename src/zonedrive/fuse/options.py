"""Parser for the values of `-o`: settings, FUSE options, and mount(8) options without effect.

This module sorts the options into these kinds, and does not depend on pyfuse3. `config` checks the
values of settings.
"""

import difflib
import re
from dataclasses import dataclass, field

from zonedrive.config import NAMES
from zonedrive.errors import BadOption

# Passed to libfuse or the kernel unchanged.
KERNEL = frozenset([
    "allow_other", "allow_root", "ro", "default_permissions", "nosuid", "nodev", "noexec", "sync",
    "dirsync", "noatime",
])  # fmt: skip

# Options from mount(8), fstab and systemd that a FUSE file system can ignore. Those that would
# weaken a mount (suid, dev) are always off; the session sets max_read itself.
IGNORED = frozenset([
    "defaults", "rw", "exec", "suid", "dev", "async", "auto", "noauto", "user", "nouser", "users",
    "owner", "group", "nofail", "atime", "diratime", "nodiratime", "relatime", "norelatime",
    "strictatime", "nostrictatime", "lazytime", "nolazytime", "iversion", "noiversion", "mand",
    "nomand", "silent", "loud", "_netdev", "max_read", "comment", "helper", "uhelper",
])  # fmt: skip

LIKE = 0.7  # minimum similarity of an unknown name to a known name that an error suggests
REFUSED = {
    "remount": "unmount, and mount again with the new options",
    "auto_unmount": "a mount without its daemon must fail, not look like an empty folder",
    "fsname": "it is always the address of the service",
    "subtype": "it is always zonedrive",
}


@dataclass(frozen=True)
class Options:
    """Options of one mount, grouped by the component that evaluates them."""

    kernel: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)  # unparsed values for `config.load`
    account: str | None = None  # because an fstab line cannot contain --account
    setuid: bool = False  # for the mount helper, which mounts for another user
    debug: bool = False  # log every request


def parse(texts: tuple[str, ...] | list[str]) -> Options:
    """Parse the values of all `-o` options, each a comma-separated list, and return the options.

    In an item, `\\,` stands for a comma. Raises BadOption for an option that is unknown or not
    allowed.
    """
    kernel: list[str] = []
    settings: dict[str, str] = {}
    account = None
    setuid = debug = False
    for word in (part for text in texts for part in _split(text)):
        name, _, value = word.partition("=")
        if name in NAMES:
            settings[name] = value
        elif word in KERNEL:
            kernel.append(word)
        elif name == "account":
            if not value:
                raise BadOption("-o account: it is empty")
            account = value
        elif name == "setuid":
            setuid = True
        elif word == "debug":
            debug = True
        elif name == "max_read" and not re.fullmatch(r"[0-9]+", value):
            raise BadOption(f"-o max_read: {value!r} is not a number of bytes")
        elif name in REFUSED:
            raise BadOption(f"-o {name} cannot be set: {REFUSED[name]}")
        elif name not in IGNORED and not name.startswith(("x-", "X-")):
            near = difflib.get_close_matches(name, (*NAMES, *KERNEL, "account"), 1, LIKE)
            raise BadOption(
                f"-o {name} is unknown",
                remedy=f"did you mean {near[0]}?" if near else "see 'man zonedrive.toml'",
            )
    return Options(tuple(dict.fromkeys(kernel)), settings, account, setuid, debug)


def _split(text: str) -> list[str]:
    parts = re.findall(r"(?:\\.|[^,\\])+", text)
    return [re.sub(r"\\(.)", r"\1", part) for part in parts]


def escaped(value: str) -> str:
    """Return an option's value with backslashes and commas escaped for `parse` and libfuse."""
    return value.replace("\\", "\\\\").replace(",", "\\,")


def for_session(options: Options, source: str) -> set[str]:
    """Return the options for libfuse; mount(8) shows `source` as the mounted device."""
    # With `default_permissions`, the kernel checks permissions, and sends no access request.
    fixed = {
        f"fsname={escaped(source)}",
        "subtype=zonedrive",
        "nosuid",
        "nodev",
        "default_permissions",
    }
    return fixed | set(options.kernel)
