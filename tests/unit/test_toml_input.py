"""Texts of any kind come out as a document or as one short refusal, and soon."""

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
        ("\n[a]\nx = [\n" + "1,\n" * 9 + "[" * 990 + "]" * 990 + "\n]", 3, "nesting"),
        (f"\n[a]\n{DOTS} = 1", 3, "in each other"),
        (f"\n[a.{DOTS}]\nx = 1", 2, "in each other"),
        (f"\nx = {'[' * (DEEPEST + 1)}{']' * (DEEPEST + 1)}", 2, "in each other"),
    ],
)
def test_what_a_parser_gives_up_on_is_refused_with_its_line(
    text: str, line: int, word: str
) -> None:
    """Whatever is too long or too deep."""
    with pytest.raises(WrongDocument, match=word) as refused:
        parse(text)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("body = [\n" + "1,\n" * 20_000 + "'{who}']", 20_005),
        ('body = { n = """' + "\n" * 20_000 + '{who}""" }', 20_004),
        ("#\n" * 20_000 + "body = { n = '{who}' }", 20_004),
        (f"{DOTS} = 1\n" * 1 + "body = 5", 4),
        ("body = { at = 2026-01-01 }\n" + "#\n" * 20_000, 4),
        ("body = { n = 0x" + "f" * 1900 + " }", 4),
        (f"{'k' * 1900} = 1", 4),
        (f"[a{'k' * 900}]\n[a{'k' * 900}]", 5),
    ],
)
def test_a_mistake_in_a_large_profile_is_one_short_line(
    body: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find it, a text is parsed a few times, not once for each line; no page is quoted."""
    parsed: list[int] = []

    def loads(text: str, loads: Any = tomllib.loads) -> Any:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", loads)
    text = HEAD + body
    assert len(text) <= LONGEST
    with pytest.raises(ProfileError, match=rf"line {line}\b") as refused:
        parse_profile(text, "ours", "ours.toml")
    assert len(parsed) < 30
    assert len(refused.value.line()) < LONGEST_WORDS + 300
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("text", "line"),
    [
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
def test_statements_are_told_apart(text: str, line: int) -> None:
    """Brackets, quotes and comments in each other do not hide where a statement begins."""
    assert parse(text)["b"] == 1
    assert line_of(text, ("b",)) == line


@given(st.text(st.sampled_from("ab.=[]{}\"'#\n\\ 19,-:T+_e"), max_size=60))
def test_any_text_is_a_document_or_refused(text: str) -> None:
    """Nothing else comes out, and every key has a line."""
    try:
        found = parse(text)
    except WrongDocument:
        return
    lines = text.count("\n") + 1
    for name in found:
        assert 1 <= line_of(text, (name,)) <= lines
