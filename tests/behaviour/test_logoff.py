"""Logoff while the zones are mounted."""

import json
import ssl

import httpx
import pytest
from click.testing import CliRunner

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from zonedrive.cli import logoff
from zonedrive.errors import ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import SecretStore
from zonedrive.paths import AccountPaths


def test_a_logoff_sends_pending_changes_and_unmounts(mounted: Mounted) -> None:
    """Pending changes are uploaded; the mount and the folders are gone."""
    (mounted.root / "last.txt").write_bytes(b"last words")
    mounted.machine.done("logoff")
    assert mounted.zone.read("last.txt") == b"last words"
    assert not mounted.is_mounted()
    assert not mounted.machine.state.exists()
    assert not mounted.machine.cache.exists()


def test_a_logoff_reports_deleted_local_files(mounted: Mounted) -> None:
    """A `local_only` file is deleted with the account, and the output says so."""
    (mounted.root / "notes.txt~").write_bytes(b"never sent")
    said = mounted.machine.done("logoff")
    assert said.endswith("; dropped 1 file of local_only\n")


@pytest.mark.mount("local_only=*.private:*~")
def test_a_logoff_refuses_to_delete_local_files_of_the_user(mounted: Mounted) -> None:
    """Logoff and takeover refuse to delete files that match the user's own `local_only` names."""
    machine, root = mounted.machine, mounted.root
    (root / "a.private").write_bytes(b"mine")
    (root / "notes.txt~").write_bytes(b"a backup")
    (root / "x~").mkdir()
    (root / "x~" / "work.txt").write_bytes(b"work")
    (root / "x~" / ".work.txt.swp").write_bytes(b"swap")
    mounted.sync()
    for turn in ("mounted", "not mounted"):
        ended = machine.run("logoff")
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == (
            "zonedrive: 2 files of local_only are only on this machine, among them"
            f" {root.name}/a.private; mount and move what you need elsewhere, or drop it with"
            " --discard\n"
        )
        assert mounted.is_mounted() == (turn == "mounted")
        if turn == "mounted":
            mounted.unmount()
    mounted.mount()
    assert (root / "a.private").read_bytes() == b"mine"
    (root / "a.private").rename(root / "a.txt")
    mounted.sync()
    mounted.unmount()
    options = ["logon", mounted.deployment.base_url, "--username", f"bob@{world.DOMAIN}"]
    options += ["--password-stdin", "--ca-file", str(mounted.deployment.ca_file)]
    ended = machine.run(*options, text=f"{world.PASSWORDS['bob']}\n")
    assert ended.returncode == 1
    assert "account default holds 1 file of local_only of alice@" in ended.stderr
    mounted.mount()
    (root / "x~" / "work.txt").rename(root / "work.txt")
    assert machine.done("logoff").endswith("; dropped 2 files of local_only\n")
    assert (mounted.zone.read("a.txt"), mounted.zone.read("work.txt")) == (b"mine", b"work")


def test_a_removal_is_not_counted_as_a_file(mounted: Mounted) -> None:
    """A pending removal is reported as a change, by `status`, `unmount`, `logoff` and `sync`."""
    change = "1 change (new folders, renames, removals)"
    with mounted.deployment.faulty(status=503, method="DELETE"):
        (mounted.root / "notes.txt").unlink()
        ended = mounted.machine.run("logoff", "--timeout", "0.5")
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"zonedrive: {change} is not on the service yet; ")
        mounted.unmount("--now")
        ended = mounted.machine.run("logoff")
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"zonedrive: {change} is not on the service yet, and ")
        ended = mounted.machine.run("sync")
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert f"is not mounted: {change} not on the service yet; run" in ended.stderr
        assert mounted.machine.done("logoff", "--discard").endswith(f"; dropped {change}\n")
    assert mounted.zone.find("notes.txt") is not None


def test_a_logoff_with_discard_drops_pending_changes(mounted: Mounted) -> None:
    """With --discard, logoff discards pending changes, which the service never gets."""
    with mounted.deployment.faulty(status=503, method="POST"):
        (mounted.root / "gone.txt").write_bytes(b"12345")
        mounted.machine.done("logoff", "--discard", "--timeout", "0")
    assert not mounted.machine.state.exists()
    assert not mounted.is_mounted()
    assert mounted.zone.find("gone.txt") is None


def test_a_logoff_revokes_the_token_if_the_profile_can(
    machine: Machine, deployment: Deployment
) -> None:
    """A copy of the token is useless afterwards."""
    machine.log_on(deployment, profile="sandbox")
    token = json.loads(json.loads((machine.state / "secrets.json").read_text())["bearer"])
    ended = machine.run("logoff")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert works(deployment, token["secret"]) is False


def test_a_logoff_reports_a_token_that_remains_valid(
    machine: Machine, deployment: Deployment
) -> None:
    """The published API cannot revoke a token; the output says until when it is valid."""
    machine.log_on(deployment, profile="published")
    token = json.loads(json.loads((machine.state / "secrets.json").read_text())["bearer"])
    ended = machine.run("logoff")
    assert ended.returncode == 0
    assert f"the token ({token['id']}) remains valid at the service until 20" in ended.stderr
    assert works(deployment, token["secret"]) is True


def test_a_logoff_does_not_report_a_token_that_has_ended(
    machine: Machine, deployment: Deployment
) -> None:
    """The token was revoked elsewhere, so it is not valid any more."""
    machine.log_on(deployment, profile="sandbox")
    token = json.loads(json.loads((machine.state / "secrets.json").read_text())["bearer"])
    answer = asked(deployment, token["secret"], "DELETE", f"/api/sandbox/tokens/{token['id']}")
    assert answer.status_code == 204
    ended = machine.run("logoff")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_logoff_ends_the_session(machine: Machine, deployment: Deployment) -> None:
    """Logoff also ends the session at the service."""
    machine.log_on(deployment, profile="published", options=["--session-only"])
    session = json.loads(json.loads((machine.state / "secrets.json").read_text())["bearer"])
    assert works(deployment, session["secret"]) is True
    ended = machine.run("logoff")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert works(deployment, session["secret"]) is False


def works(deployment: Deployment, bearer: str) -> bool:
    """Return True if the service accepts a token or session."""
    answer = asked(deployment, bearer, "GET", "/api/zones")
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


def asked(deployment: Deployment, bearer: str, method: str, path: str) -> httpx.Response:
    """Return the answer to a request with a token or session."""
    trust = ssl.create_default_context(cafile=deployment.ca_file)
    return httpx.request(
        method,
        f"{deployment.base_url}{path}",
        headers={"Authorization": f"Bearer {bearer}"},
        verify=trust,
        timeout=60,
    )


@pytest.mark.mount("settle=600")
def test_a_file_saved_during_a_logoff_is_not_lost(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a program saves a file just before the mount ends, the logon is kept."""
    stop = logoff._stop_daemon

    def save_and_stop(paths: AccountPaths) -> None:
        (mounted.root / "late.txt").write_bytes(b"12345")
        stop(paths)

    for name, value in mounted.machine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logoff, "_stop_daemon", save_and_stop)
    ended = CliRunner().invoke(logoff.logoff, [])
    assert isinstance(ended.exception, ZonedriveError)
    assert ended.exception.line() == (
        "1 file (5 bytes) is not on the service yet, and nothing is sent while it is not mounted;"
        " mount it first, or drop it with --discard"
    )
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("late.txt") == b"12345"


def test_no_mount_begins_during_a_logoff(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount is refused, because its new files would be deleted."""
    said: list[str] = []

    async def mount_meanwhile(account: Account, store: SecretStore) -> None:
        said.append(mounted.machine.run("mount", mounted.path).stderr)

    for name, value in mounted.machine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logoff, "_end_at_service", mount_meanwhile)
    assert CliRunner().invoke(logoff.logoff, []).exit_code == 0
    (line,) = said
    assert "account default is being mounted, logged on or logged off" in line
    assert not mounted.machine.state.exists()
