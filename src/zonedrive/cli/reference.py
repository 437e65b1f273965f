r"""Manual pages and shell completion scripts, generated from the commands and from `docs/man`.

`python -m zonedrive.cli.reference FOLDER` writes all of them below FOLDER, a `share` folder such as
~/.local/share, where the programs man, bash and fish find them. The completion scripts call
zonedrive (see click.shell_completion).
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from zonedrive import __version__
from zonedrive.cli.main import SECTIONS, program
from zonedrive.cli.text_output import say

COLUMNS = 70  # width of the help texts in a manual page
TEXTS = Path(__file__).parents[1] / "docs" / "man"

SHELLS = {
    "bash": "bash-completion/completions/zonedrive",
    "zsh": "zsh/site-functions/_zonedrive",
    "fish": "fish/vendor_completions.d/zonedrive.fish",
}
"""Path of each shell's completion script below a `share` folder."""

_ESCAPES = str.maketrans({"\\": r"\e", "-": r"\-", "~": r"\(ti", "^": r"\(ha", "'": r"\(aq"})


def contexts(
    command: click.Command = program, parent: click.Context | None = None, name: str = "zonedrive"
) -> Iterator[click.Context]:
    """Yield a click context for the command and for each of its subcommands, recursively."""
    context = click.Context(
        command, parent, name, terminal_width=COLUMNS, **command.context_settings
    )
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from contexts(below, context, each)


def manual(name: str) -> str:
    """Return a manual page, `zonedrive.1` or `zonedrive.toml.5`, as man(7) source."""
    text = (TEXTS / name).read_text("utf-8").replace("@VERSION@", __version__)
    return text.replace("@COMMANDS@\n", "".join(f"{line}\n" for line in _commands()))


def _commands() -> Iterator[str]:
    titles = {next(iter(names)): title for title, names in SECTIONS.items()}
    for context in [*contexts()][1:]:
        if title := titles.get(context.info_name or ""):
            yield f'.SS "{title}"'
        yield from (".PP", rf"\fB{_escaped(context.command_path)}\fR", ".RS", ".EX")
        for line in context.command.get_help(context).splitlines():
            yield ("\\&" if line.startswith((".", "'")) else "") + _escaped(line)
        yield from (".EE", ".RE")


def _escaped(text: str) -> str:
    """Return `text` with escapes for man(7), so that each character is shown and can be copied."""
    return text.translate(_ESCAPES)


def main() -> None:
    """Write all manual pages and completion scripts below the folder in `sys.argv[1]`.

    Print the path of each file.
    """
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m zonedrive.cli.reference FOLDER")
    texts = {f"man/man{path.suffix[1:]}/{path.name}": manual(path.name) for path in TEXTS.iterdir()}
    for shell, name in SHELLS.items():
        kind = get_completion_class(shell)
        assert kind is not None
        text = kind(program, {}, "zonedrive", "_ZONEDRIVE_COMPLETE").source()
        # zsh loads the file at its first call; click's test fails at the second one.
        texts[name] = text.replace(
            "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _zonedrive"
        )
    for name, text in texts.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        say(str(path))


if __name__ == "__main__":
    main()
