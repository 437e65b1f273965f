"""Any text is parsed or rejected with one short message, in a short time."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive.errors import ProfileError
from zonedrive.remote.profiles.load import LONGEST, parse_profile
from zonedrive.toml_input import DEEPEST, LONGEST_WORDS, WIDEST, WrongDocument, line_of, parse

HEAD = '[make_folder]\nmethod = "POST"\npath = "/api/{parent}/{name}"\n'
DOTS = ".".join("a" * (WIDEST // 2 - 10))


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (f"x = {'9' * 5000}", 1, "a line of more than"),
        (f"\n[a]\nx = {'9' * 5000}", 3, "a line of more than"),
        ("\n[a]\nx = [\n" + "1,\n" * 9 + "[" * 990 + "]" * 990 + "\n]", 0, "nest"),
        (f"\n[a]\n{DOTS} = 1", 0, "nest"),
        (f"\n[a.{DOTS}]\nx = 1", 0, "nest"),
        (f"\nx = {'[' * DEEPEST}{']' * DEEPEST}", 0, "nest"),
    ],
)
def test_a_text_beyond_the_limits_is_rejected(text: str, line: int, word: str) -> None:
    """A line that is too long is named by its number."""
    with pytest.raises(WrongDocument, match=word) as refused:
        parse(text)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("body = [\n" + "1,\n" * 20_000 + "'{who}']", 20_005),
        ('body = { n = """' + "\n" * 2_000 + '{who}""" }', 2_004),
        ("#\n" * 2_000 + "body = { n = '{who}' }", 2_004),
        (f"{DOTS} = 1\n" * 1 + "body = 5", 0),
        ("body = { at = 2026-01-01 }\n" + "#\n" * 2_000, 4),
        ("body = { n = 0x" + "f" * 1900 + " }", 4),
        (f"{'k' * 1900} = 1", 4),
        (f"[a{'k' * 900}]\n[a{'k' * 900}]", 5),
    ],
)
def test_a_mistake_in_a_large_profile_is_one_short_line(
    body: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the line, a text is parsed once more; the message does not quote a page."""
    parsed: list[int] = []

    def loads(text: str, loads: Any = tomllib.loads) -> Any:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", loads)
    text = HEAD + body
    assert len(text) <= LONGEST
    with pytest.raises(ProfileError, match=rf"line {line}\b" if line else "nest") as refused:
        parse_profile(text, "ours", "ours.toml")
    assert len(parsed) <= 2
    assert len(refused.value.line()) < LONGEST_WORDS + 300
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("\n" * 10**6 + "b = 1", 10**6 + 1, id="blank"),
        pytest.param("#\n" * 10**6 + "b = 1", 10**6 + 1, id="comments"),
        ('a = """x"""""\nb = 1', 2),
        ("a = '''x'''''\nb = 1", 2),
        ('a = "[{\\"#"\nb = 1', 2),
        ("a = '[{\\'\nb = 1", 2),
        ('a = """\n\\"""[\n"""\nb = 1', 4),
        ("a = [ # ]\n1,\n[2, # x\n]\n]\nb = 1", 6),
        ("a = 1 # [ ' \"\nb = 1", 2),
        ("a = {c = [\n1]}\n\n# b\nb = 1\n", 5),
    ],
)
def test_the_line_of_a_key_after_quotes_and_brackets(text: str, line: int) -> None:
    """Brackets, quotes and comments before a key do not change its line."""
    assert parse(text)["b"] == 1
    assert line_of(text, ("b",)) == line


@given(st.text(st.sampled_from("ab.=[]{}\"'#\n\\ 19,-:T+_e"), max_size=60))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    """No other exception is raised, and every key has a line."""
    try:
        found = parse(text)
    except WrongDocument:
        return
    lines = text.count("\n") + 1
    for name in found:
        assert 1 <= line_of(text, (name,)) <= lines
