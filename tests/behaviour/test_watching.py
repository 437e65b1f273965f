"""Output of waiting commands while the daemon dies, and after it is back."""

from tests.harness.machine import Mounted
from tests.harness.terminal import Terminal


def test_the_death_of_the_daemon_is_reported(mounted: Mounted) -> None:
    """`sync` ends with a line and exit code 1; `status --watch` waits for the next mount."""
    assert (mounted.root / "notes.txt").read_bytes()
    with mounted.deployment.faulty(status=500, method="POST", path="^/api/zones/"):
        (mounted.root / "notes.txt").write_bytes(b"mine\n")
        watching = Terminal(mounted.machine, "status", "--watch", size=(80, 24))
        watching.until("1 file (5 bytes) is only on this machine")
        waiting = Terminal(mounted.machine, "sync", size=(40, 24))
        waiting.until("1 file (5 bytes) left")
        mounted.kill()
        assert waiting.leave() == 1
        assert waiting.is_as_before()
        said = waiting.text().rpartition("left")[2].strip()
        assert said == (
            "zonedrive: the mount has ended: 1 file (5 bytes) not on the service yet; they are kept"
            " here, and uploads continue at the next mount"
        )
        watching.until("died after")
        refused = mounted.machine.run("sync")
        assert refused.returncode == 1
        said = "1 file (5 bytes) not on the service yet; run 'zonedrive mount DIR'"
        assert said in refused.stderr
    mounted.mount()
    watching.until("mounted at")
    mounted.sync()
    watching.until("everything is on the service")
    assert watching.interrupt() == 130
    assert watching.is_as_before()
    assert mounted.zone.read("notes.txt") == b"mine\n"
