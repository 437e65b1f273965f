"""Commands do all of their work if nobody can see what they print."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.test_organization_settings import USER, Office
from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted

PASSWORD = f"{world.PASSWORDS['alice']}\n"


@pytest.fixture
def unread() -> Iterator[int]:
    """Return a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def run(
    machine: Machine, *arguments: str | Path, out: int | None = None, err: int | None = None
) -> int:
    """Run a command with these streams, or else without output; return its exit code."""
    return subprocess.run(
        [COMMAND, *arguments],
        stdout=subprocess.DEVNULL if out is None else out,
        stderr=subprocess.DEVNULL if err is None else err,
        input=PASSWORD, encoding="utf-8", env=machine.environment, cwd=machine.folder,
        timeout=120, check=False,
    ).returncode  # fmt: skip


@pytest.mark.parametrize(("profile", "where"), [("published", "pipe"), ("sandbox", "full")])
def test_an_account(
    machine: Machine, deployment: Deployment, unread: int, profile: str, where: str
) -> None:
    """A logon saves its token, and a logoff destroys it, whatever cannot be printed."""
    log_on: list[str | Path] = [
        "logon", deployment.base_url, "--username", f"alice@{world.DOMAIN}", "--password-stdin",
        "--ca-file", deployment.ca_file, "--profile", profile,
    ]  # fmt: skip
    full = os.open("/dev/full", os.O_WRONLY)
    lost, code = (unread, 0) if where == "pipe" else (full, 1)
    try:
        for streams, expected in (({"err": lost}, 0), ({"out": lost, "err": lost}, code)):
            assert run(machine, *log_on, **streams) == expected
            assert json.loads(machine.done("zones", "--json"))
            # A further logon ends the former token, which the published profile cannot do.
            assert run(machine, *log_on, **streams) == expected
            assert run(machine, "logoff", **streams) == expected
            assert not machine.state.exists()
    finally:
        os.close(full)


@pytest.mark.parametrize("where", ["2>/dev/full", ">/dev/full", "2>&1 | true"])
def test_a_mount_with_a_warning(machine: Machine, deployment: Deployment, where: str) -> None:
    """The mount is there, although the terminal does not show what a policy replaces."""
    zones = machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    script = f""""$zd" logon --username "$2" --password-stdin >&2 || exit 9
        "$zd" mount "$1" -o encrypt=false {where} || exit 8
        mountpoint -q "$1" || exit 7
        "$zd" unmount "$1"
    """
    assert Office(machine, deployment).run(script, str(zones), USER[1]).returncode == 0


@pytest.mark.parametrize("profile", ["sandbox", "published"])
def test_a_token_that_nobody_reads(
    machine: Machine, deployment: Deployment, unread: int, profile: str
) -> None:
    """A token whose secret goes to a closed pipe is revoked or reported; the command fails."""
    machine.log_on(deployment, profile=profile)
    words = ("tokens", "create", f"unread-{profile}", "--seconds", "600", "--password-stdin")
    assert run(machine, *words, out=unread, err=unread) == 1
    found = json.loads(machine.done("tokens", "list", "--json"))
    (made,) = [one for one in found if one["name"] == f"unread-{profile}"]
    assert made["expired"] == (profile == "sandbox")
    assert run(machine, *words, err=unread) == 0


def test_many_files(mounted: Mounted, unread: int) -> None:
    """Each file is restored, although the first line about it is lost."""
    names = [f"{number}.txt" for number in range(3)]
    for name in names:
        (mounted.root / name).write_text(name)
    mounted.sync()
    for name in names:
        (mounted.root / name).unlink()
    mounted.sync()
    found = json.loads(mounted.machine.done("trash", "--zone", mounted.root.name, "--json"))
    ids = [one["id"] for one in found]
    assert len(ids) == len(names)
    assert run(mounted.machine, "restore", *ids, out=unread, err=unread) == 0
    assert {each.name for each in mounted.root.iterdir()} >= set(names)


def test_a_followed_log_ends_with_its_reader(mounted: Mounted) -> None:
    """`log --follow | head -1` ends, although no message comes."""
    words: list[str | Path] = [COMMAND, "log", mounted.root, "--follow", "--json"]
    with subprocess.Popen(
        words, env=mounted.machine.environment, cwd=mounted.machine.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
