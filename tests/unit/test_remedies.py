"""Remedies in the window name no commands."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import zonedrive
from zonedrive.remedies import (
    HELP,
    LOG_OFF,
    LOG_ON,
    MOUNT,
    OVERVIEW,
    RESTART,
    in_window,
)

ROOT = Path(zonedrive.__file__).parent
COMMAND = re.compile(
    r"\bzonedrive (logon|logoff|mount|unmount|status|sync|send|zones|pin|unpin|versions|trash"
    r"|restore|conflicts|tokens|users|groups|doctor|log|find|share|unshare|members|pause|resume)\b"
    r"|(?<!\S)--(ca-file|discard|idp|profile|timeout|session-only)\b"
    r"|(another|with) --account"
)
TERMINAL_ONLY = (
    "sandbox",
    "desktop",
    "cli/options.py",
    "cli/reference.py",
    "remedies.py",
    "ui/session_start.py",
)


def texts() -> Iterator[str]:
    """Yield each text of the package that names a command, values as "x"; no docstrings."""
    for file in sorted(ROOT.rglob("*.py")):
        if file.relative_to(ROOT).as_posix().startswith(TERMINAL_ONLY):
            continue
        tree = ast.parse(file.read_text("utf-8"))
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        pieces = {
            piece for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
            for piece in node.values
        }  # fmt: skip
        for node in ast.walk(tree):
            if node in docstrings or node in pieces:
                continue
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(getattr(piece, "value", "x")) if isinstance(
                    piece, ast.Constant) else "x" for piece in node.values)  # fmt: skip
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if COMMAND.search(text) and " " in text.strip():
                yield text


def test_no_text_of_the_window_names_a_command() -> None:
    """A row of the table fits each text that names a command or an option."""
    found = [*texts()]
    assert len(found) > 50
    left = [text for text in found if COMMAND.search(in_window(text)[0])]
    assert not left


@pytest.mark.parametrize(
    ("text", "said", "buttons"),
    [
        ("the disk is full", "the disk is full", ()),
        ("a.txt is open; close it", "a.txt is open; close it", ()),
        *(
            (f"{name}: no such file", f"{name}: no such file", ())
            for name in (
                "Board/doctor.txt",
                "to the doctor.odt",
                "'x--discard.txt'",
                "a/zonedrive mount.txt",
                "a/zonedrive logon",
                "timedatectl.log",
            )
        ),
        (
            "account x is not mounted; run 'zonedrive mount DIR --account x'",
            "account x is not mounted. Mount it.",
            (MOUNT,),
        ),
        (
            "run 'zonedrive unmount --now DIR', which ends it, and mount again; saved data is kept",
            "Start it again. Saved data is kept.",
            (RESTART,),
        ),
        ("run 'zonedrive logon https://x --account x'", "Log on again.", (LOG_ON,)),
        ("see 'zonedrive status'", "The overview shows which and why.", (OVERVIEW,)),
        (
            "check the network, or run 'zonedrive doctor'; your changes are kept",
            "The page Help finds the cause. Your changes are kept.",
            (HELP,),
        ),
        (
            "the mount still has it: run 'zonedrive sync', so that nothing is pending; then"
            " 'zonedrive logoff', and log on",
            "The overview shows more. Wait until everything is on the service, then log off and"
            " log on again.",
            (OVERVIEW, LOG_OFF),
        ),
    ],
)
def test_a_command_becomes_a_sentence_and_a_button(
    text: str, said: str, buttons: tuple[str, ...]
) -> None:
    """The other clauses of a message stay, and become sentences."""
    assert in_window(text) == (said, buttons)
