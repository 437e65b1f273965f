"""`zonedrive tokens`, as people and scripts use it."""

import json
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

PASSWORD = world.PASSWORDS["alice"]


def create(
    shell: Machine, *arguments: str | Path, text: str = f"{PASSWORD}\n"
) -> "subprocess.CompletedProcess[str]":
    """Create a token as a script does."""
    return shell.run("tokens", "create", *arguments, "--password-stdin", text=text)


def listed(shell: Machine) -> list[dict[str, Any]]:
    """Return the JSON list of tokens."""
    found: list[dict[str, Any]] = json.loads(shell.done("tokens", "list", "--json"))
    return found


def status(deployment: Deployment, token: str, path: str) -> int:
    """Return the service's status for a request with that token."""
    trust = ssl.create_default_context(cafile=deployment.ca_file)
    headers = {"Authorization": f"Bearer {token}"}
    url = deployment.base_url + path
    return httpx.get(url, headers=headers, verify=trust, timeout=60).status_code


def test_a_new_token_is_the_only_thing_printed(shell: Machine, deployment: Deployment) -> None:
    """`token=$(zonedrive tokens create …)` contains a working secret, which is stored nowhere
    else."""
    made = create(shell, "backup job", "--days", "3")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.removesuffix("\n")
    assert re.fullmatch(r"[!-~]{20,}", secret)
    assert secret not in made.stderr and made.stderr.count("\n") == 1
    assert status(deployment, secret, "/api/zones") == 200
    kept = [path for path in shell.folder.rglob("*") if path.is_file()]
    assert kept and not any(secret.encode() in path.read_bytes() for path in kept)
    assert not any(PASSWORD.encode() in path.read_bytes() for path in kept)
    (token,) = [one for one in listed(shell) if one["name"] == "backup job"]
    assert secret not in json.dumps(token)
    assert str(token["id"]) in made.stderr
    assert (token["expired"], token["record"]["validity"]) == (False, 3 * 86_400)
    table = shell.done("tokens", "list")
    assert "backup job" in table and str(token["id"]) in table and secret not in table
    assert "3 days" in table and table.count("this logon") == 1
    assert [one["name"] for one in listed(shell) if one["this_logon"]] != ["backup job"]
    told = shell.done("tokens", "list", "--help")
    assert all(f'"{name}"' in told for name in token)


def test_a_token_as_json(shell: Machine) -> None:
    """The JSON is one object with the fields that the help names."""
    made = json.loads(create(shell, "j", "--json").stdout)
    assert set(made) == {"id", "name", "token", "expires"}
    told = shell.done("tokens", "create", "--help")
    assert all(f'"{name}"' in told for name in made)
    assert made["id"] in {one["id"] for one in listed(shell)}


def test_a_scope_limits_a_token(shell: Machine, deployment: Deployment) -> None:
    """SCIM sees users and no zones; permissions, clients and a scope from a file are sent."""
    scim = create(shell, "scim", "--scope", "SCIM").stdout.strip()
    assert status(deployment, scim, "/api/users") == 200
    assert status(deployment, scim, "/api/zones") == 403
    some = create(
        shell, "some", "--permission", "zones=list,get", "--permission", "users=all",
        "--client", "ServiceSSI",
    ).stdout.strip()  # fmt: skip
    assert status(deployment, some, "/api/zones") == 200
    assert status(deployment, some, "/api/tokens") == 403
    scope = {"name": "mine", "permissions": {"zones": {"list": True}}, "extensions": {"a": [1]}}
    (shell.folder / "scope.json").write_text(json.dumps(scope))
    assert create(shell, "file", "--scope-file", "scope.json").returncode == 0
    scopes = {one["name"]: one["record"].get("scope") for one in listed(shell)}
    assert scopes["scim"] == {"name": "SCIM"}
    assert scopes["some"]["clients"] == ["ServiceSSI"]
    assert scopes["some"]["permissions"] == {
        "zones": {"list": True, "get": True}, "users": {"all": True},
    }  # fmt: skip
    assert scopes["file"] == scope


def test_an_expired_token_stays_listed_and_is_marked(shell: Machine) -> None:
    """The table marks expired tokens."""
    assert create(shell, "short", "--seconds", "1").returncode == 0

    def over() -> bool:
        return any(one["name"] == "short" and one["expired"] for one in listed(shell))

    eventually(over, what="the token has expired")
    assert re.search(r"short\b[^)]*\(expired\)", shell.done("tokens", "list"))


def test_a_token_is_revoked_if_the_profile_can(machine: Machine, deployment: Deployment) -> None:
    """A token ends at once; the account's own token is only revoked by a logoff."""
    machine.log_on(deployment, profile="published")
    made = json.loads(create(machine, "mine", "--json").stdout)
    refused = machine.run("tokens", "revoke", made["id"])
    assert refused.returncode == 1 and "--profile" in refused.stderr
    machine.log_on(deployment, profile="sandbox")
    assert status(deployment, made["token"], "/api/zones") == 200
    assert made["id"] in machine.done("tokens", "revoke", made["id"])
    assert status(deployment, made["token"], "/api/zones") == 401
    kept = json.loads((machine.state / "secrets.json").read_text())["bearer"]
    own = machine.run("tokens", "revoke", json.loads(kept)["id"])
    assert own.returncode == 2 and "logoff" in own.stderr
    unknown = machine.run("tokens", "revoke", "../zones")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert all(one.stderr.count("\n") == 1 for one in (refused, own, unknown))


def test_a_wrong_password_is_one_line(shell: Machine) -> None:
    """Rejected credentials give exit code 3, and no typed text is repeated."""
    refused = create(shell, "x", text="wrong pass\n")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.count("\n") == 1 and "password is wrong" in refused.stderr
    assert "wrong pass" not in refused.stderr


def test_the_password_prompt_has_no_echo(shell: Machine) -> None:
    """A terminal prompts for the password without echo; the secret is printed once."""
    terminal = Terminal(shell, "tokens", "create", "typed")
    terminal.until("Password")
    terminal.type(PASSWORD)
    assert terminal.end() == 0, terminal.shown
    assert PASSWORD not in terminal.shown
    assert len(re.findall(r"^[!-~]{40,}\r$", terminal.shown, re.MULTILINE)) == 1
    assert "created the token typed" in terminal.shown


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["x", "--days", "1", "--seconds", "1"], "exclude"),
        (["x", "--days", "0"], "days"),
        (["x", "--permission", "zones"], "RESOURCE=ACTION"),
        (["x", "--permission", "zones=fly"], "delete"),
        (["x", "--scope", "SCIM", "--scope-file", "f"], "excludes the other"),
        ([" "], "empty"),
        ([], "NAME"),
    ],
)
def test_a_wrong_use_asks_for_no_password(shell: Machine, arguments: list[str], word: str) -> None:
    """A wrong use gives one line and exit code 2, before any request."""
    wrong = create(shell, *arguments, text="")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1 and word in wrong.stderr


@pytest.mark.parametrize("profile", ["sandbox", "published"])
def test_a_token_whose_secret_cannot_be_printed(
    machine: Machine, deployment: Deployment, profile: str
) -> None:
    """If the secret cannot be printed, the token is revoked or its id reported; the command
    fails."""
    machine.log_on(deployment, profile=profile)
    call = f"exec {COMMAND} tokens create nobodys-{profile} --seconds 600 --password-stdin"
    said: dict[str, subprocess.CompletedProcess[str]] = {}
    for where in (">&-", ">/dev/full", "--json >/dev/full"):
        said[where] = subprocess.run(
            f"{call} {where}", shell=True, input=f"{PASSWORD}\n",
            env=machine.environment, stderr=subprocess.PIPE, encoding="utf-8", check=False,
        )  # fmt: skip
    assert [one.returncode for one in said.values()] == [2, 1, 1]
    assert all(one.stderr.count("\n") == 1 for one in said.values()), said
    left = [one for one in listed(machine) if one["name"] == f"nobodys-{profile}"]
    assert len(left) == 2
    assert {one["expired"] for one in left} == {profile == "sandbox"}
    for one, ended in zip(left, list(said.values())[1:], strict=True):
        assert str(one["id"]) in ended.stderr


@pytest.mark.parametrize("content", ['{"scope": 1}', '{"name": 7}', "[]", "{", None])
def test_an_invalid_scope_file(shell: Machine, content: str | None) -> None:
    """One line names the file."""
    if content is not None:
        (shell.folder / "scope.json").write_text(content)
    wrong = create(shell, "x", "--scope-file", "scope.json")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.count("\n") == 1 and "scope.json" in wrong.stderr


def test_no_terminal_no_logon_no_service(
    shell: Machine, deployment: Deployment, machine: Machine
) -> None:
    """A missing terminal, logon or service gives one line with its own exit code."""
    mute = shell.run("tokens", "create", "x")
    assert mute.returncode == 2 and "--password-stdin" in mute.stderr
    other = create(shell, "x", "--account", "other", text="")
    assert other.returncode == 3 and "zonedrive logon" in other.stderr
    with deployment.faulty(down=True):
        away = shell.run("tokens", "list")
    assert (away.returncode, away.stdout) == (4, "")
    with deployment.faulty(status=401, error="AUTHORIZATION_FAILED", path="^/api/tokens"):
        ended = shell.run("tokens", "list")
    assert ended.returncode == 3 and "zonedrive logon" in ended.stderr
    assert all(one.stderr.count("\n") == 1 for one in (mute, other, away, ended))


@pytest.mark.parametrize("command", [("tokens", "create", "x"), ("password",)], ids=" ".join)
def test_a_wrong_password_goes_to_the_service_once(
    machine: Machine, deployment: Deployment, command: tuple[str, ...]
) -> None:
    """A wrong password is sent once, even with a stored password or a misleading status.

    The service may answer with the status of an ended logon.  A mistyped password causes no new
    logon.
    """
    machine.log_on(deployment, profile="sandbox", options=["--save-password"])
    kept = (machine.state / "secrets.json").read_bytes()
    before = deployment.stats()["requests"]
    sent = {"method": "POST", "path": "^/api/(tokens|sandbox/password)$"}
    with deployment.faulty(status=401, error="PASSWORD_FAILURE", **sent):
        refused = machine.run(*command, "--password-stdin", text="wrong\nnew\n")
    after = deployment.stats()["requests"]
    assert refused.returncode == 3
    assert "the password is wrong" in refused.stderr and refused.stderr.count("\n") == 1
    more = {name: after[name] - before.get(name, 0) for name in after}
    assert sum(more[name] for name in more if name.startswith("POST")) == 1
    assert (machine.state / "secrets.json").read_bytes() == kept


def test_an_ended_session_is_renewed_before_a_password_is_sent(
    machine: Machine, deployment: Deployment
) -> None:
    """An ended session is renewed first, and the token is created as usual."""
    machine.log_on(deployment, profile="sandbox", options=["--session-only", "--save-password"])
    deployment.tell({"expire_sessions": True})
    before = deployment.stats()["requests"].get("POST /api/tokens", 0)
    made = create(machine, "late")
    assert made.returncode == 0, made.stderr
    assert deployment.stats()["requests"]["POST /api/tokens"] == before + 1
