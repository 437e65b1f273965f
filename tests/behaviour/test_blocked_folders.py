"""A file or a dangling link at the path of one of zonedrive's folders."""

import json
import shutil

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine

TAKEN = [
    ("state/zonedrive/default", "a file", "XDG_STATE_HOME", "state folder"),
    ("state", "a broken link", "XDG_STATE_HOME", "state folder"),
    ("config/zonedrive", "a broken link", "XDG_CONFIG_HOME", "settings"),
    ("runtime/zonedrive", "a file", "XDG_RUNTIME_DIR", "runtime folder"),
]


@pytest.mark.parametrize(("place", "what", "variable", "check"), TAKEN)
def test_the_obstacle_is_named(
    shell: Machine, deployment: Deployment, place: str, what: str, variable: str, check: str
) -> None:
    """One line names the obstacle, its path and the remedy; doctor reports the same."""
    taken = shell.folder / place
    if taken.exists():
        shutil.rmtree(taken)
    taken.parent.mkdir(parents=True, exist_ok=True)
    if what == "a file":
        taken.touch()
    else:
        taken.symlink_to(shell.folder / "nowhere")
    line = (
        f"{taken} is {what}, where a folder is needed; move it away, or set {variable} to a"
        " folder that you own"
    )
    zones = shell.folder / "Zones"
    zones.mkdir()
    user = ("--username", f"alice@{world.DOMAIN}", "--password-stdin")
    authority = ("--ca-file", deployment.ca_file)
    for command in (
        ("mount", zones),
        ("mount", "--foreground", zones),
        ("status",),
        ("logon", deployment.base_url, *user, *authority),
    ):
        ended = shell.run(*command, text=world.PASSWORDS["alice"] + "\n")
        said = (ended.returncode, ended.stdout, ended.stderr)
        assert said == (1, "", f"zonedrive: {line}\n"), command
    ended = shell.run("doctor")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert f"BAD  {check}: " in ended.stdout
    assert f"     {line}\n" in ended.stdout
    told = json.loads(shell.run("doctor", "--json").stdout)
    assert str(shell.folder) not in json.dumps(told)
