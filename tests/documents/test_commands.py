"""Every command in a document is run on a real mount, or is in a list with the test that runs
it."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.documents import commands, stage
from tests.documents.commands import Line
from tests.documents.elsewhere import ROWS, row_for
from tests.documents.pages import ROOT, Block, pages
from tests.documents.stage import Stage

PAGES = pages()
BLOCKS = [block for page in PAGES for block in page.blocks if block.language in ("", "sh")]
FIVE_MINUTES = "Five minutes"
"""Section of the README that needs no preparation and is one sequence."""

# In which blocks of another language there are examples, and what tries them.
OTHERS = {
    ("src/zonedrive/docs/SETTINGS.md", "toml"): "tests/documents/test_pages.py",
    ("src/zonedrive/docs/ADMINISTRATION.md", "toml"): "tests/documents/test_pages.py",
    ("src/zonedrive/docs/CONTAINERS.md", "Containerfile"): "packaging/container-tour",
    ("src/zonedrive/docs/CONTAINERS.md", "bash"): "packaging/container-tour",
    ("src/zonedrive/docs/CONTAINERS.md", "yaml"): "packaging/container-tour",
    ("src/zonedrive/docs/CONTAINERS.md", "toml"): "packaging/container-tour",
    ("src/zonedrive/docs/PYTHON_CLIENT.md", "python"): "tests/behaviour/test_programs_of_users.py",
    (
        "src/zonedrive/docs/PROFILES.md",
        "toml",
    ): "tests/behaviour/test_writing_a_profile.py",
}


@pytest.fixture(scope="session")
def _stage() -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="zdd"))
    (folder / "service").mkdir()
    (folder / "home").mkdir()
    with stage.open_stage(folder) as found:
        yield found
    shutil.rmtree(folder, ignore_errors=True)


def steps(lines: list[Line]) -> list[list[Line]]:
    """Return the lines that run as one script; special commands run alone."""

    def kind(line: Line) -> object:
        stays = any(form.fullmatch(line.text) for form, _ in stage.STAYS)
        return line if stays or row_for(line.text) or codes(line.text) != {0} else "together"

    return [list(group) for _, group in groupby(lines, kind)]


def codes(text: str) -> set[int]:
    """Return the allowed exit codes; doctor may end with 1 if, for example, the machine is busy."""
    return {0, 1} if text.startswith("zonedrive doctor") else {0}


def perform(on: Stage, lines: list[Line], *, fresh: bool = True) -> None:
    """Run the commands of a block that are not run by another test.

    A script that succeeded is not run again: `Stage.ready` leads to the same state for all.
    """
    for step in steps(lines):
        if row_for(step[0].text):
            continue
        for line in step:
            told = f"{line.where}: {line.text}: neither runs here nor is in elsewhere.py"
            assert stage.MAY_RUN.fullmatch(line.text), told
        script = "\n".join(line.text for line in step)
        if fresh:
            if script in on.succeeded:
                continue
            on.ready(script)
        shown = on.run(script)
        told = f"{step[0].where}:\n{script}\nends with {shown.code}:\n{shown.text}"
        assert shown.code in codes(script), told
        assert "Traceback" not in shown.text, f"{step[0].where}: {shown.text}"
        if fresh:
            on.succeeded.add(script)


def concrete(on: Stage, line: Line) -> list[Line]:
    """Return runnable lines for a form; none if it is only a name."""
    found = []
    for text in commands.plain(line.text):
        candidate = Line(line.where, line.section, text)
        if candidate.words[0] == "zonedrive" and not commands.check(candidate.words):
            continue
        if row_for(text) is None:
            found.append(Line(line.where, line.section, on.filled(text)))
    return found


def sections() -> list[tuple[str, str]]:
    """Return page and section of every block with commands."""
    found = [(block.page, block.section) for block in BLOCKS if commands.lines_of(block)]
    return list(dict.fromkeys(found))


def forms() -> dict[str, list[Line]]:
    """Return the commands in sentences by page, each at its first place."""
    in_blocks = {line.text for block in BLOCKS for line in commands.lines_of(block)}
    found: dict[str, Line] = {}
    for page in PAGES:
        for line in commands.forms_of(page):
            if line.text not in in_blocks:
                found.setdefault(line.text, line)
    by_page: dict[str, list[Line]] = {}
    for line in found.values():
        by_page.setdefault(line.where.rpartition(":")[0], []).append(line)
    return by_page


@pytest.mark.parametrize(("page", "section"), sections())
def test_commands_in_blocks_work(_stage: Stage, page: str, section: str) -> None:
    """The lines of a section, copied in order, succeed with the promised result."""
    story = section == FIVE_MINUTES
    if story:
        _stage.empty()
        (_stage.home / "Zones").rmdir()
    for block in BLOCKS:
        if (block.page, block.section) != (page, section):
            continue
        lines = commands.lines_of(block)
        if block.language == "":
            for line in lines:
                for each in concrete(_stage, line):
                    perform(_stage, [each])
        else:
            perform(_stage, lines, fresh=not story)


@pytest.mark.parametrize("page", forms())
def test_commands_in_sentences_work(_stage: Stage, page: str) -> None:
    """A command in a sentence or table works with and without its optional parts."""
    for line in forms()[page]:
        for each in concrete(_stage, line):
            perform(_stage, [each])


def lines_in_documents() -> list[Line]:
    """Return all lines, including those of the forms."""
    found = [line for block in BLOCKS for line in commands.lines_of(block)]
    for page in PAGES:
        for line in commands.forms_of(page):
            found += [Line(line.where, "", text) for text in commands.plain(line.text)]
    return found


def test_zonedrive_has_every_command_and_option_that_is_named() -> None:
    """No document names a command, an option or a setting that does not exist."""
    for line in lines_in_documents():
        if line.words[0] == "zonedrive":
            try:
                commands.check(line.words)
            except commands.Wrong as wrong:
                pytest.fail(f"{line.where}: {line.text}: {wrong}")


def test_commands_tested_elsewhere() -> None:
    """Each row matches a line of a document, and names existing files."""
    lines = {line.text for line in lines_in_documents()}
    for row in ROWS:
        assert any(row.fits(line) for line in lines), f"no document has {row.pattern}"
        for file in row.tested:
            assert (ROOT / file).is_file(), file
    for file in OTHERS.values():
        assert (ROOT / file).is_file(), file


def test_scripts_that_are_not_run_have_these_options() -> None:
    """A script that is not run here exists, and knows each of its arguments."""
    helped: dict[str, str] = {}
    for line in lines_in_documents():
        row = row_for(line.text)
        first, *words = line.words
        if row is None:
            continue
        if first.startswith("packaging/"):
            assert os.access(ROOT / first, os.X_OK), f"{line.where}: {first}"
            text = (ROOT / first).read_text("utf-8")
            for word in [] if first == "packaging/test" else words:
                assert word in text, f"{line.where}: {first} knows no {word}"
        if row.instead:
            if row.instead not in helped:
                helped[row.instead] = _help(row.instead)
            for option in commands.options_of(words[2:] if "-m" in words else words):
                assert option in helped[row.instead], f"{line.where}: there is no {option}"


def _help(command: str) -> str:
    words = shlex.split(command)
    return subprocess.run(
        [sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_blocks_in_another_language_hide_no_command() -> None:
    """Text that is not a command is marked as text, or is an example that another test checks."""
    for page in PAGES:
        for block in page.blocks:
            if block.language in ("", "sh") or (block.page, block.language) in OTHERS:
                continue
            assert block.language == "text", f"{block.where}: nothing tries {block.language}"
            for line in commands.lines_of(_as_code(block)):
                assert not commands.is_command(line.text), f"{line.where}: {line.text}"


def _as_code(block: Block) -> Block:
    return Block(block.page, block.line, block.section, "sh", block.text)
