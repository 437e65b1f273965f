"""The command definitions as data, for manual pages and completions.

Knows nothing about the output formats.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import click

from zonedrive.cli.main import SECTIONS, program


class Kind(StrEnum):
    """Kind of completion that a shell can offer for a value."""

    NOTHING = "nothing"
    WORDS = "words"
    FILE = "file"
    FOLDER = "folder"
    ACCOUNT = "account"


PLACES = {"PATH": Kind.FILE, "FILE": Kind.FILE, "PEM": Kind.FILE, "DIR": Kind.FOLDER}
"""Kind of completion by the metavar in the help text."""


@dataclass(frozen=True)
class Value:
    """Value of an option, or an argument."""

    shown: str  # PATH, SECONDS
    kind: Kind
    words: tuple[str, ...] = ()
    many: bool = False


@dataclass(frozen=True)
class Option:
    """Option with all its names."""

    names: tuple[str, ...]
    help: str
    value: Value | None  # None: a flag
    many: bool = False


@dataclass(frozen=True)
class Command:
    """Command with its subcommands."""

    words: tuple[str, ...]  # ("zonedrive", "tokens", "list")
    section: str
    brief: str
    text: str
    options: tuple[Option, ...]
    arguments: tuple[Value, ...]
    synopsis: str  # what follows the words: `[OPTIONS] DIR`
    below: tuple["Command", ...] = ()

    @property
    def name(self) -> str:
        """Last word of the command."""
        return self.words[-1]

    def walk(self) -> Iterator["Command"]:
        """Yield this command and all commands below it."""
        yield self
        for one in self.below:
            yield from one.walk()


def read() -> Command:
    """Return the root command with all subcommands."""
    names = {name: title for title, section in SECTIONS.items() for name in section}
    context = click.Context(program, info_name="zonedrive", **program.context_settings)
    return _read(program, context, ("zonedrive",), "", names)


def _read(
    command: click.Command,
    context: click.Context,
    words: tuple[str, ...],
    section: str,
    sections: dict[str, str],
) -> Command:
    below = []
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                inner = click.Context(found, parent=context, info_name=name)
                title = sections.get(name, section)
                below.append(_read(found, inner, (*words, name), title, {}))
    params = command.get_params(context)
    usage = command.collect_usage_pieces(context)
    return Command(
        words=words,
        section=section,
        brief=command.get_short_help_str(200),
        text=inspect.cleandoc(command.help or ""),
        options=tuple(
            _option(one, context)
            for one in params
            if isinstance(one, click.Option) and not one.hidden
        ),
        arguments=tuple(
            _value(one, one.metavar or (one.name or "").upper())
            for one in params
            if isinstance(one, click.Argument)
        ),
        synopsis=" ".join(usage),
        below=tuple(below),
    )


def _option(option: click.Option, context: click.Context) -> Option:
    names = (*option.opts, *option.secondary_opts)
    usage, text = option.get_help_record(context) or (names[-1], "")
    if option.is_flag or option.count:
        return Option(names, text, None)
    shown = usage.rpartition(names[-1])[2].strip()
    return Option(names, text, _value(option, shown), option.multiple)


def _value(param: click.Parameter, shown: str) -> Value:
    """Return the value with the metavar `shown`."""
    kind = Kind.NOTHING
    words: tuple[str, ...] = ()
    places = [PLACES[word] for word in shown.split("|") if word in PLACES]
    if isinstance(param.type, click.Choice):
        kind, words = Kind.WORDS, tuple(str(one) for one in param.type.choices)
    elif isinstance(param.type, click.Path):
        kind = Kind.FILE if param.type.file_okay else Kind.FOLDER
    elif "--account" in param.opts:
        kind = Kind.ACCOUNT
    elif places:
        kind = places[0]
    return Value(shown, kind, words, many=param.nargs == -1)
