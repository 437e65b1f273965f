"""The manual pages contain every command, option and setting, as man renders them."""

import inspect
import subprocess
import typing

import click
import pytest

from zonedrive.cli import reference
from zonedrive.config import HINTS, KINDS, LIMITS, NAMES, Settings


def shown(page: str) -> str:
    """Return a rendered page with single spaces. Fails for any warning."""
    run = subprocess.run(
        ["groff", "-K", "utf8", "-T", "utf8", "-P-cbou", "-rHY=0", "-man", "-ww"],
        input=page.encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert not run.stderr.decode()
    # A line may end behind the hyphen of a name.
    return " ".join(run.stdout.decode().split()).replace("‐ ", "").replace("‐", "-")


ZONEDRIVE, SETTINGS = (
    shown(reference.manual(name)) for name in ("zonedrive.1", "zonedrive.toml.5")
)


def test_the_manual_begins_with_the_usage() -> None:
    """zonedrive(1) shows the general form of a command."""
    assert "SYNOPSIS zonedrive [--version] [--help] COMMAND" in ZONEDRIVE


@pytest.mark.parametrize("context", [*reference.contexts()][1:], ids=lambda one: one.command_path)
def test_the_manual_has_each_command(context: click.Context) -> None:
    """zonedrive(1) has each command with its usage, its help text and its options."""
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    assert f"{context.command_path} {usage}" in ZONEDRIVE
    first = inspect.cleandoc(command.help or "").split("\n\n")[0]
    assert " ".join(first.split()) in ZONEDRIVE
    for option in command.get_params(context):
        if not isinstance(option, click.Option):
            continue
        names = ", ".join(option.opts)
        text = " ".join((option.help or "").split())[:20]
        assert f" {names} " in ZONEDRIVE
        assert text in ZONEDRIVE.partition(f" {names} ")[2]


@pytest.mark.parametrize("name", NAMES)
def test_the_manual_has_each_setting(name: str) -> None:
    """zonedrive.toml(5) has each setting with its allowed values, its meaning and its default."""
    assert f" {name} = " in SETTINGS
    values, _, text = SETTINGS.partition(f" {name} = ")[2].partition(" Default: ")
    kind = HINTS[name]
    if typing.get_origin(kind) is typing.Literal:
        assert values.startswith(" or ".join(repr(one) for one in typing.get_args(kind)))
    else:
        limits = f", {LIMITS[name][0]} to {LIMITS[name][1]}" if name in LIMITS else ""
        assert values.startswith(KINDS.get(kind, "a text") + limits)
    default = getattr(Settings(), name)
    if isinstance(default, tuple):
        assert text.startswith(", ".join(default))
    elif default is not None:
        assert text.startswith(str(default).lower() if isinstance(default, bool) else repr(default))
