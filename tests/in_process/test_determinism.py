"""The client in this process repeats the same requests in each run."""

import contextlib
from pathlib import Path

from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually


def played(folder: Path) -> tuple[list[str], object]:
    """Save, read and rename through faults and a kill; return all requests and the result."""
    mount = VirtualMount(folder, "settle=0.5", "refresh=2")
    try:
        mount.mount()
        mount.deployment.fault(drop_reply=True, times=2, method="POST")
        mount.deployment.fault(status=503, error="NOT_AVAILABLE", times=3, path="/folder/")
        for number in range(5):
            (mount.root / f"{number}.txt").write_bytes(bytes(number * 90_000))
        (mount.root / "docs").rename(mount.root / "papers")
        mount.zone.write("notes.txt", b"by bob\n")
        with (mount.root / "notes.txt").open("ab") as file:
            file.write(b"by alice\n")
        assert len((mount.root / "big.bin").read_bytes()) > 3_000_000
        mount.kill()
        mount.mount()
        (mount.root / "3.txt").rename(mount.root / "papers/three.txt")
        with contextlib.suppress(FileNotFoundError):
            (mount.root / "4.txt").unlink()
        eventually(lambda: mount.status()["state"] == "online", what="the faults are over")
        mount.sync()
        times = [version["lastModified"] for version in mount.zone.versions("1.txt")]
        return mount.deployment.world.requests, (mount.zone.tree(), times, mount.conflicts())
    finally:
        mount.close()


def test_two_runs_are_equal(tmp_path: Path) -> None:
    """Threads and the speed of the machine have no influence on a run."""
    first, second = played(tmp_path / "one"), played(tmp_path / "two")
    assert len(first[0]) > 20
    assert second == first
