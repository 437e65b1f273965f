"""After a kill of the daemon no closed file is lost, and none is sent twice."""

import os

from tests.harness.machine import Mounted


def test_the_outbox_survives_sigkill(mounted: Mounted) -> None:
    """A file that was closed before the kill is on the service after the next mount, once."""
    mounted.allow("offline", "reach", "upload")
    data = os.urandom(1_000_000)
    assert "notes.txt" in os.listdir(mounted.root)
    with mounted.deployment.faulty(down=True):
        (mounted.root / "notes.txt").write_bytes(data)
        (mounted.root / "new.txt").write_bytes(b"new")
        mounted.kill()
    mounted.mount()
    assert (mounted.root / "notes.txt").read_bytes() == data
    mounted.sync()
    assert mounted.zone.read("notes.txt") == data
    assert mounted.zone.read("new.txt") == b"new"
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert len(mounted.zone.versions("new.txt")) == 1
