"""A logoff while the zones are mounted."""

import time

from tests.harness.machine import Mounted


def test_a_logoff_sends_what_waits_and_unmounts(mounted: Mounted) -> None:
    """What was just saved is on the service; the mount and the folders are gone."""
    (mounted.root / "last.txt").write_bytes(b"last words")
    mounted.machine.done("logoff")
    assert mounted.zone.read("last.txt") == b"last words"
    assert not mounted.is_mounted()
    assert not mounted.machine.state.exists()
    assert not mounted.machine.cache.exists()


def test_a_logoff_refuses_to_lose_what_cannot_be_sent(mounted: Mounted) -> None:
    """It ends within its timeout, says how much there is, and leaves the mount working."""
    with mounted.deployment.faulty(status=503, method="POST"):
        (mounted.root / "stuck.txt").write_bytes(b"12345")
        began = time.monotonic()
        ended = mounted.machine.run("logoff", "--timeout", "1")
        assert ended.returncode == 1
        assert "1 file (5 bytes)" in ended.stderr
        assert time.monotonic() - began < 20
    assert (mounted.root / "stuck.txt").read_bytes() == b"12345"
    mounted.sync()
    assert mounted.zone.read("stuck.txt") == b"12345"


def test_a_logoff_may_discard_it(mounted: Mounted) -> None:
    """On purpose only; the service never gets it."""
    with mounted.deployment.faulty(status=503, method="POST"):
        (mounted.root / "gone.txt").write_bytes(b"12345")
        mounted.machine.done("logoff", "--discard", "--timeout", "0")
    assert not mounted.machine.state.exists()
    assert not mounted.is_mounted()
    assert mounted.zone.find("gone.txt") is None
