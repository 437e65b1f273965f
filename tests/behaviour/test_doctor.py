"""`zonedrive doctor` finds problems, gives remedies, and reveals no names."""

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually


def examine(machine: Machine) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the checks by name."""
    ended = machine.run("doctor", "--json")
    assert ended.stderr == ""
    said = json.loads(ended.stdout)
    assert set(said) == {"ok", "checks"}
    assert said["ok"] == (ended.returncode == 0)
    for check in said["checks"]:
        assert set(check) == {"name", "ok", "detail", "remedy"}
        assert check["ok"] or check["remedy"], check
    return ended.returncode, {check["name"]: check for check in said["checks"]}


def bad(machine: Machine) -> set[str]:
    """Return the names of the failed checks; at least one must fail."""
    code, checks = examine(machine)
    assert code == 1
    return {name for name, check in checks.items() if not check["ok"]}


def test_a_mount_in_use_is_in_order(mounted: Mounted) -> None:
    """All checks pass, and the text output agrees with JSON."""
    (mounted.root / "notes.txt").write_bytes(b"new\n")
    (mounted.root / "big.bin").read_bytes()
    code, checks = examine(mounted.machine)
    assert (code, [name for name, check in checks.items() if not check["ok"]]) == (0, [])
    assert set(checks) == {
        "fuse device", "fusermount3", "settings", "state folder", "runtime folder", "cache folder",
        "database", "logon", "profile", "encryption", "key", "service",
        "certificate", "clock", "token", "mount", "daemon", "background tasks", "downloads",
        "outbox", "lost and found",
    }  # fmt: skip
    assert "encrypted" in checks["encryption"]["detail"]
    assert "in a file" in checks["key"]["detail"]
    assert "everything is in order" in mounted.machine.done("doctor")


def test_json_and_report_contain_no_names(mounted: Mounted) -> None:
    """JSON and report of a used account contain no secret and no name.

    Names are those of persons, zones, files, folders and hosts; the log in the report would contain
    many of them.
    """
    machine = mounted.machine
    mounted.allow("no right", "refused", "403", "offline", "reach", "took", "Meeres")
    settings = machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('local_only = ["*.geheim"]\nrefresh = 7\n')
    mounted.restart("debug")
    for _ in mounted.root.rglob("*"):
        pass
    (mounted.root / "Meeresfrüchte").mkdir()
    (mounted.root / "Meeresfrüchte" / "Hummer.geheim").write_bytes(b"x")
    with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE"):
        (mounted.root / "Seezunge.txt").write_bytes(b"x")
        with pytest.raises(OSError, match=r"unreachable|Remote I/O"):
            (mounted.root / "big.bin").read_bytes()
        eventually(lambda: mounted.status()["state"] == "offline")
    mounted.sync()
    with mounted.deployment.faulty(status=403, method="POST"):
        (mounted.root / "Kabeljau 2031.txt").write_bytes(b"x")
        eventually(lambda: mounted.status()["outbox"]["failed"] == 1)
        shown = machine.run("doctor", "--json").stdout
        file = machine.folder / "report.txt"
        said = machine.run("doctor", "--report", file)
        assert (said.returncode, said.stdout) == (
            1, f"the report is in {file}; read it before you send it\n"
        )  # fmt: skip
        shown += file.read_text("utf-8")
    assert "BAD  outbox: 1 of 1 pending change refused by the service" in shown
    assert "refresh: 7.0\nlocal_only: 1 own values\n" in shown
    assert "INFO zonedrive.daemon.serve: … is mounted at …" in shown
    assert "INFO zonedrive.remote.connectivity: the service is offline, was online: " in shown
    secrets = json.loads((machine.state / "secrets.json").read_text())
    private = [secrets["key"], json.loads(secrets["bearer"])["secret"]]
    private += [name for name in [socket.gethostname()] if name != "localhost"]
    private += [mounted.root.name, world.DOMAIN, *world.PASSWORDS, *world.PASSWORDS.values()]
    private += [
        mounted.deployment.base_url,
        "127.0.0.1",
        str(urlsplit(mounted.deployment.base_url).port),
    ]
    private += [machine.folder.name, str(Path.home()), "geheim", "Zones"]
    private += [part for name in world.SEED for part in (name, *name.split("/")) if len(part) > 4]
    private += ["Meeres", "Hummer", "Seezunge", "Kabeljau", "2031"]
    private += [
        str(inode.stat().st_ino) for inode in mounted.root.iterdir() if inode.stat().st_ino > 9999
    ]
    assert [name for name in private if name in shown] == []
    assert mounted.deployment.base_url in mounted.log()


def test_shared_remedies_contain_no_names(machine: Machine, deployment: Deployment) -> None:
    """The remedies in the report contain no account, folder or profile of the user."""
    case, client = "bigco-case4711", "Meier-GmbH"
    machine.folders["STATE_HOME"] = machine.folder / "Clients" / client
    machine.environment["XDG_STATE_HOME"] = str(machine.folders["STATE_HOME"])
    machine.log_on(deployment, profile="sandbox", options=("--account", case))
    state = machine.folders["STATE_HOME"] / "zonedrive" / case
    (state / "account.json").chmod(0o644)
    profile = machine.folder / f"{client}.toml"
    profile.write_text("")
    config = machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    config.parent.mkdir()
    config.write_text(f'profile = "{profile.with_suffix("")}"\n')
    account = ("doctor", "--account", case)
    said = json.loads(machine.run(*account, "--json").stdout)["checks"]
    assert [each["name"] for each in said if not each["ok"]] == ["state folder", "profile"]
    shown = json.dumps(said) + machine.run(*account, "--report", "-").stdout
    assert [name for name in (case, client, "Clients", str(machine.folder)) if name in shown] == []
    assert f"run 'chmod -R go= {state}'" in machine.run(*account).stdout


@pytest.mark.parametrize(
    ("file", "words"), [("/dev/full", "/dev/full cannot be written"), ("", "it is empty")]
)
def test_a_report_that_cannot_be_written(machine: Machine, file: str, words: str) -> None:
    """The error names the report file and no other file."""
    refused = machine.run("doctor", "--report", file)
    assert refused.stderr.count("\n") == 1
    assert words in refused.stderr and "XDG_STATE_HOME" not in refused.stderr


def test_the_report_has_the_log_of_a_daemon_in_the_foreground(mounted: Mounted) -> None:
    """A systemd unit logs to the journal; the report has the same messages without names."""
    machine = mounted.machine
    mounted.unmount()
    for former in machine.state.glob("*.log*"):
        former.unlink()
    unit = subprocess.Popen(
        [COMMAND, "mount", "--foreground", mounted.path],
        env=machine.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    try:
        log = machine.state / "anonymous.log"
        eventually(lambda: "is mounted" in log.read_text("utf-8"), what="it is mounted")
        reported = machine.run("doctor", "--report", "-").stdout.partition("## Log")[2]
    finally:
        unit.terminate()
        log_text = unit.communicate(timeout=60)[1]
    assert str(mounted.path) in log_text and str(mounted.path) not in reported
    assert "INFO zonedrive.daemon.serve: … is mounted at …\n" in reported
    assert not (machine.state / "daemon.log").exists()


@pytest.mark.mount("encrypt=false")
def test_disabled_encryption_is_reported(mounted: Mounted) -> None:
    """Disabled encryption is no failed check, but is reported."""
    (mounted.root / "notes.txt").read_bytes()
    code, checks = examine(mounted.machine)
    assert code == 0
    assert checks["encryption"]["detail"].startswith("off (encrypt = false)")


def test_encryption_that_was_switched(mounted: Mounted) -> None:
    """Existing files stay as they were written; doctor reports that, not the setting."""
    (mounted.root / "notes.txt").read_bytes()
    mounted.unmount()
    config = mounted.machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("encrypt = false\n", "utf-8")
    code, checks = examine(mounted.machine)
    assert code == 1
    assert "created with the opposite" in checks["encryption"]["detail"]
    config.unlink()


@pytest.mark.mount("encrypt=false")
def test_unencrypted_data_needs_no_key(mounted: Mounted) -> None:
    """A key that a refused mount with another setting has created is no problem."""
    (mounted.root / "notes.txt").read_bytes()
    mounted.unmount()
    refused = mounted.machine.run("mount", mounted.path)
    assert "set encrypt = false again" in refused.stderr
    _, checks = examine(mounted.machine)
    assert [name for name, each in checks.items() if not each["ok"]] == ["encryption"]


def test_without_a_logon(machine: Machine) -> None:
    """Doctor reports the first step, and skips the checks that need a logon."""
    assert bad(machine) == {"logon"}
    _, checks = examine(machine)
    assert checks["logon"]["remedy"] == "run 'zonedrive logon URL'"
    reported = machine.run("doctor", "--report", "-")
    assert (reported.returncode, reported.stderr) == (1, "")
    assert "\nlogon: none\n" in reported.stdout
    assert "\nBAD  logon: there is no logon\n" in reported.stdout


def test_an_unreachable_service(mounted: Mounted) -> None:
    """The connection check fails, and no other check does."""
    mounted.allow("offline", "reach")
    with mounted.deployment.faulty(down=True):
        assert bad(mounted.machine) == {"service"}
    with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE"):
        assert bad(mounted.machine) == {"service"}


def test_an_untrusted_certificate(machine: Machine, deployment: Deployment) -> None:
    """The account does not trust the service's certificate."""
    machine.log_on(deployment, profile="sandbox")
    (machine.state / "ca.pem").write_bytes(trustme.CA().cert_pem.bytes())
    assert bad(machine) == {"certificate"}


def test_a_logon_that_has_ended(machine: Machine, deployment: Deployment) -> None:
    """Doctor asks the service if it accepts the stored logon."""
    machine.log_on(deployment, profile="sandbox", options=("--session-only",))
    assert examine(machine)[0] == 0
    deployment.tell({"expire_sessions": True})
    assert bad(machine) == {"token"}
    deployment.forget_people()


def test_a_user_who_may_not_list_zones(machine: Machine, deployment: Deployment) -> None:
    """Doctor shows the service's answer and who can help."""
    machine.log_on(deployment, profile="sandbox")
    with deployment.faulty(status=403, error="USER_INACTIVE", path="^/api/zones$"):
        assert bad(machine) == {"token"}
        said = machine.run("doctor").stdout
    assert "USER_INACTIVE" in said and "administrator of the service" in said


def test_a_mount_whose_daemon_died(mounted: Mounted) -> None:
    """Doctor reports the dead mount before a program fails on it; a new mount repairs it."""
    mounted.kill()
    assert bad(mounted.machine) == {"mount", "last daemon"}
    mounted.mount()
    assert examine(mounted.machine)[0] == 0


def test_files_that_others_can_read(mounted: Mounted) -> None:
    """Stored files must be private to their owner, whoever changed their mode."""
    (mounted.machine.state / "daemon.log").chmod(0o644)
    mounted.machine.cache.chmod(0o755)
    assert bad(mounted.machine) == {"state folder", "cache folder"}


def test_secrets_that_others_can_read(machine: Machine, deployment: Deployment) -> None:
    """One cause and one command that names the file; a new logon is not needed."""
    machine.log_on(deployment, profile="sandbox")
    file = machine.state / "secrets.json"
    file.chmod(0o644)
    _, checks = examine(machine)
    assert checks["logon"]["detail"] == "the file with its secrets can be read by others"
    assert "zonedrive logon" not in checks["logon"]["remedy"]
    assert "key" not in checks
    assert f"run 'chmod 600 {file}'\n" in machine.run("doctor").stdout
    file.chmod(0o600)
    assert examine(machine)[0] == 0


def test_settings_and_a_profile_that_cannot_be_used(
    machine: Machine, deployment: Deployment
) -> None:
    """Doctor reports both before the next mount fails."""
    machine.log_on(deployment, profile="sandbox")
    config = machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text('profile = "/nowhere/profile.toml"\n')
    assert bad(machine) == {"profile"}
    config.write_text("refresh = soon\n")
    assert "settings" in bad(machine)


def test_pending_changes_without_a_mount_are_counted(mounted: Mounted) -> None:
    """Not being mounted is no failed check, but doctor reports the number of pending changes."""
    mounted.allow("offline", "reach")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / "waiting.txt").write_bytes(b"12345")
        mounted.unmount("--timeout", "0")
    code, checks = examine(mounted.machine)
    assert code == 0
    assert re.match(r"1 file \(5 bytes\) wait", checks["outbox"]["detail"])
    assert checks["mount"]["detail"] == "not mounted"
