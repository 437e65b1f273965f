"""How things are shown to people: lines, tables, sizes.  Plain, and as wide as the terminal.

Must not know what is shown.

INVARIANT: whatever a text holds that came from elsewhere, it steers no terminal, and what is one
line here is one line there.  The commands write through this module alone.
"""

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TextIO

import click

from zonedrive import amounts
from zonedrive.amounts import count as count

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

UNFOLDED = 1000
"""The width where there is no terminal: a program that reads the lines wants them whole."""

NARROW = 60
"""Columns below which a table is shown as blocks of lines."""

DUMB = ("", "dumb", "unknown")
"""Kinds of terminal (TERM) that cannot do more than print."""

BAR = 20
"""Characters of a bar, where there is room for it."""

WORD = 200
"""Characters of a name within a line."""

NESTED = 60
"""Characters of an object within an object; JSON has all of it."""


def as_json(value: object) -> None:
    """For programs: one value, ASCII, so that no locale can spoil it."""
    click.echo(json.dumps(value, indent=2))


def amount(size: int | None) -> str:
    """Bytes as a person reads them: `3.4 MiB`; a dash where nobody knows."""
    if size is None:
        return "–" if _can_show("–") else "-"
    return amounts.amount(size)


def when(text: str) -> str:
    """A time of a daemon's answer (ISO 8601), in this machine's zone."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def moment(ns: int) -> str | None:
    """Nanoseconds since the epoch as ISO 8601 in UTC; None for 0, or a year that has no name."""
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds") if ns else None
    except (ValueError, OverflowError, OSError):
        return None


def width() -> int:
    """Columns of the terminal; into a file or a pipe, nothing is folded."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return max(20, shutil.get_terminal_size((80, 24)).columns)
    return UNFOLDED


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> None:
    """Show a `grid`."""
    _console().print(grid(columns, rows, right=right))


def grid(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> "RenderableType":
    """Rows under headings; in a narrow terminal each row as a block of lines.

    Columns named in `right` hold numbers.
    """
    if width() < NARROW:
        return _blocks(columns, rows)
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD if _can_show("─") else box.ASCII, pad_edge=False)
    for name in columns:
        shown.add_column(
            _printable(name),
            justify="right" if name in right else "left",
            no_wrap=name in right,
            overflow="fold",
            header_style="bold",
        )
    for row in rows:
        shown.add_row(*[_printable(cell) for cell in row])
    return shown


def records(items: Sequence[Mapping[str, object]]) -> None:
    """Objects of any shape: a column for each field that one of them has, in order.

    As blocks of lines where that is wider than the terminal.
    """
    columns = list(dict.fromkeys(name for item in items for name in item))
    shown = [name for name in columns if any(_cell(item.get(name)) for item in items)] or columns
    rows = [[_cell(item.get(name)) for name in shown] for item in items]
    if _natural_width([shown, *rows]) > width():
        click.echo()  # as before a table
        _console().print(_blocks(shown, rows))
    else:
        table(shown, rows)


def line(text: str, style: str = "") -> None:
    """One line (folded where the terminal is narrow); `style` is rich's, for terminals only."""
    put(words(text, style))


def words(text: str, style: str = "") -> "Text":
    """A line, to be put somewhere; what does not fit into one continues in the next."""
    from rich.text import Text

    return Text(_printable(text), style=style, overflow="fold")


def put(shown: "RenderableType") -> None:
    """Show what `words` or `grid` made."""
    from rich.text import Text

    _console().print(shown, soft_wrap=isinstance(shown, Text) and width() == UNFOLDED)


def say(text: str, *, err: bool = False) -> None:
    """One line that the terminal folds; `err`: on stderr, as part of a conversation."""
    click.echo(clean(text, sys.stderr if err else sys.stdout), err=err)


def clean(text: str, stream: TextIO | None = None) -> str:
    """One line that `stream` (stderr, where people are asked) can print."""
    encoding = _encoding(stream or sys.stderr)
    shown = escaped(text).replace("\n", " ").replace("\t", " ")
    return shown.encode(encoding, "backslashreplace").decode(encoding)


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Around a prompt that shows what is typed: Ctrl-C ends its line, too."""
    try:
        yield
    except click.Abort as given_up:
        if isinstance(given_up.__context__, KeyboardInterrupt):
            click.echo(err=True)
        raise


def word(text: str) -> str:
    """A name of somebody else's, to stand in a line of ours: without what is beyond WORD."""
    return text if len(text) <= WORD else f"{text[: WORD - 3]}..."


def remark(text: str) -> None:
    """As `complain`, of what is no trouble."""
    complain(text)


def complain(text: str) -> None:
    """One line on stderr, whatever the locale can print and whatever names hold."""
    say(f"zonedrive: {' '.join(escaped(text).split())}", err=True)


def escaped(text: str) -> str:
    """`text` without anything that steers a terminal or turns the direction of writing."""
    return "".join(c if c.isprintable() or c in "\n\t" else _code(c) for c in text)


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode()


class Progress:
    """A line on the terminal that changes while something is waited for; elsewhere nothing."""

    def __init__(self) -> None:
        self._shows = can_redraw(sys.stderr)
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, text: str) -> None:
        """Replace the line by `text`."""
        if self._shows and text != self._last:
            fitting = _cut(clean(text), _columns(sys.stderr) - 1)
            self._last = text  # first: Ctrl-C may come between both
            click.echo(f"\r\x1b[K{fitting}", nl=False, err=True)

    def bar(self, done: float, text: str) -> None:
        """The same behind a bar, of which `done` (0 to 1) is full."""
        size = min(BAR, _columns(sys.stderr) // 5)
        full = int(size * min(1.0, max(0.0, done)))
        self.show(f"[{'#' * full}{'-' * (size - full)}] {text}")


def can_redraw(stream: TextIO) -> bool:
    """Whether what stands there can be replaced."""
    return stream.isatty() and os.environ.get("TERM", "") not in DUMB


def _columns(stream: TextIO) -> int:
    """Of the terminal that `stream` is."""
    with contextlib.suppress(OSError):
        if found := os.get_terminal_size(stream.fileno()).columns:
            return max(20, found)
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def _cut(text: str, columns: int) -> str:
    """What fits into a line: some characters take two columns."""
    from rich.cells import cell_len

    text = text[:columns]
    while cell_len(text) > columns:
        text = text[:-1]
    return text


def _cell(value: object) -> str:
    """A value of somebody else's JSON on one line."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= NESTED else f"{text[: NESTED - 3]}..."
    return str(value)


def _natural_width(rows: Sequence[Sequence[str]]) -> int:
    """Columns that a table of these rows takes where nothing is folded."""
    from rich.cells import cell_len

    columns = zip(*rows, strict=True)
    widths = [max(cell_len(_printable(cell)) for cell in column) for column in columns]
    return sum(widths) + 3 * len(widths)


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "RenderableType":
    from rich.console import Group

    lines = []
    for number, row in enumerate(rows):
        if number:
            lines.append(words(""))
        lines += [words(f"{name}: {cell}") for name, cell in zip(columns, row, strict=True) if cell]
    return Group(*lines)


def _console() -> "Console":
    from rich.console import Console

    class Whole(Console):
        def on_broken_pipe(self) -> None:
            """Rich would end the process as failed; that nobody reads on is no failure."""
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Whole(
        width=width(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        no_color=None if sys.stdout.isatty() else True,  # None: as NO_COLOR says
    )


def _printable(text: str) -> str:
    """What the locale can print, without anything that would steer the terminal."""
    clean = "".join(c if c.isprintable() else _code(c) for c in text)
    encoding = _encoding(sys.stdout)
    return clean.encode(encoding, "replace").decode(encoding)


def _can_show(text: str) -> bool:
    try:
        text.encode(_encoding(sys.stdout))
    except UnicodeEncodeError:
        return False
    return True


def _encoding(stream: TextIO) -> str:
    return stream.encoding or "utf-8"
