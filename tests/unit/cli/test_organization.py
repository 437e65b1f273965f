"""Tables of users and tokens for terminals of every width."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from typing import Any

import click
import pytest
from rich.cells import cell_len

from tests.unit.cli.stand_in import log_on, run
from zonedrive.cli import organization, text_output, tokens
from zonedrive.cli.main import main
from zonedrive.errors import Unavailable
from zonedrive.logon.bearer_auth import Bearer, save_bearer
from zonedrive.logon.secrets import open_store
from zonedrive.model import Token

USERS: list[dict[str, Any]] = [
    {"id": "alice@acme.example", "name": "Alice", "active": True, "groups": ["a", "b"], "x": None},
    {"id": "bob@acme.example", "name": "Tresor \x1b[31m\u202e", "active": False, "deep": {"a": 1}},
    {"value": "carol"},
    {"id": "名前@acme.example", "name": "日本語の名前", "x": "", "groups": []},
    {"\x1b]0;title\x07": "odd", "long": {"text": "x" * 500}},
]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the output of a command for an answer of the service."""

    def show(answer: object, *arguments: str, columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        for module in (organization, tokens):
            monkeypatch.setattr(module, "ask_directory", lambda *_: answer)
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
        out.seek(0)
        return out.read()

    return show


@pytest.mark.parametrize("columns", [20, 40, 79, 130, 300])
def test_users_of_any_shape_fit_the_terminal(shown: Callable[..., str], columns: int) -> None:
    """No line is wider than the terminal, also with wide characters, or controls it."""
    text = shown(USERS, "users", "list", columns=columns)
    assert all(cell_len(line) <= columns for line in text.splitlines())
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    unfolded = re.sub(r"\s", "", text)
    for word in ("alice@acme.example", "carol", "日本語の名前", "yes", "no", '["a","b"]', "odd"):
        assert word in unfolded, word
    assert "x" * 100 not in unfolded
    assert re.search(r"^x\b", text, re.MULTILINE) is None  # a field without a value has no column


def test_json_is_whole_and_ascii(shown: Callable[..., str]) -> None:
    """JSON output has the complete answer of the service."""
    text = shown(USERS, "users", "list", "--json", columns=20)
    assert json.loads(text) == USERS and text.isascii()


def test_empty_lists(shown: Callable[..., str]) -> None:
    """An empty list is a sentence, or an empty array with --json."""
    for command in ("users", "tokens"):
        assert f"no {command}" in shown([], command, "list", columns=80)
        assert json.loads(shown([], command, "list", "--json", columns=80)) == []


def test_tokens_with_unknown_fields(shown: Callable[..., str]) -> None:
    """Unknown fields are shown under their own names."""
    found = [
        Token("", "", 0, {"value": "t1"}),
        Token("t2", "backup", 10**18, {"id": "t2", "tokenName": "backup", "expiry": 10**12,
              "lastUsed": "never", "expires": "odd"}),
        Token("t3", "", 0, {"id": "t3", "expiry": 3_600_000}),
        Token("t4", "late", (1 << 63) - 1, {"id": "t4", "tokenName": "late", "expiry": 10**18}),
    ]  # fmt: skip
    text = shown(found, "tokens", "list", columns=120)
    for word in ("t1", "t2", "(expired)", "never", "3600000", "late"):
        assert word in text
    objects = json.loads(shown(found, "tokens", "list", "--json", columns=120))
    assert [(one["id"], one["name"], one["expires"], one["expired"]) for one in objects] == [
        (None, None, None, None),
        ("t2", "backup", "2001-09-09T01:46:40+00:00", True),
        ("t3", None, None, None),
        ("t4", "late", "2262-04-11T23:47:16+00:00", False),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokens", "list"],
        ["users", "list"],
        ["groups", "update", "g"],
        ["groups", "member", "g", "m", "Access"],
        ["groups", "delete", "g", "--yes"],
    ],
)
def test_exit_codes_without_an_answer(arguments: list[str]) -> None:
    """Exit code 3 without a logon, 4 without a service; one line without a secret."""
    outside = run(*arguments)
    assert (outside.returncode, outside.stdout) == (3, "")
    assert outside.stderr.count("\n") == 1 and "zonedrive logon" in outside.stderr
    save_bearer(open_store(log_on()), Bearer("t0ken", "token"))
    away = run(*arguments)
    assert (away.returncode, away.stdout) == (4, "")
    assert away.stderr.count("\n") == 1 and "t0ken" not in away.stderr


def test_a_command_does_not_repeat_its_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the service is not available, the error asks the user to try again later."""

    def fail(*_: object) -> None:
        raise Unavailable("the service cannot do it now (HTTP 503)")

    monkeypatch.setattr(organization, "ask_directory", fail)
    with pytest.raises(SystemExit):
        main(["users", "list"])
    said = "zonedrive: the service cannot do it now (HTTP 503); try again later\n"
    assert capsys.readouterr().err == said


def test_a_declined_question_does_not_count_as_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer no ends a command with exit code 1, Ctrl-C with 130."""

    def interrupt(_: str) -> bool:
        raise click.Abort

    for ask, code, said in (
        (lambda _: False, 1, "zonedrive: nothing was removed\n"),
        (interrupt, 130, ""),
    ):
        monkeypatch.setattr(text_output, "is_confirmed", ask)
        with pytest.raises(SystemExit) as end:
            main(["groups", "delete", "g"])
        assert (end.value.code, capsys.readouterr().err) == (code, said)
