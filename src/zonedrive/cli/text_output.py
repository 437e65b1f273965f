"""Output of lines, tables, lists and sizes for users, fitted to the width of the terminal.

INVARIANT: text from other sources, such as a file name, can neither control the terminal nor begin
another line of output. The commands print such text only through this module, or as JSON in ASCII.
"""

import contextlib
import errno
import json
import os
import select
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, TextIO

import click

from zonedrive import formatting, process_setup
from zonedrive.errors import ZonedriveError
from zonedrive.formatting import timestamp

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Row = Mapping[str, str]
"""Cells of one table row by column name; all rows of a table have the same columns."""

UNFOLDED = 1000  # width without a terminal, so that lines are not folded for other programs
NARROW = 60  # number of columns below which a table is shown as blocks of lines
UNBROKEN = 36  # characters of a word that is not folded in a table
DUMB = ("", "dumb", "unknown")  # values of TERM for terminals without cursor control
BAR = 20  # maximum width of a progress bar, in characters
WORD = 200  # maximum length of a name within a line, in characters
NESTED = 60  # maximum length of a nested object, in characters; JSON output has all of it


def as_json(value: object) -> None:
    """Print a value as JSON in ASCII, so that the locale does not affect the output."""
    click.echo(json.dumps(value, indent=2))


def show(
    items: Sequence[object],
    rows: Iterable[Row],
    *,
    in_json: bool,
    empty: str,
    right: Sequence[str] = (),
) -> None:
    """Print a list as JSON or as a table.

    If `in_json` is true, print `items` as JSON. Otherwise print `rows` as a table (see `grid` for
    `right`), or the line `empty` if there are no items.
    """
    if in_json:
        as_json(items)
    elif items:
        put(grid([*rows], right))
    else:
        line(empty)


def amount(size: int | None) -> str:
    """Return a number of bytes in readable form, such as `3.4 MiB`, or "-" for None."""
    return "-" if size is None else formatting.amount(size)


def when(text: str | None) -> str:
    """Return an ISO 8601 time as local time in the format of the text output, or "" for None."""
    return formatting.local_time(datetime.fromisoformat(text).timestamp()) if text else ""


def moment(ns: int) -> str | None:
    """Return a time in ns since the epoch as ISO 8601 in UTC, or None if `ns` is 0 (unknown)."""
    return timestamp(ns) if ns else None


def width() -> int:
    """Return the width of the terminal in columns, at least 20.

    Return UNFOLDED if standard output is a file or pipe, and $COLUMNS is not set.
    """
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return max(20, shutil.get_terminal_size((80, 24)).columns)
    return UNFOLDED


def grid(rows: Sequence[Row], right: Sequence[str] = ()) -> "RenderableType":
    """Return a table with a heading; in a narrow terminal each row becomes a block of lines.

    Columns named in `right` contain numbers, and are aligned to the right. Words of up to UNBROKEN
    characters, such as ids and dates, are not folded.
    """
    from rich.cells import cell_len

    def longest_word(text: str) -> int:
        return min(UNBROKEN, max(map(cell_len, clean(text).split()), default=0))

    least = {name: max(map(longest_word, (name, *(row[name] for row in rows)))) for name in rows[0]}
    if width() < max(NARROW, sum(least.values()) + 3 * len(least)):
        return _blocks(rows)
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        shown.add_column(
            clean(name, sys.stdout),
            justify="right" if name in right else "left",
            no_wrap=name in right,
            min_width=least[name],
            overflow="fold",
            header_style="bold",
        )
    for row in rows:
        shown.add_row(*[clean(cell, sys.stdout) for cell in row.values()])
    return shown


def show_records(items: Sequence[Mapping[str, object]], empty: str) -> None:
    """Print objects of any shape as a table, with one column for each field.

    A table that is wider than the terminal is printed as blocks of lines. If there are no objects,
    print `empty`.
    """
    if not items:
        line(empty)
        return
    from rich.cells import cell_len

    columns = list(dict.fromkeys(name for item in items for name in item))
    used = [name for name in columns if any(_cell(item.get(name)) for item in items)] or columns
    rows = [{name: _cell(item.get(name)) for name in used} for item in items]
    longest = [max(cell_len(clean(row[name])) for row in (*rows, {name: name})) for name in used]
    if sum(longest) + 3 * len(used) > width():
        click.echo()  # a table also begins with an empty line
        put(_blocks(rows))
    else:
        put(grid(rows))


def line(text: str, style: str = "") -> None:
    """Print one line in the rich style `style`, folded to the width of the terminal."""
    put(words(text, style))


def words(text: str, style: str = "") -> "Text":
    """Return one line as a `rich.text.Text` with the rich style `style`; a long line is folded."""
    from rich.text import Text

    return Text(clean(text, sys.stdout), style=style, overflow="fold")


def put(*shown: "RenderableType") -> None:
    """Print results of `words` and `grid`, one below the other."""
    from rich.text import Text

    console = _console()
    for each in shown:
        console.print(each, soft_wrap=isinstance(each, Text) and width() == UNFOLDED)


def say(text: str, *, err: bool = False) -> None:
    """Print one line on standard output or, with `err`, on stderr as part of a dialog.

    A long line is folded by the terminal.
    """
    click.echo(clean(text, sys.stderr if err else sys.stdout), err=err)


def complain(text: str) -> None:
    """Print an error or a note on stderr, as one line that begins with `zonedrive: `.

    Line breaks become spaces. Other spaces stay, because a path may contain them.
    """
    lines = (line.strip() for line in text.splitlines())
    say(f"zonedrive: {' '.join(filter(None, lines))}", err=True)


def clean(text: str, stream: TextIO | None = None) -> str:
    """Return `text` as one line that `stream` (default stderr, where prompts go) can print.

    Control characters and direction marks are escaped. Characters that the stream's encoding lacks
    are replaced on stdout, and escaped on stderr.
    """
    encoding = (stream or sys.stderr).encoding or "utf-8"
    missing = "replace" if stream is sys.stdout else "backslashreplace"
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown.encode(encoding, missing).decode(encoding)


def require_terminal(option: str) -> None:
    """Raise UsageError if standard input is not a terminal; the error suggests `option`."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"There is no terminal for questions: use {option}.")


def is_confirmed(question: str) -> bool:
    """Ask a yes/no question; return True for yes.

    Raises UsageError if standard input is not a terminal.
    """
    require_terminal("--yes")
    with asking():
        return click.confirm(clean(question), err=True)


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Print a line break if Ctrl-C ends the prompt in the `with` block.

    The function is for prompts with echo. After a hidden prompt, click itself prints the line
    break.
    """
    try:
        yield
    except click.Abort as given_up:
        if isinstance(given_up.__context__, KeyboardInterrupt):
            click.echo(err=True)
        raise


def word(text: str, longest: int = WORD) -> str:
    """Return `text`, for example a user's name, shortened to at most `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


class Progress:
    """Line on stderr that is updated during a wait; printed only if stderr is a terminal."""

    def __init__(self) -> None:
        self._shows = can_redraw(sys.stderr)
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, text: str) -> None:
        """Replace the line with `text`."""
        if self._shows and text != self._last:
            from rich.cells import set_cell_size  # some characters take two columns

            fitting = set_cell_size(clean(text), self._columns() - 1).rstrip()
            self._last = text  # before the output, because Ctrl-C may come between both
            click.echo(f"\r\x1b[K{fitting}", nl=False, err=True)

    def bar(self, done: float, text: str) -> None:
        """Replace the line with a progress bar, filled to `done` (0 to 1), and `text`."""
        if self._shows:
            size = min(BAR, self._columns() // 5)
            full = int(size * min(1.0, max(0.0, done)))
            self.show(f"[{'#' * full}{'-' * (size - full)}] {text}")

    def _columns(self) -> int:
        try:
            return max(20, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
        except OSError:  # the terminal has been closed
            return 80


def has_reader(seconds: float) -> bool:
    """Wait `seconds` and return True; return False at once if nothing reads the output any more.

    Also return False after a failed write to standard output.
    """
    if process_setup.output_failure():
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return not output.poll(1000 * seconds)


def can_redraw(stream: TextIO) -> bool:
    """Return True if `stream` is a terminal with cursor control, where output can be replaced."""
    return stream.isatty() and os.environ.get("TERM", "") not in DUMB


def _cell(value: object) -> str:
    """Return a JSON value from the service as one line of text."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return word(json.dumps(value, ensure_ascii=False), NESTED)
    return str(value)


def _blocks(rows: Sequence[Row]) -> "RenderableType":
    """Return each row as a block with one line per non-empty cell; an empty line separates rows."""
    from rich.console import Group

    lines: list[Text] = []
    for row in rows:
        lines += [words("")] if lines else []
        lines += [words(f"{name}: {cell}") for name, cell in row.items() if cell]
    return Group(*lines)


def _console() -> "Console":
    from rich.console import Console

    return Console(
        width=width(),
        highlight=False,
        markup=False,
        emoji=False,
        no_color=None if sys.stdout.isatty() else True,  # None: according to NO_COLOR
    )


@contextlib.contextmanager
def replaced(name: str, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield an open file that replaces the file `name` atomically at the end of the `with` block.

    The new file gets `mode`, or the mode of the old file, or else 0600. On failure, the old file is
    unchanged. A device or pipe is written directly. Raises ZonedriveError if the file cannot be
    written.
    """
    given = Path(name)
    target = given.resolve()
    try:
        if given.exists() and not given.is_file():  # a device or pipe; a folder is an error
            with given.open("wb") as file:
                yield file
            return
        # In a mount, a file that a killed process leaves is not uploaded: see `config.LOCAL_ONLY`.
        descriptor, path = tempfile.mkstemp(dir=target.parent, prefix=".zonedrive-", suffix="~")
        new = Path(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if mode is None and target.exists():
                    mode = target.stat().st_mode & 0o777
                if mode is not None:
                    new.chmod(mode)
                yield file
            new.replace(target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as wrong:
        if wrong.errno == errno.EISDIR:
            raise ZonedriveError(f"{name} is a folder", remedy="give a file in it") from wrong
        raise ZonedriveError(
            f"{name} cannot be written: {wrong.strerror}",
            remedy="give a file in an existing folder that you may write in, on a disk with room",
        ) from wrong
