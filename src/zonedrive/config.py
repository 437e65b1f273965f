"""Settings from config.toml and from `-o` options.

The settings are validated when they are loaded, and are read-only afterwards. A setting has the
same name and meaning in the file and in `-o`. Tables `[account.NAME]` in the file override the top
level for one account.
"""

import contextlib
import difflib
import re
import stat
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from zonedrive import service_address, toml_input
from zonedrive.errors import BadOption, ConfigError
from zonedrive.paths import (
    DEFAULT_ACCOUNT,
    POLICY_FOLDERS,
    SYSTEM_FOLDER,
    expanded,
    has_accounts,
    is_absolute,
    name_remedy,
    no_folder,
    obstacle,
    quoted,
    state_dir,
    write_private,
)
from zonedrive.translation import marked

LONGEST = 1 << 20  # bytes of a settings file

# Temporary files that editors, office suites and desktops create next to a file.
LOCAL_ONLY = (
    ".~lock.*#",  # LibreOffice lock
    "lu*.tmp",  # LibreOffice save
    "*.swp",  # vim swap; not *.sw[a-p]: .swf, .swc and .swb are people's documents
    ".*.sw[a-px]",
    ".sw[a-p]",
    ".*.kate-swp",
    "4913",  # vim probes whether it may create files
    "*~",  # backups and undo files of vim, emacs, gedit
    ".#*",  # emacs lock
    "#*#",  # emacs auto-save
    ".goutputstream-*",  # GLib save
    ".xdp-*",  # document portal: a file next to the one that a sandboxed program was given
    ".~tmp~",  # rsync --delay-updates
    "~$*",  # Word and Excel owner file
    ".DS_Store",
    "._*",
    ".Trash-*",
    ".Trash",
    ".fuse_hidden0*",  # removed while open, by another file system below or above this one
    ".nfs0*",
)

# Desktop programs that read every file to create thumbnails or an index. An item is the name of a
# program, of a script, or of a plug-in run by kioslave5 or kioworker (which also copy files for the
# user). If a program does this among other work, the thread's name follows after a slash. GLib
# uses O_NOATIME only for files that it opens to detect their type, because a name can be ambiguous
# (*.png and *.json are two types each on some systems). If GLib cannot open the file, it uses the
# name.
GUARD = (
    "tumblerd", "gdk-pixbuf-thumbnailer", "totem-video-thumbnailer", "ffmpegthumbnailer",
    "evince-thumbnailer", "papers-thumbnailer", "atril-thumbnailer", "xreader-thumbnailer",
    "gsf-office-thumbnailer", "gnome-epub-thumbnailer", "gnome-thumbnail-font",
    "mate-thumbnail-font", "glycin-thumbnailer", "raw-thumbnailer",
    "tracker-extract", "tracker-extract-3", "tracker-miner-fs", "tracker-miner-fs-3",
    "localsearch-3", "localsearch-extractor-3", "baloo_file", "baloo_file_extractor",
    "thumbnail.so",  # KDE's
    "pcmanfm/loader", "caja/O_NOATIME", "gio/O_NOATIME", "nautilus/O_NOATIME", "nemo/O_NOATIME",
    "pcmanfm/O_NOATIME", "pcmanfm-qt/O_NOATIME", "thunar/O_NOATIME", "xfdesktop/O_NOATIME",
    "recollindex", "updatedb",
)  # fmt: skip

# Minimum and maximum value of a setting; a time of more than a day is treated as a mistake.
LIMITS = {
    "settle": (0, 86_400),
    "refresh": (0, 86_400),
    "cache_size": (0, 1 << 60),
    "upload_limit": (0, 1 << 40),
    "download_limit": (0, 1 << 40),
    "connections": (1, 64),
}
SIZES = ("cache_size", "upload_limit", "download_limit")
UNITS = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
KINDS: dict[object, str] = {
    int: "a whole number",
    float: "a number of seconds",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}
BOOLEANS = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}

MOST_TRANSFERS = 8  # each transfer needs a thread and a connection; more would not be faster


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one account; each field has its default value."""

    settle: float = 1.0  # seconds after the last close before an upload starts
    close: Literal["background", "wait"] = "background"
    fsync: Literal["local", "service"] = "local"
    unchanged: Literal["skip", "version"] = "skip"  # effect of a save that changes no byte
    refresh: float = 10.0  # seconds a folder listing is trusted
    cache_size: int = 10 << 30  # bytes on disk
    encrypt: bool = True  # content and names at rest
    connections: int = 32  # maximum number of concurrent requests, and of uploads (at least 2)
    upload_limit: int = 0  # bytes per second, 0: none
    download_limit: int = 0
    local_only: tuple[str, ...] = LOCAL_ONLY  # names that never leave this machine
    guard: tuple[str, ...] = GUARD  # programs whose reads cause no download
    executable: Literal["ignore", "keep"] = "ignore"  # the service's attribute of a file
    profile: str | None = None  # None: the profile that was given at logon, else `published`
    never_uploaded: tuple[str, ...] = ()  # names of the policy `local_only`, in any case of letters

    @property
    def transfers(self) -> int:
        """Maximum number of concurrent uploads, and separately of concurrent downloads.

        Transfers of small files do not count towards this number.
        """
        return min(self.connections, MOST_TRANSFERS)


NAMES = tuple(name for name in Settings.__struct_fields__ if name != "never_uploaded")
HINTS = typing.get_type_hints(Settings)
LISTS = tuple(name for name in NAMES if typing.get_origin(HINTS[name]) is tuple)


def choices(name: str) -> tuple[str, ...]:
    """Return the allowed values of a setting, or () if they are not a fixed list of strings."""
    kind = HINTS[name]
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """Administrator's settings for one account, which consist of defaults and policies.

    INVARIANT: an error in the administrator's file is stored in `problems`, and raised by
    `check_logon` only. If a policy that can forbid an action (uploads, logons, saving passwords)
    cannot be read, that action is forbidden. Any other policy that cannot be read has its default
    value; for `cache_size`, a smaller value of the user stays in effect.
    """

    base_url: str | None = None  # normalized
    ca_file: str | None = None  # absolute path
    profile: str | None = None  # for a logon without --profile
    defaults: dict[str, object] = {}  # settings below the user's own
    policy: dict[str, object] = {}  # values that users cannot change
    closed: dict[str, ConfigError] = {}  # policies that cannot be read, each with its problem
    problems: tuple[ConfigError, ...] = ()

    @property
    def is_read_only(self) -> bool:
        """True if a mount must not upload, because the policy `local_only` cannot be read."""
        return "local_only" in self.closed

    @property
    def allows_logon(self) -> bool:
        """True if the policies for service, CA file, profile and state folder could be read."""
        return self.closed.keys().isdisjoint((*LOGON_POLICIES, "state_dir"))

    @property
    def allows_saved_password(self) -> bool:
        """True unless the policy forbids saving passwords or cannot be read."""
        return "save_password" not in self.closed and bool(self.policy.get("save_password", True))

    def is_service(self, base_url: str) -> bool:
        """Return True if `base_url` is the organization's service, or if no service is set.

        Raises ConfigError if `base_url` is not valid.
        """
        return self.base_url in (None, service_address.base_url(base_url))

    def check_service(self, base_url: str, option: str | None = None) -> None:
        """Raise ConfigError if the policy names a service other than `base_url`.

        `option` selects the account in the suggested command (see `AccountPaths.option`). None
        means that the user has just entered `base_url`, so the remedy contains no command.
        """
        if "base_url" in self.policy and not self.is_service(base_url):
            raise ConfigError(
                f"the organization's policy allows only {self.base_url}, not {base_url}",
                remedy="leave the address out"
                if option is None
                else f"run 'zonedrive logon{option}' without an address",
            )

    def check_logon(self, *, ca_file: str | None, profile: str | None, save_password: bool) -> None:
        """Raise ConfigError if a policy forbids an option of the logon.

        Also raises ConfigError if a policy that can forbid a logon cannot be read.
        """
        for name in (*LOGON_POLICIES, "state_dir"):
            if name in self.closed:
                raise self.closed[name]
        if save_password and not self.allows_saved_password:
            raise ConfigError(
                "the organization's policy forbids saving the password",
                remedy="log on without --save-password",
            )
        for option, given in (("ca_file", ca_file), ("profile", profile)):
            if option in self.policy and given not in (None, self.policy[option]):
                name = option.replace("_", "-")
                raise ConfigError(
                    f"the organization's policy sets {option} to {self.policy[option]}",
                    remedy=f"log on without --{name}",
                )

    def applied(
        self, own: Mapping[str, object], tell: Callable[[str], None] | None = None
    ) -> Settings:
        """Return the user's settings, completed with the defaults and overridden by the policy.

        For a list, the user's items are added to those of the policy. `tell` is called with a line
        for each value of the user that the policy overrides.
        """
        values: dict[str, object] = {**self.defaults, **own}
        rule: dict[str, object] = {n: v for n, v in self.policy.items() if n in NAMES}
        rule |= {name: getattr(Settings(), name) for name in self.closed if name in NAMES}
        if "cache_size" in self.closed:
            given = values.get("cache_size")
            most = Settings().cache_size
            rule["cache_size"] = min(most, given) if isinstance(given, int) else most
        for name, value in rule.items():
            if isinstance(value, tuple):  # the user may add items
                listed = values.get(name, getattr(Settings(), name))
                values[name] = tuple(dict.fromkeys((*value, *listed)))  # type: ignore[misc]
                continue
            if tell is not None and name in own and own[name] != value:
                tell(f"{name} is set by the organization's policy; your value is not used")
            values[name] = value
        never = ("*",) if self.is_read_only else self.policy.get("local_only", ())
        return Settings(**values, never_uploaded=never)  # type: ignore[arg-type]


LOGON_POLICIES = ("base_url", "ca_file", "profile")
POLICIES = (*NAMES, *POLICY_FOLDERS, "base_url", "ca_file", "save_password")


def organization(account: str, folder: Path = SYSTEM_FOLDER) -> Organization:
    """Return the administrator's settings for `account`, from config.toml in `folder`.

    Errors are not raised, but stored in `problems` of the result.
    """
    path = folder / "config.toml"
    try:
        text, found = _document(path, ADMINISTRATOR)
    except ConfigError as wrong:
        asked = ConfigError(wrong.message, remedy=ADMINISTRATOR)
        return Organization(closed=dict.fromkeys(POLICIES, asked), problems=(asked,))
    policy, accounts = found.pop("policy", {}), found.pop("account", {})
    problems = _wrong_tables(path, text, accounts)
    ours = accounts.get(account) if isinstance(accounts, dict) else None

    def read(
        table: tuple[str, ...], source: Mapping[str, object]
    ) -> tuple[dict[str, object], dict[str, ConfigError]]:
        """Return the valid values of the table `source`, and the errors of the others, by name."""
        values: dict[str, object] = {}
        refused: dict[str, ConfigError] = {}
        for name, value in source.items():
            where = f"{path}:{toml_input.line_of(text, (*table, name))}"
            try:
                found = _of_organization(name, value, where, folder, table)
                if (*table, name) != ("policy", "local_only"):
                    values[name] = found  # the correct items of a list have their effect
                _require_effect(name, found, where)
                values[name] = found
            except ConfigError as wrong:
                refused[name] = ConfigError(wrong.message, remedy=wrong.remedy or ADMINISTRATOR)
        problems.extend(refused.values())
        return values, refused

    defaults, unknown = read((), found)
    defaults |= read(("account", account), ours if isinstance(ours, dict) else {})[0]
    rules: dict[str, object] = {}
    closed: dict[str, ConfigError] = {}
    misspelled = [unknown[name] for name in found if _is_like_policy(name, found[name])]
    if isinstance(policy, dict):
        rules, refused = read(("policy",), policy)
        closed = {name: refused[name] for name in policy if name not in rules}
        misspelled += [closed[name] for name in closed if name not in POLICIES]
    else:
        misspelled.append(ConfigError(f"{path}: policy must be a table", remedy=ADMINISTRATOR))
        problems.append(misspelled[-1])
    if misspelled:  # any policy may be meant
        closed = {name: closed.get(name, misspelled[0]) for name in POLICIES}
    named = {name: rules.get(name, defaults.pop(name, None)) for name in LOGON_POLICIES}
    return Organization(
        **named,  # type: ignore[arg-type]
        defaults=defaults,
        policy=rules,
        closed=closed,
        problems=tuple(problems),
    )


def _is_like_policy(name: str, value: object) -> bool:
    """Return True for an unknown table whose name may be a misspelling of `policy`."""
    return (
        name not in NAMES
        and isinstance(value, dict | list)
        and bool(difflib.get_close_matches(name.lower(), ("policy", "policies"), 1, 0.7))
    )


ADMINISTRATOR = "ask the administrator of this computer to correct it"


def unless_policy(name: str, remedy: str) -> str:
    """Return `remedy`, or the remedy "ask the administrator ..." if a policy sets `name`.

    `remedy` tells the user to change the setting `name`. Policies are the same for all accounts, so
    the function needs no account.
    """
    if name in organization(DEFAULT_ACCOUNT).policy:
        return marked(f"ask the administrator of this computer to correct the policy {name}")
    return remedy


def on_this_machine() -> str:
    """Return the remedy for a state folder whose file system does not support locks or databases.

    If the folder contains accounts, the remedy is to move the folder, so that no pending change is
    lost.
    """
    remedy = marked("set XDG_STATE_HOME to a folder on a disk of this machine")
    if has_accounts():
        remedy = marked(
            f"move {quoted(state_dir())} to a folder on a disk of this machine, and set"
            " XDG_STATE_HOME to that folder"
        )
    return unless_policy("state_dir", remedy)


def _of_organization(
    name: str, value: object, where: str, folder: Path, table: tuple[str, ...]
) -> object:
    """Return the validated value of the setting or policy `name` from the administrator's file.

    A relative path is relative to `folder`, and is made absolute. `where` is the file and line of
    the value, for messages. `table` has the keys of the table that contains the value; () means the
    top level. Raises ConfigError if the value is not valid.
    """
    if name == "save_password" and table == ("policy",):
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{where}: save_password cannot be {value!r}", remedy="use true or false")
    if name in POLICY_FOLDERS and table == ("policy",):  # `paths` reads it, too
        if is_absolute(value):
            return value
        raise ConfigError(f"{where}: {name} cannot be {value!r}", remedy="use an absolute path")
    if name in ("base_url", "ca_file") and table:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ConfigError(f"{where}: {name} cannot be {value!r}", remedy="use a text")
        if name == "base_url" and not value.startswith("https://"):
            raise ConfigError(f"{where}: {name} must start with https://")
        if name == "base_url":
            try:
                return service_address.base_url(value)
            except ConfigError as wrong:
                raise ConfigError(f"{where}: {wrong.message}", remedy=wrong.remedy) from wrong
        if name == "ca_file" and table == ("policy",):
            _require_certificates(folder / value, where)
        return str(folder / value)
    if name == "profile" and table == ("policy",) and not value:
        raise ConfigError(f"{where}: {name} cannot be {value!r}", remedy="use a name or a path")
    names = {("policy",): POLICIES, (): (*NAMES, "policy")}.get(
        table, (*NAMES, "base_url", "ca_file")
    )
    return _converted(name, value, where, folder, names)


def _wrong_tables(path: Path, text: str, accounts: object) -> list[ConfigError]:
    """Return an error for each item of the table `account` that is not an account's table."""
    found = []
    items = accounts.items() if isinstance(accounts, dict) else [("", accounts)]
    for account, table in items:
        where = f"{path}:{toml_input.line_of(text, ('account', account))}"
        if not isinstance(table, dict):
            found.append(
                ConfigError(
                    f"{where}: account must be tables such as [account.default]",
                    remedy="write settings for all accounts above the first table",
                )
            )
        elif remedy := name_remedy(account):
            found.append(ConfigError(f"{where}: {account!r} is not an account name", remedy=remedy))
    return found


def _require_certificates(path: Path, where: str) -> None:
    import ssl  # most commands do not need it

    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(OSError):  # also an error of ssl
        if stat.S_ISREG(path.stat().st_mode):
            trusted.load_verify_locations(path)
    if not trusted.cert_store_stats()["x509"]:
        raise ConfigError(f"{where}: {path} has no certificates that can be read")


def load(
    path: Path,
    account: str,
    options: Mapping[str, str] | None = None,
    *,
    system: Organization | None = None,
    tell: Callable[[str], None] | None = None,
) -> Settings:
    """Read the settings of `account`, overridden by `-o` options.

    The file at `path` need not exist. A relative path of a profile is relative to the folder of the
    file or, in an option, to the current folder. `system` has the administrator's settings; None
    means that they are read from SYSTEM_FOLDER. `tell` is called with a line for each problem in
    the administrator's settings, and for each value of the user that these settings override.
    Raises ConfigError for an invalid file or value, and BadOption for an invalid option.
    """
    if blocked := obstacle(path.parent):
        raise no_folder(blocked)
    text, found = _document(path, "fix the file")
    accounts = found.pop("account", {})
    if wrong_tables := _wrong_tables(path, text, accounts):
        raise wrong_tables[0]
    values: dict[str, object] = {}
    for table, source in (((), found), (("account", account), accounts.get(account, {}))):
        for name, value in source.items():
            line = toml_input.line_of(text, (*table, name))
            values[name] = _checked(name, value, f"{path}:{line}", path.parent)
    for name, given in (options or {}).items():
        try:
            values[name] = _checked(name, _from_text(name, given), "-o", Path())
        except ConfigError as wrong:
            raise BadOption(wrong.message, remedy=wrong.remedy) from wrong
    shared = organization(account) if system is None else system
    if tell is not None:
        for problem in shared.problems:
            tell(problem.line())
    return shared.applied(values, tell)


def change(path: Path, account: str, values: Mapping[str, str | None]) -> None:
    """Change settings of `account` in the file at `path`, and keep the file's comments.

    `values` maps the name of a setting to its new value as text, or to None, which removes the
    setting. A text has the form of a `-o` option, except that each item of a list is on its own
    line. On an error (ConfigError or OSError), the file is unchanged.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text, meant = _document(path, "fix the file")
    if wrong_tables := _wrong_tables(path, text, meant.get("account", {})):
        raise wrong_tables[0]
    own = meant.setdefault("account", {}).setdefault(account, {})
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as wrong:
        raise ConfigError(f"{path} cannot be read ({wrong})", remedy="fix the file") from wrong
    for name, given in values.items():
        if given is None:
            own.pop(name, None)
            continue
        value: object = _from_text(name, given)
        if isinstance(value, tuple):
            value = [item for line in given.splitlines() if (item := line.strip())]
        _checked(name, value, str(path), path.parent)
        own[name] = value
    with contextlib.suppress(ValueError, TypeError, TOMLKitError):  # not every form can be extended
        _set(document, account, {name: own.get(name) for name in values})
        changed = tomlkit.dumps(document)
        if _without_empty(toml_input.parse(changed)) == _without_empty(meant):
            write_private(path.resolve(), changed.encode())
            return
    raise ConfigError(f"{path} cannot be changed here", remedy="change the setting in the file")


def _set(document: typing.Any, account: str, values: Mapping[str, object]) -> None:
    """Set values in the account's table of a tomlkit document; None removes a value."""
    import tomlkit

    table = document
    for name in ("account", account):
        table.setdefault(name, tomlkit.table(is_super_table=True))
        table = table[name]
    for name, value in values.items():
        if value is None:
            table.pop(name, None)
        elif isinstance(value, list):  # one item in each line, because lines have a limit
            items = tomlkit.array()
            items.extend(value)
            table[name] = items.multiline(len(value) > 1)
        else:
            table[name] = value


def _without_empty(document: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Return a settings document without the tables of accounts that have no setting."""
    accounts = {name: table for name, table in document.get("account", {}).items() if table}
    return {**document, "account": accounts}


def as_text(value: object) -> str:
    """Return the value of a setting as a string that `change` accepts."""
    if isinstance(value, tuple):
        return "\n".join(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        for unit in ("T", "G", "M", "K"):
            if value and value % UNITS[unit] == 0:
                return f"{value // UNITS[unit]}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _document(path: Path, remedy: str) -> tuple[str, dict[str, typing.Any]]:
    """Return the text of a settings file and its parsed tables.

    Raises ConfigError if the file cannot be read. If the file cannot be parsed, the ConfigError has
    the remedy `remedy`.
    """
    text = _text(path)
    try:
        return text, toml_input.parse(text)
    except toml_input.WrongDocument as wrong:
        at = f", line {wrong.line}" if wrong.line else ""
        raise ConfigError(f"{path}{at} cannot be read ({wrong})", remedy=remedy) from wrong


def _text(path: Path) -> str:
    """Return the text of a settings file, or "" if the file does not exist.

    Raises ConfigError if the file cannot be read, is too long or is not UTF-8. Also raises
    ConfigError if a link in the path is broken, because the file may be on a disk that is not
    mounted yet.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            raise ConfigError(f"{path} is not a file", remedy="move it away")
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ConfigError(f"{path} is longer than {LONGEST} bytes", remedy="shorten it")
        return data.decode("utf-8-sig")
    except FileNotFoundError as missing:
        if link := obstacle(path):
            raise ConfigError(
                f"{path} cannot be read: {link} is a broken link",
                remedy="mount or create its target, or remove it",
            ) from missing
        return ""
    except OSError as wrong:
        raise ConfigError(
            f"{path} cannot be read ({wrong.strerror})", remedy="make it readable, or move it away"
        ) from wrong
    except UnicodeDecodeError as wrong:
        line = wrong.object[: wrong.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", remedy="fix the file") from wrong


def profile_at(name_or_path: str, folder: Path) -> str:
    """Return a profile's name unchanged, or a profile's path as an absolute path.

    A relative path is relative to `folder`. Raises ConfigError for `~USER` with an unknown user.
    """
    if "/" not in name_or_path and not name_or_path.endswith(".toml"):
        return name_or_path
    return str((folder / expanded(name_or_path)).absolute())


def _checked(name: str, value: object, where: str, folder: Path) -> object:
    """Return a value converted to the type of the setting `name`, after all checks.

    The parameters and errors are those of `_converted` and `_require_effect`.
    """
    found = _converted(name, value, where, folder)
    _require_effect(name, found, where)
    return found


def _require_effect(name: str, value: object, where: str) -> None:
    """Raise ConfigError for an item of `local_only` or `guard` that matches nothing."""
    if name not in ("local_only", "guard"):
        return
    for item in typing.cast(tuple[str, ...], value):
        # An item of `guard` can be PROGRAM/THREAD.
        if not item or "/" in (item if name == "local_only" else (item[0], item[-1])):
            raise ConfigError(
                f"{where}: {name} cannot have {item!r}, which matches nothing",
                remedy="use names without folders",
            )


def _converted(
    name: str, value: object, where: str, folder: Path, names: tuple[str, ...] = NAMES
) -> object:
    """Return a value converted to the type of the setting `name`.

    The message about an unknown name suggests the most similar of `names`, or lists all of them. A
    relative path of a profile is relative to `folder`. Raises ConfigError with a message that
    starts with `where`.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(names)}"
        raise ConfigError(f"{where}: there is no setting {name!r}", remedy=hint)
    kind = HINTS[name]
    allowed = " or ".join(choices(name)) or KINDS.get(kind, "a text")
    if name in SIZES:
        value, allowed = _size(value), "a number of bytes, for example 500M or 10G"
    try:
        found = msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as wrong:
        raise ConfigError(
            f"{where}: {name} cannot be {value!r}", remedy=f"use {allowed}"
        ) from wrong
    if isinstance(found, str) and "\0" in found:
        raise ConfigError(f"{where}: {name} cannot be {value!r}", remedy=f"use {allowed}")
    low, high = LIMITS.get(name, (None, None))
    if low is not None and not low <= found <= high:  # also rejects nan
        raise ConfigError(f"{where}: {name} cannot be {value!r}", remedy=f"use {low} to {high}")
    return profile_at(found, folder) if name == "profile" and found else found


def _size(value: object) -> object:
    """Return the number of bytes for a string such as `10G`; return other values unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]{1,18}) ?([KMGT])?(i?B)?", value, re.IGNORECASE | re.ASCII)
    return int(found[1]) * UNITS[found[2] and found[2].upper()] if found else value


def _from_text(name: str, text: str) -> object:
    """Convert the text of an option to the type of the setting `name`.

    The items of a list are separated by colons. If the text cannot be converted, return the text.
    """
    kind = HINTS.get(name)
    if kind is bool:
        return BOOLEANS.get(text.lower(), text)
    if kind in (int, float):
        with contextlib.suppress(ValueError):
            return int(text) if kind is int else float(text)
    if typing.get_origin(kind) is tuple:
        return tuple(part for part in text.split(":") if part)
    return text
