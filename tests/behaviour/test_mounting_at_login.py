"""A logon in a terminal that also mounts at each login."""

import os
import pty
import subprocess
from pathlib import Path

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine
from tests.harness.waiting import eventually


def test_the_next_login_mounts(machine: Machine, deployment: Deployment) -> None:
    """Without a service manager the desktop starts the mount, as it starts all programs then."""
    machine.log_on(deployment, profile="sandbox", options=["--at-login"])
    entry = machine.folders["CONFIG_HOME"] / "autostart" / "zonedrive-default.desktop"
    folder = Path(machine.environment["HOME"], "Zones", "Acme")
    assert folder.is_dir()
    # A desktop's PATH has neither pipx's folder nor a checkout's.
    environment = machine.environment | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(["gio", "launch", entry], env=environment, check=True, timeout=60)
    try:
        eventually(folder.is_mount, what="the zones are mounted")
        assert os.listdir(folder)
        machine.done("logoff")
        assert not entry.exists()
    finally:
        machine.run("unmount", "--now", folder)


def test_logon_names_the_option(machine: Machine, deployment: Deployment) -> None:
    """In a terminal the command recommends the option until it is used; in a script never."""
    words = [
        str(COMMAND), "logon", deployment.base_url, "--username", f"alice@{world.DOMAIN}",
        "--password-stdin", "--ca-file", str(deployment.ca_file), "--profile", "sandbox",
    ]  # fmt: skip

    def said(*options: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*words, *options], env=machine.environment, stdin=subprocess.PIPE, stdout=theirs
        ) as logon:
            os.close(theirs)
            logon.communicate(f"{world.PASSWORDS['alice']}\n".encode(), timeout=120)
        found = b""
        try:
            while piece := os.read(ours, 4096):
                found += piece
        except OSError:  # the end of a terminal
            os.close(ours)
        assert logon.returncode == 0
        return " ".join(found.decode().split())

    assert "to mount it at each login, repeat this with --at-login" in said()
    assert "is mounted at each login on" in said("--at-login")
    assert "each login" not in said()
    assert "each login" not in machine.done(*words[1:], text=f"{world.PASSWORDS['alice']}\n")
