r"""Manual pages and shell completions, made from the definitions of commands and settings.

`python -m zonedrive.cli.reference FOLDER` writes them to a `share` folder. In ~/.local/share, man,
bash and fish find them. The completions ask zonedrive itself (see click.shell_completion).
"""

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from zonedrive import __version__
from zonedrive.cli import text_output
from zonedrive.cli.main import SECTIONS, program
from zonedrive.config import KINDS, LIMITS, NAMES, Settings

SHELLS = {
    "bash": "bash-completion/completions/zonedrive",
    "zsh": "zsh/site-functions/_zonedrive",
    "fish": "fish/vendor_completions.d/zonedrive.fish",
}
"""Path of each shell's completion script below a `share` folder."""

EXITS = {
    0: "Success.",
    1: "Failure; one line on standard error gives the reason and the remedy.",
    2: "Wrong usage.",
    3: "Not logged on, or the credentials were refused.",
    4: "The service cannot be reached.",
    130: "Interrupted.",
}

FILES = {
    "~/.config/zonedrive/config.toml": "Settings, see zonedrive.toml(5).",
    "~/.local/state/zonedrive/ACCOUNT/": "The logon, and changes that are not uploaded yet: do not "
    "delete.",
    "~/.cache/zonedrive/ACCOUNT/": "The cache. It may be deleted at any time.",
    "$XDG_RUNTIME_DIR/zonedrive/": "Control socket of the daemon.",
}

VARIABLES = {
    "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_RUNTIME_DIR": "Move the folders above.",
    "BROWSER": "Browser for a sign-on at an identity provider.",
    "NO_COLOR": "Disable colours.",
    "CREDENTIALS_DIRECTORY": "Folder in which systemd provides a password or token to a unit.",
}

FSTAB = """
A line in fstab(5), or a mount command, with the type fuse.zonedrive mounts the account that is
logged on at the address:

\b
https://service.example  /home/me/Zones  fuse.zonedrive  noauto,user  0  0

\b
mount -t fuse.zonedrive -o setuid=me https://service.example /home/me/Zones

Options are the settings of zonedrive.toml(5), those of FUSE (ro, allow_other, ...), account=NAME
if several accounts are logged on there, and setuid=USER, with which root mounts for a user.
"""

SETTINGS_FILE = """
A TOML file that is read at every mount. Each setting is also a mount option of the same name, which
overrides the file.

A table [account.NAME] contains the settings of one account. An unknown setting or an invalid value
is an error that names its line.

On a command line and in fstab(5), list items are separated by colons, and a comma in a value is
written as \\,.
"""

EXAMPLE = """
\b
refresh = 5
local_only = ["*.swp", "*~", "build-*"]

[account.work]
close = "wait"
cache_size = 2000000000
"""

MOUNT_EXAMPLE = """
The same for one mount:

\b
zonedrive mount ~/Zones -o refresh=5,close=wait
"""

MEANING = {
    "settle": "Seconds between the last close of a file and the start of its upload.",
    "close": "When close(2) returns: once the data is safe on this disk (background), or once the "
    "service has the version (wait), with the error if the service refuses it.",
    "fsync": "What fsync(2) guarantees: that the data is on this disk, or on the service.",
    "refresh": "Seconds for which a folder listing is considered current.",
    "cache_size": "Maximum bytes of cached content on disk. At least 5 % of the disk stays free.",
    "encrypt": "Whether content and names are encrypted on this disk.",
    "connections": "Maximum number of simultaneous connections; fewer while the service is slow.",
    "upload_limit": "Bytes per second; 0 means no limit.",
    "download_limit": "Bytes per second; 0 means no limit.",
    "local_only": "Patterns of names that never leave this machine, such as editors' temporary "
    "files.",
    "guard": "Programs whose reads never cause a download: thumbnailers and indexers.",
    "executable": "Whether the service's attribute 'executable', which coworkers can set, makes "
    "files executable: no (ignore), or yes (keep). A chmod on this machine always takes effect.",
    "profile": "Operations that the deployment offers beyond the published interface: the name of "
    "a profile that comes with zonedrive, or a file. Default: the profile given at logon.",
}
"""Description of each setting."""


def contexts(
    command: click.Command = program, parent: click.Context | None = None, name: str = "zonedrive"
) -> Iterator[click.Context]:
    """Yield a context of the command and of every command below it."""
    context = click.Context(command, parent, name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from contexts(below, context, each)


def options(context: click.Context) -> list[click.Option]:
    """Return the options of a command, without --help."""
    found = context.command.get_params(context)
    return [each for each in found if isinstance(each, click.Option) and "--help" not in each.opts]


def zonedrive_1() -> str:
    """Return the manual page of the command in man(7) macros."""
    root, *commands = contexts()
    sections = {name: title for title, section in SECTIONS.items() for name in section}
    text = inspect.cleandoc(root.command.help or "")
    lines = [
        *_begin("ZONEDRIVE", 1, "User Commands", text.partition("\n")[0].rstrip(".")),
        ".B zonedrive",
        r"[\fB\-\-version\fR] [\fB\-\-help\fR] \fICOMMAND\fR [\fIARGS\fR]...",
        ".SH DESCRIPTION",
        *_paragraphs(text),
        ".SH COMMANDS",
    ]
    title = ""
    for context in commands:
        if (new := sections.get(context.info_name or "", title)) != title:
            title = new
            lines.append(f'.SS "{_text(title)}"')
        lines += _command(context)
    lines += [".SH MOUNTING BY FSTAB", *_paragraphs(FSTAB)]
    lines += [".SH EXIT STATUS", *_list({str(code): text for code, text in EXITS.items()})]
    lines += [".SH FILES", *_list(FILES), ".SH ENVIRONMENT", *_list(VARIABLES)]
    lines += [".SH SEE ALSO", ".BR zonedrive.toml (5) ,", ".BR fusermount3 (1) ,", ".BR mount (8)"]
    return "\n".join(lines) + "\n"


def zonedrive_toml_5() -> str:
    """Return the manual page of the settings file in man(7) macros."""
    lines = [
        *_begin("ZONEDRIVE.TOML", 5, "File Formats", "settings of zonedrive"),
        r".I \(ti/.config/zonedrive/config.toml",
        ".SH DESCRIPTION",
        *_paragraphs(SETTINGS_FILE),
        ".SH SETTINGS",
    ]
    for name in NAMES:
        lines += [".TP", rf"\fB{_text(name)}\fR = {_values(name)}", *_sentences(MEANING[name])]
        lines += _default(getattr(Settings(), name))
    lines += [".SH EXAMPLE", *_literal(EXAMPLE), ".PP", *_paragraphs(MOUNT_EXAMPLE)]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR zonedrive (1) ,", ".BR fstab (5)"]) + "\n"


def _begin(name: str, section: int, group: str, brief: str) -> list[str]:
    """Return a page up to its synopsis."""
    return [
        '.\\" Generated from the definitions of the commands; do not edit.',
        f'.TH "{name}" "{section}" "" "zonedrive {__version__}" "{group}"',
        ".SH NAME",
        rf"{name.lower()} \- {_text(brief[:1].lower() + brief[1:])}",
        ".SH SYNOPSIS",
    ]


def _command(context: click.Context) -> Iterator[str]:
    synopsis = " ".join(context.command.collect_usage_pieces(context))
    yield from (".TP", rf"\fB{_text(context.command_path)}\fR {_text(synopsis)}")
    yield from _paragraphs(inspect.cleandoc(context.command.help or ""), between=".IP")
    yield ".RS"
    for option in options(context):
        usage, text = option.get_help_record(context) or ("", "")
        names = ", ".join(rf"\fB{_text(name)}\fR" for name in option.opts)
        value = usage.rpartition(option.opts[-1])[2].strip()
        yield from (".TP", f"{names} \\fI{_text(value)}\\fR" if value else names)
        yield from _sentences(text)
    yield ".RE"


def _values(name: str) -> str:
    kind = typing.get_type_hints(Settings)[name]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(rf"\fB{_text(repr(one))}\fR" for one in typing.get_args(kind))
    limits = f", {LIMITS[name][0]} to {LIMITS[name][1]}" if name in LIMITS else ""
    return _text(KINDS.get(kind, "a text") + limits)


def _default(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, tuple):
        return [".sp", "Default: " + ", ".join(rf"\%{_text(one)}" for one in value)]  # no hyphens
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return [".sp", f"Default: {_text(text)}"]


def _list(entries: Mapping[str, str]) -> Iterator[str]:
    for term, text in entries.items():
        yield from (".TP", rf"\fB{_text(term)}\fR", *_sentences(text))


def _paragraphs(text: str, between: str = ".PP") -> Iterator[str]:
    r"""Yield the paragraphs of a help text; lines after `\b` stay as they are."""
    for number, paragraph in enumerate(text.strip("\n").split("\n\n")):
        if number:
            yield between
        if paragraph.startswith("\b"):
            yield from _literal(paragraph)
        else:
            yield from _sentences(" ".join(paragraph.splitlines()))


def _literal(text: str) -> Iterator[str]:
    yield from (".nf", *map(_line, text.strip("\b\n").splitlines()), ".fi")


def _sentences(text: str) -> Iterator[str]:
    """Yield one sentence per line, as usual in the source of a page."""
    yield from map(_line, re.split(r"(?<=[.;:])\s+", text.strip()))


def _line(text: str) -> str:
    return ("\\&" if text.startswith((".", "'")) else "") + _text(text)


def _text(text: str) -> str:
    """Return `text` escaped, so that hyphens can be copied and backslashes are literal."""
    replaced = text.replace("\\", r"\e").replace("-", r"\-")
    return replaced.replace("~", r"\(ti").replace("^", r"\(ha").replace("'", r"\(aq")


def main() -> None:
    """Write all files and print their paths."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m zonedrive.cli.reference FOLDER")
    texts = {"man/man1/zonedrive.1": zonedrive_1(), "man/man5/zonedrive.toml.5": zonedrive_toml_5()}
    for shell, name in SHELLS.items():
        kind = get_completion_class(shell)
        assert kind is not None
        texts[name] = kind(program, {}, "zonedrive", "_ZONEDRIVE_COMPLETE").source()
    for name, text in texts.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        text_output.say(str(path))


if __name__ == "__main__":
    main()
