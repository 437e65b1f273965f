"""The manual pages say what the commands and settings are, as man shows them."""

import subprocess

import pytest

from zonedrive.cli.reference import commands, manual
from zonedrive.config import NAMES, Settings

PAGES = {"1": manual.zonedrive_1(commands.read()), "5": manual.zonedrive_toml_5()}


def shown(page: str) -> str:
    """What man shows, with every gap as one space; any warning fails."""
    run = subprocess.run(
        ["groff", "-K", "utf8", "-T", "utf8", "-P-cbou", "-rHY=0", "-man", "-ww"],
        input=page.encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert not run.stderr.decode()
    # A line may end behind the hyphen of a name.
    return " ".join(run.stdout.decode().split()).replace("‐ ", "").replace("‐", "-")


@pytest.mark.parametrize("command", list(commands.read().walk()), ids=lambda one: one.name)
def test_a_command_stands_in_the_manual(command: commands.Command) -> None:
    """Who reads zonedrive(1) finds each command with its usage, its text and its options."""
    page = shown(PAGES["1"])
    if command.below and len(command.words) == 1:
        assert "SYNOPSIS zonedrive [--version] [--help] COMMAND" in page
        return
    assert f"{' '.join(command.words)} {command.synopsis}" in page
    first = command.text.split("\n\n")[0]
    assert " ".join(first.split()) in page
    for option in command.options:
        names = ", ".join(option.names)
        value = f" {option.value.shown}" if option.value else ""
        if "--help" not in option.names:
            assert f"{names}{value} {' '.join(option.help.split())[:20]}" in page


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_stands_in_the_manual(name: str) -> None:
    """Who reads zonedrive.toml(5) finds each setting, what it means and its default."""
    page = shown(PAGES["5"])
    assert f" {name} = " in page
    text = page.partition(f" {name} = ")[2]
    assert manual.MEANING[name][:30] in text
    default = getattr(Settings(), name)
    if isinstance(default, tuple):
        assert f"Default: {', '.join(default)}"[:60] in text
    elif default is not None:
        expected = str(default).lower() if isinstance(default, bool) else repr(default)
        assert f"Default: {expected}" in text.partition(" = ")[0]
