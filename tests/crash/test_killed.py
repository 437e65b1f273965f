"""After a kill of the daemon no closed file is lost, and none is sent twice."""

import os

import pytest

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


def test_a_kill_in_the_middle_of_an_upload_makes_one_version(mounted: Mounted) -> None:
    """An upload that the kill interrupted is sent again from its beginning."""
    mounted.allow("offline", "reach", "upload")
    data = os.urandom(8_000_000)
    with mounted.deployment.faulty(stall=300, method="POST"):
        (mounted.root / "big.bin").write_bytes(data)
        mounted.machine.run("sync", "--timeout", "1")
        mounted.kill()
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("big.bin") == data
    assert len(mounted.zone.versions("big.bin")) == 2


@pytest.mark.mount("settle=0")
def test_a_lost_reply_makes_one_version(mounted: Mounted) -> None:
    """If the service stored the version but its answer was lost, it is not sent again."""
    mounted.allow("reply", "upload", "answer", "offline", "reach")
    mounted.deployment.fault(drop_reply=True, method="POST", times=1)
    (mounted.root / "notes.txt").write_bytes(b"sent once")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"sent once"
    assert len(mounted.zone.versions("notes.txt")) == 2
