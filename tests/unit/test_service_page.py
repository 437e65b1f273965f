"""SERVICE.md is correct: it names the code and the test of each rule of the service."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.profiles.operations import OPERATIONS
from zonedrive.sandbox.app import GUARDED, OPEN
from zonedrive.sandbox.errors import NAMES

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "zonedrive"
PAGE = SOURCES / "docs" / "SERVICE.md"

# How many numbered rules each section of the interface has.
RULES = {
    "Service": 12,
    "Group access": 6,
    "Group update": 3,
    "General": 5,
    "Authentication": 13,
    "Events": 2,
    "Errors": 5,
    "Limits": 4,
    "Versioning": 4,
    "Flow": 3,
    "Token": 2,
    "Entry": 1,
}
STATUSES = {200, 201, 202, 204, 400, 401, 403, 404, 408, 409, 500, 502, 503}
NOT_SHOWN = (
    "creating folders", "renaming and moving", "deleting", "restoring", "permanent removal",
    "setting attributes", "listing versions", "content of a version",
    "listing deleted entries", "the zone log", "the user's own level",
    "members of zones", "listing the members", "changing the password",
    "revoking a token", "the pages of a sign-on in a browser", "creating shares",
    "ending shares", "the pages of a share",
    "the address of an entry's page for members",
    "method, request and response of the share token", "body and response of a revalidation",
    "the form of a list of tokens", "the form of a list of users", "responses to a changed member",
    "the name of an upload", "which fields of a logon", "which pending state",
    "when a name is blocked", "what scopes mean", "values of `synchronizationStatus`",
    "which lists are paginated", "which error belongs", "maximum sizes",
    "how versions of the API", "OAuth2",
)  # fmt: skip
METHOD = re.compile(r"`(GET|POST|PUT|DELETE) (/[^`]*)`")


class Row(NamedTuple):
    """Row of one of the page's tables."""

    line: int
    subject: str
    sandbox: str
    client: str
    test: str


@cache
def rows() -> tuple[Row, ...]:
    """Return every row, without the heads of the tables."""
    found = []
    for number, text in enumerate(PAGE.read_text().splitlines(), 1):
        if not text.startswith("| ") or text.endswith("| sandbox | client | test |"):
            continue
        cells = [cell.strip() for cell in text.strip("| ").split(" | ")]
        assert len(cells) == 4, f"SERVICE.md:{number} has {len(cells)} cells"
        found.append(Row(number, *cells))
    return tuple(found)


def named(cell: str) -> list[str]:
    """Return the text between backquotes."""
    return re.findall(r"`([^`]*)`", cell)


def addresses() -> set[tuple[str, str]]:
    """Return the methods and paths in the page."""
    return {pair for row in rows() for pair in METHOD.findall(row.subject)}


def blank(path: str) -> str:
    """Return a path with all placeholders replaced by the same text."""
    return re.sub(r"\{[^}]*\}", "{}", path)


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the tests in a file that pytest collects."""
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")
    )


def resolve(dotted: str) -> object:
    """Return the module, class, function or constant of that name; raise an error if it is
    missing."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def test_it_has_the_shape_of_a_table() -> None:
    """Every row has text in all four cells, and no row appears twice."""
    assert len(rows()) > 120
    for row in rows():
        assert all(row[1:]), f"SERVICE.md:{row.line}"
    subjects = [row.subject for row in rows()]
    assert len(set(subjects)) == len(subjects)


def test_every_test_in_it_exists() -> None:
    """A row names at least one test, of a file that pytest collects."""
    for row in rows():
        tests = named(row.test)
        assert tests, f"SERVICE.md:{row.line} names no test"
        assert len(set(tests)) == len(tests), f"SERVICE.md:{row.line} names a test twice"
        for test in tests:
            file, _, name = test.partition("::")
            path = ROOT / "tests" / file
            assert path.name.startswith("test_"), f"SERVICE.md:{row.line}: {test}"
            assert path.is_file(), f"SERVICE.md:{row.line}: there is no {file}"
            assert name in functions(path), f"SERVICE.md:{row.line}: there is no {test}"


@pytest.mark.parametrize(
    ("column", "home"), [("sandbox", "zonedrive.sandbox"), ("client", "zonedrive")]
)
def test_every_name_in_it_exists(column: str, home: str) -> None:
    """Every name in a row exists in the code."""
    for row in rows():
        for name in named(getattr(row, column)):
            if re.fullmatch(r"[a-z_]+(\.\w+)+", name):
                try:
                    resolve(f"{home}.{name}")
                except (ModuleNotFoundError, AttributeError):
                    pytest.fail(f"SERVICE.md:{row.line}: there is no {home}.{name}")


def test_every_cell_names_something() -> None:
    """A cell names code, an operation of profiles, or has a dash."""
    for row in rows():
        for cell in (row.sandbox, row.client):
            assert named(cell) or re.search(r"\[\w+\]", cell) or cell.startswith("-"), row


def test_the_operations_are_those_of_profiles() -> None:
    """Names in brackets are exactly the operations that a profile can define."""
    found = {name for row in rows() for name in re.findall(r"\[(\w+)\](?!\()", row.client)}
    assert found == set(OPERATIONS)


def test_every_address_of_the_sandbox_has_its_row() -> None:
    """The page has exactly the sandbox's endpoints, each with its function."""
    table: dict[tuple[str, str], Any] = {(method, path): found for method, path, found in OPEN}
    table |= {(method, path): found for method, path, found, _resource, _action in GUARDED}
    assert addresses() == set(table)
    for row in rows():
        for pair in METHOD.findall(row.subject):
            endpoint = table[pair]
            name = f"{endpoint.__module__.removeprefix('zonedrive.sandbox.')}.{endpoint.__name__}"
            assert name in named(row.sandbox), f"SERVICE.md:{row.line}: {pair} is {name}"


def paths_of_the_client() -> Iterator[tuple[str, str]]:
    """Return place and path of every text in the client that is a path of the service."""
    for file in SOURCES.rglob("*.py"):
        if "sandbox" in file.relative_to(SOURCES).parts[:-1]:
            continue
        source = file.read_text()
        if "/api/" not in source and "/share/" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if re.fullmatch(r"/(api|share)/[\w{}/-]*[\w}]", text):
                    yield f"{file}:{node.lineno}", text


def test_every_address_of_the_client_has_its_row() -> None:
    """Every path that the client uses is in the page, including those of the sandbox's profile."""
    known = {blank(path) for _method, path in addresses()}
    found = list(paths_of_the_client())
    assert len(found) >= 10, found
    for where, path in found:
        assert blank(path) in known, f"{where}: {path}"
    profile = load_profile("sandbox")
    pairs = {(method, blank(path)) for method, path in addresses()}
    for name in OPERATIONS:
        operation = profile.find(name)
        if operation is not None:
            path = operation.path or f"/{operation.link}"
            assert (operation.method, blank(path)) in pairs, name


def test_every_rule_has_its_row() -> None:
    """Each numbered rule of the API is in the page once."""
    for section, count in RULES.items():
        wanted = [f"{section} {number}" for number in range(1, count + 1)]
        found = [
            subject
            for subject in (row.subject.partition(":")[0] for row in rows())
            if re.fullmatch(rf"{section} \d+", subject)
        ]
        assert found == wanted


def test_statuses_headers_and_unknown_facts_have_a_row() -> None:
    """The statuses, the header, and all unknown facts have a row."""
    subjects = [row.subject for row in rows()]
    told = [subject for subject in subjects if subject.startswith("Status ")]
    assert sorted(int(each) for subject in told for each in re.findall(r"\d+", subject)) == sorted(
        STATUSES
    )
    assert sum(subject.startswith("Header `X-Real-Ip`") for subject in subjects) == 1
    _, _, end = PAGE.read_text().partition("## What the API does not describe")
    unknown = [subject for subject in subjects if f"| {subject} |" in end]
    assert len(unknown) == len(NOT_SHOWN)
    for subject, wanted in zip(unknown, NOT_SHOWN, strict=True):
        assert subject.startswith(wanted)


def paths_in(function: object) -> set[str]:
    """Return the service's paths that a function names, itself or by a constant of its module."""
    if not inspect.isfunction(function):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {function.__globals__.get(name) for name in names}
    return {blank(text) for text in found if isinstance(text, str) and text.startswith("/")}


def test_each_endpoint_is_requested_by_its_client_function() -> None:
    """One of the functions in an endpoint's row has the endpoint's path."""
    seen = 0
    for row in rows():
        wanted = {blank(path) for _method, path in METHOD.findall(row.subject)}
        if not wanted or row.client.startswith("-") or "[" in row.client:
            continue
        names = [name for name in named(row.client) if re.fullmatch(r"[a-z_]+(\.\w+)+", name)]
        there = [paths_in(resolve(f"zonedrive.{name}")) for name in names]
        if any(there):
            seen += 1
            assert wanted & set().union(*there), f"SERVICE.md:{row.line}: none asks {wanted}"
    assert seen >= 15


def errors_named_by_the_sandbox() -> set[str]:
    """Return the API's errors in the sandbox's sources, without its tables of errors."""
    found = set()
    for file in (SOURCES / "sandbox").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and file.name == "errors.py":
                continue
            texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            found |= {text for text in texts if isinstance(text, str) and text in NAMES}
    return found


def test_the_errors_are_those_of_the_sandbox() -> None:
    """The page says which errors occur by themselves and which only on demand."""
    given: dict[str, set[str]] = {}
    for row in rows():
        head, _, rest = row.subject.partition(": ")
        if head.startswith("Given "):
            given[head] = set(rest.split(", "))
    by_itself, on_demand = given["Given by the sandbox itself"], given["Given on demand only"]
    assert by_itself | on_demand == NAMES
    assert not by_itself & on_demand
    assert errors_named_by_the_sandbox() <= by_itself
    # What a status alone is told as: of the framework's refusals, 404 and 405.
    assert by_itself - errors_named_by_the_sandbox() <= {"NOT_FOUND", "NOT_SUPPORTED", "FAILED"}


def test_the_readme_leads_to_it() -> None:
    """The README links to the page."""
    assert "(src/zonedrive/docs/SERVICE.md)" in (ROOT / "README.md").read_text()
