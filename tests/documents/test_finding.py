"""The checks of the documents find mistakes."""

import pytest

from tests.documents import commands, stage
from tests.documents.elsewhere import row_for
from tests.documents.pages import page

TEXT = """# Page

Run `zonedrive versions PATH [--get
VERSION]`, see [there](other.md#part) and `a | b`.

```sh
zonedrive sync   # waits
echo 'a # b' \\
    c
```

    packaging/demo DIR [--once]

## Part two
"""


def test_all_of_a_page_is_seen() -> None:
    """Blocks of both kinds, spans over lines and links are found with their places."""
    found = page("page.md", TEXT)
    fenced, indented = found.blocks
    assert [line.text for line in commands.lines_of(fenced)] == ["zonedrive sync", "echo 'a # b' c"]
    assert [line.where for line in commands.lines_of(fenced)] == ["page.md:7", "page.md:9"]
    shown = [line.text for line in commands.lines_of(indented)]
    assert shown == ["packaging/demo DIR", "packaging/demo DIR --once"]
    (form,) = commands.forms_of(found)
    assert commands.plain(form.text) == [
        "zonedrive versions PATH",
        "zonedrive versions PATH --get VERSION",
    ]
    assert found.links == ((4, "other.md#part"),)
    assert found.slugs == {"page", "part-two"}


@pytest.mark.parametrize(
    "line",
    [
        "zonedrive login https://service.example",
        "zonedrive sync --timeuot 60",
        "zonedrive mount ~/Zones -o refrehs=5",
        "zonedrive mount ~/Zones ~/More",
        "zonedrive tokens lost",
    ],
)
def test_unknown_commands_and_options_are_found(line: str) -> None:
    """A misspelled command, option or setting, and a surplus argument are found."""
    with pytest.raises(commands.Wrong):
        commands.check(line.split())


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("zonedrive sync", True),
        ("zonedrive sync --timeout 60 a b", True),
        ("zonedrive versions", False),
        ("zonedrive logon --save-password", True),
        ("zonedrive logon --token-days", False),
        ("zonedrive doctor --profile", False),
        ("zonedrive tokens", False),
        ("zonedrive --version", True),
    ],
)
def test_names_and_commands_are_distinguished(line: str, whole: bool) -> None:
    """Only complete commands are run; a name in a sentence is looked up."""
    assert commands.check(line.split()) is whole


@pytest.mark.parametrize(
    "line",
    ["sudo modprobe fues", "packaging/deb 14", "systemctl --user enabel x.service", "reboot"],
)
def test_an_unlisted_command_is_not_run(line: str) -> None:
    """A misspelled line of another test fails its page, and is not run."""
    assert row_for(line) is None
    assert stage.MAY_RUN.fullmatch(line) is None
