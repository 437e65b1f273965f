"""`zonedrive new-credentials`: a user who cannot log on asks the service for help."""

from pathlib import Path

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal

ALICE, BOB = f"alice@{world.DOMAIN}", f"bob@{world.DOMAIN}"


def kept(machine: Machine) -> set[Path]:
    """Return all files on the machine."""
    return {path for path in machine.folder.rglob("*") if path.is_file()}


def test_without_any_logon(machine: Machine, deployment: Deployment) -> None:
    """The command needs an address and a user, shows the service's message, and stores nothing."""
    asked = ["new-credentials", deployment.base_url, "--ca-file", str(deployment.ca_file)]
    said = machine.done(*asked, "--username", BOB)
    assert said.count(BOB) == 2 and "the service says: New credentials were requested" in said
    terminal = Terminal(machine, *asked)
    terminal.until("User name")
    terminal.type(BOB)
    assert terminal.end() == 0, terminal.shown
    assert not kept(machine)
    unknown = machine.run(*asked, "--username", "nobody@acme.example")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "check the user name" in unknown.stderr and unknown.stderr.count("\n") == 1
    for arguments, word in (
        (asked, "--username"),
        (asked[:1], "BASE_URL"),
        (["new-credentials", "http://service.example"], "https://"),
        ([*asked[:2], "--ca-file", "/nowhere.pem"], "--ca-file: /nowhere.pem does not exist"),
    ):
        wrong = machine.run(*arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert word in wrong.stderr and wrong.stderr.count("\n") == 1


def test_with_the_account_that_there_is(shell: Machine, deployment: Deployment) -> None:
    """Service, user and certificate come from the logon, which is unchanged."""
    before = {path: path.read_bytes() for path in kept(shell)}
    assert ALICE in shell.done("new-credentials")
    assert BOB in shell.done("new-credentials", "--username", BOB)
    assert {path: path.read_bytes() for path in kept(shell)} == before
    with deployment.faulty(down=True):
        away = shell.run("new-credentials")
    assert (away.returncode, away.stdout, away.stderr.count("\n")) == (4, "", 1)
