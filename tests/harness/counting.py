"""Count of the calls of zonedrive's functions, as a measure of work that no machine influences."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace

import zonedrive

SOURCE = str(Path(zonedrive.__file__).parent)


@contextmanager
def calls() -> Iterator[SimpleNamespace]:
    """Yield an object whose `number` is that of the calls in this thread during the block."""
    counted = SimpleNamespace(number=0)

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        counted.number += event == "call" and frame.f_code.co_filename.startswith(SOURCE)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield counted
    finally:
        sys.setprofile(before)
