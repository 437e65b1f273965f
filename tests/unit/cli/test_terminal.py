"""No output can control the terminal."""

import ast
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.cli.stand_in import run
from zonedrive.cli import main, text_output

FOLDER = Path(text_output.__file__).parent
ODD = "ev\x1b]0;pwn\x07il\x9b31m\nsecond\u202eline\rX\u2028Y\t\x85"

WRITERS = (
    "click.echo", "click.secho", "click.prompt", "click.confirm", "print",
    "sys.stdout.write", "sys.stderr.write",
)  # fmt: skip
MAY_ECHO = {
    ("files.py", "bytes(piece)"),  # the content of a file, unchanged
    ("main.py", "shown.format_message()"),  # our own help
    ("status.py", "text"),  # metrics: no label is a name of a file, zone or user
    ("tokens.py", "made.secret"),  # visible ASCII, else there is none
}
"""Expressions that are written directly, and the reason."""


def _writes(tree: ast.AST) -> list[str]:
    """Return the arguments of `click.echo`, `print` and similar functions that may do harm."""
    found = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if name in WRITERS:
            given = [one for one in call.args if not isinstance(one, ast.Constant)]
            found += [ast.unparse(one) for one in given]
    return [
        text
        for text in found
        if not text.startswith(("json.dumps(", "text_output.clean(", "clean("))
    ]


def test_the_commands_write_through_one_module() -> None:
    """Text of the service, a user or a path is always escaped."""
    found = {
        (path.name, text)
        for path in FOLDER.glob("*.py")
        if path.name != "text_output.py"
        for text in _writes(ast.parse(path.read_text()))
    }
    assert found == MAY_ECHO


@pytest.mark.parametrize("err", [False, True])
def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str], err: bool) -> None:
    """A text with control characters stays one readable line."""
    text_output.say(f"  as {ODD} (by token)", err=err)
    if err:
        text_output.complain(f"as {ODD} (by token)")
    out, said = capsys.readouterr()
    shown = said if err else out
    for text in shown.splitlines():
        assert text.isprintable(), text
        assert "\\x1b]0;pwn" in text and text.endswith("(by token)")
    assert shown.count("\n") == len(shown.splitlines()) == 1 + err
    assert shown.startswith("  as ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'/h/a  b' is missing; run 'mkdir -p '/h/a  b''", None),
        ("  choose from:\n\tManage,\r\n  \n  Access\n", "choose from: Manage, Access"),
    ],
)
def test_an_error_is_one_line_with_the_spaces_of_its_paths(
    capsys: pytest.CaptureFixture[str], text: str, shown: str | None
) -> None:
    """The command in a remedy can be copied."""
    text_output.complain(text)
    assert capsys.readouterr().err == f"zonedrive: {shown or text}\n"


@pytest.mark.parametrize("before", [None, 0o600, 0o644])
def test_a_written_file_is_private_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int | None
) -> None:
    """A version is as private as in the mount, unless the file had another mode."""
    target, modes = tmp_path / "out", list[int]()
    change = Path.chmod

    def chmod(path: Path, mode: int) -> None:
        modes.append(path.stat().st_mode & 0o777)
        change(path, mode)

    if before is not None:
        target.touch()
        target.chmod(before)
    monkeypatch.setattr(Path, "chmod", chmod)
    with text_output.replaced(str(target)) as file:
        file.write(b"x")
    assert set(modes) <= {0o600}
    assert target.stat().st_mode & 0o777 == (before or 0o600)


def test_a_pipe_of_the_shell_is_written_directly() -> None:
    """A shell's `>(command)` and `/dev/stdout` in a pipeline name a descriptor."""
    reader, writer = os.pipe()
    with text_output.replaced(f"/dev/fd/{writer}") as file:
        file.write(b"report")
    os.close(writer)
    assert os.read(reader, 100) == b"report"
    os.close(reader)


def test_files_written_at_the_same_time_are_independent(home: Path) -> None:
    """Commands in two containers may write into one folder, and have the same process number."""
    other = home / f".zonedrive-{os.getpid()}~"
    other.write_bytes(b"of the other command")
    with text_output.replaced(str(home / "a")) as one, text_output.replaced(str(home / "b")) as two:
        one.write(b"1")
        two.write(b"2")
    with pytest.raises(KeyboardInterrupt), text_output.replaced(str(home / "a")) as one:
        one.write(b"3")
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in home.iterdir()} == {
        "a": b"1", "b": b"2", other.name: b"of the other command",
    }  # fmt: skip


def test_a_name_cannot_fill_the_terminal() -> None:
    """A long name is shortened."""
    assert text_output.word("alice@acme.example") == "alice@acme.example"
    assert len(text_output.word("x" * 200_000)) == text_output.WORD


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_fits_a_narrow_terminal(name: str) -> None:
    """The help of each command fits into 40 columns."""
    told = CliRunner().invoke(main.program, [name, "--help"], terminal_width=40).output
    long = [line for line in told.splitlines() if len(line) > 40]
    # Words that have no place to break; JSON, and what its fields mean, in columns.
    long = [line for line in long if '"' not in line and "  " not in line.strip()]
    assert all(len(line.split()) == 1 for line in long), long


def test_help_knows_how_narrow_the_terminal_is() -> None:
    """The help of the program fits as well."""
    assert max(map(len, run("--help", COLUMNS="40").stdout.splitlines())) <= 40
