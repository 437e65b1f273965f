"""Remedies in the window name no commands."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import zonedrive
from zonedrive.remedies import (
    _ENDINGS,
    _MESSAGES,
    HELP,
    LOG_OFF,
    LOG_ON,
    MOUNT,
    OVERVIEW,
    RESTART,
    in_window,
    message_in_window,
    remedy_in_window,
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


@cache
def sources() -> tuple[frozenset[str], frozenset[object]]:
    """Return each text that names a command, and all constants of the package.

    The texts are those that the window may show, with values as "x", and without docstrings.  The
    constants are those of all modules but remedies.py.
    """
    texts, constants = set(), set()
    for file in sorted(ROOT.rglob("*.py")):
        nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        if file.name != "remedies.py":
            constants |= {node.value for node in nodes if isinstance(node, ast.Constant)}
        if file.relative_to(ROOT).as_posix().startswith(TERMINAL_ONLY):
            continue
        pieces = {
            piece for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values
        }
        for node in nodes:
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
                texts.add(text)
    return frozenset(texts), frozenset(constants)


def test_no_text_of_the_window_names_a_command() -> None:
    """A row of the table fits each text that names a command or an option."""
    found, _ = sources()
    assert len(found) > 50
    left = [text for text in found if COMMAND.search(remedy_in_window(text)[0])]
    assert not left


@pytest.mark.parametrize(
    ("text", "said", "buttons"),
    [
        ("the disk is full", "the disk is full", ()),
        ("a.txt is open; close it", "a.txt is open; close it", ()),
        *((f"{name}: no such file", f"{name}: no such file", ()) for name in (
            "Board/doctor.txt", "to the doctor.odt", "'x--discard.txt'", "a/zonedrive mount.txt",
            "a/zonedrive logon", "timedatectl.log",
        )),
        ("account x is not mounted; run 'zonedrive mount DIR --account x'",
         "account x is not mounted. Mount it.", (MOUNT,)),
        ("run 'zonedrive unmount --now DIR', which ends it, and mount again; saved data is kept",
         "Start it again. Saved data is kept.", (RESTART,)),
        ("restore the former keyring; or end the mount with --now, and lose this data",
         "restore the former keyring.", ()),
        ("run 'zonedrive logon https://x --account x'", "Log on again.", (LOG_ON,)),
        ("run 'zonedrive mount DIR' and 'zonedrive sync' first, or keep both apart with"
         " --account NAME; if that service is gone, copy what you need from the mount, then run"
         " 'zonedrive logoff --discard'",
         "Mount it. If that service is gone, copy what you need, then log off and delete what is"
         " only on this computer.", (MOUNT, LOG_OFF)),
        ("see 'zonedrive status'", "The overview shows which and why.", (OVERVIEW,)),
        ("check the network, or run 'zonedrive doctor'; your changes are kept",
         "The page Help finds the cause. Your changes are kept.", (HELP,)),
        ("the mount still has it: run 'zonedrive sync', so that nothing is pending; then"
         " 'zonedrive logoff', and log on",
         "The overview shows more. Wait until everything is on the service, then log off and"
         " log on again.", (OVERVIEW, LOG_OFF)),
    ],
)  # fmt: skip
def test_a_command_becomes_a_sentence_and_a_button(
    text: str, said: str, buttons: tuple[str, ...]
) -> None:
    """The other clauses of a message stay, and become sentences."""
    assert remedy_in_window(text) == (said, buttons)


NAME = "Plan; to fix it, run 'zonedrive logoff --discard'"


def test_a_message_is_not_taken_for_a_remedy() -> None:
    """A command in the name of a file stays a name, with and without a remedy."""
    said = f"{NAME}: no such file"
    assert message_in_window(said) == said
    assert in_window(said, "") == (said, ())
    assert in_window(said, "run 'zonedrive status'") == (
        f"{said}. The overview shows which and why.",
        (OVERVIEW,),
    )


def test_fixed_messages_are_replaced() -> None:
    """Each of them is a text of the package, and the sentences name no command or setting."""
    _, constants = sources()
    assert constants.issuperset(_MESSAGES)
    for text in _MESSAGES:
        said = message_in_window(text)
        assert said != text and "cache_size" not in said and not COMMAND.search(said)


def test_the_remedy_of_a_failed_upload_is_replaced() -> None:
    """Each of these remedies ends a text of the package, and its sentence names no command."""
    found, _ = sources()
    for ending in _ENDINGS:
        assert any(text.endswith(ending) for text in found)
        said, buttons = remedy_in_window(ending)
        assert message_in_window(f"{NAME}: no; {ending}") == f"{NAME}: no. {said}"
        assert not COMMAND.search(said) and LOG_OFF not in buttons
