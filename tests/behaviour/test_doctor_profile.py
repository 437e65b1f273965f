"""`zonedrive doctor --profile` reports which operations a deployment has, and changes nothing."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Machine

SANDBOX = (resources.files("zonedrive.remote") / "profiles/sandbox.toml").read_text("utf-8")
DELETE = '[delete]\nmethod = "{}"\npath = "{}"\nanswer = "none"\n'


@pytest.fixture
def logged_on(proxy: FaultProxy, machine: Machine) -> Iterator[Machine]:
    """Yield Alice's machine, logged on through the proxy."""
    machine.log_on(proxy, profile="published")
    proxy.came.clear()
    yield machine


def examine(machine: Machine, text: str) -> dict[str, dict[str, Any]]:
    """Return the checks by name."""
    file = machine.folder / "ours.toml"
    file.write_text(text, "utf-8")
    ended = machine.run("doctor", "--json", "--profile", file)
    assert ended.stderr == ""
    said = json.loads(ended.stdout)
    assert (ended.returncode == 0) == said["ok"] == all(check["ok"] for check in said["checks"])
    return {check["name"]: check for check in said["checks"]}


def test_the_sandbox_has_all_of_its_profile(
    logged_on: Machine, proxy: FaultProxy, deployment: Deployment, zone: str
) -> None:
    """Doctor finds each operation, and no request changes the service's data."""
    remote = deployment.person("bob").zone(zone)
    before = remote.tree()
    found = examine(logged_on, SANDBOX)
    assert [name for name, check in found.items() if not check["ok"]] == []
    assert "it is there" in found["purge"]["detail"]
    assert "it answers" in found["versions"]["detail"]
    assert {asked.method for asked in proxy.came} == {"GET", "OPTIONS"}
    assert not any(asked.body for asked in proxy.came)
    assert remote.tree() == before


def test_addresses_that_are_not_there(logged_on: Machine) -> None:
    """Doctor distinguishes a wrong path, a wrong method and a wrong place in the answer."""
    text = SANDBOX.replace("/zones/{zone}/folders", "/zones/{zone}/directories")
    text = text.replace('method = "PUT"', 'method = "PATCH"')
    text += '\n[versions]\npath = "/api/sandbox/zones/{zone}/files/{file}/versions"\nanswer = "a"\n'
    text = text.replace('[versions]\nmethod = "GET"', '[ignored]\nmethod = "GET"', 1)
    text = "\n".join(part for part in text.split("\n\n") if not part.startswith("[ignored]"))
    found = examine(logged_on, text)
    bad = {name: check["detail"] for name, check in found.items() if not check["ok"]}
    assert set(bad) == {"make_folder", "move", "set_member", "remove_member", "versions"}
    assert "no such address" in bad["make_folder"]
    assert "not for this method" in bad["move"]
    assert "not what this operation gives" in bad["versions"]
    assert all(found[name]["remedy"] for name in bad)


def test_a_version_without_its_time_or_size_is_noticed(logged_on: Machine) -> None:
    """If the members have other names, doctor recommends `fields`."""
    table = '[versions]\npath = "/api/sandbox/zones/{zone}/files/{file}/versions"\n'
    found = examine(logged_on, table + 'fields = { modified = "changed" }\n')
    assert "fields.modified" in found["versions"]["remedy"]
    found = examine(logged_on, table + 'fields = { size = "length" }\n')
    assert "does not say how large each version is" in found["versions"]["detail"]
    assert "fields.size" in found["versions"]["remedy"]
    nothing = examine(logged_on, table + 'fields = { id = "a", version = "b" }\n')
    assert "no version" in nothing["versions"]["detail"]


def test_a_zone_log_whose_fields_are_not_named_is_noticed(logged_on: Machine) -> None:
    """Without the time and the text of a message, doctor recommends `fields`."""
    table = '[zone_log]\npath = "/api/sandbox/zones/{zone}/log"\n'
    for fields in ("", 'fields = { time = "when", message = "text" }\n'):
        found = examine(logged_on, table + fields)["zone_log"]
        assert not found["ok"] and "fields.time" in found["remedy"]
    named = 'fields = { time = "timestamp", event = "event" }\n'
    assert examine(logged_on, table + named)["zone_log"]["ok"]


def test_an_endpoint_that_accepts_no_logon_is_noticed(
    logged_on: Machine, proxy: FaultProxy
) -> None:
    """The user is not asked to log on again, because the logon is valid."""

    def alter(answer: Answer) -> None:
        answer.status, answer.body, answer.length = 401, b"", 0

    proxy.about = lambda asked: asked.path.startswith("/api/sandbox/zones/")
    proxy.alter = alter
    found = examine(logged_on, SANDBOX)
    assert found["levels"]["ok"]
    for name in ("versions", "members", "zone_log"):
        assert "HTTP 401" in found[name]["detail"] and not found[name]["ok"]
        assert "logon" not in found[name]["remedy"]


ALIKE = [
    (401, {}, True, "cannot be checked"),
    (500, {}, True, "cannot be checked"),
    (200, {}, False, "without a logon"),
    (302, {"Location": "https://elsewhere.example/"}, False, "never followed"),
    (404, {}, False, "no such address"),
    (405, {}, False, "not for this method"),
]


def test_a_service_that_answers_everything_alike(logged_on: Machine, proxy: FaultProxy) -> None:
    """If answers cannot be distinguished, the check is reported as open; no data are at risk."""
    said: list[tuple[int, dict[str, str]]] = []

    def alter(answer: Answer) -> None:
        answer.status, answer.headers = said[-1][0], dict(said[-1][1])
        answer.body, answer.length = b"", 0

    proxy.about = lambda asked: "Authorization" not in asked.headers
    proxy.alter = alter
    for status, headers, ok, word in ALIKE:
        said.append((status, headers))
        found = examine(logged_on, DELETE.format("DELETE", "/api/v9/{entry}"))["delete"]
        assert (found["ok"], word in found["detail"]) == (ok, True), (status, found)
    assert all(_bare(asked) for asked in proxy.came if asked.method != "GET")


def _bare(asked: Asked) -> bool:
    return "Authorization" not in asked.headers and not asked.body


def test_endpoints_without_a_logon_are_only_checked_with_options(
    logged_on: Machine, proxy: FaultProxy
) -> None:
    """If the service may act without a logon, doctor sends only OPTIONS."""
    for path in ("/api/access/newcredentials/{entry}", "elsewhere/{entry}/x"):
        found = examine(logged_on, DELETE.format("POST", path))
        assert "POST" not in {asked.method for asked in proxy.came}
    assert "cannot be checked" in found["delete"]["detail"]


READS = {
    "zone_log": 'query = { zone = "{zone}" }',
    "deleted": 'query = { zone = "{zone}" }',
    "versions": 'query = { file = "{file}" }',
    "version_content": 'query = { file = "{file}", version = "{version}" }',
}
ENDS = ["/api/access/logoff", "/api/Access/logoff", "/api/access;x/logoff", "share/{}/token"]


def test_reading_never_ends_the_session_that_it_needs(proxy: FaultProxy, machine: Machine) -> None:
    """A table that reads from the logoff address is not checked, and the user stays logged on."""
    machine.log_on(proxy, profile="published", options=["--session-only"])
    proxy.came.clear()
    names = {"zone_log": "{zone}", "deleted": "{zone}"}
    for path in ENDS:
        text = "".join(
            f'[{name}]\npath = "{path.replace("{}", names.get(name, "{file}"))}"\n{query}\n'
            for name, query in READS.items()
        )
        found = examine(machine, text)
        assert set(READS) < set(found)
    assert {asked.method for asked in proxy.came} == {"OPTIONS"}
    assert all(_bare(asked) for asked in proxy.came)
    machine.done("zones")


UNREADABLE = [
    (500, {}, "could not be tested"),
    (503, {"Retry-After": "3600"}, "could not be tested"),
    (413, {}, "could not be tested"),
    (302, {"Location": "https://elsewhere.example/"}, "never followed"),
]


def test_a_table_that_cannot_be_read_is_a_problem(logged_on: Machine, proxy: FaultProxy) -> None:
    """Doctor does not report success for a table that it could not check."""
    said: list[tuple[int, dict[str, str]]] = []

    def alter(answer: Answer) -> None:
        answer.status, answer.headers = said[-1][0], dict(said[-1][1])
        answer.body, answer.length = b"", 0

    proxy.about = lambda asked: "/trash" in asked.path
    proxy.alter = alter
    for status, headers, word in UNREADABLE:
        said.append((status, headers))
        found = examine(logged_on, '[deleted]\npath = "/api/v9/{zone}/trash"\n')["deleted"]
        assert (found["ok"], word in found["detail"]) == (False, True), (status, found)
        assert found["remedy"]


def test_mistakes_in_the_file_come_first(machine: Machine) -> None:
    """Mistakes are reported with file and line before any request; a missing logon is reported."""
    found = examine(machine, DELETE.format("DELETE", "https://evil.example/{entry}"))
    assert set(found) == {"profile"}
    assert found["profile"]["detail"].startswith("the file, line 3: ")
    found = examine(machine, DELETE.format("DELETE", "/api/{entry}"))
    assert {name for name, check in found.items() if not check["ok"]} == {"logon"}


def test_json_and_report_contain_no_names(logged_on: Machine, deployment: Deployment) -> None:
    """The output contains no zone, file, person or host."""
    file = logged_on.folder / "ours.toml"
    file.write_text(SANDBOX, "utf-8")
    shown = logged_on.done("doctor", "--profile", file)
    private = ["127.0.0.1", "Zone 0", "alice", world.DOMAIN, *world.SEED, str(logged_on.folder)]
    assert [name for name in private if name in shown] == []


def test_an_unreachable_service(logged_on: Machine, deployment: Deployment) -> None:
    """One line, with a reference to further help."""
    with deployment.faulty(down=True):
        found = examine(logged_on, DELETE.format("DELETE", "/api/{entry}"))
    bad = {name: check["remedy"] for name, check in found.items() if not check["ok"]}
    assert bad == {"service": "run 'zonedrive doctor' without --profile"}


def test_a_logon_that_has_ended(
    proxy: FaultProxy, machine: Machine, deployment: Deployment
) -> None:
    """The report names the logon, and not a service that cannot be reached."""
    machine.log_on(proxy, profile="published", options=["--session-only"])
    deployment.tell({"expire_sessions": True})
    found = examine(machine, '[deleted]\npath = "/api/v9/{zone}/trash"\n')
    bad = {name: check["detail"] for name, check in found.items() if not check["ok"]}
    assert bad == {"logon": "the logon is not accepted"}
