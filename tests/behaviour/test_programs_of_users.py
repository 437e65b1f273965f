"""Documentation of `zonedrive.remote`: its examples run, and it describes every name."""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import zonedrive
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from zonedrive.remote import Client, Directory
from zonedrive.sandbox import seed

PAGE = (Path(zonedrive.__file__).parent / "docs/PYTHON_CLIENT.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PICTURE = seed.PACKAGED_WORLD.parent / "project-x/02 Financials/Sales by year.png"
MEETING = seed.PACKAGED_WORLD.parent / "board/2026-09-15 Meeting"


@pytest.fixture(scope="module")
def example_world() -> Iterator[Deployment]:
    """Yield a sandbox with the packaged world."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, world_file=world.example(folder, seed.PACKAGED_WORLD))
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(machine: Machine, example_world: Deployment) -> Machine:
    """Return Alice's machine: logged on, with a file to upload, a token, and the CA certificate."""
    machine.log_on(example_world, profile="sandbox")
    made = machine.done("tokens", "create", "t", "--password-stdin", text="correct horse\n")
    (machine.folder / "token").write_text(made)
    (machine.folder / "report.pdf").write_bytes(b"%PDF-1.7 of sorts\n")
    shutil.copy(example_world.ca_file, machine.folder / "ca.pem")
    return machine


def run(example: str, home: Machine, deployment: Deployment) -> str:
    """Run an example with the password on standard input; return its output."""
    program = example.replace("https://service.example", deployment.base_url)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program],
        input="correct horse\n", env=home.environment, cwd=home.folder, timeout=60,
        capture_output=True, encoding="utf-8", check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_upload_takes_ten_lines(home: Machine, example_world: Deployment) -> None:
    """Ten lines upload a file to a folder; running them again makes its next version."""
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert len(lines) <= 10
    for _ in range(2):
        run(EXAMPLES[0], home, example_world)
    zone = example_world.person("alice").zone("Project X")
    assert zone.read("02 Financials/report.pdf") == b"%PDF-1.7 of sorts\n"
    assert len(zone.versions("02 Financials/report.pdf")) == 2


def test_a_folder_is_fetched_whole(home: Machine, example_world: Deployment) -> None:
    """All files below a folder are downloaded, and no name leads outside the target."""
    example_world.plant("Board", "../out", "x", parent=MEETING.name)
    said = run(EXAMPLES[1], home, example_world)
    assert "'Project X'" in said and "left out: '../out'" in said
    for source in MEETING.iterdir():
        assert (home.folder / "meeting" / source.name).read_bytes() == source.read_bytes()
    assert len(list((home.folder / "meeting").iterdir())) == len(list(MEETING.iterdir()))


def test_a_token_is_enough(home: Machine, example_world: Deployment) -> None:
    """With only a token, a program reads ranges of a file."""
    said = run(EXAMPLES[2], home, example_world)
    assert said.strip() == hashlib.sha256(PICTURE.read_bytes()).hexdigest()


def test_operations_of_a_profile(home: Machine, example_world: Deployment) -> None:
    """Folders, versions, names and the trash work, or one line reports that the profile lacks
    them."""
    said = run(EXAMPLES[3], home, example_world)
    assert said.splitlines() == [r"b'Dear all,\n' alice@acme.example", "['Letter to all.txt']"]
    zone = example_world.person("alice").zone("Project X")
    assert zone.read("New drafts/Letter to all.txt") == b"Dear all, dear Bob,\n"
    home.log_on(example_world, profile="published")
    refused = run(EXAMPLES[3], home, example_world)
    assert "make_folder" in refused and refused.count("\n") == 1


def test_users_groups_and_tokens(home: Machine, example_world: Deployment) -> None:
    """A program manages users, groups and tokens."""
    users, group, made, tokens = run(EXAMPLES[4], home, example_world).splitlines()
    assert users == "6 users"
    assert re.fullmatch(
        r"group\.[0-9a-f-]{36}@acme\.example \[\('carol@acme\.example', 'Access'\)\]", group
    )
    assert int(made.split()[2]) >= 20
    assert ast.literal_eval(tokens)[-1] == "provisioning"


def test_the_page_names_everything() -> None:
    """Every exported name and every verb is on the page, and there are five examples."""
    assert len(EXAMPLES) == 5
    verbs = [name for kind in (Client, Directory) for name in vars(kind) if name[0] != "_"]
    for name in [*zonedrive.remote.__all__, *verbs]:
        assert re.search(rf"\b{name}\b", PAGE), name
