"""Manual pages zonedrive(1) and zonedrive.toml(5) in man(7) macros.

Knows nothing about reading definitions, which is done by `commands` and `config`.
"""

import re
import typing
from collections.abc import Iterator

from zonedrive import __version__
from zonedrive.cli.reference.commands import Command, Option
from zonedrive.config import KINDS, LIMITS, NAMES, Settings

EXITS = {
    0: "Done.",
    1: "It failed; one line on the standard error says why, and what to do.",
    2: "Wrong usage.",
    3: "Not logged on, or the credentials were refused.",
    4: "The service cannot be reached.",
    130: "Interrupted.",
}

FILES = {
    "~/.config/zonedrive/config.toml": "Settings, see {page}.",
    "~/.local/state/zonedrive/ACCOUNT/": "The logon, and what is not uploaded yet: do not delete.",
    "~/.cache/zonedrive/ACCOUNT/": "The cache. It may be deleted at any time.",
    "$XDG_RUNTIME_DIR/zonedrive/": "Control socket of the daemon.",
}

VARIABLES = {
    "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_RUNTIME_DIR": "Move the folders above.",
    "BROWSER": "The browser for a sign-on at a provider.",
    "NO_COLOR": "Show no colours.",
    "CREDENTIALS_DIRECTORY": "Where a unit of systemd hands over a password or token.",
}

FSTAB = """
A line of fstab(5), or a command, of the type fuse.zonedrive mounts the account that is logged on
at the address:

\b
https://service.example  /home/me/Zones  fuse.zonedrive  noauto,user  0  0

\b
mount -t fuse.zonedrive -o setuid=me https://service.example /home/me/Zones

Options are the settings of zonedrive.toml(5), those of FUSE (ro, allow_other, ...), account=NAME
where several accounts are logged on there, and setuid=USER with which root mounts for a user.
""".strip()

MEANING = {
    "settle": "Seconds after the last close of a file before its upload starts.",
    "close": "When close(2) returns: with the bytes safe on this disk, or with the version on the "
    "service (wait), and then with the error of its refusal.",
    "fsync": "What fsync(2) means: durable on this disk, or on the service.",
    "refresh": "Seconds for which the listing of a folder is trusted.",
    "cache_size": "Bytes of cached content on disk. 5 % of the disk stay free in any case.",
    "encrypt": "Whether content and names are encrypted on this disk.",
    "connections": "Connections to the service at the same time, at most; fewer while it is slow.",
    "upload_limit": "Bytes per second; 0 is no limit.",
    "download_limit": "Bytes per second; 0 is no limit.",
    "local_only": "Patterns of names that never leave this machine: what editors keep beside a "
    "file while they work on it.",
    "guard": "Programs whose reads never cause a download: thumbnailers, indexers.",
    "executable": "Whether the service's attribute 'executable', which coworkers can set, makes "
    "files runnable: no (ignore), or yes (keep). A chmod on this machine counts always.",
    "profile": "What the deployment offers beyond the published interface: the name of a profile "
    "that comes with zonedrive, or a file. Without it, the one given at logon.",
}
"""Description of each setting; a missing one is a bug."""


def zonedrive_1(root: Command) -> str:
    """Return the page of the command."""
    lines = [
        _title("ZONEDRIVE", 1, "User Commands"),
        *_name("zonedrive", root.brief.rstrip(".")),
        ".SH SYNOPSIS",
        ".B zonedrive",
        r"[\fB\-\-version\fR] [\fB\-\-help\fR] \fICOMMAND\fR [\fIARGS\fR]...",
        ".SH DESCRIPTION",
        *_paragraphs(root.text),
        ".SH COMMANDS",
    ]
    section = ""
    for command in root.below:
        if command.section != section:
            section = command.section
            lines.append(f".SS {_quoted(section)}")
        for one in command.walk():
            lines += _command(one)
    lines += [".SH MOUNTING BY FSTAB", *_paragraphs(FSTAB)]
    lines += [".SH EXIT STATUS", *_list({str(code): text for code, text in EXITS.items()})]
    files = {path: text.format(page="zonedrive.toml(5)") for path, text in FILES.items()}
    lines += [".SH FILES", *_list(files), ".SH ENVIRONMENT", *_list(VARIABLES)]
    lines += [".SH SEE ALSO", *_references("zonedrive.toml (5)", "fusermount3 (1)", "mount (8)")]
    return _page(lines)


def zonedrive_toml_5() -> str:
    """Return the page of the settings."""
    lines = [
        _title("ZONEDRIVE.TOML", 5, "File Formats"),
        *_name("zonedrive.toml", "settings of zonedrive"),
        ".SH SYNOPSIS",
        r".I \(ti/.config/zonedrive/config.toml",
        ".SH DESCRIPTION",
        *_paragraphs(
            "A file in the format TOML, read at every mount. Each setting is also an option of a "
            "mount, under the same name, which goes before the file.\n\nA table [account.NAME] "
            "holds what is different for one account. A setting that does not exist, or a value "
            "that cannot be, is refused with its line.\n\nOn a command line and in fstab(5) the "
            "parts of a list are separated by colons, and a comma in a value is written as \\,."
        ),
        ".SH SETTINGS",
    ]
    defaults = Settings()
    for name in NAMES:
        lines += [".TP", rf"\fB{_text(name)}\fR = {_kind(name)}", *_wrapped(MEANING[name])]
        lines += _default(getattr(defaults, name))
    lines += [
        ".SH EXAMPLE",
        ".nf",
        "refresh = 5",
        'local_only = ["*.swp", "*\\(ti", "build\\-*"]',
        "",
        "[account.work]",
        'close = "wait"',
        "cache_size = 2000000000",
        ".fi",
        ".PP",
        "The same for one mount:",
        ".PP",
        ".nf",
        r"zonedrive mount \(ti/Zones \-o refresh=5,close=wait",
        ".fi",
        ".SH SEE ALSO",
        *_references("zonedrive (1)", "fstab (5)"),
    ]
    return _page(lines)


# --- parts ---------------------------------------------------------------------------------------


def _command(command: Command) -> Iterator[str]:
    words = " ".join(command.words)
    yield ".TP"
    yield rf"\fB{_text(words)}\fR {_text(command.synopsis)}"
    yield from _paragraphs(command.text, between=".IP")
    own = [option for option in command.options if "--help" not in option.names]
    if own:
        yield ".RS"
        for option in own:
            yield from _option(option)
        yield ".RE"


def _option(option: Option) -> Iterator[str]:
    names = ", ".join(rf"\fB{_text(name)}\fR" for name in option.names)
    yield ".TP"
    yield f"{names} \\fI{_text(option.value.shown)}\\fR" if option.value else names
    yield from _wrapped(option.help)


def _kind(name: str) -> str:
    kind = typing.get_type_hints(Settings)[name]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(rf"\fB{_text(repr(one))}\fR" for one in typing.get_args(kind))
    text = KINDS.get(kind, "a text")
    if name in LIMITS:
        text += f", {LIMITS[name][0]} to {LIMITS[name][1]}"
    return _text(text)


def _default(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, tuple):
        names = ", ".join(rf"\%{_text(one)}" for one in value)  # a name is not hyphenated
        return [".sp", f"Default: {names}"]
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return [".sp", f"Default: {_text(text)}"]


def _title(name: str, section: int, group: str) -> str:
    return f'.TH "{name}" "{section}" "" "zonedrive {__version__}" "{group}"'


def _name(name: str, what: str) -> list[str]:
    return [".SH NAME", rf"{_text(name)} \- {_text(what[:1].lower() + what[1:])}"]


def _list(entries: dict[str, str]) -> Iterator[str]:
    for term, text in entries.items():
        yield ".TP"
        yield rf"\fB{_text(term)}\fR"
        yield from _wrapped(text)


def _references(*pages: str) -> Iterator[str]:
    for number, page in enumerate(pages, 1):
        yield f".BR {_text(page)}" + (" ," if number < len(pages) else "")


def _paragraphs(text: str, between: str = ".PP") -> Iterator[str]:
    """Yield a help text, split at empty lines; lines after `\\b` stay as they are."""
    for number, paragraph in enumerate(text.split("\n\n")):
        lines = paragraph.strip("\n").splitlines()
        if number:
            yield between
        if lines[:1] == ["\b"]:
            yield from (".nf", *map(_line, lines[1:]), ".fi")
        else:
            yield from _wrapped(" ".join(lines))


def _wrapped(text: str) -> Iterator[str]:
    """Yield one sentence per line, as usual in the source of a page."""
    yield from map(_line, re.split(r"(?<=[.;:])\s+", text.strip()))


def _line(text: str) -> str:
    text = _text(text)
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _text(text: str) -> str:
    """Return `text` escaped, so that hyphens can be copied and backslashes are literal."""
    replaced = text.replace("\\", r"\e").replace("-", r"\-")
    return replaced.replace("~", r"\(ti").replace("^", r"\(ha").replace("'", r"\(aq")


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', r"\(dq") + '"'


def _page(lines: list[str]) -> str:
    head = '.\\" Made from the definitions of the commands; do not edit.\n'
    return head + "\n".join(lines) + "\n"
