"""No other user or program can read a password, token or key."""

import contextlib
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted, files_below
from tests.harness.waiting import eventually
from zonedrive import process_setup

PASSWORD = world.PASSWORDS["alice"]

FORMS = tuple(
    text.encode(code)
    for code in ("utf-8", "utf-16-le", "utf-32-le")
    for text in (
        PASSWORD,
        ",".join(f'"{char}"' for char in PASSWORD),
        ", ".join(f'"{char}"' for char in PASSWORD),
    )
)
"""Password as text, and as the array of characters that a request carries."""


def memory(pid: int) -> Iterator[bytes]:
    """Yield the memory of a process, as root can read it."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as whole:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ \S+\s*(.*)", line)
            if found is None or found[3].startswith("[v"):
                continue
            start, end = int(found[1], 16), int(found[2], 16)
            try:
                whole.seek(start)
                yield whole.read(end - start)
            except (OSError, OverflowError):
                continue  # not backed by anything


def holds(pid: int, *secrets: bytes) -> list[bytes]:
    """Return the secrets that are in a process's memory."""
    found = set()
    for part in memory(pid):
        found |= {secret for secret in secrets if secret in part}
    return sorted(found)


@pytest.fixture
def machine(machine: Machine) -> Machine:
    """Return a machine with private folders, and commands in separate processes."""
    machine.starts_programs = True
    return machine


@pytest.fixture
def renewed(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a mount in the background whose logon was renewed with a stored password."""
    machine.log_on(deployment, profile="sandbox", options=["--session-only", "--save-password"])
    mount = Mounted(machine, deployment, zone, ["settle=0.2", "debug"])
    try:
        mount.mount()
        first = (machine.state / "secrets.json").read_bytes()
        deployment.tell({"expire_sessions": True})
        list(mount.root.iterdir())
        eventually(lambda: (machine.state / "secrets.json").read_bytes() != first, what="renewed")
        yield mount
    finally:
        mount.tear_down()
        deployment.forget_people()


def test_no_trace_of_a_password_is_left(renewed: Mounted) -> None:
    """The password is not in the daemon's memory, arguments, environment or log, nor elsewhere on
    disk, and the daemon writes no core dump.

    A process that has ended renewed the logon.
    """
    pid, machine = renewed.pid, renewed.machine
    bearer = json.loads(json.loads((machine.state / "secrets.json").read_text())["bearer"])
    if os.geteuid() == 0:
        assert holds(pid, *FORMS) == []
        # The search works: a value that the daemon needs is found.
        assert holds(pid, bearer["secret"].encode()) == [bearer["secret"].encode()]
    else:
        with pytest.raises(PermissionError):
            next(memory(pid))
    for name in ("cmdline", "environ"):
        shown = Path(f"/proc/{pid}/{name}").read_bytes()
        assert PASSWORD.encode() not in shown
        assert bearer["secret"].encode() not in shown
    log = renewed.log()
    assert PASSWORD not in log
    assert bearer["secret"] not in log
    for path, data in files_below(machine.folder, without=renewed.path):
        assert (PASSWORD.encode() in data) == (path.name == "password.json"), path
        if path.name in ("password.json", "secrets.json"):
            assert path.stat().st_mode & 0o777 == 0o600
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)


@pytest.mark.parametrize("hidden", [True, False])
def test_other_programs_cannot_read_memory_and_environment(hidden: bool) -> None:
    """Programs of the same user can read neither memory nor environment of the daemon, unlike
    those of other processes."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    prepare = Path(process_setup.__file__).read_text() + ("\nforbid_dumps()" if hidden else "")
    look = "import sys; [open(f'/proc/{sys.argv[1]}/{name}', 'rb') for name in ('environ', 'mem')]"
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", f"{prepare}\nprint('ready', flush=True)\ninput()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **user,  # type: ignore[call-overload]
    )  # fmt: skip
    try:
        assert process.stdout.readline() == b"ready\n"
        looked = subprocess.run(
            ["/usr/bin/python3", "-c", look, str(process.pid)],
            capture_output=True, cwd="/", check=False, **user,  # type: ignore[call-overload]
        )  # fmt: skip
    finally:
        process.communicate(b"\n")
    assert (b"PermissionError" in looked.stderr) == hidden, looked.stderr


def cores_wanted() -> None:
    """Set `ulimit -c unlimited` if allowed; called in a child process."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)


@pytest.mark.parametrize("command", [["zones"], ["doctor"], ["logoff"]], ids=" ".join)
def test_a_command_with_the_logon_leaves_no_core(
    machine: Machine, deployment: Deployment, command: list[str]
) -> None:
    """A command that is killed while it waits for the service leaves no token in a core dump."""
    machine.log_on(deployment, profile="sandbox")
    deployment.fault(stall=300)
    before = sum(deployment.stats()["requests"].values())
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("zonedrive")), *command],
        env=machine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        cwd=machine.folder, preexec_fn=cores_wanted,
    )  # fmt: skip
    try:
        eventually(
            lambda: sum(deployment.stats()["requests"].values()) > before,
            what="it asks the service",
        )
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        process.send_signal(signal.SIGABRT)
        assert process.wait(60) == -signal.SIGABRT
    finally:
        process.kill()
        process.wait()
        deployment.heal()
    assert not list(machine.folder.glob("core*"))


@pytest.mark.parametrize("command", ["logon", "token", "again"])
def test_a_process_with_a_password_hides_it(
    machine: Machine, deployment: Deployment, command: str
) -> None:
    """A running process has no password or token in its arguments or environment, and writes no
    core dump."""
    machine.log_on(deployment, profile="sandbox", options=["--save-password"])
    deployment.fault(stall=300, path="^/api/access/authorizationrequirements")
    secret = PASSWORD
    if command != "again":
        arguments = [str(Path(sys.executable).with_name("zonedrive")), "logon",
                     deployment.base_url, "--username", f"alice@{world.DOMAIN}"]  # fmt: skip
        if command == "token":
            kept = json.loads((machine.state / "secrets.json").read_text())["bearer"]
            secret = json.loads(kept)["secret"]
        arguments.append("--token-stdin" if command == "token" else "--password-stdin")
        text = f"{secret}\n"
    else:
        secrets = json.loads((machine.state / "secrets.json").read_text())
        digest = hashlib.sha256(json.loads(secrets["bearer"])["secret"].encode()).hexdigest()
        arguments = [sys.executable, "-m", "zonedrive.logon.renewal_worker", "--account", "default"]
        text = json.dumps({"instead_of": digest, "ended": True})
    before = deployment.stats()["requests"].get("GET /api/access/authorizationrequirements", 0)
    process = subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=machine.environment, encoding="utf-8",
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.close()
    eventually(
        lambda: (
            deployment.stats()["requests"].get("GET /api/access/authorizationrequirements", 0)
            > before
            or process.poll() is not None
        ),
        what="it asks the service",
    )
    proc = Path(f"/proc/{process.pid}")
    for name in ("cmdline", "environ"):
        assert secret.encode() not in (proc / name).read_bytes()
    assert re.search(r"^Max core file size +0 +0 ", (proc / "limits").read_text(), re.MULTILINE)
    deployment.heal()
    process.stdin = None
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert secret not in out + err


def test_an_unforeseen_failure_quotes_no_secret(machine: Machine, deployment: Deployment) -> None:
    """The stored report of a failure has types and places, but no values."""
    poison = machine.folder / "sitecustomize.py"
    poison.write_text(
        "from zonedrive.logon.api import LogonApi\n"
        "async def logon(self, username, *, password=None, **more):\n"
        "    raise RuntimeError(f'{password.reveal()} {list(password.reveal())}')\n"
        "LogonApi.logon = logon\n"
    )
    machine.environment["PYTHONPATH"] = os.pathsep.join(
        [str(machine.folder), os.environ.get("PYTHONPATH", "")]
    )
    machine.environment["TMPDIR"] = str(machine.folder)
    ended = machine.run(
        "logon", deployment.base_url, "--username", "alice", "--password-stdin",
        "--ca-file", deployment.ca_file, text=f"{PASSWORD}\n",
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert PASSWORD not in ended.stderr
    report = Path(ended.stderr.rsplit("see ", 1)[1].strip())
    assert "RuntimeError" in report.read_text()
    assert PASSWORD not in report.read_text()
    assert PASSWORD[:4] not in report.read_text()
