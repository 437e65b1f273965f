"""`upload_limit` and `download_limit` limit the sum of all transfers, and nothing else.

A limit gives a minimum duration, so that slow machines cannot make these tests fail.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = world.SEED["big.bin"]
RATE = 2_000_000  # bytes a second
BURST = RATE  # at most one second's worth passes at once


@contextmanager
def at_least_for(size: int) -> Iterator[None]:
    """Check that the block, which transfers `size` bytes, is not faster than the limit."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began > 0.95 * (size - BURST) / RATE


@pytest.mark.mount(f"download_limit={RATE}")
def test_readers_share_the_download_limit(mounted: Mounted) -> None:
    """Two readers together are not faster than one, and each gets all of its bytes."""
    mounted.zone.write("other.bin", BIG)
    eventually((mounted.root / "other.bin").exists)
    with at_least_for(2 * len(BIG)):
        readers = [
            subprocess.Popen(["cmp", mounted.root / name, "-"], stdin=subprocess.PIPE)
            for name in ("big.bin", "other.bin")
        ]
        for reader in readers:
            reader.communicate(BIG)
            assert reader.returncode == 0


@pytest.mark.mount(f"download_limit={RATE}")
def test_small_files_share_the_download_limit(mounted: Mounted) -> None:
    """The limit includes files that are prefetched for a program that walks through a folder."""
    for number in range(60):
        mounted.zone.write(f"{number:02}.bin", BIG[: 80_000 + number])
    eventually((mounted.root / "59.bin").exists)
    with at_least_for(60 * 80_000):
        for number in range(60):
            assert (mounted.root / f"{number:02}.bin").read_bytes() == BIG[: 80_000 + number]


@pytest.mark.mount("download_limit=50000", "upload_limit=50000")
def test_metadata_is_not_limited(mounted: Mounted) -> None:
    """While transfers run at the limit in both directions, folders are listed and created as
    usual."""
    mounted.zone.write("other.bin", BIG)
    eventually((mounted.root / "other.bin").exists)
    readers = [
        subprocess.Popen(["cat", mounted.root / name], stdout=subprocess.DEVNULL)
        for name in ("big.bin", "other.bin")
    ]
    try:
        (mounted.root / "going.bin").write_bytes(BIG)
        eventually(lambda: mounted.status()["outbox"]["uploading"] == 1)
        assert len(list((mounted.root / "docs/2026").iterdir())) == 1
        (mounted.root / "made").mkdir()
        eventually(lambda: mounted.zone.find("made"))
        assert [reader.poll() for reader in readers] == [None, None]
        assert mounted.status()["outbox"]["uploading"] == 1
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


@pytest.mark.mount(f"upload_limit={RATE}", "settle=0")
@pytest.mark.parametrize("sizes", [[len(BIG)] * 2, [80_000] * 60], ids=["large", "small"])
def test_uploads_share_the_upload_limit(mounted: Mounted, sizes: list[int]) -> None:
    """All uploads together stay within the limit, however many and however small they are."""
    files = {f"{number}.new": BIG[:size] for number, size in enumerate(sizes)}
    with at_least_for(sum(sizes)):
        for name, data in files.items():
            (mounted.root / name).write_bytes(data)
        mounted.sync()
    assert all(mounted.zone.read(name) == data for name, data in files.items())
