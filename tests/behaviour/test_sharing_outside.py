"""`zonedrive share` and `unshare`: links for people without an account."""

import ssl
import urllib.error
import urllib.request

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted


def opened(link: str, deployment: Deployment) -> str:
    """Return the page of a link, opened without a logon."""
    trust = ssl.create_default_context(cafile=str(deployment.ca_file))
    with urllib.request.urlopen(link, context=trust, timeout=60) as page:
        content: bytes = page.read()
    return content.decode()


def test_a_link_opens_until_the_sharing_ends(mounted: Mounted) -> None:
    """A link to a file or folder opens without an account until `unshare`; only the link is
    printed."""
    machine, deployment = mounted.machine, mounted.deployment
    for name, inside in (("notes.txt", "notes.txt"), ("docs", "report.md")):
        said = machine.run("share", mounted.root / name)
        assert (said.returncode, said.stderr) == (0, "")
        link = said.stdout.removesuffix("\n")
        assert link.startswith(deployment.base_url) and "\n" not in link
        assert inside in opened(link, deployment)
        assert "is not shared any more" in machine.done("unshare", mounted.root / name)
        with pytest.raises(urllib.error.HTTPError):
            opened(link, deployment)
        again = machine.run("unshare", mounted.root / name)
        assert (again.returncode, again.stdout, again.stderr.count("\n")) == (1, "", 1)
        assert "is not shared" in again.stderr
        assert link.rpartition("/")[2] not in mounted.log()
    logged = machine.done("log", mounted.root / "docs")
    assert "docs was shared outside" in logged and "docs is not shared any more" in logged


def test_paths_that_cannot_be_shared(mounted: Mounted) -> None:
    """One line names the cause and the remedy: a missing file, a file that is not uploaded, a
    version, all zones."""
    machine, root = mounted.machine, mounted.root
    former = next(iter((root / ".versions/notes.txt").iterdir()))
    (root / "lock.tmp~").write_bytes(b"x")
    for path, words in (
        (root / "never", "does not exist"),
        (former, "cannot be shared by itself; share the file: "),
        (root / "lock.tmp~", "is not on the service: stays on this machine"),
        (mounted.path, "is the folder of all zones"),
        (machine.folder, "is not in one of your zones"),
    ):
        refused = machine.run("share", path)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert words in refused.stderr, refused.stderr
    mounted.allow("unavailable", "503")
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        (root / "new.txt").write_bytes(b"new")
        refused = machine.run("share", root / "new.txt")
        (root / "notes.txt").write_bytes(b"changed")
        shared = machine.run("share", root / "notes.txt")
    assert refused.returncode == 1 and "run 'zonedrive sync', then try again" in refused.stderr
    assert shared.returncode == 0 and "is not uploaded yet" in shared.stderr
    mounted.sync()


def test_a_refusal_and_a_lost_answer(mounted: Mounted) -> None:
    """The service's reason for a refusal is shown; after a lost answer the result is unknown."""
    path, machine = mounted.root / "notes.txt", mounted.machine
    with mounted.deployment.faulty(status=403, error="NOT_ALLOWED", path="/share$"):
        refused = machine.run("share", path)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    with mounted.deployment.faulty(drop_reply=True, path="/share$", times=1):
        lost = machine.run("share", path)
    assert (lost.returncode, lost.stdout, lost.stderr.count("\n")) == (4, "", 1)
    machine.done("unshare", path)  # it was shared nevertheless
    with mounted.deployment.faulty(down=True):
        away = machine.run("unshare", path)
    assert (away.returncode, away.stderr.count("\n")) == (4, 1)


@pytest.mark.mount(profile="published")
def test_a_profile_without_sharing(mounted: Mounted) -> None:
    """One line says what is missing and what to do."""
    for command in ("share", "unshare"):
        refused = mounted.machine.run(command, mounted.root / "notes.txt")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"has no endpoint for {command}" in refused.stderr
        assert "log on with a --profile that has it" in refused.stderr


def test_without_a_mount(machine: Machine) -> None:
    """Exit code 3 without a logon, 2 without a path."""
    assert machine.run("share", machine.folder).returncode == 3
    assert machine.run("unshare").returncode == 2
