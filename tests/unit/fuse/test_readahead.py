"""How large the kernel's requests are."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.unit.fuse.mounted import MemoryMount
from zonedrive.fuse import readahead

Mount = Callable[..., MemoryMount]


def test_a_large_file_is_read_in_large_requests(mount: Mount) -> None:
    """Where the machine lets us, a megabyte takes two requests; where not, the mount works too."""
    served = mount()
    served.tell(put="a.bin", data="x" * (8 << 20))
    device = served.path.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    wide = setting.read_text().strip() == str(readahead.KIB)
    assert wide or not os.access(setting, os.W_OK)
    assert (served.path / "a.bin").read_bytes() == b"x" * (8 << 20)
    reads = served.tell()["calls"]["read"]
    assert reads <= (24 if wide else 80)
