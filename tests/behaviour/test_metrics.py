"""Metrics of a real mount, with and without its daemon."""

import time

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.unit.cli.test_metrics import samples

OUTBOX = ("pending_changes", "pending_bytes", "conflict_copies", "lost_files")


def metrics(mounted: Mounted) -> dict[str, float]:
    """Return the values of the default account by name, without the prefix."""
    found = samples(mounted.machine.done("status", "--metrics"))
    return {key.removeprefix("zonedrive_").replace(" default", ""): found[key] for key in found}


@pytest.mark.mount("settle=0.1")
def test_metrics_of_a_mount(mounted: Mounted) -> None:
    """Requests, pending and failed changes are counted, also after the daemon's end."""
    mounted.allow("reach", "upload", "answer")
    (mounted.root / "notes.txt").write_bytes(b"seven b")
    (mounted.root / "big.bin").read_bytes()
    mounted.sync()
    calm = metrics(mounted)
    assert calm["up"] == calm["state online"] == calm["database_readable"] == 1
    assert calm["pending_changes"] == calm["pending_bytes"] == 0
    for kind in ("metadata", "upload", "download"):
        assert calm[f"request_duration_seconds_count {kind}"] > 0, kind
        assert calm[f"request_duration_seconds_sum {kind}"] > 0, kind
        assert calm[f"request_failures_total {kind}"] == 0, kind
    assert calm["logon_end_timestamp_seconds"] > time.time()
    assert 0 < calm["cache_bytes"] < calm["cache_limit_bytes"]
    assert "oldest_pending_timestamp_seconds" not in calm

    before = time.time()
    mounted.deployment.fault(status=400, path="files", method="POST")
    (mounted.root / "notes.txt").write_bytes(b"five!")
    eventually(lambda: metrics(mounted)["failed_changes refused"] == 1, what="it is refused")
    refused = metrics(mounted)
    assert (refused["pending_changes"], refused["pending_bytes"]) == (1, 5)
    assert before - 1 <= refused["oldest_pending_timestamp_seconds"] <= time.time()
    assert refused["request_failures_total upload"] >= 1
    assert refused["failed_changes local"] == 0

    mounted.unmount("--timeout", "0")
    ended = metrics(mounted)
    assert (ended["up"], ended["state unmounted"], ended["state online"]) == (0, 1, 0)
    for name in (*OUTBOX, "failed_changes refused", "oldest_pending_timestamp_seconds"):
        assert ended[name] == refused[name], name
    assert not [key for key in ended if key.startswith("request")]
    mounted.deployment.heal()
    mounted.mount()
    mounted.sync()


def test_metrics_of_dead_and_silent_daemons(mounted: Mounted) -> None:
    """A killed daemon is reported as died, a stopped one as unknown; both answers come soon."""
    with mounted.paused():
        silent = metrics(mounted)
    assert (silent["up"], silent["state unknown"], silent["database_readable"]) == (0, 1, 1)
    mounted.kill()
    dead = metrics(mounted)
    assert (dead["up"], dead["state died"], dead["database_readable"]) == (0, 1, 1)
