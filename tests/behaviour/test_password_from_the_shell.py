"""`zonedrive password`, as people and scripts use it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal

OLD, NEW = world.PASSWORDS["alice"], "pas\u00b7à·pas"


@pytest.fixture(scope="module")
def changing() -> Iterator[Deployment]:
    """Yield a separate deployment, because the tests change passwords."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, zones=1)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_password_is_changed(machine: Machine, changing: Deployment) -> None:
    """A script and then a person change the password; a wrong one changes nothing; none is
    stored."""
    machine.log_on(changing, profile="sandbox", options=["--save-password"])
    mute = machine.run("password")
    assert mute.returncode == 2 and "--password-stdin" in mute.stderr
    wrong = machine.run("password", "--password-stdin", text=f"not {OLD}\n{NEW}\n")
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert wrong.stderr.count("\n") == 1 and "password is wrong" in wrong.stderr
    changed = machine.run("password", "--password-stdin", text=f"{OLD}\n{NEW}\n")
    assert changed.returncode == 0 and "changed the password of" in changed.stdout
    assert (
        "deleted the saved password" in changed.stderr
        and "zonedrive logon https://" in changed.stderr
    )
    kept = b"".join(path.read_bytes() for path in machine.folder.rglob("*") if path.is_file())
    assert OLD.encode() not in kept and NEW.encode() not in kept
    assert machine.run("zones").returncode == 3  # the token held the old one
    again = machine.run(
        "logon", changing.base_url, "--username", f"alice@{world.DOMAIN}", "--password-stdin",
        text=f"{NEW}\n",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    terminal = Terminal(machine, "password")
    for asked, typed in (("Password", NEW), ("New password", OLD), ("New password again", OLD)):
        terminal.until(f"{asked}: ")
        terminal.type(typed)
    assert terminal.end() == 0, terminal.shown
    assert "changed the password of" in terminal.shown and OLD not in terminal.shown
    machine.log_on(changing, profile="sandbox")


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Deployment]:
    """Yield a deployment where Alice must change her password before any other request."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    file = world.write(folder, zones=1)
    text = file.read_text("utf-8")
    file.write_text(text.replace("[[users]]\n", "[[users]]\npassword_change_required = true\n", 1))
    deployment = Deployment(folder, world_file=file)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_logon_changes_a_password_that_must_be_changed(
    machine: Machine, strict: Deployment
) -> None:
    """Logon changes the password if the profile can; otherwise, or without a new one, one line
    has the remedy."""
    logon = [
        "logon", strict.base_url, "--username", f"alice@{world.DOMAIN}",
        "--ca-file", str(strict.ca_file),
    ]  # fmt: skip
    for profile, text, word, code in (
        ("published", f"{OLD}\n{NEW}\n", "web application", 3),
        ("sandbox", f"{OLD}\n", "last line", 2),
    ):
        refused = machine.run(*logon, "--password-stdin", "--profile", profile, text=text)
        assert (refused.returncode, refused.stdout) == (code, "")
        assert word in refused.stderr and OLD not in refused.stderr
    terminal = Terminal(machine, *logon, "--profile", "sandbox")
    for asked, typed in (("Password", OLD), ("New password", NEW), ("New password again", OLD)):
        terminal.until(f"{asked}: ")
        terminal.type(typed)
    assert terminal.end() == 3 and "the two passwords differ" in terminal.shown
    done = machine.run(*logon, "--password-stdin", "--profile", "sandbox", text=f"{OLD}\n{NEW}\n")
    assert done.returncode == 0 and "by token until" in done.stdout, done.stderr
    assert "the password is changed" in done.stderr
    machine.done("zones")
    again = machine.run(*logon, "--password-stdin", text=f"{NEW}\n")
    assert again.returncode == 0, again.stderr


def test_without_a_profile_no_password_is_requested(shell: Machine) -> None:
    """An operation that the profile lacks is refused at once, in one line with the remedy."""
    for options in ((), ("--password-stdin",)):
        refused = shell.run("password", *options, text="")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.count("\n") == 1 and "--profile" in refused.stderr
