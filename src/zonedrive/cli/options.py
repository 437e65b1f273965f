"""Options that several commands share."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import click
from click.shell_completion import CompletionItem

from zonedrive.errors import BadOption, ConfigError
from zonedrive.paths import DEFAULT_ACCOUNT, name_remedy, state_dir

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_S = 366 * 86_400

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class AccountName(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot be told
    """Parameter type for the name of an account."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if remedy := name_remedy(value):
            self.fail(f"{value!r}: {remedy}", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = sorted(path.name for path in state_dir().glob("*/"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class LocalPath(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot be told
    """Parameter type for a local path, with completion in the shell.

    The path is not accessed. click.Path would access the path, and block on a hung mount.
    """

    name = "path"

    def __init__(self, kind: Literal["file", "dir"] = "file") -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:  # as a path, it would mean the working directory
            self.fail("it is empty", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self._kind)]


class Text(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot be told
    """Parameter type for a string that is sent to the service."""

    name = "text"
    forbidden: tuple[str, ...] = ()  # rejected values, after stripping whitespace

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if any("\ud800" <= char <= "\udfff" for char in value):  # bytes that are not UTF-8
            self.fail(f"{value!r} is not valid Unicode", param, ctx)
        if value.strip() in self.forbidden:
            self.fail(f"{value!r} is not allowed" if value.strip() else "it is empty", param, ctx)
        return str(value)


class Name(Text):
    """Parameter type for a string that must not be blank."""

    forbidden = ("",)


class Id(Text):
    """Parameter type for the id of an object on the service, a valid segment of a URL path."""

    forbidden = ("", ".", "..")


class WholeNumber(click.IntRange):
    """Parameter type for an integer in a range."""

    name = "whole number"


class Seconds(click.FloatRange):
    """Parameter type for a finite, non-negative number of seconds."""

    name = "number of seconds"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Duration(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot be told
    """Parameter type for a duration such as `30m`, converted to seconds (float).

    A number without a unit is in seconds.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", value)
        seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
        if not 0 < seconds <= LONGEST_S:
            self.fail(f"{value!r}: use a time such as 90s, 30m, 2h or 1d, at most 366d", param, ctx)
        return seconds


account_option = click.option(
    "--account",
    type=AccountName(),
    default=DEFAULT_ACCOUNT,
    show_default=True,
    metavar="NAME",
    help="Account to use.",
)


def account_option_or(other: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds the option `--account`, whose default is None.

    `other` describes, in the help text, the account that takes precedence over the default account.
    """
    return click.option(
        "--account",
        type=AccountName(),
        default=None,
        metavar="NAME",
        help=f"Account to use.  [default: {other}, else {DEFAULT_ACCOUNT}]",
    )


some_account_option = account_option_or("the account of PATH")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def timeout_option(default: float, what: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds the option `--timeout SECONDS` to a command.

    `default` is in seconds; `what` completes the help text "How long to wait …".
    """
    return click.option(
        "--timeout",
        type=Seconds(),
        default=default,
        metavar="SECONDS",
        help=f"How long to wait {what}.  [default: {default:g}]",
    )


@contextlib.contextmanager
def as_usage(prefix: str) -> Iterator[None]:
    """Convert a ConfigError in the `with` block to BadOption, with `prefix` before the message."""
    try:
        yield
    except ConfigError as wrong:
        raise BadOption(f"{prefix}{wrong.message}", remedy=wrong.remedy) from wrong
