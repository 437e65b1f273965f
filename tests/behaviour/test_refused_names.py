"""Removals that the service refuses; the other cases are in tests/in_process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness import world
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Mounted

NOTES = world.SEED["notes.txt"]
ENTRIES = "/api/sandbox/zones/[^/]+/entries/"

# Nothing is sent before all operations are done: the test then triggers the sending.
pytestmark = pytest.mark.mount("settle=600")


@contextmanager
def refusing(mounted: Mounted, status: int, method: str, entry: str = "") -> Iterator[None]:
    """Let the service refuse removals (DELETE) or renames (PUT), of one entry or all."""
    mounted.allow("refused")
    with mounted.deployment.faulty(status=status, method=method, path=ENTRIES + entry):
        yield


@pytest.mark.parametrize("name", ["notes.txt", "empty"])
def test_a_removal_with_a_lost_reply_is_not_reported_as_refused(
    proxied: Mounted, proxy: FaultProxy, name: str
) -> None:
    """The reply was lost, and the service answers the repeated request with an error."""

    def nonsense(answer: Answer) -> None:
        answer.status = 400
        answer.say({"error": "WRONG_STATE", "message": "it is deleted"})

    proxy.about = lambda asked: asked.method == "DELETE"
    proxy.alter = nonsense
    path = proxied.root / name
    (path.rmdir if path.is_dir() else path.unlink)()
    proxied.sync()
    assert "notice" not in proxied.status()
    assert proxied.zone.find(name) is None
    assert name not in {each.name for each in proxied.root.iterdir()}


@pytest.mark.parametrize("command", ["logoff", "unmount"])
def test_an_unmount_reports_a_refused_removal(mounted: Mounted, command: str) -> None:
    """A refused removal does not delay the unmount, because nothing is pending, but is reported
    there."""
    with refusing(mounted, 403, "DELETE"):
        (mounted.root / "notes.txt").unlink()
        where = [mounted.path] if command == "unmount" else []
        ended = mounted.machine.run(command, *where, "--timeout", "30")
    assert ended.returncode == 0
    assert ended.stderr.count("notes.txt: the removal was undone") == 1
    assert mounted.zone.read("notes.txt") == NOTES
