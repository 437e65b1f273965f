"""Detection of commands in a document, and a check that zonedrive has them.

A document writes commands in two ways: as lines that can be copied, and as forms with brackets and
words in capitals (`zonedrive versions PATH [--get VERSION [-o FILE]]`).  Knows nothing of how a
command is run.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import click

from tests.documents.pages import Block, Page
from zonedrive.cli.members import ZoneGroup
from zonedrive.cli.reference import contexts
from zonedrive.errors import ConfigError
from zonedrive.fuse import options

COMMANDS = {each.command_path: each for each in contexts()}

# What a line of code begins with if it is a command; in a sentence, single words are names only.
SHELL = frozenset(
    (
        *("cat", "cd", "chmod", "chown", "cp", "df", "echo", "export", "findmnt", "fusermount3"),
        *("getfattr", "gio", "git", "grep", "journalctl", "kill", "ln", "loginctl", "ls", "man"),
        *("mkdir", "modprobe", "mount", "mv", "pip", "pipx", "python", "python3", "rm", "rsync"),
        *("sed", "setfattr", "sudo", "systemctl", "systemd-creds", "tail", "touch", "umount"),
    )
)
OURS = re.compile(r"zonedrive|packaging/[\w-]+|(?:\.venv/bin/)[\w.-]+")


@dataclass(frozen=True)
class Line:
    """Command line of a document."""

    where: str
    section: str
    text: str  # without its remark

    @property
    def words(self) -> list[str]:
        """Return the words as a shell splits them, without pipes and redirections."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|<>;&")
        lexer.whitespace_split = True
        found: list[str] = []
        for word in lexer:
            if word and set(word) <= set("|<>;&"):
                break
            found.append(word)
        return found


def is_command(text: str) -> bool:
    """Return True if a line or span of code is a command."""
    first, _, rest = text.strip().partition(" ")
    if first in SHELL:
        return bool(rest)
    return OURS.fullmatch(first) is not None and (bool(rest) or first.startswith("packaging/"))


def lines_of(block: Block) -> list[Line]:
    """Return the command lines of a block; an indented block may contain forms and other text."""
    found: list[Line] = []
    held = ""
    for offset, raw in enumerate(block.text.splitlines()):
        text = held + (_without_remark(raw).lstrip() if held else _without_remark(raw))
        if text.endswith("\\"):
            held = text[:-1].rstrip() + " "
            continue
        held = ""
        if not text.strip() or (block.language == "" and not is_command(text)):
            continue
        where = f"{block.page}:{block.line + offset}"
        shown = [text.strip()] if block.language else plain(text)
        found += [Line(where, block.section, each) for each in shown]
    return found


def _without_remark(line: str) -> str:
    """Return the line without its comment, which begins with `#` after white space outside
    quotes."""
    quote = ""
    for place, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place].rstrip()
    return line.rstrip()


def forms_of(page: Page) -> Iterator[Line]:
    """Yield the commands in a page's sentences and tables, including brackets."""
    titles = page.text.splitlines()
    for span in page.spans:
        if is_command(span.text) and not titles[span.line - 1].startswith("#"):
            yield Line(span.where, span.section, span.text.replace("\\|", "|"))


def plain(form: str) -> list[str]:
    """Return a form without all optional parts, and with all of them."""
    bare = form.replace("...", "").replace("…", "")
    least = bare
    while "[" in least:
        shorter = re.sub(r" ?\[[^\[\]]*\]", "", least)
        if shorter == least:
            break
        least = shorter
    most = bare.replace("[", "").replace("]", "")
    return list(dict.fromkeys(" ".join(each.split()) for each in (least, most)))


# ---- zonedrive's own grammar --------------------------------------------------------------------


class Wrong(Exception):
    """Unknown command, or wrong use of a command."""


def check(words: list[str]) -> bool:
    """Return True if a command of zonedrive is complete. Raises Wrong if it is unknown."""
    context, rest = _find(words[1:])
    by_name = {
        name: option
        for option in context.command.get_params(context)
        if isinstance(option, click.Option)
        for name in option.opts
    }
    given, whole = 0, True
    while rest:
        word = rest.pop(0)
        if word == "--":
            given, rest = given + len(rest), []
        elif word.startswith("-") and word != "-":
            whole &= _take(by_name, word, rest, context.command_path)
        else:
            given += 1
    if isinstance(context.command, click.Group) and given:
        raise Wrong(f"{context.command_path} has no such command")
    return whole and _has_all(context, given, words)


def _find(words: list[str]) -> tuple[click.Context, list[str]]:
    """Return the command that the first words select, and the other words."""
    context = COMMANDS["zonedrive"]
    while words and isinstance(context.command, click.Group) and not words[0].startswith("-"):
        found = COMMANDS.get(f"{context.command_path} {words[0]}")
        if found is None and isinstance(context.command, ZoneGroup):
            found, words = COMMANDS[f"{context.command_path} list"], ["list", *words]
        if found is None:
            raise Wrong(f"{context.command_path} has no command {words[0]!r}")
        context, words = found, words[1:]
    return context, words


def _take(known: dict[str, click.Option], word: str, rest: list[str], command: str) -> bool:
    """Remove an option's value from `rest`; return False if the value is left out."""
    name, equals, value = word.partition("=")
    if name in ("--help", "-h", "--version"):
        return True
    if name not in known:
        raise Wrong(f"{command} has no option {name}")
    if not known[name].is_flag and not equals:
        if not rest:
            return False  # the name alone, in a sentence
        value = rest.pop(0)
    if name == "-o" and command == "zonedrive mount":
        try:
            options.parse((value,))
        except ConfigError as wrong:
            raise Wrong(wrong.line()) from wrong
    return True


def _has_all(context: click.Context, given: int, words: list[str]) -> bool:
    if isinstance(context.command, click.Group):
        return len(words) > 1 and words[-1].startswith("--")
    usage = context.command.collect_usage_pieces(context)
    wanted = [one for one in " ".join(usage).split() if one != "[OPTIONS]"]
    most = None if any("..." in one for one in wanted) else len(wanted)
    if most is not None and given > most:
        raise Wrong(f"{context.command_path} takes {most} argument(s), not {given}")
    return given >= len([one for one in wanted if not one.startswith("[")])


def options_of(words: list[str]) -> list[str]:
    """Return the options, which begin with a dash and are not numbers."""
    return [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
