"""Kernel settings of a mount."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.unit.fuse.mounted import Mount
from zonedrive.fuse import tuning

READERS = 20


def test_a_large_file_is_read_in_large_requests(mount: Mount) -> None:
    """If the machine allows it, a megabyte takes two requests; otherwise the mount works too."""
    served = mount()
    served.tell(put="a.bin", data="x" * (8 << 20))
    device = served.path.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    wide = setting.read_text().strip() == str(tuning.READ_AHEAD_KIB)
    assert wide or not os.access(setting, os.W_OK)
    assert (served.path / "a.bin").read_bytes() == b"x" * (8 << 20)
    reads = served.tell()["calls"]["read"]
    assert reads <= (24 if wide else 80)


@pytest.mark.usefixtures("connections")
def test_waiting_readers_do_not_block_others(mount: Mount) -> None:
    """While twenty programs wait for content, cached files can be read."""
    served = mount()
    for number in range(READERS):
        served.tell(put=f"far{number}.bin", data="x" * 200_000)
    served.tell(put="here.bin", data="y" * 200_000)
    served.tell(hold="x")
    waiting = [
        subprocess.Popen(["cat", served.path / f"far{number}.bin"], stdout=subprocess.DEVNULL)
        for number in range(READERS)
    ]
    try:
        eventually(lambda: served.tell()["calls"].get("read", 0) >= READERS)
        assert (served.path / "here.bin").read_bytes() == b"y" * 200_000
    finally:
        served.tell(hold="")
        for reader in waiting:
            assert reader.wait(60) == 0
