"""Statements of the documents are correct: links, files, defaults, errors, versions."""

import ast
import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest

import zonedrive
from tests.documents.pages import ROOT, Page, written
from zonedrive.cli.logon import logon
from zonedrive.cli.main import COMMANDS
from zonedrive.config import NAMES, Settings, organization
from zonedrive.content import cache_index, spool
from zonedrive.pins.poll import PACE_S, PASS_S
from zonedrive.remote.connectivity import ASKED_SECONDS, PROBING
from zonedrive.remote.requests import READ_SECONDS
from zonedrive.state.local_state import NAMES_SETTLE_S
from zonedrive.supervisor import Task
from zonedrive.sync.dispatcher import OVERDUE_NS
from zonedrive.vfs.write_sessions import KEEP_NEW_S, KEEP_S

SOURCES = ROOT / "src" / "zonedrive"
PAGES = {page.name: page for page in written()}
ADMINISTRATION = PAGES["src/zonedrive/docs/ADMINISTRATION.md"]
SETTINGS = PAGES["src/zonedrive/docs/SETTINGS.md"]
ARCHITECTURE = PAGES["src/zonedrive/docs/ARCHITECTURE.md"]
CONCURRENCY = PAGES["src/zonedrive/docs/CONCURRENCY.md"]
CONTRIBUTING = PAGES["src/zonedrive/docs/CONTRIBUTING.md"]
TROUBLE = PAGES["src/zonedrive/docs/TROUBLESHOOTING.md"]

# Errors that are shown to people and are not ours: the system's, and fusermount3's.
FOREIGN = {
    *(os.strerror(number) for number in range(1, 134)),
    "fusermount3: mount failed: Operation not permitted",
    "option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """Every link leads to an existing page and part of it."""
    for line, target in PAGES[name].links:
        if target.startswith("https://"):
            continue
        assert ":" not in target, f"{name}:{line}: {target}"
        file, _, part = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), f"{name}:{line}: there is no {target}"
        if part:
            other = PAGES[path.resolve().relative_to(ROOT).as_posix()]
            assert part in other.slugs, f"{name}:{line}: {file} has no #{part}"


def test_every_page_is_found_from_the_readme() -> None:
    """Every page can be reached by links from the README."""
    seen: set[str] = set()
    wanted = ["README.md"]
    while wanted:
        name = wanted.pop()
        if name in seen or name not in PAGES:
            continue
        seen.add(name)
        for _, target in PAGES[name].links:
            path = ((ROOT / name).parent / target.partition("#")[0]).resolve()
            if path.is_relative_to(ROOT):
                wanted.append(path.relative_to(ROOT).as_posix())
    shipped = {name for name in PAGES if not name.startswith("tests/")}
    assert shipped <= seen, sorted(shipped - seen)


def test_the_index_lists_every_document() -> None:
    """The index of the documents folder links to every page in it."""
    folder = "src/zonedrive/docs/"
    listed = {folder + target for _, target in PAGES[f"{folder}README.md"].links}
    there = {name for name in PAGES if name.startswith(folder)} - {f"{folder}README.md"}
    assert there <= listed, sorted(there - listed)


def test_the_first_screen_has_the_first_commands() -> None:
    """The two first commands are on the first screen of the README."""
    first = (ROOT / "README.md").read_text("utf-8").splitlines()[:24]
    for word in ("mounts the zones", "for people", "zonedrive logon", "zonedrive mount"):
        assert any(word in line for line in first), word


def test_the_readme_names_every_command_and_every_exit_code() -> None:
    """The README is a complete overview."""
    text = (ROOT / "README.md").read_text("utf-8")
    for name in COMMANDS:
        assert f"zonedrive {name}" in text, name
    for code in range(5):
        assert re.search(rf"\b{code} [a-z]", text), code


# ---- files and defaults -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_files_that_are_named_exist(name: str) -> None:
    """A path in a page exists in the sources."""
    for span in PAGES[name].spans:
        if re.match(r"(packaging|tests|src|systemd|\.ci)/[\w./@-]+$", span.text):
            assert (ROOT / span.text).exists(), f"{span.where}: there is no {span.text}"


MAPS = ("ARCHITECTURE", "CONCURRENCY", "CONTRIBUTING")


@pytest.mark.parametrize("name", MAPS)
def test_files_of_the_code_that_a_page_names_exist(name: str) -> None:
    """A path relative to the sources, or to the checkout, exists."""
    for span in PAGES[f"src/zonedrive/docs/{name}.md"].spans:
        if re.fullmatch(r"[\w/]+\.(py|toml)|[a-z]+/([a-z]+/)*", span.text):
            places = [ROOT / span.text, SOURCES / span.text]
            assert any(place.exists() for place in places), f"{span.where}: {span.text}"


@pytest.mark.parametrize(
    ("page", "folder", "shown"),
    [(ARCHITECTURE, SOURCES, "{}/"), (CONTRIBUTING, ROOT / "tests", "tests/{}/")],
    ids=["sources", "tests"],
)
def test_the_map_has_every_package(page: Page, folder: Path, shown: str) -> None:
    """Every folder of sources and tests has a line in the overview."""
    named = {span.text for span in page.spans}
    for path in folder.iterdir():
        if path.is_dir() and path.name != "__pycache__" and any(path.glob("*.py")):
            assert shown.format(path.name) in named, f"{path} is not in the map"


def defined_in(path: Path) -> set[str]:
    """Return the functions, classes, and methods with their class, of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if not isinstance(each, ast.ClassDef))
            found |= {f"{node.name}.{each.name}" for each in methods if hasattr(each, "name")}
    return found


WAYS = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")[:2]]
    for line in ARCHITECTURE.text.splitlines()
    if re.match(r"\| `[\w/]+\.py` \| `\w", line)
]


def test_the_functions_on_the_ways_through_the_code_exist() -> None:
    """Each function in a call path exists in the given file."""
    assert len(WAYS) > 50
    for (file,), functions in WAYS:
        missing = set(functions) - defined_in(SOURCES / file)
        assert not missing, f"{file} has no {sorted(missing)}"


@cache
def members() -> frozenset[str]:
    """Return every `Class.member` of the sources: methods, fields, and attributes of `self`."""
    found: set[str] = set()
    for file in SOURCES.rglob("*.py"):
        for kind in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(kind, ast.ClassDef):
                continue
            for node in ast.walk(kind):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(f"{kind.name}.{node.name}")
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(f"{kind.name}.{node.target.id}")
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(f"{kind.name}.{node.attr}")
    return frozenset(found)


@pytest.mark.parametrize("name", MAPS)
def test_members_of_classes_that_a_page_names_exist(name: str) -> None:
    """A lock, a check or an attribute that a page names is in the code."""
    for span in PAGES[f"src/zonedrive/docs/{name}.md"].spans:
        if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*\.[a-z_]\w*", span.text):
            assert span.text in members(), f"{span.where}: there is no {span.text}"


def test_every_background_task_is_described() -> None:
    """Each background task has a row, with the file that starts it."""
    started = dict(re.findall(r"\| `([A-Z_]+)` \| `([\w/]+\.py)` \|", CONCURRENCY.text))
    assert started.keys() == {task.name for task in Task}
    for task, file in started.items():
        assert f"Task.{task}" in (SOURCES / file).read_text("utf-8"), f"{file} starts no {task}"


def test_settings_have_the_defaults_that_are_shown() -> None:
    """The settings on the page are the defaults, and complete except for the two lists."""
    (block,) = [each for each in SETTINGS.blocks if each.language == "toml"]
    shown = tomllib.loads(block.text)
    del shown["account"]
    defaults = {name: getattr(Settings(), name) for name in NAMES}
    assert shown == {name: defaults[name] for name in shown}
    assert defaults.keys() - shown.keys() == {"local_only", "guard", "profile"}


def test_an_administrator_can_copy_the_example(tmp_path: Path) -> None:
    """The example of the organization's settings is read without a problem."""
    (block,) = [each for each in ADMINISTRATION.blocks if each.language == "toml"]
    (tmp_path / "config.toml").write_text(block.text)
    (tmp_path / "profiles").mkdir()
    shutil.copy(SOURCES / "remote/profiles/sandbox.toml", tmp_path / "profiles/acme.toml")
    found = organization("default", tmp_path)
    assert not found.problems
    assert found.policy["local_only"] == ("*.pst", "*.ost")
    assert found.base_url == "https://service.example"


NUMBER = r"(\d+)(?: seconds?)?"


@pytest.mark.parametrize("name", PAGES)
def test_sentences_have_the_same_defaults(name: str) -> None:
    """A number in a sentence about a setting is the default of the setting."""
    text = " ".join(PAGES[name].text.split())
    for setting in ("settle", "refresh"):
        wanted = int(getattr(Settings(), setting))
        quoted = rf"`{setting}`"
        forms = (
            rf"{quoted}, {NUMBER}",
            rf"{quoted} \({NUMBER}\)",
            rf"{quoted} seconds \(default {NUMBER}\)",
            rf"{NUMBER} \({quoted}\)",
        )
        for form in forms:
            for found in re.finditer(form, text):
                assert int(found[1]) == wanted, f"{name}: {found[0]}"


# Page, sentence, the number in it, and the one of the code.
SENTENCES = (
    (
        "src/zonedrive/docs/SEMANTICS.md",
        "of what the service has wait (\\d+) seconds",
        NAMES_SETTLE_S,
    ),
    (
        "src/zonedrive/docs/SEMANTICS.md",
        "waits for a moment of quiet, at most (\\d+) seconds",
        OVERDUE_NS / 1e9,
    ),
    ("src/zonedrive/docs/SEMANTICS.md", "a log, is saved every (\\d+) seconds", KEEP_S),
    ("src/zonedrive/docs/SEMANTICS.md", "is open for more than (\\d+) minutes", KEEP_NEW_S / 60),
    ("src/zonedrive/docs/SEMANTICS.md", "else within (\\d+) seconds", READ_SECONDS),
    ("src/zonedrive/docs/SEMANTICS.md", "looks for it every (\\d+) seconds at least", PROBING.cap),
    ("src/zonedrive/docs/SEMANTICS.md", "within (\\d+) when a program asks", ASKED_SECONDS),
    ("src/zonedrive/docs/SEMANTICS.md", "folder is listed every (\\d+) minutes", PASS_S / 60),
    ("src/zonedrive/docs/SEMANTICS.md", "more than (\\d+) such folders", PASS_S / PACE_S),
    (
        "src/zonedrive/docs/SEMANTICS.md",
        "such folders, (\\d+) of them are listed per second",
        1 / PACE_S,
    ),
    ("README.md", "new versions, are fetched automatically within (\\d+) minutes", PASS_S / 60),
    (
        "src/zonedrive/docs/TROUBLESHOOTING.md",
        "needs the service ends within (\\d+) seconds",
        READ_SECONDS,
    ),
    (
        "src/zonedrive/docs/TROUBLESHOOTING.md",
        "checks for the service every (\\d+) seconds",
        PROBING.cap,
    ),
)


@pytest.mark.parametrize(("name", "sentence", "wanted"), SENTENCES)
def test_deadlines_are_those_of_the_code(name: str, sentence: str, wanted: float) -> None:
    """Durations in the documents agree with the code."""
    found = re.search(sentence, " ".join(PAGES[name].text.split()))
    assert found, f"{name} says nothing of it any more: {sentence}"
    assert float(found[1]) == wanted, f"{name}: {found[0]}"


def option_default(command: click.Command, name: str) -> object:
    """Return the default of an option."""
    return next(each.default for each in command.params if each.name == name)


def test_the_other_numbers_are_those_of_the_code() -> None:
    """The lifetime of a token, the timeout of a sign-on and the disk reserve agree with the
    code."""
    readme, logging_on, settings = (
        " ".join((ROOT / name).read_text("utf-8").split())
        for name in ("README.md", "src/zonedrive/docs/LOGON.md", "src/zonedrive/docs/SETTINGS.md")
    )
    days = re.search(r"\[default: (\d+)\]|default (\d+)", _help(logon, "token_days"))
    assert days is not None
    assert f"a token of {days[1] or days[2]} days" in readme
    assert f"a token that is valid for {days[1] or days[2]} days" in logging_on
    assert option_default(logon, "timeout") == 300
    assert "the command ends after five minutes (`--timeout`)" in logging_on
    assert f"{cache_index.RESERVE:.0%}".replace("%", " %") + " of the disk stays free" in settings
    assert f"The last {spool.RESERVE >> 20} MB" in readme


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command)
    option = next(each for each in command.params if each.name == name)
    return " ".join(option.get_help_record(context) or ())


# ---- troubleshooting ----------------------------------------------------------------------------


@cache
def words_of_zonedrive() -> str:
    """Return every text in the program, with a placeholder for each value."""
    found: list[str] = []
    for file in SOURCES.rglob("*.py"):
        if "sandbox" in file.relative_to(SOURCES).parts[:-1]:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                )
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def titles(page: Page) -> list[str]:
    """Return the titles of the entries."""
    return [title for level, title in page.headings if level == 3]


@pytest.mark.parametrize("title", titles(TROUBLE))
def test_symptoms_are_messages_of_the_program(title: str) -> None:
    """An error in a title is printed by zonedrive or the system in exactly these words."""
    for shown in re.findall(r"`([^`]+)`", title):
        if shown in FOREIGN or shown in ("lost+found", "~") or shown.startswith("name (conflict"):
            continue
        for part in re.split(r"; |…", shown):
            assert part.strip() in words_of_zonedrive(), f"nothing says {part!r}"


@pytest.mark.parametrize("title", titles(TROUBLE))
def test_an_entry_has_meaning_safety_and_remedy(title: str) -> None:
    """Each entry has a meaning and a remedy, in this order, and may name a risk."""
    entry = TROUBLE.text.split(f"### {title}\n")[1].split("\n### ")[0].split("\n## ")[0]
    places = [entry.find(part) for part in ("**It means**", "**Your work**", "**Do**")]
    meaning, safety, remedy = places
    assert 0 <= meaning < remedy, title
    assert safety == -1 or meaning < safety < remedy, title


def test_the_introduction_says_that_saved_work_is_safe() -> None:
    """Entries that do not mention saved work rely on the introduction."""
    introduction = TROUBLE.text.split("\n## ")[0]
    assert "**Your work is safe unless an entry says otherwise.**" in introduction


def test_the_command_for_fuse_conf_works(tmp_path: Path) -> None:
    """The command enables `user_allow_other` in the file as Debian ships it."""
    (command,) = re.findall(r"^sudo (sed .*) /etc/fuse\.conf$", _code(TROUBLE), re.MULTILINE)
    file = tmp_path / "fuse.conf"
    file.write_text("# comment\n#mount_max = 1000\n\n#user_allow_other\n")
    subprocess.run(f"{command} {file}", shell=True, check=True)
    assert "\nuser_allow_other\n" in file.read_text()


def _code(page: Page) -> str:
    return "".join(block.text for block in page.blocks)


# ---- changelog ----------------------------------------------------------------------------------


def test_the_changelog_ends_with_this_version() -> None:
    """The newest version in the changelog is the program's, in the form of Keep a Changelog."""
    page = PAGES["packaging/CHANGELOG.md"]
    versions = [title for level, title in page.headings if level == 2]
    assert versions[0] == "[Unreleased]"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == zonedrive.__version__
    for version in versions[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version), version
    assert versions[1].startswith(f"[{zonedrive.__version__}]")
    kinds = {title for level, title in page.headings if level == 3}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_external_programs_exist() -> None:
    """External programs in lines that can be copied exist on this machine."""
    for name in ("bash", "df", "findmnt", "getfattr", "tail"):
        assert shutil.which(name), f"{name} is missing: run packaging/setup --tests"
