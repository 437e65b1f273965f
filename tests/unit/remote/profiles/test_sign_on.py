"""Table [sign_on] of a profile: its use of an answer, and its forbidden content."""

import pytest

from zonedrive.errors import ProfileError
from zonedrive.remote.profiles.load import load_profile, parse_profile
from zonedrive.remote.profiles.operations import SignOn


def table(text: str) -> SignOn:
    """Return the parsed [sign_on] table."""
    found = parse_profile(f"[sign_on]\n{text}", "mine", "mine.toml").sign_on
    assert found is not None
    return found


def test_an_answer_goes_where_the_profile_says() -> None:
    """Only fields of the answer and the organization become fields of the logon."""
    way = table(
        'body = { token = "{answer.id_token}", organizationName = "{organization}",'
        ' passwordAsString = "a-{answer.x}-{answer.x}", autoLogon = true }'
    )
    answer = {"id_token": "{answer.x}", "x": "1", "other": "2"}
    assert way.logon(answer, "Acme") == {
        "token": "{answer.x}",
        "organizationName": "Acme",
        "passwordAsString": "a-1-1",
        "autoLogon": True,
    }
    assert (way.fragment, way.error, way.redirect) == (False, "", "")


def test_an_answer_with_missing_fields() -> None:
    """Missing and empty fields are named, each once."""
    way = table('body = { token = "{answer.a}{answer.b}", username = "{answer.a}{answer.c}" }')
    assert way.missing({"b": "", "c": "1"}) == ["a", "b"]


def test_forms() -> None:
    """The default is a form post, which browsers do not store."""
    body = 'body = { token = "{answer.token}" }\n'
    assert table(f'{body}response = "form"').fragment is False
    assert table(f'{body}response = "fragment"').fragment is True
    assert table(f'{body}error = "error"\nredirect = "back"').redirect == "back"


def test_the_packaged_profiles() -> None:
    """`published` has no sign-on table, `sandbox` has one."""
    assert load_profile("published").sign_on is None
    way = load_profile("sandbox").sign_on
    assert way is not None
    assert way.logon({"token": "x"}, "Acme") == {"token": "x"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "body must say"),
        ("body = {}", 2, "body must say"),
        ('body = "x"', 2, "body must say"),
        ('body = { token = "x" }', 2, "nothing of the answer"),
        ('body = { token = "{organization}" }', 2, "nothing of the answer"),
        ('body = { token = 1, a = "{answer.x}" }', 2, "must be a text"),
        ('body = { token = "{token}" }', 2, "unknown placeholder {token}"),
        ('body = { token = "{answer.}" }', 2, "unknown placeholder"),
        ('body = { token = "{answer.a b}" }', 2, "unknown placeholder"),
        ('body = { token = "{answer.x} {" }', 2, "brace"),
        ('body = { acceptSessions = "{answer.x}" }', 2, "cannot set 'acceptSessions'"),
        ('body = { password = "{answer.x}" }', 2, "cannot set 'password'"),
        ('body = { "a\\nb" = "{answer.x}" }', 2, "cannot set"),
        ('body = { token = "{answer.x}" }\nresponse = "query"', 3, "form, fragment"),
        ('body = { token = "{answer.x}" }\nresponse = 1', 3, "form, fragment"),
        ('body = { token = "{answer.x}" }\nerror = ""', 3, "error must be the name"),
        ('body = { token = "{answer.x}" }\nredirect = "a b"', 3, "redirect must be the name"),
        ('body = { token = "{answer.x}" }\npath = "/api/x"', 3, "unknown key 'path'"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, line: int, words: str) -> None:
    """The error is one line with file, line and cause."""
    with pytest.raises(ProfileError) as wrong:
        table(text)
    assert wrong.value.message.startswith(f"mine.toml, line {line}: sign_on: ")
    assert words in wrong.value.message


def test_it_must_be_a_table() -> None:
    for text in ("sign_on = 1", "[[sign_on]]\nerror = 'x'"):
        with pytest.raises(ProfileError, match="sign_on must be a table"):
            parse_profile(text, "mine", "mine.toml")
