"""The page on writing a profile is correct: its example works."""

import json
import re
from collections.abc import Iterator
from importlib import resources

import pytest

from tests.harness.deployment import Deployment
from tests.harness.elsewhere import move_away
from tests.harness.fault_proxy import Asked, FaultProxy
from tests.harness.machine import Machine, Mounted
from zonedrive.remote.profiles.load import parse_profile
from zonedrive.remote.profiles.operations import OPERATIONS

PAGE = (resources.files("zonedrive") / "docs/PROFILES.md").read_text("utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def elsewhere(
    proxy: FaultProxy, machine: Machine, deployment: Deployment, zone: str
) -> Iterator[tuple[Mounted, list[str]]]:
    """Yield a mount of a service with the example's addresses, and the requests to them."""
    used = move_away(proxy)
    file = machine.folder / "ours.toml"
    file.write_text(EXAMPLES[0], "utf-8")
    machine.log_on(proxy, profile=str(file))
    with Mounted(machine, deployment, zone, ["settle=0.2"]).mounting() as mount:
        yield mount, used
    complaints = mount.complaints()
    assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)


def test_the_example_works_for_every_operation(elsewhere: tuple[Mounted, list[str]]) -> None:
    """On a service with the example's addresses every operation works, with any names."""
    mounted, used = elsewhere
    root, zone, machine = mounted.root, mounted.zone, mounted.machine
    odd = 'a?b#c%2e&d=e "f"\\{name}.txt'
    file_id = zone.entry_id("notes.txt")
    (root / "new").mkdir()
    (root / "docs/2026").rename(root / "docs/2027")
    (root / "notes.txt").rename(root / "new" / odd)
    (root / "empty").unlink()
    mounted.sync()
    assert zone.entry_id(f"new/{odd}") == file_id
    assert {"new", f"new/{odd}", "docs/2027/q1.csv"} <= set(zone.tree())
    assert zone.find("empty") is None
    (root / "docs/2027/q1.csv").unlink()
    (root / "docs/2027").rmdir()
    (root / "new" / odd).write_bytes(b"second version")
    mounted.sync()
    assert zone.find("docs/2027") is None
    versions = json.loads(machine.done("versions", root / "new" / odd, "--json"))
    assert [each["version"] for each in versions] == ["2", "1"]
    assert versions[0]["modified_by"] == "alice@acme.example"
    assert versions[0]["modified"] > "2026"
    assert "empty" in machine.done("trash", "--zone", root.name)
    machine.done("restore", "empty", "--zone", root.name)
    assert (root / "empty").exists()
    assert {each.split()[0] for each in used} == {"POST", "PUT", "DELETE", "GET"}
    assert len(set(used)) == 8, used  # all but purge and the content of a version


def test_doctor_finds_the_example_in_order(
    elsewhere: tuple[Mounted, list[str]], proxy: FaultProxy
) -> None:
    """Doctor finds each address of the example without a request that could change anything."""
    mounted, used = elsewhere
    before = len(proxy.came)
    used.clear()
    said = mounted.machine.done("doctor", "--profile", mounted.machine.folder / "ours.toml")
    assert "everything is in order" in said
    assert said.count("it is there") == 7
    assert said.count("it answers") == 3
    assert all(each.startswith("GET ") for each in used)
    assert all(_harmless(asked) for asked in proxy.came[before:])


def _harmless(asked: Asked) -> bool:
    """Return True for a read request, or one that the service must reject."""
    headers = {name.lower() for name in asked.headers}
    bare = not headers & {"authorization", "cookie"} and not asked.body
    return asked.method == "GET" or bare


def test_the_page_names_every_operation_and_its_placeholders() -> None:
    """The table lists exactly the accepted operations and placeholders."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    told = {name: set(re.findall(r"\{(\w+)\}", placeholders)) for name, placeholders in rows}
    assert told == {name: set(kind.may) for name, kind in OPERATIONS.items()}


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_each_example_is_a_profile(number: int) -> None:
    """Each example on the page is a valid profile."""
    parse_profile(EXAMPLES[number], "example", "PROFILES.md")
