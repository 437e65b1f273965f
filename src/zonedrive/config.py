"""The settings: config.toml, overridden by `-o` options, checked once, read-only afterwards.

A setting means the same and has the same name in both places.  Tables `[account.NAME]` in the
file override the top level for one account.
"""

import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from zonedrive.errors import ConfigError

GIB = 1 << 30

# What editors, office suites and desktops keep beside a file while they work on it.
LOCAL_ONLY = (
    ".~lock.*#",  # LibreOffice lock
    "lu*.tmp",  # LibreOffice save
    "*.sw[a-p]",  # vim swap
    ".*.sw[a-p]",
    "*.un~",
    "4913",  # vim probes whether it may create files
    "*~",  # backups of vim, emacs, gedit
    ".#*",  # emacs lock
    "#*#",  # emacs auto-save
    ".goutputstream-*",  # GLib save
    ".~tmp~",  # rsync --delay-updates
    "~$*",  # Word and Excel owner file
    ".DS_Store",
    "._*",
    ".Trash-*",
    ".Trash",
    ".fuse_hidden*",
    ".nfs*",
)

# Desktop programs that read every file they see, to draw or index it.
GUARD = (
    "tumblerd",
    "gdk-pixbuf-thumbnailer",
    "totem-video-thumbnailer",
    "ffmpegthumbnailer",
    "evince-thumbnailer",
    "tracker-extract",
    "tracker-extract-3",
    "tracker-miner-f",
    "localsearch-3",
    "baloo_file",
    "baloo_file_extractor",
    "kioslave5",
    "recollindex",
    "updatedb",
)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting with its default."""

    settle: float = 1.0  # seconds after the last close before an upload starts
    close: Literal["background", "wait"] = "background"
    fsync: Literal["local", "service"] = "local"
    refresh: float = 10.0  # seconds a folder listing is trusted
    cache_size: int = 10 * GIB  # bytes on disk
    encrypt: bool = True  # content and names at rest
    connections: int = 8  # to the service, at the same time
    upload_limit: int = 0  # bytes per second, 0: none
    download_limit: int = 0
    local_only: tuple[str, ...] = LOCAL_ONLY  # names that never leave this machine
    guard: tuple[str, ...] = GUARD  # programs whose reads cause no download
    profile: str | None = None  # None: the one given at logon, else `published`

    def __post_init__(self) -> None:
        for name in ("settle", "refresh", "cache_size", "upload_limit", "download_limit"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative")
        if not 1 <= self.connections <= 64:
            raise ValueError("connections must be from 1 to 64")


NAMES = Settings.__struct_fields__


def load(path: Path, account: str, options: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of `account`, with `-o` options as text on top.

    A missing file means the defaults.  Raises ConfigError, naming file and setting.
    """
    values: dict[str, object] = {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        document = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise ConfigError(f"{path} cannot be read ({wrong})", remedy="mend the file") from wrong
    accounts = document.pop("account", {})
    if not isinstance(accounts, dict) or not isinstance(accounts.get(account, {}), dict):
        raise ConfigError(f"{path}: account must be tables such as [account.default]")
    for source in (document, accounts.get(account, {})):
        for name in source:
            _known(name, f"{path}")
        values.update(source)
    for name, text in (options or {}).items():
        _known(name, "-o")
        values[name] = _from_text(name, text)
    try:
        return msgspec.convert(values, Settings, strict=True)
    except msgspec.ValidationError as wrong:
        where = f"-o or {path}" if options else f"{path}"
        raise ConfigError(f"a setting in {where} is wrong: {wrong}", remedy="mend it") from wrong


def _known(name: str, where: str) -> None:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(NAMES)}"
        raise ConfigError(f"{where}: there is no setting {name!r}", remedy=hint)


def _from_text(name: str, text: str) -> object:
    """The value that `name=text` means; lists are separated by colons, as in PATH."""
    kind = typing.get_type_hints(Settings)[name]
    origin = typing.get_origin(kind)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "": True,
                    "false": False, "0": False, "no": False}[text.lower()]  # fmt: skip
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except (KeyError, ValueError) as wrong:
        raise ConfigError(f"-o {name}: {text!r} is not a value for it") from wrong
    if origin is tuple:
        return tuple(part for part in text.split(":") if part)
    if origin in (typing.Union, types.UnionType) or origin is Literal or kind is str:
        return text
    raise AssertionError(f"no reading for {kind}")
